/* SPDX-License-Identifier: Apache-2.0
 * linear.c: a linear layer from moi_quantize and moi_gemm plans. */
#include "linear.h"

#include <string.h>

#include "status.h"

/* The forms of the three tensors.  "t": the transposed matrix, quantised along the other axis. */
static moii_matrix x_rows(const moii_linear *l, int64_t tokens) { return (moii_matrix){ l->act, tokens, l->in }; }
static moii_matrix x_t(const moii_linear *l) { return (moii_matrix){ l->act, l->in, l->max_tokens }; }
static moii_matrix w_rows(const moii_linear *l) { return (moii_matrix){ l->weight, l->out, l->in }; }
static moii_matrix w_t(const moii_linear *l) { return (moii_matrix){ l->weight, l->in, l->out }; }
static moii_matrix dy_rows(const moii_linear *l) { return (moii_matrix){ l->grad, l->max_tokens, l->out }; }
static moii_matrix dy_t(const moii_linear *l) { return (moii_matrix){ l->grad, l->out, l->max_tokens }; }

static int64_t bytes_of(moii_matrix m) { return moii_matrix_bytes(&m); }
static moi_operand operand(moii_matrix m, const void *p) { return moii_matrix_operand(&m, p); }
static moi_result result(moii_matrix m, void *p) { return moii_matrix_result(&m, p); }

static void set_formats(moii_linear *l, const moi_lm_options *o)
{
    const moi_format plain = o->recipe == MOI_RECIPE_F32 ? MOI_FORMAT_F32 : MOI_FORMAT_BF16;
    const moi_format scaled = { .recipe = o->recipe, .elem = o->elem_forward, .block = MOI_BLOCK_VECTOR, .round = o->round };
    l->plain = o->recipe == MOI_RECIPE_F32 || o->recipe == MOI_RECIPE_BF16;
    l->act = l->weight = l->grad = l->plain ? plain : scaled;
    if (l->plain) return;
    l->grad.elem = o->elem_gradient;
    if (o->recipe == MOI_RECIPE_BLK128) l->weight.block = MOI_BLOCK_SQUARE;
}

static moi_status plan_quantize(moi_plan **out, moi_ctx *ctx, moi_format f, uint32_t want, int64_t rows, int64_t cols)
{
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.rowwise = d.colwise = f;
    d.want = want;
    d.max_rows = rows;
    d.cols = cols;
    return moi_quantize_plan_create(out, ctx, &d);
}

static moi_status plan_gemm(moi_plan **out, moi_ctx *ctx, moi_format a, moi_order a_order, moi_format b, moi_order b_order, bool add,
                            int64_t m, int64_t n, int64_t k)
{
    moi_gemm_desc d = MOI_GEMM_DESC_INIT;
    d.a = a, d.a_order = a_order, d.b = b, d.b_order = b_order;
    d.accumulate = add;
    d.max_m = m, d.n = n, d.k = k;
    return moi_gemm_plan_create(out, ctx, &d);
}

static moi_status plan_all(moii_linear *l, moi_ctx *ctx)
{
    const uint32_t both = l->plain ? MOI_WANT_ROWWISE : MOI_WANT_ROWWISE | MOI_WANT_COLWISE;
    const moi_order t = l->plain ? MOI_MN_MAJOR : MOI_K_MAJOR; /* how a transposed operand is read */
    const int64_t n = l->max_tokens;
    MOII_TRY(plan_quantize(&l->quantize_w, ctx, l->weight, l->both_weights ? both : MOI_WANT_ROWWISE, l->out, l->in));
    MOII_TRY(plan_quantize(&l->quantize_x, ctx, l->act, l->backward ? both : MOI_WANT_ROWWISE, n, l->in));
    MOII_TRY(plan_gemm(&l->fprop, ctx, l->act, MOI_K_MAJOR, l->weight, MOI_K_MAJOR, false, n, l->out, l->in));
    if (!l->backward) return MOI_OK;
    MOII_TRY(plan_quantize(&l->quantize_dy, ctx, l->grad, both, n, l->out));
    MOII_TRY(plan_gemm(&l->dgrad, ctx, l->grad, MOI_K_MAJOR, l->weight, t, false, n, l->in, l->out));
    return plan_gemm(&l->wgrad, ctx, l->grad, t, l->act, t, true, l->out, l->in, n);
}

moi_status moii_linear_create(moii_linear *l, moi_ctx *ctx, const moi_lm_options *options, int64_t in, int64_t out, int64_t max_tokens,
                              bool backward, bool backward_weights)
{
    *l = (moii_linear){ .in = in, .out = out, .max_tokens = max_tokens, .backward = backward, .both_weights = backward_weights };
    set_formats(l, options);
    moi_status status = plan_all(l, ctx);
    if (status) moii_linear_free(l);
    return status;
}

void moii_linear_free(moii_linear *l)
{
    moi_plan *plans[] = { l->quantize_x, l->quantize_w, l->quantize_dy, l->fprop, l->dgrad, l->wgrad };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) moi_plan_free(plans[i]);
    *l = (moii_linear){ 0 };
}

int64_t moii_linear_prepared_bytes(const moii_linear *l) { return bytes_of(w_rows(l)) + (l->both_weights && !l->plain ? bytes_of(w_t(l)) : 0); }
int64_t moii_linear_saved_bytes(const moii_linear *l) { return l->plain ? bytes_of(x_rows(l, l->max_tokens)) : bytes_of(x_t(l)); }

static int64_t workspace_bytes(const moii_linear *l)
{
    int64_t most = 0;
    const moi_plan *plans[] = { l->quantize_x, l->quantize_w, l->quantize_dy, l->fprop, l->dgrad, l->wgrad };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) most = moii_max(most, moi_plan_workspace_bytes(plans[i]));
    return moii_round_up(most, MOII_BUFFER_ALIGN);
}

int64_t moii_linear_space_bytes(const moii_linear *l)
{
    int64_t forward = bytes_of(x_rows(l, l->max_tokens)), backward = l->backward ? bytes_of(dy_rows(l)) + bytes_of(dy_t(l)) : 0;
    return moii_max(forward, backward) + workspace_bytes(l);
}

/* Cuts `bytes` off the front of the space. */
static void *cut(moii_space *space, int64_t bytes)
{
    char *p = space->at;
    space->at += bytes;
    space->bytes -= bytes;
    return p;
}

moi_status moii_linear_prepare(const moii_linear *l, const float *w, void *prepared, moii_space space)
{
    moi_quantize_args a = { .size = sizeof a, .rows = l->out, .in = { w, NULL, 0 } };
    a.rowwise = result(w_rows(l), prepared);
    if (l->both_weights && !l->plain) a.colwise = result(w_t(l), (char *)prepared + bytes_of(w_rows(l)));
    return moi_quantize_run(l->quantize_w, &a, space.at, space.bytes, NULL);
}

moi_status moii_linear_forward(const moii_linear *l, int64_t tokens, const void *prepared, const float *x, void *saved, float *y,
                               moii_space space)
{
    moi_quantize_args q = { .size = sizeof q, .rows = tokens, .in = { x, NULL, 0 } };
    void *rows = l->plain && saved ? saved : cut(&space, bytes_of(x_rows(l, tokens)));
    q.rowwise = result(x_rows(l, tokens), rows);
    if (!l->plain && saved) q.colwise = result(x_t(l), saved);
    MOII_TRY(moi_quantize_run(l->quantize_x, &q, space.at, space.bytes, NULL));
    moi_gemm_args g = { .size = sizeof g, .m = tokens, .a = operand(x_rows(l, tokens), rows), .b = operand(w_rows(l), prepared), .d = y };
    return moi_gemm_run(l->fprop, &g, space.at, space.bytes, NULL);
}

moi_status moii_linear_backward(const moii_linear *l, const void *prepared, const void *saved, const float *dy, float *dx, float *dw,
                                moii_space space)
{
    moi_quantize_args q = { .size = sizeof q, .rows = l->max_tokens, .in = { dy, NULL, 0 } };
    void *rows = cut(&space, bytes_of(dy_rows(l))), *columns = l->plain ? rows : cut(&space, bytes_of(dy_t(l)));
    q.rowwise = result(dy_rows(l), rows);
    if (!l->plain) q.colwise = result(dy_t(l), columns);
    MOII_TRY(moi_quantize_run(l->quantize_dy, &q, space.at, space.bytes, NULL));
    moi_gemm_args g = { .size = sizeof g, .m = l->max_tokens, .a = operand(dy_rows(l), rows), .d = dx };
    g.b = l->plain ? operand(w_rows(l), prepared) : operand(w_t(l), (const char *)prepared + bytes_of(w_rows(l)));
    MOII_TRY(moi_gemm_run(l->dgrad, &g, space.at, space.bytes, NULL));
    g = (moi_gemm_args){ .size = sizeof g, .m = l->out, .a = operand(dy_t(l), columns), .b = operand(x_t(l), saved), .d = dw };
    return moi_gemm_run(l->wgrad, &g, space.at, space.bytes, NULL);
}
