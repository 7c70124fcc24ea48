/* SPDX-License-Identifier: Apache-2.0
 * product_outer_stages.cuh: a tile's stages for product_multiply.cuh, where the tensor cores multiply scales (OUTER). */
#ifndef MOII_PRODUCT_OUTER_STAGES_CUH
#define MOII_PRODUCT_OUTER_STAGES_CUH

MOII_FN unsigned int stage_scales(const shared &s, unsigned int stage) { return s.base + SCALES_AT + 4 * SCALE_FLOATS * stage; }

/* Of a stage that is there. */
MOII_FN bool is_far(const shared &s, unsigned int stage) { return uniform((int)shared_read_word(stage_scales(s, stage) + OUTER_FAR)) != 0; }

/* acc: products of the operands' values, by: of their scales, which are none where the stage is far (true): that is asked while they are made. */
MOII_FN bool make_products(const shared &s, unsigned int stage, int wg, float acc[BN / 2], float by[BN / 2])
{
    const unsigned int scales = stage_scales(s, stage);
    wgmma_hold(acc), wgmma_hold(by);
    wgmma_begin();
    wgmma_outer(by, wgmma_at(scales) + wg * (8 * OUTER_EIGHT / 16), wgmma_at(scales + 4 * A_STAGED), wgmma_at(s.base + ZEROS_AT));
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma(acc, as_it_is(s.a) + stage * (STAGE_BYTES / 16) + j * 2, b_part(s, stage, j), j > 0);
    wgmma_close();
    const bool far = is_far(s, stage);
    WGMMA_WAIT(0);
    wgmma_hold(acc), wgmma_hold(by);
    return far;
}

MOII_FN void add_products(const float acc[BN / 2], const float by[BN / 2], float sum[BN / 2])
{
#pragma unroll
    for (int i = 0; i < BN / 2; i++) sum[i] = __fmaf_rn(acc[i], by[i], sum[i]);
}

/* acc times both scales; by: 1.  Sums of codes' products, 0 or from 2^-32 to 2^39 (E5M2), times both first halves are beyond FP32 only where the result is;
 * the second halves' product is a power of two from 2^-128 to 2^126. */
MOII_FN void scale_by_threads(const shared &s, unsigned int stage, int wg, float acc[BN / 2], float by[BN / 2])
{
    const unsigned int t = as_it_is(threadIdx.x), scales = stage_scales(s, stage); /* nothing of it is to be kept */
    const unsigned int row = scales + outer_at(wg * 64 + (int)(t / 32 % 4 * 16 + t % 32 / 4)), col = scales + 4 * A_STAGED + t % 4 * (2 * OUTER_LINE);
    const uint2 rows[2] = { shared_read_two(row), shared_read_two(row + OUTER_EIGHT) };
#pragma unroll
    for (int i = 0; i < BN / 2; i++) {
        const uint2 a = rows[i % 4 / 2], b = shared_read_two(col + i / 4 * OUTER_EIGHT + i % 2 * OUTER_LINE);
        acc[i] = acc[i] * moii_float_of(a.x) * moii_float_of(b.x) * (moii_float_of(a.y) * moii_float_of(b.y)), by[i] = 1.0f;
    }
}

/* Whole rounds of the ring are by name, so that addresses are constants; a stage that is far ends them and is made once more, for its code is long and
 * stands once. */
MOII_FN void multiply(const product_args &, const shared &s, const unit &u, ring *r, unsigned int *taken, int wg, int, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    if (LEAVES_OUT && uniform(waves_there(u, wg)) == 0) {
        pass_stages(s, u, r, taken);
        return;
    }
    sums_clear(sum);
    for (int step = 0; step < steps;) {
        float acc[BN / 2], by[BN / 2];
        bool near = r->stage == 0;
        while (near && step + STAGES <= steps - STAGES_STRADDLE) {
#pragma unroll
            for (unsigned int stage = 0; stage < STAGES; stage++) {
                barrier_wait(full_barrier(s, stage), r->parity);
                near = !make_products(s, stage, wg, acc, by);
                if (!near) {
                    r->stage = stage;
                    break;
                }
                release_stage(s, stage);
                add_products(acc, by, sum[0]);
                step++;
            }
            if (near) r->parity ^= 1;
        }
        if (step == steps) break;
        stage_cleared(s, u, *r, step);
        barrier_wait(full_barrier(s, r->stage), r->parity);
        if (make_products(s, r->stage, wg, acc, by)) scale_by_threads(s, r->stage, wg, acc, by);
        release_stage(s, r->stage);
        add_products(acc, by, sum[0]);
        ring_step(r), step++;
    }
}

#endif
