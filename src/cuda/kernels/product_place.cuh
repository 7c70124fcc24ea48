/* SPDX-License-Identifier: Apache-2.0
 * product_place.cuh: which row of D a row of the product goes to, and what it is multiplied by, for product_sm90.cuh.
 *
 * A warp's share of both lists is copied to shared memory in the background while its tile is multiplied. */
#ifndef MOII_PRODUCT_PLACE_CUH
#define MOII_PRODUCT_PLACE_CUH

/* Of the calling warp: for each wave 16 places, then 16 weights. */
MOII_FN unsigned int places_at() { return PLACES_AT + (threadIdx.x / 32 - 4) * (WAVES * 128); }

#if PLACED
MOII_FN void places_fetch(const product_args &a, const shared &s, const unit &u, int wg)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
#pragma unroll
    for (int w = 0; w < WAVES; w++) {
        const int row = u.row + min(wave_row(u, wg, w) + warp * 16 + lane % 16, u.rows - 1);
        const unsigned int to = s.base + places_at() + w * 128 + lane * 4;
        if (SCATTER && lane < 16) word_load(to, a.rows_of_d + row);
        if (WEIGHTED && lane >= 16) word_load(to, a.row_weight + row);
    }
    copies_commit();
}

MOII_FN void places_await()
{
    COPIES_WAIT(0);
    __syncwarp();
}

/* A wave's sums times the weights of this lane's two rows. */
MOII_FN void apply_weights(const shared &s, int w, int lane, float *sum)
{
    const float *weight = (const float *)(s.p + places_at() + w * 128) + 16 + lane / 4;
    const float w0 = weight[0], w1 = weight[8];
#pragma unroll
    for (int i = 0; i < BN / 2; i++) sum[i] *= i % 4 < 2 ? w0 : w1;
}
#else
MOII_FN void places_fetch(const product_args &, const shared &, const unit &, int) {}
#endif

/* The line of D for a row of the tile, one of the calling warp's; -1: none. */
MOII_FN int place_of(const product_args &a, const shared &s, const unit &u, int row)
{
    if (row >= u.rows) return -1;
    if (!SCATTER) return u.d_row + row;
    const int wave = halved(u) && row / 64 == blocks_of(u) - 1 ? WAVES - 1 : row / 64 / WAVES_APART;
    const int place = ((const int *)(s.p + places_at()))[wave * 32 + row % 16];
    return (unsigned int)place < (unsigned int)a.d_rows ? place : -1;
}

#endif
