/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_slot.cuh: a worker's slot times columns that are held in shared memory: passes that keep columns there. */
#ifndef MOII_DECODE_F16_SLOT_CUH
#define MOII_DECODE_F16_SLOT_CUH

/* What a lane reads of a slot's lines. */
typedef struct slot_lines_read { line_source line[SLOT_LINES]; uint2 scales[SLOT_LINES]; } slot_lines_read;

/* This lane's place in its first line. */
MOII_FN unsigned int slot_codes(int slot, const worker &w, const moe_decode_f16_sm90_args &a) { return w.own.codes + (unsigned int)(slot * slot_bytes(a)); }

/* What leaves the slot before it is multiplied: TAKES.  scales: slot_scales; those of boxes are not the slot's. */
MOII_FN slot_lines_read take_slot(int slot, unsigned int scales, int part, const worker &w, const moe_decode_f16_sm90_args &a)
{
    slot_lines_read of;
#pragma unroll
    for (int i = 0; i < SLOT_LINES && TAKES; i++) {
        of.line[i] = line_at(place_of_line(slot_codes(slot, w, a), i));
        if (!SCALE_BOXES) of.scales[i] = line_scales(w, a, scales, i, blocks_of(a, part * slot_lines(a) + i));
    }
    return of;
}

/* sum += the lines that the slot has, a part of an item's, from the first one to the last, constants; taken: take_slot's; few: not for
 * the last group of columns. */
MOII_FN void add_slot(tile_sum sum[GROUPS], const slot_lines_read &taken, int slot, unsigned int scales, int part, bool few, const held_columns &held,
                      const worker &w, const moe_decode_f16_sm90_args &a, int first = 0, int last = SLOT_LINES)
{
    const unsigned int from = slot_codes(slot, w, a);
#pragma unroll
    for (int i = first; i < last; i++) {
        const int line = part * slot_lines(a) + i;
        if (!WHOLE && (i >= slot_lines(a) || line >= a.lines)) continue;
        const line_source codes = TAKES ? taken.line[i] : line_at(place_of_line(from, i));
        const uint2 of_rows = TAKES && !SCALE_BOXES ? taken.scales[i] : line_scales(w, a, scales, i, blocks_of(a, line));
        column_source columns[GROUPS];
#pragma unroll
        for (int g = 0; g < GROUPS; g++) columns[g] = held_at(held, w, a, line, g);
        if (few) add_lines(GROUPS > 1 ? GROUPS - 1 : 1, sum, codes, of_rows, columns);
        else add_lines(GROUPS, sum, codes, of_rows, columns);
    }
}

#endif
