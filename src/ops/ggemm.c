/* SPDX-License-Identifier: Apache-2.0
 * ggemm.c: products cut into ragged groups: checks. */
#include "ctx.h"
#include "products.h"

static moi_status check_swiglu(const moi_ggemm_desc *d)
{
    MOII_REQUIRE(d->grouping == MOI_GROUP_M && !d->accumulate && !d->scatter_rows && !d->weighted, MOI_ERR_ARG,
                 "ggemm plan: swiglu needs grouping GROUP_M, and neither accumulate nor scatter_rows nor weighted");
    MOII_REQUIRE(d->n % 2 == 0, MOI_ERR_SHAPE, "ggemm plan: n must be even with swiglu, got %lld", (long long)d->n);
    MOII_TRY(moii_format_check(&d->rowwise, "ggemm plan: rowwise"));
    MOII_REQUIRE(moii_format_plain(&d->rowwise) || d->rowwise.block == MOI_BLOCK_VECTOR, MOI_ERR_ARG,
                 "ggemm plan: rowwise.block must be VECTOR: squares do not end where groups do");
    bool fits = moii_mul(moii_mul(d->max_rows, d->n), 8) >= 0 && moi_scale_bytes(&d->rowwise, d->max_rows, d->n, 0) >= 0;
    MOII_REQUIRE(fits, MOI_ERR_SHAPE, "ggemm plan: %lld rows of %lld do not fit the address space", (long long)d->max_rows, (long long)d->n);
    return MOI_OK;
}

/* Checks the description into *d. */
static moi_status take_desc(const moi_ctx *ctx, const moi_ggemm_desc *desc, moi_ggemm_desc *d)
{
    MOII_REQUIRE(ctx, MOI_ERR_ARG, "ggemm plan: ctx is NULL");
    MOII_TRY(moii_take(d, sizeof *d, desc, "ggemm plan: desc"));
    moii_product_desc p = { &d->a, &d->b, d->a_order, d->b_order, d->out, d->accumulate, d->grouping != MOI_GROUP_K, d->mx, d->sm_limit };
    MOII_TRY(moii_product_check("ggemm plan", &p));
    MOII_REQUIRE(d->grouping == MOI_GROUP_M || d->grouping == MOI_GROUP_K || d->grouping == MOI_GROUP_MASKED, MOI_ERR_ARG,
                 "ggemm plan: grouping must be GROUP_M (0), GROUP_K (1) or GROUP_MASKED (2), got %d", (int)d->grouping);
    if (d->grouping != MOI_GROUP_K) {
        MOII_REQUIRE(d->a_order == MOI_K_MAJOR, MOI_ERR_ARG, "ggemm plan: a_order must be K_MAJOR for GROUP_M and GROUP_MASKED");
    } else {
        MOII_REQUIRE(moii_format_plain(&d->b) || d->b.block == MOI_BLOCK_VECTOR, MOI_ERR_ARG,
                     "ggemm plan: b.block must be VECTOR for GROUP_K: squares cannot follow ragged groups");
    }
    MOII_REQUIRE(d->groups >= 0 && d->max_rows >= 0 && d->m >= 0 && d->n >= 0 && d->k >= 0, MOI_ERR_SHAPE,
                 "ggemm plan: groups, max_rows, m, n and k must be >= 0, got %lld, %lld, %lld, %lld, %lld", (long long)d->groups,
                 (long long)d->max_rows, (long long)d->m, (long long)d->n, (long long)d->k);
    MOII_REQUIRE(d->expected_rows >= 0, MOI_ERR_SHAPE, "ggemm plan: expected_rows must be >= 0, got %lld", (long long)d->expected_rows);
    MOII_REQUIRE(d->gather_rows >= 0 && (d->gather_rows == 0 || d->grouping == MOI_GROUP_M), MOI_ERR_ARG,
                 "ggemm plan: gather_rows must be >= 0, and 0 unless grouping is GROUP_M, got %lld", (long long)d->gather_rows);
    MOII_REQUIRE(d->scatter_rows >= 0 && (d->scatter_rows == 0 || d->grouping == MOI_GROUP_M), MOI_ERR_ARG,
                 "ggemm plan: scatter_rows must be >= 0, and 0 unless grouping is GROUP_M, got %lld", (long long)d->scatter_rows);
    MOII_REQUIRE(!d->weighted || d->grouping == MOI_GROUP_M, MOI_ERR_ARG, "ggemm plan: weighted must be false unless grouping is GROUP_M");
    if (d->swiglu) MOII_TRY(check_swiglu(d));
    return moii_mx_check(d->rowwise_mx, MOI_MX_PER_128, &d->rowwise, d->swiglu, "ggemm plan: rowwise");
}

static uint32_t recipes_of(const moi_ggemm_desc *d) { return MOII_RECIPE_BIT(d->a.recipe) | MOII_RECIPE_BIT(d->b.recipe); }

moi_status moi_ggemm_plan_create(moi_plan **out, moi_ctx *ctx, const moi_ggemm_desc *desc)
{
    moi_ggemm_desc d;
    MOII_REQUIRE(out, MOI_ERR_ARG, "ggemm plan: out is NULL");
    *out = NULL;
    MOII_TRY(take_desc(ctx, desc, &d));
    return moii_plan_make(out, ctx, MOII_OP_GGEMM, &d, sizeof d, d.row, recipes_of(&d));
}

moi_status moi_ggemm_explain(moi_ctx *ctx, const moi_ggemm_desc *desc, const moi_explain_config *config)
{
    moi_ggemm_desc d;
    MOII_TRY(take_desc(ctx, desc, &d));
    return moii_plan_explain(ctx, MOII_OP_GGEMM, &d, sizeof d, d.row, recipes_of(&d), config);
}

/* Offsets lie in device memory; only the CPU back end may read them before it starts. */
static moi_status check_offsets(const moi_plan *plan, const moi_ggemm_args *a)
{
    int64_t groups = plan->desc.ggemm.groups;
    MOII_REQUIRE(a->offsets, MOI_ERR_ARG, "ggemm run: offsets is NULL");
    if (plan->ctx->backend->id != MOI_BACKEND_CPU) return MOI_OK;
    MOII_REQUIRE(a->offsets[0] == 0, MOI_ERR_ARG, "ggemm run: offsets[0] must be 0, got %lld", (long long)a->offsets[0]);
    for (int64_t g = 0; g < groups; g++)
        MOII_REQUIRE(a->offsets[g + 1] >= a->offsets[g], MOI_ERR_ARG, "ggemm run: offsets must ascend, got %lld behind %lld at %lld",
                     (long long)a->offsets[g + 1], (long long)a->offsets[g], (long long)g + 1);
    MOII_REQUIRE(a->offsets[groups] <= a->rows, MOI_ERR_ARG, "ggemm run: the last offset must be <= rows = %lld, got %lld",
                 (long long)a->rows, (long long)a->offsets[groups]);
    return MOI_OK;
}

static moi_status check_counts(const moi_plan *plan, const moi_ggemm_args *a)
{
    MOII_REQUIRE(a->counts, MOI_ERR_ARG, "ggemm run: counts is NULL; the plan is for GROUP_MASKED");
    if (plan->ctx->backend->id != MOI_BACKEND_CPU) return MOI_OK;
    for (int64_t g = 0; g < plan->desc.ggemm.groups; g++)
        MOII_REQUIRE(a->counts[g] >= 0 && a->counts[g] <= a->rows, MOI_ERR_ARG, "ggemm run: counts must be 0..rows = %lld, got %lld at %lld",
                     (long long)a->rows, (long long)a->counts[g], (long long)g);
    return MOI_OK;
}

static moi_status check_gather(const moi_plan *plan, const moi_ggemm_args *a)
{
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    MOII_REQUIRE(d->gather_rows || (!a->rows_of_a && !a->a_rows), MOI_ERR_ARG,
                 "ggemm run: rows_of_a and a_rows must be NULL and 0 for a plan without gather_rows, got %p and %lld", (const void *)a->rows_of_a,
                 (long long)a->a_rows);
    if (!d->gather_rows) return MOI_OK;
    MOII_REQUIRE(a->a_rows >= 0 && a->a_rows <= d->gather_rows, MOI_ERR_SHAPE, "ggemm run: a_rows must be 0..%lld, got %lld", (long long)d->gather_rows,
                 (long long)a->a_rows);
    MOII_REQUIRE(a->rows == 0 || a->rows_of_a, MOI_ERR_ARG, "ggemm run: rows_of_a is NULL");
    MOII_REQUIRE(a->rows == 0 || a->a_rows > 0, MOI_ERR_SHAPE, "ggemm run: a_rows must be > 0 where there are rows, got 0");
    if (plan->ctx->backend->id != MOI_BACKEND_CPU) return MOI_OK;
    for (int64_t r = 0; r < a->offsets[d->groups]; r++)
        MOII_REQUIRE(a->rows_of_a[r] >= 0 && a->rows_of_a[r] < a->a_rows, MOI_ERR_ARG, "ggemm run: rows_of_a must be 0..%lld, got %d at %lld",
                     (long long)a->a_rows - 1, (int)a->rows_of_a[r], (long long)r);
    return MOI_OK;
}

static moi_status check_scatter(const moi_plan *plan, const moi_ggemm_args *a)
{
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    MOII_REQUIRE(d->weighted ? a->row_weight || a->rows == 0 : !a->row_weight, MOI_ERR_ARG, "ggemm run: row_weight %s NULL for a plan %s weights",
                 d->weighted ? "is" : "must be", d->weighted ? "with" : "without");
    MOII_REQUIRE(d->scatter_rows || (!a->rows_of_d && !a->d_rows), MOI_ERR_ARG,
                 "ggemm run: rows_of_d and d_rows must be NULL and 0 for a plan without scatter_rows, got %p and %lld", (const void *)a->rows_of_d,
                 (long long)a->d_rows);
    if (!d->scatter_rows) return MOI_OK;
    MOII_REQUIRE(a->d_rows >= 0 && a->d_rows <= d->scatter_rows, MOI_ERR_SHAPE, "ggemm run: d_rows must be 0..%lld, got %lld", (long long)d->scatter_rows,
                 (long long)a->d_rows);
    MOII_REQUIRE(a->rows == 0 || a->rows_of_d, MOI_ERR_ARG, "ggemm run: rows_of_d is NULL");
    if (plan->ctx->backend->id != MOI_BACKEND_CPU) return MOI_OK;
    for (int64_t r = 0; r < a->offsets[d->groups]; r++)
        MOII_REQUIRE(a->rows_of_d[r] >= -1 && a->rows_of_d[r] < a->d_rows, MOI_ERR_ARG, "ggemm run: rows_of_d must be -1..%lld, got %d at %lld",
                     (long long)a->d_rows - 1, (int)a->rows_of_d[r], (long long)r);
    return MOI_OK;
}

/* Where the result goes. */
static moi_status check_result(const moi_ggemm_desc *d, const moi_ggemm_args *a)
{
    moi_format plain = moii_plain_format(d->out);
    if (d->swiglu) return moii_operand_check("ggemm run: rowwise", &d->rowwise, a->rowwise.data, a->rowwise.scale, a->rowwise.ld, a->rows, d->n / 2);
    return moii_operand_check("ggemm run: d", &plain, a->d, NULL, a->ldd, d->scatter_rows ? a->d_rows : a->rows, d->n);
}

static moi_status check_operands(const moi_ggemm_desc *d, const moi_ggemm_args *a)
{
    moi_format plain = moii_plain_format(d->out);
    if (d->grouping != MOI_GROUP_K) {
        MOII_TRY(moii_product_operand("ggemm run: a", &d->a, d->a_order, &a->a, d->gather_rows ? a->a_rows : a->rows, d->k));
        MOII_TRY(moii_product_second("ggemm run: b", &d->a, &d->b, d->b_order, &a->b, d->n, d->k));
        return check_result(d, a);
    }
    int64_t a_depth = a->rows ? moi_ragged_cols(&d->a, a->rows, d->groups) : 0, b_depth = a->rows ? moi_ragged_cols(&d->b, a->rows, d->groups) : 0;
    MOII_TRY(moii_product_operand("ggemm run: a", &d->a, d->a_order, &a->a, d->m, a_depth));
    MOII_TRY(moii_product_operand("ggemm run: b", &d->b, d->b_order, &a->b, d->n, b_depth));
    return moii_operand_check("ggemm run: d", &plain, a->d, NULL, a->ldd, d->m, d->n);
}

moi_status moi_ggemm_run(const moi_plan *plan, const moi_ggemm_args *args, void *workspace, int64_t workspace_bytes, moi_stream stream)
{
    moi_ggemm_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_GGEMM, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "ggemm run: args"));
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    MOII_REQUIRE(a.rows >= 0 && a.rows <= d->max_rows, MOI_ERR_SHAPE, "ggemm run: rows must be 0..%lld, got %lld",
                 (long long)d->max_rows, (long long)a.rows);
    bool masked = d->grouping == MOI_GROUP_MASKED, ragged_rows = d->grouping != MOI_GROUP_K;
    MOII_REQUIRE(masked ? !a.offsets : !a.counts, MOI_ERR_ARG, "ggemm run: %s must be NULL for %s", masked ? "offsets" : "counts",
                 masked ? "GROUP_MASKED, which has counts" : "GROUP_M and GROUP_K, which have offsets");
    MOII_TRY(masked ? check_counts(plan, &a) : check_offsets(plan, &a));
    MOII_TRY(check_gather(plan, &a));
    MOII_TRY(check_scatter(plan, &a));
    MOII_REQUIRE(d->swiglu ? !a.d : !a.rowwise.data && !a.rowwise.scale, MOI_ERR_ARG, "ggemm run: %s must be NULL for a plan %s swiglu",
                 d->swiglu ? "d" : "rowwise", d->swiglu ? "with" : "without");
    if (d->scatter_rows && a.d_rows == 0) return MOI_OK;
    if (d->groups == 0 || d->n == 0 || (ragged_rows ? a.rows : d->m) == 0) return MOI_OK;
    MOII_TRY(check_operands(d, &a));
    if (d->accumulate && (ragged_rows ? d->k : a.rows) == 0) return MOI_OK;
    return plan->impl->run(plan, &a, workspace, stream);
}
