/* SPDX-License-Identifier: Apache-2.0
 * mapped.c: a forward pass with weights as they lie in mapped files: inputs of linear layers in BF16 or FP32, never quantised. */
#include "mapped.h"

#include <stdlib.h>

#include "carve.h"
#include "num.h"
#include "status.h"

static moi_status plan_to_x(moi_plan **out, const moii_exec *x, int64_t cols)
{
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.rowwise = MOI_FORMAT_BF16;
    d.max_rows = x->max_tokens, d.cols = cols;
    return moi_quantize_plan_create(out, x->lm->ctx, &d);
}

static moi_status plan(moii_exec *x)
{
    const moi_lm *lm = x->lm;
    const moii_mapped *m = lm->mapped;
    moii_mapped_exec *p = x->mapped = calloc(1, sizeof *p);
    MOII_REQUIRE(p, MOI_ERR_NOMEM, "moi_lm: no memory for plans");
    p->products = calloc((size_t)m->shape_count, sizeof *p->products);
    MOII_REQUIRE(p->products, MOI_ERR_NOMEM, "moi_lm: no memory for plans");
    for (int i = 0; i < m->shape_count; i++) {
        const moii_shape *s = &m->shapes[i];
        MOII_TRY(moii_matmul_create(&p->products[i], lm->ctx, s->x, &s->format, x->max_tokens, s->rows, s->cols));
    }
    if (moii_mapped_x(lm) != MOI_F32) {
        MOII_TRY(plan_to_x(&p->to_x_h, x, lm->config.hidden_size));
        MOII_TRY(plan_to_x(&p->to_x_q, x, moii_q_width(&lm->config)));
    }
    return moii_mapped_experts_plan(x);
}

static void unplan(moii_exec *x)
{
    moii_mapped_exec *p = x->mapped;
    if (!p) return;
    for (int i = 0; p->products && i < x->lm->mapped->shape_count; i++) moii_matmul_free(&p->products[i]);
    moi_plan *plans[] = { p->to_x_h, p->to_x_q, p->swiglu[0], p->swiglu[1], p->route, p->permute, p->combine };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) moi_plan_free(plans[i]);
    for (int i = 0; i < MOII_FEW_KINDS; i++) moi_plan_free(p->few[i]);
    free(p->products);
    free(p);
}

static int64_t half_bytes(const moii_exec *x, int64_t t, int64_t cols)
{
    return moii_mapped_x(x->lm) == MOI_F32 ? 0 : moii_round_up(t * cols * 2, MOII_BUFFER_ALIGN);
}

static int64_t space(const moii_exec *x)
{
    const moii_mapped_exec *p = x->mapped;
    const int64_t wide = moii_max(x->lm->config.hidden_size, moii_q_width(&x->lm->config));
    int64_t most = moii_max(moi_plan_workspace_bytes(p->to_x_h), moi_plan_workspace_bytes(p->to_x_q));
    for (int i = 0; i < x->lm->mapped->shape_count; i++) most = moii_max(most, moii_matmul_workspace(&p->products[i]));
    return moii_max(half_bytes(x, x->max_tokens, wide) + most, moii_mapped_experts_space(x));
}

static moi_status ready(moii_exec *x, int64_t t)
{
    (void)x, (void)t;
    return MOI_OK;
}

static void embed(const moii_exec *x, const int32_t *ids, int64_t t, float *y)
{
    const moii_view *e = &x->lm->mapped->embed;
    const int64_t h = e->cols;
    for (int64_t r = 0; r < t; r++, y += h) {
        const char *row = (const char *)e->at.data + ids[r] * moi_row_bytes(e->format.elem, h);
        const uint16_t *codes = (const uint16_t *)(const void *)row;
        for (int64_t i = 0; i < h; i++) {
            if (e->format.elem == MOI_F32) y[i] = ((const float *)(const void *)row)[i];
            else y[i] = e->format.elem == MOI_BF16 ? moii_bf16_decode(codes[i]) : moii_f16_decode(codes[i]);
        }
    }
}

moi_status moii_mapped_to_x(const moi_plan *to_x, int64_t t, const float *in, void *half, moii_space space_, const void **out)
{
    *out = to_x ? half : (const void *)in;
    if (!to_x) return MOI_OK;
    moi_quantize_args q = { .size = sizeof q, .rows = t, .in = { in, NULL, 0 }, .rowwise = { half, NULL, 0 } };
    return moi_quantize_run(to_x, &q, space_.at, space_.bytes, NULL);
}

static moi_status qkv(const moii_exec *x, int64_t layer, int64_t t, const moii_saved *s)
{
    const moi_lm_config *m = &x->lm->config;
    const moii_layer_views *w = &x->lm->mapped->layers[layer];
    const int64_t q = moii_q_width(m), kv = moii_kv_width(m), wide = q + 2 * kv;
    const moii_space rest = moii_space_behind(x, half_bytes(x, t, m->hidden_size));
    const void *in;
    MOII_TRY(moii_mapped_to_x(x->mapped->to_x_h, t, x->normed, x->space.at, rest, &in));
    MOII_TRY(moii_mapped_matmul(x, &w->q, t, in, s->qkv, wide, rest));
    MOII_TRY(moii_mapped_matmul(x, &w->k, t, in, s->qkv + q, wide, rest));
    return moii_mapped_matmul(x, &w->v, t, in, s->qkv + q + kv, wide, rest);
}

static moi_status o(const moii_exec *x, int64_t layer, int64_t t, const moii_saved *s)
{
    const int64_t q = moii_q_width(&x->lm->config);
    const moii_space rest = moii_space_behind(x, half_bytes(x, t, q));
    const void *in;
    MOII_TRY(moii_mapped_to_x(x->mapped->to_x_q, t, s->attention, x->space.at, rest, &in));
    return moii_mapped_matmul(x, &x->lm->mapped->layers[layer].o, t, in, x->branch, 0, rest);
}

const moii_source moii_source_mapped = {
    .plan = plan, .unplan = unplan, .space = space, .ready = ready, .embed = embed, .qkv = qkv, .o = o,
    .experts = moii_mapped_experts,
};
