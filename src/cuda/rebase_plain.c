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

static rebase_plain_args args_of(const moi_rebase_desc *d, const moi_rebase_args *in)
{
    const moi_format *f = &d->format;
    rebase_plain_args a = { .in = in->in.data, .in_scale = in->in.scale, .out = in->out.data, .out_scale = in->out.scale,
                            .in_ld = in->in.ld ? in->in.ld : d->cols, .out_ld = in->out.ld ? in->out.ld : d->cols, .rows = in->rows,
                            .cols = d->cols, .layout = (int)f->layout, .max_shift = in->max_shift, .bound = in->bound };
    a.blocks = moi_scale_blocks(f, d->cols, 0);
    a.width = d->group ? d->group / MOII_MX_BLOCK : a.blocks;
    a.groups = a.width ? moii_ceil_div(a.blocks, a.width) : 0;
    int64_t unit = f->layout == MOI_LAYOUT_TILED ? 128 : f->layout == MOI_LAYOUT_COL ? 16 : 1;
    a.padded_rows = moii_round_up(a.rows, unit);
    a.padded_blocks = f->layout == MOI_LAYOUT_TILED ? moii_round_up(a.blocks, 4) : a.blocks;
    return a;
}

moi_status moii_rebase_launch(const moi_plan *plan, const moii_gpu_kernel *kernel, const moi_rebase_desc *d, const moi_rebase_args *in, moi_stream stream)
{
    rebase_plain_args a = args_of(d, in);
    if (a.max_shift) {
        rebase_plain_args clear = a;
        clear.clears = 1;
        moii_gpu_launch one = { .threads = 32 };
        MOII_TRY(moii_gpu_run(plan, kernel, &one, &clear, stream));
    }
    if (a.rows == 0 || a.cols == 0) return MOI_OK;
    moii_gpu_launch launch = { .grid = { moii_min(moii_ceil_div(a.groups, WARPS), MOST_BLOCKS), moii_min(a.padded_rows, MOST_BLOCKS) },
                               .threads = THREADS };
    return moii_gpu_run(plan, kernel, &launch, &a, stream);
}

moi_status moii_rebase_quantized_gpu(const moi_plan *plan, const moii_gpu_kernel *kernel, const moi_quantize_args *a, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    moi_rebase_desc rebase = { .format = d->rowwise, .group = d->rowwise_mx == MOI_MX_PER_128 ? MOII_BLK : 0, .max_rows = a->rows, .cols = d->cols };
    int64_t stride = a->rowwise.ld ? a->rowwise.ld : d->cols, scales = moi_scale_bytes(&d->rowwise, a->rows, d->cols, 0);
    for (int64_t i = 0; i < d->batch; i++) {
        moi_result out = { (unsigned char *)a->rowwise.data + i * a->rows * stride, (unsigned char *)a->rowwise.scale + i * scales, stride };
        moi_rebase_args args = { .rows = a->rows, .in = { out.data, out.scale, stride }, .out = out };
        MOII_TRY(moii_rebase_launch(plan, kernel, &rebase, &args, stream));
    }
    return MOI_OK;
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    (void)workspace;
    return moii_rebase_launch(plan, plan->state, &plan->desc.rebase, args, stream);
}

static const moii_kernel *const kernels[] = { &moii_rebase_kernel, NULL };

const moii_impl moii_impl_rebase_plain = {
    .name = "rebase_plain", .op = MOII_OP_REBASE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32),
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
