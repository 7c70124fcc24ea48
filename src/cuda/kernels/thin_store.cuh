/* SPDX-License-Identifier: Apache-2.0
 * thin_store.cuh: from a tile's sums, rows of which are B's, to D.
 *
 * A lane (g = lane / 4, c = lane % 4) has rows g and g + 8 of B of its warp's 16, columns 8 i + 2 c and the next one: sum[4 i + 2 h + e] is row g + 8 h,
 * column 8 i + 2 c + e.  BF16 changes places by way of the warpgroup's room in shared memory, so that the 128 bytes of a row of D that its 64 rows of B make
 * are written at once: those of a warp's 16 are 32, which L2 has to put together. */
#ifndef MOII_THIN_STORE_CUH
#define MOII_THIN_STORE_CUH

#define ROOM_COLUMNS (THIN_ROOM(BN) / 32)
#define ROOM_BYTES (4 * THIN_ROOM(BN)) /* of a warpgroup */

MOII_FN int own_warpgroup() { return (int)threadIdx.x / 128 - 1; }
MOII_FN void warpgroup_meets() { threads_meet(1 + own_warpgroup(), 128); }

/* The row of D for a row of the tile; -1: none. */
MOII_FN int place_of(const product_args &a, const unit &u, int row)
{
    if (row >= u.rows) return -1;
    if (!SCATTER) return u.d_row + row;
    const int place = __ldg(a.rows_of_d + u.row + row);
    return (unsigned int)place < (unsigned int)a.d_rows ? place : -1;
}

/* Of a row of the tile; those behind its last are not stored.  Each time anew: kept from one wave to the next they would take registers that products have. */
MOII_FN float weight_of(const product_args &a, const unit &u, int row)
{
    return WEIGHTED && row < u.rows ? __ldg(a.row_weight + as_it_is((unsigned int)(u.row + row))) : 1.0f;
}

#if OUT_F32
MOII_FN void store_part(const product_args &a, const unit &u, int columns, int from, int line, const float *sum, unsigned int)
{
    const int lane = (int)threadIdx.x % 32, own = line + (int)threadIdx.x / 32 % 4 * 16;
#pragma unroll
    for (int i = 0; i < columns / 8; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int row = from + i * 8 + lane % 4 * 2 + e, place = place_of(a, u, row);
            const float weight = weight_of(a, u, row);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int at = own + lane / 4 + 8 * h;
                const float v = sum[4 * i + 2 * h + e];
                if (place >= 0 && at < a.n) store_one(a, place * a.ldd + at, WEIGHTED ? v * weight : v);
            }
        }
}
#else
/* Where 8 rows of B of a column lie in the room: those of eight columns take the banks once. */
MOII_FN unsigned int in_room(unsigned int room, int column, int eight) { return room + column * 128 + (eight ^ column % 8) * 16; }

/* Of the warpgroup's threads, eight write a row of D at a time: this one's rows of B, and which of 16 columns. */
MOII_FN int eight_written() { return (int)threadIdx.x % 8; }
MOII_FN int column_written() { return (int)threadIdx.x / 8 % 16; }

MOII_FN void fill_room(const product_args &a, const unit &u, int columns, int from, const float *sum, unsigned int room)
{
    const int lane = (int)threadIdx.x % 32, eight = (int)threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < columns / 8; i += 2) {
        unsigned int pair[4];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int row = from + (i + j) * 8 + lane % 4 * 2;
            const float x = weight_of(a, u, row), y = weight_of(a, u, row + 1), *v = sum + 4 * (i + j);
            pair[2 * j] = WEIGHTED ? bf16_pair(v[0] * x, v[1] * y) : bf16_pair(v[0], v[1]);
            pair[2 * j + 1] = WEIGHTED ? bf16_pair(v[2] * x, v[3] * y) : bf16_pair(v[2], v[3]);
        }
        matrices_store_turned(in_room(room, i * 8 + lane / 16 * 8 + lane % 8, eight), pair[0], pair[1], pair[2], pair[3]);
    }
}

/* Eight values of a row of D, or those that are there. */
MOII_FN void store_eight(const product_args &a, unsigned short *d, uint4 v, int there)
{
    if (a.vectors && there >= 8) {
        *(uint4 *)d = v;
        return;
    }
    const unsigned int words[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int j = 0; j < 8; j++)
        if (j < there) d[j] = (unsigned short)(words[j / 2] >> j % 2 * 16);
}

MOII_FN void store_part(const product_args &a, const unit &u, int columns, int from, int line, const float *sum, unsigned int room)
{
    const int at = line + eight_written() * 8;
    warpgroup_meets(); /* what was there has been read */
    fill_room(a, u, columns, from, sum, room);
    warpgroup_meets();
#pragma unroll
    for (int i = 0; i < columns / 16; i++) {
        const int column = i * 16 + column_written(), place = place_of(a, u, from + column);
        const uint4 v = shared_read_four(in_room(room, column, eight_written()));
        if (place >= 0) store_eight(a, (unsigned short *)a.d + (place * a.ldd + at), v, a.n - at);
    }
}
#endif

/* line: of the warpgroup's first row of B, of 64.  base: of the block's shared memory. */
MOII_FN void store_tile(const product_args &a, const unit &u, int columns, int line, const float *sum, unsigned int base)
{
    const unsigned int room = base + ROOMS_AT + own_warpgroup() * ROOM_BYTES;
    const int left = columns % ROOM_COLUMNS, most = columns - left;
#pragma unroll
    for (int from = 0; from < most; from += ROOM_COLUMNS) {
        if (from >= u.rows) return;
        store_part(a, u, ROOM_COLUMNS, from, line, sum + from / 2, room);
    }
    if (left && most < u.rows) store_part(a, u, left, most, line, sum + most / 2, room);
}

#endif
