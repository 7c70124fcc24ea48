/* SPDX-License-Identifier: Apache-2.0
 * decode_many_lists.cuh: which tokens each expert has, for up to MANY_TOKENS tokens: worked out by every block of pass 1 for itself, and left by
 * it to pass 2.
 *
 *   pair   token * top_k + slot.  A token that names an expert twice has one pair of it, the first, with the sum of the weights
 *   job    up to a.columns pairs of one expert, in their order; jobs are in the order of the experts */
#ifndef MOII_DECODE_MANY_LISTS_CUH
#define MOII_DECODE_MANY_LISTS_CUH

#include "decode_f16_pairs.cuh"
#include "ptx_sm90.cuh"

enum { WORKERS = PASS == 1 ? MANY_UP_WORKERS : MANY_DOWN_WORKERS, TEAMS = MANY_TEAMS, WARPS = PASS == 1 ? MANY_UP_WARPS : MANY_DOWN_WARPS };
enum { THREADS = 32 * WARPS };

#include "decode_f16_inputs.cuh"

typedef struct lists {
    short *ids, *kept;     /* of pairs: as given, -1: none; without repetitions */
    int *count, *first;    /* of experts: pairs, and the first job; behind them the number of jobs */
    int *scratch;          /* a warp's 32 words */
    int *job;              /* its expert, and its columns << 16; pass 2: of the block's jobs, and nothing above */
    int jobs, pairs;
} lists;

MOII_FN lists lists_at(const moe_decode_f16_sm90_args &a, char *shared)
{
    lists l;
    l.ids = (short *)(shared + a.at_ids), l.kept = (short *)(shared + a.at_kept), l.job = (int *)(shared + a.at_expert);
    l.first = (int *)(shared + a.at_first), l.count = l.first + a.experts + 1;
    l.scratch = (int *)(shared + a.at_scratch) + threadIdx.x / 32 * 32;
    l.pairs = a.tokens * a.top_k;
    l.jobs = 0;
    return l;
}

/* The block's items: job * tiles + tile; its jobs. */
MOII_FN int first_of(int block, const moe_decode_f16_sm90_args &a, const lists &l) { return (int)((long long)l.jobs * a.tiles * block / gridDim.x); }
typedef struct jobs { int first, end; } jobs;
MOII_FN jobs jobs_here(const moe_decode_f16_sm90_args &a, const lists &l)
{
    const int first = first_of((int)blockIdx.x, a, l), end = first_of((int)blockIdx.x + 1, a, l);
    const jobs j = { first / a.tiles, end > first ? (end - 1) / a.tiles + 1 : first / a.tiles };
    return j;
}

#if PASS == 1
/* ids as given, and kept: all threads.  They are in device memory, and final. */
MOII_FN void take_ids(const lists &l, const moe_decode_f16_sm90_args &a)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < l.pairs; i += THREADS) {
        const int id = __ldcg(a.ids + i);
        l.ids[i] = (short)(id >= 0 && id < a.experts ? id : -1);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < l.pairs; i += THREADS) {
        const int id = l.ids[i];
        bool keeps = id >= 0;
#pragma unroll 1
        for (int j = token_of(a, i) * a.top_k; j < i && keeps; j++) keeps = l.ids[j] != id;
        l.kept[i] = (short)(keeps ? id : -1);
        if (keeps) atomicAdd(l.count + id, 1);
    }
    __syncthreads();
}

/* From logits, which are in device memory, and final: all warps, a token each.  The first block leaves the ids. */
MOII_FN void route_tokens(const lists &l, const moe_decode_f16_sm90_args &a, int warp, int lane)
{
#pragma unroll 1
    for (int token = warp; token < a.tokens; token += WARPS) {
        const float *logits = a.logits + (long long)token * a.experts;
        const bool sure = route_by_logits(logits, shape_of(a), l.scratch, HELD, (a.experts + 31) / 32, lane);
        __syncwarp();
        if (__builtin_expect(!sure, 0)) route_held(logits, 0, shape_of(a), l.scratch, 0, HELD, lane);
        __syncwarp();
        if (lane < a.top_k) {
            const int id = l.scratch[lane];
            l.kept[token * a.top_k + lane] = (short)id;
            atomicAdd(l.count + id, 1);
            if (!blockIdx.x) a.ids_out[token * a.top_k + lane] = id;
        }
        __syncwarp();
    }
    __syncthreads();
}

/* One warp. */
MOII_FN void list_jobs(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
    int jobs = 0;
#pragma unroll 1
    for (int base = 0; base < a.experts; base += 32) {
        const int e = base + lane, pairs = e < a.experts ? l.count[e] : 0, mine = (pairs + a.columns - 1) / a.columns;
        int until = mine;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int v = __shfl_up_sync(0xFFFFFFFFu, until, step);
            until += lane >= step ? v : 0;
        }
        const int first = jobs + until - mine;
        if (e < a.experts) l.first[e] = first;
#pragma unroll 1
        for (int i = 0; i < mine; i++) l.job[first + i] = e | min(pairs - i * a.columns, a.columns) << 16;
        jobs += __shfl_sync(0xFFFFFFFFu, until, 31);
    }
    if (lane == 0) l.first[a.experts] = jobs;
}

/* All threads. */
MOII_FN void make_lists(lists &l, const moe_decode_f16_sm90_args &a, int warp, int lane)
{
    if (a.logits) route_tokens(l, a, warp, lane);
    else take_ids(l, a);
    if (warp == 0) list_jobs(l, a, lane);
    __syncthreads();
    l.jobs = l.first[a.experts];
}

/* A job's pairs, as many words as it has columns: one warp. */
MOII_FN void find_pairs(const lists &l, const moe_decode_f16_sm90_args &a, int job, int *to, int lane)
{
    const int expert = l.job[job] & 0xFFFF, skip = (job - l.first[expert]) * a.columns;
    int found = 0;
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < l.pairs && found < skip + a.columns; base += 32) {
        const int pair = base + lane;
        const bool here = pair < l.pairs && l.kept[pair] == expert;
        const unsigned int all = __ballot_sync(0xFFFFFFFFu, here);
        const int place = found + __popc(all & ((1u << lane) - 1u)) - skip;
        if (here && place >= 0 && place < a.columns) to[place] = pair;
        found += __popc(all);
    }
    __syncwarp();
}

/* For pass 2, before it starts: jobs go round the blocks: one warp. */
MOII_FN void leave_jobs(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
    if (!blockIdx.x && lane == 0) a.jobs_left[0] = l.jobs;
#pragma unroll 1
    for (int job = (int)blockIdx.x; job < l.jobs; job += (int)gridDim.x) {
        const int word = l.job[job];
        find_pairs(l, a, job, l.scratch, lane);
        if (lane == 0) a.jobs_left[1 + job] = word;
        if (lane < a.columns) a.pairs_left[job * a.columns + lane] = (short)(lane < word >> 16 ? l.scratch[lane] : -1);
    }
}

/* Weights of tokens, where there are logits: one warp. */
MOII_FN void leave_weights(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int token = (int)blockIdx.x; token < a.tokens && a.logits; token += (int)gridDim.x) {
        route_held(a.logits + (long long)token * a.experts, 0, shape_of(a), l.scratch, (float *)l.scratch + F16_MOST_SLOTS, HELD, lane);
        if (lane < a.top_k) a.weights_out[token * a.top_k + lane] = ((float *)l.scratch)[F16_MOST_SLOTS + lane];
        __syncwarp();
    }
}
#else
/* Of what pass 1 left before this grid started, the block's: all threads. */
MOII_FN void take_jobs(lists &l, const moe_decode_f16_sm90_args &a, char *shared)
{
    int *columns = (int *)(shared + a.at_column);
    l.jobs = __ldcg(a.jobs_left);
    const jobs here = jobs_here(a, l);
#pragma unroll 1
    for (int i = here.first + (int)threadIdx.x; i < here.end; i += THREADS) l.job[i] = __ldcg(a.jobs_left + 1 + i);
#pragma unroll 1
    for (int i = here.first * a.columns / 2 + (int)threadIdx.x; i < here.end * a.columns / 2; i += THREADS) columns[i] = __ldcg((const int *)a.pairs_left + i);
    __syncthreads();
}
#endif

#endif
