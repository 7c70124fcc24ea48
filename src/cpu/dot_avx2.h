/* SPDX-License-Identifier: Apache-2.0
 * dot_avx2.h: dot.h's kernels for AVX2 and FMA.
 *
 * 8-bit floats need no conversion instruction: shifting sign, exponent and mantissa to their places in FP32 gives the value
 * times 2^-120 (E4M3) or 2^-112 (E5M2), subnormals included.  A 16-bit arithmetic shift does so for the odd bytes, another
 * for the even ones; masks and 32-bit shifts then part them: 9 instructions for 32 weights.  x is multiplied by 2^96 so that
 * the small values do not fall out of FP32; the rest of the power comes back at the end of the row.  Subnormal codes are
 * subnormal numbers here and cost a few cycles; in blocks scaled by their maximum they are one in thousands. */
#ifndef MOII_DOT_AVX2_H
#define MOII_DOT_AVX2_H

#include <immintrin.h>

#include "dot_body.h"

#define DOT_INLINE static inline __attribute__((always_inline))
/* element 4 i + k of a block stands at 8 k + i */
#define DOT_BYTES_ORDER { 0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27, 4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31 }
/* see part_e2m1: element 16 a + 4 i + 2 c + p stands at 16 a + 8 c + 4 p + i */
#define DOT_NIBBLES_ORDER { 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 16, 20, 24, 28, 17, 21, 25, 29, 18, 22, 26, 30, 19, 23, 27, 31 }

/* eight lanes of the sum over one block of 32; `most` collects twice the largest magnitude code */
typedef __m256 dot_part(const unsigned char *w, const float *x, __m256i *most);

DOT_INLINE __m256 dot_sum4(__m256 v0, __m256 v1, __m256 v2, __m256 v3, const float *x)
{
    __m256 sum = _mm256_mul_ps(v0, _mm256_loadu_ps(x));
    sum = _mm256_fmadd_ps(v1, _mm256_loadu_ps(x + 8), sum);
    sum = _mm256_fmadd_ps(v2, _mm256_loadu_ps(x + 16), sum);
    return _mm256_fmadd_ps(v3, _mm256_loadu_ps(x + 24), sum);
}

DOT_INLINE __m256i dot_load(const unsigned char *w) { return _mm256_loadu_si256((const __m256i *)(const void *)w); }

DOT_INLINE __m256 part_f32(const unsigned char *w, const float *x, __m256i *most)
{
    (void)most;
    return dot_sum4(_mm256_castsi256_ps(dot_load(w)), _mm256_castsi256_ps(dot_load(w + 32)), _mm256_castsi256_ps(dot_load(w + 64)),
                    _mm256_castsi256_ps(dot_load(w + 96)), x);
}

DOT_INLINE __m256 dot_bf16(const unsigned char *w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)w)), 16));
}

DOT_INLINE __m256 part_bf16(const unsigned char *w, const float *x, __m256i *most)
{
    (void)most;
    return dot_sum4(dot_bf16(w), dot_bf16(w + 16), dot_bf16(w + 32), dot_bf16(w + 48), x);
}

/* mask: sign, exponent and mantissa of one float in its place in FP32 */
DOT_INLINE __m256 dot_float8(const unsigned char *w, const float *x, __m256i *most, int shift, int mask_)
{
    __m256i v = dot_load(w), mask = _mm256_set1_epi32(mask_);
    *most = _mm256_max_epu8(*most, _mm256_add_epi8(v, v));
    __m256i odd = _mm256_srai_epi16(v, shift), even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), shift);
    __m256i v0 = _mm256_and_si256(_mm256_slli_epi32(even, 16), mask), v1 = _mm256_and_si256(_mm256_slli_epi32(odd, 16), mask);
    __m256i v2 = _mm256_and_si256(even, mask), v3 = _mm256_and_si256(odd, mask);
    return dot_sum4(_mm256_castsi256_ps(v0), _mm256_castsi256_ps(v1), _mm256_castsi256_ps(v2), _mm256_castsi256_ps(v3), x);
}

DOT_INLINE __m256 part_e4m3(const unsigned char *w, const float *x, __m256i *most)
{
    return dot_float8(w, x, most, 4, (int)0x87F00000u);
}

DOT_INLINE __m256 part_e5m2(const unsigned char *w, const float *x, __m256i *most)
{
    return dot_float8(w, x, most, 3, (int)0x8FE00000u);
}

DOT_INLINE __m256 dot_int8(const unsigned char *w)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)w)));
}

DOT_INLINE __m256 part_int8(const unsigned char *w, const float *x, __m256i *most)
{
    (void)most;
    return dot_sum4(dot_int8(w), dot_int8(w + 8), dot_int8(w + 16), dot_int8(w + 24), x);
}

/* E2M1 has 16 values, and BF16 holds them: two table look-ups give its high and low bytes.  The low nibbles (even elements)
 * go to the lower half of the register, the high ones to the upper. */
DOT_INLINE __m256 part_e2m1(const unsigned char *w, const float *x, __m256i *most)
{
    const __m256i high = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xBF, (char)0xBF,
                                                                   (char)0xBF, (char)0xC0, (char)0xC0, (char)0xC0, (char)0xC0));
    const __m256i low = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, (char)0x80, (char)0xC0, 0, 0x40, (char)0x80, (char)0xC0, 0, 0, (char)0x80,
                                                                  (char)0xC0, 0, 0x40, (char)0x80, (char)0xC0));
    const __m256i top = _mm256_set1_epi32((int)0xFFFF0000u);
    (void)most;
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)w));
    v = _mm256_and_si256(_mm256_srlv_epi32(v, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)), _mm256_set1_epi8(15));
    __m256i h = _mm256_shuffle_epi8(high, v), l = _mm256_shuffle_epi8(low, v);
    __m256i a = _mm256_unpacklo_epi8(l, h), b = _mm256_unpackhi_epi8(l, h);
    __m256i v0 = _mm256_slli_epi32(a, 16), v1 = _mm256_and_si256(a, top), v2 = _mm256_slli_epi32(b, 16), v3 = _mm256_and_si256(b, top);
    return dot_sum4(_mm256_castsi256_ps(v0), _mm256_castsi256_ps(v1), _mm256_castsi256_ps(v2), _mm256_castsi256_ps(v3), x);
}

DOT_INLINE float dot_lanes(__m256 v)
{
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* Some row has a code from `limit` up (magnitude bits): its sum becomes NaN. */
static inline void dot_mark(const moii_dot *d, unsigned int limit, float *out)
{
    for (int r = 0; r < MOII_DOT_ROWS; r++)
        for (int64_t i = 0; i < d->row_bytes; i++)
            if ((d->w[r][i] & 0x7Fu) >= limit) out[r] = moii_float_of(0x7FC00000u);
}

/* One block of each row; the sums are named one by one so that they stay in registers. */
#define DOT_STEP(d, r, b)                                                                                             \
    do {                                                                                                              \
        const unsigned char *w_ = (d)->w[r] + (b) * bytes;                                                            \
        for (int i_ = 0; i_ < bytes; i_ += 64) _mm_prefetch((const char *)w_ + (d)->ahead + i_, _MM_HINT_T0);         \
        __m256 p_ = part(w_, (d)->x + (b) * MOII_DOT_BLOCK, &most);                                                   \
        sum##r = scaled ? _mm256_fmadd_ps(p_, _mm256_broadcast_ss((d)->scale + r * (d)->scale_stride + (b)), sum##r)  \
                        : _mm256_add_ps(p_, sum##r);                                                                  \
    } while (0)

DOT_INLINE void dot_rows(const moii_dot *d, float *out, dot_part part, int bytes, bool scaled, float factor, unsigned int limit)
{
    __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    __m256i most = _mm256_setzero_si256();
    int64_t blocks = d->cols / MOII_DOT_BLOCK;
    for (int64_t b = 0; b < blocks; b++) {
        DOT_STEP(d, 0, b);
        DOT_STEP(d, 1, b);
        DOT_STEP(d, 2, b);
        DOT_STEP(d, 3, b);
    }
    if (d->cols % MOII_DOT_BLOCK) {
        unsigned char tail[MOII_DOT_ROWS][4 * MOII_DOT_BLOCK] = { { 0 } };
        moii_dot last = *d;
        last.x += blocks * MOII_DOT_BLOCK;
        last.scale += scaled ? blocks : 0;
        for (int r = 0; r < MOII_DOT_ROWS; r++)
            last.w[r] = memcpy(tail[r], d->w[r] + blocks * bytes, (size_t)(d->row_bytes - blocks * bytes));
        DOT_STEP(&last, 0, 0);
        DOT_STEP(&last, 1, 0);
        DOT_STEP(&last, 2, 0);
        DOT_STEP(&last, 3, 0);
    }
    out[0] = dot_lanes(sum0) * factor;
    out[1] = dot_lanes(sum1) * factor;
    out[2] = dot_lanes(sum2) * factor;
    out[3] = dot_lanes(sum3) * factor;
    if (!limit) return;
    __m256i from = _mm256_set1_epi8((char)(2 * limit));
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(most, from), most))) dot_mark(d, limit, out);
}

static void dot_f32(const moii_dot *d, float out[MOII_DOT_ROWS]) { dot_rows(d, out, part_f32, 128, false, 1.0f, 0); }
static void dot_bf16_(const moii_dot *d, float out[MOII_DOT_ROWS]) { dot_rows(d, out, part_bf16, 64, false, 1.0f, 0); }
static void dot_e4m3(const moii_dot *d, float out[MOII_DOT_ROWS]) { dot_rows(d, out, part_e4m3, 32, true, 0x1p24f, 0x7F); }
static void dot_e5m2(const moii_dot *d, float out[MOII_DOT_ROWS]) { dot_rows(d, out, part_e5m2, 32, true, 0x1p16f, 0x7C); }
static void dot_e2m1(const moii_dot *d, float out[MOII_DOT_ROWS]) { dot_rows(d, out, part_e2m1, 16, true, 1.0f, 0); }
static void dot_int8_(const moii_dot *d, float out[MOII_DOT_ROWS]) { dot_rows(d, out, part_int8, 32, true, 0x1p-6f, 0); }

#endif
