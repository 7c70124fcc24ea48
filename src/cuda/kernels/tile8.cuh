/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8.cuh: a tile of 128 x 128 values in the registers of 256 threads becomes 8-bit codes and scales in global memory,
 * row-wise, column-wise or both.  The kernel that includes it has read or computed the values.
 *
 *   defines   TILE_BF16: 1, or 0 where the values are FP32; ROW_KIND, COL_KIND: TILE_...; ROW_ELEM, COL_ELEM: ELEM_E4M3 or
 *             ELEM_E5M2; RAGGED: 1 where groups cut the rows; ROW_REBASE: 1 where the scales of 128 columns are made equal (mx32, E4M3), as
 *             moi_rebase_run would; TILE_TWINS: 1 where a block makes a second tile further right;
 *             TILE_UNITS: 2 where a block makes two tiles at a time, one below the other; TILE_DOWN: blocks of a cluster, one below
 *             the other; TILE_SLOTS: how many 16 bytes of what comes next each thread has in dynamic shared memory
 *   threads   256, for each unit.  Warp w, lane l: rows 16 w + 8 (l / 16) + 0..7, columns 8 (l % 16) + 0..7: an 8 x 8 square in registers.  Four
 *             lanes share a row's block of 32, sixteen its block of 128; two warps share a column's block of 32, eight its block
 *             of 128.
 *   strips    of 128 rows for each unit.  With groups (RAGGED), group g owns those from offsets[g] / (their rows) + g, so that none
 *             crosses a boundary; its codes begin at a whole block of a column, and so at a sector of memory.
 *   shared    turned: the tile's column-wise codes, [column][row], in chunks of 8 rows; where chunk_place puts them, both the writing
 *             (8 bytes) and the reading (16 bytes of a column) are free of bank conflicts.
 *             tops: largest magnitudes per warp and column.  scales: what leaves as scales, [block][row]; FP32 ones as bits, as
 *             a float's NaN may change its bits on the way.
 *   NaN, Inf  make the inverse NaN, and the conversion of NaN is the code that the contract wants.
 */
#ifndef MOII_TILE8_CUH
#define MOII_TILE8_CUH

#include "tile8_codes.cuh"

#define WARPS 8
#ifndef RAGGED
#define RAGGED 0
#endif
#ifndef ROW_REBASE
#define ROW_REBASE 0
#endif
#ifndef TILE_TWINS
#define TILE_TWINS 0
#endif
#ifndef TILE_UNITS
#define TILE_UNITS 1
#endif
#ifndef TILE_DOWN
#define TILE_DOWN 1
#endif
#ifndef TILE_SLOTS
#define TILE_SLOTS 0
#endif
#ifndef TILE_SLOTS_AT /* bytes before them */
#define TILE_SLOTS_AT 0
#endif
/* Words of tops: pairs of BF16 stay pairs. */
#define TOPS (TILE_BF16 ? TILE / 2 : TILE)

typedef struct shared_memory {
#if COL_KIND != TILE_NONE
    unsigned long long turned[TILE][16];
#endif
    __align__(16) unsigned int tops[WARPS][TOPS];
#if COL_KIND == TILE_BLK128
    unsigned int inverse[TILE]; /* per column, what values are multiplied by */
#endif
    shared_scales row, col;
} shared_memory;

/* A unit makes the tiles of 128 columns, one after the other.  Where it is stands in shared memory, for the sake of registers. */
typedef struct way {
    tile t;
#if TILE_TWINS
    tile twin;                 /* further right */
#endif
    long long end;             /* of the group */
    unsigned int strip, group; /* of t */
    unsigned int stop;         /* no strip from here on */
} way;

/* What each of the block's units of 256 threads has to itself. */
typedef struct unit_memory {
    shared_memory s;
    way ways[4]; /* one more than it seems: put_tile may still be reading the last */
} unit_memory;

__shared__ unit_memory units[TILE_UNITS];

/* Which thread this is.  TILE_REPEATED: the kernel makes several tiles in a loop, and what depends on the thread alone must not be
 * computed before it and held all the time. */
MOII_FN int thread_index(void)
{
#ifdef TILE_REPEATED
    unsigned int i; /* unsigned: dividing it is a shift */
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
    return (int)(i % 256);
#else
    return (int)(threadIdx.x % 256);
#endif
}

/* Which unit of the block. */
MOII_FN int unit_index(void)
{
    unsigned int i = 0;
#if TILE_UNITS > 1
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
#endif
    return (int)(i / 256);
}

/* How many rows further down the thread's tile is than the first of the block's units and the cluster's blocks. */
MOII_FN int rows_down(void) { return TILE * (TILE_DOWN > 1 ? (int)(blockIdx.x % TILE_DOWN) : unit_index()); }

/* The blocks of a cluster begin to store at one time. */
MOII_FN void stores_meet(void)
{
    if (TILE_DOWN > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" : : : "memory");
}

#if TILE_SLOTS
/* What the next tile is made of, on its way while this one is made: each thread copies what it will read. */
extern __shared__ uint4 slots[];

/* 16 bytes, of which the last 16 - bytes become 0. */
MOII_FN void fetch16(int slot, const void *from, int bytes)
{
    const unsigned int to = (unsigned int)__cvta_generic_to_shared(&slots[TILE_SLOTS_AT / 16 + slot * 256 + thread_index()]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

MOII_FN void fetched(void) { asm volatile("cp.async.wait_all;" : : : "memory"); }

MOII_FN uint4 slot16(int slot) { return slots[TILE_SLOTS_AT / 16 + slot * 256 + thread_index()]; }
#endif

#include "tile8_scales.cuh"

#include "tile8_rows.cuh"
#include "tile8_cols.cuh"

/* ---- squares ---- */

MOII_FN unsigned int square_top(const line v[8], unsigned int *tops)
{
    unsigned int m = 0;
#if TILE_BF16
#pragma unroll
    for (int p = 0; p < 8; p++)
        m = larger(m, larger(larger(v[p].x & 0x7FFF7FFFu, v[p].y & 0x7FFF7FFFu), larger(v[p].z & 0x7FFF7FFFu, v[p].w & 0x7FFF7FFFu)));
    m = max(m << 16, m & 0xFFFF0000u);
#else
#pragma unroll
    for (int p = 0; p < 8; p++)
#pragma unroll
        for (int c = 0; c < 8; c++) m = max(m, moii_bits_of(value_of(v[p], c)) & 0x7FFFFFFFu);
#endif
    m = __reduce_max_sync(0xFFFFFFFFu, m);
    if (thread_index() % 32 == 0) tops[thread_index() / 32] = m;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) m = max(m, tops[w]);
    return m;
}

/* ---- all of it ---- */

/* Keeps the compiler from holding unpacked values in registers from one step to the next: unpacking again is cheap. */
MOII_FN void forget(line v[8])
{
#if TILE_BF16 && defined(TILE_INLINE)
#pragma unroll
    for (int p = 0; p < 8; p++) asm volatile("" : "+r"(v[p].x), "+r"(v[p].y), "+r"(v[p].z), "+r"(v[p].w));
#endif
}

/* The thread's square v becomes whatever the defines ask for.  Every thread of the block comes here, with one tile after the other.
 * whole: the tiles of all units have 128 rows. */
MOII_FN void put_tile(const tile8_side &row, const tile8_side &col, const tile &t, line v[8], bool whole)
{
    const int lane = thread_index() % 32, row0 = thread_index() / 32 * 16 + lane / 16 * 8, col0 = lane % 16 * 8;
    shared_memory *const s = &units[unit_index()].s;
    float square_row = 1.0f, square_col = 1.0f;
#ifdef TILE_INLINE
    const bool busy = true; /* registers are few */
#else
    const bool busy = !RAGGED || __any_sync(0xFFFFFFFFu, row0 < t.rows); /* small groups leave warps without rows */
#endif
#if ROW_KIND == TILE_SQUARE || COL_KIND == TILE_SQUARE
    const unsigned int top = square_top(v, s->tops[0]);
    if (ROW_KIND == TILE_SQUARE) square_row = take_scale(TILE_SQUARE, row, top, thread_index() == 0, &s->row, 0, 0);
    if (COL_KIND == TILE_SQUARE) square_col = take_scale(TILE_SQUARE, col, top, thread_index() == 0, &s->col, 0, 0);
    __syncthreads();
#endif
#if COL_KIND == TILE_MX32 || COL_KIND == TILE_BLK128
    col_tops(v, col0, s->tops[thread_index() / 32]);
    forget(v);
#endif
    stores_meet();
#if ROW_KIND != TILE_NONE
    if (busy) do_rows(row, t, v, &square_row, row0, col0, &s->row);
#endif
    __syncthreads();
    const bool some = TILE_UNITS == 1 || t.rows > 0;
#if ROW_KIND == TILE_MX32
    if (some) put_e8m0(row, (unsigned char *)row.scale + t.matrix * row.scale_bytes, s->row, t.r0, t.rows, t.c0 / 32, (t.cols + 31) / 32);
#elif ROW_KIND == TILE_BLK128
    if (some) put_f32(row, (unsigned int *)((char *)row.scale + t.matrix * row.scale_bytes), s->row, t.r0, t.rows, t.c0 / 128);
#elif ROW_KIND == TILE_SQUARE
    if (some) put_square(row, t.matrix, s->row, t.r0 / 128, t.c0 / 128);
#endif
#if COL_KIND == TILE_BLK128
    col_scales(col, s);
#endif
#if COL_KIND != TILE_NONE
    forget(v);
    if (busy && t.owned) turn(col, v, &square_col, row0, col0, s);
    if (RAGGED && (!t.owned || t.rows < row0 + 8)) turn_nothing(t.owned ? t.rows - row0 : 0, row0, col0, s);
    __syncthreads();
    put_cols(col, t, s, whole);
    if (!t.owned || !some) return;
#if COL_KIND == TILE_MX32
    put_e8m0(col, (unsigned char *)col.scale + t.matrix * col.scale_bytes, s->col, t.c0, t.cols, t.block, (t.rows + 31) / 32);
#elif COL_KIND == TILE_BLK128
    put_f32(col, (unsigned int *)((char *)col.scale + t.matrix * col.scale_bytes), s->col, t.c0, t.cols, t.block);
#else
    put_square(col, t.matrix, s->col, t.c0 / 128, t.r0 / 128);
#endif
#endif
}

#include "tile8_strips.cuh"

#endif
