/* SPDX-License-Identifier: Apache-2.0
 * quantize_sm90.c: launches quantize_sm90.cu: 8-bit elements, one read for both directions. */
#include <stdio.h>

#include "format.h"
#include "kernels/elem.h"
#include "kernels/quantize_sm90_args.h"
#include "tile8.h"

/* What one variant of the kernel is compiled for. */
typedef struct shape { bool bf16; int row_kind, row_elem, col_kind, col_elem; bool ragged, rebase; } shape;

static void defines_for(const shape *s, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "BF16=%d ROW_KIND=%d ROW_ELEM=%d COL_KIND=%d COL_ELEM=%d RAGGED=%d ROW_REBASE=%d", s->bf16, s->row_kind,
             s->row_elem, s->col_kind, s->col_elem, s->ragged, s->rebase);
}

/* Both directions of one format, or either alone: the mixtures a caller may ask for besides are made of the same code. */
enum { SIDES = 3, KINDS = 3, ELEMS = 2, INPUTS = 2, WHOLE = SIDES * KINDS * ELEMS * INPUTS, RAGGED_SIDES = 2, RAGGED_KINDS = 2,
       CUT = WHOLE + RAGGED_SIDES * RAGGED_KINDS * ELEMS * INPUTS, REBASED = 3, SHAPES = CUT + REBASED * INPUTS };
static shape shape_at(int i)
{
    static const int elems[] = { ELEM_E4M3, ELEM_E5M2 };
    if (i >= CUT) { /* rows alone, beside columns, and beside columns in groups */
        int cols = (i -= CUT) % REBASED;
        return (shape){ i / REBASED, TILE_MX32, ELEM_E4M3, cols ? TILE_MX32 : TILE_NONE, cols ? ELEM_E4M3 : 0, cols == 2, true };
    }
    bool ragged = i >= WHOLE;
    if (ragged) i -= WHOLE;
    int sides = ragged ? RAGGED_SIDES : SIDES, kinds = ragged ? RAGGED_KINDS : KINDS;
    int side = i % sides + ragged, kind = TILE_MX32 + i / sides % kinds, elem = elems[i / sides / kinds % ELEMS];
    return (shape){ i / sides / kinds / ELEMS, side == 1 ? TILE_NONE : kind, side == 1 ? 0 : elem, side == 0 ? TILE_NONE : kind, side == 0 ? 0 : elem,
                    ragged, false };
}

/* Rows alone from BF16 are eight to a warp: quantize_octets_sm90 has those of MX32 and BLK128 for both elements, and equal scales. */
enum { ELSEWHERE = 2 * ELEMS + 1, VARIANTS = SHAPES - ELSEWHERE };
static bool is_elsewhere(bool bf16, int row_kind, int col_kind) { return bf16 && col_kind == TILE_NONE && row_kind != TILE_SQUARE; }

static void variant(int i, char defines[MOII_DEFINES])
{
    shape s;
    for (int at = 0, left = i; at < SHAPES && left >= 0; at++) {
        s = shape_at(at);
        left -= !is_elsewhere(s.bf16, s.row_kind, s.col_kind);
    }
    defines_for(&s, defines);
}

static const moii_kernel kernel = {
    .stem = "quantize_sm90", .archs = "sm_90a sm_100a", .registers = 224, .variants = VARIANTS, .variant = variant,
};

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_quantize_desc *d = desc;
    int row = d->want & MOI_WANT_ROWWISE ? moii_tile8_kind(&d->rowwise) : TILE_NONE;
    int col = d->want & MOI_WANT_COLWISE ? moii_tile8_kind(&d->colwise) : TILE_NONE;
    *why = "in must be BF16 or FP32";
    if (d->in == MOI_F16) return false;
    *why = "elements must be E4M3 or E5M2 with scales, and not lenient";
    if (row < 0 || col < 0) return false;
    *why = "rows alone from BF16 are eight to a warp";
    if (is_elsewhere(d->in == MOI_BF16, row, col)) return false;
    *why = "a tile of 128 columns does not know a whole row";
    if (d->rowwise_mx == MOI_MX_PER_ROW) return false;
    *why = "no equal scales down columns";
    if (d->colwise_mx) return false;
    *why = "square blocks cannot be cut where groups are";
    if (d->groups && (row == TILE_SQUARE || col == TILE_SQUARE)) return false;
    *why = "there must be fewer than 2^30 tiles of 128 x 128";
    int64_t tiles = moii_mul(moii_mul(d->batch, d->max_rows / MOII_TILE + d->groups + 1), moii_ceil_div(d->cols, MOII_TILE));
    if (tiles < 0 || tiles >= 1 << 30) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

typedef struct state { moii_gpu_kernel kernel; int units, down; bool ragged; } state;

static moi_status plan_it(moi_plan *plan)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    state *k = moii_gpu_state(plan, sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    shape s = { .bf16 = d->in == MOI_BF16, .rebase = d->rowwise_mx == MOI_MX_PER_128 };
    if (d->want & MOI_WANT_ROWWISE) s.row_kind = moii_tile8_kind(&d->rowwise), s.row_elem = (int)d->rowwise.elem;
    if (d->want & MOI_WANT_COLWISE) s.col_kind = moii_tile8_kind(&d->colwise), s.col_elem = (int)d->colwise.elem;
    s.ragged = s.col_kind != TILE_NONE && d->groups > 0;
    k->units = QUANTIZE_SM90_UNITS(s.bf16, s.row_kind, s.col_kind, s.ragged), k->down = QUANTIZE_SM90_DOWN(s.bf16, s.row_kind, s.col_kind, s.ragged);
    k->ragged = s.ragged;
    k->kernel.kernel = &kernel;
    defines_for(&s, k->kernel.defines);
    return moii_gpu_prepare(plan->ctx, &k->kernel, 1);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moi_quantize_args *in = args;
    (void)workspace;
    quantize_sm90_args a = { .in = in->in.data, .rows = in->rows, .cols = d->cols, .in_ld = in->in.ld ? in->in.ld : d->cols };
    if (d->want & MOI_WANT_COLWISE) a.groups = d->groups, a.offsets = (const long long *)(const void *)in->offsets;
    if (a.cols == 0 || (a.rows == 0 && !a.groups) || d->batch == 0) return MOI_OK;
    a.in_bytes = a.rows * moi_row_bytes(d->in, a.in_ld);
    a.vectors = moi_row_bytes(d->in, a.in_ld) % 16 == 0 && (d->batch == 1 || a.in_bytes % 16 == 0);
    if (d->want & MOI_WANT_ROWWISE) a.row = moii_tile8_side(&d->rowwise, &in->rowwise, a.rows, a.cols, 0);
    if (d->want & MOI_WANT_COLWISE) a.col = moii_tile8_side(&d->colwise, &in->colwise, a.cols, a.rows, a.groups);
    enum { MANY_BLOCKS = 128 }; /* for each multiprocessor: then larger clusters are faster (docs/notes/quantize-h200.md) */
    const state *k = plan->state;
    int64_t across = moii_ceil_div(a.cols, MOII_TILE), strips = moii_tile8_strips(a.rows, a.groups, k->units * k->down);
    a.across = (unsigned int)across, a.batch = (unsigned int)d->batch;
    moii_set_divisor(across, &a.across_magic, &a.across_shift);
    moii_gpu_launch launch = { .grid = { (d->batch * strips + k->ragged) * across * k->down }, .threads = k->units * MOII_TILE_THREADS,
                               .cluster = k->down > 1 ? k->down : 0 };
    if (k->down > 1 && across % 2 == 0 && launch.grid[0] >= (int64_t)MANY_BLOCKS * moii_gpu_of(plan->ctx)->sms) launch.cluster *= 2; /* side by side */
    return moii_gpu_run(plan, &k->kernel, &launch, &a, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_quantize_sm90 = {
    .name = "quantize_sm90", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32) | MOII_RECIPE_BIT(MOI_RECIPE_BLK128),
    .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
