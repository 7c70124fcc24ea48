/* SPDX-License-Identifier: Apache-2.0
 * decode_lists.cuh: which (token, slot) pairs each expert has, worked out by every block for itself.
 *
 *   actives    experts that some token chose, ascending: expert[a], pairs order[start[a]] .. order[start[a + 1] - 1], ascending
 *   routing    from logits, by every block for itself too, a warp for each token
 *   groups     columns of one product: up to 8 pairs of one expert; the groups of active a begin at group[a] */
#ifndef MOII_DECODE_LISTS_CUH
#define MOII_DECODE_LISTS_CUH

#include "moe_decode_sm90_args.h"
#include "num.h"
#include "lane_scan.cuh"
#include "own_warp.cuh"
#include "route_ids.cuh"

typedef struct lists {
    int *ids, *count, *expert, *start, *group;
    unsigned short *slot, *order;
    float *weights; /* pass 2: of the pairs */
    float *ring;    /* free until weights are sent for */
    int actives, pairs;
} lists;

MOII_FN lists lists_at(const moe_decode_sm90_args &a, char *shared)
{
    lists l;
    l.ids = (int *)(shared + a.at_ids), l.count = (int *)(shared + a.at_count), l.expert = (int *)(shared + a.at_expert);
    l.start = (int *)(shared + a.at_start), l.group = (int *)(shared + a.at_group), l.weights = (float *)(shared + a.at_weights);
    l.slot = (unsigned short *)(shared + a.at_slot), l.order = (unsigned short *)(shared + a.at_order);
    l.ring = (float *)(shared + a.at_ring);
    l.pairs = a.tokens * a.top_k;
    l.actives = 0;
    return l;
}

/* Each pair's place among those of its expert, in order: one warp. */
MOII_FN void rank_pairs(const lists &l, int lane)
{
#pragma unroll 1
    for (int base = 0; base < l.pairs; base += 32) {
        const int i = base + lane, id = i < l.pairs ? l.ids[i] : -1;
        const unsigned int same = __match_any_sync(0xFFFFFFFFu, id), before = same & ((1u << lane) - 1u);
        const int held = id >= 0 ? l.count[id] : 0;
        __syncwarp();
        if (id >= 0) {
            l.slot[i] = (unsigned short)(held + __popc(before));
            if (!before) l.count[id] = held + __popc(same);
        }
        __syncwarp();
    }
}

/* Experts with pairs, where their pairs and groups begin; count becomes the beginning: one warp. */
MOII_FN void list_actives(lists &l, int experts, int lane)
{
    int actives = 0, pairs = 0, groups = 0;
#pragma unroll 1
    for (int base = 0; base < experts; base += 32) {
        const int e = base + lane, n = e < experts ? l.count[e] : 0;
        const unsigned int found = __ballot_sync(0xFFFFFFFFu, n > 0);
        if (!found) continue;
        const int g = (n + DECODE_COLUMNS - 1) / DECODE_COLUMNS, sums = lane_scan(n | g << 16, lane); /* fewer than 2^15 pairs */
        const int pair = pairs + (sums & 0xFFFF) - n, group = groups + (sums >> 16) - g, at = actives + __popc(found & ((1u << lane) - 1u));
        if (n > 0) {
            l.expert[at] = e, l.start[at] = pair, l.group[at] = group;
            l.count[e] = pair;
        }
        const int all = __shfl_sync(0xFFFFFFFFu, sums, 31);
        pairs += all & 0xFFFF, groups += all >> 16, actives += __popc(found);
    }
    if (lane == 0) {
        l.start[actives] = pairs, l.group[actives] = groups;
        l.count[experts] = actives;
    }
}

MOII_FN route_shape routing_of(const moe_decode_sm90_args &a)
{
    route_shape s;
    s.experts = a.experts, s.top_k = a.top_k, s.renormalize = a.renormalize != 0;
    return s;
}

/* Pass 1, from logits: each token's ids and weights for pass 2 and the caller, by one warp of one block. */
MOII_FN void hand_out(const moe_decode_sm90_args &a)
{
    const int warp = own_warp(), lane = (int)threadIdx.x % 32, token = (int)blockIdx.x + warp * (int)gridDim.x;
    if (token >= a.tokens) return;
    route_held(a.logits + (long long)token * a.experts, 0, routing_of(a), a.ids_out + token * a.top_k, a.weights_out + token * a.top_k, 8, lane);
}

/* Pass 2: the pairs' weights. */
MOII_FN void fetch_weights(const lists &l, const moe_decode_sm90_args &a)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < l.pairs; i += DECODE_THREADS) l.weights[i] = __ldcg(a.weights + i);
}

/* A token's ids, by one warp. */
MOII_FN void route_token_ids(const lists &l, const moe_decode_sm90_args &a, int token, int lane)
{
    const int per = (a.experts + 31) / 32;
    const float *logits = a.logits + (long long)token * a.experts;
    float *scratch = l.ring + own_warp() * ROUTE_SCRATCH(8);
    int *ids = l.ids + token * a.top_k;
    if (per <= 4) route_ids(route_read(logits, routing_of(a), 4, per, lane), logits, routing_of(a), ids, scratch, 4, per, lane);
    else route_ids(route_read(logits, routing_of(a), 8, per, lane), logits, routing_of(a), ids, scratch, 8, per, lane);
    __syncwarp();
}

/* All threads; the ids or logits are in device memory, and final. */
MOII_FN void make_lists(lists &l, const moe_decode_sm90_args &a)
{
    const int thread = (int)threadIdx.x;
    if (a.logits) {
#pragma unroll 1
        for (int t = own_warp(); t < a.tokens; t += DECODE_WARPS) route_token_ids(l, a, t, thread % 32);
    } else {
#pragma unroll 1
        for (int i = thread; i < l.pairs; i += DECODE_THREADS) {
            const int id = __ldcg(a.ids + i);
            l.ids[i] = id < a.experts ? id : -1;
        }
        if (PASS == 2) fetch_weights(l, a);
    }
#pragma unroll 1
    for (int e = thread; e < a.experts; e += DECODE_THREADS) l.count[e] = 0;
    __syncthreads();
    if (own_warp() == 0) {
        rank_pairs(l, thread);
        list_actives(l, a.experts, thread);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = thread; i < l.pairs; i += DECODE_THREADS)
        if (l.ids[i] >= 0) l.order[l.count[l.ids[i]] + l.slot[i]] = (unsigned short)i;
    l.actives = l.count[a.experts];
    __syncthreads();
}

/* Work: (active, tile, group); pass 1 goes through it with the group changing fastest, then the tile; pass 2 has its tiles outside. */
typedef struct cursor { int active, tile, group, left; } cursor; /* left: groups before pass 2 comes to the next tile */

MOII_FN int groups_of(const lists &l, int active) { return l.group[active + 1] - l.group[active]; }

/* The active whose `tiles` times groups hold item i. */
MOII_FN int active_at(const lists &l, int tiles, int i)
{
    int low = 0, high = l.actives - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (l.group[middle] * tiles <= i) low = middle;
        else high = middle - 1;
    }
    return low;
}

#endif
