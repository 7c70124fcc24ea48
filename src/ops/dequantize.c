/* SPDX-License-Identifier: Apache-2.0 */
#include "ctx.h"
#include "format.h"
#include "status.h"

moi_status moi_dequantize_plan_create(moi_plan **out, moi_ctx *ctx, const moi_dequantize_desc *desc)
{
    moi_dequantize_desc d;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "dequantize plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_take(&d, sizeof d, desc, "dequantize plan: desc"));
    MOII_TRY(moii_format_check(&d.in, "dequantize plan: in"));
    MOII_REQUIRE(d.out == MOI_F32 || d.out == MOI_BF16, MOI_ERR_ARG, "dequantize plan: out must be f32 or bf16, got %s", moi_dtype_name(d.out));
    MOII_REQUIRE(d.max_rows >= 0 && d.cols >= 0, MOI_ERR_SHAPE, "dequantize plan: max_rows and cols must be >= 0, got %lld and %lld",
                 (long long)d.max_rows, (long long)d.cols);
    return moii_plan_make(out, ctx, MOII_OP_DEQUANTIZE, &d, sizeof d, d.row, MOII_RECIPE_BIT(d.in.recipe));
}

moi_status moi_dequantize_run(const moi_plan *plan, const moi_dequantize_args *args, void *workspace, int64_t workspace_bytes,
                              moi_stream stream)
{
    moi_dequantize_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_DEQUANTIZE, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "dequantize run: args"));
    const moi_dequantize_desc *d = &plan->desc.dequantize;
    MOII_REQUIRE(a.rows >= 0 && a.rows <= d->max_rows, MOI_ERR_SHAPE, "dequantize run: rows must be 0..%lld, got %lld",
                 (long long)d->max_rows, (long long)a.rows);
    MOII_TRY(moii_operand_check("dequantize run: in", &d->in, a.in.data, a.in.scale, a.in.ld, a.rows, d->cols));
    moi_format plain = { .recipe = d->out == MOI_F32 ? MOI_RECIPE_F32 : MOI_RECIPE_BF16, .elem = d->out };
    MOII_TRY(moii_operand_check("dequantize run: out", &plain, a.out.data, NULL, a.out.ld, a.rows, d->cols));
    if (a.rows == 0 || d->cols == 0) return MOI_OK;
    return plan->impl->run(plan, &a, workspace, stream);
}
