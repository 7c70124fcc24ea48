/* SPDX-License-Identifier: Apache-2.0 */
#include "ctx.h"
#include "format.h"
#include "status.h"

moi_status moi_rebase_plan_create(moi_plan **out, moi_ctx *ctx, const moi_rebase_desc *desc)
{
    moi_rebase_desc d;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "rebase plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_take(&d, sizeof d, desc, "rebase plan: desc"));
    MOII_TRY(moii_format_check(&d.format, "rebase plan: format"));
    MOII_REQUIRE(d.format.recipe == MOI_RECIPE_MX32 && d.format.elem == MOI_E4M3, MOI_ERR_ARG,
                 "rebase plan: format must be mx32 with e4m3, got %s with %s", moi_recipe_name(d.format.recipe), moi_dtype_name(d.format.elem));
    MOII_REQUIRE(d.group == 0 || d.group == MOII_BLK, MOI_ERR_ARG, "rebase plan: group must be 128, or 0 for the whole row, got %lld",
                 (long long)d.group);
    MOII_REQUIRE(d.max_rows >= 0 && d.cols >= 0 && moii_mul(d.max_rows, d.cols) >= 0, MOI_ERR_SHAPE,
                 "rebase plan: max_rows and cols must be >= 0 and their product fit, got %lld and %lld", (long long)d.max_rows, (long long)d.cols);
    return moii_plan_make(out, ctx, MOII_OP_REBASE, &d, sizeof d, d.row, MOII_RECIPE_BIT(d.format.recipe));
}

moi_status moi_rebase_run(const moi_plan *plan, const moi_rebase_args *args, void *workspace, int64_t workspace_bytes, moi_stream stream)
{
    moi_rebase_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_REBASE, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "rebase run: args"));
    const moi_rebase_desc *d = &plan->desc.rebase;
    MOII_REQUIRE(a.rows >= 0 && a.rows <= d->max_rows, MOI_ERR_SHAPE, "rebase run: rows must be 0..%lld, got %lld",
                 (long long)d->max_rows, (long long)a.rows);
    MOII_TRY(moii_operand_check("rebase run: in", &d->format, a.in.data, a.in.scale, a.in.ld, a.rows, d->cols));
    MOII_TRY(moii_operand_check("rebase run: out", &d->format, a.out.data, a.out.scale, a.out.ld, a.rows, d->cols));
    return plan->impl->run(plan, &a, workspace, stream);
}
