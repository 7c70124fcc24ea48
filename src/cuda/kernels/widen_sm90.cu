/* SPDX-License-Identifier: Apache-2.0
 *
 * widen_sm90: E4M3 or E5M2 codes with E8M0 scales to BF16: value = code x 2^(scale - 127); it also clears the counters
 * of a product behind it (product_widen.cuh).
 *
 *   A list may name the rows.
 *
 *   defines   E5M2: 1, or 0 for E4M3
 *   grid      any; 256 threads, each takes 16 values at a time: half a block of one scale */
#define WIDEN_E5M2 E5M2
#include "product_scales.cuh"
#include "row_list.cuh"
#include "widen.cuh"
#include "widen_sm90_args.h"

MOII_FN float scale_at(const widen_sm90_args &a, unsigned int row, unsigned int block)
{
    const unsigned int group = row / a.group_rows;
    return moii_e8m0_decode(__ldg((const unsigned char *)a.scales.p + group * a.scales.group_bytes + scale_index(a.scales, row - group * a.group_rows, block)));
}

extern "C" __global__ void __launch_bounds__(256, 4) widen_sm90(const __grid_constant__ widen_sm90_args a)
{
    for (unsigned int i = blockIdx.x * 256 + threadIdx.x; i < a.counters; i += gridDim.x * 256) a.counter[i] = 0;
    const unsigned int count = a.list.rows ? (unsigned int)listed_rows(a.list, (int)(a.count / a.pieces)) * a.pieces : a.count;
    for (unsigned int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
        const unsigned int at = i / a.pieces, piece = i - at * a.pieces, row = (unsigned int)listed_row(a.list, (int)at);
        const uint4 v = __ldg((const uint4 *)(a.codes + row * a.ld + piece * 16ll));
        const float scale = scale_at(a, row, piece / 2);
        uint4 *to = (uint4 *)a.out + i * 2ll;
        to[0] = make_uint4(widen_pair(v.x, scale), widen_pair(v.x >> 16, scale), widen_pair(v.y, scale), widen_pair(v.y >> 16, scale));
        to[1] = make_uint4(widen_pair(v.z, scale), widen_pair(v.z >> 16, scale), widen_pair(v.w, scale), widen_pair(v.w >> 16, scale));
    }
}
