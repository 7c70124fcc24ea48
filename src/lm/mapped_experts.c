/* SPDX-License-Identifier: Apache-2.0
 * mapped_experts.c: the experts of a mapped model.  A few tokens go through moi_moe_decode.  More are sorted by expert; each
 * expert that has some runs its three products on them; every token then adds its experts' rows up in the order of its slots. */
#include "carve.h"
#include "mapped.h"
#include "status.h"

/* What one call keeps in exec->space: t tokens, s = t * top_k rows sorted by expert. */
typedef struct scratch {
    void *x, *sorted;              /* [t, h], [s, h], both in the type of activations */
    float *logits, *probs, *weights;
    int32_t *ids, *row_of, *token_of;
    int64_t *offsets;              /* [e + 1] */
    float *gate_up;                /* [s, 2 f] */
    void *act;                     /* [s, f] in the type of activations */
    float *y;                      /* [s, h]; not for dense layers */
    int64_t used;
} scratch;

static scratch lay_out(const moii_exec *x, const moii_layer *y, int64_t t, char *base)
{
    moii_carve c = { base, 0 };
    scratch s = { 0 };
    const int64_t h = x->lm->config.hidden_size, rows = t * y->top_k, e = y->experts;
    const int64_t bytes = moi_row_bytes(moii_mapped_x(x->lm), 1);
    s.x = moii_carve_take(&c, t * h * bytes);
    s.gate_up = moii_carve_floats(&c, rows * 2 * y->width);
    s.act = moii_carve_take(&c, rows * y->width * bytes);
    s.weights = moii_carve_floats(&c, rows);
    s.ids = moii_carve_take(&c, rows * 4);
    if (e > 1) {
        s.sorted = moii_carve_take(&c, rows * h * bytes);
        s.logits = moii_carve_floats(&c, t * e);
        s.probs = moii_carve_floats(&c, t * e);
        s.row_of = moii_carve_take(&c, rows * 4);
        s.token_of = moii_carve_take(&c, rows * 4);
        s.offsets = moii_carve_take(&c, (e + 1) * 8);
        s.y = moii_carve_floats(&c, rows * h);
    }
    s.used = c.used;
    return s;
}

/* ---- plans ---- */

static moi_status plan_sorting(moii_exec *x)
{
    const moi_lm_config *m = &x->lm->config;
    moi_route_desc r = MOI_ROUTE_DESC_INIT;
    r.max_tokens = x->max_tokens, r.experts = m->num_experts, r.top_k = m->num_experts_per_tok, r.renormalize = m->norm_topk_prob;
    MOII_TRY(moi_route_plan_create(&x->mapped->route, x->lm->ctx, &r));
    moi_permute_desc p = MOI_PERMUTE_DESC_INIT;
    p.dtype = moii_mapped_x(x->lm);
    p.max_tokens = x->max_tokens, p.hidden = m->hidden_size, p.experts = m->num_experts, p.top_k = m->num_experts_per_tok;
    MOII_TRY(moi_permute_plan_create(&x->mapped->permute, x->lm->ctx, &p));
    p.dtype = MOI_F32;
    return moi_combine_plan_create(&x->mapped->combine, x->lm->ctx, &p);
}

static moi_status plan_few(moii_exec *x)
{
    for (int i = 0; i < x->lm->mapped->few_count; i++) {
        const moii_few *few = &x->lm->mapped->few[i];
        const moi_lm_config *m = &x->lm->config;
        moi_moe_decode_desc d = MOI_MOE_DECODE_DESC_INIT;
        d.weights = few->format;
        d.x = moii_mapped_x(x->lm);
        d.max_tokens = moii_min(x->max_tokens, MOII_FEW), d.hidden = m->hidden_size;
        d.width = few->sparse ? m->moe_intermediate_size : m->intermediate_size;
        d.experts = few->sparse ? m->num_experts : 1, d.top_k = few->sparse ? m->num_experts_per_tok : 1;
        MOII_TRY(moi_moe_decode_plan_create(&x->mapped->few[i], x->lm->ctx, &d));
    }
    return MOI_OK;
}

moi_status moii_mapped_experts_plan(moii_exec *x)
{
    MOII_TRY(plan_few(x));
    for (int64_t l = 0; l < x->lm->config.num_hidden_layers; l++) {
        const moii_layer *y = &x->lm->params.layers[l];
        if (x->mapped->swiglu[y->sparse]) continue;
        moi_swiglu_desc d = MOI_SWIGLU_DESC_INIT;
        d.in = MOI_FORMAT_F32;
        d.out = moii_mapped_x(x->lm);
        d.max_rows = x->max_tokens * y->top_k, d.width = y->width;
        MOII_TRY(moi_swiglu_plan_create(&x->mapped->swiglu[y->sparse], x->lm->ctx, &d));
        if (y->experts > 1) MOII_TRY(plan_sorting(x));
    }
    return MOI_OK;
}

int64_t moii_mapped_experts_space(const moii_exec *x)
{
    const moii_mapped_exec *p = x->mapped;
    const moi_plan *plans[] = { p->to_x_h, p->swiglu[0], p->swiglu[1], p->route, p->permute, p->combine };
    int64_t most = 0, scratch_bytes = 0;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) most = moii_max(most, moi_plan_workspace_bytes(plans[i]));
    for (int i = 0; i < MOII_FEW_KINDS; i++) most = moii_max(most, moi_plan_workspace_bytes(p->few[i]));
    for (int i = 0; i < x->lm->mapped->shape_count; i++) most = moii_max(most, moii_matmul_workspace(&p->products[i]));
    for (int64_t l = 0; l < x->lm->config.num_hidden_layers; l++)
        scratch_bytes = moii_max(scratch_bytes, lay_out(x, &x->lm->params.layers[l], x->max_tokens, NULL).used);
    return scratch_bytes + most;
}

/* ---- running ---- */

/* Where row `row` of a matrix of activations begins. */
static const void *row_at(const moii_exec *x, const void *base, int64_t row, int64_t cols)
{
    return (const char *)base + row * moi_row_bytes(moii_mapped_x(x->lm), cols);
}

/* y [rows, h] = down(swiglu(gate, up)) for experts 0..count-1; expert e has rows offsets[e]..offsets[e+1] of `in`. */
static moi_status run_all(const moii_exec *x, int64_t layer, const scratch *s, const void *in, const int64_t *offsets, float *y, moii_space space)
{
    const moii_layer *place = &x->lm->params.layers[layer];
    const moii_expert_views *w = x->lm->mapped->layers[layer].experts;
    const int64_t h = x->lm->config.hidden_size, f = place->width;
    for (int64_t e = 0; e < place->experts; e++) {
        const int64_t at = offsets[e], n = offsets[e + 1] - at;
        if (n == 0) continue;
        float *out = s->gate_up + at * 2 * f;
        MOII_TRY(moii_mapped_matmul(x, &w[e].gate, n, row_at(x, in, at, h), out, 2 * f, space));
        MOII_TRY(moii_mapped_matmul(x, &w[e].up, n, row_at(x, in, at, h), out + f, 2 * f, space));
    }
    moi_swiglu_args a = { .size = sizeof a, .rows = offsets[place->experts], .gate_up = { s->gate_up, NULL, 0 }, .plain = s->act };
    MOII_TRY(moi_swiglu_run(x->mapped->swiglu[place->sparse], &a, space.at, space.bytes, NULL));
    for (int64_t e = 0; e < place->experts; e++) {
        const int64_t at = offsets[e], n = offsets[e + 1] - at;
        if (n > 0) MOII_TRY(moii_mapped_matmul(x, &w[e].down, n, row_at(x, s->act, at, f), y + at * h, 0, space));
    }
    return MOI_OK;
}

/* The router in FP32, its best experts and their weights. */
static moi_status route(const moii_exec *x, int64_t layer, int64_t t, const float *in, const scratch *s, moii_space space)
{
    if (x->lm->params.layers[layer].experts == 1) {
        for (int64_t i = 0; i < t; i++) s->ids[i] = 0, s->weights[i] = 1.0f;
        return MOI_OK;
    }
    MOII_TRY(moii_mapped_matmul(x, &x->lm->mapped->layers[layer].router, t, in, s->logits, 0, space));
    moi_route_args r = { .size = sizeof r, .tokens = t, .logits = s->logits, .probs = s->probs, .ids = s->ids, .weights = s->weights };
    return moi_route_run(x->mapped->route, &r, space.at, space.bytes, NULL);
}

/* Many tokens that are not the same expert's. */
static moi_status run_sorted(const moii_exec *x, int64_t layer, int64_t t, const void *in, const scratch *s, moii_space space)
{
    moi_permute_args p = { .size = sizeof p, .tokens = t, .ids = s->ids, .x = in, .x_sorted = s->sorted, .offsets = s->offsets,
                           .row_of = s->row_of, .token_of = s->token_of };
    MOII_TRY(moi_permute_run(x->mapped->permute, &p, space.at, space.bytes, NULL));
    MOII_TRY(run_all(x, layer, s, s->sorted, s->offsets, s->y, space));
    moi_combine_args c = { .size = sizeof c, .tokens = t, .row_of = s->row_of, .weights = s->weights, .y_sorted = s->y, .y = x->branch };
    return moi_combine_run(x->mapped->combine, &c, space.at, space.bytes, NULL);
}

moi_status moii_mapped_experts(const moii_exec *x, int64_t layer, int64_t t, const moii_saved *saved)
{
    const moii_layer *place = &x->lm->params.layers[layer];
    const moii_layer_views *w = &x->lm->mapped->layers[layer];
    const scratch s = lay_out(x, place, t, x->space.at);
    const moii_space space = moii_space_behind(x, s.used);
    const void *in;
    MOII_TRY(moii_mapped_to_x(x->mapped->to_x_h, t, saved->normed, s.x, space, &in));
    MOII_TRY(route(x, layer, t, saved->normed, &s, space));
    if (w->apart && t <= MOII_FEW) {
        moi_moe_decode_args a = { .size = sizeof a, .tokens = t, .x = in, .ids = s.ids, .weights = s.weights, .y = x->branch, .apart = w->apart };
        return moi_moe_decode_run(x->mapped->few[w->few], &a, space.at, space.bytes, NULL);
    }
    if (place->experts == 1) return run_all(x, layer, &s, in, (const int64_t[]){ 0, t }, x->branch, space);
    return run_sorted(x, layer, t, in, &s, space);
}
