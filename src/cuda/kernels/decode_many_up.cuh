/* SPDX-License-Identifier: Apache-2.0
 * decode_many_up.cuh: pass 1 of moe_decode_many_sm90: what it leaves to pass 2; its items are decode_f16_team.cuh's. */
#ifndef MOII_DECODE_MANY_UP_CUH
#define MOII_DECODE_MANY_UP_CUH

#include "decode_many_rooms.cuh"

/* Pass 2 may start long before: leave_lists. */
MOII_FN void begin_turn(int, int, const worker &, const moe_decode_f16_sm90_args &, const lists &) {}

#include "decode_f16_team.cuh"

/* Before jobs are known, and while memory has little to do: what each worker would begin with if every expert had one job, into L2.  Where many tokens
 * choose, most of that is read, if by another block or later. */
MOII_FN void fetch_likely(const worker &w, const moe_decode_f16_sm90_args &a, lists l)
{
    l.here = share_of(a.experts, a.tiles, w.lane);
    work k = first_work(w, a, l);
    if (w.lane) return;
#pragma unroll 1
    for (int i = 0; i < a.likely && there_is(k, l) && k.part < a.parts; i++, next_slot(k, w, a))
        box_fetch_4(&a.map, 0, k.tile * 8, 2 * k.job, k.part * a.slot_lines);
}

/* By the warp that brings columns, before it does.  Weights too before pass 2 may start: pass 3 reads them before it waits. */
MOII_FN void leave_lists(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    leave_jobs(l, a, w.lane);
    leave_weights(l, a, w.lane);
    __threadfence();
    __syncwarp();
    if (w.lane == 0) grid_release();
}

#endif
