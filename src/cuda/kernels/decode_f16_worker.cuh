/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_worker.cuh: a worker of moe_decode_f16_sm90: its barriers and slots, and where they are. */
#ifndef MOII_DECODE_F16_WORKER_CUH
#define MOII_DECODE_F16_WORKER_CUH

#if MANY
#include "decode_many_lists.cuh"
#else
#include "decode_f16_lists.cuh"
#endif
#include "decode_f16_multiply.cuh"

/* Whole slots of MXFP8 in pass 1: scales come by boxes (decode_f16_scales.cuh). */
#define SCALE_BOXES (WHOLE && PASS == 1 && (WEIGHTS == F16_MX_E4M3 || WEIGHTS == F16_MX_E5M2))

/* Arrivals at a slot's barrier: of the lane that sends for it, and where lanes bring its scales, of each. */
enum { ARRIVALS = WEIGHTS == F16_BF16 || SCALE_BOXES ? 1 : 33 };

/* What a worker needs for each of its slots, found once: the first one's barrier, and a lane's places: of codes that it reads (the first lane's is where the
 * slot begins), of scales that it reads and that it brings, and where these are among an item's.  TAIL: bits of a word before the row's first scale, of what
 * it reads; words that it brings of a row beside one for each line but the last.  SCALE_BOXES: what changes places in a room. */
typedef struct own_places { unsigned int barrier, codes, scales, words, from, bits, swizzle; int last_words; } own_places;

typedef struct worker {
    unsigned int shared;
    int warp, lane;
    own_places own;
} worker;

/* Barriers: of slots that are filled; pass 1: of each team's two places for sums (SUM_PLACES: or one), written and read, then, with more tokens, of rooms
 * for a job's columns, full and free, and of its rooms for scales. */
MOII_FN unsigned int barrier_at(const worker &w, const moe_decode_f16_sm90_args &a, int i) { return w.shared + a.at_barriers + 8 * i; }
MOII_FN unsigned int filled(const worker &w, int slot) { return w.own.barrier + 8 * slot; }
MOII_FN unsigned int summed(const worker &w, const moe_decode_f16_sm90_args &a, int place) { return barrier_at(w, a, WORKERS * a.ring + place); }
MOII_FN unsigned int added(const worker &w, const moe_decode_f16_sm90_args &a, int place) { return summed(w, a, 2 * TEAMS + place); }

MOII_FN void make_barriers(const worker &w, const moe_decode_f16_sm90_args &a)
{
    const int i = (int)threadIdx.x, slots = WORKERS * a.ring, sums = slots + 2 * TEAMS;
    if (i < slots) barrier_init(barrier_at(w, a, i), ARRIVALS);
    else if (PASS == 1 && i < sums + 2 * TEAMS) barrier_init(barrier_at(w, a, i), i < sums ? F16_TEAM : 1);
#if MANY
    else if (i < sums + 2 * TEAMS + 2 * a.buffers) barrier_init(barrier_at(w, a, i), i < sums + 2 * TEAMS + a.buffers ? 1 : WORKERS);
    else if (SCALE_BOXES && i < sums + 2 * TEAMS + 2 * a.buffers + TEAMS * a.scale_rooms) barrier_init(barrier_at(w, a, i), 1);
#endif
    barrier_init_done();
}

/* A worker's slots: its place, and whether its ring has come round an even or odd number of times. */
typedef struct turn { int slot; unsigned int phase; } turn;
MOII_FN void advance(turn &t, const moe_decode_f16_sm90_args &a)
{
    if (++t.slot == a.ring) t.slot = 0, t.phase ^= 1u;
}

#if PASS == 1
enum { SLOT_LINES = F16_UP_LINES(WEIGHTS) };
#else
enum { SLOT_LINES = LINES };
#endif

MOII_FN int slot_lines(const moe_decode_f16_sm90_args &a) { return WHOLE ? (int)SLOT_LINES : a.slot_lines; }
MOII_FN int slot_bytes(const moe_decode_f16_sm90_args &a) { return WHOLE ? (int)SLOT_LINES * LINE_BYTES : a.slot_bytes; }
MOII_FN unsigned int slot_at(const worker &w, const moe_decode_f16_sm90_args &a, int slot)
{
    return w.shared + (unsigned int)((w.warp * a.ring + slot) * slot_bytes(a));
}

#endif
