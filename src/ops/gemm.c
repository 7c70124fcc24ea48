/* SPDX-License-Identifier: Apache-2.0
 * gemm.c: D = A B^T: checks. */
#include <stdio.h>

#include "ctx.h"
#include "products.h"

static moi_status check_order(const char *where, const char *name, const moi_format *f, moi_order order)
{
    MOII_REQUIRE(order == MOI_K_MAJOR || order == MOI_MN_MAJOR, MOI_ERR_ARG, "%s: %s_order must be K_MAJOR (0) or MN_MAJOR (1), got %d",
                 where, name, (int)order);
    MOII_REQUIRE(order == MOI_K_MAJOR || moii_format_plain(f), MOI_ERR_ARG, "%s: %s_order must be K_MAJOR, as recipe %s has blocks along k",
                 where, name, moi_recipe_name(f->recipe));
    return MOI_OK;
}

moi_status moii_product_check(const char *where, const moii_product_desc *d)
{
    char text[64];
    snprintf(text, sizeof text, "%s: a", where);
    MOII_TRY(moii_format_check(d->a, text));
    snprintf(text, sizeof text, "%s: b", where);
    bool mixed = d->weights_alone && moii_product_mixed(d->a, d->b);
    MOII_TRY(mixed ? moii_format_check_weight(d->b, text) : moii_format_check(d->b, text));
    MOII_REQUIRE(mixed || d->a->recipe == d->b->recipe, MOI_ERR_ARG, "%s: a and b must have one recipe, got %s and %s", where,
                 moi_recipe_name(d->a->recipe), moi_recipe_name(d->b->recipe));
    MOII_REQUIRE(d->a->recipe != MOI_RECIPE_BLK128 || d->a->block == MOI_BLOCK_VECTOR, MOI_ERR_ARG,
                 "%s: a.block must be VECTOR; only b may have squares", where);
    MOII_TRY(check_order(where, "a", d->a, d->a_order));
    MOII_TRY(check_order(where, "b", d->b, d->b_order));
    MOII_REQUIRE(d->out == MOI_F32 || d->out == MOI_BF16, MOI_ERR_ARG, "%s: out must be f32 or bf16, got %s", where, moi_dtype_name(d->out));
    MOII_REQUIRE(d->mx == MOI_MX_FREE || d->mx == MOI_MX_PER_128 || d->mx == MOI_MX_PER_ROW, MOI_ERR_ARG,
                 "%s: mx must be MX_FREE (0), MX_PER_128 (1) or MX_PER_ROW (2), got %d", where, (int)d->mx);
    MOII_REQUIRE(d->mx == MOI_MX_FREE || d->a->recipe == MOI_RECIPE_MX32, MOI_ERR_ARG, "%s: mx is for recipe mx32, got %s", where,
                 moi_recipe_name(d->a->recipe));
    MOII_REQUIRE(d->sm_limit >= 0, MOI_ERR_ARG, "%s: sm_limit must be >= 0, got %d", where, (int)d->sm_limit);
    MOII_REQUIRE(!d->accumulate || d->out == MOI_F32, MOI_ERR_ARG, "%s: accumulate needs out f32, got %s", where, moi_dtype_name(d->out));
    return MOI_OK;
}

/* Checks the description into *d. */
static moi_status take_desc(const moi_ctx *ctx, const moi_gemm_desc *desc, moi_gemm_desc *d)
{
    MOII_REQUIRE(ctx, MOI_ERR_ARG, "gemm plan: ctx is NULL");
    MOII_TRY(moii_take(d, sizeof *d, desc, "gemm plan: desc"));
    moii_product_desc p = { &d->a, &d->b, d->a_order, d->b_order, d->out, d->accumulate, true, d->mx, d->sm_limit };
    MOII_TRY(moii_product_check("gemm plan", &p));
    MOII_REQUIRE(d->max_m >= 0 && d->n >= 0 && d->k >= 0, MOI_ERR_SHAPE, "gemm plan: max_m, n and k must be >= 0, got %lld, %lld, %lld",
                 (long long)d->max_m, (long long)d->n, (long long)d->k);
    return MOI_OK;
}

static uint32_t recipes_of(const moi_gemm_desc *d) { return MOII_RECIPE_BIT(d->a.recipe) | MOII_RECIPE_BIT(d->b.recipe); }

moi_status moi_gemm_plan_create(moi_plan **out, moi_ctx *ctx, const moi_gemm_desc *desc)
{
    moi_gemm_desc d;
    MOII_REQUIRE(out, MOI_ERR_ARG, "gemm plan: out is NULL");
    *out = NULL;
    MOII_TRY(take_desc(ctx, desc, &d));
    return moii_plan_make(out, ctx, MOII_OP_GEMM, &d, sizeof d, d.row, recipes_of(&d));
}

moi_status moi_gemm_explain(moi_ctx *ctx, const moi_gemm_desc *desc, const moi_explain_config *config)
{
    moi_gemm_desc d;
    MOII_TRY(take_desc(ctx, desc, &d));
    return moii_plan_explain(ctx, MOII_OP_GEMM, &d, sizeof d, d.row, recipes_of(&d), config);
}

moi_status moi_gemm_run(const moi_plan *plan, const moi_gemm_args *args, void *workspace, int64_t workspace_bytes, moi_stream stream)
{
    moi_gemm_args a;
    MOII_TRY(moii_run_check(plan, MOII_OP_GEMM, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(&a, sizeof a, args, "gemm run: args"));
    const moi_gemm_desc *d = &plan->desc.gemm;
    MOII_REQUIRE(a.m >= 0 && a.m <= d->max_m, MOI_ERR_SHAPE, "gemm run: m must be 0..%lld, got %lld", (long long)d->max_m, (long long)a.m);
    if (a.m == 0 || d->n == 0) return MOI_OK;
    MOII_TRY(moii_product_operand("gemm run: a", &d->a, d->a_order, &a.a, a.m, d->k));
    MOII_TRY(moii_product_second("gemm run: b", &d->a, &d->b, d->b_order, &a.b, d->n, d->k));
    moi_format plain = moii_plain_format(d->out);
    MOII_TRY(moii_operand_check("gemm run: d", &plain, a.d, NULL, a.ldd, a.m, d->n));
    if (d->k == 0 && d->accumulate) return MOI_OK;
    return plan->impl->run(plan, &a, workspace, stream);
}
