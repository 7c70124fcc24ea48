/* SPDX-License-Identifier: Apache-2.0
 * swiglu_plain.c: launches swiglu_plain.cu, then the best quantiser on the plain result. */
#include <stdlib.h>

#include "format.h"
#include "gpu.h"
#include "kernels/swiglu_plain_args.h"
#include "stored.h"
#include "then_quantize.h"

enum { THREADS = 256, MOST_BLOCKS = 65535 };

static const moii_kernel kernel = { .stem = "swiglu_plain", .archs = "sm_80 sm_90a sm_100a", .newer = true, .registers = 64 };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    (void)desc;
    return moii_gpu_fits(ctx, &kernel, why);
}

typedef struct state {
    moii_gpu_kernel kernel;
    moii_then_quantize then;
} state;

static void unplan(moi_plan *plan)
{
    state *s = plan->state;
    moii_then_quantize_free(&s->then);
    free(s);
}

static moi_status plan_it(moi_plan *plan)
{
    state *s = calloc(1, sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "swiglu plan: no memory");
    plan->state = s;
    plan->unplan = unplan;
    s->kernel.kernel = &kernel;
    MOII_TRY(moii_gpu_prepare(plan->ctx, &s->kernel, 1));
    return moii_then_quantize_plan(&s->then, plan);
}

static moi_status run_either(const moi_plan *plan, const moi_swiglu_args *in, bool backward, void *workspace, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const state *s = plan->state;
    swiglu_plain_args a = { .gate_up = moii_stored_of(&d->in, &in->gate_up, in->rows, 2 * d->width), .d_act = backward ? in->d_act : NULL,
                            .out = in->plain ? in->plain : workspace, .rows = in->rows, .width = d->width, .out_type = (int)d->out };
    moii_gpu_launch launch = { .grid = { moii_min(moii_ceil_div(a.width, THREADS), MOST_BLOCKS), moii_min(a.rows, MOST_BLOCKS) },
                               .threads = THREADS };
    if (a.rows) MOII_TRY(moii_gpu_run(plan, &s->kernel, &launch, &a, stream));
    return moii_then_quantize_run(&s->then, plan, in, a.out, workspace, backward, stream);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    return run_either(plan, args, false, workspace, stream);
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    return run_either(plan, args, true, workspace, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_swiglu_plain = {
    .name = "swiglu_plain", .op = MOII_OP_SWIGLU, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .run_backward = run_backward, .kernels = kernels,
};
