/* SPDX-License-Identifier: Apache-2.0
 * decode.c: one token's experts: router in FP32, activations in BF16 (FP32 in recipe F32), weights in the recipe's format. */
#include "decode.h"

#include <stdlib.h>

#include "status.h"

static moi_format weight_format(const moi_lm_options *o)
{
    if (o->recipe == MOI_RECIPE_F32) return MOI_FORMAT_F32;
    if (o->recipe == MOI_RECIPE_BF16) return MOI_FORMAT_BF16;
    moi_block block = o->recipe == MOI_RECIPE_BLK128 ? MOI_BLOCK_SQUARE : MOI_BLOCK_VECTOR;
    return (moi_format){ .recipe = o->recipe, .elem = o->elem_forward, .block = block, .round = o->round };
}

static moi_status plan_quantize(moi_plan **out, moi_ctx *ctx, const moii_matrix *m, int64_t batch)
{
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.rowwise = m->format;
    d.max_rows = m->rows, d.cols = m->cols, d.batch = batch;
    return moi_quantize_plan_create(out, ctx, &d);
}

static moi_status plan_router(moii_decode_kind *k, moi_lm *lm)
{
    const moi_lm_config *c = &lm->config;
    moi_gemm_desc g = MOI_GEMM_DESC_INIT;
    g.a = g.b = MOI_FORMAT_F32;
    g.max_m = 1, g.n = c->num_experts, g.k = c->hidden_size;
    return moi_gemm_plan_create(&k->router, lm->ctx, &g);
}

/* Sizes and plans of the layers like `y`. */
static moi_status plan_kind(moii_decode *d, moi_lm *lm, const moii_layer *y)
{
    moii_decode_kind *k = &d->kinds[y->sparse];
    const moi_format f = weight_format(&lm->options);
    const int64_t h = lm->config.hidden_size, e = y->experts;
    k->gate_up = (moii_matrix){ f, 2 * y->width, h };
    k->down = (moii_matrix){ f, h, y->width };
    k->gate_up_scale_at = moii_round_up(e * 2 * y->width * moi_row_bytes(f.elem, h), MOII_BUFFER_ALIGN);
    k->down_at = k->gate_up_scale_at + moii_round_up(e * moi_scale_bytes(&f, 2 * y->width, h, 0), MOII_BUFFER_ALIGN);
    k->down_scale_at = k->down_at + moii_round_up(e * h * moi_row_bytes(f.elem, y->width), MOII_BUFFER_ALIGN);
    k->bytes = k->down_scale_at + moii_round_up(e * moi_scale_bytes(&f, h, y->width, 0), MOII_BUFFER_ALIGN);
    MOII_TRY(plan_quantize(&k->quantize_gate_up, lm->ctx, &k->gate_up, e));
    MOII_TRY(plan_quantize(&k->quantize_down, lm->ctx, &k->down, e));
    if (y->sparse) MOII_TRY(plan_router(k, lm));
    moi_moe_decode_desc x = MOI_MOE_DECODE_DESC_INIT;
    x.weights = f;
    x.x = d->x;
    x.max_tokens = 1, x.hidden = h, x.width = y->width, x.experts = e, x.top_k = y->top_k;
    x.from_logits = true, x.renormalize = lm->config.norm_topk_prob;
    return moi_moe_decode_plan_create(&k->experts, lm->ctx, &x);
}

static int64_t workspace_bytes(const moii_decode *d)
{
    int64_t most = moi_plan_workspace_bytes(d->to_x);
    for (int i = 0; i < 2; i++) {
        const moii_decode_kind *k = &d->kinds[i];
        const moi_plan *plans[] = { k->quantize_gate_up, k->quantize_down, k->experts, k->router };
        for (int p = 0; p < 4; p++) most = moii_max(most, moi_plan_workspace_bytes(plans[p]));
    }
    return most;
}

static int64_t layer_at(const moii_decode *d, const moi_lm *lm, int64_t layer)
{
    int64_t at = 0;
    for (int64_t l = 0; l < layer; l++) at += d->kinds[lm->params.layers[l].sparse].bytes;
    return at;
}

static moi_status build(moii_decode *d, moi_lm *lm)
{
    const int64_t h = lm->config.hidden_size, e = moii_max(lm->config.num_experts, 1);
    const moii_matrix row = { d->x == MOI_F32 ? MOI_FORMAT_F32 : MOI_FORMAT_BF16, 1, h };
    MOII_TRY(plan_quantize(&d->to_x, lm->ctx, &row, 1));
    for (int64_t l = 0; l < lm->config.num_hidden_layers; l++) {
        const moii_layer *y = &lm->params.layers[l];
        if (!d->kinds[y->sparse].experts) MOII_TRY(plan_kind(d, lm, y));
    }
    d->bytes = layer_at(d, lm, lm->config.num_hidden_layers);
    MOII_TRY(moii_alloc(lm->ctx, d->bytes, &d->weights));
    const int64_t sizes[] = { h * 4, e * 4, workspace_bytes(d) };
    int64_t at[4] = { 0 };
    for (int i = 0; i < 3; i++) at[i + 1] = at[i] + moii_round_up(sizes[i], MOII_BUFFER_ALIGN);
    MOII_TRY(moii_alloc(lm->ctx, at[3], &d->scratch));
    d->x_half = d->scratch;
    d->logits = (float *)(void *)(d->scratch + at[1]);
    d->space = (moii_space){ d->scratch + at[2], sizes[2] };
    return MOI_OK;
}

moi_status moii_decode_create(moii_decode **out, moi_lm *lm)
{
    *out = NULL;
    moii_decode *d = calloc(1, sizeof *d);
    MOII_REQUIRE(d, MOI_ERR_NOMEM, "moi_session_create: no memory");
    d->x = lm->options.recipe == MOI_RECIPE_F32 ? MOI_F32 : MOI_BF16;
    moi_status status = build(d, lm);
    if (status) moii_decode_free(d, lm->ctx);
    else *out = d;
    return status;
}

void moii_decode_free(moii_decode *d, moi_ctx *ctx)
{
    if (!d) return;
    for (int i = 0; i < 2; i++) {
        moii_decode_kind *k = &d->kinds[i];
        moi_plan *plans[] = { k->quantize_gate_up, k->quantize_down, k->experts, k->router };
        for (int p = 0; p < 4; p++) moi_plan_free(plans[p]);
    }
    moi_plan_free(d->to_x);
    moi_buf_free(ctx, d->weights);
    moi_buf_free(ctx, d->scratch);
    free(d);
}

static moi_status quantize(const moii_decode *d, const moi_plan *plan, const moii_matrix *m, const float *from, char *codes, char *scales)
{
    moi_quantize_args a = { .size = sizeof a, .rows = m->rows, .in = { from, NULL, 0 } };
    a.rowwise = (moi_result){ codes, moii_format_plain(&m->format) ? NULL : scales, 0 };
    return moi_quantize_run(plan, &a, d->space.at, d->space.bytes, NULL);
}

moi_status moii_decode_prepare(moii_decode *d, const moi_lm *lm)
{
    if (d->version == lm->version) return MOI_OK;
    for (int64_t l = 0; l < lm->config.num_hidden_layers; l++) {
        const moii_layer *y = &lm->params.layers[l];
        const moii_decode_kind *k = &d->kinds[y->sparse];
        char *at = d->weights + layer_at(d, lm, l);
        MOII_TRY(quantize(d, k->quantize_gate_up, &k->gate_up, lm->weights + y->gate_up, at, at + k->gate_up_scale_at));
        MOII_TRY(quantize(d, k->quantize_down, &k->down, lm->weights + y->down, at + k->down_at, at + k->down_scale_at));
    }
    d->version = lm->version;
    return MOI_OK;
}

static moi_operand operand(const moii_matrix *m, const char *codes, const char *scales)
{
    return (moi_operand){ codes, moii_format_plain(&m->format) ? NULL : scales, 0 };
}

/* d->logits: of a dense layer, one that gives its expert the weight 1 */
static moi_status run_router(const moii_decode *d, const moi_lm *lm, const moii_layer *y, const float *x)
{
    const moii_decode_kind *k = &d->kinds[y->sparse];
    d->logits[0] = 0;
    if (!k->router) return MOI_OK;
    moi_gemm_args g = { .size = sizeof g, .m = 1, .a = { x, NULL, 0 }, .b = { lm->weights + y->router, NULL, 0 }, .d = d->logits };
    return moi_gemm_run(k->router, &g, d->space.at, d->space.bytes, NULL);
}

moi_status moii_decode_layer(const moii_decode *d, const moi_lm *lm, int64_t layer, const float *x, float *y)
{
    const moii_layer *place = &lm->params.layers[layer];
    const moii_decode_kind *k = &d->kinds[place->sparse];
    const char *at = d->weights + layer_at(d, lm, layer);
    MOII_TRY(run_router(d, lm, place, x));
    moi_moe_decode_args a = { .size = sizeof a, .tokens = 1, .x = x, .logits = d->logits, .y = y };
    if (d->x != MOI_F32) {
        moi_quantize_args q = { .size = sizeof q, .rows = 1, .in = { x, NULL, 0 }, .rowwise = { d->x_half, NULL, 0 } };
        MOII_TRY(moi_quantize_run(d->to_x, &q, d->space.at, d->space.bytes, NULL));
        a.x = d->x_half;
    }
    a.gate_up = operand(&k->gate_up, at, at + k->gate_up_scale_at);
    a.down = operand(&k->down, at + k->down_at, at + k->down_scale_at);
    return moi_moe_decode_run(k->experts, &a, d->space.at, d->space.bytes, NULL);
}
