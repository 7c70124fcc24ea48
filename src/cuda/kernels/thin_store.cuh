/* SPDX-License-Identifier: Apache-2.0
 * thin_store.cuh: from a tile's sums, rows of which are B's, to D.
 *
 * A lane (g = lane / 4, c = lane % 4) has rows g and g + 8 of B of its warp's 16, columns 8 i + 2 c and the next one: sum[4 i + 2 h + e] is row g + 8 h,
 * column 8 i + 2 c + e.  BF16 changes places by way of the warp's room in shared memory, so that 32 bytes of a row of D are written at once: what L2 has to
 * put together from less took a fifth of the product's time. */
#ifndef MOII_THIN_STORE_CUH
#define MOII_THIN_STORE_CUH

#define ROOM_COLUMNS (THIN_ROOM(BN) / 32)

/* The row of D for a row of the tile; -1: none. */
MOII_FN int place_of(const product_args &a, const unit &u, int row)
{
    if (row >= u.rows) return -1;
    if (!SCATTER) return u.d_row + row;
    const int place = __ldg(a.rows_of_d + u.row + row);
    return (unsigned int)place < (unsigned int)a.d_rows ? place : -1;
}

/* Of a row of the tile; those behind its last are not stored. */
MOII_FN float weight_of(const product_args &a, const unit &u, int row)
{
    return WEIGHTED && row < u.rows ? __ldg(a.row_weight + u.row + row) : 1.0f;
}

#if OUT_F32
MOII_FN void store_part(const product_args &a, const unit &u, int columns, int from, int line, const float *sum, unsigned int)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < columns / 8; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int row = from + i * 8 + lane % 4 * 2 + e, place = place_of(a, u, row);
            const float weight = weight_of(a, u, row);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int at = line + lane / 4 + 8 * h;
                const float v = sum[4 * i + 2 * h + e];
                if (place >= 0 && at < a.n) store_one(a, place * a.ldd + at, WEIGHTED ? v * weight : v);
            }
        }
}
#else
/* Where 8 rows of B of a column lie in the room: both eights of four columns, in turn, take the banks once. */
MOII_FN unsigned int in_room(unsigned int room, int column, int eight) { return room + column * 32 + (eight ^ (column / 4 % 2)) * 16; }

MOII_FN void fill_room(const product_args &a, const unit &u, int columns, int from, const float *sum, unsigned int room)
{
    const int lane = (int)threadIdx.x % 32;
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
        matrices_store_turned(in_room(room, i * 8 + lane / 16 * 8 + lane % 8, lane / 8 % 2), pair[0], pair[1], pair[2], pair[3]);
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
    const int lane = (int)threadIdx.x % 32, at = line + lane % 2 * 8;
    __syncwarp(); /* what was there has been read */
    fill_room(a, u, columns, from, sum, room);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < columns / 16; i++) {
        const int column = i * 16 + lane / 2, place = place_of(a, u, from + column);
        const uint4 v = shared_read_four(in_room(room, column, lane % 2));
        if (place >= 0) store_eight(a, (unsigned short *)a.d + (place * a.ldd + at), v, a.n - at);
    }
}
#endif

/* line: of the warp's first row of B. */
MOII_FN void store_tile(const product_args &a, const unit &u, int columns, int line, const float *sum, unsigned int room)
{
    const int left = columns % ROOM_COLUMNS, most = columns - left;
#pragma unroll
    for (int from = 0; from < most; from += ROOM_COLUMNS) {
        if (from >= u.rows) return;
        store_part(a, u, ROOM_COLUMNS, from, line, sum + from / 2, room);
    }
    if (left && most < u.rows) store_part(a, u, left, most, line, sum + most / 2, room);
}

#endif
