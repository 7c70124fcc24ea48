/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_lists.cuh: which tokens each expert has, worked out by every block for itself.
 *
 *   routing   from logits, by every block for itself too, a warp for each token: ids in pass 1, weights too in pass 2
 *   pair      token * top_k + slot.  A token that names an expert twice has one pair of it, the first, with the sum of the weights
 *   job       the tokens of one expert: column[8 * job + token] is a pair or -1; expert[job] */
#ifndef MOII_DECODE_F16_LISTS_CUH
#define MOII_DECODE_F16_LISTS_CUH

#include "moe_decode_f16_sm90_args.h"
#include "num.h"
#include "ptx_sm90.cuh"
#include "route_topk.cuh"

/* Barriers of whole warps. */
enum { BARRIER_LISTS = 1, BARRIER_ROUTED, BARRIER_TILE };
enum { LISTER = PASS == 1 ? F16_WORKERS : 0 };
enum { WARPS = PASS == 1 ? F16_UP_WARPS : F16_DOWN_WARPS, THREADS = 32 * WARPS };

typedef struct lists {
    int *ids, *first, *expert; /* ids: -1 for skipped slots and repetitions; first: an expert's first pair, behind them the number of jobs */
    short *column, *job;       /* job: of a pair that is an expert's first */
    float *weights;            /* pass 2 */
    int jobs, pairs;
} lists;

MOII_FN lists lists_at(const moe_decode_f16_sm90_args &a, char *shared)
{
    lists l;
    l.ids = (int *)(shared + a.at_ids), l.first = (int *)(shared + a.at_first), l.expert = (int *)(shared + a.at_expert);
    l.column = (short *)(shared + a.at_column), l.job = (short *)(shared + a.at_job), l.weights = (float *)(shared + a.at_weights);
    l.pairs = a.tokens * a.top_k;
    l.jobs = 0;
    return l;
}

MOII_FN int token_of(const moe_decode_f16_sm90_args &a, int pair) { return (int)((unsigned int)pair * a.inverse_top_k >> 16); }

/* Ids and weights as given; of an expert that a token names twice the first pair alone, with the sum of the weights: one warp. */
MOII_FN void take_ids(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int i = lane; i < l.pairs; i += 32) {
        const int id = __ldcg(a.ids + i);
        l.ids[i] = id < a.experts ? id : -1;
        if (PASS == 2) l.weights[i] = __ldcg(a.weights + i);
    }
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < l.pairs; base += 32) { /* later pairs are still as they were given */
        const int pair = base + lane, id = pair < l.pairs ? l.ids[pair] : -1, first = token_of(a, pair) * a.top_k;
        float weight = PASS == 2 && id >= 0 ? l.weights[pair] : 0;
        bool repeats = false;
#pragma unroll 1
        for (int i = first; i < first + a.top_k && id >= 0; i++) {
            const bool same = l.ids[i] == id;
            repeats = repeats || (same && i < pair);
            if (PASS == 2 && same && i > pair) weight += l.weights[i];
        }
        __syncwarp();
        if (repeats) l.ids[pair] = -1;
        else if (PASS == 2 && id >= 0) l.weights[pair] = weight;
        __syncwarp();
    }
}

/* Jobs, in the order of the pairs that come first: one warp. */
MOII_FN void list_jobs(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int i = lane; i < l.pairs; i += 32)
        if (l.ids[i] >= 0) atomicMin(l.first + l.ids[i], i);
    __syncwarp();
    int jobs = 0;
#pragma unroll 1
    for (int base = 0; base < l.pairs; base += 32) {
        const int i = base + lane, id = i < l.pairs ? l.ids[i] : -1;
        const bool leads = id >= 0 && l.first[id] == i;
        const unsigned int found = __ballot_sync(0xFFFFFFFFu, leads);
        const int job = jobs + __popc(found & ((1u << lane) - 1u));
        if (leads) l.expert[job] = id, l.job[i] = (short)job;
        jobs += __popc(found);
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < l.pairs; i += 32)
        if (l.ids[i] >= 0) l.column[l.job[l.first[l.ids[i]]] * F16_MOST_TOKENS + token_of(a, i)] = (short)i;
    if (lane == 0) l.first[a.experts] = jobs;
    __syncwarp();
}

/* Before the routing is known: all threads. */
MOII_FN void clear_lists(const lists &l, const moe_decode_f16_sm90_args &a)
{
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < a.experts; e += THREADS) l.first[e] = 0x7FFFFFFF;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.most_jobs * F16_MOST_TOKENS / 2; i += THREADS) ((int *)l.column)[i] = -1;
    __syncthreads();
}

/* From logits, which are in device memory, and final: the first token by the warp that makes the lists, the others by workers. */
MOII_FN void route_tokens(const lists &l, const moe_decode_f16_sm90_args &a, int warp, int lane)
{
    const int token = PASS == 2 || warp > LISTER ? warp : warp == LISTER ? 0 : warp + 1;
    if (!a.logits || token >= a.tokens) return;
    route_shape s;
    s.experts = a.experts, s.top_k = a.top_k, s.renormalize = a.renormalize != 0;
    const float *logits = a.logits + (long long)token * a.experts;
    const int per = (a.experts + 31) / 32;
    int *ids = l.ids + token * a.top_k;
    bool sure = PASS == 1 && route_by_logits(logits, s, ids, HELD, per, lane);
    __syncwarp();
    if (!sure) route_held(logits, 0, s, ids, PASS == 2 ? l.weights + token * a.top_k : (float *)0, HELD, lane);
    if (a.tokens == 1) return;
    if (warp == LISTER) threads_meet(BARRIER_ROUTED, 32 * a.tokens);
    else asm volatile("bar.arrive %0, %1;" :: "r"((int)BARRIER_ROUTED), "r"(32 * a.tokens) : "memory");
}

/* All threads, behind route_tokens; given ids are in device memory, and final.  */
MOII_FN void make_lists(lists &l, const moe_decode_f16_sm90_args &a, int warp, int lane)
{
    if (warp == LISTER) {
        if (!a.logits) take_ids(l, a, lane);
        list_jobs(l, a, lane);
    }
    threads_meet(BARRIER_LISTS, THREADS);
    l.jobs = l.first[a.experts];
#if PASS == 2
    if (!a.logits || warp) return;
    for (int t = (int)blockIdx.x; t < a.tokens; t += (int)gridDim.x) /* for the caller */
        if (lane < a.top_k) a.ids_out[t * a.top_k + lane] = l.ids[t * a.top_k + lane], a.weights_out[t * a.top_k + lane] = l.weights[t * a.top_k + lane];
#endif
}

/* Asks for what routing and x need to be in L2, each line by one thread of the grid: before it may be read. */
MOII_FN void ask_for(const void *p, long long bytes, int &line)
{
    const int lines = (int)((bytes + 127) / 128), all = (int)(gridDim.x * THREADS);
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
