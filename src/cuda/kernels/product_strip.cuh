/* SPDX-License-Identifier: Apache-2.0
 * product_strip.cuh: a strip's tile of which all rows are there, for product_multiply.cuh: the first half of the columns. */
#ifndef MOII_PRODUCT_STRIP_CUH
#define MOII_PRODUCT_STRIP_CUH

MOII_FN void multiply_strip(const shared &s, const unit &u, ring *r, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    unsigned int before = 0;
    sums_clear(sum);
#pragma unroll
    for (int w = 0; w < WAVES; w++) wgmma_hold(sum[w], BN / 2);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        barrier_wait(full_barrier(s, r->stage), r->parity);
        wgmma_begin();
#pragma unroll
        for (int w = 0; w < WAVES; w++)
#pragma unroll
            for (int j = 0; j < 4; j++) wgmma_half(sum[w], a_part(s, r->stage, w, j), b_part(s, r->stage, j), 1);
        close_stage(s, r, step > 0, &before);
    }
    close_stages(s, steps > 0, before, sum);
}

#endif
