/* SPDX-License-Identifier: Apache-2.0
 *
 * moe_decode_f16_sm90: one pass of moi_moe_decode_run for MXFP8 weights, hidden and width multiples of 128 and x in BF16.
 *
 *   defines   PASS 1: u = silu(gate . x) * (up . x); 2: y = sum of weight * (down . u)
 *             GROUPS: of 8 columns that share a reading of an expert's weights, 1 or 2; E5M2: 1 where weights are E5M2, else E4M3
 *   grid      as many blocks as multiprocessors, or fewer
 *   item      16 rows of an expert for a job, its tokens.  Pass 1: 8 rows of gate and the same 8 of up; a block takes a run of the items of
 *             all jobs.  Pass 2: 16 outputs; a block goes through all jobs, whose sums stay with it
 *   ring      slots of some lines (16 rows x 128 bytes) of an item, sent for by one lane by tensor map, as far ahead as there is room, whatever the
 *             other warps wait for
 *   warps     8 multiply (decode_f16_up.cuh: each takes some lines of every item; decode_f16_down.cuh: every eighth job) and leave sums in shared
 *             memory; one adds those up, always in the same order, and finishes the item
 *   bits      sums are cut by the shape alone, and a column's arithmetic depends on its own values alone: nothing depends on the batch
 *   launch    pass 1 waits for the grid before it, which also covers what pass 2 reads early: logits or ids and weights, and its
 *             experts' rows.  Pass 2 starts when pass 1 has sent for nearly all of its weights, sends for its first slots, and waits for u. */
#include "moe_decode_f16_sm90_args.h"
#include "silu.h"

#include "decode_f16_lists.cuh"
#include "decode_f16_multiply.cuh"
#include "decode_f16_ring.cuh"
#if PASS == 1
#include "decode_f16_up.cuh"
#else
#include "decode_f16_down.cuh"
#endif

/* The warp that sends for weights: one lane. */
MOII_FN void send_weights(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, share s)
{
    const unsigned int bytes = F16_ROWS * a.scale_row;
    turn t;
    t.slot = 0, t.phase = 1;
    int scale_slot = 0, before = PASS == 1 ? (s.to - s.from) * a.parts - a.early : 1; /* slots before pass 2 may start */
    place p = first_place(a, s);
    if (before <= 0) grid_release();
    for (int n = s.from; n < s.to; n++, next_place(p, l, a)) {
        const int expert = l.expert[p.job];
        for (int part = 0; part < a.parts; part++, advance(t, a)) {
            const unsigned int barrier = filled(w, a, t.slot), to = w.shared + t.slot * a.slot_bytes;
            if (PASS == 1 && --before == 0) grid_release();
            barrier_wait(freed(w, a, t.slot), t.phase);
            barrier_expect(barrier, a.slot_bytes + (part ? 0 : bytes));
#if PASS == 1
            box_load_4(to, &a.map, barrier, 0, p.tile * 8, 2 * expert, part * a.slot_lines);
#else
            box_load(to, &a.map, barrier, 0, expert * a.hidden + p.tile * F16_ROWS, part * a.slot_lines);
#endif
            if (part) continue;
            const unsigned int to_scales = w.shared + a.at_scales + scale_slot * bytes;
            const unsigned char *from = a.scale + (unsigned long long)expert * a.expert_scale_bytes;
            if (PASS == 1) {
                run_load(to_scales, from + p.tile * (bytes / 2), bytes / 2, barrier);
                run_load(to_scales + bytes / 2, from + (a.width * a.scale_row + p.tile * (bytes / 2)), bytes / 2, barrier);
            } else run_load(to_scales, from + p.tile * bytes, bytes, barrier);
        }
        if (++scale_slot == a.scale_slots) scale_slot = 0;
    }
}

extern "C" __global__ void __launch_bounds__(F16_THREADS, GROUPS == 1 ? 2 : 1) moe_decode_f16_sm90(const __grid_constant__ moe_decode_f16_sm90_args a)
{
    extern __shared__ __align__(1024) char memory[];
    worker w;
    w.memory = memory, w.shared = shared_address(memory), w.warp = (int)threadIdx.x / 32, w.lane = (int)threadIdx.x % 32;
    lists l = lists_at(a, memory);
    if (threadIdx.x == F16_THREADS - 1) map_prefetch(&a.map);
    make_barriers(w, a);
    if (PASS == 1) ask_for_inputs(a);
    clear_lists(l, a);
    if (PASS == 1) grid_wait();
    else grid_release();
    route_tokens(l, a);
#if PASS == 1
    if (a.dense && w.warp < F16_CONSUMERS) keep_columns(w, a, l, 0, 1); /* while the lists are made */
#endif
    make_lists(l, a);
    const share s = my_share(l, a);
    if (w.warp < F16_CONSUMERS) multiply(w, a, l, s);
    else if (w.warp == SENDER) {
        if (w.lane == 0) send_weights(w, a, l, s);
    } else {
        if (PASS == 1 && a.logits) hand_out(a, w.lane);
        add_up(w, a, l, s);
    }
}
