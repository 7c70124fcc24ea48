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

#include "elem.cuh"
#include "tile8_args.h"

#define TILE 128
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

typedef struct tile {
    long long matrix, r0, c0; /* r0: first row */
    int rows, cols;           /* valid ones */
    long long block;          /* of the column side: the strip's first */
    bool owned;               /* by a group, or there are none */
    int run;                  /* RAGGED: codes of a column, of all units: whole blocks, or of rows that no group owns what is left */
} tile;

#if TILE_BF16
typedef uint4 line; /* eight values of a row */
#else
typedef struct line { uint4 low, high; } line;
#endif

typedef struct __align__(16) shared_scales {
    union { unsigned char e8m0[4][TILE]; unsigned int f32[TILE]; };
} shared_scales;

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

/* ---- values ---- */

/* Value c (0..7) of a line; c is a constant wherever this is inlined. */
MOII_FN float value_of(const line &v, int c)
{
#if TILE_BF16
    unsigned int w = c < 2 ? v.x : c < 4 ? v.y : c < 6 ? v.z : v.w;
    return moii_float_of(c & 1 ? w & 0xFFFF0000u : w << 16);
#else
    const uint4 &h = c < 4 ? v.low : v.high;
    return moii_float_of(c % 4 == 0 ? h.x : c % 4 == 1 ? h.y : c % 4 == 2 ? h.z : h.w);
#endif
}

/* Magnitudes: BF16 in pairs, whose integer order is that of their magnitudes; FP32 singly. */
MOII_FN unsigned int larger(unsigned int a, unsigned int b)
{
#if TILE_BF16
    unsigned int m;
    asm("max.u16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    return m;
#else
    return a > b ? a : b;
#endif
}

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

/* What the blocks of a cluster store leaves at one time. */
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

/* ---- codes ---- */

MOII_FN unsigned int four_codes(int elem, float a, float b, float c, float d)
{
    unsigned int codes; /* the second conversion takes the first's result in */
    if (elem == ELEM_E5M2)
        asm("{.reg .b16 l, h; cvt.rn.satfinite.e5m2x2.f32 l, %2, %1; cvt.rn.satfinite.e5m2x2.f32 h, %4, %3; mov.b32 %0, {l, h};}"
            : "=r"(codes) : "f"(a), "f"(b), "f"(c), "f"(d));
    else
        asm("{.reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, %2, %1; cvt.rn.satfinite.e4m3x2.f32 h, %4, %3; mov.b32 %0, {l, h};}"
            : "=r"(codes) : "f"(a), "f"(b), "f"(c), "f"(d));
    return codes;
}

MOII_FN uint2 eight_codes(int elem, const float v[8])
{
    return make_uint2(four_codes(elem, v[0], v[1], v[2], v[3]), four_codes(elem, v[4], v[5], v[6], v[7]));
}

/* The scale of a block goes to shared memory; what its values are multiplied by comes back. */
MOII_FN float take_scale(int kind, const tile8_side &side, unsigned int amax, bool writes, shared_scales *s, int block, int row)
{
    if (kind == TILE_MX32) { /* moii_block_make for these elements and finite values: codes of 0 .. 247 */
        int e = (int)((amax + side.carry) >> 23) - side.rule.element.emax;
        unsigned int code = e > 0 ? e : 0;
        bool poisoned = amax >= MOII_INF_BITS;
        if (writes) s->e8m0[block][row] = (unsigned char)(poisoned ? 0xFFu : code);
        return moii_float_of(poisoned ? MOII_NAN_BITS : (254u - code) << 23);
    }
    moii_block_rule r = side.rule;
    r.mx = 0, r.lenient = 0;
    moii_block b = moii_block_make(r, amax);
    if (writes) s->f32[row] = b.scale;
    return b.poisoned ? moii_float_of(MOII_NAN_BITS) : b.inverse;
}

#if TILE_BF16
/* The one of larger magnitude, or NaN, in pairs; the signs are anything. */
MOII_FN unsigned int stronger(unsigned int a, unsigned int b)
{
    unsigned int m;
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    return m;
}

MOII_FN unsigned int magnitudes(unsigned int pair) { return pair & 0x7FFF7FFFu; }

/* Two blocks of 32 at once, in halves of 16 bits, from BF16 magnitudes: nothing of take_scale's arithmetic crosses 16 bits, and powers of
 * two multiply BF16 numbers exactly (results below 2^-126 become zeros as codes in any case). */
typedef struct two_scales { unsigned int codes, inverse; } two_scales; /* E8M0, see poisoned; 2^(127 - code) as BF16, NaN for poisoned blocks */

MOII_FN two_scales take_two(const tile8_side &side, unsigned int tops)
{
    two_scales s;
    const unsigned int e = larger(((tops + side.carry2) >> 7) & 0x01FF01FFu, side.emax2);
    s.codes = e - side.emax2;
    s.inverse = 0x7F007F00u - s.codes * 128;
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(s.inverse) : "r"(tops), "r"(0)); /* Inf and NaN: NaN */
    return s;
}

/* take_two's codes are not yet those of poisoned blocks, as these are rare: whoever has several asks for all at once whether there is one. */
MOII_FN unsigned int poisoned(unsigned int tops) { return (tops + 0x00800080u) & 0x80008000u; }
MOII_FN unsigned int poison(unsigned int codes, unsigned int tops) { return codes | (poisoned(tops) >> 15) * 0xFFu; }

/* Value `half` (0, 1) of a pair of BF16 times the upper half of `by`, as FP32, in one instruction: the lower half of `by` is 0, and
 * minus_zero (-0 above, 0 below; opaque, so that it stays in a register) makes what is there 0 and keeps the sign of what is above. */
MOII_FN float scaled(unsigned int pair, int half, unsigned int by, unsigned int minus_zero)
{
    unsigned int x;
    if (half)
        asm("{.reg .b16 l, h; .reg .b32 t; mov.b32 {l, h}, %1; mov.b32 t, {h, h}; fma.rn.bf16x2 %0, t, %2, %3;}"
            : "=r"(x) : "r"(pair), "r"(by), "r"(minus_zero));
    else
        asm("{.reg .b16 l, h; .reg .b32 t; mov.b32 {l, h}, %1; mov.b32 t, {l, l}; fma.rn.bf16x2 %0, t, %2, %3;}"
            : "=r"(x) : "r"(pair), "r"(by), "r"(minus_zero));
    return moii_float_of(x);
}

MOII_FN unsigned int upper_half(unsigned int pair) { return pair & 0xFFFF0000u; }
MOII_FN unsigned int lower_half(unsigned int pair) { return pair << 16; }
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
    stores_meet();
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
