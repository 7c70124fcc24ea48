/* SPDX-License-Identifier: Apache-2.0 */
#include "permute.h"

static const moi_format words = MOI_FMT_(MOI_RECIPE_F32, MOI_F32, MOI_BLOCK_VECTOR); /* 4 bytes each, floats and ids alike */

moi_status moi_combine_plan_create(moi_plan **out, moi_ctx *ctx, const moi_permute_desc *desc)
{
    moi_permute_desc d;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "combine plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_permute_desc_take(&d, desc, MOII_OP_COMBINE));
    return moii_plan_make(out, ctx, MOII_OP_COMBINE, &d, sizeof d, d.row, MOII_RECIPE_BIT(MOI_RECIPE_F32));
}

static moi_format format_of(const moi_permute_desc *d)
{
    return (moi_format){ .recipe = d->dtype == MOI_F32 ? MOI_RECIPE_F32 : MOI_RECIPE_BF16, .elem = d->dtype };
}

/* What both directions begin with. */
static moi_status begin(const moi_plan *plan, const moi_combine_args *args, moi_combine_args *a, void *workspace,
                        int64_t workspace_bytes, moi_stream stream)
{
    MOII_TRY(moii_run_check(plan, MOII_OP_COMBINE, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(a, sizeof *a, args, "combine run: args"));
    const moi_permute_desc *d = &plan->desc.permute;
    MOII_REQUIRE(a->tokens >= 0 && a->tokens <= d->max_tokens, MOI_ERR_SHAPE, "combine run: tokens must be 0..%lld, got %lld",
                 (long long)d->max_tokens, (long long)a->tokens);
    if (a->row_of) MOII_TRY(moii_operand_check("combine run: row_of", &words, a->row_of, NULL, 0, a->tokens, d->top_k));
    if (a->weights) MOII_TRY(moii_operand_check("combine run: weights", &words, a->weights, NULL, 0, a->tokens, d->top_k));
    return MOI_OK;
}

moi_status moi_combine_run(const moi_plan *plan, const moi_combine_args *args, void *workspace, int64_t workspace_bytes,
                           moi_stream stream)
{
    moi_combine_args a;
    MOII_TRY(begin(plan, args, &a, workspace, workspace_bytes, stream));
    const moi_permute_desc *d = &plan->desc.permute;
    moi_format f = format_of(d);
    MOII_TRY(moii_operand_check("combine run: y_sorted", &f, a.y_sorted, NULL, 0, a.tokens, d->hidden));
    MOII_TRY(moii_operand_check("combine run: y", &f, a.y, NULL, 0, a.tokens, d->hidden));
    return a.tokens ? plan->impl->run(plan, &a, workspace, stream) : MOI_OK;
}

moi_status moi_combine_backward_run(const moi_plan *plan, const moi_combine_args *args, void *workspace, int64_t workspace_bytes,
                                    moi_stream stream)
{
    moi_combine_args a;
    MOII_TRY(begin(plan, args, &a, workspace, workspace_bytes, stream));
    const moi_permute_desc *d = &plan->desc.permute;
    moi_format f = format_of(d);
    MOII_TRY(moii_operand_check("combine backward run: d_y", &f, a.d_y, NULL, 0, a.tokens, d->hidden));
    MOII_TRY(moii_operand_check("combine backward run: d_y_sorted", &f, a.d_y_sorted, NULL, 0, a.tokens, d->hidden));
    if (a.d_weights) {
        MOII_TRY(moii_operand_check("combine backward run: d_weights", &words, a.d_weights, NULL, 0, a.tokens, d->top_k));
        MOII_TRY(moii_operand_check("combine backward run: y_sorted", &f, a.y_sorted, NULL, 0, a.tokens, d->hidden));
    }
    return a.tokens ? plan->impl->run_backward(plan, &a, workspace, stream) : MOI_OK;
}
