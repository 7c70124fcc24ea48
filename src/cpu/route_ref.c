/* SPDX-License-Identifier: Apache-2.0
 * route_ref.c: softmax, top-k, weights and the load-balancing loss, token after token. */
#include "route_body.h"

static moi_status plan_(moi_plan *plan)
{
    plan->workspace_bytes = 2 * plan->desc.route.experts * (int64_t)sizeof(double);
    return MOI_OK;
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_route_desc *d = &plan->desc.route;
    const moi_route_args *a = args;
    (void)stream;
    for (int64_t t = 0; t < a->tokens; t++) moii_route_token(d, a, t);
    return moii_route_aux(d, a, workspace);
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_route_desc *d = &plan->desc.route;
    const moi_route_args *a = args;
    (void)stream;
    MOII_TRY(moii_route_aux_slope(d, a, workspace));
    for (int64_t t = 0; t < a->tokens; t++) moii_route_token_backward(d, a, workspace, t);
    return MOI_OK;
}

const moii_impl moii_impl_route_ref = {
    .name = "route_ref", .op = MOII_OP_ROUTE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .is_reference = true, .plan = plan_, .run = run,
    .run_backward = run_backward,
};
