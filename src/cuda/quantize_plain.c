/* SPDX-License-Identifier: Apache-2.0
 * quantize_plain.c: launches quantize_plain.cu, once for each direction, and rebase_plain.cu where equal scales are wanted. */
#include <stdio.h>

#include "dtype.h"
#include "format.h"
#include "gpu.h"
#include "kernels/quantize_plain_args.h"
#include "rebase_plain.h"

static const moi_dtype elements[] = { MOI_F32, MOI_BF16, MOI_E4M3, MOI_E5M2, MOI_E3M2, MOI_E2M3, MOI_E2M1, MOI_INT8 };
enum { ELEMENTS = sizeof elements / sizeof *elements, THREADS = 256, TEAM = 32, MOST_BLOCKS = 65535, PLAIN_WIDTH = 128 };

static void defines_for(moi_dtype elem, char defines[MOII_DEFINES]) { snprintf(defines, MOII_DEFINES, "ELEM=%d", (int)elem); }
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(elements[i], defines); }

static const moii_kernel kernel = {
    .stem = "quantize_plain", .archs = "sm_80 sm_90a sm_100a", .newer = true, .registers = 64, .variants = ELEMENTS, .variant = variant,
};

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    (void)desc;
    return moii_gpu_fits(ctx, &kernel, why);
}

typedef struct state { moii_gpu_kernel kernels[3], *side[2], *rebase; } state; /* row-wise, column-wise */

static moi_status plan_it(moi_plan *plan)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    state *s = moii_gpu_state(plan, sizeof *s);
    if (!s) return MOI_ERR_NOMEM;
    int count = 0;
    for (int side = 0; side < 2; side++) {
        if (!(d->want & 1u << side)) continue;
        s->side[side] = &s->kernels[count++];
        s->side[side]->kernel = &kernel;
        defines_for(side ? d->colwise.elem : d->rowwise.elem, s->side[side]->defines);
    }
    if (d->rowwise_mx || d->colwise_mx) {
        s->rebase = &s->kernels[count++];
        s->rebase->kernel = &moii_rebase_kernel;
    }
    return moii_gpu_prepare(plan->ctx, s->kernels, count);
}

/* The extent of the scales with the padding of their layout. */
static void pad_scales(quantize_plain_args *a, const moi_format *f)
{
    a->unit_rows = a->scale_rows;
    a->cells = a->blocks;
    if (f->layout == MOI_LAYOUT_TILED) a->unit_rows = moii_round_up(a->unit_rows, 128), a->cells = moii_round_up(a->blocks, 4);
    if (f->layout == MOI_LAYOUT_COL) a->unit_rows = moii_round_up(a->unit_rows, a->wide ? 4 : 16);
}

static quantize_plain_args args_of(const moi_quantize_desc *d, const moi_quantize_args *in, bool transposed)
{
    const moi_format *f = transposed ? &d->colwise : &d->rowwise;
    const moi_result *out = transposed ? &in->colwise : &in->rowwise;
    const moii_dtype_info *elem = moii_dtype(f->elem);
    bool plain = moii_format_plain(f);
    quantize_plain_args a = { .in = in->in.data, .data = out->data, .scale = plain ? NULL : out->scale,
                              .offsets = (const long long *)(const void *)in->offsets, .batch = d->batch, .in_type = (int)d->in,
                              .transposed = transposed, .layout = (int)f->layout, .nan_code = elem->nan_code, .rule = moii_block_rule_of(f) };
    a.rows = transposed ? d->cols : in->rows;
    a.cols = transposed ? in->rows : d->cols;
    a.groups = transposed ? d->groups : 0;
    a.in_ld = in->in.ld ? in->in.ld : d->cols;
    a.in_bytes = in->rows * moi_row_bytes(d->in, a.in_ld);
    a.data_stride = moii_ld_bytes(f, out->ld, moi_ragged_cols(f, a.cols, a.groups));
    a.data_bytes = a.rows * a.data_stride;
    a.width = plain ? PLAIN_WIDTH : (int)moi_format_block(f);
    a.width_bits = a.width == MOII_MX_BLOCK ? 5 : 7;
    a.height = !plain && f->block == MOI_BLOCK_SQUARE && f->recipe == MOI_RECIPE_BLK128 ? MOII_BLK : 1;
    a.wide = moii_format_scale(f) == MOI_F32;
    if (plain) {
        a.unit_rows = a.rows;
        a.cells = moii_ceil_div(a.cols, a.width);
        return a;
    }
    a.scale_rows = moii_scale_rows(f, a.rows);
    a.blocks = moi_scale_blocks(f, a.cols, a.groups);
    a.scale_bytes = moi_scale_bytes(f, a.rows, a.cols, a.groups);
    pad_scales(&a, f);
    return a;
}

static moi_status run_side(const moi_plan *plan, const moi_quantize_args *in, bool transposed, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const state *s = plan->state;
    quantize_plain_args a = args_of(d, in, transposed);
    bool plain = moii_format_plain(transposed ? &d->colwise : &d->rowwise);
    int64_t teams = a.height > 1 ? 1 : THREADS / TEAM;
    if (a.unit_rows == 0 || a.cells == 0 || (!plain && !a.scale)) return MOI_OK;
    moii_gpu_launch launch = { .grid = { moii_min(moii_ceil_div(a.cells, teams), MOST_BLOCKS), moii_min(a.unit_rows, MOST_BLOCKS),
                                         moii_min(a.batch, MOST_BLOCKS) }, .threads = THREADS };
    return moii_gpu_run(plan, s->side[transposed], &launch, &a, stream);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const state *s = plan->state;
    (void)workspace;
    for (int side = 0; side < 2; side++) {
        if (d->want & 1u << side) MOII_TRY(run_side(plan, args, side, stream));
        if (side ? d->colwise_mx : d->rowwise_mx) MOII_TRY(moii_rebase_quantized_gpu(plan, s->rebase, args, side, stream));
    }
    return MOI_OK;
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_quantize_plain = {
    .name = "quantize_plain", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
