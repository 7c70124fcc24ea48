/* SPDX-License-Identifier: Apache-2.0
 * decode_many_rooms.cuh: what a block of moe_decode_many_sm90 has to do, and the columns that it needs for it.
 *
 * A block's items are neighbours, so that they are of few jobs.  A job's columns, x in pass 1 and u in pass 2, lie in a room of shared memory; rooms
 * are used in turn.  All warps bring the first job's; the others' come while workers are at the job before, by warps that do not multiply, or, where
 * there is one room, between two jobs, by the workers. */
#ifndef MOII_DECODE_MANY_ROOMS_CUH
#define MOII_DECODE_MANY_ROOMS_CUH

#include "decode_f16_handover.cuh"
#include "decode_f16_kept.cuh"

/* Barriers of the rooms. */
MOII_FN unsigned int full(const worker &w, const moe_decode_f16_sm90_args &a, int room) { return summed(w, a, 4 * TEAMS + room); }
MOII_FN unsigned int empty(const worker &w, const moe_decode_f16_sm90_args &a, int room) { return full(w, a, a.buffers + room); }

/* A team's items, in pass 2 a worker's, and slots of them, one behind the other.  left: items from this one on; second: those of the second half. */
enum { STEP = PASS == 1 ? TEAMS : WORKERS };
typedef struct work { int job, tile, part, left, second; } work;

MOII_FN void settle(work &k, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if (k.left != k.second && k.tile < a.tiles) return; /* nearly always: no load then */
    if (k.left == k.second) k.job += l.gap[0], k.tile += l.gap[1];
    while (k.tile >= a.tiles) k.tile -= a.tiles, k.job++;
}
MOII_FN work first_item(const moe_decode_f16_sm90_args &a, const lists &l, int number)
{
    const share there = l.own[1];
    const int first = l.here.end - l.here.first - number + STEP - 1;
    work k;
    k.job = l.here.job, k.tile = l.here.first + number - l.here.job * a.tiles, k.part = 0;
    k.left = (first + there.end - there.first) / STEP, k.second = k.left - first / STEP;
    settle(k, a, l);
    return k;
}
MOII_FN bool there_is(const work &k, const lists &l) { return k.left > 0; }
MOII_FN void next_item(work &k, const moe_decode_f16_sm90_args &a, const lists &l)
{
    k.left--, k.tile += STEP;
    settle(k, a, l);
}

/* The room of a job, and whether it has been seen full. */
typedef struct held_columns { int job, room; unsigned int phase; bool taken; } held_columns;

/* Where a block has nothing to do, behind the last job. */
MOII_FN held_columns first_columns(const moe_decode_f16_sm90_args &a, const lists &l)
{
    const held_columns h = { l.here.job < l.here.last ? l.here.job : l.own[1].job, 0, 0, false };
    return h;
}
/* Behind the last job, of either half: the same number as where there is no second half. */
MOII_FN int end_of_jobs(const lists &l) { return l.own[1].last; }
MOII_FN void next_room(held_columns &h, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if (++h.job == l.here.last) h.job = l.own[1].job;
    h.taken = false;
    if (++h.room == a.buffers) h.room = 0, h.phase ^= 1u;
}
MOII_FN column_source held_at(const held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a, int line, int group)
{
    column_source k = kept_at(w, a, 0, w.lane);
    const unsigned int more = (unsigned int)(((h.room * GROUPS + group) * a.lines + line) * MANY_LINE(PASS, WEIGHTS));
    k.at += more, k.factors_at += more;
    return k;
}

/* ---- bringing columns ----
 *
 * Values are copied to where they will be kept, by the lane that then makes them what they are to be: x is widened, u aligned, in place; BF16 is left. */

/* Where a lane's values of a job's column are; of x: its token.  Where a group has fewer columns, the last one. */
MOII_FN int column_of(const lists &l, int job, int group, int lane) { return min(group * F16_MOST_TOKENS + lane / 4, (l.job[job] >> 16) - 1); }
#if PASS == 1
MOII_FN const unsigned short *values_of(const lists &l, const moe_decode_f16_sm90_args &a, int job, int group, int lane)
{
    return a.x + (long long)l.scratch[column_of(l, job, group, lane)] * a.hidden + lane % 4 * 8;
}
#else
MOII_FN const unsigned short *values_of(const lists &l, const moe_decode_f16_sm90_args &a, int job, int group, int lane)
{
    return a.u + (unsigned int)((job * a.columns + column_of(l, job, group, lane)) * a.width + lane % 4 * 8);
}
/* A lane's word of exponents, until the line's factors are there. */
MOII_FN unsigned int exponents_at(const column_source &k, int lane) { return k.factors_at - lane % 4 * 8 + lane * 4; }
#endif

#if PASS == 2
/* What pass 1 lets this grid start with is the first half's u, where there are two. */
MOII_FN bool awaits_pass_1(int job, const lists &l) { return job >= l.own[1].job || l.own[1].job == l.own[1].last; }
#endif

/* A job's lines `first` and every `step` on, of all groups that it has: a warp. */
MOII_FN int lines_of(const held_columns &h, const moe_decode_f16_sm90_args &a, const lists &l)
{
    return GROUPS > 1 ? ((l.job[h.job] >> 16) + F16_MOST_TOKENS - 1) / F16_MOST_TOKENS * a.lines : a.lines;
}
MOII_FN void copy_lines(const held_columns &h, int first, int step, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
#if PASS == 1
    find_tokens(l, a, h.job, l.scratch, w.lane);
#else
    if (awaits_pass_1(h.job, l)) grid_wait();
#endif
#pragma unroll 1
    for (int at = first; at < lines_of(h, a, l); at += step) {
        const int group = GROUPS > 1 ? at / a.lines : 0, line = at - group * a.lines;
        const column_source k = held_at(h, w, a, line, group);
        const unsigned short *from = values_of(l, a, h.job, group, w.lane) + line * LINE_VALUES;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) piece_load(k.at + b * k.block_bytes, from + 32 * b, !TAIL || b < blocks_of(a, line) ? 16 : 0);
#if PASS == 2 && WEIGHTS != F16_BF16
#if TAIL
        const unsigned int at_exponents = (h.job * a.columns + column_of(l, h.job, group, w.lane)) * a.exponent_row + line * (LINE_VALUES / 8) + w.lane % 4 * 4;
#else
        const unsigned int at_exponents = (unsigned int)(from - a.u) / 8 + w.lane % 4 * 3;
#endif
        word_load(exponents_at(k, w.lane), a.exponent + at_exponents);
#endif
    }
    copies_commit();
}
MOII_FN void keep_lines(const held_columns &h, int first, int step, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    COPIES_WAIT(0);
#if WEIGHTS != F16_BF16
#pragma unroll 1
    for (int at = first; at < lines_of(h, a, l); at += step) {
        const int group = GROUPS > 1 ? at / a.lines : 0;
        const int line = at - group * a.lines;
        const column_source k = held_at(h, w, a, line, group);
        line_columns c;
#if PASS == 1
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) c.v[b] = shared_read_four(k.at + b * k.block_bytes);
        widen_x(c, w.lane);
#else
        line_u u;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) u.v[b] = shared_read_four(k.at + b * k.block_bytes);
        u.exponents = bytes_of_blocks(shared_word(exponents_at(k, w.lane)), blocks_of(a, line));
        align_u(c, u, w.lane);
        __syncwarp();
#endif
        keep_line(k, c, F16_MOST_TOKENS, w.lane);
    }
#endif
    __syncwarp();
}

/* Workers: none may be passed over unseen, for phases are told by a parity.  Where there is one room they fill it themselves when all have left it. */
enum { BARRIER_HELPERS = 1, BARRIER_WORKERS };

MOII_FN void take_columns(held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a)
{
    if (!h.taken) barrier_wait(full(w, a, h.room), h.phase);
    h.taken = true;
}
MOII_FN void leave_columns(held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    take_columns(h, w, a);
    __syncwarp();
    if (a.buffers > 1) {
        if (w.lane == 0) barrier_arrive(empty(w, a, h.room));
        next_room(h, a, l);
        return;
    }
    next_room(h, a, l);
    if (h.job == end_of_jobs(l)) return;
    threads_meet(BARRIER_WORKERS, 32 * WORKERS);
    copy_lines(h, w.warp, WORKERS, w, a, l);
    keep_lines(h, w.warp, WORKERS, w, a, l);
    threads_meet(BARRIER_WORKERS, 32 * WORKERS);
    h.taken = true;
}
/* Of work k, or where there is none, all are left. */
MOII_FN void hold_columns(held_columns &h, const work &k, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    const int job = there_is(k, l) ? k.job : end_of_jobs(l);
    while (h.job < job) leave_columns(h, w, a, l);
    if (there_is(k, l)) take_columns(h, w, a);
}

/* All warps bring the first job's, the warps that do not multiply the second's, so that those who finish items begin behind it, and the last warp
 * those of the others; where there is one room, the workers do. */
enum { HELPERS = WARPS - WORKERS };

MOII_FN void bring(const held_columns &h, int first, int step, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    barrier_wait(empty(w, a, h.room), h.phase ^ 1u);
    copy_lines(h, first, step, w, a, l);
    keep_lines(h, first, step, w, a, l);
}

/* h: the first job, which is there; then the one behind those that are. */
MOII_FN void bring_second(held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    const int end = end_of_jobs(l);
    const bool tells = w.warp == WARPS - 1 && w.lane == 0;
    if (h.job == end) return;
    if (tells) barrier_arrive(full(w, a, h.room));
    next_room(h, a, l);
    if (a.buffers == 1) h.job = end;
    if (h.job == end) return;
    bring(h, w.warp - WORKERS, HELPERS, w, a, l);
    if (HELPERS > 1) threads_meet(BARRIER_HELPERS, 32 * HELPERS);
    if (tells) barrier_arrive(full(w, a, h.room));
    next_room(h, a, l);
}
MOII_FN void bring_others(held_columns &h, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    for (const int end = end_of_jobs(l); h.job < end; next_room(h, a, l)) {
        bring(h, 0, 1, w, a, l);
        if (w.lane == 0) barrier_arrive(full(w, a, h.room));
    }
}

#endif
