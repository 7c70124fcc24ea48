/* SPDX-License-Identifier: Apache-2.0
 * mixed_activate.cuh: SwiGLU of a tile's sums of mixed_sm90 or halves_sm90, one wave of which are of gate, the other of up.
 *
 * Both are rounded to BF16, as if they had been stored, and change places in the warp's room as thin_store.cuh has it: as many columns at a time as half of
 * it takes. */
#ifndef MOII_MIXED_ACTIVATE_CUH
#define MOII_MIXED_ACTIVATE_CUH

#if SWIGLU
#define PAIRS 4
#include "activate_pairs.cuh"

#define ACT_COLUMNS (THIN_ROOM(BN) / 64) /* in gate's half of the room, and in up's; columns are fewer or a multiple */

/* line: of the warp's first row of gate; there are `lines` of them. */
MOII_FN void store_activated(const product_args &a, const unit &u, int columns, int line, int lines, const float *gate, const float *up, unsigned int room)
{
    const int lane = (int)threadIdx.x % 32, at = line + lane % 2 * 8;
#pragma unroll
    for (int from = 0; from < columns; from += ACT_COLUMNS) {
        if (from >= u.rows) break;
        __syncwarp(); /* what was there has been read */
        const int some = min(columns, ACT_COLUMNS);
        fill_room(a, u, some, from, gate + from / 2, room), fill_room(a, u, some, from, up + from / 2, room + THIN_ROOM(BN) / 2);
        __syncwarp();
#pragma unroll 1
        for (int i = 0; i < some / 16; i++) {
            const int column = i * 16 + lane / 2, place = place_of(a, u, from + column);
            const unsigned int from_room = in_room(room, column, lane % 2);
            const uint4 g4 = shared_read_four(from_room), u4 = shared_read_four(from_room + THIN_ROOM(BN) / 2);
            unsigned int g[PAIRS] = { g4.x, g4.y, g4.z, g4.w }, v[PAIRS] = { u4.x, u4.y, u4.z, u4.w }, act[PAIRS];
            if (place < 0) continue;
            activate_pairs(g, v, act);
            store_eight(a, (unsigned short *)a.d + (place * a.ldd + at), make_uint4(act[0], act[1], act[2], act[3]), lines - at);
        }
    }
}
#endif

#endif
