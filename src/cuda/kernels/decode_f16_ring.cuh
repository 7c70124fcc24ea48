/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_ring.cuh: what the warps of moe_decode_f16_sm90 share: barriers, the order of slots, a line's scales. */
#ifndef MOII_DECODE_F16_RING_CUH
#define MOII_DECODE_F16_RING_CUH

#if MANY
#include "decode_many_lists.cuh"
#else
#include "decode_f16_lists.cuh"
#endif
#include "decode_f16_multiply.cuh"

typedef struct worker {
    unsigned int shared;
    int warp, lane;
} worker;

/* Barriers: of slots that are filled; pass 1: of each team's two places for sums, written and read, then, with more tokens, of rooms for a job's columns,
 * full and free. */
MOII_FN unsigned int barrier_at(const worker &w, const moe_decode_f16_sm90_args &a, int i) { return w.shared + a.at_barriers + 8 * i; }
MOII_FN unsigned int filled(const worker &w, const moe_decode_f16_sm90_args &a, int slot) { return barrier_at(w, a, w.warp * a.ring + slot); }
MOII_FN unsigned int summed(const worker &w, const moe_decode_f16_sm90_args &a, int place) { return barrier_at(w, a, WORKERS * a.ring + place); }
MOII_FN unsigned int added(const worker &w, const moe_decode_f16_sm90_args &a, int place) { return summed(w, a, 2 * TEAMS + place); }

/* Arrivals at a slot's: of the lane that sends for the box, and of each lane for its scales. */
MOII_FN void make_barriers(const worker &w, const moe_decode_f16_sm90_args &a)
{
    const int i = (int)threadIdx.x, slots = WORKERS * a.ring, sums = slots + 2 * TEAMS;
    if (i < slots) barrier_init(barrier_at(w, a, i), 33);
    else if (PASS == 1 && i < sums + 2 * TEAMS) barrier_init(barrier_at(w, a, i), i < sums ? F16_TEAM : 1);
#if MANY
    else if (i < sums + 2 * TEAMS + 2 * a.buffers) barrier_init(barrier_at(w, a, i), i < sums + 2 * TEAMS + a.buffers ? 1 : WORKERS);
#endif
    barrier_init_done();
}

/* A worker's slots: its place, and whether its ring has come round an even or odd number of times. */
typedef struct turn { int slot; unsigned int phase; } turn;
MOII_FN void advance(turn &t, const moe_decode_f16_sm90_args &a)
{
    if (++t.slot == a.ring) t.slot = 0, t.phase ^= 1u;
}
MOII_FN unsigned int slot_at(const worker &w, const moe_decode_f16_sm90_args &a, int slot)
{
    return w.shared + (w.warp * a.ring + slot) * a.slot_bytes;
}

#if PASS == 1
enum { SLOT_LINES = F16_UP_LINES };
#else
enum { SLOT_LINES = LINES };
#endif

/* A slot's scales lie beside it, a word for each row and line, and come with it: behind each lane's own copies and arrival at its barrier. */
enum { SCALE_WORDS = F16_ROWS * SLOT_LINES };
MOII_FN unsigned int scales_at(const worker &w, const moe_decode_f16_sm90_args &a, int slot)
{
    return w.shared + a.at_scales + (w.warp * a.ring + slot) * (SCALE_WORDS * 4);
}

/* All lanes.  from: the item's first row; bottom: how far its row 8 is behind that. */
MOII_FN void send_for_scales(const worker &w, const moe_decode_f16_sm90_args &a, int slot, const unsigned char *from, unsigned int bottom, int part)
{
    const unsigned int to = scales_at(w, a, slot);
#pragma unroll
    for (unsigned int i = (unsigned int)w.lane % 32u; i < SCALE_WORDS; i += 32) {
        const int row = (int)(i / SLOT_LINES), line = (int)(i % SLOT_LINES);
        if (line >= a.slot_lines || part * a.slot_lines + line >= a.lines) continue;
        word_load(to + 4 * i, from + (row < 8 ? 0u : bottom) + (unsigned int)(row % 8 * a.scale_row + (part * a.slot_lines + line) * 4));
    }
    barrier_arrive_behind_words(filled(w, a, slot));
}

#if MANY
#define JOB_COLUMNS(a) (a).columns
#else
#define JOB_COLUMNS(a) F16_MOST_TOKENS
#endif
MOII_FN int pair_of(const worker &w, const moe_decode_f16_sm90_args &a, int job, int column)
{
    short v;
    asm volatile("ld.shared.s16 %0, [%1];" : "=h"(v) : "r"(w.shared + a.at_column + 2 * (job * JOB_COLUMNS(a) + column)) : "memory");
    return v;
}

MOII_FN int job_word(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return (int)shared_word(w.shared + a.at_expert + 4 * job); }
#if MANY
MOII_FN int expert_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return job_word(w, a, job) & 0xFFFF; }
MOII_FN int columns_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return job_word(w, a, job) >> 16; }
MOII_FN int groups_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return (columns_of(w, a, job) + F16_MOST_TOKENS - 1) / F16_MOST_TOKENS; }
MOII_FN bool has_column(const worker &w, const moe_decode_f16_sm90_args &a, int job, int column) { return column < columns_of(w, a, job); }
#else
MOII_FN int expert_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return job_word(w, a, job); }
MOII_FN int groups_of(const worker &, const moe_decode_f16_sm90_args &, int) { return 1; }
MOII_FN bool has_column(const worker &w, const moe_decode_f16_sm90_args &a, int job, int column) { return pair_of(w, a, job, column) >= 0; }
#endif


#endif
