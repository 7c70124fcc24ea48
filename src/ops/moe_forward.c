/* SPDX-License-Identifier: Apache-2.0
 * moe_forward.c: preparing the weights, and the forward pass, one call per step. */
#include "moe.h"

/* Where a step's scratch lies; laid out once for counting (base NULL) and once for running. */
typedef struct scratch {
    float *x32, *logits;         /* [t, h] where io is BF16; [t, e] */
    void *x_sorted;              /* [rows, h] in io's type, where the first product reads another type */
    moii_moe_operand x, act;     /* row-wise operands of the two products, scaled recipes */
    moii_moe_saved saved;        /* inference: nothing outlives the call */
    void *parts;                 /* the sub-plans' workspace */
} scratch;

static bool sorts_into_operand(const moii_moe *m, const moi_moe_desc *d)
{
    return !m->formats.scaled && m->formats.act.elem == d->io;
}

static int64_t lay(const moi_plan *plan, char *base, int64_t tokens, bool training, scratch *s)
{
    const moi_moe_desc *d = &plan->desc.moe;
    const moii_moe *m = moii_moe_of(plan);
    moii_arena a = { base, 0 };
    int64_t rows = tokens * d->top_k;
    *s = (scratch){ 0 };
    if (m->routed) {
        if (d->io == MOI_BF16) s->x32 = moii_arena_take(&a, tokens * d->hidden * 4);
        s->logits = moii_arena_take(&a, tokens * d->experts * 4);
        if (!sorts_into_operand(m, d)) s->x_sorted = moii_arena_take(&a, rows * moi_row_bytes(d->io, d->hidden));
    }
    if (m->formats.scaled) {
        s->x = moii_arena_operand(&a, &m->formats.act, rows, d->hidden, 0);
        s->act = moii_arena_operand(&a, &m->formats.act, rows, d->width, 0);
    }
    if (!training) moii_moe_lay_saved(plan, &a, tokens, false, &s->saved);
    s->parts = base ? base + a.used : NULL;
    return a.used;
}

int64_t moii_moe_forward_scratch(const moi_plan *plan, int64_t tokens, bool training)
{
    scratch s;
    return lay(plan, NULL, tokens, training, &s);
}

static moi_status quantize_weights(const moi_plan *part, int64_t rows, const float *in, moii_moe_operand row, moii_moe_operand col,
                                   void *workspace, int64_t bytes, moi_stream stream)
{
    moi_quantize_args a = { .size = sizeof a, .rows = rows, .in = { in, NULL, 0 }, .rowwise = moii_moe_write(row), .colwise = moii_moe_write(col) };
    return moi_quantize_run(part, &a, workspace, bytes, stream);
}

moi_status moi_moe_prepare(const moi_plan *plan, const float *gate_up, const float *down, void *prepared, bool for_backward,
                           void *workspace, int64_t workspace_bytes, moi_stream stream)
{
    MOII_TRY(moii_run_check(plan, MOII_OP_MOE, gate_up, workspace, workspace_bytes, stream));
    MOII_REQUIRE(down && prepared, MOI_ERR_ARG, "moe prepare: %s is NULL", down ? "prepared" : "down");
    MOII_REQUIRE(moii_aligned(prepared, MOII_WORKSPACE_ALIGN), MOI_ERR_ALIGN, "moe prepare: prepared must be aligned to 128 bytes, got %p", prepared);
    const moii_moe *m = moii_moe_of(plan);
    const moi_moe_desc *d = &plan->desc.moe;
    moii_arena a = { prepared, 0 };
    moii_moe_prepared p;
    moii_moe_lay_prepared(plan, &a, for_backward, &p);
    const moi_plan *up = m->part[for_backward ? MOII_MOE_Q_GATE_UP : MOII_MOE_Q_GATE_UP_FORWARD];
    const moi_plan *down_plan = m->part[for_backward ? MOII_MOE_Q_DOWN : MOII_MOE_Q_DOWN_FORWARD];
    MOII_TRY(quantize_weights(up, 2 * d->width, gate_up, p.gate_up, p.gate_up_t, workspace, workspace_bytes, stream));
    return quantize_weights(down_plan, d->hidden, down, p.down, p.down_t, workspace, workspace_bytes, stream);
}

moi_status moii_moe_take_args(const moi_plan *plan, const char *call, const moi_moe_args *args, moi_moe_args *out, bool backward,
                              const void *workspace, int64_t workspace_bytes, moi_stream stream)
{
    MOII_TRY(moii_run_check(plan, MOII_OP_MOE, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(out, sizeof *out, args, call));
    const moi_moe_desc *d = &plan->desc.moe;
    bool routed = moii_moe_of(plan)->routed;
    MOII_REQUIRE(out->tokens >= 0 && out->tokens <= d->max_tokens, MOI_ERR_SHAPE, "%s: tokens must be 0..%lld, got %lld", call,
                 (long long)d->max_tokens, (long long)out->tokens);
    if (out->tokens == 0) return MOI_OK;
    const struct { const char *name; const void *p; bool needed; } pointers[] = {
        { "x", out->x, true }, { "router", out->router, routed }, { "prepared", out->prepared, true }, { "saved", out->saved, backward },
        { "y", out->y, !backward }, { "d_y", out->d_y, backward }, { "d_x", out->d_x, backward },
        { "d_router", out->d_router, backward && routed }, { "d_gate_up", out->d_gate_up, backward }, { "d_down", out->d_down, backward },
    };
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        MOII_REQUIRE(pointers[i].p || !pointers[i].needed, MOI_ERR_ARG, "%s: %s is NULL", call, pointers[i].name);
        MOII_REQUIRE(moii_aligned(pointers[i].p, MOII_ALIGN), MOI_ERR_ALIGN, "%s: %s must be aligned to 16 bytes, got %p", call,
                     pointers[i].name, pointers[i].p);
    }
    MOII_REQUIRE(moii_aligned(out->prepared, MOII_WORKSPACE_ALIGN) && moii_aligned(out->saved, MOII_WORKSPACE_ALIGN), MOI_ERR_ALIGN,
                 "%s: prepared and saved must be aligned to 128 bytes, got %p and %p", call, out->prepared, out->saved);
    return MOI_OK;
}

/* ids, weights and the copies of x in order of expert, which go to `sorted`. */
static moi_status route(const moi_plan *plan, const moi_moe_args *a, const scratch *s, const moii_moe_saved *saved, void *sorted,
                        moi_stream stream)
{
    const moii_moe *m = moii_moe_of(plan);
    int64_t ws = m->part_workspace;
    const float *x32 = a->x;
    if (plan->desc.moe.io == MOI_BF16) {
        moi_dequantize_args w = { .size = sizeof w, .rows = a->tokens, .in = { a->x, NULL, 0 }, .out = { s->x32, NULL, 0 } };
        MOII_TRY(moi_dequantize_run(m->part[MOII_MOE_WIDEN_X], &w, s->parts, ws, stream));
        x32 = s->x32;
    }
    moi_gemm_args g = { .size = sizeof g, .m = a->tokens, .a = { x32, NULL, 0 }, .b = { a->router, NULL, 0 }, .d = s->logits };
    MOII_TRY(moi_gemm_run(m->part[MOII_MOE_LOGITS], &g, s->parts, ws, stream));
    moi_route_args r = { .size = sizeof r, .tokens = a->tokens, .logits = s->logits, .probs = saved->probs, .ids = saved->ids,
                         .weights = saved->weights, .aux_loss = a->aux_loss };
    MOII_TRY(moi_route_run(m->part[MOII_MOE_ROUTE], &r, s->parts, ws, stream));
    moi_permute_args p = { .size = sizeof p, .tokens = a->tokens, .ids = saved->ids, .x = a->x, .x_sorted = sorted, .offsets = saved->offsets,
                           .row_of = saved->row_of, .token_of = saved->token_of };
    return moi_permute_run(m->part[MOII_MOE_PERMUTE], &p, s->parts, ws, stream);
}

/* One expert has all rows, in order. */
static moi_status route_all(const moi_plan *plan, const moi_moe_args *a, const moii_moe_saved *saved, moi_stream stream)
{
    const int64_t offsets[2] = { 0, a->tokens };
    const float zero = 0;
    if (a->aux_loss) MOII_TRY(plan->ctx->backend->put(plan->ctx, a->aux_loss, &zero, sizeof zero, stream));
    return plan->ctx->backend->put(plan->ctx, saved->offsets, offsets, sizeof offsets, stream);
}

/* x_sorted as the operand of the first product, in *out; for training also what wgrad will read. */
static moi_status quantize_x(const moi_plan *plan, const void *sorted, int64_t rows, bool training, const scratch *s, const moii_moe_saved *saved,
                             moii_moe_operand *out, moi_stream stream)
{
    const moii_moe *m = moii_moe_of(plan);
    bool scaled = m->formats.scaled;
    if (sorts_into_operand(m, &plan->desc.moe)) {
        *out = (moii_moe_operand){ .data = (void *)(uintptr_t)sorted };
        return MOI_OK;
    }
    *out = scaled ? s->x : saved->x;
    moi_quantize_args q = { .size = sizeof q, .rows = rows, .in = { sorted, NULL, 0 }, .rowwise = moii_moe_write(*out) };
    if (scaled && training) {
        q.colwise = moii_moe_write(saved->x);
        q.offsets = saved->offsets;
    }
    return moi_quantize_run(m->part[training ? MOII_MOE_Q_X : MOII_MOE_Q_X_FORWARD], &q, s->parts, m->part_workspace, stream);
}

static moi_status experts(const moi_plan *plan, const moi_moe_args *a, moii_moe_operand x, bool training, const scratch *s,
                          const moii_moe_saved *saved, void *y, moi_stream stream)
{
    const moii_moe *m = moii_moe_of(plan);
    int64_t rows = a->tokens * plan->desc.moe.top_k, ws = m->part_workspace;
    moii_arena arena = { (char *)(uintptr_t)a->prepared, 0 };
    moii_moe_prepared p;
    moii_moe_lay_prepared(plan, &arena, false, &p);
    moi_ggemm_args up = { .size = sizeof up, .rows = rows, .offsets = saved->offsets, .a = moii_moe_read(x), .b = moii_moe_read(p.gate_up),
                          .d = saved->gate_up };
    MOII_TRY(moi_ggemm_run(m->part[MOII_MOE_UP], &up, s->parts, ws, stream));
    moii_moe_operand act = m->formats.scaled ? s->act : saved->act;
    moi_swiglu_args g = { .size = sizeof g, .rows = rows, .gate_up = { saved->gate_up, NULL, 0 } };
    if (m->formats.scaled) g.rowwise = moii_moe_write(act);
    else g.plain = act.data;
    if (m->formats.scaled && training) {
        g.colwise = moii_moe_write(saved->act);
        g.offsets = saved->offsets;
    }
    MOII_TRY(moi_swiglu_run(m->part[training ? MOII_MOE_SWIGLU : MOII_MOE_SWIGLU_FORWARD], &g, s->parts, ws, stream));
    moi_ggemm_args down = { .size = sizeof down, .rows = rows, .offsets = saved->offsets, .a = moii_moe_read(act), .b = moii_moe_read(p.down), .d = y };
    return moi_ggemm_run(m->part[MOII_MOE_DOWN], &down, s->parts, ws, stream);
}

moi_status moi_moe_forward_run(const moi_plan *plan, const moi_moe_args *args, void *workspace, int64_t workspace_bytes, moi_stream stream)
{
    moi_moe_args a;
    MOII_TRY(moii_moe_take_args(plan, "moe forward run: args", args, &a, false, workspace, workspace_bytes, stream));
    const float zero = 0;
    if (a.tokens == 0) return a.aux_loss ? plan->ctx->backend->put(plan->ctx, a.aux_loss, &zero, sizeof zero, stream) : MOI_OK;
    const moii_moe *m = moii_moe_of(plan);
    bool training = a.saved != NULL;
    scratch s;
    lay(plan, workspace, a.tokens, training, &s);
    moii_moe_saved saved = s.saved;
    moii_arena arena = { a.saved, 0 };
    if (training) moii_moe_lay_saved(plan, &arena, a.tokens, true, &saved);
    const void *sorted = a.x;
    if (m->routed) {
        void *to = sorts_into_operand(m, &plan->desc.moe) ? saved.x.data : s.x_sorted;
        MOII_TRY(route(plan, &a, &s, &saved, to, stream));
        sorted = to;
    } else {
        MOII_TRY(route_all(plan, &a, &saved, stream));
    }
    moii_moe_operand x;
    MOII_TRY(quantize_x(plan, sorted, a.tokens * plan->desc.moe.top_k, training, &s, &saved, &x, stream));
    MOII_TRY(experts(plan, &a, x, training, &s, &saved, m->routed ? saved.y_sorted : a.y, stream));
    if (!m->routed) return MOI_OK;
    moi_combine_args c = { .size = sizeof c, .tokens = a.tokens, .row_of = saved.row_of, .weights = saved.weights, .y_sorted = saved.y_sorted, .y = a.y };
    return moi_combine_run(m->part[MOII_MOE_COMBINE], &c, s.parts, m->part_workspace, stream);
}
