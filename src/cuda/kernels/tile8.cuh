/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8.cuh: a tile of 128 x 128 values in the registers of 256 threads becomes 8-bit codes and scales in global memory,
 * row-wise, column-wise or both.  The kernel that includes it has read or computed the values.
 *
 *   defines   TILE_BF16: 1, or 0 where the values are FP32; ROW_KIND, COL_KIND: TILE_...; ROW_ELEM, COL_ELEM: ELEM_E4M3 or
 *             ELEM_E5M2
 *   threads   256.  Warp w, lane l: rows 16 w + 8 (l / 16) + 0..7, columns 8 (l % 16) + 0..7: an 8 x 8 square in registers.  Four
 *             lanes share a row's block of 32, sixteen its block of 128; two warps share a column's block of 32, eight its block
 *             of 128.
 *   strips    With groups, group g owns the strips from offsets[g] / 128 + g, so that no strip crosses a boundary.
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

typedef struct tile {
    long long matrix, r0, c0; /* r0: first row */
    int rows, cols;           /* valid ones */
    long long block;          /* of the column side: the strip's first */
    bool owned;               /* by a group, or there are none */
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
    __align__(16) unsigned int tops[WARPS][TILE];
    shared_scales row, col;
} shared_memory;

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
    return i;
#else
    return threadIdx.x;
#endif
}

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

/* ---- scales leave ---- */

MOII_FN long long scale_place(const tile8_side &s, long long r, long long b, int last)
{
    if (s.layout == SCALES_TILED) return ((r / 128) * ((s.blocks + 3) / 4) + b / 4) * 512 + (r % 32) * 16 + (r / 32 % 4) * 4 + b % 4;
    if (s.layout == SCALES_COL) return b * ((s.scale_rows + last) & ~(long long)last) + r;
    return r * s.blocks + b;
}

/* Rows r0 .. r0 + 127 and blocks b0 .. of the shared ones; the layout's padding becomes 0.  rows, blocks: the valid ones. */
MOII_FN void put_e8m0(const tile8_side &s, unsigned char *to, const shared_scales &from, long long r0, int rows, long long b0, int blocks)
{
    const int t = thread_index();
    /* One atom of 512 bytes, if its rows are this tile's alone; b0 is a multiple of 4. */
    if (s.layout == SCALES_TILED && r0 % 128 == 0 && (rows == TILE || r0 + rows == s.scale_rows)) {
        if (t >= 32) return;
        unsigned int w[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = 0;
#pragma unroll
            for (int b = 0; b < 4; b++)
                if (t + 32 * k < rows && b < blocks) w[k] |= (unsigned int)from.e8m0[b][t + 32 * k] << 8 * b;
        }
        *(uint4 *)(to + scale_place(s, r0 + t, b0, 15)) = make_uint4(w[0], w[1], w[2], w[3]);
        return;
    }
    if (s.layout == SCALES_ROW && (s.blocks % 4 || blocks < 4 || ((unsigned long long)to & 3) || b0 % 4)) { /* four lanes for a row's bytes */
#pragma unroll 1
        for (int i = t; i < 4 * rows; i += 256)
            if (i % 4 < blocks) to[(r0 + i / 4) * s.blocks + b0 + i % 4] = from.e8m0[i % 4][i / 4];
        return;
    }
    if (t >= TILE) return;
    long long r = r0 + t;
    if (s.layout == SCALES_ROW) {
        unsigned int w = 0;
        for (int b = 0; b < 4; b++) w |= (unsigned int)from.e8m0[b][t] << 8 * b;
        if (t < rows) *(unsigned int *)(to + r * s.blocks + b0) = w;
        return;
    }
    for (int b = 0; b < blocks; b++) {
        bool pad = s.layout == SCALES_COL && r >= s.scale_rows && r < ((s.scale_rows + 15) & ~15LL);
        if (t < rows || pad) to[scale_place(s, r, b0 + b, 15)] = t < rows ? from.e8m0[b][t] : 0;
    }
}

MOII_FN void put_f32(const tile8_side &s, unsigned int *to, const shared_scales &from, long long r0, int rows, long long b)
{
    const int t = thread_index();
    long long r = r0 + t;
    bool pad = s.layout == SCALES_COL && r >= s.scale_rows && r < ((s.scale_rows + 3) & ~3LL);
    if (t < TILE && (t < rows || pad)) to[scale_place(s, r, b, 3)] = t < rows ? from.f32[t] : 0;
}

/* The one scale of a square at (r, b); behind the last row, layout COL has padding. */
MOII_FN void put_square(const tile8_side &s, long long matrix, const shared_scales &from, long long r, long long b)
{
    unsigned int *to = (unsigned int *)((char *)s.scale + matrix * s.scale_bytes);
    if (thread_index() == 0) to[scale_place(s, r, b, 3)] = from.f32[0];
    if (thread_index() > 0 && thread_index() < 4 && s.layout == SCALES_COL && r + 1 == s.scale_rows && r + thread_index() < ((s.scale_rows + 3) & ~3LL))
        to[scale_place(s, r + thread_index(), b, 3)] = 0;
}

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

/* Where the square's first row goes, and whether all of it goes there in words of 8. */
typedef struct row_place { unsigned char *to; bool whole; int rows, cols; } row_place;

MOII_FN row_place place_rows(const tile8_side &side, const tile &t, int row0, int col0)
{
    row_place p;
    p.to = side.data + t.matrix * side.data_bytes + (t.r0 + row0) * side.stride + t.c0 + col0;
    p.rows = t.rows - row0, p.cols = t.cols - col0;
    p.whole = t.rows == TILE && t.cols == TILE && (side.stride & 7) == 0;
    return p;
}

MOII_FN void put_row(const row_place &at, long long stride, int p, unsigned long long codes)
{
    if (at.whole) *(unsigned long long *)(at.to + p * stride) = codes;
    else if (p < at.rows) put_edge(at.to + p * stride, at.cols, codes);
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

/* ---- down columns ---- */

#if COL_KIND != TILE_NONE
/* Each warp's largest magnitudes of 16 rows, per column. */
MOII_FN void col_tops(const line v[8], int col0, unsigned int *tops)
{
#if TILE_BF16
    uint4 m = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int p = 0; p < 8; p++) {
        m.x = larger(m.x, v[p].x & 0x7FFF7FFFu), m.y = larger(m.y, v[p].y & 0x7FFF7FFFu);
        m.z = larger(m.z, v[p].z & 0x7FFF7FFFu), m.w = larger(m.w, v[p].w & 0x7FFF7FFFu);
    }
    m.x = larger(m.x, __shfl_xor_sync(0xFFFFFFFFu, m.x, 16)), m.y = larger(m.y, __shfl_xor_sync(0xFFFFFFFFu, m.y, 16));
    m.z = larger(m.z, __shfl_xor_sync(0xFFFFFFFFu, m.z, 16)), m.w = larger(m.w, __shfl_xor_sync(0xFFFFFFFFu, m.w, 16));
    if (thread_index() % 32 >= 16) return;
#if COL_KIND == TILE_MX32
    *(uint4 *)(tops + col0 / 2) = m; /* pairs stay pairs */
    return;
#endif
    uint4 *to = (uint4 *)(tops + col0);
    to[0] = make_uint4(m.x << 16, m.x & 0xFFFF0000u, m.y << 16, m.y & 0xFFFF0000u);
    to[1] = make_uint4(m.z << 16, m.z & 0xFFFF0000u, m.w << 16, m.w & 0xFFFF0000u);
#else
#pragma unroll
    for (int c = 0; c < 8; c++) {
        unsigned int m = 0;
#pragma unroll
        for (int p = 0; p < 8; p++) m = larger(m, moii_bits_of(value_of(v[p], c)) & 0x7FFFFFFFu);
        m = larger(m, __shfl_xor_sync(0xFFFFFFFFu, m, 16));
        if (thread_index() % 32 < 16) tops[col0 + c] = m;
    }
#endif
}

/* blk128: a thread for a column finds its scale; what values are multiplied by replaces the first of its tops. */
MOII_FN void col_scales(const tile8_side &side, shared_memory *s)
{
    if (thread_index() < TILE) {
        unsigned int top = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = max(top, s->tops[w][thread_index()]);
        s->tops[0][thread_index()] = moii_bits_of(take_scale(COL_KIND, side, top, true, &s->col, 0, thread_index()));
    }
    __syncthreads();
}

#if TILE_BF16 && COL_KIND == TILE_MX32
MOII_FN void turn(const tile8_side &side, const line v[8], const float *square, int row0, int col0, shared_memory *s)
{
    const int warp = thread_index() / 32;
    const uint4 a = *(const uint4 *)(s->tops[warp] + col0 / 2), b = *(const uint4 *)(s->tops[warp ^ 1] + col0 / 2);
    const two_scales x = take_two(side, larger(a.x, b.x)), y = take_two(side, larger(a.y, b.y));
    const two_scales z = take_two(side, larger(a.z, b.z)), w = take_two(side, larger(a.w, b.w));
    if (thread_index() % 32 < 16 && warp % 2 == 0) /* the bytes of eight columns lie together */
        *(uint2 *)&s->col.e8m0[warp / 2][col0] = make_uint2(__byte_perm(x.codes, y.codes, 0x6420), __byte_perm(z.codes, w.codes, 0x6420));
    uint4 q[8];
#pragma unroll
    for (int p = 0; p < 8; p++)
        q[p] = make_uint4(times(v[p].x, x.inverse), times(v[p].y, y.inverse), times(v[p].z, z.inverse), times(v[p].w, w.inverse));
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float f[8];
#pragma unroll
        for (int p = 0; p < 8; p++) f[p] = value_of(q[p], c);
        s->turned[col0 + c][(row0 / 8) ^ (col0 / 8)] = eight_codes(COL_ELEM, f);
    }
}
#else
MOII_FN void turn(const tile8_side &side, const line v[8], const float *square, int row0, int col0, shared_memory *s)
{
    const int warp = thread_index() / 32, first = COL_KIND == TILE_MX32 ? warp & ~1 : 0, count = COL_KIND == TILE_MX32 ? 2 : WARPS;
    const bool writes = thread_index() % 32 < 16 && warp == first;
#pragma unroll
    for (int c = 0; c < 8; c++) {
        float by, x[8];
        if (COL_KIND == TILE_SQUARE) {
            by = *square;
        } else if (COL_KIND == TILE_BLK128) {
            by = moii_float_of(s->tops[0][col0 + c]); /* col_scales */
        } else {
            unsigned int top = 0;
#pragma unroll
            for (int w = 0; w < count; w++) top = max(top, s->tops[first + w][col0 + c]);
            by = take_scale(COL_KIND, side, top, writes, &s->col, COL_KIND == TILE_MX32 ? warp / 2 : 0, col0 + c);
        }
#pragma unroll
        for (int p = 0; p < 8; p++) x[p] = value_of(v[p], c) * by;
        s->turned[col0 + c][(row0 / 8) ^ (col0 / 8)] = eight_codes(COL_ELEM, x);
    }
}
#endif

typedef struct codes16 { unsigned long long low, high; } codes16;

/* Codes k .. k + 15 of a column, 0 <= k <= 112. */
MOII_FN codes16 sixteen_codes(const shared_memory *s, int col, int k)
{
    const int i = k >> 3, shift = (k & 7) * 8, x = col / 8;
    const unsigned long long a = s->turned[col][i ^ x], b = s->turned[col][(i + 1) ^ x], c = s->turned[col][min(i + 2, 15) ^ x];
    codes16 v = { a, b };
    if (shift) v.low = a >> shift | b << (64 - shift), v.high = b >> shift | c << (64 - shift);
    return v;
}

MOII_FN unsigned char code_at(const shared_memory *s, int col, int k)
{
    return ((const unsigned char *)&s->turned[col][(k >> 3) ^ (col / 8)])[k & 7];
}

/* Columns that begin anywhere: what fills aligned 16 bytes leaves so; the bytes before and behind, lane by lane, so that each end is one piece. */
MOII_FN void put_cols_anywhere(unsigned char *base, long long stride, const tile &t, const shared_memory *s)
{
#pragma unroll 1
    for (int i = thread_index(); i < 8 * t.cols; i += 256) {
        unsigned char *to = base + (i / 8) * stride;
        const int k = (int)(-(unsigned long long)to & 15) + i % 8 * 16;
        if (k + 16 > t.rows) continue;
        codes16 v = { 0, 0 };
        if (t.owned) v = sixteen_codes(s, i / 8, k);
        *(ulonglong2 *)(to + k) = make_ulonglong2(v.low, v.high);
    }
    const int bits = t.rows == TILE ? 4 : 5, slots = 1 << bits; /* both ends of a whole column have 16 bytes together */
#pragma unroll 1
    for (int i = thread_index(); i < t.cols << bits; i += 256) {
        const int col = i >> bits, slot = i & (slots - 1);
        unsigned char *to = base + col * stride;
        const int head = min((int)(-(unsigned long long)to & 15), t.rows), tail = (t.rows - head) % 16;
        const int k = slot < head ? slot : t.rows - slots + slot;
        if (slot < head || k >= t.rows - tail) to[k] = t.owned ? code_at(s, col, k) : 0;
    }
}

MOII_FN void put_cols(const tile8_side &side, const tile &t, const shared_memory *s)
{
    unsigned char *base = side.data + t.matrix * side.data_bytes + t.c0 * side.stride + t.r0;
    const int thread = thread_index();
    if ((((unsigned long long)base | (unsigned long long)side.stride) & 15) == 0 && t.rows == TILE && t.owned) {
#pragma unroll
        for (int i = 0; i < 4; i++) { /* 8 lanes for the 128 bytes of a column */
            int col = i * 32 + thread / 8, k = thread % 8, x = col / 8;
            ulonglong2 two = *(const ulonglong2 *)&s->turned[col][2 * (k ^ (x >> 1))];
            if (x & 1) two = make_ulonglong2(two.y, two.x);
            if (col < t.cols) *(ulonglong2 *)(base + col * side.stride + 16 * k) = two;
        }
        return;
    }
    put_cols_anywhere(base, side.stride, t, s);
}
#endif

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

/* The thread's square v becomes whatever the defines ask for.  Every thread of the block comes here, and only one tile of a block does
 * so between two __syncthreads. */
MOII_FN void put_tile(const tile8_side &row, const tile8_side &col, const tile &t, line v[8], shared_memory *s)
{
    const int lane = thread_index() % 32, row0 = thread_index() / 32 * 16 + lane / 16 * 8, col0 = lane % 16 * 8;
    float square_row = 1.0f, square_col = 1.0f;
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
    do_rows(row, t, v, &square_row, row0, col0, &s->row);
#endif
    __syncthreads();
#if ROW_KIND == TILE_MX32
    put_e8m0(row, (unsigned char *)row.scale + t.matrix * row.scale_bytes, s->row, t.r0, t.rows, t.c0 / 32, (t.cols + 31) / 32);
#elif ROW_KIND == TILE_BLK128
    put_f32(row, (unsigned int *)((char *)row.scale + t.matrix * row.scale_bytes), s->row, t.r0, t.rows, t.c0 / 128);
#elif ROW_KIND == TILE_SQUARE
    put_square(row, t.matrix, s->row, t.r0 / 128, t.c0 / 128);
#endif
#if COL_KIND == TILE_BLK128
    col_scales(col, s);
#endif
#if COL_KIND != TILE_NONE
    forget(v);
    turn(col, v, &square_col, row0, col0, s);
    __syncthreads();
    put_cols(col, t, s);
    if (!t.owned) return;
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
