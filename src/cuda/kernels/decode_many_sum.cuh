/* SPDX-License-Identifier: Apache-2.0
 * decode_many_sum.cuh: pass 3 of moe_decode_many_sm90: y = sum of weight * what pass 2 left for a token's pairs, its first slot's first.
 *
 * A thread has some neighbouring outputs of one token.  A token that names an expert twice has one pair of it, the first, with the sum of the weights. */
#ifndef MOII_DECODE_MANY_SUM_CUH
#define MOII_DECODE_MANY_SUM_CUH

#include "moe_decode_f16_sm90_args.h"
#include "num.h"
#include "ptx_sm90.cuh"

enum { SLOTS_AT_ONCE = 8 };

MOII_FN void sum_pairs(const moe_decode_f16_sm90_args &a)
{
    __shared__ int given[F16_MOST_SLOTS], ids[F16_MOST_SLOTS];
    __shared__ float weights[F16_MOST_SLOTS], sums[F16_MOST_SLOTS];
    const int token = (int)blockIdx.y, slot = (int)threadIdx.x, pair = token * a.top_k;
    if (slot < a.top_k) given[slot] = __ldcg(a.ids + pair + slot), weights[slot] = __ldcg(a.weights + pair + slot);
    __syncthreads();
    if (slot < a.top_k) {
        const int id = given[slot];
        bool keeps = id >= 0 && id < a.experts;
        float weight = weights[slot];
#pragma unroll 1
        for (int j = 0; j < a.top_k; j++) {
            if (given[j] != id || j == slot) continue;
            if (j < slot) keeps = false;
            else weight += weights[j];
        }
        ids[slot] = keeps ? id : -1, sums[slot] = weight;
    }
    __syncthreads();
    grid_wait(); /* ids and weights were there before pass 2 started, its sums are now */
    const int at = ((int)blockIdx.x * (int)blockDim.x + (int)threadIdx.x) * 4;
    if (at >= a.hidden) return;
    float y[4] = {};
#pragma unroll 1
    for (int first = 0; first < a.top_k; first += SLOTS_AT_ONCE) {
        float4 v[SLOTS_AT_ONCE];
#pragma unroll
        for (int j = 0; j < SLOTS_AT_ONCE; j++)
            if (first + j < a.top_k && ids[first + j] >= 0) v[j] = __ldcg((const float4 *)(a.sums + (long long)(pair + first + j) * a.hidden + at));
#pragma unroll
        for (int j = 0; j < SLOTS_AT_ONCE; j++) {
            if (first + j >= a.top_k || ids[first + j] < 0) continue;
            const float weight = sums[first + j];
            y[0] = __fmaf_rn(weight, v[j].x, y[0]), y[1] = __fmaf_rn(weight, v[j].y, y[1]);
            y[2] = __fmaf_rn(weight, v[j].z, y[2]), y[3] = __fmaf_rn(weight, v[j].w, y[3]);
        }
    }
    const long long to = (long long)token * a.hidden + at;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (a.out_f32) ((float *)a.out)[to + i] = y[i];
        else ((unsigned short *)a.out)[to + i] = (unsigned short)moii_bf16_encode(y[i]);
}

#endif
