/* SPDX-License-Identifier: Apache-2.0 */
#include "ctx.h"
#include "dtype.h"
#include "format.h"
#include "status.h"

static const char *const sides[] = { "swiglu plan: rowwise", "swiglu plan: colwise" };

static moi_format plain_format(moi_dtype dtype)
{
    return (moi_format){ .recipe = dtype == MOI_F32 ? MOI_RECIPE_F32 : MOI_RECIPE_BF16, .elem = dtype };
}

/* The same rules as for moi_quantize_plan_create. */
static moi_status check_groups(const moi_swiglu_desc *d)
{
    const moi_format *f = &d->colwise;
    MOII_REQUIRE(d->groups >= 0, MOI_ERR_SHAPE, "swiglu plan: groups must be >= 0, got %lld", (long long)d->groups);
    if (d->groups == 0 || !(d->want & MOI_WANT_COLWISE)) return MOI_OK;
    return moii_format_check_ragged(f, sides[1]);
}

static moi_status check_sizes(const moi_swiglu_desc *d)
{
    MOII_REQUIRE(d->max_rows >= 0 && d->width >= 0, MOI_ERR_SHAPE, "swiglu plan: max_rows and width must be >= 0, got %lld and %lld",
                 (long long)d->max_rows, (long long)d->width);
    int64_t columns = moii_mul(d->width, 2);
    bool fits = moii_mul(moii_mul(d->max_rows, columns), 8) >= 0 && moii_mul(columns, 1 << 16) >= 0;
    if (fits && !moii_format_plain(&d->in)) fits = moi_scale_bytes(&d->in, d->max_rows, columns, 0) >= 0;
    if (fits && d->want & MOI_WANT_ROWWISE) fits = moi_scale_bytes(&d->rowwise, d->max_rows, columns, 0) >= 0;
    if (fits && d->want & MOI_WANT_COLWISE)
        fits = moi_scale_bytes(&d->colwise, columns, d->max_rows, d->groups) >= 0 &&
               moii_mul(moi_ragged_cols(&d->colwise, d->max_rows, d->groups), columns) >= 0;
    MOII_REQUIRE(fits, MOI_ERR_SHAPE, "swiglu plan: %lld rows of 2 * %lld do not fit the address space", (long long)d->max_rows,
                 (long long)d->width);
    return MOI_OK;
}

moi_status moi_swiglu_plan_create(moi_plan **out, moi_ctx *ctx, const moi_swiglu_desc *desc)
{
    moi_swiglu_desc d;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "swiglu plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_take(&d, sizeof d, desc, "swiglu plan: desc"));
    MOII_TRY(moii_format_check(&d.in, "swiglu plan: in"));
    MOII_REQUIRE(d.out == MOI_F32 || d.out == MOI_BF16, MOI_ERR_ARG, "swiglu plan: out must be f32 or bf16, got %s", moi_dtype_name(d.out));
    MOII_REQUIRE(d.want <= (MOI_WANT_ROWWISE | MOI_WANT_COLWISE), MOI_ERR_ARG,
                 "swiglu plan: want must be 0, ROWWISE (1), COLWISE (2) or both (3), got %u", d.want);
    uint32_t recipes = MOII_RECIPE_BIT(d.in.recipe);
    for (int side = 0; side < 2; side++) {
        const moi_format *f = side ? &d.colwise : &d.rowwise;
        if (!(d.want & (1u << side))) continue;
        MOII_TRY(moii_format_check(f, sides[side]));
        recipes |= MOII_RECIPE_BIT(f->recipe);
    }
    MOII_TRY(moii_mx_check(d.rowwise_mx, MOI_MX_PER_128, &d.rowwise, d.want & MOI_WANT_ROWWISE, sides[0]));
    MOII_TRY(moii_mx_check(d.colwise_mx, MOI_MX_PER_128, &d.colwise, d.want & MOI_WANT_COLWISE, sides[1]));
    MOII_TRY(check_groups(&d));
    MOII_TRY(check_sizes(&d));
    return moii_plan_make(out, ctx, MOII_OP_SWIGLU, &d, sizeof d, d.row, recipes);
}

/* Both directions: the result has `columns` columns. */
static moi_status check_run(const moi_plan *plan, const moi_swiglu_args *a, int64_t columns)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    moi_format plain = plain_format(d->out);
    bool row = d->want & MOI_WANT_ROWWISE, col = d->want & MOI_WANT_COLWISE;
    MOII_REQUIRE(a->rows >= 0 && a->rows <= d->max_rows, MOI_ERR_SHAPE, "swiglu run: rows must be 0..%lld, got %lld",
                 (long long)d->max_rows, (long long)a->rows);
    if (col && d->groups) MOII_TRY(moii_offsets_check(plan, "swiglu run", a->offsets, d->groups, a->rows));
    MOII_TRY(moii_operand_check("swiglu run: gate_up", &d->in, a->gate_up.data, a->gate_up.scale, a->gate_up.ld, a->rows, 2 * d->width));
    if (a->plain || !d->want) MOII_TRY(moii_operand_check("swiglu run: plain", &plain, a->plain, NULL, 0, a->rows, columns));
    if (row)
        MOII_TRY(moii_operand_check("swiglu run: rowwise", &d->rowwise, a->rowwise.data, a->rowwise.scale, a->rowwise.ld, a->rows, columns));
    if (col)
        MOII_TRY(moii_operand_check("swiglu run: colwise", &d->colwise, a->colwise.data, a->colwise.scale, a->colwise.ld, columns,
                                    a->rows ? moi_ragged_cols(&d->colwise, a->rows, d->groups) : 0));
    return MOI_OK;
}

moi_status moi_swiglu_run(const moi_plan *plan, const moi_swiglu_args *args, void *workspace, int64_t workspace_bytes,
                          moi_stream stream)
{
    moi_swiglu_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_SWIGLU, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "swiglu run: args"));
    MOII_TRY(check_run(plan, &a, plan->desc.swiglu.width));
    return plan->desc.swiglu.width ? plan->impl->run(plan, &a, workspace, stream) : MOI_OK;
}

moi_status moi_swiglu_backward_run(const moi_plan *plan, const moi_swiglu_args *args, void *workspace, int64_t workspace_bytes,
                                   moi_stream stream)
{
    moi_swiglu_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_SWIGLU, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "swiglu backward run: args"));
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    moi_format plain = plain_format(d->out);
    MOII_TRY(check_run(plan, &a, 2 * d->width));
    MOII_TRY(moii_operand_check("swiglu backward run: d_act", &plain, a.d_act, NULL, 0, a.rows, d->width));
    return d->width ? plan->impl->run_backward(plan, &a, workspace, stream) : MOI_OK;
}
