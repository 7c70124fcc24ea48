/* SPDX-License-Identifier: Apache-2.0
 * mixed_activate.cuh: SwiGLU of a tile's sums of mixed_sm90 or halves_sm90, one wave of which are of gate, the other of up.
 *
 * Both are rounded to BF16, as if they had been stored, and change places in the warpgroup's room as thin_store.cuh has it: as many columns at a time as half
 * of it takes. */
#ifndef MOII_MIXED_ACTIVATE_CUH
#define MOII_MIXED_ACTIVATE_CUH

#if SWIGLU
#define PAIRS 4
#include "activate_pairs.cuh"

#define ACT_COLUMNS (ROOM_COLUMNS / 2) /* in gate's half of the room, and in up's; columns are fewer or a multiple */

/* line: of the warpgroup's first row of gate; there are `lines` of them. */
MOII_FN void store_activated(const product_args &a, const unit &u, int columns, int line, int lines, const float *gate, const float *up, unsigned int base)
{
    const unsigned int of_gate = base + ROOMS_AT + own_warpgroup() * ROOM_BYTES, of_up = of_gate + ROOM_BYTES / 2;
    const int at = line + eight_written() * 8;
#pragma unroll
    for (int from = 0; from < columns; from += ACT_COLUMNS) {
        if (from >= u.rows) break;
        warpgroup_meets(); /* what was there has been read */
        const int some = min(columns, ACT_COLUMNS);
        fill_room(a, u, some, from, gate + from / 2, of_gate), fill_room(a, u, some, from, up + from / 2, of_up);
        warpgroup_meets();
#pragma unroll 1
        for (int i = 0; i < some / 16; i++) {
            const int column = i * 16 + column_written(), place = place_of(a, u, from + column);
            const uint4 g4 = shared_read_four(in_room(of_gate, column, eight_written())), u4 = shared_read_four(in_room(of_up, column, eight_written()));
            unsigned int g[PAIRS] = { g4.x, g4.y, g4.z, g4.w }, v[PAIRS] = { u4.x, u4.y, u4.z, u4.w }, act[PAIRS];
            if (place < 0) continue;
            activate_pairs(g, v, act);
            store_eight(a, (unsigned short *)a.d + (place * a.ldd + at), make_uint4(act[0], act[1], act[2], act[3]), lines - at);
        }
    }
}
#endif

#endif
