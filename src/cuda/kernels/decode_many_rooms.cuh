/* SPDX-License-Identifier: Apache-2.0
 * decode_many_rooms.cuh: what a block of moe_decode_many_sm90 has to do, and the columns that it needs for it.
 *
 * A block's items are neighbours, so that they are of few jobs.  A job's columns, x in pass 1 and u in pass 2, lie in a room of shared memory; rooms
 * are used in turn.  The first ones are brought by all warps, the others by one that does nothing else,
 * while workers are at the job before. */
#ifndef MOII_DECODE_MANY_ROOMS_CUH
#define MOII_DECODE_MANY_ROOMS_CUH

#include "decode_f16_handover.cuh"
#include "decode_f16_kept.cuh"

/* Barriers of the rooms. */
MOII_FN unsigned int full(const worker &w, const moe_decode_f16_sm90_args &a, int room) { return summed(w, a, 4 * TEAMS + room); }
MOII_FN unsigned int empty(const worker &w, const moe_decode_f16_sm90_args &a, int room) { return full(w, a, a.buffers + room); }

/* A team's items, in pass 2 a worker's, and slots of them, one behind the other. */
enum { STEP = PASS == 1 ? TEAMS : WORKERS };
typedef struct work { int job, tile, part, left; } work;

MOII_FN void settle(work &k, const moe_decode_f16_sm90_args &a)
{
    while (k.tile >= a.tiles) k.tile -= a.tiles, k.job++;
}
MOII_FN work first_item(const moe_decode_f16_sm90_args &a, const lists &l, int number)
{
    const int item = first_of((int)blockIdx.x, a, l) + number, end = first_of((int)blockIdx.x + 1, a, l);
    work k;
    k.job = item / a.tiles, k.tile = item - k.job * a.tiles, k.part = 0, k.left = (end - item + STEP - 1) / STEP;
    return k;
}
MOII_FN bool there_is(const work &k, const lists &l) { return k.left > 0; }
MOII_FN void next_item(work &k, const moe_decode_f16_sm90_args &a)
{
    k.left--, k.tile += STEP;
    settle(k, a);
}

/* The room of a job, and whether it has been seen full. */
typedef struct held_columns { int job, room; unsigned int phase; bool taken; } held_columns;

MOII_FN held_columns first_columns(const moe_decode_f16_sm90_args &a, const lists &l)
{
    const held_columns h = { jobs_here(a, l).first, 0, 0, false };
    return h;
}
MOII_FN void next_room(held_columns &h, const moe_decode_f16_sm90_args &a)
{
    h.job++, h.taken = false;
    if (++h.room == a.buffers) h.room = 0, h.phase ^= 1u;
}
MOII_FN column_source held_at(const held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a, int line, int group)
{
    column_source k = kept_at(w, a, line, w.lane);
    const unsigned int more = (unsigned int)((h.room * GROUPS + group) * a.lines * (256 * F16_MOST_TOKENS + 32));
    k.at += more, k.factors_at += more;
    return k;
}

/* Workers: none may be passed over unseen, for phases are told by a parity. */
MOII_FN void take_columns(held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a)
{
    if (!h.taken) barrier_wait(full(w, a, h.room), h.phase);
    h.taken = true;
}
MOII_FN void leave_columns(held_columns &h, int until, const worker &w, const moe_decode_f16_sm90_args &a)
{
    while (h.job < until) {
        take_columns(h, w, a);
        __syncwarp();
        if (w.lane == 0) barrier_arrive(empty(w, a, h.room));
        next_room(h, a);
    }
}
MOII_FN void hold_columns(held_columns &h, int job, const worker &w, const moe_decode_f16_sm90_args &a)
{
    leave_columns(h, job, w, a);
    take_columns(h, w, a);
}
MOII_FN void leave_all_columns(held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    leave_columns(h, jobs_here(a, l).end, w, a);
}

/* ---- bringing columns ---- */

enum { LINES_AT_ONCE = 2 };

/* A lane's column of a group of a job; where there are fewer, the last one. */
#if PASS == 1
typedef const unsigned short *column_place;
MOII_FN column_place place_of(const lists &l, const moe_decode_f16_sm90_args &a, int, int column, int lane)
{
    return a.x + (long long)token_of(a, l.scratch[column]) * a.hidden + lane % 4 * 8;
}
typedef line_columns raw_columns;
MOII_FN void load_raw(raw_columns &c, column_place x, const moe_decode_f16_sm90_args &, int line) { load_x(c, x + line * F16_LINE); }
MOII_FN void as_kept(line_columns &to, raw_columns &c, int lane)
{
    widen_x(c, lane);
    to = c;
}
#else
typedef unit_place column_place;
MOII_FN column_place place_of(const lists &, const moe_decode_f16_sm90_args &a, int job, int column, int lane)
{
    const unit_place p = { (unsigned int)((job * a.columns + column) * a.width + lane % 4 * 8), a.lines };
    return p;
}
typedef line_u raw_columns;
MOII_FN void load_raw(raw_columns &c, const column_place &p, const moe_decode_f16_sm90_args &a, int line) { load_u(c, p, a, line); }
MOII_FN void as_kept(line_columns &to, raw_columns &c, int lane) { align_u(to, c, lane); }
#endif

/* One job's, lines number `number` and every `step` on, when the room is empty; the first jobs' are from the beginning. */
MOII_FN void bring_lines(const held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, int number, int step, bool waits)
{
    const int columns = l.job[h.job] >> 16;
#if PASS == 1
    find_pairs(l, a, h.job, l.scratch, w.lane);
#endif
#pragma unroll 1
    for (int group = 0; group * F16_MOST_TOKENS < columns; group++) {
        const column_place place = place_of(l, a, h.job, min(group * F16_MOST_TOKENS + w.lane / 4, columns - 1), w.lane);
#pragma unroll 1
        for (int line = number; line < a.lines; line += LINES_AT_ONCE * step) {
            raw_columns c[LINES_AT_ONCE];
#pragma unroll
            for (int i = 0; i < LINES_AT_ONCE; i++) load_raw(c[i], place, a, min(line + i * step, a.lines - 1));
            if (waits) barrier_wait(empty(w, a, h.room), h.phase ^ 1u);
            waits = false;
#pragma unroll
            for (int i = 0; i < LINES_AT_ONCE; i++) {
                line_columns kept;
                as_kept(kept, c[i], w.lane);
                keep_line(held_at(h, w, a, min(line + i * step, a.lines - 1), group), kept, F16_MOST_TOKENS, w.lane);
            }
        }
    }
    if (waits) barrier_wait(empty(w, a, h.room), h.phase ^ 1u);
    __syncwarp();
}

/* Of the block's first job by all warps, which meet; in pass 2 when pass 1 has ended. */
MOII_FN void bring_first(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    const held_columns h = first_columns(a, l);
    if (PASS == 2) grid_wait();
    if (h.job < jobs_here(a, l).end) bring_lines(h, w, a, l, w.warp, WARPS, false);
    __syncthreads();
}

/* Of the jobs behind it by one warp. */
MOII_FN void bring_next(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    const int end = jobs_here(a, l).end;
    held_columns h = first_columns(a, l);
    for (bool first = true; h.job < end; next_room(h, a), first = false) {
        if (!first) bring_lines(h, w, a, l, 0, 1, true);
        if (w.lane == 0) barrier_arrive(full(w, a, h.room));
    }
}

#endif
