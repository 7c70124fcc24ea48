/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_scales.cuh: how weights' scales come beside their codes, and where a line's are; BF16 has none.
 *
 * By lanes: with each slot a word for each line and row, or of squares for each line and half of the rows, behind each lane's own copies and arrival at the
 * slot's barrier.  A lane brings those of row lane % 16, of every second line, or of squares those of half lane % 2.
 * SCALE_BOXES: an item's, by the warp that finishes a team's items, in boxes of 8 rows of gate and up, swizzled over their lines, into one of the team's
 * rooms, which has a barrier of its own.  A room is free again when the sums of its item are there. */
#ifndef MOII_DECODE_F16_SCALES_CUH
#define MOII_DECODE_F16_SCALES_CUH

#include "decode_f16_worker.cuh"

#if SCALE_BOXES
MOII_FN unsigned int room_bytes(const moe_decode_f16_sm90_args &a) { return (unsigned int)(F16_ROWS * a.scale_row); }
MOII_FN unsigned int scale_room(const worker &w, const moe_decode_f16_sm90_args &a, int team, int room)
{
    return w.shared + a.at_scales + (unsigned int)(team * a.scale_rooms + room) * room_bytes(a);
}
MOII_FN unsigned int scales_there(const worker &w, const moe_decode_f16_sm90_args &a, int team, int room)
{
    return barrier_at(w, a, WORKERS * a.ring + 4 * TEAMS + 2 * a.buffers + team * a.scale_rooms + room);
}
/* A team's items have its rooms in turn, which are a power of two. */
MOII_FN int room_of(const moe_decode_f16_sm90_args &a, int turn) { return turn & (a.scale_rooms - 1); }
/* Of an item, the team's `turn`-th: one lane. */
MOII_FN void load_scales(const worker &w, const moe_decode_f16_sm90_args &a, int team, int turn, int expert, int tile, unsigned long long policy)
{
    const unsigned int to = scale_room(w, a, team, room_of(a, turn)), there = scales_there(w, a, team, room_of(a, turn));
    barrier_expect(there, room_bytes(a));
#pragma unroll 1
    for (int at = 0; at < a.scale_row; at += a.scale_box) box_load_as(to + at * F16_ROWS, &a.scale_map, there, at, tile * 8, 2 * expert, policy);
}
MOII_FN void wait_for_scales(const worker &w, const moe_decode_f16_sm90_args &a, int turn)
{
    barrier_wait(scales_there(w, a, w.warp / F16_TEAM, room_of(a, turn)), (turn & a.scale_rooms) != 0);
}
MOII_FN void find_scales(worker &w, const moe_decode_f16_sm90_args &a)
{
    const unsigned int row = (unsigned int)(row_at(w.lane / 4) * a.scale_box); /* a swizzle adds bits 7 and on to those from 4 on, within a row */
    w.own.scales = as_it_is(scale_room(w, a, w.warp / F16_TEAM, 0) + row);
    w.own.swizzle = as_it_is(row >> 3 & (unsigned int)(a.scale_box - 1) & ~15u);
}
/* Where a slot's are, for this lane: a part's of a team's `turn`-th item. */
MOII_FN unsigned int slot_scales(const worker &w, const moe_decode_f16_sm90_args &a, int, int turn, int part)
{
    const unsigned int at = (unsigned int)(part * slot_lines(a) * 4), within = (unsigned int)a.scale_box - 1;
    return w.own.scales + (unsigned int)room_of(a, turn) * room_bytes(a) + (at & ~within) * F16_ROWS + (at & within ^ w.own.swizzle);
}
#else
/* From slot to slot. */
enum { SCALE_WORDS = F16_SCALE_WORDS(SLOT_LINES, TAIL), SCALE_BYTES = WEIGHTS == F16_BF16 ? 0 : F16_ROWS * SCALE_WORDS * 4 };

MOII_FN void wait_for_scales(const worker &, const moe_decode_f16_sm90_args &, int) {}
MOII_FN void find_scales(worker &w, const moe_decode_f16_sm90_args &a)
{
#if WEIGHTS != F16_BF16
    const unsigned int scales = w.shared + a.at_scales + (unsigned int)(w.warp * a.ring * SCALE_BYTES);
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
MOII_FN unsigned int slot_scales(const worker &w, const moe_decode_f16_sm90_args &, int slot, int, int)
{
    return w.own.scales + (unsigned int)(slot * SCALE_BYTES);
}
#endif

/* Of row g and of row g + 8 of a slot's line, of which there are so many blocks; at: slot_scales. */
MOII_FN uint2 line_scales(const worker &w, const moe_decode_f16_sm90_args &a, unsigned int at, int line, int blocks)
{
#if WEIGHTS == F16_BF16
    return make_uint2(0, 0);
#elif SCALE_BOXES
    return make_uint2(shared_word(at + 4 * line), shared_word(at + 4 * line + 8 * a.scale_box));
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

/* Of an item's row, in either of an expert's matrices; of BF16 nothing. */
MOII_FN const unsigned char *scales_from(const moe_decode_f16_sm90_args &a, int expert, int row)
{
    const int scale_row = WEIGHTS == F16_SQUARES ? row / 128 : row;
    return a.scale + ((unsigned long long)(unsigned int)expert * a.expert_scale_bytes + (unsigned int)(scale_row * a.scale_row));
}
/* By lanes: all of them.  from: of the item's first row. */
MOII_FN void send_for_scales(const worker &w, const moe_decode_f16_sm90_args &a, int slot, const unsigned char *from, int part)
{
#if WEIGHTS != F16_BF16 && !SCALE_BOXES
    const int first = part * slot_lines(a), lines = min(slot_lines(a), a.lines - first);
    from += w.own.from + (unsigned int)first * 4;
#if WEIGHTS == F16_SQUARES
    word_load_if(w.lane < 2 * lines, w.own.words + (unsigned int)(slot * SCALE_BYTES), from);
#else
    const int words = TAIL ? min(slot_lines(a) + 1, a.lines - 1 + w.own.last_words - first) : lines;
#pragma unroll
    for (int i = 0; i < SCALE_WORDS; i += 2)
        word_load_if(i + w.lane / F16_ROWS < words, w.own.words + (unsigned int)(slot * SCALE_BYTES + i * F16_ROWS * 4), from + 4 * i);
#endif
    barrier_arrive_behind_words(filled(w, slot));
#endif
}

#endif
