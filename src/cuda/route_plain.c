/* SPDX-License-Identifier: Apache-2.0
 * route_plain.c: launches route_plain.cu: the tokens, then what is summed over them. */
#include "route_plain.h"

#include "format.h"
#include "kernels/route_plain_args.h"

enum { THREADS = 128, TOKENS = 4 };

const moii_kernel moii_route_kernel = { .stem = "route_plain", .archs = "sm_80 sm_90a sm_100a", .newer = true, .registers = 128 };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    (void)desc;
    return moii_gpu_fits(ctx, &moii_route_kernel, why);
}

static moi_status plan_it(moi_plan *plan)
{
    moii_gpu_kernel *k = moii_gpu_state(plan, sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    k->kernel = &moii_route_kernel;
    plan->workspace_bytes = moii_round_up(plan->desc.route.experts * (int64_t)sizeof(double), MOII_WORKSPACE_ALIGN);
    return moii_gpu_prepare(plan->ctx, k, 1);
}

static route_plain_args args_of(const moi_route_desc *d, const moi_route_args *in, void *workspace)
{
    return (route_plain_args){ .logits = in->logits, .d_weights = in->d_weights, .probs = in->probs, .weights = in->weights, .aux = in->aux_loss,
                               .d_logits = in->d_logits, .slope = workspace, .ids = in->ids, .tokens = in->tokens, .experts = d->experts,
                               .top_k = d->top_k, .aux_coef = d->aux_coef, .renormalize = d->renormalize };
}

static moi_status launch_on(const moi_plan *plan, const moii_gpu_kernel *kernel, route_plain_args *a, int step, moi_stream stream)
{
    bool tokens = step == ROUTE_TOKENS || step == ROUTE_BACKWARD;
    moii_gpu_launch l = { .grid = { tokens ? moii_ceil_div(a->tokens, TOKENS) : 1 }, .threads = THREADS,
                          .shared_bytes = tokens ? 0 : 4 * ROUTE_HELD_EXPERTS, .overlap = moii_gpu_of(plan->ctx)->capability >= 90 };
    a->step = step;
    return tokens && !a->tokens ? MOI_OK : moii_gpu_run(plan, kernel, &l, a, stream);
}
static moi_status launch(const moi_plan *plan, route_plain_args *a, int step, moi_stream stream) { return launch_on(plan, plan->state, a, step, stream); }

moi_status moii_route_tokens(const moi_plan *plan, const moii_gpu_kernel *kernel, const moi_route_desc *desc, const moi_route_args *args, moi_stream stream)
{
    route_plain_args a = args_of(desc, args, NULL);
    return launch_on(plan, kernel, &a, ROUTE_TOKENS, stream);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    route_plain_args a = args_of(&plan->desc.route, args, workspace);
    MOII_TRY(launch(plan, &a, ROUTE_TOKENS, stream));
    if (!a.aux) return MOI_OK;
    if (!a.tokens || a.aux_coef == 0) return plan->ctx->backend->put(plan->ctx, a.aux, &(float){ 0 }, sizeof(float), stream);
    return launch(plan, &a, ROUTE_AUX, stream);
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    route_plain_args a = args_of(&plan->desc.route, args, workspace);
    if (!a.tokens) return MOI_OK;
    MOII_TRY(launch(plan, &a, ROUTE_SLOPE, stream));
    return launch(plan, &a, ROUTE_BACKWARD, stream);
}

static const moii_kernel *const kernels[] = { &moii_route_kernel, NULL };

const moii_impl moii_impl_route_plain = {
    .name = "route_plain", .op = MOII_OP_ROUTE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .run_backward = run_backward, .kernels = kernels,
};
