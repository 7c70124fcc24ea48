/* SPDX-License-Identifier: Apache-2.0
 * decode_many_down.cuh: pass 2 of moe_decode_many_sm90: 16 outputs of a job's pairs are one worker's; pass 3: the sum of a token's pairs.
 *
 * A slot is a part of an item's 16 rows, some lines; of MXFP4 in whole slots and in longer ones two parts.  Sums go to memory, [pair, hidden], each once: they
 * stay in L2.  Where a job's columns do not leave room enough, a launch has some of the lines alone, and the next one begins with its sums. */
#ifndef MOII_DECODE_MANY_DOWN_CUH
#define MOII_DECODE_MANY_DOWN_CUH

#include "decode_many_rooms.cuh"
#include "decode_f16_far.cuh"
#include "decode_f16_slot.cuh"

MOII_FN void send_for(const work &k, const source &from, int slot, const worker &w, const moe_decode_f16_sm90_args &a)
{
    const int row = k.tile * F16_ROWS;
    if (elected()) load_codes(w, a, slot, k.part, expert_at(from) * a.hidden + row, 0, policy_of(from, a));
    send_for_scales(w, a, slot, scales_from(a, expert_at(from), row), k.part);
}

/* True: it is of another item. */
MOII_FN bool next_slot(work &k, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if (++k.part < a.parts) return false;
    k.part = 0;
    next_item(k, a, l);
    return true;
}

/* A lane's columns of a group: i is 0 or 1.  Where its sums of one are; 0: there is none. */
MOII_FN int column_at(const worker &w, int group, int i) { return group * F16_MOST_TOKENS + w.lane % 4 * 2 + i; }
MOII_FN float *sums_of(const worker &w, const moe_decode_f16_sm90_args &a, const work &k, int group, int i)
{
    const int pair = pair_of(w, a, k.job, column_at(w, group, i));
    return pair < 0 ? 0 : a.sums + (long long)pair * a.hidden + (k.tile * F16_ROWS + row_at(w.lane / 4));
}
/* Of all of a worker's items, behind the last of a row's lines: sums that are Inf or NaN, as they were put. */
MOII_FN void mend_items(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if ((a.before + a.lines) * F16_LINE < a.width) return;
#pragma unroll 1
    for (work k = first_item(a, l, w.warp); there_is(k, l); next_item(k, a, l))
#pragma unroll 1
        for (int i = 0; i < 4 * GROUPS; i++) {
            const int lower = i / 2 % 2 * 8, row = k.tile * F16_ROWS + row_at(w.lane / 4) + lower;
            float *to = sums_of(w, a, k, i / 4, i % 2);
            if (to) to[lower] = mended(to[lower], expert_of(w, a, k.job), row, k.job, column_at(w, i / 4, i % 2), a);
        }
}

MOII_FN void put_sums(const worker &w, const moe_decode_f16_sm90_args &a, const tile_sum &sum, const work &k, int group)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float *to = sums_of(w, a, k, group, i);
        store_if(to, to, sum.v[i], a.kept), store_if(to, to + 8, sum.v[i + 2], a.kept); /* no branch: lanes stay together */
    }
}
/* What an item begins with. */
MOII_FN void take_sums(tile_sum sum[GROUPS], const work &k, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if (!a.before || !there_is(k, l)) return;
#pragma unroll
    for (int n = 0; n < 2 * GROUPS; n++) {
        const float *from = sums_of(w, a, k, n / 2, n % 2);
        sum[n / 2].v[n % 2] = load_if(from, from), sum[n / 2].v[n % 2 + 2] = load_if(from, from + 8);
    }
}

MOII_FN work first_work(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    return first_item(a, l, w.warp);
}
/* What is to be sent for when the first slots are. */
MOII_FN work send_first(work later, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    for (int slot = 0; slot < a.ring && there_is(later, l); slot++, next_slot(later, a, l)) send_for(later, source_of(w, a, later.job), slot, w, a);
    return later;
}

/* What is added up by itself, for the bits of few tokens: as many lines as their slots have. */
enum { PART_LINES = F16_DOWN_LINES(WEIGHTS) };
/* all += sum, or where it is the first, = sum; sum = 0. */
MOII_FN void add_part(tile_sum all[GROUPS], tile_sum sum[GROUPS], bool first)
{
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int j = 0; j < 4; j++) all[g].v[j] = first ? sum[g].v[j] : all[g].v[j] + sum[g].v[j], sum[g].v[j] = 0;
}

/* The next slot's expert is looked for where the job changes; where a register is short for knowing that, for each item. */
enum { LOOKS_AGAIN = GROUPS > 1 && WHOLE && (WEIGHTS == F16_MX_E4M3 || WEIGHTS == F16_MX_E5M2) };

/* NaN if one of them is Inf or NaN. */
MOII_FN float stays_finite(float finite, const tile_sum &sum)
{
#pragma unroll
    for (int j = 0; j < 4; j++) finite = __fmaf_rn(sum.v[j], 0, finite);
    return finite;
}

MOII_FN void multiply(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, work k, work later)
{
    held_columns held = first_columns(a, l);
    tile_sum all[GROUPS];
    turn t = { 0, 0 };
    source from = {};
    if (there_is(later, l)) from = source_of(w, a, later.job);
    float finite = 0; /* as long as all sums are */
    for (;; next_item(k, a, l)) {
        take_sums(all, k, w, a, l);
        hold_columns(held, k, w, a, l);
        if (!there_is(k, l)) break;
        const int groups = GROUPS > 1 ? groups_of(w, a, k.job) : 1;
        const bool few = groups < GROUPS;
#pragma unroll 1
        for (int part = 0; part < a.parts; part++) {
            barrier_wait(filled(w, t.slot), t.phase);
            const unsigned int scales = slot_scales(w, a, t.slot, 0, part);
            bool first = part == 0 && !a.before;
            tile_sum sum[GROUPS] = {};
#pragma unroll
            for (int line = 0; line < SLOT_LINES; line += PART_LINES) {
                if (line) add_part(all, sum, first), first = false;
                add_slot(sum, {}, t.slot, scales, part, few, held, w, a, line, line + PART_LINES);
            }
            __syncwarp();
            if (there_is(later, l)) {
                send_for(later, from, t.slot, w, a);
                const int job = later.job;
                if (next_slot(later, a, l) && there_is(later, l) && (LOOKS_AGAIN || later.job != job)) from = source_of(w, a, later.job);
            }
            advance(t, a);
            add_part(all, sum, first);
        }
#pragma unroll
        for (int g = 0; g < GROUPS; g++)
            if (g == 0 || (g == GROUPS - 1 ? !few : g < groups)) put_sums(w, a, all[g], k, g), finite = stays_finite(finite, all[g]);
    }
    if (may_be_far(finite)) mend_items(w, a, l);
}

#endif
