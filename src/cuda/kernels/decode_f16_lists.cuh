/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_lists.cuh: which tokens each expert has, worked out by every block for itself.
 *
 *   routing   from logits, by every block for itself too, a warp for each token
 *   pair      token * top_k + slot.  A token that names an expert twice has one pair of it, the first, with the sum of the weights
 *   job       up to COLUMNS tokens of one expert: column[COLUMNS * job + j] is a pair or -1; expert[job].  Jobs ascend by expert; columns
 *             by pair, or, for up to 8 tokens (dense), column j is token j */
#ifndef MOII_DECODE_F16_LISTS_CUH
#define MOII_DECODE_F16_LISTS_CUH

#include "moe_decode_f16_sm90_args.h"
#include "num.h"
#include "ptx_sm90.cuh"
#include "route_topk.cuh"

enum { COLUMNS = 8 * GROUPS, SENDER = F16_WARPS - 1 };

typedef struct lists {
    int *ids, *count, *expert; /* ids: -1 for skipped slots and repetitions; count: of an expert's pairs or its tokens' bits, then its first job */
    short *place, *column;     /* place: of a pair among its expert's */
    float *weights;            /* pass 2 */
    int jobs, pairs;
} lists;

MOII_FN lists lists_at(const moe_decode_f16_sm90_args &a, char *shared)
{
    lists l;
    l.ids = (int *)(shared + a.at_ids), l.count = (int *)(shared + a.at_count), l.expert = (int *)(shared + a.at_expert);
    l.place = (short *)(shared + a.at_place), l.column = (short *)(shared + a.at_column), l.weights = (float *)(shared + a.at_weights);
    l.pairs = a.tokens * a.top_k;
    l.jobs = 0;
    return l;
}

MOII_FN int token_of(const moe_decode_f16_sm90_args &a, int pair) { return (int)((unsigned int)pair * a.inverse_top_k >> 16); }

MOII_FN route_shape routing_of(const moe_decode_f16_sm90_args &a)
{
    route_shape s;
    s.experts = a.experts, s.top_k = a.top_k, s.renormalize = a.renormalize != 0;
    return s;
}

/* Pass 1, from logits: each token's ids and weights for pass 2 and the caller, by one warp of one block. */
MOII_FN void hand_out(const moe_decode_f16_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int t = (int)blockIdx.x; t < a.tokens; t += (int)gridDim.x)
        route_held(a.logits + (long long)t * a.experts, 0, routing_of(a), a.ids_out + t * a.top_k, a.weights_out + t * a.top_k, 8, lane);
}

/* A pair's id, -1 if its token has named that expert before; else *weight, in pass 2, becomes the sum over the expert's slots. */
MOII_FN int merged(const lists &l, const moe_decode_f16_sm90_args &a, int pair, float *weight)
{
    const int id = l.ids[pair], first = token_of(a, pair) * a.top_k;
    float w = PASS == 2 ? l.weights[pair] : 0;
    bool repeats = false;
#pragma unroll 1
    for (int i = first; i < first + a.top_k; i++) {
        const bool same = l.ids[i] == id;
        repeats = repeats || (same && i < pair);
        if (PASS == 2 && same && i > pair) w += l.weights[i];
    }
    *weight = w;
    return repeats ? -1 : id;
}

/* Jobs of the experts that have pairs (each: bits of tokens, or how many): one warp. */
MOII_FN void list_jobs(const lists &l, int experts, bool bits, int lane)
{
    int jobs = 0;
#pragma unroll 1
    for (int base = 0; base < experts; base += 32) {
        const int e = base + lane, n = e < experts ? l.count[e] : 0;
        const unsigned int found = __ballot_sync(0xFFFFFFFFu, n > 0), lower = found & ((1u << lane) - 1u);
        if (!found) continue;
        int first = jobs + __popc(lower), all = __popc(found), mine = n > 0 ? 1 : 0;
        if (!bits && __any_sync(0xFFFFFFFFu, n > COLUMNS)) {
            mine = (n + COLUMNS - 1) / COLUMNS;
            int sum = mine; /* inclusive */
            for (int step = 1; step < 32; step *= 2) {
                const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
                if (lane >= step) sum += other;
            }
            first = jobs + sum - mine, all = __shfl_sync(0xFFFFFFFFu, sum, 31);
        }
        if (n > 0) l.count[e] = first;
        for (int i = 0; i < mine; i++) l.expert[first + i] = e;
        jobs += all;
    }
    if (lane == 0) l.count[experts] = jobs;
    __syncwarp();
}

enum { FEW_PAIRS = 128 }; /* of 8 tokens */

/* Up to 8 tokens: one warp; counts are 0 and columns -1. */
MOII_FN void list_few(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
    int id[FEW_PAIRS / 32];
    float weight[FEW_PAIRS / 32];
#pragma unroll
    for (int n = 0; n < FEW_PAIRS / 32; n++) {
        const int i = lane + 32 * n;
        id[n] = i >= l.pairs ? -1 : a.logits ? l.ids[i] : __ldcg(a.ids + i);
        if (id[n] >= a.experts) id[n] = -1;
        weight[n] = PASS == 2 && i < l.pairs && !a.logits ? __ldcg(a.weights + i) : 0;
    }
    if (!a.logits) { /* routing repeats none */
#pragma unroll
        for (int n = 0; n < FEW_PAIRS / 32; n++)
            if (lane + 32 * n < l.pairs) {
                l.ids[lane + 32 * n] = id[n];
                if (PASS == 2) l.weights[lane + 32 * n] = weight[n];
            }
        __syncwarp();
#pragma unroll
        for (int n = 0; n < FEW_PAIRS / 32; n++)
            if (32 * n < l.pairs && lane + 32 * n < l.pairs) id[n] = merged(l, a, lane + 32 * n, &weight[n]);
        __syncwarp();
    }
#pragma unroll
    for (int n = 0; n < FEW_PAIRS / 32; n++) {
        const int i = lane + 32 * n;
        if (i < l.pairs && id[n] >= 0) atomicOr(l.count + id[n], 1 << token_of(a, i));
        if (PASS == 2 && i < l.pairs && !a.logits) l.weights[i] = weight[n];
    }
    __syncwarp();
    list_jobs(l, a.experts, true, lane);
#pragma unroll
    for (int n = 0; n < FEW_PAIRS / 32; n++) {
        const int i = lane + 32 * n;
        if (i < l.pairs && id[n] >= 0) l.column[l.count[id[n]] * COLUMNS + token_of(a, i)] = (short)i;
    }
    __syncwarp();
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
            l.place[i] = (short)(held + __popc(before));
            if (!before) l.count[id] = held + __popc(same);
        }
        __syncwarp();
    }
}

/* Pairs of a thread. */
enum { MOST_OWN = (F16_MOST_PAIRS - 1) / F16_THREADS + 1 };

/* All threads; ids are in l.ids, weights in l.weights. */
MOII_FN void merge_repeated(const lists &l, const moe_decode_f16_sm90_args &a)
{
    int own[MOST_OWN];
    float weight[MOST_OWN];
#pragma unroll
    for (int n = 0; n < MOST_OWN; n++) {
        const int i = (int)threadIdx.x + n * F16_THREADS;
        own[n] = i < l.pairs ? merged(l, a, i, &weight[n]) : -1;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < MOST_OWN; n++) {
        const int i = (int)threadIdx.x + n * F16_THREADS;
        if (i < l.pairs) l.ids[i] = own[n];
        if (PASS == 2 && i < l.pairs) l.weights[i] = weight[n];
    }
}

MOII_FN void list_many(const lists &l, const moe_decode_f16_sm90_args &a)
{
    const int thread = (int)threadIdx.x;
#pragma unroll 1
    for (int i = thread; i < l.pairs && !a.logits; i += F16_THREADS) {
        const int id = __ldcg(a.ids + i);
        l.ids[i] = id < a.experts ? id : -1;
        if (PASS == 2) l.weights[i] = __ldcg(a.weights + i);
    }
    __syncthreads();
    if (!a.logits) merge_repeated(l, a);
    __syncthreads();
    if (thread / 32 == SENDER) {
        rank_pairs(l, thread % 32);
        list_jobs(l, a.experts, false, thread % 32);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = thread; i < l.pairs; i += F16_THREADS) {
        if (l.ids[i] >= 0) l.column[l.count[l.ids[i]] * COLUMNS + l.place[i]] = (short)i;
    }
    __syncthreads();
}

/* Before the routing is known. */
MOII_FN void clear_lists(const lists &l, const moe_decode_f16_sm90_args &a)
{
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < a.experts; e += F16_THREADS) l.count[e] = 0;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.most_jobs * COLUMNS / 2; i += F16_THREADS) ((int *)l.column)[i] = -1;
    __syncthreads();
}

/* All threads; the logits are in device memory, and final: ids, where the layer begins with logits. */
MOII_FN void route_tokens(const lists &l, const moe_decode_f16_sm90_args &a)
{
    if (!a.logits) return;
#pragma unroll 1
    for (int t = SENDER - (int)threadIdx.x / 32; t < a.tokens; t += F16_WARPS)
        route_ids(a.logits + (long long)t * a.experts, routing_of(a), l.ids + t * a.top_k, (int)threadIdx.x % 32);
    if (a.tokens > 1) __syncthreads();
}

/* All threads, behind route_tokens; given ids are in device memory, and final.  From logits, weights come later.  The warp that sends for weights
 * is the first to come back. */
MOII_FN void make_lists(lists &l, const moe_decode_f16_sm90_args &a)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (!a.dense) list_many(l, a);
    else if (warp == SENDER) list_few(l, a, lane);
    if (warp == SENDER) {
        __syncwarp();
        asm volatile("bar.arrive 1, %0;" :: "r"((int)F16_THREADS) : "memory");
    } else threads_meet(1, F16_THREADS);
    l.jobs = l.count[a.experts];
}

/* Asks for what routing and x need to be in L2, each line by one thread of the grid: before it may be read. */
MOII_FN void ask_for(const void *p, long long bytes, int &line)
{
    const int lines = (int)((bytes + 127) / 128), all = (int)(gridDim.x * F16_THREADS);
    for (; line < lines; line += all) asm volatile("prefetch.global.L2 [%0];" :: "l"((const char *)p + (long long)line * 128) : "memory");
    line -= lines;
}
MOII_FN void ask_for_inputs(const moe_decode_f16_sm90_args &a)
{
    int line = (int)(blockIdx.x + threadIdx.x * gridDim.x);
    if (a.logits) ask_for(a.logits, (long long)a.tokens * a.experts * 4, line);
    else ask_for(a.ids, (long long)a.tokens * a.top_k * 4, line);
    ask_for(a.x, (long long)a.tokens * a.hidden * 2, line);
}

#endif
