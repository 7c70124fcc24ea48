/* SPDX-License-Identifier: Apache-2.0
 * moe_backward.c: the backward pass: dgrad with row-wise operands, wgrad with column-wise ones, then the router. */
#include "moe.h"

typedef struct scratch {
    void *dy_sorted;              /* [rows, h] in io's type, routed only */
    float *d_weights, *d_logits;  /* [t, top_k], [t, e] */
    moii_moe_operand dy, dy_t;    /* of the down product: row-wise [rows, h], column-wise [h, rows] */
    void *d_act;                  /* [rows, f] */
    moii_moe_operand dg, dg_t;    /* d_gate_up: [rows, 2 f], [2 f, rows] */
    float *dx_sorted, *dx32;      /* [rows, h]; [t, h] where io is BF16 */
    float *x32;                   /* [t, h] where io is BF16 */
    int64_t *all;                 /* { 0, t }: the router's gradient is one group */
    void *parts;
} scratch;

static bool reads_dy(const moii_moe *m, const moi_moe_desc *d) { return !m->formats.scaled && m->formats.grad.elem == d->io; }

static int64_t lay(const moi_plan *plan, char *base, int64_t tokens, scratch *s)
{
    const moi_moe_desc *d = &plan->desc.moe;
    const moii_moe *m = moii_moe_of(plan);
    const moi_format *grad = &m->formats.grad;
    moii_arena a = { base, 0 };
    int64_t rows = tokens * d->top_k, h = d->hidden, w = d->width;
    *s = (scratch){ 0 };
    if (d->io == MOI_BF16) s->dx32 = moii_arena_take(&a, tokens * h * 4);
    if (m->routed) {
        if (d->io == MOI_BF16) s->x32 = moii_arena_take(&a, tokens * h * 4);
        s->dy_sorted = moii_arena_take(&a, rows * moi_row_bytes(d->io, h));
        s->d_weights = moii_arena_take(&a, rows * 4);
        s->d_logits = moii_arena_take(&a, tokens * d->experts * 4);
        s->dx_sorted = moii_arena_take(&a, rows * h * 4);
        s->all = moii_arena_take(&a, 2 * 8);
    }
    s->d_act = moii_arena_take(&a, rows * moi_row_bytes(m->formats.inner, w));
    if (m->formats.scaled) {
        s->dy = moii_arena_operand(&a, grad, rows, h, 0);
        s->dy_t = moii_arena_operand(&a, grad, h, rows, d->experts);
        s->dg = moii_arena_operand(&a, grad, rows, 2 * w, 0);
        s->dg_t = moii_arena_operand(&a, grad, 2 * w, rows, d->experts);
    } else {
        if (!reads_dy(m, d)) s->dy.data = moii_arena_take(&a, rows * moi_row_bytes(grad->elem, h));
        s->dg.data = moii_arena_take(&a, rows * moi_row_bytes(grad->elem, 2 * w));
    }
    s->parts = base ? base + a.used : NULL;
    return a.used;
}

int64_t moii_moe_backward_scratch(const moi_plan *plan, int64_t tokens)
{
    scratch s;
    return lay(plan, NULL, tokens, &s);
}

/* d_y of every row, in order of expert, as the operands of dgrad (s->dy) and wgrad (s->dy_t). */
static moi_status sort_dy(const moi_plan *plan, const moi_moe_args *a, scratch *s, const moii_moe_saved *saved, moi_stream stream)
{
    const moii_moe *m = moii_moe_of(plan);
    int64_t ws = m->part_workspace, rows = a->tokens * plan->desc.moe.top_k;
    const void *dy = a->d_y;
    if (m->routed) {
        moi_combine_args c = { .size = sizeof c, .tokens = a->tokens, .row_of = saved->row_of, .weights = saved->weights,
                               .y_sorted = saved->y_sorted, .d_y = a->d_y, .d_y_sorted = s->dy_sorted, .d_weights = s->d_weights };
        MOII_TRY(moi_combine_backward_run(m->part[MOII_MOE_D_COMBINE], &c, s->parts, ws, stream));
        dy = s->dy_sorted;
    }
    if (reads_dy(m, &plan->desc.moe)) {
        s->dy.data = (void *)(uintptr_t)dy;
        return MOI_OK;
    }
    moi_quantize_args q = { .size = sizeof q, .rows = rows, .in = { dy, NULL, 0 }, .rowwise = moii_moe_write(s->dy) };
    if (m->formats.scaled) {
        q.colwise = moii_moe_write(s->dy_t);
        q.offsets = saved->offsets;
    }
    return moi_quantize_run(m->part[MOII_MOE_Q_DY], &q, s->parts, ws, stream);
}

static moi_status product(const moi_plan *plan, moii_moe_part part, int64_t rows, const int64_t *offsets, moii_moe_operand a, moii_moe_operand b,
                          void *d, const scratch *s, moi_stream stream)
{
    const moii_moe *m = moii_moe_of(plan);
    moi_ggemm_args g = { .size = sizeof g, .rows = rows, .offsets = offsets, .a = moii_moe_read(a), .b = moii_moe_read(b), .d = d };
    return moi_ggemm_run(m->part[part], &g, s->parts, m->part_workspace, stream);
}

/* Through the experts: weight gradients, and the gradient of each row of x_sorted in `dx`. */
static moi_status experts(const moi_plan *plan, const moi_moe_args *a, const scratch *s, const moii_moe_saved *saved, float *dx, moi_stream stream)
{
    const moii_moe *m = moii_moe_of(plan);
    bool scaled = m->formats.scaled;
    int64_t rows = a->tokens * plan->desc.moe.top_k;
    const int64_t *offsets = saved->offsets;
    moii_arena arena = { (char *)(uintptr_t)a->prepared, 0 };
    moii_moe_prepared p;
    moii_moe_lay_prepared(plan, &arena, true, &p);
    moii_moe_operand x = saved->x;
    if (moii_moe_reads_x(plan)) x.data = (void *)(uintptr_t)a->x;
    MOII_TRY(product(plan, MOII_MOE_D_ACT, rows, offsets, s->dy, scaled ? p.down_t : p.down, s->d_act, s, stream));
    moi_swiglu_args g = { .size = sizeof g, .rows = rows, .gate_up = { saved->gate_up, NULL, 0 }, .d_act = s->d_act };
    if (scaled) {
        g.rowwise = moii_moe_write(s->dg);
        g.colwise = moii_moe_write(s->dg_t);
        g.offsets = offsets;
    } else {
        g.plain = s->dg.data;
    }
    MOII_TRY(moi_swiglu_backward_run(m->part[MOII_MOE_D_SWIGLU], &g, s->parts, m->part_workspace, stream));
    MOII_TRY(product(plan, MOII_MOE_D_DOWN, rows, offsets, scaled ? s->dy_t : s->dy, saved->act, a->d_down, s, stream));
    MOII_TRY(product(plan, MOII_MOE_D_GATE_UP, rows, offsets, scaled ? s->dg_t : s->dg, x, a->d_gate_up, s, stream));
    return product(plan, MOII_MOE_D_SORTED, rows, offsets, s->dg, scaled ? p.gate_up_t : p.gate_up, dx, s, stream);
}

/* dx = sum of the rows of each token, plus what comes through the routing weights. */
static moi_status router(const moi_plan *plan, const moi_moe_args *a, const scratch *s, const moii_moe_saved *saved, float *dx, moi_stream stream)
{
    const moii_moe *m = moii_moe_of(plan);
    int64_t ws = m->part_workspace;
    const float *x32 = a->x;
    if (plan->desc.moe.io == MOI_BF16) {
        moi_dequantize_args w = { .size = sizeof w, .rows = a->tokens, .in = { a->x, NULL, 0 }, .out = { s->x32, NULL, 0 } };
        MOII_TRY(moi_dequantize_run(m->part[MOII_MOE_WIDEN_X], &w, s->parts, ws, stream));
        x32 = s->x32;
    }
    moi_combine_args c = { .size = sizeof c, .tokens = a->tokens, .row_of = saved->row_of, .y_sorted = s->dx_sorted, .y = dx };
    MOII_TRY(moi_combine_run(m->part[MOII_MOE_D_X], &c, s->parts, ws, stream));
    moi_route_args r = { .size = sizeof r, .tokens = a->tokens, .probs = saved->probs, .ids = saved->ids, .weights = saved->weights,
                         .d_weights = s->d_weights, .d_logits = s->d_logits };
    MOII_TRY(moi_route_backward_run(m->part[MOII_MOE_ROUTE], &r, s->parts, ws, stream));
    moi_gemm_args g = { .size = sizeof g, .m = a->tokens, .a = { s->d_logits, NULL, 0 }, .b = { a->router, NULL, 0 }, .d = dx };
    MOII_TRY(moi_gemm_run(m->part[MOII_MOE_D_X_ROUTER], &g, s->parts, ws, stream));
    const int64_t all[2] = { 0, a->tokens };
    MOII_TRY(plan->ctx->backend->put(plan->ctx, s->all, all, sizeof all, stream));
    return product(plan, MOII_MOE_D_ROUTER, a->tokens, s->all, (moii_moe_operand){ .data = s->d_logits },
                   (moii_moe_operand){ .data = (void *)(uintptr_t)x32 }, a->d_router, s, stream);
}

moi_status moi_moe_backward_run(const moi_plan *plan, const moi_moe_args *args, void *workspace, int64_t workspace_bytes, moi_stream stream)
{
    moi_moe_args a;
    MOII_TRY(moii_moe_take_args(plan, "moe backward run: args", args, &a, true, workspace, workspace_bytes, stream));
    if (a.tokens == 0) return MOI_OK;
    const moii_moe *m = moii_moe_of(plan);
    scratch s;
    lay(plan, workspace, a.tokens, &s);
    moii_arena arena = { a.saved, 0 };
    moii_moe_saved saved;
    moii_moe_lay_saved(plan, &arena, a.tokens, true, &saved);
    float *dx = plan->desc.moe.io == MOI_F32 ? a.d_x : s.dx32;
    MOII_TRY(sort_dy(plan, &a, &s, &saved, stream));
    MOII_TRY(experts(plan, &a, &s, &saved, m->routed ? s.dx_sorted : dx, stream));
    if (m->routed) MOII_TRY(router(plan, &a, &s, &saved, dx, stream));
    if (plan->desc.moe.io == MOI_F32) return MOI_OK;
    moi_quantize_args q = { .size = sizeof q, .rows = a.tokens, .in = { dx, NULL, 0 }, .rowwise = { a.d_x, NULL, 0 } };
    return moi_quantize_run(m->part[MOII_MOE_NARROW_DX], &q, s.parts, m->part_workspace, stream);
}
