/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_slot.cuh: a worker's slot times columns that are held in shared memory: passes that keep columns there. */
#ifndef MOII_DECODE_F16_SLOT_CUH
#define MOII_DECODE_F16_SLOT_CUH

/* sum += the lines that the slot has, a part of an item's; scales: slot_scales; few: for the first 8 columns alone. */
MOII_FN void add_slot(tile_sum sum[GROUPS], int slot, unsigned int scales, int part, bool few, const held_columns &held, const worker &w,
                      const moe_decode_f16_sm90_args &a)
{
    const unsigned int from = w.own.codes + (unsigned int)(slot * slot_bytes(a));
#pragma unroll
    for (int i = 0; i < SLOT_LINES; i++) {
        const int line = part * slot_lines(a) + i;
        if (!WHOLE && (i >= slot_lines(a) || line >= a.lines)) continue;
        const unsigned int at = from + i * LINE_BYTES;
        const uint2 of_rows = line_scales(w, a, scales, i, blocks_of(a, line));
        column_source columns[GROUPS];
#pragma unroll
        for (int g = 0; g < GROUPS; g++) columns[g] = held_at(held, w, a, line, g);
        if (few) add_lines(1, sum, at, of_rows, columns);
        else add_lines(GROUPS, sum, at, of_rows, columns);
    }
}

#endif
