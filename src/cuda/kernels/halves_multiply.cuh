/* SPDX-License-Identifier: Apache-2.0
 * halves_multiply.cuh: the multiplying warpgroups of halves_sm90: codes of B to FP16, products of a block of 32, a tile's sums.
 *
 * A lane (g = lane / 4, c = lane % 4) has rows g and g + 8 of B of its warp's 16, and of each its codes 8 c to 8 c + 7 of a block: four for either piece of 16
 * values that are multiplied at once, as A's copy is laid (half_rows_sm90.cu).  Of E2M1 these eight are a word. */
#ifndef MOII_HALVES_MULTIPLY_CUH
#define MOII_HALVES_MULTIPLY_CUH

#define FOUR_E5M2 (ELEM_B == PRODUCT_E5M2)
#include "eight_f16.cuh"
#include "four_f16.cuh"

enum { BLOCKS = 4, ALL = WAVES * BLOCKS }; /* of a row of a stage; products of a stage */

MOII_FN float scale_of(uint2 pairs, int block)
{
    const unsigned int pair = block < 2 ? pairs.x : pairs.y;
    return moii_float_of(block % 2 ? pair & 0xFFFF0000u : pair << 16);
}

/* Addresses, of the first stage: descriptor of A; of the lane's codes of its first row's first block, and of that row's scales. */
typedef struct places { unsigned int a, codes, scale; } places;

/* What a multiplying thread has on its way: FP16 of two blocks in turn, of each two pieces; codes of one that comes; the stage's scales; products of two
 * blocks. */
typedef struct on_way {
    unsigned int value[2][2][4];
    uint2 codes[2];
    uint2 scale[WAVES][2];
    float product[2][BN / 2];
} on_way;

/* Where a lane's codes of its first row's first block are, of a stage's; those of block i: ^ i BLOCK_BYTES. */
enum { BLOCK_BYTES = ROW_BYTES / BLOCKS };
MOII_FN unsigned int lane_codes(int row, int lane)
{
    const int c = lane % 4;
    if (ELEM_B == PRODUCT_E2M1) return (unsigned int)(row * ROW_BYTES + lane / 8 * 16 + c * 4);
    return (unsigned int)(row * ROW_BYTES + ((c / 2) ^ (lane / 4)) * 16 + c % 2 * 8);
}

/* Codes of block i of a stage: of each wave four. */
MOII_FN void read_codes(const places &at, unsigned int stage, int i, on_way &w)
{
    const unsigned int codes = (at.codes ^ i % BLOCKS * BLOCK_BYTES) + stage * STAGE_BYTES + i / BLOCKS * (64 * ROW_BYTES);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (ELEM_B == PRODUCT_E2M1) w.codes[h].x = shared_read_word(codes + h * (8 * ROW_BYTES));
        else w.codes[h] = shared_read_two(codes + h * (8 * ROW_BYTES));
    }
}

/* A lane's eight codes as pairs of FP16; of E2M1 times 2^-14. */
MOII_FN uint4 pairs_of(uint2 codes)
{
#if ELEM_B == PRODUCT_E2M1
    return eight_in_turn(codes.x);
#else
    const uint2 first = four_f16(codes.x), second = four_f16(codes.y);
    return make_uint4(first.x, first.y, second.x, second.y);
#endif
}

MOII_FN void read_scales(const places &at, unsigned int stage, on_way &w)
{
#pragma unroll
    for (int i = 0; i < WAVES * 2; i++) w.scale[i / 2][i % 2] = shared_read_two(at.scale + stage * SCALES_BYTES + (i / 2 * 64 + i % 2 * 8) * SCALES_EACH);
}

/* The codes that were read become block i's FP16. */
MOII_FN void convert_codes(int i, on_way &w)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint4 pairs = pairs_of(w.codes[h]);
        w.value[i % 2][0][h] = pairs.x, w.value[i % 2][0][h + 2] = pairs.y;
        w.value[i % 2][1][h] = pairs.z, w.value[i % 2][1][h + 2] = pairs.w;
    }
}

MOII_FN void start_block(const places &at, unsigned int stage, int i, int columns, on_way &w)
{
    const unsigned int a = at.a + stage * (STAGE_BYTES / 16) + i % BLOCKS / 2 * (HALF_BYTES / 16) + i % 2 * 4;
    wgmma_hold(w.product[i % 2], columns);
    wgmma_begin();
    wgmma_kept(w.product[i % 2], w.value[i % 2][0], a, columns, 0);
    wgmma_kept(w.product[i % 2], w.value[i % 2][1], a + 2, columns, 1);
    wgmma_close();
}

MOII_FN void add_block(int i, int columns, on_way &w, float sum[WAVES][BN / 2])
{
    const float top = scale_of(w.scale[i / BLOCKS][0], i % BLOCKS), bottom = scale_of(w.scale[i / BLOCKS][1], i % BLOCKS);
    float *d = sum[i / BLOCKS], *x = w.product[i % 2];
    wgmma_hold(x, columns);
#pragma unroll
    for (int j = 0; j < columns / 2; j++) d[j] = __fmaf_rn(x[j], j & 2 ? bottom : top, d[j]);
}

/* A stage's blocks, one wave's and then the other's.  While one is multiplied, the one before is added and the next becomes FP16.  Straight code up to the last
 * wait: else the compiler has each product waited for at once.  Nothing of the next stage is wanted here: who waited for it before this one is done would keep
 * both, and so have less on its way. */
MOII_FN void multiply_stage(const places &at, unsigned int stage, int columns, on_way &w, float sum[WAVES][BN / 2])
{
    read_codes(at, stage, 0, w);
    read_scales(at, stage, w);
    convert_codes(0, w);
    read_codes(at, stage, 1, w);
#pragma unroll
    for (int i = 0; i < ALL; i++) {
        start_block(at, stage, i, columns, w);
        if (i > 0) {
            WGMMA_WAIT(1);
            add_block(i - 1, columns, w, sum);
        }
        if (i + 1 < ALL) convert_codes(i + 1, w);
        if (i + 2 < ALL) read_codes(at, stage, i + 2, w);
    }
    WGMMA_WAIT(0);
    add_block(ALL - 1, columns, w, sum);
}

MOII_FN void multiply_tile(unsigned int base, const places &at, int steps, int columns, ring &r, float sum[WAVES][BN / 2])
{
    on_way w;
#pragma unroll
    for (int j = 0; j < columns / 2; j++) sum[0][j] = sum[1][j] = w.product[0][j] = w.product[1][j] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < steps; step++, ring_step(r)) {
        barrier_wait(full_barrier(base, r.stage), r.parity);
        multiply_stage(at, r.stage, columns, w, sum);
        release_stage(base, r.stage);
    }
}

/* Columns times their rows' factors, which are at `factors`. */
MOII_FN void times_factors(unsigned int factors, int columns, float sum[WAVES][BN / 2])
{
#pragma unroll
    for (int j = 0; j < columns / 2; j += 4) {
        const uint2 both = shared_read_two(factors + (j * 2 + (int)threadIdx.x % 4 * 2) * 4);
        const float even = moii_float_of(both.x), odd = moii_float_of(both.y);
#pragma unroll
        for (int w = 0; w < WAVES; w++) sum[w][j] *= even, sum[w][j + 1] *= odd, sum[w][j + 2] *= even, sum[w][j + 3] *= odd;
    }
}

/* A unit of no more than so many rows of A, the block's n-th. */
MOII_FN void multiply_unit(const product_args &a, int n, unsigned int base, const places &at, int columns, ring &r)
{
    float sum[WAVES][BN / 2];
    multiply_tile(base, at, (a.k + STEP - 1) / STEP, columns, r, sum);
    if (ADD && a.k == 0) return;
    if (a.k > 0) times_factors(factors_at(base, n), columns, sum);
    store_waves(a, look_at_card(base, n), columns, sum, base);
}

MOII_FN void multiply_units(const product_args &a, const group_list &groups, unsigned int base, int wg)
{
    const int lane = (int)threadIdx.x % 32, first = wg * (64 * WAVES) + (int)threadIdx.x / 32 % 4 * 16, row = first + lane / 4;
    const places at = { wgmma_at(base + B_BYTES), base + lane_codes(row, lane), base + SCALES_AT + row * SCALES_EACH };
    ring r = { 0, 0 };
    unit u;
#pragma unroll 1
    for (int n = 0; take_unit(a, groups, base, n, &u); return_unit(base, n), n++) {
        const int rows = __shfl_sync(~0u, u.rows, 0);
        if (rows > 32) multiply_unit(a, n, base, at, 64, r);
        else if (rows > 16) multiply_unit(a, n, base, at, 32, r);
        else multiply_unit(a, n, base, at, 16, r);
    }
}

#endif
