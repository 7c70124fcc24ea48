/* SPDX-License-Identifier: Apache-2.0
 * decode_fp8_multiply.cuh: one stage of a warpgroup: 64 rows of weights as they lie in memory times columns of E4M3 pairs.
 *
 * A sum of 32 products comes from the tensor core without scales, and begins anew each time: it drops what lies 2^-13 below the largest
 * product.  It is then multiplied by its row's scale and added in FP32; after a stretch of the column comes the column's factor.
 * Lane (g = lane / 4, c = lane % 4) has rows g and g + 8 of its warp's 16, of columns 8 j + 2 c, 8 j + 2 c + 1: one token's high and low. */
#ifndef MOII_DECODE_FP8_MULTIPLY_CUH
#define MOII_DECODE_FP8_MULTIPLY_CUH

#include "num.h"
#include "ptx_sm90.cuh"
#define WGMMA_N COLUMNS
#define WGMMA_K "k32"
#define WGMMA_END ""
#if E5M2
#define WGMMA_TYPE "f32.e5m2.e4m3"
#else
#define WGMMA_TYPE "f32.e4m3.e4m3"
#endif
#define WGMMA_LINE LINE
#include "wgmma.cuh"

/* Products of 32 in a stage, and how many are under way at once; tokens of a lane. */
enum { PRODUCTS = STEP / 32, MINE = TOKENS / 4,
       ROUND = PRODUCTS * COLUMNS < 64 ? PRODUCTS : PRODUCTS == 6 ? 3 : PRODUCTS == 4 && COLUMNS == 16 ? 2 : COLUMNS == 32 ? 1 : 64 / COLUMNS };

/* Rows g and g + 8 (gate and up of one output, in pass 1). */
typedef struct sums { float v[2][MINE]; } sums;

/* The scales of a row in a stage, as they are stored: of each chunk a word (LINE 128, or FP32), or half a word. */
typedef struct row_scales { unsigned int v[CHUNKS]; } row_scales;

MOII_FN void load_scales(row_scales &s, const unsigned char *from)
{
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) s.v[i] = LINE == 128 ? *(const unsigned int *)(from + 4 * i) : *(const unsigned short *)(from + 2 * i);
}

/* Whether one of them is NaN, 2^-127 or so large that sums could leave FP32: then each product is made small first. */
MOII_FN bool needs_care(const row_scales &s)
{
    bool care = false;
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const unsigned int x = LINE == 128 ? s.v[i] : s.v[i] | s.v[i] << 16;
        care = care || ((x - 0x01010101u) & ~x & 0x80808080u) || (x & (x << 1) & (x << 2) & 0x80808080u);
    }
    return care;
}

MOII_FN unsigned int code_of(const row_scales &s, int i) /* of product i */
{
    return s.v[i * 32 / LINE] >> 8 * (i % (LINE / 32)) & 0xFFu;
}

MOII_FN void add_product(sums &stage, const float *d, const row_scales *scales, int i)
{
    const float top = moii_float_of(code_of(scales[0], i) << 23), bottom = moii_float_of(code_of(scales[1], i) << 23);
#pragma unroll
    for (int j = 0; j < MINE; j++) {
        stage.v[0][j] = __fmaf_rn(top, __fmaf_rn(d[4 * j + 1], 0.03125f, d[4 * j]), stage.v[0][j]);
        stage.v[1][j] = __fmaf_rn(bottom, __fmaf_rn(d[4 * j + 3], 0.03125f, d[4 * j + 2]), stage.v[1][j]);
    }
}

/* The same for scales of any size, straight into the total. */
MOII_FN void add_product_carefully(sums &total, const float *d, const row_scales *scales, int i, const float *factor)
{
    const float top = moii_e8m0_decode(code_of(scales[0], i)), bottom = moii_e8m0_decode(code_of(scales[1], i));
#pragma unroll
    for (int j = 0; j < MINE; j++) {
        total.v[0][j] = __fmaf_rn(top, __fmaf_rn(d[4 * j + 1], 0.03125f, d[4 * j]) * factor[j], total.v[0][j]);
        total.v[1][j] = __fmaf_rn(bottom, __fmaf_rn(d[4 * j + 3], 0.03125f, d[4 * j + 2]) * factor[j], total.v[1][j]);
    }
}

/* A round's products, of which this warp's are from column register `from` on, a constant. */
MOII_FN void add_products(sums &total, sums &stage, const float (*d)[COLUMNS / 2], int from, const row_scales *scales, int round, const float *factor,
                          bool care)
{
    if (care) {
#pragma unroll
        for (int i = 0; i < ROUND; i++) add_product_carefully(total, d[i] + from, scales, round + i, factor);
    } else {
#pragma unroll
        for (int i = 0; i < ROUND; i++) add_product(stage, d[i] + from, scales, round + i);
    }
}

/* total += the stage.  half: which half of the columns is this warp's; factors: of its tokens, this lane's first; scales: of rows g, g + 8. */
MOII_FN void multiply_stage(sums &total, unsigned int weights, unsigned int columns, int half, const float *factors, const unsigned char *scale0,
                            const unsigned char *scale1)
{
    sums stage;
    row_scales scales[2];
    float factor[MINE];
    load_scales(scales[0], scale0);
    load_scales(scales[1], scale1);
    const bool care = __any_sync(0xFFFFFFFFu, needs_care(scales[0]) || needs_care(scales[1]));
#pragma unroll
    for (int j = 0; j < MINE; j++) stage.v[0][j] = stage.v[1][j] = 0, factor[j] = factors[4 * j];
#pragma unroll
    for (int round = 0; round < PRODUCTS; round += ROUND) {
        float d[ROUND][COLUMNS / 2];
#pragma unroll
        for (int i = 0; i < ROUND; i++) wgmma_hold(d[i]);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < ROUND; i++) {
            const int k = (round + i) * 32, chunk = k / LINE;
            wgmma(d[i], wgmma_at(weights + chunk * (FP8_ROWS * LINE) + k % LINE), wgmma_at(columns + chunk * (COLUMNS * LINE) + k % LINE), 0);
        }
        wgmma_close();
        WGMMA_WAIT(0);
#pragma unroll
        for (int i = 0; i < ROUND; i++) wgmma_hold(d[i]);
        if (HALVES == 1 || !half) add_products(total, stage, d, 0, scales, round, factor, care);
        else add_products(total, stage, d, (HALVES - 1) * 4 * MINE, scales, round, factor, care);
    }
    if (!care)
#pragma unroll
        for (int j = 0; j < MINE; j++)
            for (int h = 0; h < 2; h++) total.v[h][j] = __fmaf_rn(factor[j], stage.v[h][j], total.v[h][j]);
}

#endif
