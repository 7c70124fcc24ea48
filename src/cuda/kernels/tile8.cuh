/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8.cuh: a tile of 128 x 128 values in the registers of 256 threads becomes 8-bit codes and scales in global memory,
 * row-wise, column-wise or both.  The kernel that includes it has read or computed the values.
 *
 *   defines   TILE_BF16: 1, or 0 where the values are FP32; ROW_KIND, COL_KIND: TILE_...; ROW_ELEM, COL_ELEM: ELEM_E4M3 or
 *             ELEM_E5M2; RAGGED: 1 where groups cut the rows; TILE_TWINS: 1 where a block makes a second tile further right;
 *             TILE_UNITS: 2 where a block makes two tiles at a time, one below the other; TILE_DOWN: blocks of a cluster, one below
 *             the other; TILE_SLOTS: how many 16 bytes of what comes next each thread has in dynamic shared memory
 *   threads   256, for each unit.  Warp w, lane l: rows 16 w + 8 (l / 16) + 0..7, columns 8 (l % 16) + 0..7: an 8 x 8 square in registers.  Four
 *             lanes share a row's block of 32, sixteen its block of 128; two warps share a column's block of 32, eight its block
 *             of 128.
 *   strips    of 128 rows for each unit.  With groups (RAGGED), group g owns those from offsets[g] / (their rows) + g, so that none
 *             crosses a boundary; its codes begin at a whole block of a column, and so at a sector of memory.
 *   shared    turned: the tile's column-wise codes, [column][row], in chunks of 8 rows; chunk k of column c stands at
 *             k ^ (c / 8), which keeps both the writing (8 bytes) and the reading (words of a column) free of bank conflicts.
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
    int i;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
    return i % 256;
#else
    return threadIdx.x;
#endif
}

/* Which unit of the block. */
MOII_FN int unit_index(void)
{
    int i = 0;
#if TILE_UNITS > 1
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
#endif
    return i / 256;
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

MOII_FN unsigned int two_codes(int elem, float first, float second)
{
    unsigned short pair;
    if (elem == ELEM_E5M2) asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    else asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    return pair;
}

MOII_FN unsigned long long eight_codes(int elem, const float v[8])
{
    unsigned int low = two_codes(elem, v[0], v[1]) | two_codes(elem, v[2], v[3]) << 16;
    unsigned int high = two_codes(elem, v[4], v[5]) | two_codes(elem, v[6], v[7]) << 16;
    return (unsigned long long)high << 32 | low;
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
/* Two blocks of 32 at once, in halves of 16 bits, from BF16 magnitudes: nothing of take_scale's arithmetic crosses 16 bits, and powers of
 * two multiply BF16 numbers exactly (results below 2^-126 become zeros as codes in any case). */
typedef struct two_scales { unsigned int codes, inverse; } two_scales; /* E8M0; 2^(127 - code) as BF16, NaN for poisoned blocks */

MOII_FN two_scales take_two(const tile8_side &side, unsigned int tops)
{
    two_scales s;
    unsigned int e = ((tops + side.carry2) >> 7) & 0x01FF01FFu;
    asm("max.u16x2 %0, %1, %2;" : "=r"(e) : "r"(e), "r"(side.emax2));
    s.codes = e - side.emax2;
    s.inverse = (0x00FE00FEu - s.codes) << 7;
    const unsigned int poisoned = (tops + 0x00800080u) & 0x80008000u;
    if (poisoned) {
        const unsigned int all = (poisoned >> 15) * 0xFFFFu;
        s.codes |= all & 0x00FF00FFu, s.inverse |= all & 0x7FFF7FFFu;
    }
    return s;
}

MOII_FN unsigned int times(unsigned int a, unsigned int b) /* pairs of BF16 */
{
    unsigned int c;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

MOII_FN uint4 times4(uint4 v, unsigned int by) { return make_uint4(times(v.x, by), times(v.y, by), times(v.z, by), times(v.w, by)); }
#endif

#include "tile8_scales.cuh"

/* ---- along rows ---- */

#if ROW_KIND != TILE_NONE
#if TILE_BF16
/* Largest magnitudes of rows p and p + 1, a row in each half, over the lanes that share a block. */
MOII_FN unsigned int row_pair_top(const line v[8], int p, int lanes)
{
    unsigned int m[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 &w = v[p + i];
        m[i] = larger(larger(w.x & 0x7FFF7FFFu, w.y & 0x7FFF7FFFu), larger(w.z & 0x7FFF7FFFu, w.w & 0x7FFF7FFFu));
    }
    unsigned int both = larger(__byte_perm(m[0], m[1], 0x5410), __byte_perm(m[0], m[1], 0x7632));
#pragma unroll
    for (int step = 1; step < lanes; step *= 2) both = larger(both, __shfl_xor_sync(0xFFFFFFFFu, both, step));
    return both;
}
#endif

/* Largest magnitudes of the lane's eight rows over the lanes that share a block. */
MOII_FN void row_tops(const line v[8], unsigned int top[8])
{
    const int lanes = ROW_KIND == TILE_MX32 ? 4 : 16;
#if TILE_BF16
#pragma unroll
    for (int p = 0; p < 8; p += 2) {
        const unsigned int both = row_pair_top(v, p, lanes);
        top[p] = both << 16, top[p + 1] = both & 0xFFFF0000u;
    }
#else
#pragma unroll
    for (int p = 0; p < 8; p++) {
        unsigned int m = 0;
#pragma unroll
        for (int c = 0; c < 8; c++) m = larger(m, moii_bits_of(value_of(v[p], c)) & 0x7FFFFFFFu);
#pragma unroll
        for (int step = 1; step < lanes; step *= 2) m = larger(m, __shfl_xor_sync(0xFFFFFFFFu, m, step));
        top[p] = m;
    }
#endif
}

/* Apart, so that there is one copy of it; TILE_INLINE: where a call would make the kernel spill. */
#ifdef TILE_INLINE
MOII_FN
#else
static __device__ __noinline__
#endif
void put_edge(unsigned char *to, int count, unsigned long long codes)
{
#pragma unroll 1
    for (int i = 0; i < 8 && i < count; i++) to[i] = (unsigned char)(codes >> 8 * i);
}

/* Where the square's first row goes, whether in words of 8, and what is valid from there on. */
typedef struct row_place { unsigned char *to; bool whole; int rows, cols; } row_place;

MOII_FN row_place place_rows(const tile8_side &side, const tile &t, int row0, int col0)
{
    row_place p;
    p.to = side.data + t.matrix * side.data_bytes + (t.r0 + row0) * side.stride + t.c0 + col0;
    p.rows = t.rows - row0, p.cols = t.cols - col0;
    p.whole = t.cols == TILE && (side.stride & 7) == 0;
    return p;
}

MOII_FN void put_row(const row_place &at, long long stride, int p, unsigned long long codes)
{
    if (p >= at.rows) return;
    if (at.whole) *(unsigned long long *)(at.to + p * stride) = codes;
    else put_edge(at.to + p * stride, at.cols, codes);
}

#if TILE_BF16 && ROW_KIND == TILE_MX32
MOII_FN void do_rows(const tile8_side &side, const tile &t, const line v[8], const float *square, int row0, int col0, shared_scales *scales)
{
    const row_place at = place_rows(side, t, row0, col0);
    const int lane = thread_index() % 16;
    unsigned int codes[4];
#pragma unroll
    for (int p = 0; p < 8; p += 2) {
        const two_scales s = take_two(side, row_pair_top(v, p, 4));
        codes[p / 2] = s.codes;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 w = times4(v[p + i], __byte_perm(s.inverse, 0, i ? 0x3232 : 0x1010));
            float x[8];
#pragma unroll
            for (int c = 0; c < 8; c++) x[c] = value_of(w, c);
            put_row(at, side.stride, p + i, eight_codes(ROW_ELEM, x));
        }
    }
    if (lane % 4 == 0) /* the bytes of eight rows lie together */
        *(uint2 *)&scales->e8m0[lane / 4][row0] = make_uint2(__byte_perm(codes[0], codes[1], 0x6420), __byte_perm(codes[2], codes[3], 0x6420));
}
#else
MOII_FN void do_rows(const tile8_side &side, const tile &t, const line v[8], const float *square, int row0, int col0, shared_scales *scales)
{
    unsigned int top[8];
    const row_place at = place_rows(side, t, row0, col0);
    const int lanes = ROW_KIND == TILE_MX32 ? 4 : 16, lane = thread_index() % 16;
    if (ROW_KIND != TILE_SQUARE) row_tops(v, top);
    float mine = 1.0f; /* blk128: divisions are dear, so lane p finds the scale of row p */
    if (ROW_KIND == TILE_BLK128) {
        const bool one = lane & 1, two = lane & 2; /* a tree of choices: a loop would become an array in memory */
        const unsigned int low = two ? (one ? top[3] : top[2]) : one ? top[1] : top[0], high = two ? (one ? top[7] : top[6]) : one ? top[5] : top[4];
        const unsigned int own = lane & 4 ? high : low;
        mine = take_scale(ROW_KIND, side, own, lane < 8, scales, 0, row0 + lane % 8);
    }
#pragma unroll
    for (int p = 0; p < 8; p++) {
        float by, x[8];
        if (ROW_KIND == TILE_SQUARE) by = *square;
        else if (ROW_KIND == TILE_BLK128) by = __shfl_sync(0xFFFFFFFFu, mine, p, 16);
        else by = take_scale(ROW_KIND, side, top[p], lane % lanes == 0, scales, ROW_KIND == TILE_MX32 ? lane / 4 : 0, row0 + p);
#pragma unroll
        for (int c = 0; c < 8; c++) x[c] = value_of(v[p], c) * by;
        put_row(at, side.stride, p, eight_codes(ROW_ELEM, x));
    }
}
#endif
#endif

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
