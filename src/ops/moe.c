/* SPDX-License-Identifier: Apache-2.0
 * moe.c: the plan of a MoE layer: its checks, and one sub-plan per step. */
#include "moe.h"

#include <stdlib.h>

static moi_format plain(moi_dtype t)
{
    return (moi_format){ .recipe = t == MOI_F32 ? MOI_RECIPE_F32 : MOI_RECIPE_BF16, .elem = t };
}

static moii_moe_formats formats_of(const moi_moe_desc *d)
{
    moi_format f = { d->recipe, d->elem_forward, MOI_BLOCK_VECTOR, d->round, MOI_LAYOUT_ROW, d->flags };
    if (d->recipe == MOI_RECIPE_F32 || d->recipe == MOI_RECIPE_BF16) {
        moi_dtype t = d->recipe == MOI_RECIPE_F32 ? MOI_F32 : MOI_BF16;
        return (moii_moe_formats){ plain(t), plain(t), plain(t), false, t };
    }
    moii_moe_formats out = { f, f, f, true, MOI_BF16 };
    out.grad.elem = d->elem_gradient;
    if (d->recipe == MOI_RECIPE_BLK128) out.weight.block = MOI_BLOCK_SQUARE;
    return out;
}

static moi_status make_quantize(moii_moe *m, moi_ctx *ctx, moii_moe_part part, moi_dtype in, moi_format row, uint32_t want, int64_t rows,
                                int64_t cols, int64_t batch, int64_t groups)
{
    moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
    q.in = in;
    q.rowwise = q.colwise = row;
    q.want = want;
    q.max_rows = rows;
    q.cols = cols;
    q.batch = batch;
    q.groups = want & MOI_WANT_COLWISE ? groups : 0;
    return moi_quantize_plan_create(&m->part[part], ctx, &q);
}

static moi_status make_ggemm(moii_moe *m, moi_ctx *ctx, moii_moe_part part, moi_grouping grouping, const moi_format *a, const moi_format *b,
                             bool plain_transposed, moi_dtype out, const moi_moe_desc *d, int64_t mm, int64_t n, int64_t k)
{
    moi_ggemm_desc g = MOI_GGEMM_DESC_INIT;
    g.grouping = grouping;
    g.a = *a;
    g.b = *b;
    if (!m->formats.scaled && plain_transposed) {
        g.b_order = MOI_MN_MAJOR;
        if (grouping == MOI_GROUP_K) g.a_order = MOI_MN_MAJOR;
    }
    g.out = out;
    g.accumulate = grouping == MOI_GROUP_K;
    g.groups = d->experts;
    g.max_rows = d->max_tokens * d->top_k;
    g.m = mm;
    g.n = n;
    g.k = k;
    return moi_ggemm_plan_create(&m->part[part], ctx, &g);
}

static moi_status make_swiglu(moii_moe *m, moi_ctx *ctx, moii_moe_part part, const moi_format *out, uint32_t want, const moi_moe_desc *d)
{
    moi_swiglu_desc s = MOI_SWIGLU_DESC_INIT;
    s.in = plain(m->formats.inner);
    s.out = m->formats.inner;
    s.rowwise = s.colwise = *out;
    s.want = m->formats.scaled ? want : 0;
    s.max_rows = d->max_tokens * d->top_k;
    s.width = d->width;
    s.groups = s.want & MOI_WANT_COLWISE ? d->experts : 0;
    return moi_swiglu_plan_create(&m->part[part], ctx, &s);
}

static moi_status make_router(moii_moe *m, moi_ctx *ctx, const moi_moe_desc *d)
{
    moi_gemm_desc g = MOI_GEMM_DESC_INIT;
    g.a = g.b = MOI_FORMAT_F32;
    g.max_m = d->max_tokens;
    g.n = d->experts;
    g.k = d->hidden;
    MOII_TRY(moi_gemm_plan_create(&m->part[MOII_MOE_LOGITS], ctx, &g));
    g.n = d->hidden; /* d_x += d_logits [t, e] * router [e, h] */
    g.k = d->experts;
    g.b_order = MOI_MN_MAJOR;
    g.accumulate = true;
    MOII_TRY(moi_gemm_plan_create(&m->part[MOII_MOE_D_X_ROUTER], ctx, &g));
    moi_ggemm_desc w = MOI_GGEMM_DESC_INIT; /* d_router [e, h] += d_logits^T x, a reduction over the tokens of this run */
    w.grouping = MOI_GROUP_K;
    w.a = w.b = MOI_FORMAT_F32;
    w.a_order = w.b_order = MOI_MN_MAJOR;
    w.accumulate = true;
    w.groups = 1;
    w.max_rows = d->max_tokens;
    w.m = d->experts;
    w.n = d->hidden;
    MOII_TRY(moi_ggemm_plan_create(&m->part[MOII_MOE_D_ROUTER], ctx, &w));
    moi_route_desc r = MOI_ROUTE_DESC_INIT;
    r.max_tokens = d->max_tokens;
    r.experts = d->experts;
    r.top_k = d->top_k;
    r.renormalize = d->renormalize;
    r.aux_coef = d->aux_coef;
    MOII_TRY(moi_route_plan_create(&m->part[MOII_MOE_ROUTE], ctx, &r));
    moi_permute_desc p = MOI_PERMUTE_DESC_INIT;
    p.dtype = d->io;
    p.max_tokens = d->max_tokens;
    p.hidden = d->hidden;
    p.experts = d->experts;
    p.top_k = d->top_k;
    MOII_TRY(moi_permute_plan_create(&m->part[MOII_MOE_PERMUTE], ctx, &p));
    MOII_TRY(moi_combine_plan_create(&m->part[MOII_MOE_COMBINE], ctx, &p));
    MOII_TRY(moi_combine_plan_create(&m->part[MOII_MOE_D_COMBINE], ctx, &p));
    p.dtype = MOI_F32;
    MOII_TRY(moi_combine_plan_create(&m->part[MOII_MOE_D_X], ctx, &p));
    if (d->io == MOI_F32) return MOI_OK;
    moi_dequantize_desc x = MOI_DEQUANTIZE_DESC_INIT;
    x.in = MOI_FORMAT_BF16;
    x.max_rows = d->max_tokens;
    x.cols = d->hidden;
    return moi_dequantize_plan_create(&m->part[MOII_MOE_WIDEN_X], ctx, &x);
}

static moi_status make_parts(moii_moe *m, moi_ctx *ctx, const moi_moe_desc *d)
{
    const moii_moe_formats *f = &m->formats;
    int64_t rows = d->max_tokens * d->top_k, h = d->hidden, w = d->width, e = d->experts;
    uint32_t both = MOI_WANT_ROWWISE | (f->scaled ? (uint32_t)MOI_WANT_COLWISE : 0);
    MOII_TRY(make_quantize(m, ctx, MOII_MOE_Q_GATE_UP, MOI_F32, f->weight, both, 2 * w, h, e, 0));
    MOII_TRY(make_quantize(m, ctx, MOII_MOE_Q_DOWN, MOI_F32, f->weight, both, h, w, e, 0));
    MOII_TRY(make_quantize(m, ctx, MOII_MOE_Q_GATE_UP_FORWARD, MOI_F32, f->weight, MOI_WANT_ROWWISE, 2 * w, h, e, 0));
    MOII_TRY(make_quantize(m, ctx, MOII_MOE_Q_DOWN_FORWARD, MOI_F32, f->weight, MOI_WANT_ROWWISE, h, w, e, 0));
    MOII_TRY(make_quantize(m, ctx, MOII_MOE_Q_X, d->io, f->act, both, rows, h, 1, e));
    MOII_TRY(make_quantize(m, ctx, MOII_MOE_Q_X_FORWARD, d->io, f->act, MOI_WANT_ROWWISE, rows, h, 1, 0));
    MOII_TRY(make_quantize(m, ctx, MOII_MOE_Q_DY, d->io, f->grad, both, rows, h, 1, e));
    MOII_TRY(make_swiglu(m, ctx, MOII_MOE_SWIGLU, &f->act, MOI_WANT_ROWWISE | MOI_WANT_COLWISE, d));
    MOII_TRY(make_swiglu(m, ctx, MOII_MOE_SWIGLU_FORWARD, &f->act, MOI_WANT_ROWWISE, d));
    MOII_TRY(make_swiglu(m, ctx, MOII_MOE_D_SWIGLU, &f->grad, MOI_WANT_ROWWISE | MOI_WANT_COLWISE, d));
    MOII_TRY(make_ggemm(m, ctx, MOII_MOE_UP, MOI_GROUP_M, &f->act, &f->weight, false, f->inner, d, 0, 2 * w, h));
    MOII_TRY(make_ggemm(m, ctx, MOII_MOE_DOWN, MOI_GROUP_M, &f->act, &f->weight, false, d->io, d, 0, h, w));
    MOII_TRY(make_ggemm(m, ctx, MOII_MOE_D_ACT, MOI_GROUP_M, &f->grad, &f->weight, true, f->inner, d, 0, w, h));
    MOII_TRY(make_ggemm(m, ctx, MOII_MOE_D_SORTED, MOI_GROUP_M, &f->grad, &f->weight, true, MOI_F32, d, 0, h, 2 * w));
    MOII_TRY(make_ggemm(m, ctx, MOII_MOE_D_DOWN, MOI_GROUP_K, &f->grad, &f->act, true, MOI_F32, d, h, w, 0));
    MOII_TRY(make_ggemm(m, ctx, MOII_MOE_D_GATE_UP, MOI_GROUP_K, &f->grad, &f->act, true, MOI_F32, d, 2 * w, h, 0));
    if (m->routed) MOII_TRY(make_router(m, ctx, d));
    if (d->io == MOI_BF16)
        MOII_TRY(make_quantize(m, ctx, MOII_MOE_NARROW_DX, MOI_F32, MOI_FORMAT_BF16, MOI_WANT_ROWWISE, d->max_tokens, h, 1, 0));
    return MOI_OK;
}

static void unplan(moi_plan *plan)
{
    moii_moe *m = plan->state;
    for (int i = 0; m && i < MOII_MOE_PARTS; i++) moi_plan_free(m->part[i]);
    free(m);
}

static moi_status check(const moi_moe_desc *d)
{
    MOII_REQUIRE(d->hidden >= 1 && d->width >= 1, MOI_ERR_SHAPE, "moe plan: hidden and width must be >= 1, got %lld and %lld",
                 (long long)d->hidden, (long long)d->width);
    MOII_REQUIRE(d->experts >= 1 && d->top_k >= 1 && d->top_k <= d->experts, MOI_ERR_SHAPE,
                 "moe plan: top_k must be 1..experts, got top_k %lld of %lld experts", (long long)d->top_k, (long long)d->experts);
    int64_t rows = moii_mul(d->max_tokens, d->top_k), widest = moii_mul(moii_max(d->hidden, moii_mul(d->width, 2)), 64);
    MOII_REQUIRE(rows >= 0 && widest >= 0 && moii_mul(rows, widest) >= 0 && moii_mul(moii_mul(d->experts, widest), d->hidden) >= 0 &&
                 moii_mul(d->max_tokens, moii_mul(d->experts, 64)) >= 0, MOI_ERR_SHAPE,
                 "moe plan: max_tokens must be >= 0 and the sizes must fit, got %lld tokens, hidden %lld, width %lld, %lld experts",
                 (long long)d->max_tokens, (long long)d->hidden, (long long)d->width, (long long)d->experts);
    MOII_REQUIRE(d->io == MOI_F32 || d->io == MOI_BF16, MOI_ERR_ARG, "moe plan: io must be f32 or bf16, got %s", moi_dtype_name(d->io));
    moii_moe_formats f = formats_of(d);
    MOII_TRY(moii_format_check(&f.act, "moe plan: elem_forward"));
    MOII_REQUIRE(!f.scaled || (moi_dtype_bits(f.act.elem) == 8 && moi_dtype_bits(f.grad.elem) == 8), MOI_ERR_UNSUPPORTED,
                 "moe plan: elements must have 8 bits (e4m3, e5m2, int8), got %s and %s", moi_dtype_name(f.act.elem), moi_dtype_name(f.grad.elem));
    return moii_format_check(&f.grad, "moe plan: elem_gradient");
}

moi_status moi_moe_plan_create(moi_plan **out, moi_ctx *ctx, const moi_moe_desc *desc)
{
    moi_moe_desc d;
    moi_plan *plan;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "moe plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_take(&d, sizeof d, desc, "moe plan: desc"));
    MOII_TRY(check(&d));
    MOII_TRY(moii_plan_make(&plan, ctx, MOII_OP_MOE, &d, sizeof d, NULL, 0));
    moii_moe *m = calloc(1, sizeof *m);
    plan->state = m;
    plan->unplan = unplan;
    moi_status status = m ? MOI_OK : moii_fail(MOI_ERR_NOMEM, "moe plan: no memory");
    if (!status) {
        m->formats = formats_of(&d);
        m->routed = d.experts > 1;
        status = make_parts(m, ctx, &d);
    }
    if (status) {
        moi_plan_free(plan);
        return status;
    }
    for (int i = 0; i < MOII_MOE_PARTS; i++)
        m->part_workspace = moii_max(m->part_workspace, moi_plan_workspace_bytes(m->part[i]));
    int64_t training = moii_moe_forward_scratch(plan, d.max_tokens, true), inference = moii_moe_forward_scratch(plan, d.max_tokens, false);
    plan->workspace_bytes = moii_max(moii_max(training, inference), moii_moe_backward_scratch(plan, d.max_tokens)) + m->part_workspace;
    *out = plan;
    return MOI_OK;
}
