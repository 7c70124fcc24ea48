/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_columns_sm90: moi_quantize_run with colwise_mx PER_ROW, behind the pass that makes blocks of 32: the codes of a group's part of each column
 * are expressed by the part's largest scale, as moi_rebase_run would.  The quantiser gives blocks of zeros the smallest scale, so that the largest is
 * their codes' too, and need not be looked for in them.
 *
 *   defines   TOPS: 1: finds the largest scales, into a.tops; 0: shifts codes, and writes scales
 *   grid      TOPS: x: LINES lines each; y: parts, which blocks walk; z: matrices.  Else x: RUN blocks of 32 codes of LINES lines each; y: lines, which
 *             blocks walk; z: matrices
 *   threads   TOPS: whole warps; a lane has a line, a warp every so-manieth scale of it.  Else THREADS: 16 codes each at a time
 */
#include "quantize_columns_sm90_args.h"
#define TILE_BF16 1
#include "stored.cuh"
#include "tile8_codes.cuh"

enum { LINES = QUANTIZE_COLUMNS_SM90_LINES, RUN = QUANTIZE_COLUMNS_SM90_RUN, THREADS = QUANTIZE_COLUMNS_SM90_THREADS };
static_assert(LINES == 32, "a lane has a line");

MOII_FN long long part_begin(const quantize_columns_sm90_args &a, int part) { return a.offsets ? a.offsets[part] : 0; }
MOII_FN long long part_end(const quantize_columns_sm90_args &a, int part) { return a.offsets ? a.offsets[part + 1] : a.length; }

/* A part's first block of 32. */
MOII_FN long long first_block(const quantize_columns_sm90_args &a, int part) { return a.offsets ? part_begin(a, part) / 32 + part : 0; }

MOII_FN unsigned char *scale_at(const quantize_columns_sm90_args &a, long long line, long long block)
{
    return a.scale + blockIdx.z * a.scale_bytes + stored_scale_place(a.layout, 0, line, block, a.lines, a.blocks);
}

MOII_FN unsigned char *top_at(const quantize_columns_sm90_args &a, int part, long long line)
{
    return a.tops + (blockIdx.z * (long long)a.parts + part) * a.lines + line;
}

#if TOPS

MOII_FN void find_tops(const quantize_columns_sm90_args &a, int part)
{
    enum { MOST_WARPS = 32, AT_ONCE = 8 };
    __shared__ unsigned char of_warp[MOST_WARPS * LINES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const long long line = blockIdx.x * (long long)LINES + lane, first = first_block(a, part);
    const long long end = first + (part_end(a, part) - part_begin(a, part) + 31) / 32;
    unsigned int top = 0;
    for (long long b = first + warp; b < end && line < a.lines; b += warps * AT_ONCE) {
        unsigned int e[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) e[i] = b + i * warps < end ? *scale_at(a, line, b + i * warps) : 0;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) top = max(top, e[i]);
    }
    of_warp[warp * LINES + lane] = (unsigned char)top;
    __syncthreads();
    if (warp == 0 && line < a.lines) {
        for (int w = 1; w < warps; w++) top = max(top, (unsigned int)of_warp[w * LINES + lane]);
        *top_at(a, part, line) = (unsigned char)top;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(1024) quantize_columns_sm90(const __grid_constant__ quantize_columns_sm90_args a)
{
    for (int part = blockIdx.y; part < a.parts; part += gridDim.y) find_tops(a, part);
}

#else

enum { NOT_A_NUMBER = 0xFF /* as a shift: all codes are */, PACKETS = 2 * RUN /* of 16 codes in a line */, AT_ONCE = 4 };

typedef struct owner { int part, there; } owner; /* of a block: codes of it that there are, 0: nobody's */

/* The last part that begins at the block or before. */
MOII_FN owner owner_of(const quantize_columns_sm90_args &a, long long block)
{
    int low = 0, high = a.parts - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (first_block(a, middle) <= block) low = middle;
        else high = middle - 1;
    }
    const long long left = part_end(a, low) - part_begin(a, low) - (block - first_block(a, low)) * 32;
    return { low, (int)min(max(left, 0ll), 32ll) };
}

__shared__ owner owners[RUN];
__shared__ unsigned char shifts[LINES * RUN];

MOII_FN uint4 shifted_packet(uint4 v, unsigned int shift)
{
    const uint2 low = shifted(make_uint2(v.x, v.y), shift), high = shifted(make_uint2(v.z, v.w), shift);
    return make_uint4(low.x, low.y, high.x, high.y);
}

MOII_FN void shift_codes(unsigned char *p, int count, unsigned int shift)
{
    for (int i = 0; i < count; i++) p[i] = shift == NOT_A_NUMBER ? 0x7F : (unsigned char)shifted(make_uint2(p[i], 0), shift).x;
}

MOII_FN void shift_lines(const quantize_columns_sm90_args &a, long long line0, long long block0)
{
    const int lines = (int)min((long long)LINES, a.lines - line0), run = (int)min((long long)RUN, a.blocks - block0);
    for (int i = threadIdx.x; i < RUN * LINES; i += THREADS) { /* neighbours lie together in layout COL */
        const int l = i % LINES, b = i / LINES;
        const owner o = owners[b];
        unsigned int shift = 0;
        if (b < run && o.there > 0 && l < lines) {
            unsigned char *e = scale_at(a, line0 + l, block0 + b);
            const unsigned int top = *top_at(a, o.part, line0 + l), own = *e;
            shift = top == 0xFFu ? NOT_A_NUMBER : min(top - own, 60u);
            if (own != top) *e = (unsigned char)top;
        }
        shifts[l * RUN + b] = (unsigned char)shift;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < LINES * PACKETS; i += AT_ONCE * THREADS) { /* a warp has 512 bytes of a line */
        uint4 *p[AT_ONCE], v[AT_ONCE];
        unsigned int shift[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int n = i + k * THREADS, l = n / PACKETS, half = n % PACKETS;
            shift[k] = shifts[l * RUN + half / 2];
            p[k] = (uint4 *)(a.codes + blockIdx.z * a.codes_bytes + (line0 + l) * a.stride + block0 * 32 + half * 16);
            if (shift[k] == 0) continue; /* nobody's, too */
            if (!a.packets || shift[k] == NOT_A_NUMBER) {
                shift_codes((unsigned char *)p[k], min(max(owners[half / 2].there - half % 2 * 16, 0), 16), shift[k]);
                shift[k] = 0;
            } else v[k] = *p[k]; /* behind the part's last code there are zeros */
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (shift[k]) *p[k] = shifted_packet(v[k], shift[k]);
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) quantize_columns_sm90(const __grid_constant__ quantize_columns_sm90_args a)
{
    const long long block0 = blockIdx.x * (long long)RUN;
    if (threadIdx.x < RUN && block0 + threadIdx.x < a.blocks) owners[threadIdx.x] = owner_of(a, block0 + threadIdx.x);
    __syncthreads();
    for (long long line0 = blockIdx.y * (long long)LINES; line0 < a.lines; line0 += gridDim.y * (long long)LINES) shift_lines(a, line0, block0);
}

#endif
