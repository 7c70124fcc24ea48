/* SPDX-License-Identifier: Apache-2.0
 * decode_fp8_columns.cuh: columns of BF16 as pairs of E4M3 columns, which hold them exactly.
 *
 * A BF16 value has 8 significant bits, an E4M3 one 4.  With s, a power of two that takes the largest magnitude of a stretch of the column
 * into 128 .. 256:  x s = high + low / 32,  high the nearest E4M3 value, low the rest's.  Values of 2^-13 of the stretch's largest and more
 * are exact, smaller ones within 2^-22 of it.  A column with Inf or NaN becomes NaN. */
#ifndef MOII_DECODE_FP8_COLUMNS_CUH
#define MOII_DECODE_FP8_COLUMNS_CUH

#include "num.h"

/* Values of a stretch: 64 at a time, two neighbours a lane. */
enum { PIECES = STEP / 64 };
typedef struct stretch { unsigned int v[PIECES]; } stretch;

MOII_FN void load_stretch(stretch &s, const unsigned short *from, int lane)
{
#pragma unroll
    for (int i = 0; i < PIECES; i++) s.v[i] = __ldcg((const unsigned int *)(from + 64 * i) + lane);
}

/* The exponent of the largest magnitude, as a float has it; 255 where it is not finite. */
MOII_FN unsigned int largest_exponent(const stretch &s)
{
    unsigned int most = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const unsigned int even = s.v[i] & 0x7FFFu, odd = s.v[i] >> 16 & 0x7FFFu;
        most = max(most, max(even, odd));
    }
    return __reduce_max_sync(0xFFFFFFFFu, most) >> 7;
}

/* Two values times `scale` as E4M3 pairs, high in the low half of what is returned, low in the high half. */
MOII_FN unsigned int split_pair(unsigned int pair, float scale)
{
    unsigned int out;
    const float even = moii_float_of(pair << 16) * scale, odd = moii_float_of(pair & 0xFFFF0000u) * scale;
    asm("{\n .reg .b32 x, back;\n .reg .b16 high, low;\n"
        " cvt.rn.f16x2.f32 x, %2, %1;\n"
        " cvt.rn.satfinite.e4m3x2.f16x2 high, x;\n"
        " cvt.rn.f16x2.e4m3x2 back, high;\n"
        " sub.rn.f16x2 x, x, back;\n"
        " mul.rn.f16x2 x, x, %3;\n"
        " cvt.rn.satfinite.e4m3x2.f16x2 low, x;\n"
        " mov.b32 %0, {high, low};\n}" : "=r"(out) : "f"(even), "f"(odd), "r"(0x50005000u));
    return out;
}

MOII_FN void store_half(unsigned int at, unsigned int v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"((unsigned short)v) : "memory"); }

/* Where a byte of a tile of rows of LINE bytes lies: the tensor core's swizzle. */
MOII_FN unsigned int swizzled(unsigned int at) { return at ^ (at >> 7 & (LINE == 128 ? 7u : 3u)) << 4; }

/* Writes rows `row` (high) and `row` + 1 (low) of the stage's columns; returns the factor of what is multiplied with them. */
MOII_FN float store_stretch(const stretch &s, unsigned int columns, int row, int lane)
{
    const unsigned int largest = largest_exponent(s), e = max(largest, 8u);
    const float scale = moii_float_of((261u - e) << 23);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const unsigned int k = 64 * i + 2 * lane, at = row * LINE + k % LINE, chunk = k / LINE * (COLUMNS * LINE);
        const unsigned int v = largest == 255u ? 0x7F7F7F7Fu : split_pair(s.v[i], scale);
        store_half(columns + chunk + swizzled(at), v);
        store_half(columns + chunk + swizzled(at + LINE), v >> 16);
    }
    return moii_float_of((e - 7u) << 23);
}

#endif
