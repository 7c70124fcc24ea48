/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_rows.cuh: a tile along its rows: tops, scales, codes, and their way to global memory.
 * Included by tile8.cuh, whose defines it reads.
 */
#ifndef MOII_TILE8_ROWS_CUH
#define MOII_TILE8_ROWS_CUH

#if ROW_KIND != TILE_NONE
#if TILE_BF16
/* Largest magnitudes of the lane's rows p and p + 1, a row in each half. */
MOII_FN unsigned int row_pair_top(const line v[8], int p)
{
    unsigned int m[2];
#pragma unroll
    for (int i = 0; i < 2; i++) m[i] = stronger(stronger(v[p + i].x, v[p + i].y), stronger(v[p + i].z, v[p + i].w));
    return magnitudes(stronger(__byte_perm(m[0], m[1], 0x5410), __byte_perm(m[0], m[1], 0x7632)));
}
#endif

/* Larger ones of the lanes that share a block: from steps of `from` lanes on, below steps of `to`. */
MOII_FN unsigned int top_of_lanes(unsigned int top, int from, int to)
{
#pragma unroll
    for (int step = from; step < to; step *= 2) top = larger(top, __shfl_xor_sync(0xFFFFFFFFu, top, step));
    return top;
}

#if TILE_BF16
/* Two rows become codes q; back come the largest magnitudes of their blocks, and their scales, poisoned ones not yet (see poisoned).  All lanes of a warp
 * come here. */
MOII_FN unsigned int row_pair(const tile8_side &side, const line v[2], uint2 q[2], unsigned int *top)
{
    *top = top_of_lanes(row_pair_top(v, 0), 1, 4);
    two_scales s = take_two(side, *top);
#if ROW_REBASE /* the largest scale of a row's 128, found as their common one would be; what poisons one block poisons all */
    const unsigned int own = s.codes;
    *top = top_of_lanes(*top, 4, 16);
    s.codes = take_two(side, *top).codes;
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(s.inverse) : "r"(*top), "r"(0));
    const unsigned int shifts = s.codes - own;
#endif
#pragma unroll
    for (int i = 0; i < 2; i++) {
        q[i] = scaled_codes(ROW_ELEM, v[i], i ? upper_half(s.inverse) : lower_half(s.inverse), side.minus_zero);
#if ROW_REBASE
        q[i] = shifted(q[i], i ? shifts >> 16 : shifts & 0xFFFFu);
#endif
    }
    return s.codes;
}
#endif

/* Largest magnitudes of the lane's eight rows over the lanes that share a block. */
MOII_FN void row_tops(const line v[8], unsigned int top[8])
{
    const int lanes = ROW_KIND == TILE_MX32 ? 4 : 16;
#if TILE_BF16
#pragma unroll
    for (int p = 0; p < 8; p += 2) {
        const unsigned int both = top_of_lanes(row_pair_top(v, p), 1, lanes);
        top[p] = lower_half(both), top[p + 1] = upper_half(both);
    }
#else
#pragma unroll
    for (int p = 0; p < 8; p++) {
        unsigned int m = 0;
#pragma unroll
        for (int c = 0; c < 8; c++) m = larger(m, moii_bits_of(value_of(v[p], c)) & 0x7FFFFFFFu);
        top[p] = top_of_lanes(m, 1, lanes);
    }
#endif
}

/* Apart, so that there is one copy of it; TILE_INLINE: where a call would make the kernel spill. */
#ifdef TILE_INLINE
MOII_FN
#else
static __device__ __noinline__
#endif
void put_edge(unsigned char *to, int count, uint2 codes)
{
#pragma unroll 1
    for (int i = 0; i < 8 && i < count; i++) to[i] = (unsigned char)((i < 4 ? codes.x : codes.y) >> 8 * (i % 4));
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

/* One row after the other.  plain: whole words of rows that are all there. */
MOII_FN void put_row(row_place &at, long long stride, bool plain, uint2 codes)
{
    if (plain || (at.rows > 0 && at.whole)) *(uint2 *)at.to = codes;
    else if (at.rows > 0) put_edge(at.to, at.cols, codes);
    at.to += stride, at.rows--;
}

#if TILE_BF16 && ROW_KIND == TILE_MX32
/* plain: see put_row; the same for all threads of a warp. */
MOII_FN void do_rows_as(const tile8_side &side, row_place at, bool plain, const line v[8], int row0, shared_scales *scales)
{
    const int lane = thread_index() % 16;
    unsigned int codes[4], tops[4], any = 0;
#pragma unroll
    for (int p = 0; p < 8; p += 2) {
        uint2 q[2];
        codes[p / 2] = row_pair(side, v + p, q, &tops[p / 2]), any |= tops[p / 2] + 0x00800080u;
        put_row(at, side.stride, plain, q[0]), put_row(at, side.stride, plain, q[1]);
    }
    if (any & 0x80008000u) {
#pragma unroll
        for (int i = 0; i < 4; i++) codes[i] = poison(codes[i], tops[i]);
    }
    if (lane % 4 == 0) /* the bytes of eight rows lie together */
        *(uint2 *)&scales->e8m0[lane / 4][row0] = make_uint2(__byte_perm(codes[0], codes[1], 0x6420), __byte_perm(codes[2], codes[3], 0x6420));
}
#else
MOII_FN void do_rows_as(const tile8_side &side, row_place at, bool plain, const line v[8], int row0, shared_scales *scales, const float *square)
{
    unsigned int top[8];
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
#if ROW_REBASE
        const unsigned int all = top_of_lanes(top[p], 4, 16), own = (254u << 23) - moii_bits_of(by);
        const float common = take_scale(ROW_KIND, side, all, lane % lanes == 0, scales, lane / 4, row0 + p);
        if (all >= MOII_INF_BITS) by = common;
#endif
#pragma unroll
        for (int c = 0; c < 8; c++) x[c] = value_of(v[p], c) * by;
        uint2 q = eight_codes(ROW_ELEM, x);
#if ROW_REBASE
        q = shifted(q, ((254u << 23) - moii_bits_of(common) - own) >> 23);
#endif
        put_row(at, side.stride, plain, q);
    }
}
#endif

MOII_FN void do_rows(const tile8_side &side, const tile &t, const line v[8], const float *square, int row0, int col0, shared_scales *scales)
{
    const row_place at = place_rows(side, t, row0, col0);
    const bool plain = at.whole && t.rows >= (row0 & ~15) + 16;
#if TILE_BF16 && ROW_KIND == TILE_MX32
    if (plain) do_rows_as(side, at, true, v, row0, scales);
    else do_rows_as(side, at, false, v, row0, scales);
#else
    if (plain) do_rows_as(side, at, true, v, row0, scales, square);
    else do_rows_as(side, at, false, v, row0, scales, square);
#endif
}
#endif

#endif
