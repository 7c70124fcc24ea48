/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_rows_sm90: moi_quantize_run, row-wise to MXFP8 (E4M3) with one scale for each row (rowwise_mx PER_ROW), from one read: a row lies in
 * the registers of a block.
 *
 *   defines   BF16: 1, or 0 where the values are FP32; WHOLE: 1 where rows are read and written in packets of eight values alone; PACKETS: how many
 *             each thread holds of a row
 *   grid      x: ROWS rows each, as long as there are rounds of blocks to fill, then LAST, so that all multiprocessors are done at the same time; y:
 *             matrices.  Rows are counted in the order in which their scales lie: in the tiled layout, 32 apart four by four, so that eight rows
 *             have a sector of 32 bytes; else below one another.  The last blocks also write what the layout adds
 *   threads   a multiple of 32, PACKETS packets of eight values each: packet p of a row belongs to thread p % threads, so that four neighbours have
 *             a block of 32
 */
#include "quantize_rows_sm90_args.h"

#define TILE_BF16 BF16
#define ROW_KIND TILE_MX32
#define ROW_ELEM ELEM_E4M3
#define COL_KIND TILE_NONE
#define COL_ELEM ELEM_E4M3
#define ROW_REBASE 1
#include "packets.cuh"
#include "tile8.cuh"

enum { ROWS = QUANTIZE_ROWS_SM90_ROWS, LAST = QUANTIZE_ROWS_SM90_LAST };
enum { THREADS = QUANTIZE_ROWS_SM90_THREADS(PACKETS), BLOCKS = !BF16 ? 1 : PACKETS == QUANTIZE_ROWS_SM90_MANY_PACKETS ? 2 : 5 };

/* How many rows the block has, and which is row i of them. */
MOII_FN int block_rows(const quantize_rows_sm90_args &a) { return blockIdx.x < a.eights ? ROWS : LAST; }
MOII_FN long long row_of(const quantize_rows_sm90_args &a, int i)
{
    const long long n = blockIdx.x * (long long)LAST + min((long long)blockIdx.x, a.eights) * (ROWS - LAST) + i;
    return a.row.layout == SCALES_TILED ? (n & ~127LL) + (n >> 2 & 31) + (n & 3) * 32 : n;
}

/* The largest of all threads; tops: a word for each warp, not those of the last call. */
MOII_FN unsigned int top_of_block(unsigned int top, unsigned int *tops)
{
    top = __reduce_max_sync(0xFFFFFFFFu, top);
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) top = max(top, tops[w]);
    return top;
}

/* One row as it is read and written.  whole: in packets of eight values alone; then nothing else need be asked. */
typedef struct stretch { const char *in; unsigned char *to; int cols, vectors, words; bool whole; } stretch;

MOII_FN int my_col(int p) { return (int)(p * blockDim.x + threadIdx.x) * 8; }

/* Zeros where nothing is. */
MOII_FN line load_packet(const stretch &s, int p)
{
    const int left = s.cols - my_col(p);
    const bool whole = s.whole || (s.vectors && left >= 8);
    const char *from = s.in + (unsigned int)(my_col(p) * VALUE_BYTES);
    const uint4 none = make_uint4(0, 0, 0, 0);
#if BF16
    return left <= 0 ? none : whole ? load16(from) : load_edge(from, left);
#else
    line v;
    v.low = left <= 0 ? none : whole ? load16(from) : load_edge(from, left);
    v.high = left <= 0 ? none : whole ? load16(from + 16) : load_edge(from + 16, left - 4);
    return v;
#endif
}

MOII_FN void put_packet(const stretch &s, int p, uint2 codes)
{
    const int left = s.cols - my_col(p);
    if (left <= 0) return;
    if (s.whole || (s.words && left >= 8)) *(uint2 *)(s.to + (unsigned int)my_col(p)) = codes;
    else put_edge(s.to + (unsigned int)my_col(p), left, codes);
}

#if BF16
/* The codes of a row; gives its scale's. */
MOII_FN unsigned int do_row(const quantize_rows_sm90_args &a, const stretch &s, unsigned int *across)
{
    line v[PACKETS];
#pragma unroll
    for (int p = 0; p < PACKETS; p++) v[p] = load_packet(s, p);
    unsigned int tops[PACKETS / 2], top = 0;
#pragma unroll
    for (int p = 0; p < PACKETS; p += 2) tops[p / 2] = top_of_lanes(row_pair_top(v, p), 1, 4), top = larger(top, tops[p / 2]);
    top = top_of_block(max(top & 0xFFFFu, top >> 16), across) * 0x10001u;
    const unsigned int scale = take_two(a.row, top).codes;
#pragma unroll
    for (int p = 0; p < PACKETS; p++) {
        two_scales own = take_two(a.row, tops[p / 2]);
        asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(own.inverse) : "r"(top), "r"(0)); /* what poisons one block poisons all */
        const unsigned int shifts = scale - own.codes, by = p % 2 ? upper_half(own.inverse) : lower_half(own.inverse), zero = a.row.minus_zero;
        const uint4 &w = v[p];
        uint2 q;
        q.x = four_codes(ROW_ELEM, scaled(w.x, 0, by, zero), scaled(w.x, 1, by, zero), scaled(w.y, 0, by, zero), scaled(w.y, 1, by, zero));
        q.y = four_codes(ROW_ELEM, scaled(w.z, 0, by, zero), scaled(w.z, 1, by, zero), scaled(w.w, 0, by, zero), scaled(w.w, 1, by, zero));
        put_packet(s, p, shifted(q, p % 2 ? shifts >> 16 : shifts & 0xFFFFu));
    }
    return poison(scale, top) & 0xFFu;
}
#else
MOII_FN unsigned int do_row(const quantize_rows_sm90_args &a, const stretch &s, unsigned int *across)
{
    line v[PACKETS];
#pragma unroll
    for (int p = 0; p < PACKETS; p++) v[p] = load_packet(s, p);
    unsigned int tops[PACKETS], top = 0;
#pragma unroll
    for (int p = 0; p < PACKETS; p++) {
        tops[p] = 0;
#pragma unroll
        for (int c = 0; c < 8; c++) tops[p] = larger(tops[p], moii_bits_of(value_of(v[p], c)) & 0x7FFFFFFFu);
        tops[p] = top_of_lanes(tops[p], 1, 4), top = larger(top, tops[p]);
    }
    top = top_of_block(top, across);
    const float common = take_scale(ROW_KIND, a.row, top, false, 0, 0, 0);
    const unsigned int scale = 254u - (moii_bits_of(common) >> 23); /* of no use where it is poisoned, nor are the shifts then */
#pragma unroll
    for (int p = 0; p < PACKETS; p++) {
        const float own = take_scale(ROW_KIND, a.row, tops[p], false, 0, 0, 0), by = top < MOII_INF_BITS ? own : common;
        float x[8];
#pragma unroll
        for (int c = 0; c < 8; c++) x[c] = value_of(v[p], c) * by;
        put_packet(s, p, shifted(eight_codes(ROW_ELEM, x), scale - (254u - (moii_bits_of(own) >> 23))));
    }
    return top < MOII_INF_BITS ? scale : 0xFFu;
}
#endif

/* Scales of the block's rows: scale[i] for row i, 0 behind the last. */
MOII_FN void put_scales(const quantize_rows_sm90_args &a, const unsigned int *scale)
{
    unsigned char *to = (unsigned char *)a.row.scale + blockIdx.y * a.row.scale_bytes;
    const int rows = block_rows(a), blocks = (int)a.row.blocks;
    if (a.row.layout == SCALES_TILED) {
        for (int i = threadIdx.x; i < (blocks + 3) / 4 * rows; i += blockDim.x) { /* four scales of a row; neighbours lie together */
            const int r = rows == ROWS ? i % ROWS : i % LAST, b = (rows == ROWS ? i / ROWS : i / LAST) * 4;
            const unsigned int all = blocks - b >= 4 ? 0x01010101u : 0x01010101u >> 8 * (4 - (blocks - b));
            *(unsigned int *)(to + scale_place(a.row, row_of(a, r), b, 15)) = scale[r] * all;
        }
        return;
    }
    const long long padded = a.row.layout == SCALES_COL ? (a.rows + 15) & ~15LL : a.rows;
    const bool down = a.row.layout == SCALES_COL; /* which neighbours lie together */
    for (int i = threadIdx.x; i < rows * blocks; i += blockDim.x) {
        const int r = down ? i % rows : i / blocks;
        if (row_of(a, r) < padded) to[scale_place(a.row, row_of(a, r), down ? i / rows : i % blocks, 15)] = (unsigned char)scale[r];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) quantize_rows_sm90(const __grid_constant__ quantize_rows_sm90_args a)
{
    __shared__ unsigned int scale[ROWS], tops[2][THREADS / 32];
    stretch s = { 0, 0, (int)a.cols, a.vectors, (a.row.stride & 7) == 0 && (a.row.data_bytes & 7) == 0 };
    s.whole = WHOLE;
#pragma unroll 1
    for (int i = 0; i < block_rows(a); i++) {
        const long long r = row_of(a, i);
        unsigned int own = 0;
        if (r < a.rows) {
            s.in = (const char *)a.in + blockIdx.y * a.in_bytes + r * a.in_ld * VALUE_BYTES;
            s.to = a.row.data + blockIdx.y * a.row.data_bytes + r * a.row.stride;
            own = do_row(a, s, tops[i % 2]);
        }
        if (threadIdx.x == 0) scale[i] = own;
    }
    __syncthreads();
    put_scales(a, scale);
}
