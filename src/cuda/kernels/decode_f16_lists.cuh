/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_lists.cuh: which tokens each expert has, worked out by every block for itself.
 *
 *   routing   from logits: ids by every block of pass 1 for itself, a warp for each token; its first block leaves them to pass 2, and the block of a
 *             token's number that token's weights, which take longer: pass 2 starts without them, and waits for them at its end
 *   pass 2    sends for weights by the jobs that pass 1's first block leaves, before it makes lists of its own
 *   pair      token * top_k + slot.  A token that names an expert twice has one pair of it, the first, with the sum of the weights
 *   job       the tokens of one expert: column[8 * job + token] is a pair or -1; expert[job] */
#ifndef MOII_DECODE_F16_LISTS_CUH
#define MOII_DECODE_F16_LISTS_CUH

#include "decode_f16_pairs.cuh"
#include "ptx_sm90.cuh"

/* Barriers of whole warps. */
enum { BARRIER_LISTS = 1, BARRIER_ROUTED, BARRIER_TILE, BARRIER_LEFT = BARRIER_TILE, BARRIER_BLANK, BARRIER_IDS };
enum { WORKERS = PASS == 1 ? F16_UP_WORKERS : F16_DOWN_WARPS, TEAMS = F16_TEAMS, GROUPS = 1 };
enum { WARPS = PASS == 1 ? F16_UP_WARPS : F16_DOWN_WARPS, THREADS = 32 * WARPS };
enum { LISTER = PASS == 1 ? WORKERS : 0, BLANKER = LISTER + 1, WEIGHER = BLANKER + 1 };

typedef struct lists {
    int *ids, *first, *expert; /* ids: -1 for skipped slots and repetitions; first: an expert's first pair, behind them the number of jobs */
    short *column, *job;       /* job: of a pair that is an expert's first */
    float *weights;            /* pass 2: of pairs; pass 1: of one token's experts, for the warp that finds weights */
    float *sums;               /* pass 1: free until items are added up */
    int jobs, pairs;
} lists;

MOII_FN lists lists_at(const moe_decode_f16_sm90_args &a, char *shared)
{
    lists l;
    l.ids = (int *)(shared + a.at_ids), l.first = (int *)(shared + a.at_first), l.expert = (int *)(shared + a.at_expert);
    l.column = (short *)(shared + a.at_column), l.job = (short *)(shared + a.at_job), l.weights = (float *)(shared + a.at_weights);
    l.sums = (float *)(shared + a.at_sums);
    l.pairs = a.tokens * a.top_k;
    l.jobs = 0;
    return l;
}

/* Ids as given: one warp. */
MOII_FN void take_ids(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int i = lane; i < l.pairs; i += 32) {
        const int id = __ldcg(a.ids + i);
        l.ids[i] = id < a.experts ? id : -1;
    }
    __syncwarp();
}

/* Of an expert that a token names twice the first pair alone, in pass 2 with the sum of the weights: one warp. */
MOII_FN void skip_repeats(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int base = 0; base < l.pairs; base += 32) { /* later pairs are still as they were given */
        const int pair = base + lane, id = pair < l.pairs ? l.ids[pair] : -1, first = token_of(a, pair) * a.top_k;
        float weight = PASS == 2 && !a.logits && id >= 0 ? l.weights[pair] : 0;
        bool repeats = false;
#pragma unroll 1
        for (int i = first; i < first + a.top_k && id >= 0; i++) {
            const bool same = l.ids[i] == id;
            repeats = repeats || (same && i < pair);
            if (PASS == 2 && !a.logits && same && i > pair) weight += l.weights[i];
        }
        __syncwarp();
        if (repeats) l.ids[pair] = -1;
        else if (PASS == 2 && !a.logits && id >= 0) l.weights[pair] = weight;
        __syncwarp();
    }
}

/* Jobs, in the order of the pairs that come first: one warp.  In pass 2 their experts and number are there. */
MOII_FN void list_jobs(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
    if (a.tokens == 1 && a.logits) { /* each pair is one */
        if (lane < a.top_k) l.column[lane * F16_MOST_TOKENS] = (short)lane;
        if (lane == 0 && PASS == 1) l.first[a.experts] = a.top_k;
        __syncwarp();
        return;
    }
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
        if (leads) l.job[i] = (short)job;
        if (leads && PASS == 1 && (!a.logits || i >= a.top_k)) l.expert[job] = id; /* else known */
        jobs += __popc(found);
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < l.pairs; i += 32)
        if (l.ids[i] >= 0) l.column[l.job[l.first[l.ids[i]]] * F16_MOST_TOKENS + token_of(a, i)] = (short)i;
    if (lane == 0 && PASS == 1) l.first[a.experts] = jobs;
    __syncwarp();
}

/* Before anything is known: all threads. */
MOII_FN void clear_lists(const lists &l, const moe_decode_f16_sm90_args &a)
{
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < a.experts; e += THREADS) l.first[e] = 0x7FFFFFFF;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.most_jobs * F16_MOST_TOKENS / 2; i += THREADS) ((int *)l.column)[i] = -1;
}

#if PASS == 2
static_assert(F16_MOST_TOKENS * F16_MOST_SLOTS < THREADS, "a thread for each pair, and one for the number of jobs");
/* Ids, weights, which may be blank, and jobs as pass 1 has left them: thread i has pair i and job i.  They are asked for before all else. */
typedef struct left_words { int id, job; unsigned int weight; } left_words;
MOII_FN left_words load_left(const lists &l, const moe_decode_f16_sm90_args &a)
{
    const int i = (int)threadIdx.x;
    left_words v = { -1, 0, 0 };
    if (i <= a.most_jobs) v.job = (int)read_word(a.jobs_left + i);
    if (i < l.pairs) v.id = (int)read_word(a.ids + i), v.weight = read_word(a.weights + i);
    return v;
}
MOII_FN void keep_left(const left_words &v, const lists &l, const moe_decode_f16_sm90_args &a)
{
    const int i = (int)threadIdx.x;
    if (i < l.pairs) l.ids[i] = v.id < a.experts ? v.id : -1, l.weights[i] = moii_float_of(v.weight);
    if (i < a.most_jobs) l.expert[i] = v.job;
    if (i == a.most_jobs) l.first[a.experts] = v.job;
}
/* Routed tokens' weights: asked for again where they were blank, and taken when they are there. */
MOII_FN unsigned int ask_for_weight(unsigned int left, const lists &l, const moe_decode_f16_sm90_args &a)
{
    const bool mine = a.logits && (int)threadIdx.x < l.pairs;
    return mine && left == BLANK_WORD ? read_word(a.weights + threadIdx.x) : left;
}
MOII_FN void await_weights(unsigned int left, unsigned int asked, const lists &l, const moe_decode_f16_sm90_args &a)
{
    const int i = (int)threadIdx.x;
    if (!a.logits || i >= l.pairs || left != BLANK_WORD) return;
    while (asked == BLANK_WORD) __nanosleep(100), asked = read_word(a.weights + i);
    l.weights[i] = moii_float_of(asked);
}
#endif

#if PASS == 1
static_assert((WORKERS + 1) * ROUTE_SCRATCH(HELD) * 4 <= F16_UP_SUMS(HELD), "room for sums is enough");

/* From logits, which are in device memory, and final.  Ids: the first token by the warp that makes the lists, the others by workers.  Known jobs are the first
 * token's experts, by which weights are sent for before there are lists: workers wait for them.  Weights of the block's tokens: by another warp, which
 * finds p while the others find ids; who cannot tell ids by logits takes the same way.  That warp rehearses it once, with what lies there, before
 * logits are final (not live): it brings the code near while nothing else is to be done. */
MOII_FN void route_tokens(const lists &l, const moe_decode_f16_sm90_args &a, bool live, int warp, int lane)
{
    if (!a.logits) return;
    const bool weighs = warp == WEIGHER;
    const int first = weighs ? (int)blockIdx.x : warp == LISTER ? 0 : warp + 1, step = weighs ? (int)gridDim.x : F16_MOST_TOKENS, per = (a.experts + 31) / 32;
    float *scratch = weighs ? l.weights : l.sums + warp * ROUTE_SCRATCH(HELD);
#pragma unroll 1
    for (int token = first; token < a.tokens; token += step) {
        const float *logits = a.logits + (long long)token * a.experts;
        int *ids = l.ids + token * a.top_k;
        bool by_p = weighs;
        if (!weighs) by_p = !route_by_logits(route_read(logits, shape_of(a), HELD, per, lane), shape_of(a), ids, scratch, HELD, per, lane);
        __syncwarp();
        if (by_p) route_all(logits, scratch, shape_of(a), per, lane);
        if (weighs) {
            if (live && token == first) threads_meet(BARRIER_IDS, 32 * (WORKERS + 2)), threads_meet(BARRIER_BLANK, 64);
            const unsigned int found = moii_bits_of(route_weight(scratch, shape_of(a), live ? ids[min(lane, a.top_k - 1)] : 0));
            if (live && lane < a.top_k) write_word(a.weights_out + token * a.top_k + lane, found == BLANK_WORD ? BLANK_WORD >> 1 : found);
        } else if (by_p) route_by_p(scratch, shape_of(a), ids, per, lane);
        if (!weighs && token == 0 && lane < a.top_k) l.expert[lane] = ids[lane];
        __syncwarp();
    }
    if (weighs) return;
    if ((int)blockIdx.x < a.tokens) threads_pass(BARRIER_IDS, 32 * (WORKERS + 2));
    if (a.known_jobs || warp == LISTER) threads_meet(BARRIER_ROUTED, 32 * (WORKERS + 1));
    else threads_pass(BARRIER_ROUTED, 32 * (WORKERS + 1));
}

/* For pass 2, before it starts, one warp of the first block: ids, and jobs, by which pass 2 sends for weights before it makes lists of its own. */
MOII_FN void leave_lists(const lists &l, const moe_decode_f16_sm90_args &a, int lane)
{
#pragma unroll 1
    for (int i = lane; a.logits && i < l.pairs; i += 32) a.ids_out[i] = l.ids[i];
    const int jobs = l.first[a.experts];
#pragma unroll 1
    for (int i = lane; i < jobs; i += 32) a.jobs_left[i] = l.expert[i];
    if (lane == 0) a.jobs_left[a.most_jobs] = jobs;
    __threadfence();
}
/* They are blank before pass 2 starts: one warp, which does not wait for the next one's. */
MOII_FN void blank_weights(const moe_decode_f16_sm90_args &a, int lane)
{
    if (!a.logits || (int)blockIdx.x >= a.tokens) return;
#pragma unroll 1
    for (int token = (int)blockIdx.x; token < a.tokens; token += (int)gridDim.x)
        if (lane < a.top_k) write_word(a.weights_out + token * a.top_k + lane, BLANK_WORD);
    threads_pass(BARRIER_BLANK, 64);
}
#endif

/* Workers and the warp that makes them, which does not wait for them, behind route_tokens; given ids are in device memory, and final. */
MOII_FN void make_lists(const lists &l, const moe_decode_f16_sm90_args &a, int warp, int lane)
{
    if (warp == LISTER) {
        if (PASS == 1 && !a.logits) take_ids(l, a, lane);
        if (!a.logits) skip_repeats(l, a, lane);
        list_jobs(l, a, lane);
    }
    if (PASS == 2) threads_meet(BARRIER_LISTS, THREADS);
    else if (warp == LISTER) threads_pass(BARRIER_LISTS, 32 * (WORKERS + 1));
    else threads_meet(BARRIER_LISTS, 32 * (WORKERS + 1));
}

#include "decode_f16_inputs.cuh"

#endif
