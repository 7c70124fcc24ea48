/* SPDX-License-Identifier: Apache-2.0
 *
 * moe_decode_many_sm90: one pass of moi_moe_decode_run for weights of 8 or 4 bits or BF16, as moe_decode_f16_sm90 and with its bits, for up to MANY_TOKENS
 * tokens.
 *
 *   defines   PASS 1: u = silu(gate . x) * (up . x); 2: down . u for each pair; 3: y = sum of weight * that.  WEIGHTS: F16_MX_E4M3 or its like
 *             HELD: pass 1: from logits of up to 32 * HELD experts, 4 or 8, with up to 8 slots; 0: of up to 512, with any.  GROUPS: passes 1 and 2: columns
 *             of a job, 8 each, 1 to 4.  TAIL: rows are no whole lines.  WHOLE: each slot has all of the lines that it has room for; of MXFP8 scales come
 *             by boxes in pass 1, of MXFP4 codes by pieces of two lines.  FEWER: pass 1 has two teams.  LONGER: pass 2, MXFP4: slots have up to six lines,
 *             not three
 *   grid      passes 1 and 2: multiprocessors; pass 3: as many, or two for each
 *   job       up to GROUPS * 8 tokens of one expert: the columns of a product (decode_many_lists.cuh)
 *   item      16 rows of a job's expert.  Pass 1: 8 rows of gate and the same 8 of up; pass 2: 16 outputs.  A block has neighbouring ones
 *             (decode_many_rooms.cuh), so that weights come from memory once, and columns once or twice into each block
 *   bits      sums are cut by the shape alone, as for fewer tokens: nothing depends on the batch
 *   halves    jobs go in two halves, and a block has a share of each (decode_many_lists.cuh)
 *   lines     of long rows a launch of pass 2 has some alone, and the next one goes on with its sums
 *   launch    pass 1 waits for the grid before it, leaves jobs, and lets pass 2 start when each block is done with the first half.  Pass 2 begins with that,
 *             as its blocks find room, and waits for pass 1's end before the second half.  Pass 3 is there beside pass 2 and
 *             lets the next layer's pass 1 start, block by block as those of pass 2 end */
#define MANY 1
#ifndef FEWER
#define FEWER 0
#endif
#include "moe_decode_f16_sm90_args.h"
#ifndef LONGER
#define LONGER 0
#endif
#define LINES MANY_DOWN_LINES(WEIGHTS, WHOLE || LONGER)
#include "own_warp.cuh"
#include "silu.h"

#if PASS == 3
#include "decode_many_sum.cuh"
#else
#include "decode_many_lists.cuh"
#include "decode_f16_multiply.cuh"
#include "decode_f16_ring.cuh"
#if PASS == 1
#include "decode_many_up.cuh"
#else
#include "decode_many_down.cuh"
#endif
#endif

/* A quarter of a multiprocessor has 512 registers for each lane number: 48 for either of two warps of pass 3 beside 104 for each of four of pass 2, or of the
 * next layer's pass 1, which may be there then; with two teams these are three.  So up to 8 columns a job, and with BF16; and pass 1 of block FP8 in whole
 * slots and up to 16 columns a job, beside which pass 3's blocks may still be. */
enum { QUARTERS = 4, QUARTER = 512, OF_PASS_3 = 48, BESIDE_PASS_3 = PASS == 1 && FEWER ? 128 : 104, ALONE = 128, ALONE_FEWER = 160, OF_TWELVE = 168 };
#if PASS == 3
enum { REGISTERS = OF_PASS_3 };
#else
#if GROUPS == 1 || WEIGHTS == F16_BF16 || (PASS == 1 && WEIGHTS == F16_SQUARES && WHOLE && GROUPS == 2)
enum { REGISTERS = BESIDE_PASS_3, OF_OTHERS = MANY_SUM_WARPS / QUARTERS * OF_PASS_3 };
#else
enum { REGISTERS = PASS == 1 && FEWER ? ALONE_FEWER : PASS == 2 && GROUPS > 2 ? OF_TWELVE : ALONE, OF_OTHERS = 0 };
#endif
static_assert((WARPS + QUARTERS - 1) / QUARTERS * REGISTERS + OF_OTHERS <= QUARTER, "a block has room, and where it should, one of pass 3 beside it");
#endif

extern "C" __global__ void __maxnreg__(REGISTERS) moe_decode_many_sm90(const __grid_constant__ moe_decode_f16_sm90_args a)
{
#if PASS == 3
    if (threadIdx.x == 0) grid_release();
    sum_pairs(a);
#else
    extern __shared__ __align__(1024) char memory[];
    worker w;
    w.shared = shared_address(memory), w.warp = own_warp(), w.lane = (int)threadIdx.x % 32;
    lists l = lists_at(a, memory);
    if (threadIdx.x == 0) map_prefetch(&a.map);
    if (SCALE_BOXES && threadIdx.x == 0) map_prefetch(&a.scale_map);
    make_barriers(w, a);
#if PASS == 1
    clear_tokens(l, a);
    ask_for_inputs(a);
    if (w.warp < WORKERS && a.tokens * a.top_k >= a.experts) fetch_likely(w, a, l);
    __syncthreads();
    grid_wait();
    make_lists(l, a, w.warp, w.lane);
#else
    if (threadIdx.x == 0) grid_release();
    if (a.before) grid_wait();
    take_jobs(l, a);
#endif
    held_columns h = first_columns(a, l);
    const bool any = h.job < l.here.last;
    work first = {}, later = {};
    if (any) copy_lines(h, w.warp, WARPS, w, a, l); /* before weights, which would stand before them */
    if (w.warp < WORKERS) {
        find_places(w, a);
        first = first_work(w, a, l);
        later = send_first(first, w, a, l);
    }
#if SCALE_BOXES
    else if (w.warp < WARPS - 1) later = send_first_scales(w.warp - WORKERS, w, a, l);
#endif
#if PASS == 2
    take_pairs(l, a, memory);
#endif
    if (any) keep_lines(h, w.warp, WARPS, w, a, l);
    __syncthreads();
    if (w.warp < WORKERS) {
        multiply(w, a, l, first, later);
        return;
    }
    bring_second(h, w, a, l);
#if PASS == 1
    if (w.warp < WARPS - 1) {
        finish(w, a, l, w.warp - WORKERS, later);
        return;
    }
    leave_lists(w, a, l);
#endif
    bring_others(h, w, a, l);
#if PASS == 2
    grid_wait(); /* pass 1 has ended when this grid has */
#endif
#endif
}
