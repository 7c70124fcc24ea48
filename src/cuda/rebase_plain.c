/* SPDX-License-Identifier: Apache-2.0
 * rebase_plain.c: launches rebase_plain.cu, before it a single thread that zeroes the largest shift. */
#include "format.h"
#include "gpu.h"
#include "kernels/rebase_plain_args.h"
#include "rebase_plain.h"

enum { THREADS = 256, WARPS = 8, MOST_BLOCKS = 65535 };

const moii_kernel moii_rebase_kernel = { .stem = "rebase_plain", .archs = "sm_80 sm_90a sm_100a", .newer = true, .registers = 64 };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    (void)desc;
    return moii_gpu_fits(ctx, &moii_rebase_kernel, why);
}

static moi_status plan_it(moi_plan *plan) { return moii_gpu_plan_one(plan, &moii_rebase_kernel); }

static rebase_plain_args args_of(const moi_format *f, int64_t group, int64_t rows, int64_t cols, int64_t cut)
{
    rebase_plain_args a = { .rows = rows, .cols = cols, .layout = (int)f->layout, .cut = cut };
    a.blocks = moi_scale_blocks(f, cols, cut);
    a.width = group ? group / MOII_MX_BLOCK : a.blocks;
    a.groups = cut ? (group ? cols / group : 0) + cut : a.width ? moii_ceil_div(a.blocks, a.width) : 0;
    a.whole = group == 0;
    int64_t unit = f->layout == MOI_LAYOUT_TILED ? 128 : f->layout == MOI_LAYOUT_COL ? 16 : 1;
    a.padded_rows = moii_round_up(a.rows, unit);
    a.padded_blocks = f->layout == MOI_LAYOUT_TILED ? moii_round_up(a.blocks, 4) : a.blocks;
    return a;
}

static moi_status launch_it(const moi_plan *plan, const moii_gpu_kernel *kernel, const rebase_plain_args *a, moi_stream stream)
{
    if (a->rows == 0 || a->cols == 0) return MOI_OK;
    moii_gpu_launch launch = { .grid = { moii_min(moii_ceil_div(a->groups, WARPS), MOST_BLOCKS), moii_min(a->padded_rows, MOST_BLOCKS) },
                               .threads = THREADS };
    return moii_gpu_run(plan, kernel, &launch, a, stream);
}

moi_status moii_rebase_quantized_gpu(const moi_plan *plan, const moii_gpu_kernel *kernel, const moi_quantize_args *in, bool transposed, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moi_format *f = transposed ? &d->colwise : &d->rowwise;
    const moi_result *out = transposed ? &in->colwise : &in->rowwise;
    const int64_t rows = transposed ? d->cols : in->rows, cols = transposed ? in->rows : d->cols, cut = transposed ? d->groups : 0;
    rebase_plain_args a = args_of(f, (transposed ? d->colwise_mx : d->rowwise_mx) == MOI_MX_PER_128 ? MOII_BLK : 0, rows, cols, cut);
    const int64_t scales = moi_scale_bytes(f, rows, cols, cut);
    a.in_ld = a.out_ld = out->ld ? out->ld : moi_ragged_cols(f, cols, cut);
    a.offsets = (const long long *)(const void *)in->offsets;
    for (int64_t i = 0; i < d->batch; i++) {
        a.in = a.out = (unsigned char *)out->data + i * rows * a.out_ld;
        a.in_scale = a.out_scale = (unsigned char *)out->scale + i * scales;
        MOII_TRY(launch_it(plan, kernel, &a, stream));
    }
    return MOI_OK;
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_rebase_desc *d = &plan->desc.rebase;
    const moi_rebase_args *in = args;
    (void)workspace;
    rebase_plain_args a = args_of(&d->format, d->group, in->rows, d->cols, 0);
    a.in = in->in.data, a.in_scale = in->in.scale, a.in_ld = in->in.ld ? in->in.ld : d->cols;
    a.out = in->out.data, a.out_scale = in->out.scale, a.out_ld = in->out.ld ? in->out.ld : d->cols;
    a.max_shift = in->max_shift, a.bound = in->bound;
    if (a.max_shift) {
        rebase_plain_args clear = a;
        clear.clears = 1;
        moii_gpu_launch one = { .threads = 32 };
        MOII_TRY(moii_gpu_run(plan, plan->state, &one, &clear, stream));
    }
    return launch_it(plan, plan->state, &a, stream);
}

static const moii_kernel *const kernels[] = { &moii_rebase_kernel, NULL };

const moii_impl moii_impl_rebase_plain = {
    .name = "rebase_plain", .op = MOII_OP_REBASE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32),
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
