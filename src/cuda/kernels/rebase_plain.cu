/* SPDX-License-Identifier: Apache-2.0
 *
 * rebase_plain: moi_rebase_run; plain CUDA for capability 8.0 and newer.  It is written to be right.
 *
 *   grid      x: groups of a row (and padding of scales), y: rows; any numbers, the blocks walk; 256 threads
 *   warp      one group: it looks at all blocks, lane by value, for the common scale, then shifts one after the other.  In place,
 *             nothing of a group is written before all lanes have read it.
 */
#include "elem.cuh"
#include "rebase_plain_args.h"
#include "stored.cuh"

#define EVERYONE 0xFFFFFFFFu

MOII_FN long long place(const rebase_plain_args &a, long long r, long long b) { return stored_scale_place(a.layout, 0, r, b, a.rows, a.blocks); }

/* Blocks first .. last - 1 of a row, of codes before `end`. */
typedef struct group { long long first, last, end; } group;

MOII_FN group group_at(const rebase_plain_args &a, long long g)
{
    group s = { g * a.width, (g + 1) * a.width, a.cols };
    if (a.cut && a.whole) {
        const long long rows = a.offsets[g + 1] - a.offsets[g];
        s.first = a.offsets[g] / 32 + g, s.last = s.first + (rows + 31) / 32, s.end = s.first * 32 + rows;
        return s;
    }
    if (a.cut) {
        long long low = 0, high = a.cut; /* the last part that begins at group g or before */
        while (low < high) {
            const long long i = (low + high + 1) / 2;
            if (a.offsets[i] / 128 + i <= g) low = i;
            else high = i - 1;
        }
        const long long start = a.offsets[low] / 32 + low, rows = low < a.cut ? a.offsets[low + 1] - a.offsets[low] : 0;
        s.first = start + (g - a.offsets[low] / 128 - low) * a.width, s.end = start * 32 + rows;
        s.last = min(s.first + a.width, start + (rows + 31) / 32);
        return s;
    }
    s.last = min(s.last, a.blocks);
    return s;
}

/* The lane's code of a block, 0 behind the group's end, and whether the whole block is zero. */
MOII_FN unsigned int code_at(const rebase_plain_args &a, long long r, long long b, long long end, bool *zero)
{
    const long long c = b * 32 + threadIdx.x % 32;
    const unsigned int code = c < end ? a.in[r * a.in_ld + c] : 0;
    *zero = !__any_sync(EVERYONE, (code & 0x7Fu) != 0);
    return code;
}

/* E*, or 0xFF if a block of the group has a NaN scale. */
MOII_FN unsigned int common_scale(const rebase_plain_args &a, long long r, const group &s)
{
    unsigned int top = 0;
    bool zero;
    for (long long b = s.first; b < s.last; b++) {
        const unsigned int e = a.in_scale[place(a, r, b)];
        code_at(a, r, b, s.end, &zero);
        if (e == 0xFFu) return 0xFFu;
        if (e > top && !zero) top = e;
    }
    return top;
}

MOII_FN void rebase_group(const rebase_plain_args &a, long long r, long long g)
{
    const group s = group_at(a, g);
    const int lane = (int)threadIdx.x % 32;
    const unsigned int top = common_scale(a, r, s);
    int worst = 0;
    for (long long b = s.first; b < s.last; b++) {
        bool zero;
        const unsigned int code = code_at(a, r, b, s.end, &zero);
        int shift = (int)top - a.in_scale[place(a, r, b)];
        if (top == 0xFFu || zero) shift = 0;
        worst = shift > worst ? shift : worst;
        __syncwarp();
        /* beyond 2^-60 every code rounds to zero anyway, and the factor stays a normal FP32 */
        const float factor = moii_float_of((unsigned int)(127 - (shift < 60 ? shift : 60)) << 23);
        const unsigned int moved = top == 0xFFu ? 0x7Fu : moii_e4m3_encode(moii_e4m3_decode(code) * factor);
        if (b * 32 + lane < s.end) a.out[r * a.out_ld + b * 32 + lane] = (unsigned char)moved;
        if (lane == 0) a.out_scale[place(a, r, b)] = (unsigned char)top;
    }
    if (lane) return;
    const float step = moii_float_of((127u - 10u) << 23) * moii_e8m0_decode(top);
    if (a.bound) ((unsigned int *)a.bound)[r * a.groups + g] = top == 0xFFu ? 0x7FC00000u : worst ? moii_bits_of(step) : 0;
    if (a.max_shift && worst) atomicMax(a.max_shift, worst);
}

extern "C" __global__ void __launch_bounds__(256, 4) rebase_plain(const __grid_constant__ rebase_plain_args a)
{
    if (a.clears) {
        if (threadIdx.x == 0) *a.max_shift = 0;
        return;
    }
    for (long long r = blockIdx.y; r < a.rows; r += gridDim.y)
        for (long long g = blockIdx.x * 8LL + threadIdx.x / 32; g < a.groups; g += gridDim.x * 8LL) rebase_group(a, r, g);
    for (long long r = blockIdx.y; r < a.padded_rows; r += gridDim.y) /* what the layout adds */
        for (long long b = (r < a.rows ? a.blocks : 0) + blockIdx.x * 256LL + threadIdx.x; b < a.padded_blocks; b += gridDim.x * 256LL)
            a.out_scale[place(a, r, b)] = 0;
}
