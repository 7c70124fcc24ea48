/* SPDX-License-Identifier: Apache-2.0
 * product_carry.cuh: FP32 tiles of D for product_sm90.cuh: sums leave by way of a warpgroup's shared memory, in boxes of 64 rows of 32
 * columns, BOXES at a time, which are stored or added to D in the background, a warp each.  Additions straight from registers
 * (red.global) kept the threads for as long as six stages do.  A group's last rows, if they are not 64, are stored from there. */
#ifndef MOII_PRODUCT_CARRY_CUH
#define MOII_PRODUCT_CARRY_CUH

#if CARRIES
#define CARRY_BOX 8192           /* bytes */
#define CARRY_ACROSS (BN / 32)   /* boxes of a block of 64 rows */
static_assert(CARRY_ACROSS % BOXES == 0 && BOXES <= 4, "boxes that leave together are of the same rows, each sent by a warp");

/* 64 rows of 32 columns into shared memory, where the copy finds them.  Rows that lie in the same banks are written at different columns at
 * a time. */
MOII_FN void carry_write(unsigned int to, int warp, int lane, const float *sum)
{
    const unsigned int line = to + (warp * 16 + lane / 4) * 128, swizzle = lane / 4;
    const bool odd = lane / 4 % 2;
#pragma unroll
    for (int j = 0; j < 4; j += WOVEN ? 2 : 1)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const unsigned int at = line + h * 1024, j_here = j ^ (odd ? 2 : 0);
            const float *even = sum + j * 4 + 2 * h, *other = sum + (j ^ 2) * 4 + 2 * h;
#if WOVEN
            shared_write_floats(at + ((j_here * 2 + lane % 4) ^ swizzle) * 16, odd ? other[0] : even[0], odd ? other[1] : even[1],
                                odd ? other[4] : even[4], odd ? other[5] : even[5]);
#else
            shared_write_pair(at + ((j_here * 2 + lane % 4 / 2) ^ swizzle) * 16 + lane % 2 * 8, odd ? other[0] : even[0], odd ? other[1] : even[1]);
#endif
        }
}

MOII_FN void carry_sums(const product_args &a, const shared &s, const unit &u, int wg, int warp, int lane, const float sum[WAVES][BN / 2])
{
    const unsigned int room = s.base + OUT_AT + (unsigned int)wg * (BOXES * CARRY_BOX);
    if (nothing_added(u)) return;
#pragma unroll
    for (int i = 0; i < WAVES * CARRY_ACROSS; i += BOXES) {
        const int w = i / CARRY_ACROSS, first = i % CARRY_ACROSS * 32, row = wave_row(u, wg, w), col = u.col + wave_col(u, wg, w) + first;
        const int here = min(wave_cols(u, w) - first, a.n - col); /* columns from there on */
        if (row >= u.rows || here <= 0) continue; /* the same for all of the warpgroup */
        if (B_GROUPED && row + 64 > u.rows) { /* no map knows where they end */
            store_values(a, s, u, row + warp * 16, lane, wave_col(u, wg, w) + first, BOXES * 4, here, sum[w] + first / 2);
            continue;
        }
        if (lane == 0) copies_read();
        threads_meet(STORE_BARRIER + wg, 128);
#pragma unroll
        for (int b = 0; b < BOXES; b++) carry_write(room + b * CARRY_BOX, warp, lane, sum[w] + (first / 32 + b) * 16);
        shared_to_async();
        threads_meet(STORE_BARRIER + wg, 128);
        if (lane == 0 && warp < BOXES && warp * 32 < here) {
            if (ADD) box_add(&a.d_map, room + warp * CARRY_BOX, col + warp * 32, box_row(u) + row, box_matrix(u));
            else box_store(&a.d_map, room + warp * CARRY_BOX, col + warp * 32, box_row(u) + row, box_matrix(u));
            copies_close();
        }
        __syncwarp();
    }
}
#endif

#endif
