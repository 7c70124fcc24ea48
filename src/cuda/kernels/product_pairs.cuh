/* SPDX-License-Identifier: Apache-2.0
 * product_pairs.cuh: two stages in the tensor cores at a time, for product_multiply.cuh (PAIRED): of few rows with long chains of stages, or where one
 * warpgroup has the tensor cores alone.  Two warpgroups that both do are slower than with a stage each, in turn or not.  Wider tiles have too few registers. */
#ifndef MOII_PRODUCT_PAIRS_CUH
#define MOII_PRODUCT_PAIRS_CUH

/* Four products into acc, which nobody waits for yet. */
MOII_FN void start_stage(const shared &s, ring at, float *acc)
{
    barrier_wait(full_barrier(s, at.stage), at.parity);
    wgmma_hold(acc);
    wgmma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma(acc, a_part(s, at.stage, 0, j), b_part(s, at.stage, j), j > 0);
    wgmma_close();
}

MOII_FN wave_scales stage_scales(const shared &s, ring at, unsigned int rows, unsigned int square)
{
    const unsigned int from = rows + lane_scales(s) + 4 * SCALE_FLOATS * at.stage;
    wave_scales v;
#pragma unroll
    for (int i = 0; i < 2; i++) v.a[i] = shared_read(from + i * 32);
#pragma unroll
    for (int i = 0; i < SQUARES; i++) v.b[i] = shared_read(square + i * (4 * SQUARES_STEPS));
    return v;
}

/* The products are there, and are added. */
MOII_FN void add_stage(const shared &s, ring at, wave_scales v, int in, float *acc, float *sum)
{
#pragma unroll
    for (int i = 0; i < 2 && SQUARES == 1; i++) v.a[i] *= v.b[0];
    wgmma_hold(acc);
    release_stage(s, at.stage);
    promote(sum, acc, BN, v, false, in, 0);
}

#define IN_A_ROW 4 /* stages of which each one's products run while those of the one before are added */
/* scales are read while products run: of few rows in tiles of 64 columns 5 % faster, of others up to 4 % slower */
#define SCALES_AHEAD_OF_PRODUCTS (SHORT && BN == 64)

MOII_FN void multiply_row(const shared &s, ring *r, unsigned int rows, unsigned int square, int in, float *sum)
{
    float acc[2][BN / 2];
    ring at[IN_A_ROW];
    at[0] = *r;
    start_stage(s, at[0], acc[0]);
#pragma unroll
    for (int i = 0; i < IN_A_ROW; i++) {
        wave_scales v;
        ring_step(r);
        if (SCALES_AHEAD_OF_PRODUCTS) v = stage_scales(s, at[i], rows, square + 4 * i);
        if (i + 1 < IN_A_ROW) {
            at[i + 1] = *r;
            start_stage(s, at[i + 1], acc[(i + 1) % 2]);
            WGMMA_WAIT(1);
        } else WGMMA_WAIT(0);
        if (!SCALES_AHEAD_OF_PRODUCTS) v = stage_scales(s, at[i], rows, square + 4 * i);
        add_stage(s, at[i], v, in, acc[i % 2], sum);
    }
}

#endif
