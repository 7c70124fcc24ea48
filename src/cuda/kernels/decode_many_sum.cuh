/* SPDX-License-Identifier: Apache-2.0
 * decode_many_sum.cuh: pass 3 of moe_decode_many_sm90: y = sum of weight * what pass 2 left for a token's pairs, its first slot's first.
 *
 * A piece is 128 outputs of a token, 4 for each lane of a warp; pieces go round the warps of the grid.  Up to 8 columns a job, and with BF16, a multiprocessor
 * has room for one block of this beside one of pass 2 or of the next layer's pass 1, which then begins before this ends; else it has two, alone.  A token that
 * names an expert twice has one pair of it, the first, with the sum of the weights.  Sums that are read would be written to memory some time, which costs reads
 * more than their bytes: where they are many, they are discarded.  y stays in L2 for what reads it next. */
#ifndef MOII_DECODE_MANY_SUM_CUH
#define MOII_DECODE_MANY_SUM_CUH

#include "moe_decode_f16_sm90_args.h"
#include "num.h"
#include "own_warp.cuh"
#include "ptx_sm90.cuh"

enum { SLOTS_AT_ONCE = 8, PIECE = 128 };

/* A lane's outputs of a token, and in lane j the weight of slot j; there_are: slots that have a pair. */
typedef struct piece { const float *from; unsigned int to, there_are; float weight; } piece;

/* A lane behind the row's end has outputs of its last one, which it does not store. */
enum { NOWHERE = 0xFFFFFFFFu };
MOII_FN int pieces_of(const moe_decode_f16_sm90_args &a) { return (a.hidden + PIECE - 1) / PIECE; } /* of a token */
MOII_FN piece piece_of(const moe_decode_f16_sm90_args &a, int number, int lane)
{
    const int pieces = pieces_of(a), token = number / pieces, first = (number - token * pieces) * PIECE + lane * 4, at = min(first, a.hidden - 4);
    const bool mine = lane < a.top_k;
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
    p.from = a.sums + (unsigned int)(token * a.top_k * a.hidden + at), p.to = first == at ? (unsigned int)(token * a.hidden + at) : NOWHERE;
    return p;
}

MOII_FN unsigned int output_pair(float low, float high) { return moii_bf16_encode(low) | moii_bf16_encode(high) << 16; }

typedef struct output { float y[4]; } output;
MOII_FN void add_pair(output &o, float weight, const float4 &v)
{
    o.y[0] = __fmaf_rn(weight, v.x, o.y[0]), o.y[1] = __fmaf_rn(weight, v.y, o.y[1]);
    o.y[2] = __fmaf_rn(weight, v.z, o.y[2]), o.y[3] = __fmaf_rn(weight, v.w, o.y[3]);
}

/* Eight slots of a piece, all of which have a pair: loads that nothing stands between, then their sum. */
enum { ALL_EIGHT = (1 << SLOTS_AT_ONCE) - 1 };
MOII_FN void add_eight(output &o, const piece &p, int first, const moe_decode_f16_sm90_args &a)
{
    float4 v[SLOTS_AT_ONCE];
#pragma unroll
    for (int j = 0; j < SLOTS_AT_ONCE; j++) v[j] = __ldcg((const float4 *)(p.from + (unsigned int)(j * a.hidden)));
#pragma unroll
    for (int j = 0; j < SLOTS_AT_ONCE; j++) add_pair(o, __shfl_sync(0xFFFFFFFFu, p.weight, first + j), v[j]);
}
/* Any. */
MOII_FN void add_some(output &o, const piece &p, int first, const moe_decode_f16_sm90_args &a)
{
#pragma unroll 1
    for (int j = 0; j < SLOTS_AT_ONCE; j++) {
        const float weight = __shfl_sync(0xFFFFFFFFu, p.weight, (first + j) % 32);
        if (p.there_are & 1u << j) add_pair(o, weight, __ldcg((const float4 *)(p.from + (unsigned int)(j * a.hidden))));
    }
}

MOII_FN void sum_piece(const moe_decode_f16_sm90_args &a, piece p)
{
    output o = {};
#pragma unroll 1
    for (int first = 0; first < a.top_k; first += SLOTS_AT_ONCE) {
        if ((p.there_are & ALL_EIGHT) == ALL_EIGHT) add_eight(o, p, first, a);
        else add_some(o, p, first, a);
        p.from += SLOTS_AT_ONCE * a.hidden, p.there_are >>= SLOTS_AT_ONCE;
    }
    const uint2 pairs = make_uint2(output_pair(o.y[0], o.y[1]), output_pair(o.y[2], o.y[3]));
    const uint4 all = make_uint4(moii_bits_of(o.y[0]), moii_bits_of(o.y[1]), moii_bits_of(o.y[2]), moii_bits_of(o.y[3]));
    if (p.to != NOWHERE && a.out_f32) store_four((float *)a.out + p.to, all, a.kept);
    if (p.to != NOWHERE && !a.out_f32) store_two((unsigned short *)a.out + p.to, pairs, a.kept);
}
/* Of all of a token's slots, when every lane has stored its outputs: a lane has one line of four, of every eighth slot. */
MOII_FN void discard_piece(const moe_decode_f16_sm90_args &a, int number, int lane)
{
    const int pieces = pieces_of(a), token = number / pieces, at = (number - token * pieces) * PIECE + lane % 4 * (PIECE / 4);
    __syncwarp();
#pragma unroll 1
    for (int slot = lane / 4; slot < a.top_k && at < a.hidden; slot += SLOTS_AT_ONCE)
        line_discard(a.sums + (unsigned int)((token * a.top_k + slot) * a.hidden + at));
}

/* Ids and weights were there before pass 2 started; its sums are when it has ended. */
MOII_FN void sum_pairs(const moe_decode_f16_sm90_args &a)
{
    const int lane = (int)threadIdx.x % 32, step = (int)(gridDim.x * MANY_SUM_WARPS);
    int number = (int)blockIdx.x + own_warp() * (int)gridDim.x;
    for (bool waited = false; number < a.tokens * pieces_of(a); number += step, waited = true) {
        const piece p = piece_of(a, number, lane);
        if (!waited) grid_wait();
        sum_piece(a, p);
        if (a.discards) discard_piece(a, number, lane);
    }
}

#endif
