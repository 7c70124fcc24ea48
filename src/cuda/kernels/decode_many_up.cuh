/* SPDX-License-Identifier: Apache-2.0
 * decode_many_up.cuh: pass 1 of moe_decode_many_sm90: what it leaves to pass 2; its items are decode_f16_team.cuh's. */
#ifndef MOII_DECODE_MANY_UP_CUH
#define MOII_DECODE_MANY_UP_CUH

#include "decode_many_rooms.cuh"

/* Pass 2 may start when each block has left lists and its teams have finished the first half's items: the last of them lets it in, or where one half is
 * all, who leaves the lists. */
MOII_FN void lets_in(const lists &l, int lane)
{
    __threadfence();
    __syncwarp();
    const bool halves = l.own[1].last > l.own[1].job;
    if (lane || (halves && atomicAdd(l.done, 1) < TEAMS)) return;
    __threadfence();
    grid_release();
}

MOII_FN void begin_turn(int, int, const worker &, const moe_decode_f16_sm90_args &, const lists &) {}
MOII_FN void come_to(const work &k, const worker &w, const lists &l)
{
    if (k.left == k.second && l.own[1].last > l.own[1].job) lets_in(l, w.lane);
}
/* The token of a job's column, or where it has fewer, of the last one: all of a warp. */
MOII_FN int token_in(int job, int column, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    find_tokens(l, a, job, l.scratch, w.lane);
    return l.scratch[min(column, (l.job[job] >> 16) - 1)];
}

#include "decode_f16_team.cuh"

/* Before jobs are known, and while memory has little to do: what each worker would begin with if every expert had one job, into L2.  Where many tokens
 * choose, most of that is read, if by another block or later.  An item's scales, of 8 rows of gate and of up, are asked for by who has its first slot. */
MOII_FN void fetch_likely(const worker &w, const moe_decode_f16_sm90_args &a, lists l)
{
    l.own = (share *)l.scratch, l.gap = l.scratch + 4 * HALVES;
    share_out(l.scratch, a.experts, a.shares, a, w.lane);
    l.here = l.own[0];
    work k = first_work(w, a, l);
#pragma unroll 1
    for (int i = 0; i < a.likely && there_is(k, l) && k.part < a.parts; i++, next_slot(k, w, a, l)) {
#if TAIL
        if (w.lane < boxes_of(a, k.part)) box_fetch(&a.map, row_begin(k.part * a.slot_lines + w.lane), k.tile * 8, 2 * k.job);
#else
        if (w.lane == 0) box_fetch_4(&a.map, 0, k.tile * 8, 2 * k.job, first_piece(a, k.part));
#endif
        if (k.part || WEIGHTS == F16_SQUARES || WEIGHTS == F16_BF16) continue; /* those of squares are few */
        const unsigned char *scales = a.scale + (unsigned long long)(unsigned int)k.job * a.expert_scale_bytes + (unsigned int)(k.tile * 8 * a.scale_row);
#pragma unroll 1
        for (int line = w.lane; line < 2 * 8 * a.scale_row / 128; line += 32)
            line_fetch(scales + (line & 1 ? (unsigned int)(a.width * a.scale_row) : 0u) + line / 2 * 128);
    }
}

/* By the warp that brings columns, before it does.  Weights too before pass 2 may start: pass 3 reads them before it waits. */
MOII_FN void leave_lists(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    leave_jobs(l, a, w.lane);
    leave_weights(l, a, w.lane);
    lets_in(l, w.lane);
}

#endif
