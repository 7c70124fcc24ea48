/* SPDX-License-Identifier: Apache-2.0
 *
 * half_rows_sm90: rows of BF16 as FP16 times a power of two, in halves_sm90's order.
 *
 *   A row's largest magnitude becomes 2^15 to 2^16 (less where it is below 2^-110), so that values down to 2^-32 of it are exact, and smaller ones are
 *   rounded to multiples of 2^-39 of it; of one with Inf or NaN all products are one of these.  factor: what the row has to be multiplied by again.
 *
 *   order     of each 32 values 8 c to 8 c + 7 for c = 0 to 3: in two pieces of 16, of which the first has 8 c to 8 c + 3, and of these the first two for all c
 *             in front
 *   a list may name the rows; counts may say how many a group has
 *   grid      any; HALF_ROWS_THREADS threads, a row for each warp
 *   launch    begins before the grid before it has ended, and waits for it */
#include "half_rows_sm90_args.h"
#include "own_warp.cuh"
#include "ptx_sm90.cuh"
#include "row_list.cuh"

MOII_FN unsigned int larger(unsigned int pair) { return max(pair & 0x7FFFu, pair >> 16 & 0x7FFFu); }

/* The largest of a row's magnitudes, as bits of BF16. */
MOII_FN unsigned int row_top(const char *from, int pieces)
{
    unsigned int top = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x % 32; i < 2 * pieces; i += 32) {
        const uint4 v = __ldg((const uint4 *)from + i);
        top = max(max(top, max(larger(v.x), larger(v.y))), max(larger(v.z), larger(v.w)));
    }
    return __reduce_max_sync(~0u, top);
}

/* Exponent field of the power of two: 253 at most, so that its inverse is a normal number. */
MOII_FN unsigned int field_of(unsigned int top) { return min(269u - (top >> 7), 253u); }

MOII_FN unsigned int half_pair(unsigned int pair, float times)
{
    unsigned int d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(moii_float_of(pair & 0xFFFF0000u) * times), "f"(moii_float_of(pair << 16) * times));
    return d;
}

MOII_FN void write_row(const char *from, uint4 *to, int pieces, float times)
{
#pragma unroll 2
    for (int i = (int)threadIdx.x % 32; i < pieces; i += 32) {
        unsigned int front[4], behind[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const uint2 four = __ldg((const uint2 *)from + i / 2 * 8 + 2 * c + i % 2);
            front[c] = half_pair(four.x, times), behind[c] = half_pair(four.y, times);
        }
        to[2 * i] = make_uint4(front[0], front[1], front[2], front[3]);
        to[2 * i + 1] = make_uint4(behind[0], behind[1], behind[2], behind[3]);
    }
}

extern "C" __global__ void __launch_bounds__(HALF_ROWS_THREADS, 8) half_rows_sm90(const __grid_constant__ half_rows_sm90_args a)
{
    grid_wait();
    grid_release();
    const int rows = listed_rows(a.list, a.rows), apart = (int)gridDim.x * (HALF_ROWS_THREADS / 32);
    for (int row = (int)blockIdx.x * (HALF_ROWS_THREADS / 32) + own_warp(); row < rows; row += apart) {
        const int group = a.counts ? row / a.group_rows : 0;
        if (a.counts && row - group * a.group_rows >= __ldg(a.counts + group)) continue;
        const char *from = a.from + listed_row(a.list, row) * a.pitch;
        const unsigned int field = field_of(row_top(from, a.pieces));
        write_row(from, (uint4 *)a.to + row * 2ll * a.pieces, a.pieces, moii_float_of(field << 23));
        if (threadIdx.x % 32 == 0) a.factor[row] = moii_float_of((254 - field) << 23);
    }
}
