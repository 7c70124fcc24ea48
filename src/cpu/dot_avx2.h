/* SPDX-License-Identifier: Apache-2.0
 * dot_avx2.h: dot.h's kernels for AVX2, FMA and F16C.
 *
 * 8-bit floats need no conversion instruction: shifting sign, exponent and mantissa to their places in FP32 gives the value
 * times 2^-120 (E4M3) or 2^-112 (E5M2), subnormals included.  A 16-bit arithmetic shift does so for the odd bytes, a
 * multiplication for the even ones (another pipe of the machine); masks and 32-bit shifts then part them: 8 instructions for
 * 32 weights.  x is multiplied by 2^96 so that
 * the small values do not fall out of FP32; the rest of the power comes back at the end of the row.  Subnormal codes are
 * subnormal numbers here and cost a few cycles; in blocks scaled by their maximum they are one in thousands. */
#ifndef MOII_DOT_AVX2_H
#define MOII_DOT_AVX2_H

#include <immintrin.h>

#include "dot_body.h"

#define DOT_INLINE static inline __attribute__((always_inline))
/* element 4 i + b of a block stands at 8 k + i, k = 0, 2, 1, 3 for b = 0, 1, 2, 3 */
#define DOT_BYTES_ORDER { 0, 16, 8, 24, 1, 17, 9, 25, 2, 18, 10, 26, 3, 19, 11, 27, 4, 20, 12, 28, 5, 21, 13, 29, 6, 22, 14, 30, 7, 23, 15, 31 }
/* element 16 a + 4 i + 2 c + p stands at 16 a + 8 c + 4 p + i: see part_e2m1 */
#define DOT_NIBBLES_ORDER { 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 16, 20, 24, 28, 17, 21, 25, 29, 18, 22, 26, 30, 19, 23, 27, 31 }
/* element 16 a + 2 i + c stands at 16 a + 8 c + i */
#define DOT_CODES_ORDER { 0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27, 4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31 }
#define DOT_HALVES_ORDER { 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15, 16, 24, 17, 25, 18, 26, 19, 27, 20, 28, 21, 29, 22, 30, 23, 31 }

/* Eight of a block's 32 weights, those that meet x[8 k .. 8 k + 7].  Inlined with k constant, so that what several k have in
 * common is computed once.  `most` collects twice the largest magnitude code. */
typedef __m256 dot_part(const unsigned char *w, int k, __m256i *most);

DOT_INLINE __m256i dot_load(const unsigned char *w) { return _mm256_loadu_si256((const __m256i *)(const void *)w); }

/* The lower (k even) or upper halves of 32-bit lanes as the upper halves of floats; mask 0: nothing else is in them. */
DOT_INLINE __m256 dot_half(__m256i v, int k, int lower_mask, int upper_mask)
{
    if (!(k & 1)) v = _mm256_slli_epi32(v, 16);
    int mask = k & 1 ? upper_mask : lower_mask;
    return _mm256_castsi256_ps(mask ? _mm256_and_si256(v, _mm256_set1_epi32(mask)) : v);
}
enum { DOT_UPPER = (int)0xFFFF0000u };

DOT_INLINE __m256 part_f32(const unsigned char *w, int k, __m256i *most)
{
    (void)most;
    return _mm256_castsi256_ps(dot_load(w + 32 * k));
}

DOT_INLINE __m256 part_bf16(const unsigned char *w, int k, __m256i *most)
{
    (void)most;
    return dot_half(dot_load(w + (k & 2) * 16), k, 0, DOT_UPPER);
}

DOT_INLINE __m256 part_f16(const unsigned char *w, int k, __m256i *most)
{
    (void)most;
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(w + 16 * k)));
}

/* Even bytes for k = 0, 1, odd ones for 2, 3; the mask keeps sign, exponent and mantissa in their places. */
DOT_INLINE __m256 dot_float8(const unsigned char *w, int k, __m256i *most, int shift, int mask)
{
    __m256i v = dot_load(w);
    if (k == 0) *most = _mm256_max_epu8(*most, _mm256_add_epi8(v, v));
    v = k < 2 ? _mm256_maddubs_epi16(_mm256_set1_epi16((short)(256 >> shift)), v) : _mm256_srai_epi16(v, shift);
    return dot_half(v, k, mask, mask);
}
DOT_INLINE __m256 part_e4m3(const unsigned char *w, int k, __m256i *most) { return dot_float8(w, k, most, 4, (int)0x87F00000u); }
DOT_INLINE __m256 part_e5m2(const unsigned char *w, int k, __m256i *most) { return dot_float8(w, k, most, 3, (int)0x8FE00000u); }

DOT_INLINE __m256 part_int8(const unsigned char *w, int k, __m256i *most)
{
    (void)most;
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(w + 8 * k))));
}

/* E2M1 has 16 values, and BF16 holds them: two table look-ups give its high and low bytes.  The low nibbles (even elements)
 * go to the lower half of the register, the high ones to the upper. */
DOT_INLINE __m256 part_e2m1(const unsigned char *w, int k, __m256i *most)
{
    const __m256i high = _mm256_setr_epi32(0x3F3F3F00, 0x40404040, (int)0xBFBFBF80, (int)0xC0C0C0C0, 0x3F3F3F00, 0x40404040, (int)0xBFBFBF80, (int)0xC0C0C0C0);
    const __m256i low = _mm256_setr_epi32((int)0xC0800000, (int)0xC0804000, (int)0xC0800000, (int)0xC0804000, (int)0xC0800000, (int)0xC0804000,
                                          (int)0xC0800000, (int)0xC0804000);
    (void)most;
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)w));
    v = _mm256_and_si256(_mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(15));
    __m256i h = _mm256_shuffle_epi8(high, v), l = _mm256_shuffle_epi8(low, v);
    return dot_half(k < 2 ? _mm256_unpacklo_epi8(l, h) : _mm256_unpackhi_epi8(l, h), k, 0, DOT_UPPER);
}

/* Eight dwords, each with four 6-bit codes; code k of each is looked up.  Element 4 i + k stands at 8 k + i. */
DOT_INLINE __m256 dot_gather6(const unsigned char *w, int k, const float *table)
{
    const __m256i three = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)w), high = _mm_loadu_si128((const __m128i *)(const void *)(w + 8));
    __m256i v = _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), three);
    return _mm256_i32gather_ps(table, _mm256_and_si256(_mm256_srli_epi32(v, 6 * k), _mm256_set1_epi32(63)), 4);
}

DOT_INLINE __m256 part_e3m2(const unsigned char *w, int k, __m256i *most)
{
    static const float table[64] = {
        0, 0.0625f, 0.125f, 0.1875f, 0.25f, 0.3125f, 0.375f, 0.4375f, 0.5f, 0.625f, 0.75f, 0.875f, 1, 1.25f, 1.5f, 1.75f,
        2, 2.5f, 3, 3.5f, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28,
        -0.0f, -0.0625f, -0.125f, -0.1875f, -0.25f, -0.3125f, -0.375f, -0.4375f, -0.5f, -0.625f, -0.75f, -0.875f, -1, -1.25f, -1.5f, -1.75f,
        -2, -2.5f, -3, -3.5f, -4, -5, -6, -7, -8, -10, -12, -14, -16, -20, -24, -28,
    };
    (void)most;
    return dot_gather6(w, k, table);
}

DOT_INLINE __m256 part_e2m3(const unsigned char *w, int k, __m256i *most)
{
    static const float table[64] = {
        0, 0.125f, 0.25f, 0.375f, 0.5f, 0.625f, 0.75f, 0.875f, 1, 1.125f, 1.25f, 1.375f, 1.5f, 1.625f, 1.75f, 1.875f,
        2, 2.25f, 2.5f, 2.75f, 3, 3.25f, 3.5f, 3.75f, 4, 4.5f, 5, 5.5f, 6, 6.5f, 7, 7.5f,
        -0.0f, -0.125f, -0.25f, -0.375f, -0.5f, -0.625f, -0.75f, -0.875f, -1, -1.125f, -1.25f, -1.375f, -1.5f, -1.625f, -1.75f, -1.875f,
        -2, -2.25f, -2.5f, -2.75f, -3, -3.25f, -3.5f, -3.75f, -4, -4.5f, -5, -5.5f, -6, -6.5f, -7, -7.5f,
    };
    (void)most;
    return dot_gather6(w, k, table);
}

DOT_INLINE float dot_lanes(__m256 v)
{
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* Has the row a code from `limit` up (magnitude bits)? */
static inline bool dot_strange(const moii_dot *d, unsigned int limit)
{
    for (int64_t i = 0; i < d->row_bytes; i++)
        if ((d->w[i] & 0x7Fu) >= limit) return true;
    return false;
}

/* block b, unscaled */
#define DOT_BLOCK(w, x, b) dot_block((w) + (b) * bytes, (x) + (b) * MOII_DOT_BLOCK, part, &most)
DOT_INLINE __m256 dot_block(const unsigned char *w, const float *x, dot_part part, __m256i *most)
{
    __m256 p = _mm256_mul_ps(part(w, 0, most), _mm256_load_ps(x));
    p = _mm256_fmadd_ps(part(w, 1, most), _mm256_load_ps(x + 8), p);
    p = _mm256_fmadd_ps(part(w, 2, most), _mm256_load_ps(x + 16), p);
    return _mm256_fmadd_ps(part(w, 3, most), _mm256_load_ps(x + 24), p);
}
/* the sum over a row that takes in block b */
#define DOT_TAKE(sum, p, s, b) (scaled ? _mm256_fmadd_ps(p, _mm256_broadcast_ss((s) + (b)), sum) : _mm256_add_ps(sum, p))

DOT_INLINE float dot_row(const moii_dot *d, dot_part part, int bytes, bool scaled, float factor, unsigned int limit)
{
    __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    __m256i most = _mm256_setzero_si256();
    const unsigned char *w = d->w;
    const float *x = d->x;
    int64_t blocks = d->cols / MOII_DOT_BLOCK, b = 0;
    for (; b + 4 <= blocks; b += 4) {
        for (int i = 0; i < 4 * bytes; i += 64) _mm_prefetch((const char *)w + b * bytes + MOII_DOT_AHEAD + i, _MM_HINT_T0);
        sum0 = DOT_TAKE(sum0, DOT_BLOCK(w, x, b), d->scale, b);
        sum1 = DOT_TAKE(sum1, DOT_BLOCK(w, x, b + 1), d->scale, b + 1);
        sum2 = DOT_TAKE(sum2, DOT_BLOCK(w, x, b + 2), d->scale, b + 2);
        sum3 = DOT_TAKE(sum3, DOT_BLOCK(w, x, b + 3), d->scale, b + 3);
    }
    for (; b < blocks; b++) sum0 = DOT_TAKE(sum0, DOT_BLOCK(w, x, b), d->scale, b);
    if (d->cols % MOII_DOT_BLOCK) {
        unsigned char tail[4 * MOII_DOT_BLOCK] = { 0 };
        memcpy(tail, w + blocks * bytes, (size_t)(d->row_bytes - blocks * bytes));
        sum0 = DOT_TAKE(sum0, DOT_BLOCK(tail, x + blocks * MOII_DOT_BLOCK, 0), d->scale, blocks);
    }
    if (limit) {
        __m256i from = _mm256_set1_epi8((char)(2 * limit));
        if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(most, from), most)) && dot_strange(d, limit)) return moii_float_of(0x7FC00000u);
    }
    return dot_lanes(_mm256_add_ps(_mm256_add_ps(sum0, sum1), _mm256_add_ps(sum2, sum3))) * factor;
}

/* As dot_scales, eight at a time. */
static void dot_scales_avx2(const unsigned char *code, float *scale, int64_t n)
{
    int64_t i = 0;
    const __m256i ordinary = _mm256_set1_epi8((char)(126 + MOII_DOT_SCALE_LIMIT - 1));
    for (; i + 32 <= n; i += 32) { /* no code is 0 or too large: the exponent is all there is to it */
        __m256i below = _mm256_sub_epi8(dot_load(code + i), _mm256_set1_epi8(1));
        if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(below, ordinary), ordinary)) != -1) break;
        for (int64_t k = i; k < i + 32; k += 8)
            _mm256_storeu_si256((__m256i *)(void *)(scale + k),
                                _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(code + k))), 23));
    }
    for (; i + 8 <= n; i += 8) {
        __m256i c = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(code + i)));
        __m256i bits = _mm256_max_epu32(_mm256_slli_epi32(c, 23), _mm256_set1_epi32(0x400000));
        __m256i large = _mm256_cmpgt_epi32(c, _mm256_set1_epi32(126 + MOII_DOT_SCALE_LIMIT));
        bits = _mm256_or_si256(bits, _mm256_and_si256(large, _mm256_set1_epi32(0x7F800000)));
        _mm256_storeu_ps(scale + i, _mm256_castsi256_ps(bits));
    }
    dot_scales(code + i, scale + i, n - i);
}

static float dot_f32(const moii_dot *d) { return dot_row(d, part_f32, 128, false, 1.0f, 0); }
static float dot_f16(const moii_dot *d) { return dot_row(d, part_f16, 64, false, 1.0f, 0); }
static float dot_bf16_(const moii_dot *d) { return dot_row(d, part_bf16, 64, false, 1.0f, 0); }
static float dot_e4m3(const moii_dot *d) { return dot_row(d, part_e4m3, 32, true, 0x1p24f, 0x7F); }
static float dot_e5m2(const moii_dot *d) { return dot_row(d, part_e5m2, 32, true, 0x1p16f, 0x7C); }
static float dot_e2m1_floats(const moii_dot *d) { return dot_row(d, part_e2m1, 16, true, 1.0f, 0); }
static float dot_e3m2(const moii_dot *d) { return dot_row(d, part_e3m2, 24, true, 1.0f, 0); }
static float dot_e2m3(const moii_dot *d) { return dot_row(d, part_e2m3, 24, true, 1.0f, 0); }
static float dot_int8_(const moii_dot *d) { return dot_row(d, part_int8, 32, true, 0x1p-6f, 0); }

#endif
