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

/* What a worker needs for each of its slots, found once: the first one's barrier, and a lane's places: of codes that it reads (the first lane's is where the
 * slot begins), of scales that it reads and that it brings, and where these are among an item's.  TAIL: bits of a word before the row's first scale, of what
 * it reads; words that it brings of a row beside one for each line but the last. */
typedef struct own_places { unsigned int barrier, codes, scales, words, from, bits; int last_words; } own_places;

typedef struct worker {
    unsigned int shared;
    int warp, lane;
    own_places own;
} worker;

/* Barriers: of slots that are filled; pass 1: of each team's two places for sums, written and read, then, with more tokens, of rooms for a job's columns,
 * full and free. */
MOII_FN unsigned int barrier_at(const worker &w, const moe_decode_f16_sm90_args &a, int i) { return w.shared + a.at_barriers + 8 * i; }
MOII_FN unsigned int filled(const worker &w, int slot) { return w.own.barrier + 8 * slot; }
MOII_FN unsigned int summed(const worker &w, const moe_decode_f16_sm90_args &a, int place) { return barrier_at(w, a, WORKERS * a.ring + place); }
MOII_FN unsigned int added(const worker &w, const moe_decode_f16_sm90_args &a, int place) { return summed(w, a, 2 * TEAMS + place); }

/* Arrivals at a slot's: of the lane that sends for the box, and of each lane for its scales. */
enum { ARRIVALS = WEIGHTS == F16_BF16 ? 1 : 33 };
MOII_FN void make_barriers(const worker &w, const moe_decode_f16_sm90_args &a)
{
    const int i = (int)threadIdx.x, slots = WORKERS * a.ring, sums = slots + 2 * TEAMS;
    if (i < slots) barrier_init(barrier_at(w, a, i), ARRIVALS);
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

#if PASS == 1
enum { SLOT_LINES = F16_UP_LINES(WEIGHTS) };
#else
enum { SLOT_LINES = LINES };
#endif

MOII_FN unsigned int slot_at(const worker &w, const moe_decode_f16_sm90_args &a, int slot)
{
    return w.shared + (unsigned int)((w.warp * a.ring + slot) * a.slot_bytes);
}

/* A slot's scales lie beside it, a word for each line and row, or for each line and half of the rows, and come with it: behind each lane's own copies and
 * arrival at its barrier.  A lane brings those of row lane % 16, of every second line, or one of half lane % 2.  BF16 has none. */
enum { SCALE_WORDS = F16_SCALE_WORDS(SLOT_LINES, TAIL), SCALE_BYTES = WEIGHTS == F16_BF16 ? 0 : F16_ROWS * SCALE_WORDS * 4 };

MOII_FN void find_places(worker &w, const moe_decode_f16_sm90_args &a)
{
    const unsigned int first = (unsigned int)(w.warp * a.ring);
    w.own.barrier = as_it_is(barrier_at(w, a, (int)first));
    w.own.codes = as_it_is(w.shared + first * a.slot_bytes + lane_place(w.lane));
#if WEIGHTS != F16_BF16
    const unsigned int scales = w.shared + a.at_scales + first * SCALE_BYTES;
    w.own.words = as_it_is(scales + w.lane * 4);
#endif
#if WEIGHTS == F16_SQUARES
    const unsigned int bottom = (unsigned int)((PASS == 1 ? a.width / 128 : 0) * a.scale_row); /* from an item's first row to its ninth */
    w.own.scales = as_it_is(scales);
    w.own.from = as_it_is((w.lane % 2 ? bottom : 0u) + w.lane / 2 * 4);
#elif WEIGHTS != F16_BF16
    const unsigned int bottom = (unsigned int)((PASS == 1 ? a.width : 8) * a.scale_row), row = (unsigned int)w.lane % F16_ROWS;
    const unsigned int before = row % 8 * a.scale_row % 4; /* scales of the row before in its first word */
    w.own.scales = as_it_is(scales + row_at(w.lane / 4) * 4);
    w.own.from = as_it_is((row < 8 ? 0u : bottom) + row % 8 * a.scale_row - (TAIL ? before : 0u) + w.lane / F16_ROWS * 4);
    if (TAIL) w.own.bits = as_it_is((unsigned int)(row_at(w.lane / 4) * a.scale_row) % 4 * 8), w.own.last_words = (int)(before + a.last_blocks + 3) / 4;
#endif
}
/* Of row g and of row g + 8 of a slot's line, of which there are so many blocks; at: the slot's, for this lane. */
MOII_FN uint2 line_scales(const worker &w, unsigned int at, int line, int blocks)
{
#if WEIGHTS == F16_BF16
    return make_uint2(0, 0);
#elif WEIGHTS == F16_SQUARES
    return shared_codes(at + 8 * line);
#else
    uint2 s = make_uint2(shared_word(at + 4 * F16_ROWS * line), shared_word(at + 4 * F16_ROWS * line + 32));
#if TAIL
    const uint2 next = make_uint2(shared_word(at + 4 * F16_ROWS * (line + 1)), shared_word(at + 4 * F16_ROWS * (line + 1) + 32));
    s.x = bytes_of_blocks(__funnelshift_r(s.x, next.x, w.own.bits), blocks), s.y = bytes_of_blocks(__funnelshift_r(s.y, next.y, w.own.bits), blocks);
#endif
    return s;
#endif
}

/* All lanes.  from: of the item's first row. */
MOII_FN void send_for_scales(const worker &w, const moe_decode_f16_sm90_args &a, int slot, const unsigned char *from, int part)
{
    if (WEIGHTS == F16_BF16) return;
    const int first = part * a.slot_lines, lines = min(a.slot_lines, a.lines - first);
    from += w.own.from + (unsigned int)first * 4;
#if WEIGHTS == F16_SQUARES
    word_load_if(w.lane < 2 * lines, w.own.words + (unsigned int)(slot * SCALE_BYTES), from);
#else
    const int words = TAIL ? min(a.slot_lines + 1, a.lines - 1 + w.own.last_words - first) : lines;
#pragma unroll
    for (int i = 0; i < SCALE_WORDS; i += 2)
        word_load_if(i + w.lane / F16_ROWS < words, w.own.words + (unsigned int)(slot * SCALE_BYTES + i * F16_ROWS * 4), from + 4 * i);
#endif
    barrier_arrive_behind_words(filled(w, slot));
}
/* Of an item's row, in either of an expert's matrices; of BF16 nothing. */
MOII_FN const unsigned char *scales_from(const moe_decode_f16_sm90_args &a, int expert, int row)
{
    const int scale_row = WEIGHTS == F16_SQUARES ? row / 128 : row;
    return a.scale + ((unsigned long long)(unsigned int)expert * a.expert_scale_bytes + (unsigned int)(scale_row * a.scale_row));
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
MOII_FN int expert_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return job_word(w, a, job) & JOB_EXPERT; }
MOII_FN int columns_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return job_word(w, a, job) >> 16; }
MOII_FN int groups_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return (columns_of(w, a, job) + F16_MOST_TOKENS - 1) / F16_MOST_TOKENS; }
MOII_FN bool has_column(const worker &w, const moe_decode_f16_sm90_args &a, int job, int column) { return column < columns_of(w, a, job); }
#else
MOII_FN int expert_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return job_word(w, a, job); }
MOII_FN int groups_of(const worker &, const moe_decode_f16_sm90_args &, int) { return 1; }
MOII_FN bool has_column(const worker &w, const moe_decode_f16_sm90_args &a, int job, int column) { return pair_of(w, a, job, column) >= 0; }
#endif

/* Where a job's weights are, and the upper half of how they stay in L2 (evict.h): where their expert has another job, which reads them again, longer. */
#define SHARES_EXPERTS (MANY && GROUPS == 1)
typedef struct source { int expert; unsigned int policy; } source;
MOII_FN source source_of(const worker &w, const moe_decode_f16_sm90_args &a, int job)
{
    source s = { expert_of(w, a, job), 0 };
#if SHARES_EXPERTS
    s.policy = (unsigned int)((job_word(w, a, job) & JOB_SHARED ? EVICT_NORMAL : a.policy) >> 32);
#endif
    return s;
}
MOII_FN unsigned long long policy_of(const source &s, const moe_decode_f16_sm90_args &a)
{
    return SHARES_EXPERTS ? (unsigned long long)s.policy << 32 : a.policy;
}

/* Where rows are no whole lines a box has one line, of a map whose rows end where they do: how many a slot has; where a line begins. */
MOII_FN int boxes_of(const moe_decode_f16_sm90_args &a, int part) { return min(a.slot_lines, a.lines - part * a.slot_lines); }
MOII_FN int row_begin(int line) { return line * F16_ROW_BYTES(WEIGHTS); }

/* A slot's codes, of the rows that the map has at y, z (in whole lines pass 2's has no z): one lane. */
MOII_FN void load_codes(const worker &w, const moe_decode_f16_sm90_args &a, int slot, int part, int y, int z, unsigned long long policy)
{
#if TAIL
    const int boxes = boxes_of(a, part);
    barrier_expect(filled(w, slot), boxes * LINE_BYTES);
    for (int i = 0; i < boxes; i++)
        box_load_as(slot_at(w, a, slot) + i * LINE_BYTES, &a.map, filled(w, slot), row_begin(part * a.slot_lines + i), y, z, policy);
#else
    barrier_expect(filled(w, slot), a.slot_bytes);
    if (PASS == 1) box_load_as_4(slot_at(w, a, slot), &a.map, filled(w, slot), 0, y, z, part * a.slot_lines, policy);
    else box_load_as(slot_at(w, a, slot), &a.map, filled(w, slot), 0, y, part * a.slot_lines, policy);
#endif
}

#endif
