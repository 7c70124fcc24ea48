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
 * Scales of less than 2^-60 or more than 2^60 and those that are not finite could leave BF16 or FP32 on the way.  In a stage in which the tile has such a
 * scale, or one of 0, threads multiply (product_outer_stages.cuh); rows and columns have the scales themselves then, a float each. */
#ifndef MOII_PRODUCT_OUTER_CUH
#define MOII_PRODUCT_OUTER_CUH

#if OUTER
static_assert(WGS == 2 && WAVES == 1 && BN == 128 && TURNS == 1 && SPLIT == 1 && !WIDE, "sums, products and the scales' products of a thread: 192 registers");
static_assert(STAGES >= LOADERS / 32, "a loading warp that passes the others' stages is never a whole round ahead of the cards");
static_assert(SCALING == SCALING_VECTOR && GROUPS != PRODUCT_ROWS && (SCALE_E8M0 ? QUADS : SCALES_BULK), "four rows' scales lie side by side");

/* a1, a1, a2, a2 */
MOII_FN uint2 outer_row(float s)
{
    const unsigned int high = bf16_pair(s, s);
    const float rest = s - moii_float_of(high & 0xFFFF0000u);
    return make_uint2(high, bf16_pair(rest, rest));
}

/* b1, b2, b1, b2 */
MOII_FN uint2 outer_column(float s)
{
    const unsigned int both = bf16_pair(s, s - moii_float_of(bf16_pair(s, 0.0f) << 16));
    return make_uint2(both, both);
}

MOII_FN bool outer_near(float s) { return fabsf(s) > 0x1p-60f && fabsf(s) < 0x1p60f; }

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
