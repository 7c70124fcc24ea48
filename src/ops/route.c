/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "ctx.h"
#include "format.h"
#include "status.h"

static const moi_format words = MOI_FMT_(MOI_RECIPE_F32, MOI_F32, MOI_BLOCK_VECTOR); /* 4 bytes each, floats and ids alike */

moi_status moi_route_plan_create(moi_plan **out, moi_ctx *ctx, const moi_route_desc *desc)
{
    moi_route_desc d;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "route plan: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_take(&d, sizeof d, desc, "route plan: desc"));
    MOII_REQUIRE(d.max_tokens >= 0, MOI_ERR_SHAPE, "route plan: max_tokens must be >= 0, got %lld", (long long)d.max_tokens);
    MOII_REQUIRE(d.experts >= 1 && d.experts <= INT32_MAX, MOI_ERR_SHAPE, "route plan: experts must be 1..2^31-1, got %lld", (long long)d.experts);
    MOII_REQUIRE(d.top_k >= 1 && d.top_k <= d.experts, MOI_ERR_SHAPE, "route plan: top_k must be 1..experts (%lld), got %lld",
                 (long long)d.experts, (long long)d.top_k);
    MOII_REQUIRE(moii_mul(moii_mul(d.max_tokens, d.experts), 8) >= 0, MOI_ERR_SHAPE, "route plan: max_tokens * experts is too large");
    MOII_REQUIRE(isfinite(d.aux_coef), MOI_ERR_ARG, "route plan: aux_coef must be finite, got %g", (double)d.aux_coef);
    return moii_plan_make(out, ctx, MOII_OP_ROUTE, &d, sizeof d, d.row, MOII_RECIPE_BIT(MOI_RECIPE_F32));
}

/* What both directions begin with. */
static moi_status begin(const moi_plan *plan, const moi_route_args *args, moi_route_args *a, void *workspace,
                        int64_t workspace_bytes, moi_stream stream)
{
    MOII_TRY(moii_run_check(plan, MOII_OP_ROUTE, args, workspace, workspace_bytes, stream));
    MOII_TRY(moii_take(a, sizeof *a, args, "route run: args"));
    const moi_route_desc *d = &plan->desc.route;
    MOII_REQUIRE(a->tokens >= 0 && a->tokens <= d->max_tokens, MOI_ERR_SHAPE, "route run: tokens must be 0..%lld, got %lld",
                 (long long)d->max_tokens, (long long)a->tokens);
    MOII_TRY(moii_operand_check("route run: probs", &words, a->probs, NULL, 0, a->tokens, d->experts));
    MOII_TRY(moii_operand_check("route run: ids", &words, a->ids, NULL, 0, a->tokens, d->top_k));
    return moii_operand_check("route run: weights", &words, a->weights, NULL, 0, a->tokens, d->top_k);
}

moi_status moi_route_run(const moi_plan *plan, const moi_route_args *args, void *workspace, int64_t workspace_bytes,
                         moi_stream stream)
{
    moi_route_args a;
    MOII_TRY(begin(plan, args, &a, workspace, workspace_bytes, stream));
    MOII_TRY(moii_operand_check("route run: logits", &words, a.logits, NULL, 0, a.tokens, plan->desc.route.experts));
    return plan->impl->run(plan, &a, workspace, stream);
}

moi_status moi_route_backward_run(const moi_plan *plan, const moi_route_args *args, void *workspace, int64_t workspace_bytes,
                                  moi_stream stream)
{
    moi_route_args a;
    MOII_TRY(begin(plan, args, &a, workspace, workspace_bytes, stream));
    const moi_route_desc *d = &plan->desc.route;
    MOII_TRY(moii_operand_check("route backward run: d_weights", &words, a.d_weights, NULL, 0, a.tokens, d->top_k));
    MOII_TRY(moii_operand_check("route backward run: d_logits", &words, a.d_logits, NULL, 0, a.tokens, d->experts));
    return plan->impl->run_backward(plan, &a, workspace, stream);
}
