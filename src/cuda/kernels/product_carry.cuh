/* SPDX-License-Identifier: Apache-2.0
 * product_carry.cuh: FP32 tiles of D for product_sm90.cuh: sums leave by way of a warpgroup's shared memory, in boxes of 64 rows of 32
 * columns, BOXES at a time, which are stored or added to D in the background, a warp each.  Additions straight from registers
 * (red.global) kept the threads for as long as six stages do. */
#ifndef MOII_PRODUCT_CARRY_CUH
#define MOII_PRODUCT_CARRY_CUH

#if CARRIES
#define CARRY_BOX 8192 /* bytes */

/* Of the sums, boxes from `first` on, into shared memory, where the copies find them.  Rows that lie in the same banks are written at
 * different columns at a time. */
MOII_FN void carry_write(unsigned int room, int warp, int lane, int first, const float *sum)
{
    const unsigned int line = room + (warp * 16 + lane / 4) * 128, swizzle = lane / 4;
    const bool odd = lane / 4 % 2;
#pragma unroll
    for (int j = first * 4; j < (first + BOXES) * 4 && j < BN / 8; j += WOVEN ? 2 : 1)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const unsigned int at = line + (j / 4 - first) * CARRY_BOX + h * 1024, j_here = j % 4 ^ (odd ? 2 : 0);
            const float *even = sum + j * 4 + 2 * h, *other = sum + (j ^ 2) * 4 + 2 * h;
#if WOVEN
            shared_write_floats(at + ((j_here * 2 + lane % 4) ^ swizzle) * 16, odd ? other[0] : even[0], odd ? other[1] : even[1],
                                odd ? other[4] : even[4], odd ? other[5] : even[5]);
#else
            shared_write_pair(at + ((j_here * 2 + lane % 4 / 2) ^ swizzle) * 16 + lane % 2 * 8, odd ? other[0] : even[0], odd ? other[1] : even[1]);
#endif
        }
}

MOII_FN void carry_sums(const product_args &a, const shared &s, const unit &u, int wg, int warp, int lane, const float *sum)
{
    const unsigned int room = s.base + OUT_AT + (unsigned int)wg * (BOXES * CARRY_BOX);
    const int row = (GROUPS == PRODUCT_DEPTH ? u.row : u.d_row) + 64 * wg, matrix = GROUPS == PRODUCT_DEPTH ? u.group : 0;
    if (u.rows <= 64 * wg || u.col >= a.n || (ADD && steps_of(u) == 0)) return; /* the same for all of the warpgroup */
#pragma unroll
    for (int first = 0; first < BN / 32; first += BOXES) {
        if (lane == 0) copies_read();
        threads_meet(STORE_BARRIER + wg, 128);
        carry_write(room, warp, lane, first, sum);
        shared_to_async();
        threads_meet(STORE_BARRIER + wg, 128);
        if (lane == 0) {
            for (int i = warp; i < BOXES && first + i < BN / 32; i += 4) {
                const int col = u.col + (first + i) * 32;
                if (col >= a.n) break;
                if (ADD) box_add(&a.d_map, room + i * CARRY_BOX, col, row, matrix);
                else box_store(&a.d_map, room + i * CARRY_BOX, col, row, matrix);
            }
            copies_close();
        }
        __syncwarp();
    }
}
#endif

#endif
