/* SPDX-License-Identifier: Apache-2.0
 *
 * widen_sm90: E4M3 or E5M2 codes with E8M0 scales to BF16: value = code x 2^(scale - 127); it also clears the counters of a product behind it
 * (product_widen.cuh).
 *
 *   A list may name the rows; counts may say how many a group has.
 *
 *   defines   ELEM: MOI_E4M3 or MOI_E5M2
 *   grid      any; with counts, blocks below each other have different groups; 256 threads, each takes 16 values at a time: half a block of one scale */
#define WIDEN_E5M2 (ELEM == PRODUCT_E5M2)
#include "product_sm90_args.h"
#include "product_scales.cuh"
#include "ptx_sm90.cuh"
#include "row_list.cuh"
#include "widen.cuh"
#include "widen_sm90_args.h"

MOII_FN float scale_at(const widen_sm90_args &a, unsigned int row, unsigned int block)
{
    const unsigned int group = row / a.group_rows;
    return moii_e8m0_decode(__ldg((const unsigned char *)a.scales.p + group * a.scales.group_bytes + scale_index(a.scales, row - group * a.group_rows, block)));
}

/* Sixteen values of a row, half of a block of one scale. */
MOII_FN void widen_piece(const widen_sm90_args &a, const unsigned char *codes, unsigned int row, unsigned int piece, uint4 *to)
{
    const uint4 v = __ldg((const uint4 *)codes + piece);
    const float scale = scale_at(a, row, piece / 2);
    to[0] = make_uint4(widen_pair(v.x, scale), widen_pair(v.x >> 16, scale), widen_pair(v.y, scale), widen_pair(v.y >> 16, scale));
    to[1] = make_uint4(widen_pair(v.z, scale), widen_pair(v.z >> 16, scale), widen_pair(v.w, scale), widen_pair(v.w >> 16, scale));
}

/* So many, from one on: the share of the blocks that lie beside this one. */
MOII_FN void widen_rows(const widen_sm90_args &a, unsigned int first, unsigned int rows)
{
    const unsigned int end = (first + rows) * a.pieces;
    for (unsigned int i = first * a.pieces + blockIdx.x * 256 + threadIdx.x; i < end; i += gridDim.x * 256) {
        const unsigned int at = i / a.pieces, piece = i - at * a.pieces, row = (unsigned int)listed_row(a.list, (int)at);
        widen_piece(a, a.codes + row * a.ld, row, piece, (uint4 *)a.out + i * 2ll);
    }
}

extern "C" __global__ void __launch_bounds__(256, 4) widen_sm90(const __grid_constant__ widen_sm90_args a)
{
    grid_release(); /* who waits for all of it may begin */
    for (unsigned int i = blockIdx.x * 256 + threadIdx.x; i < a.counters; i += gridDim.x * 256) a.counter[i] = 0;
    if (a.counts) {
        for (unsigned int group = blockIdx.y; group < a.groups; group += gridDim.y) {
            const long long there = min(max(__ldg(a.counts + group), 0ll), (long long)a.group_rows);
            widen_rows(a, group * a.group_rows, (unsigned int)there);
        }
    } else {
        widen_rows(a, 0, (unsigned int)listed_rows(a.list, (int)(a.count / a.pieces)));
    }
}
