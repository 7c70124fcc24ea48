/* SPDX-License-Identifier: Apache-2.0
 * quantize_avx2.h: 32 values at a time for quantize_body.h; included only where the compiler may use AVX2. */
#ifndef MOII_QUANTIZE_AVX2_H
#define MOII_QUANTIZE_AVX2_H

#include <immintrin.h>

#include "quantize_loops.h"

#define MOII_INLINE_AVX2 static inline __attribute__((always_inline))

/* A codec with every number in all lanes. */
typedef struct codec8 {
    bool is_int8;
    __m256i shift, min_exponent, max_bits, raise, offset, sign;
    int sign_shift; /* from bit 7 to the code's sign */
} codec8;

MOII_INLINE_AVX2 codec8 codec8_of(const moii_codec *c)
{
    codec8 k = { .is_int8 = c->is_int8, .shift = _mm256_set1_epi32(c->shift), .min_exponent = _mm256_set1_epi32(c->min_exponent) };
    k.max_bits = _mm256_set1_epi32(c->max_bits);
    k.raise = _mm256_set1_epi32(c->shift << 23);
    k.offset = _mm256_set1_epi16((short)c->offset);
    k.sign = _mm256_set1_epi8((char)c->sign_bit);
    k.sign_shift = c->sign_bit == 0x80 ? 0 : c->sign_bit == 0x20 ? 2 : 4;
    return k;
}

MOII_INLINE_AVX2 __m256 load8(moi_dtype in, const void *v, int64_t i)
{
    if (in == MOI_F32) return _mm256_loadu_ps((const float *)v + i);
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)v + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

MOII_INLINE_AVX2 __m256i load16(const void *v, int64_t i)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)v + i));
}

/* The largest magnitude bits of 32 values.  BF16 keeps to 16-bit lanes. */
MOII_INLINE_AVX2 int amax32(moi_dtype in, const void *v, int64_t i)
{
    if (in == MOI_BF16) {
        __m256i abs16 = _mm256_set1_epi16(0x7FFF);
        __m256i a = _mm256_and_si256(load16(v, i), abs16), b = _mm256_and_si256(load16(v, i + 16), abs16);
        a = _mm256_max_epi16(a, b);
        __m128i h = _mm_max_epi16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        h = _mm_minpos_epu16(_mm_xor_si128(h, _mm_set1_epi16(-1))); /* the least complement is the largest */
        return (int)((~(unsigned int)_mm_cvtsi128_si32(h) & 0xFFFFu) << 16);
    }
    __m256i abs32 = _mm256_set1_epi32(0x7FFFFFFF), top = _mm256_setzero_si256();
    for (int k = 0; k < 32; k += 8) top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(load8(in, v, i + k)), abs32));
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4E));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xB1));
    return _mm_cvtsi128_si32(h);
}

/* amax[0..31] = max with the magnitudes of 32 neighbours */
MOII_INLINE_AVX2 void amax_lanes32(moi_dtype in, const void *v, int64_t i, int *amax)
{
    for (int k = 0; k < 32; k += 8) {
        __m256i *to = (__m256i *)(void *)(amax + k);
        __m256i m = _mm256_and_si256(_mm256_castps_si256(load8(in, v, i + k)), _mm256_set1_epi32(0x7FFFFFFF));
        _mm256_storeu_si256(to, _mm256_max_epi32(_mm256_loadu_si256(to), m));
    }
}

/* Exponent field and mantissa of 8 codes, `offset` too large (see moii_codec). */
MOII_INLINE_AVX2 __m256i encode8(const codec8 *c, __m256 x)
{
    __m256i m = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF));
    m = _mm256_min_epi32(m, c->max_bits);
    __m256i e = _mm256_max_epi32(_mm256_and_si256(m, _mm256_set1_epi32(0x7F800000)), c->min_exponent);
    e = _mm256_add_epi32(e, c->raise);
    __m256i sum = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(m), _mm256_castsi256_ps(e)));
    return _mm256_add_epi32(_mm256_sub_epi32(sum, e), _mm256_srlv_epi32(e, c->shift));
}

MOII_INLINE_AVX2 __m256i encode8_int8(__m256 x)
{
    __m256 top = _mm256_set1_ps(1.984375f), magic = _mm256_set1_ps(196608.0f);
    x = _mm256_add_ps(_mm256_max_ps(_mm256_min_ps(x, top), _mm256_sub_ps(_mm256_setzero_ps(), top)), magic);
    return _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_castps_si256(magic));
}

/* Packing works in 128-bit halves; this puts the groups of four bytes back in order. */
MOII_INLINE_AVX2 __m256i in_order(__m256i x)
{
    return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

MOII_INLINE_AVX2 __m256i encode32(const codec8 *c, const __m256 *x)
{
    __m256i q[4];
    if (c->is_int8) {
        for (int k = 0; k < 4; k++) q[k] = encode8_int8(x[k]);
        return in_order(_mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3])));
    }
    for (int k = 0; k < 4; k++) q[k] = encode8(c, x[k]);
    __m256i low = _mm256_sub_epi16(_mm256_packus_epi32(q[0], q[1]), c->offset);
    __m256i high = _mm256_sub_epi16(_mm256_packus_epi32(q[2], q[3]), c->offset);
    __m256i s = _mm256_packs_epi16(_mm256_packs_epi32(_mm256_castps_si256(x[0]), _mm256_castps_si256(x[1])),
                                   _mm256_packs_epi32(_mm256_castps_si256(x[2]), _mm256_castps_si256(x[3])));
    s = _mm256_and_si256(s, _mm256_set1_epi8((char)0x80));
    if (c->sign_shift) s = _mm256_srli_epi16(s, c->sign_shift);
    return in_order(_mm256_or_si256(_mm256_packus_epi16(low, high), s));
}

MOII_INLINE_AVX2 void store32(unsigned char *to, __m256i x) { _mm256_storeu_si256((__m256i *)(void *)to, x); }

MOII_INLINE_AVX2 void encode_row32(const codec8 *c, moi_dtype in, const void *v, int64_t i, __m256 inverse, unsigned char *codes)
{
    __m256 x[4];
    for (int k = 0; k < 4; k++) x[k] = _mm256_mul_ps(load8(in, v, i + 8 * k), inverse);
    store32(codes + i, encode32(c, x));
}

/* One inverse per column: inverse[0..31] */
MOII_INLINE_AVX2 void encode_lanes32(const codec8 *c, moi_dtype in, const void *v, int64_t i, const float *inverse, unsigned char *codes)
{
    __m256 x[4];
    for (int k = 0; k < 4; k++) x[k] = _mm256_mul_ps(load8(in, v, i + 8 * k), _mm256_loadu_ps(inverse + 8 * k));
    store32(codes, encode32(c, x));
}

#endif
