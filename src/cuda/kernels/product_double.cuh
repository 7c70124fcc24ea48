/* SPDX-License-Identifier: Apache-2.0
 * product_double.cuh: stages two by two, for product_multiply.cuh: where rows have one scale each (SCALING_ROWS), no scale changes between them, and
 * FP32 additions every 256 values of the reduction are enough. */
#ifndef MOII_PRODUCT_DOUBLE_CUH
#define MOII_PRODUCT_DOUBLE_CUH

/* Two stages, whose products one sum of the tensor cores has.  Which stages are two follows from their places in the reduction alone, as sums' bits
 * do. */
MOII_FN void multiply_two(const shared &s, ring at, ring next, bool first, int waves, bool keep, float sum[WAVES][BN / 2], bool beside = false)
{
    float acc[BN / 2];
    barrier_wait(full_barrier(s, at.stage), at.parity);
#pragma unroll
    for (int w = 0; w < WAVES; w++) {
        if (w >= waves) break;
        const unsigned int tile = as_it_is(s.a) + (beside ? 0 : w * WAVES_APART * 512), across = beside ? w * (B_BYTES / 16) : 0;
        const bool last = w + 1 == waves && !keep;
        wgmma_hold(acc);
        wgmma_begin();
#pragma unroll
        for (int j = 0; j < 4; j++) wgmma(acc, tile + at.stage * (STAGE_BYTES / 16) + j * 2, b_part(s, at.stage, j) + across, j > 0);
        wgmma_close();
        if (w == 0) barrier_wait(full_barrier(s, next.stage), next.parity);
        wgmma_begin();
#pragma unroll
        for (int j = 0; j < 4; j++) wgmma(acc, tile + next.stage * (STAGE_BYTES / 16) + j * 2, b_part(s, next.stage, j) + across, 1);
        wgmma_close();
        if (last) {
            WGMMA_WAIT(1);
            release_stage(s, at.stage);
        }
        WGMMA_WAIT(0);
        wgmma_hold(acc);
        if (last) release_stage(s, next.stage);
        promote(sum[w], acc, BN, { { 0.0f, 0.0f }, { 0.0f } }, first, 0, 0);
    }
}

/* Stages of all 128 values: those behind them are one, which is multiplied by itself. */
MOII_FN int full_steps(const unit &u) { return STAGES_STRADDLE ? (u.k_end - u.k) / STEP : steps_of(u); }

MOII_FN ring ring_behind(ring r)
{
    ring_step(&r);
    return r;
}

/* A tile, or fresh: one whose sums begin here, of which all these waves are there. */
MOII_FN void multiply_by_two(const shared &s, const unit &u, ring *r, bool fresh, int waves, float sum[WAVES][BN / 2], bool beside = false)
{
    const int steps = steps_of(u), full = full_steps(u);
    int step = 0;
    if (fresh && full >= 2) {
        multiply_two(s, *r, ring_behind(*r), true, waves, false, sum, beside);
        ring_step(r), ring_step(r), step = 2;
    } else sums_clear(sum);
    while (step < steps) {
        if (BY_NAME && STAGES % 2 == 0 && r->stage == 0)
            for (; step + STAGES <= full; step += STAGES, r->parity ^= 1)
#pragma unroll
                for (unsigned int stage = 0; stage < STAGES; stage += 2)
                    multiply_two(s, { stage, r->parity }, { stage + 1, r->parity }, false, waves, false, sum, beside);
        if (step + 2 <= full) {
            multiply_two(s, *r, ring_behind(*r), false, waves, false, sum, beside);
            ring_step(r), ring_step(r), step += 2;
        } else if (step < steps) {
            stage_cleared(s, u, *r, step);
            multiply_stage(s, *r, 0, 0, 128, false, waves, false, sum, beside);
            ring_step(r), step++;
        }
    }
}

#endif
