/* SPDX-License-Identifier: Apache-2.0
 * swiglu_ahead_sm90.c: SwiGLU and its gradient from BF16 to 8 bits, as swiglu_sm90, with more on its way at a time and in fewer instructions. */
#include "swiglu_sm90.h"

static const moii_kernel kernel = {
    .stem = "swiglu_ahead_sm90", .archs = "sm_90a sm_100a", .registers = 255, .variants = MOII_SWIGLU_SM90_BF16,
    .variant = moii_swiglu_sm90_variant,
};

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_swiglu_desc *d = desc;
    *why = "only from BF16, with plain values in BF16";
    return d->in.elem == MOI_BF16 && d->out == MOI_BF16 && moii_swiglu_sm90_takes(d, why) && moii_gpu_fits(ctx, &kernel, why);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_swiglu_ahead_sm90 = {
    .name = "swiglu_ahead_sm90", .op = MOII_OP_SWIGLU, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = moii_swiglu_sm90_plan, .run = moii_swiglu_sm90_run, .run_backward = moii_swiglu_sm90_run_backward,
    .kernels = kernels, .is_unverified = true, /* until it has been timed: tests/test_swiglu.c has passed on the chip */
};
