/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_rows_sm90: moi_quantize_run, row-wise to MXFP8 (E4M3) with one scale for each row (rowwise_mx PER_ROW), from one read: a row lies in
 * the registers of a block.
 *
 *   defines   BF16: 1, or 0 where the values are FP32; WHOLE: 1 where rows are read and written in packets of eight values alone; PACKETS: how many
 *             each thread holds of a row
 *   grid      x: ROWS rows each; y: matrices.  Rows are counted in the order in which their scales lie: in the tiled layout, 32 apart four by four;
 *             else below one another.  The last blocks also write what the layout adds
 *   threads   a multiple of 32; a warp has PACKETS * 256 columns, a lane eight of each 256, so that four neighbours have a block of 32
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
#include "row_packets.cuh"

enum { THREADS = QUANTIZE_ROWS_SM90_THREADS(PACKETS), MOST_WARPS = THREADS / 32, FEW = PACKETS == QUANTIZE_ROWS_SM90_FEW_PACKETS };
/* One block fewer to an SM where 64 registers do not do without spilling. */
enum { ROWS = QUANTIZE_ROWS_SM90_ROWS(PACKETS), BLOCKS = (FEW ? 4 : BF16 ? 2 : 1) - (BF16 && __CUDA_ARCH__ >= 1000) };

/* The block's first row; row i of them lies so many rows further down. */
MOII_FN unsigned int first_row(const quantize_rows_sm90_args &a)
{
    const unsigned int n = blockIdx.x * ROWS;
    return a.row.layout == SCALES_TILED ? (n & ~127u) + (n >> 2 & 31) + (n & 3) * 32 : n;
}
MOII_FN int below_first(const quantize_rows_sm90_args &a, int i) { return a.row.layout == SCALES_TILED ? i * 32 : i; }
static_assert(ROWS == 1 || ROWS == 2, "a pair of rows are 32 apart, and their largest magnitudes share a word");

/* ---- a row as a thread reads and writes it: packets, 256 columns apart, of which `left` columns are there from the first on; 0: there is no row ---- */

typedef struct stretch { const char *in; unsigned char *to; int left, vectors, words; } stretch;

MOII_FN stretch stretch_of(const quantize_rows_sm90_args &a, int i)
{
    const int col = (int)(threadIdx.x / 32 * PACKETS * 256 + threadIdx.x % 32 * 8);
    const long long r = first_row(a) + below_first(a, i);
    stretch s;
    s.in = (const char *)a.in + blockIdx.y * a.in_bytes + (r * a.in_ld + col) * VALUE_BYTES;
    s.to = a.row.data + blockIdx.y * a.row.data_bytes + r * a.row.stride + col;
    s.left = r < a.rows ? (int)a.cols - col : 0;
    s.vectors = a.vectors, s.words = (a.row.stride & 7) == 0 && (a.row.data_bytes & 7) == 0;
    return s;
}

MOII_FN line load_packet(const stretch &s, int p, bool all) { return load_packet(s.in + p * 256 * VALUE_BYTES, s.left - p * 256, all, s.vectors); }
MOII_FN void put_packet(const stretch &s, int p, uint2 codes) { put_packet(s.to + p * 256, s.left - p * 256, false, s.words, codes); }

/* ---- magnitudes ---- */

#if BF16
enum { OWN_TOPS = PACKETS / 2 }; /* words of the largest of a thread's blocks */

/* The largest of a thread's blocks, and of all of them. */
MOII_FN unsigned int own_tops(const line v[PACKETS], unsigned int tops[OWN_TOPS])
{
    unsigned int top = 0;
#pragma unroll
    for (int p = 0; p < PACKETS; p += 2) tops[p / 2] = top_of_lanes(row_pair_top(v, p), 1, 4), top = larger(top, tops[p / 2]);
    return max(top & 0xFFFFu, top >> 16);
}
#else
enum { OWN_TOPS = PACKETS };

MOII_FN unsigned int own_tops(const line v[PACKETS], unsigned int tops[OWN_TOPS])
{
    unsigned int top = 0;
#pragma unroll
    for (int p = 0; p < PACKETS; p++) {
        tops[p] = 0;
#pragma unroll
        for (int c = 0; c < 8; c++) tops[p] = larger(tops[p], moii_bits_of(value_of(v[p], c)) & 0x7FFFFFFFu);
        tops[p] = top_of_lanes(tops[p], 1, 4), top = larger(top, tops[p]);
    }
    return top;
}
#endif

/* Each row's largest of the thread becomes that of all threads.  A word for each warp, of two rows of BF16 one in each half; those of warps that are not
 * there repeat others'. */
MOII_FN void meet(unsigned int top[ROWS])
{
    __shared__ uint4 words[MOST_WARPS / 4];
    unsigned int all = __reduce_max_sync(0xFFFFFFFFu, top[0]);
    if (ROWS == 2) all |= __reduce_max_sync(0xFFFFFFFFu, top[ROWS - 1]) << 16;
    const unsigned int word = threadIdx.x / 32 + threadIdx.x % 32 * (blockDim.x / 32);
    if (word < MOST_WARPS) ((unsigned int *)words)[word] = all;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MOST_WARPS / 4; i++) all = larger(larger(larger(all, words[i].x), larger(words[i].y, words[i].z)), words[i].w);
    top[0] = ROWS == 2 ? all & 0xFFFFu : all;
    if (ROWS == 2) top[ROWS - 1] = all >> 16;
}

/* ---- codes ---- */

/* The code of a row's scale, and how its codes leave. */
#if BF16
MOII_FN unsigned int scale_of(const quantize_rows_sm90_args &a, unsigned int top) { return poison(take_two(a.row, top).codes, top) & 0xFFu; }

MOII_FN void put_row(const quantize_rows_sm90_args &a, const stretch &s, const line v[PACKETS], const unsigned int tops[OWN_TOPS], unsigned int top)
{
    top *= 0x10001u;
    const unsigned int scale = take_two(a.row, top).codes;
#pragma unroll
    for (int p = 0; p < PACKETS; p++) {
        two_scales own = take_two(a.row, tops[p / 2]);
        asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(own.inverse) : "r"(top), "r"(0)); /* what poisons one block poisons all */
        const unsigned int shifts = scale - own.codes, by = p % 2 ? upper_half(own.inverse) : lower_half(own.inverse), zero = a.row.minus_zero;
        const uint4 &w = v[p];
        uint2 q = scaled_codes(ROW_ELEM, w, by, zero);
        put_packet(s, p, shifted(q, p % 2 ? shifts >> 16 : shifts & 0xFFFFu));
    }
}
#else
MOII_FN unsigned int scale_of(const quantize_rows_sm90_args &a, unsigned int top)
{
    return top < MOII_INF_BITS ? 254u - (moii_bits_of(take_scale(ROW_KIND, a.row, top, false, 0, 0, 0)) >> 23) : 0xFFu;
}

MOII_FN void put_row(const quantize_rows_sm90_args &a, const stretch &s, const line v[PACKETS], const unsigned int tops[OWN_TOPS], unsigned int top)
{
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
}
#endif

/* Scales of the block's rows; 0 behind the last row. */
MOII_FN void put_scales(const quantize_rows_sm90_args &a, const unsigned int scale[ROWS])
{
    unsigned char *to = (unsigned char *)a.row.scale + blockIdx.y * a.row.scale_bytes;
    const int blocks = (int)a.row.blocks;
    const long long first = first_row(a);
    if (a.row.layout == SCALES_TILED && a.once) { /* four scales of each row; repeat_scales does the rest */
        if (threadIdx.x < ROWS)
            *(unsigned int *)(to + scale_place(a.row, first + below_first(a, threadIdx.x), 0, 15)) = (threadIdx.x ? scale[ROWS - 1] : scale[0]) * 0x01010101u;
        return;
    }
    if (a.row.layout == SCALES_TILED) {
        for (int i = threadIdx.x; i < (blocks + 3) / 4 * ROWS; i += blockDim.x) { /* four scales of a row; neighbours lie together */
            const int r = i % ROWS, b = i / ROWS * 4;
            const unsigned int all = blocks - b >= 4 ? 0x01010101u : 0x01010101u >> 8 * (4 - (blocks - b));
            *(unsigned int *)(to + scale_place(a.row, first + below_first(a, r), b, 15)) = (r ? scale[ROWS - 1] : scale[0]) * all;
        }
        return;
    }
    if (a.row.layout == SCALES_COL) { /* one for each row; repeat_scales does the rest */
        const long long padded = (a.rows + 15) & ~15LL;
        if (threadIdx.x < ROWS && first + threadIdx.x < padded) to[first + threadIdx.x] = (unsigned char)(threadIdx.x ? scale[ROWS - 1] : scale[0]);
        return;
    }
    for (int i = threadIdx.x; i < ROWS * blocks; i += blockDim.x) {
        const int r = i / blocks;
        if (first + r < a.rows) to[scale_place(a.row, first + r, i % blocks, 15)] = (unsigned char)(r ? scale[ROWS - 1] : scale[0]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) quantize_rows_sm90(const __grid_constant__ quantize_rows_sm90_args a)
{
    stretch s[ROWS];
    line v[ROWS][PACKETS];
    bool all = WHOLE;
#pragma unroll
    for (int i = 0; i < ROWS; i++) s[i] = stretch_of(a, i), all = all && s[i].left > (PACKETS - 1) * 256;
    if (__builtin_expect(all, true)) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int p = 0; p < PACKETS; p++) v[i][p] = load_packet(s[i], p, true);
    } else {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int p = 0; p < PACKETS; p++) v[i][p] = load_packet(s[i], p, false);
    }
    unsigned int tops[ROWS][OWN_TOPS], top[ROWS], scale[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) top[i] = own_tops(v[i], tops[i]);
    meet(top);
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        scale[i] = first_row(a) + below_first(a, i) < a.rows ? scale_of(a, top[i]) : 0;
        if (s[i].left > 0) put_row(a, s[i], v[i], tops[i], top[i]);
    }
    put_scales(a, scale);
}
