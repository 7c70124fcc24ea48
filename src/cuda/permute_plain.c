/* SPDX-License-Identifier: Apache-2.0
 * permute_plain.c: launches permute_plain.cu: slots counted, if there are many; their places; the copies, if they are wanted. */
#include <stdio.h>

#include "format.h"
#include "gpu.h"
#include "kernels/permute_plain_args.h"

/* slots for each thread of a block up to which blocks count them all; where they do not, slots of a block at least, and before there are more than SOME;
 * shared memory that every device has; threads that copy */
enum { EACH = 8, LEAST = 1024, CHUNK = 4096, SOME = 32, SHARED = 48 << 10, MOST_EXPERTS = 4096, COPYING = 256, BLOCKS_AT_ONCE = 8 };

static void defines_for(int unit, char defines[MOII_DEFINES]) { snprintf(defines, MOII_DEFINES, "UNIT=%d", unit); }
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(i == 0 ? 16 : i == 1 ? 4 : 2, defines); }

static const moii_kernel kernel = { .stem = "permute_plain", .archs = "sm_80 sm_90a sm_100a", .newer = true, .registers = 64, .variants = 3,
                                    .variant = variant };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_permute_desc *d = desc;
    *why = "experts must be at most 4096, and max_tokens * top_k 2^30";
    return d->experts <= MOST_EXPERTS && d->max_tokens * d->top_k <= 1 << 30 && moii_gpu_fits(ctx, &kernel, why);
}

static int unit_of(const moi_permute_desc *d)
{
    int64_t bytes = moi_row_bytes(d->dtype, d->hidden);
    return bytes % 16 ? (int)moi_row_bytes(d->dtype, 1) : 16;
}

/* Of a block: each has counts of all experts, and there are two numbers more. */
static int warps_of(const moi_permute_desc *d)
{
    return (int)moii_max(1, moii_min(PERMUTE_WARPS, SHARED / (4 * d->experts) - 2));
}

static bool counts_apart(const moi_permute_desc *d, int64_t slots) { return slots > EACH * 32 * warps_of(d); }

static int64_t chunk_of(const moi_permute_desc *d, int64_t slots, int sms)
{
    int64_t some = moii_min(moii_max(moii_ceil_div(slots, SOME), LEAST), CHUNK), chunk = counts_apart(d, slots) ? moii_max(some, moii_ceil_div(slots, sms)) : 1;
    return moii_round_up(chunk, 32 * warps_of(d));
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_permute_desc *d = &plan->desc.permute;
    moii_gpu_kernel *k = moii_gpu_state(plan, sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    k->kernel = &kernel, k->shared_bytes = (warps_of(d) + 2) * (int)d->experts * 4;
    defines_for(unit_of(d), k->defines);
    plan->workspace_bytes = counts_apart(d, d->max_tokens * d->top_k) ? moii_gpu_of(plan->ctx)->sms * d->experts * 4 : 0;
    return moii_gpu_prepare(plan->ctx, k, 1);
}

static moi_status launch(const moi_plan *plan, permute_plain_args *a, int step, moi_stream stream)
{
    const moi_permute_desc *d = &plan->desc.permute;
    const moii_gpu_kernel *k = plan->state;
    const moii_gpu *gpu = moii_gpu_of(plan->ctx);
    moii_gpu_launch l = { .grid = { a->chunks }, .threads = 32 * warps_of(d), .shared_bytes = k->shared_bytes, .overlap = gpu->capability >= 90 };
    if (step == PERMUTE_COPY) {
        l.threads = COPYING, l.shared_bytes = 0;
        l.grid[0] = moii_min(moii_ceil_div(a->tokens * a->units, COPYING), (int64_t)gpu->sms * BLOCKS_AT_ONCE);
    }
    a->step = step;
    return moii_gpu_run(plan, k, &l, a, stream);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_permute_desc *d = &plan->desc.permute;
    const moi_permute_args *in = args;
    int64_t slots = in->tokens * d->top_k, chunk = chunk_of(d, slots, moii_gpu_of(plan->ctx)->sms);
    permute_plain_args a = { .ids = in->ids, .x = in->x, .x_sorted = in->x_sorted, .offsets = (long long *)in->offsets, .row_of = in->row_of,
                             .token_of = in->token_of, .counts = counts_apart(d, slots) && slots > chunk ? workspace : NULL, .tokens = in->tokens,
                             .units = moi_row_bytes(d->dtype, d->hidden) / unit_of(d), .slots = (int)slots, .top_k = (int)d->top_k,
                             .experts = (int)d->experts, .chunk = (int)chunk, .chunks = (int)moii_max(1, moii_ceil_div(slots, chunk)) };
    if (a.counts) MOII_TRY(launch(plan, &a, PERMUTE_COUNT, stream));
    MOII_TRY(launch(plan, &a, PERMUTE_PLACE, stream));
    return in->x && slots && a.units ? launch(plan, &a, PERMUTE_COPY, stream) : MOI_OK;
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_permute_plain = {
    .name = "permute_plain", .op = MOII_OP_PERMUTE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
