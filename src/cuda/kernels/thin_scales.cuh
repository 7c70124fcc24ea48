/* SPDX-License-Identifier: Apache-2.0
 * thin_scales.cuh: the warp that copies scales of weights, which are the tensor cores' rows. */
#ifndef MOII_THIN_SCALES_CUH
#define MOII_THIN_SCALES_CUH

/* The first of a row's words; behind the last row, a neighbour's: what it would scale is not stored. */
MOII_FN const unsigned char *words_of(const product_scales &t, int group, int row)
{
    return (const unsigned char *)t.p + group * t.group_bytes + scale_index(t, (unsigned int)min(row, t.rows - 1), 0);
}
MOII_FN int words_apart(const product_scales &t) { return t.across ? 512 : 4; }

/* Of 128 rows.  As they are: who multiplies has time to make FP32 of them while products run. */
MOII_FN void load_weight_scales(const product_args &a, const group_list &groups, unsigned int base, int part)
{
    enum { EACH = 4 };
    ring r = { 0, 0 };
    const int all = units_in_all(groups), lane = (int)threadIdx.x % 32, apart = words_apart(a.b_scales);
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < all; i += (int)gridDim.x) {
        const unit u = find_unit(a, groups, i);
        const unsigned char *from[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) from[j] = words_of(a.b_scales, u.group, u.line + part * (32 * EACH) + j * 32 + lane);
#pragma unroll 1
        for (int k = 0; k < a.k; k += STEP, ring_step(r)) {
            const unsigned int to = base + SCALES_AT + r.stage * SCALES_BYTES + part * (128 * EACH) + lane * 4;
            barrier_wait(empty_barrier(base, r.stage), r.parity ^ 1);
#pragma unroll
            for (int j = 0; j < EACH; j++) word_load(to + j * 128, from[j]), from[j] += apart;
            barrier_arrive_behind_words(full_barrier(base, r.stage));
        }
    }
}

#endif
