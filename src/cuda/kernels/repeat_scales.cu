/* SPDX-License-Identifier: Apache-2.0
 *
 * repeat_scales: column-major scales of rows that have one each: all columns become what the first one is.
 *
 *   grid      x: 256 chunks of 16 rows each; y: 16 columns each; z: matrices
 *   threads   256: a chunk each
 */
#include "repeat_scales_args.h"

extern "C" __global__ void __launch_bounds__(256) repeat_scales(const __grid_constant__ repeat_scales_args a)
{
    enum { COLUMNS = 16 };
    const long long i = blockIdx.x * 256LL + threadIdx.x, first = blockIdx.y * (long long)COLUMNS;
    if (i >= a.chunks) return;
    uint4 *const to = (uint4 *)(a.scale + blockIdx.z * a.bytes) + i;
    const uint4 v = *to;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        if (first + c > 0 && first + c < a.blocks) to[(first + c) * a.chunks] = v;
}
