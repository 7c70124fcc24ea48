/* SPDX-License-Identifier: Apache-2.0
 * product_outer.cuh: scales of 1x128 by 1x128 for product_sm90.cuh, whose products the tensor cores make (OUTER).
 *
 * Of a stage, D's element (m, n) adds P(m, n) * (a[m] * b[n]).  By threads these are two FP32 instructions for each, of which one finds no room beside the
 * operands' products.  All a[m] * b[n] are an outer product: one more of the tensor cores, whose reduction is short.  A scale is the sum of two BF16
 * numbers, the nearest and the nearest to what is left, up to 2^-17 of it (0 of a power of two), and
 *     a b = a1 b1 + a1 b2 + a2 b1 + a2 b2,
 * up to 2^-16, and what the tensor cores cut off of four products in BF16: 17 * 2^-20 of it in all.  Their own sums of 8 bits keep 13 bits.  A reduction is
 * 16 values, these four and zeros, of which the latter eight are the same memory for all.
 *
 * Scales of 2^-60 and less or 2^60 and more and those that are not finite could leave BF16 or FP32 on the way.  In a stage in which the tile has such a
 * scale, or one of 0, threads multiply (product_outer_stages.cuh); rows and columns have the scales themselves then, two floats each.  E8M0 is powers of
 * two, and blocks of zeros have 2^-127 of it: there it is products that must not be less than 2^-149. */
#ifndef MOII_PRODUCT_OUTER_CUH
#define MOII_PRODUCT_OUTER_CUH

#if OUTER
static_assert(WGS == 2 && WAVES == 1 && BN == 128 && TURNS == 1 && SPLIT == 1 && !WIDE, "sums, products and the scales' products of a thread: 192 registers");
static_assert(STAGES >= LOADERS / 32, "a loading warp steps over the others' stages at once: never more than a round");
static_assert(SCALING == SCALING_VECTOR && GROUPS != PRODUCT_ROWS && (SCALE_E8M0 ? QUADS : SCALES_BULK), "four rows' scales lie side by side");

/* Rows: a1, a1, a2, a2; columns: b1, b2, b1, b2. */
#if SCALE_E8M0 /* BF16 itself, the upper half of FP32 */
MOII_FN uint2 outer_row(float s) { return make_uint2(moii_bits_of(s) | moii_bits_of(s) >> 16, 0); }
MOII_FN uint2 outer_column(float s) { return make_uint2(moii_bits_of(s) >> 16, moii_bits_of(s) >> 16); }
#else
MOII_FN uint2 outer_row(float s)
{
    const unsigned int high = bf16_pair(s, s);
    const float rest = s - moii_float_of(high & 0xFFFF0000u);
    return make_uint2(high, bf16_pair(rest, rest));
}

MOII_FN uint2 outer_column(float s)
{
    const unsigned int both = bf16_pair(s, s - moii_float_of(bf16_pair(s, 0.0f) << 16));
    return make_uint2(both, both);
}
#endif

/* s as a product of two, of which the second is a power of two from 2^-64 to 2^63, and the first about as large, times 2. */
MOII_FN uint2 outer_far(float s)
{
    const unsigned int half = (moii_bits_of(s) >> 23 & 255) / 2; /* 63: 1 */
    return make_uint2(moii_bits_of(s * moii_float_of((191 - half) << 23)), (half + 63) << 23);
}

#if SCALE_E8M0
MOII_FN int outer_exponent(float s) { return (int)(moii_bits_of(s) >> 23); } /* and 127 */

/* Of a stage's scales one is not near; whether all are below 2^60 and no product of two is below 2^-149. */
MOII_FN bool outer_products_near(const float x[4], const float y[4])
{
    int low[2] = { 255, 255 }, most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int a = outer_exponent(x[i]), b = outer_exponent(y[i]);
        low[0] = min(low[0], a), low[1] = min(low[1], b), most = max(most, max(a, b));
    }
    return __reduce_min_sync(~0u, low[0]) + __reduce_min_sync(~0u, low[1]) >= 2 * 127 - 149 && __all_sync(~0u, most < 127 + 60);
}
#endif

/* Of a stage's scales, of which each lane of a warp has four rows' and four columns'. */
MOII_FN bool outer_near(const float x[4], const float y[4])
{
    bool near = true; /* without branches */
#pragma unroll
    for (int i = 0; i < 4; i++)
        near = near & (fabsf(x[i]) > 0x1p-60f) & (fabsf(x[i]) < 0x1p60f) & (fabsf(y[i]) > 0x1p-60f) & (fabsf(y[i]) < 0x1p60f);
    if (__all_sync(~0u, near)) return true;
#if SCALE_E8M0
    return outer_products_near(x, y);
#else
    return false;
#endif
}

/* Bytes from the tile's first row, or column. */
MOII_FN unsigned int outer_at(int row) { return (unsigned int)(row >> 3) * OUTER_EIGHT + (unsigned int)(row & 7) * OUTER_LINE; }

/* Before the block's warps meet: all that is 0 for ever. */
MOII_FN void outer_clear(const shared &s)
{
    for (int i = (int)threadIdx.x; i < (ZEROS_AT + OUTER_ZEROS - SCALES_AT) / 16; i += THREADS)
        shared_write_four(s.base + SCALES_AT + i * 16, make_uint4(0, 0, 0, 0));
    shared_to_async();
}

/* d[64][BN] = rows x columns, whose places are given; behind a row's first half it continues where zeros are. */
MOII_FN void wgmma_outer(float *d, unsigned int rows, unsigned int columns, unsigned int zeros)
{
    const unsigned long long eights = (unsigned long long)(OUTER_EIGHT >> 4) << 32;
    const unsigned long long a = eights | rows | (zeros - rows) << 16, b = eights | columns | (zeros - columns) << 16;
    asm volatile(WG_PRODUCT_OF(WG_SHAPE, "k16.f32.bf16.bf16", ", 0, 0", WG_T, WG_A, WG_B, WG_P) : WG_D : "l"(a), "l"(b), "r"(0));
}

#endif

#endif
