/* SPDX-License-Identifier: Apache-2.0
 *
 * repeat_scales: scales of rows that have one each: all columns become what the first one is (layout COL), or all atoms of 128 rows and four columns
 * what the first of these rows is (tiled).
 *
 *   grid      x: 256 chunks of 16 bytes each; y: 16 copies each; z: matrices
 *   threads   256: a chunk each
 */
#include "ptx_sm90.cuh"
#include "repeat_scales_args.h"

extern "C" __global__ void __launch_bounds__(256) repeat_scales(const __grid_constant__ repeat_scales_args a)
{
    enum { COPIES = 16 };
    const unsigned int i = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * COPIES, run = i / a.run;
    grid_wait(); /* for the scales */
    if (i >= a.chunks) return;
    uint4 *const to = (uint4 *)(a.scale + blockIdx.z * a.bytes) + (long long)run * a.run * a.copies + (i - run * a.run);
    uint4 v = *to;
#pragma unroll
    for (unsigned int c = 0; c < COPIES; c++) {
        if (first + c == a.copies - 1) v.x &= a.last, v.y &= a.last, v.z &= a.last, v.w &= a.last;
        if (first + c > 0 && first + c < a.copies) to[(long long)(first + c) * a.run] = v;
    }
}
