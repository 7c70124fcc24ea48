/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_up.cuh: pass 1 of moe_decode_f16_sm90: columns of x, which every block keeps whole, and the order of items. */
#ifndef MOII_DECODE_F16_UP_CUH
#define MOII_DECODE_F16_UP_CUH

#include "decode_f16_handover.cuh"
#include "decode_f16_kept.cuh"

/* A worker's columns: lines number `warp` and every WORKERS lines on, some at once; column j is token j, or where there are fewer, the last one. */
enum { X_LINES = F16_X_VALUES / LINE_VALUES };
typedef struct some_lines { line_columns of[X_LINES]; } some_lines;

MOII_FN void load_columns(some_lines &c, const worker &w, const moe_decode_f16_sm90_args &a, int first)
{
    const int column = w.lane / 4 & (a.columns - 1), token = min(column, a.tokens - 1);
    const unsigned short *x = a.x + (long long)token * a.hidden + w.lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < X_LINES; i++) {
        const int line = min(first + i * WORKERS, a.lines - 1);
        load_x(c.of[i], x + line * LINE_VALUES, blocks_of(a, line));
    }
}
/* c: the first, loaded. */
MOII_FN void keep_columns(some_lines &c, const worker &w, const moe_decode_f16_sm90_args &a)
{
#pragma unroll 1
    for (int first = w.warp;;) {
#pragma unroll (WEIGHTS == F16_BF16 ? X_LINES : 1)
        for (int i = 0; i < X_LINES; i++) { /* if they are widened by the same code for each: as much again is slower than moving them */
            widen_x(c.of[0], w.lane);
            keep_line(kept_at(w, a, min(first + i * WORKERS, a.lines - 1), w.lane), c.of[0], a.columns, w.lane);
#pragma unroll
            for (int j = 0; j + 1 < X_LINES; j++) c.of[j] = c.of[j + 1];
        }
        first += X_LINES * WORKERS;
        if (first >= a.lines) return;
        load_columns(c, w, a, first);
    }
}

/* A team's items, and a worker's slots of them, one behind the other. */
typedef struct work { int job, tile, part; } work;

MOII_FN work first_item(const moe_decode_f16_sm90_args &a, const lists &l, int team)
{
    const int item = (int)blockIdx.x + team * (int)gridDim.x;
    work k;
    k.job = item / a.tiles, k.tile = item - k.job * a.tiles, k.part = 0;
    return k;
}
MOII_FN bool there_is(const work &k, const lists &l) { return k.job < l.jobs; }
MOII_FN void next_item(work &k, const moe_decode_f16_sm90_args &a, const lists &)
{
    k.job += a.step_job, k.tile += a.step_rest;
    if (k.tile >= a.tiles) k.tile -= a.tiles, k.job++;
}

/* Pass 2 may start when this item of a team (its number) has been multiplied, the first where a team has few, with E2M1 at once; negative: at once. */
enum { LATE_FROM = 5 };
MOII_FN int lets_in(const lists &l, const moe_decode_f16_sm90_args &a)
{
    const int turns = l.first[a.experts] * a.tiles / (TEAMS * (int)gridDim.x);
    if (!a.late_turns) return -1;
    if (WEIGHTS == F16_MXFP4) return turns > a.late_turns ? turns - a.late_turns : -1;
    return turns >= LATE_FROM ? max(turns - a.late_turns, 1) : min(turns - 1, 0);
}
MOII_FN void begin_turn(int turn, int team, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if (team == BLANKER - WORKERS && w.lane == 0 && turn == lets_in(l, a)) grid_release();
}

MOII_FN void come_to(const work &, const worker &, const lists &) {}

/* A column's number is its token's. */
MOII_FN int token_in(int, int column, const worker &, const moe_decode_f16_sm90_args &a, const lists &) { return min(column, a.tokens - 1); }

/* Columns of x are there from the beginning. */
typedef struct held_columns { int job; } held_columns;
MOII_FN held_columns first_columns(const moe_decode_f16_sm90_args &, const lists &) { return held_columns(); }
MOII_FN void hold_columns(held_columns &, const work &, const worker &, const moe_decode_f16_sm90_args &, const lists &) {}
MOII_FN column_source held_at(const held_columns &, const worker &w, const moe_decode_f16_sm90_args &a, int line, int) { return kept_at(w, a, line, w.lane); }

#include "decode_f16_team.cuh"

#endif
