/* SPDX-License-Identifier: Apache-2.0
 * decode_many_lists.cuh: which tokens each expert has, for up to MANY_TOKENS tokens: worked out by every block of pass 1 for itself, and left by
 * it to pass 2.
 *
 *   pair   token * top_k + slot.  A token that names an expert twice has one pair of it, the first, with the sum of the weights
 *   job    up to COLUMNS pairs of one expert, in the order of tokens; jobs are in the order of the experts */
#ifndef MOII_DECODE_MANY_LISTS_CUH
#define MOII_DECODE_MANY_LISTS_CUH

#include "decode_f16_pairs.cuh"
#include "lane_scan.cuh"
#include "ptx_sm90.cuh"
#if PASS == 1 && HELD
#include "route_groups.cuh"
enum { COUNTED = HELD }; /* rooms */
#else
enum { COUNTED = ROUTE_HELD }; /* logits of a lane */
#endif

enum { TEAMS = FEWER ? MANY_FEWER_TEAMS : MANY_TEAMS };
enum { COLUMNS = GROUPS * F16_MOST_TOKENS }; /* a.columns */
enum { WORKERS = PASS == 1 ? MANY_UP_WORKERS(TEAMS) : MANY_DOWN_WORKERS(COLUMNS), WARPS = PASS == 1 ? MANY_UP_WARPS(TEAMS) : MANY_DOWN_WARPS(COLUMNS) };
enum { THREADS = 32 * WARPS };

#include "decode_f16_inputs.cuh"

/* What a block does of either half: items `first` to `end` - 1, an item is job * tiles + tile; they are of jobs `job` to `last` - 1. */
typedef struct share { int first, end, job, last; } share;
enum { HALVES = 2, JOB_EXPERT = 0x7FFF, JOB_SHARED = 0x8000 };

typedef struct lists {
    short *ids, *kept;     /* of pairs: as given, -1: none, where there are no logits, in the place of sums; without repetitions */
    unsigned int *tokens;  /* of experts, a bit for each token that has it: 32 tokens of all experts, then the next 32 */
    int *first;            /* of experts: the first job; behind them the number of jobs */
    share *own;            /* of each half */
    int *gap;              /* from the first half's end to the second's first item: jobs, and tiles of a job */
    int *done;             /* pass 1: of those who must be done with the first half */
    int *scratch;          /* a warp's 32 words */
    float *sums;           /* pass 1: free until items are added up */
    float *weights;        /* pass 1, from logits: of one token's experts, for the warp that finds weights */
    int *job;              /* its expert, JOB_SHARED if that has others, and its columns << 16; pass 2: of the block's jobs, and nothing above */
    share here;            /* of the first half, in a register */
    int jobs, pairs;
} lists;

MOII_FN lists lists_at(const moe_decode_f16_sm90_args &a, char *shared)
{
    lists l;
    l.ids = (short *)(shared + a.at_ids), l.kept = (short *)(shared + a.at_kept), l.job = (int *)(shared + a.at_expert);
    l.first = (int *)(shared + a.at_first), l.tokens = (unsigned int *)(shared + a.at_tokens);
    l.scratch = (int *)(shared + a.at_scratch) + threadIdx.x / 32 * 32;
    l.own = (share *)(shared + a.at_share), l.gap = (int *)(l.own + HALVES), l.done = l.gap + 2;
    l.sums = (float *)(shared + a.at_sums), l.weights = (float *)(shared + a.at_weights);
    l.pairs = a.tokens * a.top_k;
    l.jobs = 0;
    return l;
}

/* Jobs go in two halves, of which each block has a share: pass 2 begins with the first half's while other blocks of pass 1 are at the second.  Where a half
 * has fewer than four items for each block in either pass, all jobs are the first half's. */
MOII_FN int first_half(int jobs, const moe_decode_f16_sm90_args &a)
{
    const int half = jobs / 2, tiles = min(a.width / (F16_ROWS / 2), a.hidden / F16_ROWS);
    return half * tiles < 4 * (int)gridDim.x ? jobs : half;
}

/* Of all items a block has neighbouring ones, and of the first half's likewise: all lanes of a warp.  Into own: either half's share, and what lies between
 * them. */
MOII_FN void share_out(int *own, int jobs, many_shares s, const moe_decode_f16_sm90_args &a, int lane)
{
    const int half = first_half(jobs, a) * s.tiles, all = lane & 2 ? jobs * s.tiles : half, block = (int)blockIdx.x + (lane & 1);
    const float items = (float)(jobs * s.tiles), of = (float)block * s.even, lead = fminf(s.lead + s.more * items, MANY_UNEVEN * items) * of * (1 - of);
    const float part = (float)all * ((1 - s.fast) * of + s.fast * fminf(of * MANY_FAST, 1)) + (lane & 2 || half == jobs * s.tiles ? lead : lead * 0.5f);
    const int edge = block == (int)gridDim.x ? all : (int)part, near = __shfl_sync(0xFFFFFFFFu, edge, lane & 1);
    const int mine = lane & 2 ? half + edge - near : edge, other = __shfl_xor_sync(0xFFFFFFFFu, mine, 1);
    const int first = lane & 1 ? other : mine, end = lane & 1 ? mine : other;
    const int job = (int)__umulhi((unsigned int)(lane & 1 ? max(end - 1, first) : first), s.inverse_tiles);
    const int jobs_here = lane & 1 ? job + (end > first) : job, rest = mine - jobs_here * s.tiles, jobs_there = __shfl_down_sync(0xFFFFFFFFu, jobs_here, 1);
    const int rest_there = __shfl_down_sync(0xFFFFFFFFu, rest, 1);
    if (lane < 2 * HALVES) own[lane / 2 * 4 + lane % 2] = mine, own[lane / 2 * 4 + lane % 2 + 2] = jobs_here;
    if (lane == 1) own[4 * HALVES] = jobs_there - jobs_here, own[4 * HALVES + 1] = rest_there - rest;
    __syncwarp();
}

#if PASS == 1
static_assert(WARPS * ROUTE_SCRATCH(COUNTED) * 4 <= MANY_UP_SUMS(HELD, COLUMNS, TEAMS), "room for sums is enough");

MOII_FN int expert_words(const moe_decode_f16_sm90_args &a) { return (a.experts + 3) & ~3; }

/* Nobody has any: all threads. */
MOII_FN void clear_tokens(const lists &l, const moe_decode_f16_sm90_args &a)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.token_words * expert_words(a); i += THREADS) l.tokens[i] = 0;
}
MOII_FN void has_expert(const lists &l, const moe_decode_f16_sm90_args &a, int pair, int id)
{
    const int token = token_of(a, pair);
    l.kept[pair] = (short)id;
    atomicOr(l.tokens + token / 32 * expert_words(a) + id, 1u << token % 32);
}

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
        if (keeps) has_expert(l, a, i, id);
        else l.kept[i] = -1;
    }
    __syncthreads();
}

/* A routed pair's expert: the first block leaves it. */
MOII_FN void keep_id(const lists &l, const moe_decode_f16_sm90_args &a, int pair, int id)
{
    has_expert(l, a, pair, id);
    if (!blockIdx.x) a.ids_out[pair] = id;
}

/* From logits, which are in device memory, and final: all warps. */
MOII_FN void route_tokens(const lists &l, const moe_decode_f16_sm90_args &a, int warp, int lane)
{
    float *scratch = l.sums + warp * ROUTE_SCRATCH(COUNTED);
    const int per = (a.experts + 31) / 32;
#if HELD /* some tokens each */
#pragma unroll 1
    for (int first = warp * GROUP_TOKENS; first < a.tokens; first += WARPS * GROUP_TOKENS) {
        const int number = lane / GROUP_LANES, slot = lane % GROUP_LANES;
        unsigned int unsure = route_group(a.logits, first, a.tokens, shape_of(a), scratch, lane);
        if (first + number < a.tokens && slot < a.top_k && !(unsure >> number & 1))
            keep_id(l, a, (first + number) * a.top_k + slot, group_slot(scratch, number, slot));
        __syncwarp();
#pragma unroll 1
        for (; __builtin_expect(unsure, 0); unsure &= unsure - 1) { /* seldom */
            const int token = first + __ffs((int)unsure) - 1;
            route_all(a.logits + (long long)token * a.experts, scratch, shape_of(a), per, lane);
            route_by_p(scratch, shape_of(a), l.scratch, per, lane);
            if (lane < a.top_k) keep_id(l, a, token * a.top_k + lane, l.scratch[lane]);
            __syncwarp();
        }
    }
#else /* one each, while the logits of their next ones come */
    route_logits next = route_read(a.logits + (long long)warp * a.experts, shape_of(a), COUNTED, warp < a.tokens ? per : 0, lane);
#pragma unroll 1
    for (int token = warp; token < a.tokens; token += WARPS) {
        const float *logits = a.logits + (long long)token * a.experts;
        const route_logits here = next;
        next = route_read(logits + WARPS * a.experts, shape_of(a), COUNTED, token + WARPS < a.tokens ? per : 0, lane);
        route_ids(here, logits, shape_of(a), l.scratch, scratch, COUNTED, per, lane);
        __syncwarp();
        if (lane < a.top_k) keep_id(l, a, token * a.top_k + lane, l.scratch[lane]);
        __syncwarp();
    }
#endif
    __syncthreads();
}

/* Of an expert that `all` tokens have the job with the last `left` of them. */
MOII_FN int job_word_of(int expert, int left, int all) { return expert | (all > COLUMNS ? JOB_SHARED : 0) | min(left, (int)COLUMNS) << 16; }

/* One warp, four experts a lane at a time. */
MOII_FN void list_jobs(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
    int jobs = 0;
#pragma unroll 1
    for (int base = 0; base < a.experts; base += 128) {
        const int e = base + lane * 4;
        int pairs[4] = { 0, 0, 0, 0 }, mine = 0;
#pragma unroll 1
        for (int i = 0; i < a.token_words && e < a.experts; i++) {
            const uint4 v = *(const uint4 *)(l.tokens + i * expert_words(a) + e);
            pairs[0] += __popc(v.x), pairs[1] += __popc(v.y), pairs[2] += __popc(v.z), pairs[3] += __popc(v.w);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) mine += (pairs[i] + COLUMNS - 1) / COLUMNS;
        const int until = lane_scan(mine, lane);
        int at[4] = { jobs + until - mine };
        bool more = false;
#pragma unroll
        for (int i = 1; i < 4; i++) at[i] = at[i - 1] + (pairs[i - 1] + COLUMNS - 1) / COLUMNS;
        if (e < a.experts) *(int4 *)(l.first + e) = make_int4(at[0], at[1], at[2], at[3]); /* behind the last expert jobs' number will be */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (pairs[i]) l.job[at[i]] = job_word_of(e + i, pairs[i], pairs[i]);
            if (pairs[i] > COLUMNS) l.job[at[i] + 1] = job_word_of(e + i, pairs[i] - COLUMNS, pairs[i]);
            more = more || pairs[i] > 2 * COLUMNS;
        }
        if (__any_sync(0xFFFFFFFFu, more))
#pragma unroll 1
            for (int i = 0; i < 4; i++) {
                const int all = i == 0 ? pairs[0] : i == 1 ? pairs[1] : i == 2 ? pairs[2] : pairs[3];
                const int first = i == 0 ? at[0] : i == 1 ? at[1] : i == 2 ? at[2] : at[3];
#pragma unroll 1
                for (int n = 2; n * COLUMNS < all; n++) l.job[first + n] = job_word_of(e + i, all - n * COLUMNS, all);
            }
        jobs += __shfl_sync(0xFFFFFFFFu, until, 31);
    }
    share_out((int *)l.own, jobs, a.shares, a, lane);
    if (lane == 0) l.first[a.experts] = jobs, *l.done = 0;
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

/* A job's tokens, as many words as it has columns: one warp. */
MOII_FN void find_tokens(const lists &l, const moe_decode_f16_sm90_args &a, int job, int *to, int lane)
{
    const int expert = l.job[job] & JOB_EXPERT;
    int place = (l.first[expert] - job) * COLUMNS; /* of the next one among the job's */
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < a.token_words; i++) {
        const unsigned int tokens = l.tokens[i * expert_words(a) + expert];
        const int at = place + __popc(tokens & ((1u << lane) - 1u));
        if (tokens >> lane & 1 && at >= 0 && at < COLUMNS) to[at] = i * 32 + lane;
        place += __popc(tokens);
    }
    __syncwarp();
}

/* The pair of a token and an expert that it has. */
MOII_FN int pair_with(const lists &l, const moe_decode_f16_sm90_args &a, int token, int expert)
{
    int pair = token * a.top_k;
#pragma unroll 1
    while (l.kept[pair] != expert) pair++;
    return pair;
}

/* For pass 2, before it starts: jobs go round the blocks; each leaves what the block of its number is to do there: one warp. */
MOII_FN void leave_jobs(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
    int *left = a.shares_left + MANY_SHARE_WORDS * blockIdx.x;
    const int half = lane / MANY_SHARE_JOBS % HALVES, *of = l.scratch + 4 * half;
    share_out(l.scratch, l.jobs, a.down_shares, a, lane);
    if (lane < 4 * HALVES + 2) left[lane] = l.scratch[lane];
    const int job = of[2] + lane % MANY_SHARE_JOBS;
    if (lane < HALVES * MANY_SHARE_JOBS && job < of[3]) left[MANY_SHARE_FIRST + lane] = l.job[job];
    __syncwarp();
#pragma unroll 1
    for (int job = (int)blockIdx.x; job < l.jobs; job += (int)gridDim.x) {
        const int word = l.job[job];
        find_tokens(l, a, job, l.scratch, lane);
        if (lane == 0) a.jobs_left[job] = word;
        if (lane < COLUMNS) a.pairs_left[job * COLUMNS + lane] = (short)(lane < word >> 16 ? pair_with(l, a, l.scratch[lane], word & JOB_EXPERT) : -1);
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
/* Of what pass 1 left before this grid started, the block's: all threads.  The jobs first, for weights are sent for by them, and most blocks have few.
 * The fence is for the first half's u: exponents are copied by way of L1. */
MOII_FN void take_jobs(lists &l, const moe_decode_f16_sm90_args &a)
{
    const int4 *left = (const int4 *)(a.shares_left + MANY_SHARE_WORDS * blockIdx.x);
    const int half = (int)threadIdx.x / 32 % HALVES, i = (int)threadIdx.x % 32 + (int)threadIdx.x / (32 * HALVES) * 32;
    const int4 here = __ldcg(left), mine = __ldcg(left + half);
    const int word = i < MANY_SHARE_JOBS ? __ldcg((const int *)left + MANY_SHARE_FIRST + half * MANY_SHARE_JOBS + i) : 0;
    const uint2 gap = __ldcg((const uint2 *)(left + HALVES));
    l.here.first = here.x, l.here.end = here.y, l.here.job = here.z, l.here.last = here.w;
    if (i == 0) *(int4 *)(l.own + half) = mine, *(uint2 *)l.gap = gap;
    if ((int)threadIdx.x == THREADS - 1) __threadfence();
    if (i < MANY_SHARE_JOBS && mine.z + i < mine.w) l.job[mine.z + i] = word;
#pragma unroll 1
    for (int job = mine.z + MANY_SHARE_JOBS + i; job < mine.w; job += 32 * (WARPS / HALVES)) l.job[job] = __ldcg(a.jobs_left + job);
    __syncthreads();
}
MOII_FN void take_pairs(const lists &l, const moe_decode_f16_sm90_args &a, char *shared)
{
    int *columns = (int *)(shared + a.at_column);
#pragma unroll 1
    for (int half = 0; half < HALVES; half++)
#pragma unroll 1
        for (int i = l.own[half].job * COLUMNS / 2 + (int)threadIdx.x; i < l.own[half].last * COLUMNS / 2; i += THREADS)
            columns[i] = __ldcg((const int *)a.pairs_left + i);
}
#endif

#endif
