/* SPDX-License-Identifier: Apache-2.0
 * product_halves.cuh: half of the columns of a tile's last block of rows, which both warpgroups have, for product_multiply.cuh: one stage, or two whose
 * products one sum of the tensor cores has (product_double.cuh). */
#ifndef MOII_PRODUCT_HALVES_CUH
#define MOII_PRODUCT_HALVES_CUH

static_assert(SQUARES == 1 || !SCALES_STAGED, "a block's columns have one scale");
MOII_FN void multiply_half(const shared &s, const unit &u, ring at, unsigned int rows, unsigned int square, int wg, float *sum)
{
    const unsigned int from = 4 * SCALE_FLOATS * at.stage, there = rows + lane_scales(s) + from + (blocks_of(u) - 1 - wg) * 256;
    wave_scales v;
    float acc[BN / 4];
    barrier_wait(full_barrier(s, at.stage), at.parity);
#pragma unroll
    for (int i = 0; i < 2 && SCALES_STAGED; i++) v.a[i] = shared_read(there + i * 32);
    if (SCALING == SCALING_SQUARE) v.b[0] = shared_read(square), v.a[0] *= v.b[0], v.a[1] *= v.b[0];
    wgmma_hold(acc, BN / 2);
    wgmma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma_half(acc, a_shared_part(s, u, at.stage, wg, j), b_half_part(s, at.stage, wg, j), j > 0);
    wgmma_close();
    WGMMA_WAIT(0);
    wgmma_hold(acc, BN / 2);
    if (SCALING != SCALING_VECTOR) release_stage(s, at.stage);
    promote(sum, acc, BN / 2, v, false, 128, lane_columns(s, from) + wg * (BN * 2));
    if (SCALING == SCALING_VECTOR) release_stage(s, at.stage);
}

#if DOUBLED
MOII_FN void multiply_two_halves(const shared &s, const unit &u, ring at, ring next, int wg, float *sum)
{
    float acc[BN / 4];
    barrier_wait(full_barrier(s, at.stage), at.parity);
    barrier_wait(full_barrier(s, next.stage), next.parity);
    wgmma_hold(acc, BN / 2);
    wgmma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma_half(acc, a_shared_part(s, u, at.stage, wg, j), b_half_part(s, at.stage, wg, j), j > 0);
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma_half(acc, a_shared_part(s, u, next.stage, wg, j), b_half_part(s, next.stage, wg, j), 1);
    wgmma_close();
    WGMMA_WAIT(0);
    wgmma_hold(acc, BN / 2);
    release_stage(s, at.stage);
    release_stage(s, next.stage);
    promote(sum, acc, BN / 2, { { 0.0f, 0.0f }, { 0.0f } }, false, 128, 0);
}
#endif

#endif
