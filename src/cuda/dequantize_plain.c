/* SPDX-License-Identifier: Apache-2.0
 * dequantize_plain.c: launches dequantize_plain.cu. */
#include "format.h"
#include "gpu.h"
#include "kernels/dequantize_plain_args.h"
#include "stored.h"

enum { THREADS = 256, MOST_BLOCKS = 65535 };

static const moii_kernel kernel = { .stem = "dequantize_plain", .archs = "sm_80 sm_90a sm_100a", .newer = true, .registers = 64 };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    (void)desc;
    return moii_gpu_fits(ctx, &kernel, why);
}

static moi_status plan_it(moi_plan *plan) { return moii_gpu_plan_one(plan, &kernel); }

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_dequantize_desc *d = &plan->desc.dequantize;
    const moi_dequantize_args *in = args;
    (void)workspace;
    dequantize_plain_args a = { .in = moii_stored_of(&d->in, &in->in, in->rows, d->cols), .out = in->out.data, .rows = in->rows,
                                .cols = d->cols, .out_ld = in->out.ld ? in->out.ld : d->cols, .out_type = (int)d->out };
    moii_gpu_launch launch = { .grid = { moii_min(moii_ceil_div(a.cols, THREADS), MOST_BLOCKS), moii_min(a.rows, MOST_BLOCKS) },
                               .threads = THREADS };
    return moii_gpu_run(plan, plan->state, &launch, &a, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_dequantize_plain = {
    .name = "dequantize_plain", .op = MOII_OP_DEQUANTIZE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
