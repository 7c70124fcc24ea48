/* SPDX-License-Identifier: Apache-2.0
 * thin_scales.cuh: the warps of thin_sm90 that bring scales: of weights, which are the tensor cores' rows, and FP32 of those of A's. */
#ifndef MOII_THIN_SCALES_CUH
#define MOII_THIN_SCALES_CUH

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
        for (int j = 0; j < EACH; j++) from[j] = words_of(a.b_scales, u.group, line_of(a, u, part * (32 * EACH) + j * 32 + lane));
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

/* A lane has one row. */
MOII_FN void load_row_scales(const product_args &a, const group_list &groups, unsigned int base, int part)
{
    enum { AHEAD = 4 }; /* stages whose scales are on their way at a time */
    ring r = { 0, 0 };
    const int all = units_in_all(groups), row = part * 32 + (int)threadIdx.x % 32, apart = words_apart(a.a_scales), steps = a.k / STEP;
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < all; i += (int)gridDim.x) {
        const unit u = find_unit(a, groups, i);
        const unsigned char *from = words_of(a.a_scales, GROUPS == PRODUCT_MASKED ? u.group : 0, u.row + row);
        const bool mine = row < u.rows;
        unsigned int v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++, from += apart)
            if (mine && j < steps) v[j] = __ldg((const unsigned int *)from);
#pragma unroll 1
        for (int first = 0; first < steps; first += AHEAD) {
#pragma unroll
            for (int j = 0; j < AHEAD; j++, from += apart) {
                if (first + j >= steps) break;
                barrier_wait(empty_barrier(base, r.stage), r.parity ^ 1);
                const float4 four = four_scales(v[j]);
                if (mine) shared_write_floats(base + SCALES_AT + r.stage * SCALES_BYTES + A_SCALES + row * 16, four.x, four.y, four.z, four.w);
                if (mine && first + j + AHEAD < steps) v[j] = __ldg((const unsigned int *)from);
                __syncwarp();
                if (threadIdx.x % 32 == 0) barrier_arrive(full_barrier(base, r.stage));
                ring_step(r);
            }
        }
    }
}

#endif
