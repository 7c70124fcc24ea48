/* SPDX-License-Identifier: Apache-2.0
 * quantize_octets_sm90.c: launches quantize_octets_sm90.cu: rows alone, from BF16 to 8-bit elements in blocks of 32 or of 128. */
#include <stdio.h>

#include "format.h"
#include "kernels/elem.h"
#include "kernels/quantize_octets_sm90_args.h"
#include "tile8.h"

enum { OCTET = 8, SPAN = QUANTIZE_OCTETS_SM90_SPAN, WARPS = QUANTIZE_OCTETS_SM90_WARPS, MATRICES = QUANTIZE_OCTETS_SM90_MATRICES, DEEP = 2 };

/* What one variant is compiled for, beside whether rows are in packets alone. */
typedef struct shape { int kind, elem; bool rebase; } shape;
static const shape shapes[] = {
    { TILE_MX32, ELEM_E4M3, false }, { TILE_MX32, ELEM_E5M2, false }, { TILE_MX32, ELEM_E4M3, true },
    { TILE_BLK128, ELEM_E4M3, false }, { TILE_BLK128, ELEM_E5M2, false },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void defines_for(shape s, bool whole, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "ROW_KIND=%d ROW_ELEM=%d ROW_REBASE=%d WHOLE=%d", s.kind, s.elem, s.rebase, whole);
}
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(shapes[i / 2], i % 2, defines); }

static const moii_kernel kernel = {
    .stem = "quantize_octets_sm90", .archs = "sm_90a sm_100a", .registers = 80, .variants = 2 * SHAPES, .variant = variant,
};

static shape shape_of(const moi_quantize_desc *d)
{
    return (shape){ moii_tile8_kind(&d->rowwise), (int)d->rowwise.elem, d->rowwise_mx == MOI_MX_PER_128 };
}

/* E8M0 scales of a column lie together: those of 32 rows in a sector of memory. */
static bool is_deep(const moi_quantize_desc *d) { return d->rowwise.layout == MOI_LAYOUT_COL && d->rowwise.recipe == MOI_RECIPE_MX32; }

/* Warps that one matrix of so many rows takes: all rows that its scales have room for. */
static int64_t pieces_of(const moi_quantize_desc *d, int64_t rows)
{
    int64_t r = d->rowwise.layout == MOI_LAYOUT_TILED ? moii_round_up(rows, MOII_TILE) : is_deep(d) ? moii_round_up(rows, OCTET << DEEP) : rows;
    return moii_mul(moii_ceil_div(r, OCTET), moii_ceil_div(d->cols, SPAN));
}

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_quantize_desc *d = desc;
    *why = "only for row-wise results from BF16";
    if (d->want != MOI_WANT_ROWWISE || d->in != MOI_BF16) return false;
    *why = "elements must be E4M3 or E5M2 with scales of 32 or of 1 x 128, and not lenient";
    int kind = moii_tile8_kind(&d->rowwise);
    if (kind != TILE_MX32 && kind != TILE_BLK128) return false;
    *why = "a warp does not know a whole row";
    if (d->rowwise_mx == MOI_MX_PER_ROW) return false;
    *why = "rows must be at most 2^30, and there must be fewer than 2^31 pieces of 8 x 256 in a matrix, and of matrices";
    int64_t pieces = pieces_of(d, d->max_rows);
    if (d->max_rows > 1 << 30 || pieces < 0 || pieces > INT32_MAX || d->batch > INT32_MAX) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

/* Kernels for rows that are not in whole packets, and for those that are. */
enum { PIECES, WHOLE, FORMS };

static moi_status plan_it(moi_plan *plan)
{
    moii_gpu_kernel *k = moii_gpu_state(plan, FORMS * sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    for (int i = 0; i < FORMS; i++) {
        k[i].kernel = &kernel;
        defines_for(shape_of(&plan->desc.quantize), i == WHOLE, k[i].defines);
    }
    return moii_gpu_prepare(plan->ctx, k, FORMS);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moi_quantize_args *in = args;
    const moii_gpu_kernel *k = plan->state;
    (void)workspace;
    quantize_octets_sm90_args a = { .in = in->in.data, .rows = in->rows, .cols = d->cols, .batch = (unsigned int)d->batch };
    if (a.cols == 0 || a.rows == 0 || d->batch == 0) return MOI_OK;
    a.from_ld = moi_row_bytes(d->in, in->in.ld ? in->in.ld : d->cols);
    a.in_bytes = a.rows * a.from_ld;
    a.vectors = a.from_ld % MOII_ALIGN == 0 && (d->batch == 1 || a.in_bytes % MOII_ALIGN == 0);
    a.side = moii_tile8_side(&d->rowwise, &in->rowwise, a.rows, a.cols, 0);
    a.row = d->rowwise.layout == MOI_LAYOUT_TILED ? (octet_steps){ 32, 1 } : (octet_steps){ 1, 4 };
    a.from = (octet_steps){ a.row.four * a.from_ld, a.row.eight * a.from_ld };
    a.to = (octet_steps){ a.row.four * a.side.stride, a.row.eight * a.side.stride };
    a.pieces = (unsigned int)pieces_of(d, a.rows), a.deep = is_deep(d) ? DEEP : 0, a.across = (unsigned int)moii_ceil_div(a.cols, SPAN);
    moii_set_divisor(a.across, &a.magic, &a.shift);
    const int form = a.vectors && a.cols % 8 == 0 && a.side.stride % 8 == 0 && a.side.data_bytes % 8 == 0 ? WHOLE : PIECES;
    moii_gpu_launch launch = { .grid = { moii_ceil_div(a.pieces, WARPS), moii_min(d->batch, MATRICES), moii_ceil_div(d->batch, MATRICES) },
                               .threads = 32 * (int)moii_min(WARPS, a.pieces) };
    return moii_gpu_run(plan, &k[form], &launch, &a, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_quantize_octets_sm90 = {
    .name = "quantize_octets_sm90", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32) | MOII_RECIPE_BIT(MOI_RECIPE_BLK128),
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
