/* SPDX-License-Identifier: Apache-2.0
 *
 * product_units.cuh: which tile a block works on.  A unit is (group, rows, columns, part of the reduction); product_deal.cuh says which
 * ones a cluster takes.
 *
 * Order within a group: bands of args.band rows of tiles; in a band the columns one after the other, so that the tiles at work at one time
 * cover a near-square region of D and share A and B in L2.
 *
 * BROAD: what is left of a group, if it is at most half a tile's rows, has tiles of twice the columns.  Each comes behind the tiles of the same columns
 * in the group's last band: later it would not find B in L2.
 *
 * STRIP: the last columns, where a cluster's second block would have none and the first half of a tile or less, are units of two rows of tiles, one for each
 * block, which share B instead of A and take 0.7 of the time.  They begin the last whole round, so that their clusters are the ones that have what is
 * left over. */
#ifndef MOII_PRODUCT_UNITS_CUH
#define MOII_PRODUCT_UNITS_CUH

#include "product_cut.h"

typedef struct unit {
    int group;
    int row;         /* first row of A within its matrix */
    int rows;        /* of the tile that are there */
    int col;         /* first column of D */
    int d_row;       /* first row of D */
    int k, k_end;    /* of the reduction, as it lies in A and B */
    int block;       /* scales: the block at k, in units of 128 or 32 values */
    bool broad;      /* BROAD: 2 BN columns */
    bool strip;      /* STRIP: BN / 2 columns, and the cluster's blocks have rows of their own */
} unit;

#define BLOCK_OF_SCALES (SCALING == SCALING_MX || SCALING == SCALING_ROWS || SCALE_E8M0 ? 32 : 128) /* values of a scale */
#define CUTS (HALVES && (GROUPS == PRODUCT_DENSE || SEARCHES))
#define FEW_ROWS (BM / 2) /* at most */

/* A group's last stage may hold values of the next group, but for blocks as long as a stage, which are 0 behind the group's last value. */
#define STAGES_STRADDLE (GROUPS == PRODUCT_DEPTH && !(SCALING == SCALING_VECTOR && !SCALE_E8M0))

MOII_FN int steps_of(const unit &u) { return (u.k_end - u.k + STRIDE * STEP - 1) / (STRIDE * STEP); }

/* Whether a tile is left as it is: additions of no values. */
MOII_FN bool nothing_added(const unit &u) { return ADD && steps_of(u) == 0; }

MOII_FN int first_unit() { return blockIdx.x / (CLUSTER * SPLIT); }
MOII_FN int units_apart() { return gridDim.x / (CLUSTER * SPLIT); }

/* STRIP: its units, of a matrix of so many rows. */
MOII_FN int strip_units(int rows) { return STRIP ? (rows + 2 * BM - 1) / (2 * BM) : 0; }

/* Of a group: its rows, of all groups' or of its own matrix, or its part of the reduction. */
typedef struct span { int begin, end; } span;
MOII_FN span span_of(const product_args &a, [[maybe_unused]] int group)
{
#if GROUPS == PRODUCT_DENSE
    return { 0, a.m };
#elif GROUPS == PRODUCT_MASKED
    return { 0, (int)min(max(__ldg(a.offsets + group), 0ll), (long long)a.m) };
#else
    return { (int)__ldg(a.offsets + group), (int)__ldg(a.offsets + group + 1) };
#endif
}

/* Tiles one below the other: of BM rows or fewer, and whether there is a broad one below those. */
MOII_FN int tiles_high(int rows) { return (rows + BM - 1 - (BROAD ? FEW_ROWS : 0)) / BM; }
MOII_FN bool ends_broad(int rows) { return BROAD && rows > tiles_high(rows) * BM; }
MOII_FN int broad_tiles(const product_args &a) { return (a.n_tiles + 1) / 2; }
/* Units of a group of so many rows. */
MOII_FN int group_units(const product_args &a, int rows) { return tiles_high(rows) * a.n_tiles + (ends_broad(rows) ? broad_tiles(a) : 0); }

/* x / by, from a guess that is off by less than 1 until x / by is 2^22, and is put right however far it is off; small: x / by is less than that, and
 * a step either way is all the code that there is. */
MOII_FN int quotient(int x, int by, bool small = false)
{
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"((float)by));
    int q = (int)((float)x * inverse), rest = x - q * by;
    if (small) return rest < 0 ? q - 1 : rest >= by ? q + 1 : q;
    while (rest < 0) q--, rest += by;
    while (rest >= by) q++, rest -= by;
    return q;
}

/* The block's part of a tile's reduction: every SPLIT-th stage, or so many behind each other. */
MOII_FN void unit_part(unsigned int block, unit *u)
{
    if (SPLIT == 1) return;
    const int end = u->k_end, steps = (end + STEP - 1) / STEP, share = STRIDE > 1 ? 1 : (steps + SPLIT - 1) / SPLIT;
    u->k = min((int)block * share * STEP, end);
    if (STRIDE == 1) u->k_end = min((int)(block + 1) * share * STEP, end);
    u->block = u->k / BLOCK_OF_SCALES;
}

/* The tile in row m of tiles, column n of a cluster's tiles, of a group from `begin` to `end`; down: rows of the tile in front of the unit. */
MOII_FN void unit_at(const product_args &a, int group, int begin, int end, int m, int n, bool broad, int down, unsigned int block, unit *u)
{
    const int row = m * BM + down;
    u->group = group;
    u->broad = broad, u->strip = false;
    u->col = (n * CLUSTER + (CLUSTER > 1 ? (int)block : 0)) * COLUMNS << broad;
    u->k = 0, u->k_end = a.k, u->block = 0;
#if GROUPS == PRODUCT_ROWS
    u->row = begin + row;
    u->rows = end - u->row;
    u->d_row = u->row;
#else
    u->row = row;
    u->rows = (GROUPS == PRODUCT_DEPTH ? a.m : end) - row;
    u->d_row = group * a.m + row;
#endif
#if GROUPS == PRODUCT_DEPTH
    u->k = a.depth_block ? a.depth_block * (begin / a.depth_block + group) : begin;
    u->k_end = u->k + (end - begin);
    u->block = begin / BLOCK_OF_SCALES + group;
#endif
}

/* The i-th unit of the strip, whose last one may have rows for the first block alone. */
MOII_FN void strip_unit(const product_args &a, int i, unsigned int block, unit *u)
{
    unit_at(a, 0, 0, a.m, 2 * i + (int)block, a.n_tiles, false, 0, 0, u);
    u->strip = true;
}

/* Where the `in`-th unit of a band lies, `high` tiles high, ends: with a broad one behind those of each two columns; small: as quotient has it. */
typedef struct spot { int m, n; bool broad; } spot;
MOII_FN spot spot_in_band(const product_args &a, int in, int high, bool ends, bool small = false)
{
    if (!BROAD || !ends) {
        const int n = high == 1 ? in : quotient(in, high, small);
        return { in - n * high, n, false };
    }
    const int two = quotient(in, 2 * high + 1, small), rest = in - two * (2 * high + 1), columns = min(2, a.n_tiles - 2 * two);
    if (rest >= columns * high) return { high, two, true };
    return { rest < high ? rest : rest - high, 2 * two + (rest >= high), false };
}

#if SEARCHES
/* A group's in-th unit; begin, end: of its rows. */
MOII_FN void unit_in_group(const product_args &a, int group, int begin, int end, int in, unsigned int block, unit *u)
{
    const int tiles = tiles_high(end - begin), band_units = a.band * a.n_tiles;
    int band = in < band_units ? 0 : quotient(in, band_units);
    if (band > 0 && band * a.band >= tiles) band--; /* the last one has broad tiles besides */
    const int high = min(a.band, tiles - band * a.band);
    const spot at = spot_in_band(a, in - band * band_units, high, ends_broad(end - begin) && band * a.band + high == tiles);
    unit_at(a, group, begin, end, band * a.band + at.m, at.n, at.broad, 0, block, u);
}

/* Of its rows so many, `down` rows further down. */
MOII_FN void unit_cut(unit *u, int down, int rows)
{
    u->row += down, u->d_row += down;
    u->rows = min(u->rows - down, rows);
    if (u->rows <= 0) u->k_end = 0;
}
#else
typedef struct cursor { /* the group and its band where the last unit lay */
    int group, band;
    int first;          /* units before that band */
    int begin, end;     /* of the group */
    int cut, pieces;    /* units from `cut` on come in pieces of BM / pieces rows, which are numbered from there on; pieces is 2 or 4 */
} cursor;

MOII_FN void cursor_enter(const product_args &a, cursor *c)
{
    c->begin = c->end = 0;
    if (c->group >= a.groups) return;
    const span here = span_of(a, c->group);
    c->begin = here.begin, c->end = here.end;
}

MOII_FN cursor cursor_begin(const product_args &a)
{
    cursor c;
    c.group = c.band = c.first = 0;
    c.cut = GROUPS == PRODUCT_DENSE ? a.cut : PRODUCT_UNCUT, c.pieces = a.pieces;
    cursor_enter(a, &c);
    return c;
}

/* false: there is no such unit.  i must not descend from call to call. */
MOII_FN bool find_unit(const product_args &a, cursor *c, int i, unsigned int block, unit *u)
{
    int high, piece = 0; /* tiles in a column of the band */
    const bool pieced = CUTS && i >= c->cut;
    if (pieced) {
        const int q = (i - c->cut) / c->pieces;
        piece = i - c->cut - q * c->pieces, i = c->cut + q;
    }
#if STRIP
    const int behind = i - a.strip_at, strips = strip_units(a.m);
    if (behind >= 0 && behind < strips) {
        strip_unit(a, behind, block, u);
        return true;
    }
    if (behind >= 0) i -= strips;
#endif
    for (;;) {
        if (c->group >= a.groups) return false;
        const int rows = GROUPS == PRODUCT_DEPTH ? a.m : c->end - c->begin, before = c->band * a.band, tiles = tiles_high(rows);
        high = min(a.band, tiles - before);
        if (high <= 0) {
            c->group++, c->band = 0;
            cursor_enter(a, c);
            continue;
        }
        const int units = high * a.n_tiles;
        if (i < c->first + units) break;
        c->first += units;
        c->band++;
    }
    const spot at = spot_in_band(a, i - c->first, high, false);
    unit_at(a, c->group, c->begin, c->end, c->band * a.band + at.m, at.n, at.broad, CUTS ? piece * (BM / c->pieces) : 0, block, u);
    if (pieced) u->rows = min(u->rows, BM / c->pieces), u->k_end = u->rows > 0 ? u->k_end : 0;
    unit_part(block, u);
    return true;
}
#endif

/* Which stage of the reduction comes i-th.  Where all blocks read the same lines of A at the same time, they wait for each other at L2; so each
 * begins elsewhere, if its chain of stages is a short one (longer ones lose more by reading weights out of order). */
#define ROTATED (ANY_ORDER && SHORT == 1 && SPLIT == 1)
MOII_FN int turned(const unit &u, int i)
{
    if (!ROTATED) return i;
    const int steps = steps_of(u), at = i + (int)((unsigned int)(u.col / 16 * 0x9E37 & 0xFFFF) * (unsigned int)steps >> 16);
    return at < steps ? at : at - steps;
}

#if SPLIT > 1
/* Pieces of a tile that the block adds up. */
MOII_FN int parts_here(unsigned int block) { return max(0, min(PIECES_EACH, PIECES - (int)block * PIECES_EACH)); }
#endif

/* Blocks of 64 rows that a tile has, and whether the warpgroups share the last one by its columns. */
MOII_FN int blocks_of(const unit &u) { return min(max(u.rows + 63, 0) / 64, BM / 64); }
MOII_FN bool is_broad(const unit &u) { return BROAD && u.broad; }
MOII_FN bool is_strip(const unit &u) { return STRIP && u.strip; }
MOII_FN bool halved(const unit &u) { return HALVES && !is_broad(u) && blocks_of(u) % 2 != 0; }

/* Where a tile begins in D's tensor map. */
MOII_FN int box_row(const unit &u) { return GROUPS == PRODUCT_DEPTH ? u.row : u.d_row; }
MOII_FN int box_matrix(const unit &u) { return GROUPS == PRODUCT_DEPTH ? u.group : 0; }

/* Of a warpgroup's wave: its first row in the tile, its first column, how many it has.  In a broad tile a warpgroup has both halves of the
 * columns of its own 64 rows, or one half where there are no more than 64. */
MOII_FN int wave_row(const unit &u, int wg, int w)
{
    if (is_broad(u)) return blocks_of(u) > 1 ? 64 * wg : 0;
    return w == WAVES - 1 && halved(u) ? 64 * blocks_of(u) - 64 : WAVE_ROW(wg, w);
}
MOII_FN int wave_col(const unit &u, int wg, int w)
{
    if (is_broad(u)) return (blocks_of(u) > 1 ? w : wg) * BN;
    if (SWIGLU) return wg * D_COLUMNS;
    return w == WAVES - 1 && halved(u) ? wg * (BN / 2) : 0;
}
MOII_FN int wave_cols(const unit &u, int w)
{
    if (is_broad(u)) return w < blocks_of(u) ? BN : 0;
    return !halved(u) ? BN : w == WAVES - 1 ? BN / 2 : w < blocks_of(u) / 2 ? BN : 0;
}

#endif
