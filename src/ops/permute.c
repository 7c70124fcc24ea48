/* SPDX-License-Identifier: Apache-2.0 */
#include "permute.h"

static const moi_format words = MOI_FMT_(MOI_RECIPE_F32, MOI_F32, MOI_BLOCK_VECTOR); /* 4 bytes each, floats and ids alike */

moi_status moii_permute_desc_take(moi_permute_desc *d, const moi_permute_desc *desc, moii_op op)
{
    const char *name = moii_op_name(op);
    MOII_TRY(moii_take(d, sizeof *d, desc, op == MOII_OP_PERMUTE ? "permute plan: desc" : "combine plan: desc"));
    MOII_REQUIRE(d->dtype == MOI_F32 || d->dtype == MOI_BF16, MOI_ERR_ARG, "%s plan: dtype must be f32 or bf16, got %s", name,
                 moi_dtype_name(d->dtype));
    MOII_REQUIRE(d->max_tokens >= 0 && d->hidden >= 0, MOI_ERR_SHAPE, "%s plan: max_tokens and hidden must be >= 0, got %lld and %lld", name,
                 (long long)d->max_tokens, (long long)d->hidden);
    MOII_REQUIRE(d->experts >= 1 && d->experts <= INT32_MAX, MOI_ERR_SHAPE, "%s plan: experts must be 1..2^31-1, got %lld", name,
                 (long long)d->experts);
    MOII_REQUIRE(d->top_k >= 1, MOI_ERR_SHAPE, "%s plan: top_k must be >= 1, got %lld", name, (long long)d->top_k);
    int64_t rows = moii_mul(d->max_tokens, d->top_k);
    MOII_REQUIRE(rows >= 0 && rows <= INT32_MAX, MOI_ERR_SHAPE, "%s plan: max_tokens * top_k must be < 2^31, got %lld * %lld", name,
                 (long long)d->max_tokens, (long long)d->top_k);
    MOII_REQUIRE(moii_mul(moii_mul(rows, d->hidden), 4) >= 0, MOI_ERR_SHAPE, "%s plan: max_tokens * top_k * hidden is too large", name);
    return MOI_OK;
}

moi_status moi_permute_plan_create(moi_plan **out, moi_ctx *ctx, const moi_permute_desc *desc)
{
    moi_permute_desc d;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "permute plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_permute_desc_take(&d, desc, MOII_OP_PERMUTE));
    return moii_plan_make(out, ctx, MOII_OP_PERMUTE, &d, sizeof d, d.row, MOII_RECIPE_BIT(MOI_RECIPE_F32));
}

moi_status moi_permute_run(const moi_plan *plan, const moi_permute_args *args, void *workspace, int64_t workspace_bytes,
                           moi_stream stream)
{
    moi_permute_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_PERMUTE, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "permute run: args"));
    const moi_permute_desc *d = &plan->desc.permute;
    MOII_REQUIRE(a.tokens >= 0 && a.tokens <= d->max_tokens, MOI_ERR_SHAPE, "permute run: tokens must be 0..%lld, got %lld",
                 (long long)d->max_tokens, (long long)a.tokens);
    MOII_TRY(moii_operand_check("permute run: ids", &words, a.ids, NULL, 0, a.tokens, d->top_k));
    MOII_TRY(moii_operand_check("permute run: row_of", &words, a.row_of, NULL, 0, a.tokens, d->top_k));
    MOII_TRY(moii_operand_check("permute run: token_of", &words, a.token_of, NULL, 0, a.tokens, d->top_k));
    MOII_TRY(moii_operand_check("permute run: offsets", &words, a.offsets, NULL, 0, 1, d->experts));
    MOII_REQUIRE(!a.x_sorted || a.x || a.tokens * d->hidden == 0, MOI_ERR_ARG, "permute run: x is NULL but x_sorted is not");
    if (a.x) {
        moi_format f = { .recipe = d->dtype == MOI_F32 ? MOI_RECIPE_F32 : MOI_RECIPE_BF16, .elem = d->dtype };
        MOII_TRY(moii_operand_check("permute run: x", &f, a.x, NULL, 0, a.tokens, d->hidden));
        MOII_TRY(moii_operand_check("permute run: x_sorted", &f, a.x_sorted, NULL, 0, a.tokens, d->hidden));
    }
    return plan->impl->run(plan, &a, workspace, stream);
}
