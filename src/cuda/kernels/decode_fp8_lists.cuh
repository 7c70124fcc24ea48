/* SPDX-License-Identifier: Apache-2.0
 * decode_fp8_lists.cuh: which tokens each expert has, worked out by every block for itself.
 *
 *   routing   from logits, by every block for itself too, a warp for each token
 *   pair      token * top_k + slot.  A token that names an expert twice has one pair of it, the first, with the sum of the weights
 *   group     up to TOKENS columns of one expert: column[TOKENS * group + j] is a pair or -1; expert[group].  Groups ascend by expert;
 *             columns of a group by pair, or, where the batch is no larger than a group, column j is token j */
#ifndef MOII_DECODE_FP8_LISTS_CUH
#define MOII_DECODE_FP8_LISTS_CUH

#include "moe_decode_fp8_sm90_args.h"
#include "num.h"
#include "ptx_sm90.cuh"
#include "route_topk.cuh"

typedef struct lists {
    int *ids, *count, *expert; /* ids: -1 for skipped slots and repetitions; count: of an expert's pairs, then its first group */
    short *place, *column;     /* place: of a pair among its expert's */
    float *weights;            /* pass 2 */
    int groups, pairs;
} lists;

MOII_FN lists lists_at(const moe_decode_fp8_sm90_args &a, char *shared)
{
    lists l;
    l.ids = (int *)(shared + a.at_ids), l.count = (int *)(shared + a.at_count), l.expert = (int *)(shared + a.at_expert);
    l.place = (short *)(shared + a.at_place), l.column = (short *)(shared + a.at_column), l.weights = (float *)(shared + a.at_weights);
    l.pairs = a.tokens * a.top_k;
    l.groups = 0;
    return l;
}

MOII_FN int token_of(const moe_decode_fp8_sm90_args &a, int pair) { return (int)((unsigned int)pair * a.inverse_top_k >> 16); }

/* Each pair's place among those of its expert, in order: one warp. */
MOII_FN void rank_pairs(const lists &l, int lane)
{
    for (int base = 0; base < l.pairs; base += 32) {
        const int i = base + lane, id = i < l.pairs ? l.ids[i] : -1;
        const unsigned int same = __match_any_sync(0xFFFFFFFFu, id), before = same & ((1u << lane) - 1u);
        const int held = id >= 0 ? l.count[id] : 0;
        __syncwarp();
        if (id >= 0) {
            l.place[i] = (short)(held + __popc(before));
            if (!before) l.count[id] = held + __popc(same);
        }
        __syncwarp();
    }
}

/* Groups of the experts that have pairs: one warp. */
MOII_FN void list_groups(const lists &l, int experts, int lane)
{
    int groups = 0;
    for (int base = 0; base < experts; base += 32) {
        const int e = base + lane, n = e < experts ? l.count[e] : 0, mine = (n + TOKENS - 1) / TOKENS;
        if (!__ballot_sync(0xFFFFFFFFu, n > 0)) continue;
        int sum = mine; /* inclusive */
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
            if (lane >= step) sum += other;
        }
        const int first = groups + sum - mine;
        if (n > 0) l.count[e] = first;
        for (int i = 0; i < mine; i++) l.expert[first + i] = e;
        groups += __shfl_sync(0xFFFFFFFFu, sum, 31);
    }
    if (lane == 0) l.count[experts] = groups;
}

/* The pair's id, -1 if its token has named that expert before; else the pair's weight becomes the sum over the expert's slots. */
MOII_FN int id_of(const lists &l, const moe_decode_fp8_sm90_args &a, int pair)
{
    const int id = l.ids[pair], token = token_of(a, pair) * a.top_k;
    for (int i = token; i < pair; i++)
        if (l.ids[i] == id) return -1;
    return id;
}
MOII_FN float weight_of(const lists &l, const moe_decode_fp8_sm90_args &a, int pair)
{
    const int id = l.ids[pair], end = (token_of(a, pair) + 1) * a.top_k;
    float w = l.weights[pair];
    for (int i = pair + 1; i < end; i++)
        if (l.ids[i] == id) w += l.weights[i];
    return w;
}

/* Threads that make the lists: those that split x need none where columns are tokens. */
MOII_FN int makers(const moe_decode_fp8_sm90_args &a) { return PASS == 1 && a.dense ? FP8_THREADS - 32 * FP8_SPLITTERS : FP8_THREADS; }
MOII_FN void makers_meet(const moe_decode_fp8_sm90_args &a) { threads_meet(2, makers(a)); }

/* Up to 32 pairs of up to TOKENS tokens, in one warp's registers. */
MOII_FN void list_few(lists &l, const moe_decode_fp8_sm90_args &a, int lane)
{
    const int named = lane < l.pairs ? (a.logits ? l.ids[lane] : __ldcg(a.ids + lane)) : -1, token = token_of(a, lane);
    float weight = PASS == 2 && lane < l.pairs && !a.logits ? __ldcg(a.weights + lane) : 0;
    for (int i = lane; i < a.most_groups * TOKENS / 2; i += 32) ((int *)l.column)[i] = -1;
    const int id = named < a.experts ? named : -1;
    const unsigned int before = (1u << lane) - 1u, same = __match_any_sync(0xFFFFFFFFu, id), mine = same & ((1u << a.top_k) - 1u) << token * a.top_k;
    const bool repeats = id >= 0 && (mine & before) != 0;
    if (PASS == 2 && __any_sync(0xFFFFFFFFu, repeats)) {
        float sum = weight;
        for (int i = 1; i < a.top_k; i++) {
            const float other = __shfl_down_sync(0xFFFFFFFFu, weight, i);
            if (lane + i < 32 && mine >> (lane + i) & 1u) sum += other;
        }
        weight = sum;
    }
    const bool leads = id >= 0 && !(same & before);
    unsigned int leaders = __ballot_sync(0xFFFFFFFFu, leads);
    const int groups = __popc(leaders);
    int group = 0;
    for (; leaders; leaders &= leaders - 1u) group += __shfl_sync(0xFFFFFFFFu, id, __ffs(leaders) - 1) < id ? 1 : 0;
    __syncwarp();
    if (leads) l.expert[group] = id;
    if (id >= 0 && !repeats) l.column[group * TOKENS + token] = (short)lane;
    if (PASS == 2 && lane < l.pairs && !a.logits) l.weights[lane] = weight;
    if (lane == 0) l.count[a.experts] = groups;
}

/* Pairs of a thread. */
enum { MOST_OWN = (FP8_MOST_PAIRS - 1) / (FP8_THREADS - (PASS == 1 ? 32 * FP8_SPLITTERS : 0)) + 1 };

MOII_FN void merge_repeated(lists &l, const moe_decode_fp8_sm90_args &a, int thread, int threads)
{
    int own[MOST_OWN];
    float weight[MOST_OWN];
#pragma unroll
    for (int n = 0; n < MOST_OWN; n++) {
        const int i = thread + n * threads;
        own[n] = i < l.pairs ? id_of(l, a, i) : -1;
        weight[n] = PASS == 2 && own[n] >= 0 ? weight_of(l, a, i) : 0;
    }
    makers_meet(a);
#pragma unroll
    for (int n = 0; n < MOST_OWN; n++) {
        const int i = thread + n * threads;
        if (i < l.pairs) l.ids[i] = own[n];
        if (PASS == 2 && i < l.pairs) l.weights[i] = weight[n];
    }
    makers_meet(a);
}

MOII_FN void list_many(lists &l, const moe_decode_fp8_sm90_args &a, int thread)
{
    const int threads = makers(a);
#pragma unroll 1
    for (int i = thread; i < l.pairs && !a.logits; i += threads) {
        const int id = __ldcg(a.ids + i);
        l.ids[i] = id < a.experts ? id : -1;
        if (PASS == 2) l.weights[i] = __ldcg(a.weights + i);
    }
#pragma unroll 1
    for (int e = thread; e < a.experts; e += threads) l.count[e] = 0;
    for (int i = thread; i < a.most_groups * TOKENS / 2; i += threads) ((int *)l.column)[i] = -1;
    makers_meet(a);
    if (!a.logits) merge_repeated(l, a, thread, threads); /* routing repeats none */
    makers_meet(a);
    if (thread < 32) {
        rank_pairs(l, thread);
        list_groups(l, a.experts, thread);
    }
    makers_meet(a);
    for (int i = thread; i < l.pairs; i += threads) {
        const int id = l.ids[i], place = l.place[i];
        if (id >= 0) l.column[l.count[id] * TOKENS + (a.dense ? token_of(a, i) : place)] = (short)i;
    }
}

MOII_FN route_shape routing_of(const moe_decode_fp8_sm90_args &a)
{
    route_shape s;
    s.experts = a.experts, s.top_k = a.top_k, s.renormalize = a.renormalize != 0;
    return s;
}

/* Pass 1, from logits: each token's ids and weights for pass 2 and the caller, by one warp of one block. */
MOII_FN void hand_out(const moe_decode_fp8_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int t = (int)blockIdx.x; t < a.tokens; t += (int)gridDim.x)
        route_held(a.logits + (long long)t * a.experts, 0, routing_of(a), a.ids_out + t * a.top_k, a.weights_out + t * a.top_k, 8, lane);
}

/* The makers' threads; the ids or logits are in device memory, and final.  From logits, weights come later. */
MOII_FN void make_lists(lists &l, const moe_decode_fp8_sm90_args &a)
{
    const int skipped = PASS == 1 && a.dense && threadIdx.x >= FP8_MULTIPLIERS ? 32 * FP8_SPLITTERS : 0, thread = (int)threadIdx.x - skipped;
    if (a.logits) {
#pragma unroll 1
        for (int t = thread / 32; t < a.tokens; t += makers(a) / 32)
            route_ids(a.logits + (long long)t * a.experts, routing_of(a), l.ids + t * a.top_k, thread % 32);
        makers_meet(a);
    }
    if (a.tokens <= TOKENS && l.pairs <= 32) {
        if (thread < 32) list_few(l, a, thread);
    } else list_many(l, a, thread);
    makers_meet(a);
    l.groups = l.count[a.experts];
}

#endif
