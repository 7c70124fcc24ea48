/* SPDX-License-Identifier: Apache-2.0
 * quantize_columns_sm90.c: one scale for each group's part of a column (colwise_mx PER_ROW): whichever row makes blocks of 32, then
 * quantize_columns_sm90.cu, which finds the parts' largest scales and shifts the codes. */
#include <stdio.h>
#include <stdlib.h>

#include "format.h"
#include "gpu.h"
#include "kernels/quantize_columns_sm90_args.h"

enum { LINES = QUANTIZE_COLUMNS_SM90_LINES, RUN = QUANTIZE_COLUMNS_SM90_RUN, MOST = 65535 };
enum { SHIFT, TOPS, KERNELS };

static void variant(int i, char defines[MOII_DEFINES]) { snprintf(defines, MOII_DEFINES, "TOPS=%d", i); }

static const moii_kernel kernel = {
    .stem = "quantize_columns_sm90", .archs = "sm_90a sm_100a", .registers = 64, .variants = KERNELS, .variant = variant,
};

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_quantize_desc *d = desc;
    *why = "only for column-wise results with colwise_mx per row";
    if (d->colwise_mx != MOI_MX_PER_ROW) return false;
    *why = "groups must be fewer than 2^30, batch at most 65535";
    if (d->groups >= 1 << 30 || d->batch > MOST) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

typedef struct state { moii_gpu_kernel kernels[KERNELS]; moi_plan *blocks; int64_t tops_at; } state;

static void unplan(moi_plan *plan)
{
    state *s = plan->state;
    moi_plan_free(s->blocks);
    free(s);
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    moi_quantize_desc blocks = *d;
    uint32_t recipes = MOII_RECIPE_BIT(d->colwise.recipe) | (d->want & MOI_WANT_ROWWISE ? MOII_RECIPE_BIT(d->rowwise.recipe) : 0);
    state *s = moii_gpu_state(plan, sizeof *s);
    if (!s) return MOI_ERR_NOMEM;
    plan->unplan = unplan;
    blocks.colwise_mx = MOI_MX_FREE, blocks.row = NULL;
    MOII_TRY(moii_plan_make(&s->blocks, plan->ctx, MOII_OP_QUANTIZE, &blocks, sizeof blocks, NULL, recipes));
    s->tops_at = moii_round_up(s->blocks->workspace_bytes, MOII_WORKSPACE_ALIGN);
    plan->workspace_bytes = s->tops_at + d->batch * moii_max(d->groups, 1) * d->cols;
    for (int i = 0; i < KERNELS; i++) {
        s->kernels[i].kernel = &kernel;
        variant(i, s->kernels[i].defines);
    }
    return moii_gpu_prepare(plan->ctx, s->kernels, KERNELS);
}

/* As many warps as have a few scales of a part each. */
static int top_threads(const quantize_columns_sm90_args *a)
{
    int64_t each = a->blocks / a->parts, warps = 4;
    while (warps < 32 && warps * 8 < each) warps *= 2;
    return (int)(32 * warps);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moi_quantize_args *in = args;
    const state *s = plan->state;
    MOII_TRY(s->blocks->impl->run(s->blocks, in, workspace, stream));
    if (d->cols == 0 || in->rows == 0 || d->batch == 0) return MOI_OK;
    quantize_columns_sm90_args a = { .codes = in->colwise.data, .scale = in->colwise.scale, .tops = (unsigned char *)workspace + s->tops_at,
                                     .lines = d->cols, .length = in->rows, .blocks = moi_scale_blocks(&d->colwise, in->rows, d->groups),
                                     .parts = (int)moii_max(d->groups, 1), .layout = (int)d->colwise.layout };
    if (d->groups) a.offsets = (const long long *)(const void *)in->offsets;
    a.stride = moii_ld_bytes(&d->colwise, in->colwise.ld, moi_ragged_cols(&d->colwise, in->rows, d->groups));
    a.codes_bytes = a.lines * a.stride, a.scale_bytes = moi_scale_bytes(&d->colwise, d->cols, in->rows, d->groups);
    a.packets = a.stride % MOII_ALIGN == 0;
    const int64_t across = moii_ceil_div(a.lines, LINES);
    moii_gpu_launch tops = { .grid = { across, moii_min(a.parts, MOST), d->batch }, .threads = top_threads(&a) };
    moii_gpu_launch shift = { .grid = { moii_ceil_div(a.blocks, RUN), moii_min(across, MOST), d->batch }, .threads = QUANTIZE_COLUMNS_SM90_THREADS };
    MOII_TRY(moii_gpu_run(plan, &s->kernels[TOPS], &tops, &a, stream));
    return moii_gpu_run(plan, &s->kernels[SHIFT], &shift, &a, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_quantize_columns_sm90 = {
    .name = "quantize_columns_sm90", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
