/* SPDX-License-Identifier: Apache-2.0
 * quantize_mx_sm90.c: launches quantize_mx_sm90.cu: BF16 to blocks of 32 down columns, or both ways, whole or in groups; and to blocks of 128 both
 * ways, whole. */
#include <stdio.h>

#include "format.h"
#include "kernels/elem.h"
#include "kernels/quantize_mx_sm90_args.h"
#include "tile8.h"

enum { THREADS = 512, SLOT = 32, SLOTS = 8, TILES = 2, SLOT_BYTES = 16 }; /* as the kernel has them */

/* What one variant is compiled for; row_elem 0: columns alone. */
typedef struct shape { int kind, row_elem, col_elem; bool ragged, row_rebase, col_rebase; } shape;

static void defines_for(shape s, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "ROW_KIND=%d ROW_ELEM=%d COL_KIND=%d COL_ELEM=%d RAGGED=%d ROW_REBASE=%d COL_REBASE=%d", s.row_elem ? s.kind : TILE_NONE,
             s.row_elem, s.kind, s.col_elem, s.ragged, s.row_rebase, s.col_rebase);
}

static const shape shapes[] = {
    { TILE_MX32, ELEM_E4M3, ELEM_E4M3, false, false, false }, { TILE_MX32, 0, ELEM_E4M3, false, false, false },
    { TILE_MX32, ELEM_E5M2, ELEM_E5M2, false, false, false }, { TILE_MX32, 0, ELEM_E5M2, false, false, false },
    { TILE_MX32, ELEM_E4M3, ELEM_E4M3, true, false, false }, { TILE_MX32, 0, ELEM_E4M3, true, false, false },
    { TILE_MX32, ELEM_E5M2, ELEM_E5M2, true, false, false }, { TILE_MX32, 0, ELEM_E5M2, true, false, false },
    { TILE_MX32, ELEM_E4M3, ELEM_E4M3, false, true, false }, { TILE_MX32, ELEM_E4M3, ELEM_E4M3, true, true, false },
    { TILE_MX32, ELEM_E4M3, ELEM_E4M3, false, true, true }, { TILE_MX32, ELEM_E4M3, ELEM_E4M3, true, true, true },
    { TILE_MX32, 0, ELEM_E4M3, false, false, true }, { TILE_MX32, 0, ELEM_E4M3, true, false, true },
    { TILE_BLK128, ELEM_E4M3, ELEM_E4M3, false, false, false }, { TILE_BLK128, ELEM_E5M2, ELEM_E5M2, false, false, false },
};
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(shapes[i], defines); }

static const moii_kernel kernel = {
    .stem = "quantize_mx_sm90", .archs = "sm_90a sm_100a", .registers = 64, .variants = sizeof shapes / sizeof *shapes, .variant = variant,
};

/* Of 256 rows, two tiles; with groups there is one slot more for each, and where columns have equal scales one tile, as these begin with each group. */
static int64_t strips_of(const moi_quantize_desc *d, int64_t rows)
{
    if (d->groups && d->colwise_mx) return moii_ceil_div(rows / MOII_TILE + d->groups + 1, TILES);
    return moii_ceil_div(d->groups ? rows / SLOT + d->groups + 1 : moii_ceil_div(rows, SLOT), SLOTS);
}

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_quantize_desc *d = desc;
    *why = "only from BF16, and to columns";
    if (d->in != MOI_BF16 || !(d->want & MOI_WANT_COLWISE)) return false;
    const int kind = moii_tile8_kind(&d->colwise);
    *why = "results must be E4M3 or E5M2 in blocks of 32, or both in vectors of 128, not lenient";
    if (kind != TILE_MX32 && kind != TILE_BLK128) return false;
    if (d->want & MOI_WANT_ROWWISE && moii_tile8_kind(&d->rowwise) != kind) return false;
    *why = "blocks of 128 must be wanted both ways, and not be cut by groups";
    if (kind == TILE_BLK128 && (!(d->want & MOI_WANT_ROWWISE) || d->groups)) return false;
    *why = "a tile of 128 columns does not know a whole row";
    if (d->rowwise_mx == MOI_MX_PER_ROW) return false;
    *why = "a strip of 256 rows does not know a whole column";
    if (d->colwise_mx == MOI_MX_PER_ROW) return false;
    *why = "there must be one matrix, of a multiple of 128 columns";
    if (d->batch != 1 || d->cols % MOII_TILE) return false;
    *why = "there must be fewer than 2^16 strips of 256 rows, and fewer than 2^30 columns";
    if (strips_of(d, d->max_rows) >= 1 << 16 || d->cols >= 1 << 30) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

static moi_status plan_it(moi_plan *plan)
{
    enum { CODES = MOII_TILE * MOII_TILE, SCALES = 4 * MOII_TILE };
    const moi_quantize_desc *d = &plan->desc.quantize;
    moii_gpu_kernel *k = moii_gpu_state(plan, sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    const shape s = { .kind = moii_tile8_kind(&d->colwise), .row_elem = d->want & MOI_WANT_ROWWISE ? (int)d->rowwise.elem : 0,
                      .col_elem = (int)d->colwise.elem, .ragged = d->groups > 0, .row_rebase = d->rowwise_mx == MOI_MX_PER_128,
                      .col_rebase = d->colwise_mx == MOI_MX_PER_128 };
    k->kernel = &kernel;
    k->shared_bytes = TILES * (2 * CODES + CODES + 2 * SCALES) + SLOTS * SLOT_BYTES; /* the kernel's struct shared_memory */
    if (s.col_rebase) k->shared_bytes += SLOT_BYTES; /* the tiles' strips */
    if (s.kind == TILE_BLK128) k->shared_bytes += TILES * 4 * MOII_TILE;
    defines_for(s, k->defines);
    return moii_gpu_prepare(plan->ctx, k, 1);
}

/* How tiles follow one another, which blocks belong together and where these meet: by what was fastest (docs/notes/quantize-h200.md). */
static void arrange(const moi_plan *plan, moii_gpu_launch *launch, quantize_mx_sm90_args *a)
{
    enum { BLOCKS_AT_ONCE = 2, MANY_ROUNDS = 32, MANY_ROWS = 256 };
    const moi_quantize_desc *d = &plan->desc.quantize;
    int64_t across = launch->grid[0], bands = 1;
    const bool many = across * launch->grid[1] >= (int64_t)MANY_ROUNDS * BLOCKS_AT_ONCE * moii_gpu_of(plan->ctx)->sms;
    if (!(d->want & MOI_WANT_ROWWISE)) {
        if (!d->groups) bands = across % 4 == 0 ? 4 : across % 2 == 0 ? 2 : 1;
    } else if (across % 2 == 0 && (!d->groups || a->cut.rows / d->groups >= MANY_ROWS)) {
        launch->cluster = 2, a->meets = !many ? MEET_STORES : d->groups ? MEET_FIRST | MEET_STORES : MEET_FIRST | MEET_SECOND | MEET_STORES;
    }
    launch->grid[0] = across / bands, launch->grid[2] = bands;
}

/* The last strips are read as what leaves the L2 cache first, so that more of what is written need not leave it before the end: as many as were fastest. */
static unsigned int late_strip(const moi_quantize_desc *d, int64_t strips)
{
    enum { BOTH_MB = 24, GROUPS_MB = 48 };
    const int64_t strip_bytes = 2 * SLOT * SLOTS * d->cols, mb = d->want & MOI_WANT_ROWWISE ? BOTH_MB : d->groups ? GROUPS_MB : 0;
    return (unsigned int)moii_max(strips - (mb << 20) / strip_bytes, 0);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moi_quantize_args *in = args;
    const moii_gpu_kernel *k = plan->state;
    (void)workspace;
    const int64_t ld = moi_row_bytes(d->in, in->in.ld ? in->in.ld : d->cols);
    quantize_mx_sm90_args a = { .in = in->in.data, .cut = { .rows = in->rows, .groups = d->groups }, .in_bytes = ld, .packets = ld % MOII_ALIGN == 0 };
    if (d->groups) a.cut.offsets = (const long long *)(const void *)in->offsets;
    if (d->cols == 0 || (in->rows == 0 && !d->groups)) return MOI_OK;
    if (d->want & MOI_WANT_ROWWISE) a.row = moii_tile8_side(&d->rowwise, &in->rowwise, in->rows, d->cols, 0);
    a.col = moii_tile8_side(&d->colwise, &in->colwise, d->cols, in->rows, d->groups);
    a.row_words = a.row.stride % 8 == 0, a.col_packets = a.col.stride % MOII_ALIGN == 0;
    a.blocks = moi_scale_blocks(&d->colwise, in->rows, d->groups);
    moii_gpu_launch launch = { .grid = { d->cols / MOII_TILE, strips_of(d, in->rows) }, .threads = THREADS,
                               .shared_bytes = k->shared_bytes };
    arrange(plan, &launch, &a);
    a.late = late_strip(d, launch.grid[1]);
    return moii_gpu_run(plan, k, &launch, &a, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_quantize_mx_sm90 = {
    .name = "quantize_mx_sm90", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32) | MOII_RECIPE_BIT(MOI_RECIPE_BLK128),
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
