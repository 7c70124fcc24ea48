/* SPDX-License-Identifier: Apache-2.0 */
#include "ctx.h"
#include "dtype.h"
#include "format.h"
#include "status.h"

static const char *const sides[] = { "quantize plan: rowwise", "quantize plan: colwise" };

static moi_status check_groups(const moi_quantize_desc *d)
{
    MOII_REQUIRE(d->groups >= 0, MOI_ERR_SHAPE, "quantize plan: groups must be >= 0, got %lld", (long long)d->groups);
    if (d->groups == 0 || !(d->want & MOI_WANT_COLWISE)) return MOI_OK;
    const moi_format *f = &d->colwise;
    MOII_REQUIRE(d->batch == 1, MOI_ERR_ARG, "quantize plan: groups need batch 1, got %lld", (long long)d->batch);
    return moii_format_check_ragged(f, sides[1]);
}

/* Every size of the largest run must fit. */
static moi_status check_sizes(const moi_quantize_desc *d)
{
    MOII_REQUIRE(d->max_rows >= 0 && d->cols >= 0, MOI_ERR_SHAPE, "quantize plan: max_rows and cols must be >= 0, got %lld and %lld",
                 (long long)d->max_rows, (long long)d->cols);
    MOII_REQUIRE(d->batch >= 0, MOI_ERR_SHAPE, "quantize plan: batch must be >= 0, got %lld", (long long)d->batch);
    bool fits = moii_mul(moii_mul(moii_mul(d->max_rows, d->cols), 4), d->batch) >= 0;
    if (d->want & MOI_WANT_ROWWISE) fits = fits && moii_mul(moi_scale_bytes(&d->rowwise, d->max_rows, d->cols, 0), d->batch) >= 0;
    if (d->want & MOI_WANT_COLWISE)
        fits = fits && moii_mul(moi_scale_bytes(&d->colwise, d->cols, d->max_rows, d->groups), d->batch) >= 0 &&
               moii_mul(moii_mul(moi_ragged_cols(&d->colwise, d->max_rows, d->groups), d->cols), 4) >= 0;
    MOII_REQUIRE(fits, MOI_ERR_SHAPE, "quantize plan: %lld matrices of %lld x %lld do not fit the address space", (long long)d->batch,
                 (long long)d->max_rows, (long long)d->cols);
    return MOI_OK;
}

moi_status moi_quantize_plan_create(moi_plan **out, moi_ctx *ctx, const moi_quantize_desc *desc)
{
    moi_quantize_desc d;
    uint32_t recipes = 0;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "quantize plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_take(&d, sizeof d, desc, "quantize plan: desc"));
    MOII_REQUIRE(d.in == MOI_F32 || d.in == MOI_BF16 || d.in == MOI_F16, MOI_ERR_ARG, "quantize plan: in must be f32, bf16 or f16, got %s",
                 moi_dtype_name(d.in));
    MOII_REQUIRE(d.want && d.want <= (MOI_WANT_ROWWISE | MOI_WANT_COLWISE), MOI_ERR_ARG,
                 "quantize plan: want must be ROWWISE (1), COLWISE (2) or both (3), got %u", d.want);
    for (int side = 0; side < 2; side++) {
        const moi_format *f = side ? &d.colwise : &d.rowwise;
        if (!(d.want & (1u << side))) continue;
        MOII_TRY(moii_format_check(f, sides[side]));
        recipes |= MOII_RECIPE_BIT(f->recipe);
    }
    MOII_TRY(moii_mx_check(d.rowwise_mx, MOI_MX_PER_ROW, &d.rowwise, d.want & MOI_WANT_ROWWISE, sides[0]));
    MOII_TRY(moii_mx_check(d.colwise_mx, MOI_MX_PER_ROW, &d.colwise, d.want & MOI_WANT_COLWISE, sides[1]));
    MOII_TRY(check_groups(&d));
    MOII_TRY(check_sizes(&d));
    return moii_plan_make(out, ctx, MOII_OP_QUANTIZE, &d, sizeof d, d.row, recipes);
}

moi_status moi_quantize_run(const moi_plan *plan, const moi_quantize_args *args, void *workspace, int64_t workspace_bytes,
                            moi_stream stream)
{
    moi_quantize_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_QUANTIZE, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "quantize run: args"));
    const moi_quantize_desc *d = &plan->desc.quantize;
    MOII_REQUIRE(a.rows >= 0 && a.rows <= d->max_rows, MOI_ERR_SHAPE, "quantize run: rows must be 0..%lld, got %lld",
                 (long long)d->max_rows, (long long)a.rows);
    moi_format plain = { .recipe = MOI_RECIPE_F32, .elem = d->in };
    bool col = d->want & MOI_WANT_COLWISE;
    if (col && d->groups) MOII_TRY(moii_offsets_check(plan, "quantize run", a.offsets, d->groups, a.rows));
    if (d->cols == 0 || d->batch == 0) return MOI_OK;
    MOII_TRY(moii_operand_check("quantize run: in", &plain, a.in.data, NULL, a.in.ld, a.rows, d->cols));
    if (d->want & MOI_WANT_ROWWISE)
        MOII_TRY(moii_operand_check("quantize run: rowwise", &d->rowwise, a.rowwise.data, a.rowwise.scale, a.rowwise.ld, a.rows, d->cols));
    if (col)
        MOII_TRY(moii_operand_check("quantize run: colwise", &d->colwise, a.colwise.data, a.colwise.scale, a.colwise.ld, d->cols,
                                    a.rows ? moi_ragged_cols(&d->colwise, a.rows, d->groups) : 0));
    return plan->impl->run(plan, &a, workspace, stream);
}
