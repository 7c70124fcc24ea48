/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "decode_grouped.h"
#include "format.h"
#include "status.h"

typedef long long ll;

/* Bytes of `experts` matrices of rows x cols must fit an int64_t. */
static moi_status check_size(const moi_moe_decode_desc *d, const char *what, int64_t rows, int64_t cols)
{
    int64_t data = moii_mul(moii_mul(d->experts, rows), moi_row_bytes(d->weights.elem, cols));
    int64_t scale = moii_mul(d->experts, moi_scale_bytes(&d->weights, rows, cols, 0));
    MOII_REQUIRE(rows >= 0 && data >= 0 && scale >= 0, MOI_ERR_SHAPE, "moe_decode plan: %s of %lld experts is too large", what, (ll)d->experts);
    return MOI_OK;
}

static moi_status check_desc(const moi_moe_decode_desc *d)
{
    MOII_TRY(moii_format_check_weight(&d->weights, "moe_decode plan: weights"));
    MOII_REQUIRE(d->x == MOI_F32 || d->x == MOI_BF16, MOI_ERR_ARG, "moe_decode plan: x must be f32 or bf16, got %s", moi_dtype_name(d->x));
    MOII_REQUIRE(d->out == MOI_F32 || d->out == MOI_BF16, MOI_ERR_ARG, "moe_decode plan: out must be f32 or bf16, got %s", moi_dtype_name(d->out));
    MOII_REQUIRE(d->max_tokens >= 0, MOI_ERR_SHAPE, "moe_decode plan: max_tokens must be >= 0, got %lld", (ll)d->max_tokens);
    MOII_REQUIRE(d->hidden >= 0 && d->width >= 0, MOI_ERR_SHAPE, "moe_decode plan: hidden and width must be >= 0, got %lld and %lld",
                 (ll)d->hidden, (ll)d->width);
    MOII_REQUIRE(d->experts >= 1 && d->experts <= INT32_MAX, MOI_ERR_SHAPE, "moe_decode plan: experts must be 1..2147483647, got %lld", (ll)d->experts);
    MOII_REQUIRE(d->top_k >= 1 && d->top_k <= INT32_MAX, MOI_ERR_SHAPE, "moe_decode plan: top_k must be 1..2147483647, got %lld", (ll)d->top_k);
    MOII_REQUIRE(!d->from_logits || d->top_k <= d->experts, MOI_ERR_SHAPE, "moe_decode plan: from logits, top_k must be 1..experts (%lld), got %lld",
                 (ll)d->experts, (ll)d->top_k);
    MOII_REQUIRE(!d->from_logits || moii_mul(moii_mul(d->max_tokens, d->experts), 16) >= 0, MOI_ERR_SHAPE,
                 "moe_decode plan: max_tokens * experts is too large");
    MOII_REQUIRE(d->grouped_from >= MOI_GROUPED_AUTO, MOI_ERR_ARG, "moe_decode plan: grouped_from must be a number of tokens, 0 or GROUPED_AUTO (-1), got %lld",
                 (ll)d->grouped_from);
    MOII_REQUIRE(d->from_logits || !d->renormalize, MOI_ERR_ARG, "moe_decode plan: renormalize is for plans from logits");
    MOII_TRY(check_size(d, "gate_up", moii_mul(2, d->width), d->hidden));
    MOII_TRY(check_size(d, "down", d->hidden, d->width));
    /* what any row may want to keep: x, u and a list of slots for all tokens, with room for padding */
    int64_t widest = moii_max(d->hidden, d->width);
    MOII_REQUIRE(widest <= INT64_MAX / 64 && moii_mul(moii_mul(d->max_tokens, d->top_k), widest + 64) >= 0
                 && moii_mul(moii_mul(d->max_tokens, d->top_k), widest + 64) <= INT64_MAX / 64,
                 MOI_ERR_SHAPE, "moe_decode plan: max_tokens * top_k * %lld is too large", (ll)widest);
    return MOI_OK;
}

moi_status moi_moe_decode_plan_create(moi_plan **out, moi_ctx *ctx, const moi_moe_decode_desc *desc)
{
    moi_moe_decode_desc d;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "moe_decode plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_take(&d, sizeof d, desc, "moe_decode plan: desc"));
    MOII_TRY(check_desc(&d));
    MOII_TRY(moii_plan_make(out, ctx, MOII_OP_MOE_DECODE, &d, sizeof d, d.row, MOII_RECIPE_BIT(d.weights.recipe)));
    moi_status status = moii_decode_grouped_plan(*out);
    if (status) {
        moi_plan_free(*out);
        *out = NULL;
    }
    return status;
}

int64_t moi_moe_decode_grouped_from(const moi_plan *plan)
{
    return plan && plan->op == MOII_OP_MOE_DECODE && plan->grouped ? plan->desc.moe_decode.grouped_from : 0;
}

static moi_status check_plain(const char *where, moi_dtype dtype, const void *data, int64_t rows, int64_t cols)
{
    moi_format plain = { .recipe = dtype == MOI_F32 ? MOI_RECIPE_F32 : MOI_RECIPE_BF16, .elem = dtype };
    return moii_operand_check(where, &plain, data, NULL, 0, rows, cols);
}

static moi_status check_weights(const char *where, const moi_format *f, const moi_operand *w, int64_t rows, int64_t cols)
{
    MOII_REQUIRE(w->ld == 0 || w->ld == cols, MOI_ERR_SHAPE, "%s: must be dense, ld 0 or %lld, got %lld", where, (ll)cols, (ll)w->ld);
    return moii_operand_check(where, f, w->data, w->scale, 0, rows, cols);
}

static moi_status check_apart(const moi_moe_decode_desc *d, const moi_expert_operands *apart)
{
    for (int64_t e = 0; e < d->experts; e++) {
        const struct { const char *name; const moi_operand *w; int64_t rows, cols; } parts[] = {
            { "gate", &apart[e].gate, d->width, d->hidden }, { "up", &apart[e].up, d->width, d->hidden }, { "down", &apart[e].down, d->hidden, d->width },
        };
        for (int i = 0; i < 3; i++) {
            char where[64];
            snprintf(where, sizeof where, "moe_decode run: apart[%lld].%s", (ll)e, parts[i].name);
            const moi_operand *w = parts[i].w;
            MOII_REQUIRE(w->ld == 0 || w->ld == parts[i].cols, MOI_ERR_SHAPE, "%s: must be dense, ld 0 or %lld, got %lld", where, (ll)parts[i].cols, (ll)w->ld);
            MOII_TRY(moii_weight_check(where, &d->weights, w->data, w->scale, 0, parts[i].rows, parts[i].cols));
        }
    }
    return MOI_OK;
}

/* An array of 4 bytes a number. */
static moi_status check_words(const char *where, const void *data, int64_t rows, int64_t cols) { return check_plain(where, MOI_F32, data, rows, cols); }

static moi_status check_logits(const moi_moe_decode_desc *d, const moi_moe_decode_args *a)
{
    MOII_REQUIRE(!a->ids && !a->weights, MOI_ERR_ARG, "moe_decode run: %s must be NULL, the plan is from logits", a->ids ? "ids" : "weights");
    MOII_TRY(check_words("moe_decode run: logits", a->logits, a->tokens, d->experts));
    if (a->ids_out) MOII_TRY(check_words("moe_decode run: ids_out", a->ids_out, a->tokens, d->top_k));
    return a->weights_out ? check_words("moe_decode run: weights_out", a->weights_out, a->tokens, d->top_k) : MOI_OK;
}

static moi_status check_ids(const moi_plan *plan, const moi_moe_decode_args *a)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    MOII_REQUIRE(!a->logits && !a->ids_out && !a->weights_out, MOI_ERR_ARG, "moe_decode run: %s must be NULL, the plan is not from logits",
                 a->logits ? "logits" : a->ids_out ? "ids_out" : "weights_out");
    MOII_TRY(check_words("moe_decode run: ids", a->ids, a->tokens, d->top_k));
    MOII_TRY(check_words("moe_decode run: weights", a->weights, a->tokens, d->top_k));
    if (plan->ctx->backend->id != MOI_BACKEND_CPU) return MOI_OK; /* ids are in device memory */
    for (int64_t i = 0; i < a->tokens * d->top_k; i++)
        MOII_REQUIRE(a->ids[i] >= -1 && a->ids[i] < d->experts, MOI_ERR_ARG,
                     "moe_decode run: ids must be -1..%lld, got %d for token %lld, slot %lld", (ll)d->experts - 1, a->ids[i],
                     (ll)(i / d->top_k), (ll)(i % d->top_k));
    return MOI_OK;
}

static moi_status check_args(const moi_plan *plan, const moi_moe_decode_args *a)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    MOII_TRY(check_plain("moe_decode run: x", d->x, a->x, a->tokens, d->hidden));
    MOII_TRY(check_plain("moe_decode run: y", d->out, a->y, a->tokens, d->hidden));
    if (a->apart) {
        MOII_REQUIRE(plan->ctx->backend->id == MOI_BACKEND_CPU, MOI_ERR_UNSUPPORTED, "moe_decode run: apart is for the cpu back end");
        MOII_TRY(check_apart(d, a->apart));
    } else {
        MOII_TRY(check_weights("moe_decode run: gate_up", &d->weights, &a->gate_up, 2 * d->width, d->hidden));
        MOII_TRY(check_weights("moe_decode run: down", &d->weights, &a->down, d->hidden, d->width));
    }
    return d->from_logits ? check_logits(d, a) : check_ids(plan, a);
}

moi_status moi_moe_decode_run(const moi_plan *plan, const moi_moe_decode_args *args, void *workspace, int64_t workspace_bytes,
                              moi_stream stream)
{
    moi_moe_decode_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_MOE_DECODE, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "moe_decode run: args"));
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    MOII_REQUIRE(a.tokens >= 0 && a.tokens <= d->max_tokens, MOI_ERR_SHAPE, "moe_decode run: tokens must be 0..%lld, got %lld",
                 (ll)d->max_tokens, (ll)a.tokens);
    MOII_TRY(check_args(plan, &a));
    if (a.tokens == 0 || (d->hidden == 0 && !d->from_logits)) return MOI_OK;
    if (plan->grouped && a.tokens >= d->grouped_from && !a.apart) return moii_decode_grouped_run(plan, &a, workspace, stream);
    return plan->impl->run(plan, &a, workspace, stream);
}
