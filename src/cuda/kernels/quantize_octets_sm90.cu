/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_octets_sm90: moi_quantize_run along rows alone, from BF16 to 8-bit elements in blocks of 32 or of 128: a warp by itself makes eight
 * rows of 256 columns, and their scales leave in whole sectors of memory (docs/notes/quantize-h200.md).
 *
 *   defines   ROW_KIND: TILE_MX32 or TILE_BLK128; ROW_ELEM: ELEM_E4M3 or ELEM_E5M2; ROW_REBASE: 1 where the scales of 128 columns are made equal;
 *             WHOLE: 1 where rows are read and written in packets of eight values alone
 *   grid      x: so many warps that each has a piece, those beside one another first; y, z: matrices
 *   threads   any multiple of 32.  Lane l: columns 8 l + 0..7.  Scales in the tiled layout: rows r, r + 32, r + 64, r + 96 and those below them,
 *             whose scales lie together; else eight below one another
 */
#define TILE_BF16 1
#define COL_KIND TILE_NONE
#define TILE_INLINE
#include "quantize_octets_sm90_args.h"
#include "packets.cuh"
#include "tile8_codes.cuh"

MOII_FN int thread_index(void) { return (int)threadIdx.x; }
#include "tile8_rows.cuh"
#include "row_packets.cuh"

enum { OCTET = 8, SPAN = QUANTIZE_OCTETS_SM90_SPAN, SPAN_BLOCKS = SPAN / (ROW_KIND == TILE_MX32 ? 32 : 128), THREADS = 32 * QUANTIZE_OCTETS_SM90_WARPS };
enum { BLOCKS = __CUDA_ARCH__ >= 1000 ? 3 : 4 }; /* of an SM: where 64 registers do not do without spilling, one fewer */

/* One warp's rows and columns. */
typedef struct piece {
    long long matrix;
    int first, block, col; /* row; the first block's number; the lane's column */
    int left;              /* columns there are from it on */
} piece;

MOII_FN long long below(const octet_steps &s, int i) { return i % 4 * s.four + i / 4 * s.eight; }
MOII_FN int rows_below(const quantize_octets_sm90_args &a, int i) { return (int)below(a.row, i); }

MOII_FN piece piece_of(const quantize_octets_sm90_args &a, unsigned int i)
{
    const unsigned int above = i >> a.deep, q = a.magic ? __umulhi(above, a.magic) >> a.shift : above, span = above - q * a.across;
    const unsigned int octet = (q << a.deep) + (i & ((1u << a.deep) - 1)), lane = threadIdx.x % 32;
    piece p;
    p.matrix = (long long)blockIdx.z * QUANTIZE_OCTETS_SM90_MATRICES + blockIdx.y;
    p.first = a.side.layout == SCALES_TILED ? (int)(octet / 16 * 128 + octet % 16 * 2) : (int)(octet * OCTET);
    p.block = (int)(span * SPAN_BLOCKS), p.col = (int)(span * SPAN + lane * 8);
    p.left = (int)a.cols - p.col;
    return p;
}

#if ROW_KIND == TILE_MX32

/* Bytes 0..3 of the words of four lanes, `step` and 2 * step apart, change places: lane i has byte i of each. */
MOII_FN unsigned int turned(unsigned int w, unsigned int lane, unsigned int step)
{
    w = __byte_perm(w, __shfl_xor_sync(0xFFFFFFFFu, w, step), lane & step ? 0x3715 : 0x6240);
    return __byte_perm(w, __shfl_xor_sync(0xFFFFFFFFu, w, 2 * step), lane & 2 * step ? 0x3276 : 0x5410);
}

/* scales: of the lane's block (four lanes have the same), those of rows 0..3 and 4..7.  What a layout adds behind the last row becomes 0, as the values
 * read there are, and so does what is behind the last block, which may have equal scales with those before. */
MOII_FN void put_scales(const quantize_octets_sm90_args &a, const piece &p, unsigned int upper, unsigned int lower)
{
    const unsigned int lane = threadIdx.x % 32, part = lane % 4;
    unsigned char *to = (unsigned char *)a.side.scale + p.matrix * a.side.scale_bytes;
    const long long blocks = a.side.blocks;
    int b = p.block + (int)lane / 4;
    if (a.side.layout == SCALES_COL) { /* rows to a multiple of 16 */
        const long long padded = (a.side.scale_rows + 15) & ~15LL;
        if (part == 0 && b < blocks && p.first < padded) *(uint2 *)(to + b * padded + p.first) = make_uint2(upper, lower);
        return;
    }
    if (a.side.layout == SCALES_ROW && blocks % 4) {
        if (b >= blocks) return;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int r = p.first + (int)part + 4 * i;
            if (r < a.rows) to[r * blocks + b] = (unsigned char)((i ? lower : upper) >> 8 * part);
        }
        return;
    }
    upper = turned(upper, lane, 4), lower = turned(lower, lane, 4); /* four blocks of row lane / 4 % 4, and of the one that is four behind it */
    if (part > 1) return;
    const int i = (int)(lane / 4 % 4 + 4 * part);
    const int r = p.first + rows_below(a, i);
    b &= ~3;
    if (b >= blocks) return;
    if (a.side.layout == SCALES_TILED) to += (r / 128 * ((blocks + 3) / 4) + b / 4) * 512 + r % 32 * 16 + r / 32 % 4 * 4;
    else if (r < a.rows) to += r * blocks + b;
    else return;
    *(unsigned int *)to = (part ? lower : upper) & (blocks - b < 4 ? 0x00FFFFFFu >> 8 * (3 - (int)(blocks - b)) : 0xFFFFFFFFu);
}

MOII_FN void quantize_rows(const quantize_octets_sm90_args &a, const piece &p, const line v[OCTET], const int left[OCTET], bool all, bool words)
{
    unsigned char *const to = a.side.data + p.matrix * a.side.data_bytes + p.first * a.side.stride + p.col;
    unsigned int codes[OCTET / 2], tops[OCTET / 2], any = 0;
#pragma unroll
    for (int i = 0; i < OCTET; i += 2) {
        uint2 q[2];
        codes[i / 2] = row_pair(a.side, v + i, q, &tops[i / 2]), any |= poisoned(tops[i / 2]);
        put_packet(to + below(a.to, i), left[i], all, words, q[0]);
        put_packet(to + below(a.to, i + 1), left[i + 1], all, words, q[1]);
    }
    if (any) {
#pragma unroll
        for (int i = 0; i < OCTET / 2; i++) codes[i] = poison(codes[i], tops[i]);
    }
    put_scales(a, p, __byte_perm(codes[0], codes[1], 0x6420), __byte_perm(codes[2], codes[3], 0x6420));
}

#else

MOII_FN void quantize_rows(const quantize_octets_sm90_args &a, const piece &p, const line v[OCTET], const int left[OCTET], bool all, bool words)
{
    unsigned char *const to = a.side.data + p.matrix * a.side.data_bytes + p.first * a.side.stride + p.col;
    const int lane = threadIdx.x % 16;
    unsigned int top[OCTET], own;
    row_tops(v, top);
    const bool one = lane & 1, two = lane & 2; /* a tree of choices: a loop would become an array in memory */
    const unsigned int low = two ? (one ? top[3] : top[2]) : one ? top[1] : top[0], high = two ? (one ? top[7] : top[6]) : one ? top[5] : top[4];
    own = lane & 4 ? high : low;
    moii_block_rule rule = a.side.rule;
    rule.mx = 0, rule.lenient = 0;
    const moii_block block = moii_block_make(rule, own); /* divisions are dear: lane i finds the scale of row i */
    const float mine = block.poisoned ? moii_float_of(MOII_NAN_BITS) : block.inverse;
#pragma unroll
    for (int i = 0; i < OCTET; i++) {
        const float by = __shfl_sync(0xFFFFFFFFu, mine, i, 16);
        float x[8];
#pragma unroll
        for (int c = 0; c < 8; c++) x[c] = value_of(v[i], c) * by;
        put_packet(to + below(a.to, i), left[i], all, words, eight_codes(ROW_ELEM, x));
    }
    const long long b = p.block + threadIdx.x % 32 / 16, r = p.first + lane, padded = (a.side.scale_rows + 3) & ~3LL;
    if (lane >= OCTET || b >= a.side.blocks) return;
    unsigned int *const scale = (unsigned int *)((char *)a.side.scale + p.matrix * a.side.scale_bytes);
    if (a.side.layout == SCALES_COL && r < padded) scale[b * padded + r] = r < a.rows ? block.scale : 0;
    if (a.side.layout == SCALES_ROW && r < a.rows) scale[r * a.side.blocks + b] = block.scale;
}

#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) quantize_octets_sm90(const __grid_constant__ quantize_octets_sm90_args a)
{
    const unsigned int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const piece p = piece_of(a, i);
    if (i >= a.pieces || p.matrix >= a.batch) return;
    const char *const from = (const char *)a.in + p.matrix * a.in_bytes + p.first * a.from_ld + p.col * 2;
    line v[OCTET];
    int left[OCTET];
    if (WHOLE && __all_sync(0xFFFFFFFFu, p.first + rows_below(a, OCTET - 1) < a.rows && p.left > 0)) {
#pragma unroll
        for (int k = 0; k < OCTET; k++) v[k] = load_packet(from + below(a.from, k), left[k] = 8, true, true);
        quantize_rows(a, p, v, left, true, true);
        return;
    }
#pragma unroll
    for (int k = 0; k < OCTET; k++) {
        left[k] = p.first + rows_below(a, k) < a.rows ? p.left : 0;
        v[k] = load_packet(from + below(a.from, k), left[k], false, a.vectors);
    }
    quantize_rows(a, p, v, left, false, (a.side.stride & 7) == 0 && (a.side.data_bytes & 7) == 0);
}
