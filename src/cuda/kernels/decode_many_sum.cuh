/* SPDX-License-Identifier: Apache-2.0
 * decode_many_sum.cuh: pass 3 of moe_decode_many_sm90: y = sum of weight * what pass 2 left for a token's pairs, its first slot's first.
 *
 * A piece is 128 outputs of a token, 4 for each lane of a warp; pieces go round the warps of the grid.  A multiprocessor has room for one block of this
 * beside one of pass 2 or of the next layer's pass 1, which then begins before this ends.  A token that names an expert twice has one pair of it, the
 * first, with the sum of the weights. */
#ifndef MOII_DECODE_MANY_SUM_CUH
#define MOII_DECODE_MANY_SUM_CUH

#include "moe_decode_f16_sm90_args.h"
#include "num.h"
#include "own_warp.cuh"
#include "ptx_sm90.cuh"

enum { AT_ONCE = 2, SLOTS_AT_ONCE = 8, PIECE = 128 };

/* A lane's outputs of a token, and in lane j the weight of slot j; there_are: slots that have a pair. */
typedef struct piece { unsigned int from, to, there_are; float weight; } piece;

/* There is none: no slot has a pair, and `to` is NOWHERE. */
enum { NOWHERE = 0xFFFFFFFFu };
MOII_FN piece piece_of(const moe_decode_f16_sm90_args &a, int number, int lane)
{
    const int pieces = a.hidden / PIECE, token = number / pieces, at = (number - token * pieces) * PIECE + lane * 4;
    const bool mine = token < a.tokens && lane < a.top_k;
    const int given = mine ? __ldcg(a.ids + token * a.top_k + lane) : -1;
    const float weight = mine ? __ldcg(a.weights + token * a.top_k + lane) : 0;
    bool keeps = given >= 0 && given < a.experts;
    piece p;
    p.weight = weight;
#pragma unroll 1
    for (int j = 0; j < a.top_k; j++) {
        const int id = __shfl_sync(0xFFFFFFFFu, given, j);
        const float more = __shfl_sync(0xFFFFFFFFu, weight, j);
        keeps = keeps && (id != given || j >= lane);
        p.weight += id == given && j > lane ? more : 0.0f;
    }
    p.there_are = __ballot_sync(0xFFFFFFFFu, keeps);
    p.from = (unsigned int)(token * a.top_k * a.hidden + at), p.to = token < a.tokens ? (unsigned int)(token * a.hidden + at) : NOWHERE;
    return p;
}

MOII_FN unsigned int output_pair(float low, float high) { return moii_bf16_encode(low) | moii_bf16_encode(high) << 16; }

MOII_FN void sum_pieces(const moe_decode_f16_sm90_args &a, const piece p[AT_ONCE])
{
    float y[AT_ONCE][4] = {};
#pragma unroll 1
    for (int first = 0; first < a.top_k; first += SLOTS_AT_ONCE) {
        float4 v[AT_ONCE][SLOTS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int j = 0; j < SLOTS_AT_ONCE; j++)
                if (p[i].there_are >> (first + j) & 1) v[i][j] = __ldcg((const float4 *)(a.sums + (p[i].from + (unsigned int)((first + j) * a.hidden))));
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
            for (int j = 0; j < SLOTS_AT_ONCE; j++) {
                const bool is = p[i].there_are >> (first + j) & 1;
                const float weight = __shfl_sync(0xFFFFFFFFu, p[i].weight, first + j);
                y[i][0] = is ? __fmaf_rn(weight, v[i][j].x, y[i][0]) : y[i][0], y[i][1] = is ? __fmaf_rn(weight, v[i][j].y, y[i][1]) : y[i][1];
                y[i][2] = is ? __fmaf_rn(weight, v[i][j].z, y[i][2]) : y[i][2], y[i][3] = is ? __fmaf_rn(weight, v[i][j].w, y[i][3]) : y[i][3];
            }
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const uint2 both = make_uint2(output_pair(y[i][0], y[i][1]), output_pair(y[i][2], y[i][3]));
        if (p[i].to == NOWHERE) continue;
        if (a.out_f32) *(float4 *)((float *)a.out + p[i].to) = make_float4(y[i][0], y[i][1], y[i][2], y[i][3]);
        else *(uint2 *)((unsigned short *)a.out + p[i].to) = both;
    }
}

/* Ids and weights were there before pass 2 started; its sums are when it has ended. */
MOII_FN void sum_pairs(const moe_decode_f16_sm90_args &a)
{
    const int lane = (int)threadIdx.x % 32, step = (int)(gridDim.x * MANY_SUM_WARPS);
    int number = (int)blockIdx.x + own_warp() * (int)gridDim.x;
    for (bool waited = false; number < a.tokens * (a.hidden / PIECE); number += AT_ONCE * step, waited = true) {
        piece p[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) p[i] = piece_of(a, number + i * step, lane);
        if (!waited) grid_wait();
        sum_pieces(a, p);
    }
}

#endif
