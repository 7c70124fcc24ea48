/* SPDX-License-Identifier: Apache-2.0
 * product_outer_stages.cuh: a tile's stages for product_multiply.cuh, where the tensor cores multiply scales (OUTER). */
#ifndef MOII_PRODUCT_OUTER_STAGES_CUH
#define MOII_PRODUCT_OUTER_STAGES_CUH

/* The thread's products times the rows' scales, and in `by` the columns'. */
MOII_FN void scale_by_threads(unsigned int scales, int wg, float acc[BN / 2], float by[BN / 2])
{
    const unsigned int t = as_it_is(threadIdx.x); /* nothing of it is to be kept */
    const unsigned int row = scales + outer_at(wg * 64 + (int)(t / 32 % 4 * 16 + t % 32 / 4)), col = scales + 4 * A_STAGED + t % 4 * (2 * OUTER_LINE);
    const float rows[2] = { shared_read(row), shared_read(row + OUTER_EIGHT) };
#pragma unroll
    for (int j = 0; j < BN / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            acc[4 * j + i] *= rows[i / 2];
            by[4 * j + i] = i < 2 ? shared_read(col + j * OUTER_EIGHT + i * OUTER_LINE) : by[4 * j + i - 2];
        }
}

MOII_FN void multiply_outer(const shared &s, ring at, int wg, float sum[BN / 2])
{
    const unsigned int scales = s.base + SCALES_AT + 4 * SCALE_FLOATS * at.stage;
    float acc[BN / 2], by[BN / 2];
    barrier_wait(full_barrier(s, at.stage), at.parity);
    wgmma_hold(acc), wgmma_hold(by);
    wgmma_begin();
    wgmma_outer(by, wgmma_at(scales) + wg * (8 * OUTER_EIGHT / 16), wgmma_at(scales + 4 * A_STAGED), wgmma_at(s.base + ZEROS_AT));
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma(acc, as_it_is(s.a) + at.stage * (STAGE_BYTES / 16) + j * 2, b_part(s, at.stage, j), j > 0);
    wgmma_close();
    const bool far = uniform((int)shared_read_word(scales + OUTER_FAR)) != 0;
    WGMMA_WAIT(0);
    wgmma_hold(acc), wgmma_hold(by);
    if (far) scale_by_threads(scales, wg, acc, by);
    release_stage(s, at.stage);
#pragma unroll
    for (int i = 0; i < BN / 2; i++) sum[i] = __fmaf_rn(acc[i], by[i], sum[i]);
}

MOII_FN void multiply(const product_args &, const shared &s, const unit &u, ring *r, unsigned int *, int wg, int, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    sums_clear(sum);
    for (int step = 0; step < steps;) {
        if (r->stage == 0)
            for (; step + STAGES <= steps - STAGES_STRADDLE; step += STAGES, r->parity ^= 1) {
#pragma unroll
                for (unsigned int stage = 0; stage < STAGES; stage++) multiply_outer(s, { stage, r->parity }, wg, sum[0]);
            }
        if (step == steps) break;
        stage_cleared(s, u, *r, step);
        multiply_outer(s, *r, wg, sum[0]);
        ring_step(r), step++;
    }
}

#endif
