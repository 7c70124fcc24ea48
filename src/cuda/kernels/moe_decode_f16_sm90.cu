/* SPDX-License-Identifier: Apache-2.0
 *
 * moe_decode_f16_sm90: one pass of moi_moe_decode_run for weights of 8 or 4 bits, 1x32 or 128x128, or BF16, hidden and width multiples of 32, of 128x128 of
 * 128, x in BF16, up to 8 tokens.
 *
 *   defines   PASS 1: u = silu(gate . x) * (up . x); 2: y = sum of weight * (down . u).  WEIGHTS: F16_MX_E4M3 or its like
 *             HELD: pass 1: logits of a lane, 4, 8 or 16: of up to 32 * HELD experts.  LINES: pass 2: most lines of a slot, 2 or 3
 *             TAIL: rows are no whole lines.  WHOLE: pass 1, MXFP4: each slot has four lines, which come by pieces of two.  ITEMS: pass 2: a worker adds
 *             up its items' parts
 *   grid      as many blocks as multiprocessors, or fewer; a block of either pass fits beside one of the other
 *   item      16 rows of an expert, for the tokens that chose it.  Pass 1: 8 rows of gate and the same 8 of up; items go round the blocks, expert by
 *             expert.  Pass 2: 16 outputs; a block goes through all experts of its outputs
 *   slots     of up to four lines (16 rows x 128 bytes, or 64) of an item; each worker has a ring of its own, and sends for them by tensor map itself,
 *             as far ahead as there is room (decode_f16_up.cuh, decode_f16_down.cuh)
 *   bits      sums are cut by the shape alone, and a column's arithmetic depends on its own values alone: nothing depends on the batch
 *   launch    pass 1 waits for the grid before it, which also covers what pass 2 reads without waiting: given ids and weights.  It makes u and
 *             weights blank, leaves jobs, and ids if it has found them, and lets pass 2 start, not too early (lets_in).  That sends for weights by the jobs at
 *             once, and takes u and weights of tokens as they come: so its start and first weights are hidden behind pass 1 */
#define MANY 0
#define FEWER 0
#ifndef ITEMS
#define ITEMS 0
#endif
#include "moe_decode_f16_sm90_args.h"
#include "own_warp.cuh"
#include "silu.h"

#include "decode_f16_lists.cuh"
#include "decode_f16_multiply.cuh"
#include "decode_f16_ring.cuh"
#if PASS == 1
#include "decode_f16_up.cuh"
#else
#include "decode_f16_down.cuh"
#endif

extern "C" __global__ void __maxnreg__(PASS == 1 ? 88 : 120) moe_decode_f16_sm90(const __grid_constant__ moe_decode_f16_sm90_args a)
{
    extern __shared__ __align__(1024) char memory[];
    worker w;
    w.shared = shared_address(memory), w.warp = own_warp(), w.lane = (int)threadIdx.x % 32;
    lists l = lists_at(a, memory);
    if (threadIdx.x == 0) map_prefetch(&a.map);
#if PASS == 2
    const left_words left = load_left(l, a);
    const unit first = first_unit(w, a);
    find_places(w, a);
#endif
    make_barriers(w, a);
    clear_lists(l, a);
#if PASS == 2
    keep_left(left, l, a);
#endif
    __syncthreads();
#if PASS == 1
    ask_for_inputs(a);
    some_lines columns;
    work later;
#pragma unroll 1
    for (bool live = w.warp != WEIGHER;; live = true) {
        if (live) grid_wait();
        if (w.warp < WORKERS) load_columns(columns, w, a, w.warp);
        if (w.warp != BLANKER) route_tokens(l, a, live, w.warp, w.lane);
        if (live) break;
    }
    if (w.warp < WORKERS) {
        find_places(w, a);
        later = first_work(w, a, l);
        int sent = 0;
        bool all = false;
#pragma unroll 1
        for (l.jobs = a.logits ? a.known_jobs : 0;; l.jobs = l.first[a.experts], all = true) {
            send_more(later, sent, w, a, l);
            if (all) break;
            keep_columns(columns, w, a);
            make_lists(l, a, w.warp, w.lane);
        }
    } else if (w.warp == BLANKER) {
        blank_weights(a, w.lane);
        blank_u(a, w.lane);
        __threadfence();
    } else if (w.warp == LISTER) {
        make_lists(l, a, w.warp, w.lane);
        if (!blockIdx.x) leave_lists(l, a, w.lane);
    }
    if (w.warp == LISTER || w.warp == BLANKER) { /* one instruction for all that meet */
        threads_meet(BARRIER_LEFT, 64);
        if (w.warp == BLANKER && w.lane == 0 && lets_in(l, a) < 0) grid_release();
    }
    if (w.warp != WEIGHER) l.jobs = l.first[a.experts]; /* it has met nobody who knows */
    if (w.warp < WORKERS) multiply(w, a, l, first_work(w, a, l), later);
    else if (w.warp != WEIGHER) finish(w, a, l, w.warp - WORKERS, work());
#else
    if (threadIdx.x == 0) grid_release();
    l.jobs = l.first[a.experts];
    const to_send later = send_first(first, w, a, l);
    make_lists(l, a, w.warp, w.lane);
    multiply(w, a, l, first, later, left.weight);
    if (threadIdx.x == 0) grid_wait(); /* pass 1 has ended when this grid has */
#endif
}
