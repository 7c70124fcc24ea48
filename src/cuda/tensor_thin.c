/* SPDX-License-Identifier: Apache-2.0
 * tensor_thin.c: which products thin_sm90, mixed_sm90 and halves_sm90 do, and with which defines. */
#include <stdio.h>

#include "dtype.h"
#include "format.h"
#include "tensor_product.h"

static const moi_format mxfp8 = MOII_TENSOR_MXFP8, mxfp4 = MOII_TENSOR_MXFP4, bf16 = MOII_TENSOR_BF16;

/* Compiled ahead: few rows of each of 8 groups, or of one matrix; more. */
static const struct { int grouping; moi_dtype out; int64_t few, more, n, k; bool placed; } ahead[] = {
    { PRODUCT_ROWS, MOI_BF16, 256, 1024, 4096, 7168, false }, { PRODUCT_ROWS, MOI_F32, 256, 1024, 4096, 7168, false },
    { PRODUCT_ROWS, MOI_BF16, 256, 1024, 4096, 7168, true },  { PRODUCT_MASKED, MOI_BF16, 32, 128, 4096, 7168, false },
    { PRODUCT_DENSE, MOI_BF16, 32, 512, 24576, 1536, false },
};
enum { AHEAD = sizeof ahead / sizeof *ahead };

static void variant_of(int i, int64_t rows, char defines[MOII_DEFINES])
{
    moii_tensor_product p = { .grouping = ahead[i].grouping, .a = &mxfp8, .b = &mxfp8, .groups = ahead[i].grouping == PRODUCT_DENSE ? 1 : 8, .m = rows,
                              .n = ahead[i].n, .k = ahead[i].k, .scatter_rows = ahead[i].placed ? rows : 0, .weighted = ahead[i].placed };
    moii_tensor_variant(&p, ahead[i].out, defines);
}
static void variant(int i, char defines[MOII_DEFINES]) { variant_of(i, ahead[i].few, defines); }

/* Weights alone: of 8 groups, with SwiGLU behind the first product of a layer. */
static const struct { int grouping; moi_dtype out; int64_t rows, n, k; bool swiglu, fours; } halves_ahead[] = {
    { PRODUCT_ROWS, MOI_BF16, 256, 4096, 7168, true, false }, { PRODUCT_ROWS, MOI_BF16, 256, 7168, 2048, false, false },
    { PRODUCT_MASKED, MOI_BF16, 32, 4096, 7168, false, false }, { PRODUCT_DENSE, MOI_BF16, 32, 24576, 1536, false, false },
    { PRODUCT_ROWS, MOI_BF16, 256, 4096, 7168, true, true },  { PRODUCT_ROWS, MOI_BF16, 256, 7168, 2048, false, true },
};
static void alone_variant(int i, int64_t rows, char defines[MOII_DEFINES])
{
    moii_tensor_product p = { .grouping = halves_ahead[i].grouping, .a = &bf16, .b = halves_ahead[i].fours ? &mxfp4 : &mxfp8,
                              .groups = halves_ahead[i].grouping == PRODUCT_DENSE ? 1 : 8, .m = rows, .n = halves_ahead[i].n,
                              .k = halves_ahead[i].k, .swiglu = halves_ahead[i].swiglu, .act = &bf16 };
    moii_tensor_variant(&p, halves_ahead[i].out, defines);
}

static void halves_variant(int i, char defines[MOII_DEFINES]) { alone_variant(i, halves_ahead[i].rows, defines); }

/* Tiles of 128 rows, then of 64 for groups, which stand in front, of 96 and of 144 for the first ones; of E2M1, which stands behind, of 128. */
enum { MIXED_AHEAD = 2 * AHEAD - 1, MIXED_BROAD = 2, MIXED_FOURS = 2, HALVES_AHEAD = sizeof halves_ahead / sizeof *halves_ahead };
static void mixed_variant(int i, char defines[MOII_DEFINES])
{
    const int more = i - MIXED_AHEAD, fours = more - MIXED_BROAD, of_fours = HALVES_AHEAD - MIXED_FOURS + fours;
    if (more < 0) variant_of(i % AHEAD, ahead[i % AHEAD].more / (i < AHEAD ? 1 : 2), defines);
    else if (fours < 0) variant_of(0, ahead[0].more * (more ? 9 : 5) / 8, defines);
    else alone_variant(of_fours, halves_ahead[of_fours].rows * 4, defines);
}

const moii_kernel moii_thin_kernel = { .stem = "thin_sm90", .archs = "sm_90a", .registers = 255, .variants = AHEAD, .variant = variant };
const moii_kernel moii_mixed_kernel = { .stem = "mixed_sm90", .archs = "sm_90a", .registers = 255, .variants = MIXED_AHEAD + MIXED_BROAD + MIXED_FOURS,
                                        .variant = mixed_variant };
const moii_kernel moii_halves_kernel = { .stem = "halves_sm90", .archs = "sm_90a", .registers = 255, .variants = HALVES_AHEAD, .variant = halves_variant };

const moii_kernel *moii_thin_kernel_of(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    return !t->thin ? NULL : p->halves ? &moii_halves_kernel : p->mixed ? &moii_mixed_kernel : &moii_thin_kernel;
}

/* Four blocks' scales lie in a word, and no stage is a part of one. */
bool moii_thin_takes(const moi_format *f, int64_t k, int64_t groups)
{
    return k % 128 == 0 && f->layout != MOI_LAYOUT_COL && groups <= THIN_GROUPS;
}

/* Listed rows of A are brought into an order in which theirs lie so. */
bool moii_thin_fits(const moii_tensor_product *p)
{
    bool a = p->gather_rows || moii_thin_takes(p->a, p->k, p->groups);
    return p->scaling == SCALING_MX && p->grouping != PRODUCT_DEPTH && a && moii_thin_takes(p->b, p->k, p->groups);
}

/* Whether mixed_sm90 is asked to take B, E4M3 or E2M1 (of which b says E4M3 until that is settled): experts' weights alone, or where scales lie in words.
 * E5M2 fills FP16's exponents: no power is left for scales. */
static bool mixed_takes(const moii_tensor_product *p)
{
    if (p->b->elem != MOI_E4M3 && p->b->elem != MOI_E2M1) return false;
    const bool experts = moii_tensor_weights_alone(p) && moii_tensor_experts(p);
    return experts ? p->k % 32 == 0 && p->groups <= THIN_GROUPS : moii_thin_takes(p->b, p->k, p->groups);
}

static bool of_fours(const moii_tensor_product *p) { return p->unpacked || p->b->elem == MOI_E2M1; }

/* Where weights alone are scaled, few rows take halves_sm90: sums of 32 products times a scale are fewer than codes, which of E2M1 are half as many to load.
 * So do more where mixed_sm90 could not, until a copy of the weights takes less than to make FP16 of them for each 64 rows anew; and of one matrix in E2M1,
 * of which two copies would be made. */
enum { NARROW = 64, NARROW_FOURS = 32, OFTEN = 256 }; /* rows of a group */
bool moii_mixed_halves(const moii_tensor_product *p)
{
    const bool often = !mixed_takes(p) || (of_fours(p) && !moii_tensor_experts(p));
    return moii_tensor_weights_alone(p) && p->k % 32 == 0 && moii_tensor_group_rows(p) <= (often ? OFTEN : of_fours(p) ? NARROW_FOURS : NARROW);
}

/* Tiles of so many rows of A. */
static int64_t tiles_of(const moii_tensor_product *p, int64_t rows, int bn)
{
    enum { LINES = 256 }; /* of B, 64 for each wave of each warpgroup */
    return moii_mul(moii_ceil_div(rows, bn) * moii_ceil_div(p->n, LINES), moii_tensor_experts(p) ? p->groups : 1);
}

/* Whether the last round's idle multiprocessors do not cost what it gains: measured (gemm-hopper.md). */
static bool enough_tiles(const moii_tensor_product *p, int64_t rows, int bn)
{
    bool experts = moii_tensor_experts(p), alone = moii_tensor_weights_alone(p);
    int64_t tiles = tiles_of(p, rows, bn), busy = (experts && rows > NARROW) || alone ? 75 : 80; /* per cent */
    if (tiles <= 0 || (alone && experts)) return tiles > 0;
    return alone && bn == NARROW ? 8 * tiles >= p->sms : 100 * tiles >= busy * moii_ceil_div(tiles, p->sms) * p->sms;
}

/* Rows of A of a tile: one tile where one takes as many, or a router's, half of whose experts have more than the mean.  Measured: docs/notes/gemm-hopper.md,
 * "Tiles of 96 and 144 rows". */
static int rows_of_tile(const moii_tensor_product *p)
{
    enum { SOME = 85, SOME_OF_ONE = 72, MOST = 156 }; /* rows of a group; fewer where one round takes all tiles, for a second tile is another round */
    const int64_t rows = moii_mixed_halves(p) ? 0 : moii_tensor_group_rows(p);
    if (rows <= NARROW) return 64;
    if (rows <= (tiles_of(p, rows, 96) > p->sms ? SOME : SOME_OF_ONE)) return 96;
    return rows > 128 && rows <= MOST && enough_tiles(p, rows, 144) ? 144 : 128;
}

moii_tensor_tile moii_mixed_tile(const moii_tensor_product *p)
{
    return (moii_tensor_tile){ 2, 2, p->mixed ? p->mixed_rows : rows_of_tile(p), 12, 1, 1, 1, 0, 0, 0, 1 };
}

/* A copy of A that is larger than one of the weights is not asked for. */
static bool mixed_fits(const moii_tensor_product *p)
{
    enum { SMALL = 1024 }; /* rows of a group */
    int64_t copied = moii_mul(p->m, p->grouping == PRODUCT_MASKED ? p->groups : 1), values = moii_mul(copied, moii_round_up(p->k, MOII_PLACED));
    bool few = p->grouping != PRODUCT_MASKED || p->m <= moii_max(p->n, SMALL), straight = p->grouping != PRODUCT_DEPTH && !p->a_turned;
    bool takes = (moii_mixed_halves(p) || mixed_takes(p)) && p->groups <= THIN_GROUPS;
    return p->scaling == SCALING_MX && straight && few && values >= 0 && values / 16 < UINT32_MAX && takes;
}

/* Rows of a group, in the mean, that are too many for thin_sm90, too few for a copy of the weights (of E2M1 for two), which is all else that there is where
 * these alone are scaled. */
bool moii_mixed_pays(const moii_tensor_product *p)
{
    if (!mixed_fits(p)) return false;
    bool experts = moii_tensor_experts(p), alone = moii_tensor_weights_alone(p);
    int64_t rows = moii_tensor_group_rows(p), least = alone ? 0 : experts ? 33 : 384, most = !experts ? 767 : alone ? 1700 : 1023;
    return rows >= least && (rows <= most || p->grouping == PRODUCT_MASKED) && enough_tiles(p, rows, rows_of_tile(p));
}

void moii_thin_defines(const moii_tensor_product *p, const moii_tensor_tile *t, char defines[MOII_DEFINES])
{
    if (p->mixed) {
        const moi_operand nowhere = { NULL, NULL, 0 };
        product_scales s = moii_tensor_scales(p->b, &nowhere, p->n, p->k);
        int words = s.words ? 1 : s.block_stride == 1 && s.row_stride % 2 == 0 ? 2 : 0;
        int n = snprintf(defines, MOII_DEFINES, "ELEM_B=%d WORDS=%d ", (int)p->b->elem, words);
        snprintf(defines + n, MOII_DEFINES - (size_t)n, "GROUPS=%d OUT_F32=%d ADD=%d SCATTER=%d WEIGHTED=%d SWIGLU=%d WGS=%d WAVES=%d BN=%d STAGES=%d "
                 "SHARED_BYTES=%d", p->grouping, p->out_f32, p->accumulate, p->scatter_rows > 0, p->weighted, p->swiglu, t->wgs, t->waves, t->bn, t->stages,
                 moii_tensor_shared(p, t));
        return;
    }
    snprintf(defines, MOII_DEFINES, "GROUPS=%d ELEM_A=%d ELEM_B=%d OUT_F32=%d ADD=%d SCATTER=%d WEIGHTED=%d WGS=%d BN=%d STAGES=%d SHARED_BYTES=%d",
             p->grouping, (int)p->a->elem, (int)p->b->elem, p->out_f32, p->accumulate, p->scatter_rows > 0, p->weighted, t->wgs, t->bn, t->stages,
             moii_tensor_shared(p, t));
}
