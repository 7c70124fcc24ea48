/* SPDX-License-Identifier: Apache-2.0
 * thin_multiply.cuh: the multiplying warpgroups of thin_sm90: a tile's sums, which lie as thin_store.cuh says. */
#ifndef MOII_THIN_MULTIPLY_CUH
#define MOII_THIN_MULTIPLY_CUH

/* Of 2 or 4 blocks. */
MOII_FN void scales_read(unsigned int from, int count, float to[BLOCKS])
{
    if (count == BLOCKS) {
        const float4 v = shared_read_floats(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        const float2 v = shared_read_pair(from);
        to[0] = v.x, to[1] = v.y;
    }
}

/* So many products of a stage, 64 rows of B by so many of A. */
MOII_FN void start_products(unsigned int b, unsigned int a, int columns, int count, float acc[BLOCKS][BN / 2])
{
#pragma unroll
    for (int j = 0; j < count; j++) wgmma_hold(acc[j], columns);
    wgmma_begin();
#pragma unroll
    for (int j = 0; j < count; j++) {
        if (columns == BN) wgmma(acc[j], b + 2 * j, a + 2 * j, 0);
        else if (columns == BN / 2) wgmma_half(acc[j], b + 2 * j, a + 2 * j, 0);
        else wgmma_quarter(acc[j], b + 2 * j, a + 2 * j, 0);
    }
    wgmma_close();
}

/* They become sums, each times its scales.  top, bottom: of the lane's rows of B; scales: address of those of its first row of A. */
MOII_FN void add_products(float acc[BLOCKS][BN / 2], int columns, int count, const float *top, const float *bottom, unsigned int scales, float sum[BN / 2])
{
#pragma unroll
    for (int j = 0; j < count; j++) wgmma_hold(acc[j], columns);
#pragma unroll
    for (int i = 0; i < columns / 8; i++) {
        float even[BLOCKS], odd[BLOCKS], *d = sum + 4 * i;
        scales_read(scales + i * 128, count, even), scales_read(scales + i * 128 + 16, count, odd);
#pragma unroll
        for (int j = 0; j < count; j++) {
            const float *x = acc[j] + 4 * i;
            d[0] = __fmaf_rn(x[0] * top[j], even[j], d[0]), d[1] = __fmaf_rn(x[1] * top[j], odd[j], d[1]);
            d[2] = __fmaf_rn(x[2] * bottom[j], even[j], d[2]), d[3] = __fmaf_rn(x[3] * bottom[j], odd[j], d[3]);
        }
    }
}

/* What a warpgroup reads of the first stage: descriptors; addresses of the lane's scales. */
typedef struct places { unsigned int b, a, b_scales, a_scales; } places;

/* count: products at a time; while these are added the stage's others run, if there are any.  Straight code from a stage's first product to its last wait:
 * else the compiler has each wait at once. */
MOII_FN void multiply_tile(unsigned int base, const places &at, int steps, int columns, int count, ring &r, float sum[BN / 2])
{
    float acc[2][BLOCKS][BN / 2] = {}; /* undefined ones, of three forms, take ptxas more registers than it has */
#pragma unroll
    for (int j = 0; j < columns / 2; j++) sum[j] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < steps; step++, ring_step(r)) {
        barrier_wait(full_barrier(base, r.stage), r.parity);
        const unsigned int tile = r.stage * (STAGE_BYTES / 16), scales = r.stage * SCALES_BYTES;
        const float4 t = four_scales(shared_read_word(at.b_scales + scales)), b = four_scales(shared_read_word(at.b_scales + scales + 32));
        const float top[BLOCKS] = { t.x, t.y, t.z, t.w }, bottom[BLOCKS] = { b.x, b.y, b.z, b.w };
        start_products(at.b + tile, at.a + tile, columns, count, acc[0]);
#pragma unroll
        for (int j = 0; j < BLOCKS; j += count) {
            const int next = j + count;
            if (next < BLOCKS) {
                start_products(at.b + tile + 2 * next, at.a + tile + 2 * next, columns, count, acc[next / count % 2]);
                WGMMA_WAIT(1);
            } else WGMMA_WAIT(0);
            add_products(acc[j / count % 2], columns, count, top + j, bottom + j, at.a_scales + scales + 4 * j, sum);
        }
        release_stage(base, r.stage);
    }
}

/* A unit of no more than so many rows of A. */
MOII_FN void multiply_unit(const product_args &a, const group_list &groups, int i, unsigned int base, const places &at, int columns, int count, ring &r)
{
    float sum[BN / 2];
    multiply_tile(base, at, a.k / STEP, columns, count, r, sum);
    if (ADD && a.k == 0) return;
    const unit u = find_unit(a, groups, i); /* found again: no registers keep it */
    store_tile(a, u, columns, u.line + own_warpgroup() * 64, sum, base);
}

MOII_FN void multiply_units(const product_args &a, const group_list &groups, unsigned int base, int wg)
{
    const int lane = (int)threadIdx.x % 32, first = wg * 64 + (int)threadIdx.x / 32 % 4 * 16, all = units_in_all(groups);
    const places at = { wgmma_at(base + wg * (64 * PRODUCT_STEP_BYTES)), wgmma_at(base + B_BYTES), base + SCALES_AT + (first + lane / 4) * 4,
                        base + SCALES_AT + A_SCALES + lane % 4 * 2 * 16 };
    ring r = { 0, 0 };
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < all; i += (int)gridDim.x) {
        const int rows = find_unit(a, groups, i).rows;
        if (rows > BN / 2) multiply_unit(a, groups, i, base, at, BN, 4, r);
        else if (rows > BN / 4) multiply_unit(a, groups, i, base, at, BN / 2, 2, r);
        else multiply_unit(a, groups, i, base, at, BN / 4, 4, r);
    }
}

#endif
