/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_ring.cuh: what comes into a worker's slots, and for which job. */
#ifndef MOII_DECODE_F16_RING_CUH
#define MOII_DECODE_F16_RING_CUH

#include "decode_f16_scales.cuh"

MOII_FN void find_places(worker &w, const moe_decode_f16_sm90_args &a)
{
    const unsigned int first = (unsigned int)(w.warp * a.ring);
    w.own.barrier = as_it_is(barrier_at(w, a, (int)first));
    w.own.codes = as_it_is(w.shared + first * slot_bytes(a) + lane_place(w.lane));
    find_scales(w, a);
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

/* Where a job's weights are, and how they stay in L2 (evict.h): where their expert has another job, which reads them again, longer; but of MXFP4 by jobs of 16
 * columns, which multiplying bounds.  The policy's upper half is kept, or where a register is short for that, what of the job's word tells. */
#define SHARES_EXPERTS (MANY && (GROUPS == 1 || WEIGHTS != F16_MXFP4))
typedef struct source { int expert; unsigned int policy; } source;
#if SHARES_EXPERTS && GROUPS > 1
MOII_FN source source_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return { job_word(w, a, job) & (JOB_EXPERT | JOB_SHARED), 0 }; }
MOII_FN int expert_at(const source &s) { return s.expert & JOB_EXPERT; }
MOII_FN unsigned long long policy_of(const source &s, const moe_decode_f16_sm90_args &a) { return s.expert & JOB_SHARED ? EVICT_NORMAL : a.policy; }
#else
MOII_FN source source_of(const worker &w, const moe_decode_f16_sm90_args &a, int job)
{
    source s = { expert_of(w, a, job), 0 };
#if SHARES_EXPERTS
    s.policy = (unsigned int)((job_word(w, a, job) & JOB_SHARED ? EVICT_NORMAL : a.policy) >> 32);
#endif
    return s;
}
MOII_FN int expert_at(const source &s) { return s.expert; }
MOII_FN unsigned long long policy_of(const source &s, const moe_decode_f16_sm90_args &a)
{
    return SHARES_EXPERTS ? (unsigned long long)s.policy << 32 : a.policy;
}
#endif

/* Where rows are no whole lines, boxes of one line, of a map whose rows end where they do: how many a slot has; where a line begins.  Of slots whose lines
 * are all whole one box brings them. */
MOII_FN int boxes_of(const moe_decode_f16_sm90_args &a, int part) { return min(slot_lines(a), a.lines - part * slot_lines(a)); }
MOII_FN int row_begin(int line) { return line * F16_ROW_BYTES(WEIGHTS); }

/* Of whole lines, behind each other along k: a map's coordinate of a part's first one, or first piece. */
MOII_FN int first_piece(const moe_decode_f16_sm90_args &a, int part) { return part * slot_lines(a) / PIECE_LINES; }

/* A slot's codes, of the rows that the map has at y, z (in whole lines pass 2's has no z): one lane. */
MOII_FN void load_codes(const worker &w, const moe_decode_f16_sm90_args &a, int slot, int part, int y, int z, unsigned long long policy)
{
#if TAIL
    const int boxes = boxes_of(a, part), first = part * slot_lines(a);
    if (first + slot_lines(a) < a.lines) {
        barrier_expect(filled(w, slot), slot_bytes(a));
        if (PASS == 1) box_load_as_4(slot_at(w, a, slot), &a.whole_map, filled(w, slot), 0, y, z, first, policy);
        else box_load_as(slot_at(w, a, slot), &a.whole_map, filled(w, slot), 0, y, first, policy);
        return;
    }
    barrier_expect(filled(w, slot), boxes * LINE_BYTES);
    for (int i = 0; i < boxes; i++)
        box_load_as(slot_at(w, a, slot) + i * LINE_BYTES, &a.map, filled(w, slot), row_begin(part * slot_lines(a) + i), y, z, policy);
#else
    barrier_expect(filled(w, slot), slot_bytes(a));
    if (PASS == 1) box_load_as_4(slot_at(w, a, slot), &a.map, filled(w, slot), 0, y, z, first_piece(a, part), policy);
    else box_load_as(slot_at(w, a, slot), &a.map, filled(w, slot), 0, y, first_piece(a, part), policy);
#endif
}

#endif
