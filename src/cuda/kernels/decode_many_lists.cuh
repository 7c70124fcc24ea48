/* SPDX-License-Identifier: Apache-2.0
 * decode_many_lists.cuh: which tokens each expert has, for up to MANY_TOKENS tokens: worked out by every block of pass 1 for itself, and left by
 * it to pass 2.
 *
 *   pair   token * top_k + slot.  A token that names an expert twice has one pair of it, the first, with the sum of the weights
 *   job    up to COLUMNS pairs of one expert, in their order; jobs are in the order of the experts */
#ifndef MOII_DECODE_MANY_LISTS_CUH
#define MOII_DECODE_MANY_LISTS_CUH

#include "decode_f16_pairs.cuh"
#include "lane_scan.cuh"
#include "ptx_sm90.cuh"

enum { WORKERS = PASS == 1 ? MANY_UP_WORKERS : MANY_DOWN_WORKERS, TEAMS = MANY_TEAMS, WARPS = PASS == 1 ? MANY_UP_WARPS : MANY_DOWN_WARPS };
enum { THREADS = 32 * WARPS, COLUMNS = GROUPS * F16_MOST_TOKENS }; /* a.columns */

#include "decode_f16_inputs.cuh"

/* What a block does: items `first` to `end` - 1, an item is job * tiles + tile; they are of jobs `job` to `last` - 1. */
typedef struct share { int first, end, job, last; } share;

typedef struct lists {
    short *ids, *kept;     /* of pairs: as given, -1: none, where there are no logits; without repetitions */
    int *count, *first;    /* of experts: pairs, and the first job; behind them the number of jobs */
    share *own;            /* pass 1: `here`, until all threads have it */
    int *scratch;          /* a warp's 32 words */
    float *sums;           /* pass 1: free until items are added up */
    float *weights;        /* pass 1, from logits, in the place of ids: of one token's experts, for the warp that finds weights */
    int *job;              /* its expert, and its columns << 16; pass 2: of the block's jobs, and nothing above */
    share here;
    int jobs, pairs;
} lists;

MOII_FN lists lists_at(const moe_decode_f16_sm90_args &a, char *shared)
{
    lists l;
    l.ids = (short *)(shared + a.at_ids), l.kept = (short *)(shared + a.at_kept), l.job = (int *)(shared + a.at_expert);
    l.first = (int *)(shared + a.at_first), l.count = l.first + a.experts + 1;
    l.scratch = (int *)(shared + a.at_scratch) + threadIdx.x / 32 * 32, l.own = (share *)(shared + a.at_share);
    l.sums = (float *)(shared + a.at_sums), l.weights = (float *)(shared + a.at_weights);
    l.pairs = a.tokens * a.top_k;
    l.jobs = 0;
    return l;
}

/* Block b's first item is item floor(all * b / blocks): all lanes of a warp. */
MOII_FN share share_of(int jobs, int tiles, int lane)
{
    const unsigned int all = (unsigned int)jobs * (unsigned int)tiles, each = all / gridDim.x, block = blockIdx.x + (unsigned int)(lane & 1);
    const int edge = (int)(each * block + (all - each * gridDim.x) * block / gridDim.x);
    share s;
    s.first = __shfl_sync(0xFFFFFFFFu, edge, 0), s.end = __shfl_sync(0xFFFFFFFFu, edge, 1);
    const int job = (lane & 1 ? max(s.end - 1, s.first) : s.first) / tiles;
    s.job = __shfl_sync(0xFFFFFFFFu, job, 0), s.last = __shfl_sync(0xFFFFFFFFu, job, 1) + (s.end > s.first);
    return s;
}

#if PASS == 1
static_assert(WARPS * ROUTE_SCRATCH(HELD) * 4 <= MANY_UP_SUMS(HELD, COLUMNS), "room for sums is enough");

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

/* From logits, which are in device memory, and final: all warps, a token each, while the logits of their next ones come.  The first block leaves the
 * ids. */
MOII_FN void route_tokens(const lists &l, const moe_decode_f16_sm90_args &a, int warp, int lane)
{
    const int per = (a.experts + 31) / 32;
    route_logits next = route_read(a.logits + (long long)warp * a.experts, shape_of(a), HELD, warp < a.tokens ? per : 0, lane);
#pragma unroll 1
    for (int token = warp; token < a.tokens; token += WARPS) {
        const float *logits = a.logits + (long long)token * a.experts;
        const route_logits here = next;
        next = route_read(logits + WARPS * a.experts, shape_of(a), HELD, token + WARPS < a.tokens ? per : 0, lane);
        route_ids(here, logits, shape_of(a), l.scratch, l.sums + warp * ROUTE_SCRATCH(HELD), HELD, per, lane);
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
        const int until = lane_scan(mine, lane), first = jobs + until - mine;
        if (e < a.experts) l.first[e] = first;
#pragma unroll 1
        for (int i = 0; i < mine; i++) l.job[first + i] = e | min(pairs - i * a.columns, a.columns) << 16;
        jobs += __shfl_sync(0xFFFFFFFFu, until, 31);
    }
    const share here = share_of(jobs, a.tiles, lane);
    if (lane == 0) *l.own = here, l.first[a.experts] = jobs;
}

/* All threads. */
MOII_FN void make_lists(lists &l, const moe_decode_f16_sm90_args &a, int warp, int lane)
{
    if (a.logits) route_tokens(l, a, warp, lane);
    else take_ids(l, a);
    if (warp == 0) list_jobs(l, a, lane);
    __syncthreads();
    l.jobs = l.first[a.experts], l.here = *l.own;
}

/* A job's pairs, as many words as it has columns: one warp, 8 pairs a lane. */
MOII_FN void find_pairs(const lists &l, const moe_decode_f16_sm90_args &a, int job, int *to, int lane)
{
    const unsigned int expert = (unsigned int)l.job[job] & 0xFFFFu, lower = (1u << lane) - 1u;
    int place = (l.first[expert] - job) * COLUMNS; /* of the next pair among the job's */
    __syncwarp();
#pragma unroll 1
    for (int base = 0; base < l.pairs && place < COLUMNS; base += 256) {
        const int pair = base + lane * 8;
        const uint4 ids = pair < l.pairs ? *(const uint4 *)(l.kept + pair) : make_uint4(~0u, ~0u, ~0u, ~0u);
        const unsigned int word[4] = { ids.x, ids.y, ids.z, ids.w };
        unsigned int here = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) here |= (unsigned int)((word[i / 2] >> i % 2 * 16 & 0xFFFFu) == expert && pair + i < l.pairs) << i;
        int at = place;
#pragma unroll
        for (int bit = 0; bit < 4; bit++) { /* a lane has up to 8 */
            const unsigned int lanes = __ballot_sync(0xFFFFFFFFu, __popc(here) >> bit & 1);
            at += __popc(lanes & lower) << bit, place += __popc(lanes) << bit;
        }
#pragma unroll 1
        for (; here; here &= here - 1u, at++)
            if (at >= 0 && at < COLUMNS) to[at] = pair + __ffs((int)here) - 1;
    }
    __syncwarp();
}

/* For pass 2, before it starts: jobs go round the blocks; each leaves what the block of its number is to do there: one warp. */
MOII_FN void leave_jobs(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
    const share there = share_of(l.jobs, a.hidden / F16_ROWS, lane);
    if (lane == 0) ((share *)a.shares_left)[2 * blockIdx.x] = there;
    if (lane < MANY_SHARE_JOBS && there.job + lane < there.last) a.shares_left[8 * blockIdx.x + 4 + lane] = l.job[there.job + lane];
#pragma unroll 1
    for (int job = (int)blockIdx.x; job < l.jobs; job += (int)gridDim.x) {
        const int word = l.job[job];
        find_pairs(l, a, job, l.scratch, lane);
        if (lane == 0) a.jobs_left[job] = word;
        if (lane < COLUMNS) a.pairs_left[job * COLUMNS + lane] = (short)(lane < word >> 16 ? l.scratch[lane] : -1);
    }
}

/* Weights of tokens, where there are logits: one warp. */
MOII_FN void leave_weights(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int token = (int)blockIdx.x; token < a.tokens && a.logits; token += (int)gridDim.x) {
        const int pair = token * a.top_k + min(lane, a.top_k - 1);
        route_all(a.logits + (long long)token * a.experts, l.weights, shape_of(a), (a.experts + 31) / 32, lane);
        const float weight = route_weight(l.weights, shape_of(a), l.kept[pair]);
        if (lane < a.top_k) a.weights_out[pair] = weight;
        __syncwarp();
    }
}
#else
/* Of what pass 1 left before this grid started, the block's: all threads.  The jobs first, for weights are sent for by them, and most blocks have few. */
MOII_FN void take_jobs(lists &l, const moe_decode_f16_sm90_args &a)
{
    const int4 here = __ldcg((const int4 *)a.shares_left + 2 * blockIdx.x), words = __ldcg((const int4 *)a.shares_left + 2 * blockIdx.x + 1);
    const int i = (int)threadIdx.x;
    l.here.first = here.x, l.here.end = here.y, l.here.job = here.z, l.here.last = here.w;
    if (i < MANY_SHARE_JOBS && here.z + i < here.w) l.job[here.z + i] = i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
#pragma unroll 1
    for (int job = here.z + MANY_SHARE_JOBS + i; job < here.w; job += THREADS) l.job[job] = __ldcg(a.jobs_left + job);
    __syncthreads();
}
MOII_FN void take_pairs(const lists &l, const moe_decode_f16_sm90_args &a, char *shared)
{
    int *columns = (int *)(shared + a.at_column);
#pragma unroll 1
    for (int i = l.here.job * COLUMNS / 2 + (int)threadIdx.x; i < l.here.last * COLUMNS / 2; i += THREADS) columns[i] = __ldcg((const int *)a.pairs_left + i);
}
#endif

#endif
