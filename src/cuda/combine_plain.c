/* SPDX-License-Identifier: Apache-2.0
 * combine_plain.c: launches combine_plain.cu: weighted sums of each token's rows, and their gradients. */
#include <stdio.h>

#include "format.h"
#include "gpu.h"
#include "kernels/combine_plain_args.h"

enum { THREADS = 256, BLOCKS_AT_ONCE = 8 };

static void defines_for(bool bf16, bool packets, bool backward, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "BF16=%d RUN=%d BACKWARD=%d", bf16, !packets ? 1 : bf16 ? 8 : 4, backward);
}

static void variant(int i, char defines[MOII_DEFINES]) { defines_for(i & 1, i & 2, i & 4, defines); }

static const moii_kernel kernel = { .stem = "combine_plain", .archs = "sm_80 sm_90a sm_100a", .newer = true, .registers = 64, .variants = 8,
                                    .variant = variant };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    (void)desc;
    return moii_gpu_fits(ctx, &kernel, why);
}

static int64_t run_of(const moi_permute_desc *d)
{
    int64_t most = d->dtype == MOI_BF16 ? 8 : 4;
    return d->hidden % most ? 1 : most;
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_permute_desc *d = &plan->desc.permute;
    moii_gpu_kernel *k = moii_gpu_state(plan, 2 * sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    for (int i = 0; i < 2; i++) {
        k[i].kernel = &kernel;
        defines_for(d->dtype == MOI_BF16, run_of(d) > 1, i, k[i].defines);
    }
    return moii_gpu_prepare(plan->ctx, k, 2);
}

static moi_status run_either(const moi_plan *plan, const moi_combine_args *in, bool backward, moi_stream stream)
{
    const moi_permute_desc *d = &plan->desc.permute;
    const moii_gpu_kernel *k = plan->state;
    const moii_gpu *gpu = moii_gpu_of(plan->ctx);
    combine_plain_args a = { .row_of = in->row_of, .weights = in->weights, .y_sorted = in->y_sorted, .d_y = in->d_y, .y = in->y,
                             .d_y_sorted = in->d_y_sorted, .d_weights = in->d_weights, .tokens = in->tokens, .top_k = d->top_k, .hidden = d->hidden };
    int64_t threads = backward ? a.tokens * a.top_k * 32 : a.tokens * (d->hidden / run_of(d));
    moii_gpu_launch l = { .grid = { moii_min(moii_ceil_div(threads, THREADS), (int64_t)gpu->sms * BLOCKS_AT_ONCE) }, .threads = THREADS,
                          .overlap = gpu->capability >= 90 };
    return threads ? moii_gpu_run(plan, &k[backward], &l, &a, stream) : MOI_OK;
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    (void)workspace;
    return run_either(plan, args, false, stream);
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    (void)workspace;
    return run_either(plan, args, true, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_combine_plain = {
    .name = "combine_plain", .op = MOII_OP_COMBINE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .run_backward = run_backward, .kernels = kernels,
};
