/* SPDX-License-Identifier: Apache-2.0
 * dequant_body.h: codes to FP32, included by each isa_<name>.c and compiled with its flags.
 *
 * dequant(elem, row, first, count, block, scale, out): out[i] = decode(row[first + i]) * scale[i / block], one rounding; with
 * block = 0 (plain formats) there are no scales.  The bits are those of moi_decode and one FP32 product. */
#ifndef MOII_DEQUANT_BODY_H
#define MOII_DEQUANT_BODY_H

#include <string.h>

#include "dtype.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

static void dequant_plain(moi_dtype elem, const void *row, int64_t first, int64_t count, float *out)
{
    if (elem == MOI_F32) {
        memcpy(out, (const float *)row + first, (size_t)count * sizeof *out);
    } else if (elem == MOI_BF16) {
        const uint16_t *in = (const uint16_t *)row + first;
        for (int64_t i = 0; i < count; i++) out[i] = moii_bf16_decode(in[i]);
    } else if (elem == MOI_F16) {
        const uint16_t *in = (const uint16_t *)row + first;
        int64_t i = 0;
#ifdef __F16C__
        for (; i + 8 <= count; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
#endif
        for (; i < count; i++) out[i] = moii_f16_decode(in[i]);
    } else {
        for (int64_t i = 0; i < count; i++) out[i] = moi_decode(elem, row, first + i);
    }
}

/* The 8-bit formats are inlined; 6 and 4 bits go through the packed load. */
static void dequant_each(moi_dtype elem, const void *row, int64_t first, int64_t count, float scale, float *out)
{
    const unsigned char *in = (const unsigned char *)row + first;
    switch (elem) {
    case MOI_E4M3:
        for (int64_t i = 0; i < count; i++) out[i] = moii_e4m3_decode(in[i]) * scale;
        return;
    case MOI_E5M2:
        for (int64_t i = 0; i < count; i++) out[i] = moii_e5m2_decode(in[i]) * scale;
        return;
    case MOI_INT8:
        for (int64_t i = 0; i < count; i++) out[i] = moii_int8_decode(in[i]) * scale;
        return;
    default:
        for (int64_t i = 0; i < count; i++) out[i] = moi_decode(elem, row, first + i) * scale;
    }
}

#ifdef __AVX2__
/* Each small float is brought to FP16, whose exponent is wide enough for all of them, at the top bits of a 16-bit lane; the
 * difference of the biases is made good by an exact factor afterwards.  A loader reads 16 codes and not a byte more. */

/* sign, exponent and mantissa move up by 7; the sign extension left a copy of the sign in bit 14 */
static inline __m256i halves_e4m3(const unsigned char *p)
{
    __m256i w = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)), 7);
    w = _mm256_and_si256(w, _mm256_set1_epi16((short)0xBFFF));
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0x7FFF)), _mm256_set1_epi16(0x3F80));
    return _mm256_xor_si256(w, _mm256_and_si256(nan, _mm256_set1_epi16(0x3F80 ^ 0x7E00)));
}

/* E5M2 is the upper byte of FP16; NaNs become the one that moi_decode gives */
static inline __m256i halves_e5m2(const unsigned char *p)
{
    __m256i w = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p)), 8);
    __m256i nan = _mm256_cmpgt_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0x7FFF)), _mm256_set1_epi16(0x7C00));
    __m256i quiet = _mm256_or_si256(_mm256_and_si256(w, _mm256_set1_epi16((short)0x8000)), _mm256_set1_epi16(0x7E00));
    return _mm256_blendv_epi8(w, quiet, nan);
}

/* 16 codes of 6 bits, each at the top of its lane: byte pairs, then a shift by what the position asks for */
static inline __m256i top_sixes(const unsigned char *p)
{
    int32_t tail;
    memcpy(&tail, p + 8, 4);
    __m128i bytes = _mm_insert_epi32(_mm_loadl_epi64((const __m128i *)p), tail, 2);
    __m128i lo = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 1, 0, 1, 1, 2, 2, -1, 3, 4, 3, 4, 4, 5, 5, -1));
    __m128i hi = _mm_shuffle_epi8(bytes, _mm_setr_epi8(6, 7, 6, 7, 7, 8, 8, -1, 9, 10, 9, 10, 10, 11, 11, -1));
    __m256i w = _mm256_set_m128i(hi, lo);
    __m256i up = _mm256_setr_epi16(1024, 16, 64, 256, 1024, 16, 64, 256, 1024, 16, 64, 256, 1024, 16, 64, 256);
    return _mm256_mullo_epi16(w, up);
}

static inline __m256i halves_six(const unsigned char *p, int mantissa_bits)
{
    __m256i w = top_sixes(p), sign = _mm256_and_si256(w, _mm256_set1_epi16((short)0x8000));
    __m256i magnitude = _mm256_and_si256(w, _mm256_set1_epi16(0x7C00));
    magnitude = mantissa_bits == 2 ? _mm256_srli_epi16(magnitude, 2) : _mm256_srli_epi16(magnitude, 3);
    return _mm256_or_si256(sign, magnitude);
}

static inline __m256i halves_e2m1(const unsigned char *p)
{
    __m128i b = _mm_loadl_epi64((const __m128i *)p), low = _mm_set1_epi8(0xF);
    __m128i codes = _mm_unpacklo_epi8(_mm_and_si128(b, low), _mm_and_si128(_mm_srli_epi16(b, 4), low));
    __m128i upper = _mm_setr_epi8(0x00, 0x38, 0x3C, 0x3E, 0x40, 0x42, 0x44, 0x46, (char)0x80, (char)0xB8, (char)0xBC, (char)0xBE,
                                  (char)0xC0, (char)0xC2, (char)0xC4, (char)0xC6);
    return _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_shuffle_epi8(upper, codes)), 8);
}

static inline void store_halves(float *out, __m256i w, float factor, __m256 scale)
{
    __m256 lo = _mm256_cvtph_ps(_mm256_castsi256_si128(w)), hi = _mm256_cvtph_ps(_mm256_extracti128_si256(w, 1));
    if (factor != 1.0f) {
        lo = _mm256_mul_ps(lo, _mm256_set1_ps(factor));
        hi = _mm256_mul_ps(hi, _mm256_set1_ps(factor));
    }
    _mm256_storeu_ps(out, _mm256_mul_ps(lo, scale));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(hi, scale));
}

static inline void store_int8(float *out, const unsigned char *p, __m256 scale)
{
    __m128i b = _mm_loadu_si128((const __m128i *)p);
    __m256 unit = _mm256_set1_ps(0.015625f);
    __m256 lo = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)), unit);
    __m256 hi = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8))), unit);
    _mm256_storeu_ps(out, _mm256_mul_ps(lo, scale));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(hi, scale));
}

static inline void store16(moi_dtype elem, const unsigned char *p, __m256 scale, float *out)
{
    switch (elem) {
    case MOI_E4M3: store_halves(out, halves_e4m3(p), 256.0f, scale); return;
    case MOI_E5M2: store_halves(out, halves_e5m2(p), 1.0f, scale); return;
    case MOI_E3M2: store_halves(out, halves_six(p, 2), 4096.0f, scale); return;
    case MOI_E2M3: store_halves(out, halves_six(p, 3), 16384.0f, scale); return;
    case MOI_E2M1: store_halves(out, halves_e2m1(p), 1.0f, scale); return;
    default: store_int8(out, p, scale);
    }
}

/* `bits` and `elem` are constants wherever this is inlined.  `first` begins on a byte. */
static inline __attribute__((always_inline)) void dequant_blocks(moi_dtype elem, int bits, const void *row, int64_t first, int64_t count,
                                                                 int64_t block, const float *scale, float *out)
{
    const unsigned char *in = (const unsigned char *)row + first * bits / 8;
    for (int64_t from = 0; from < count; from += block, scale++) {
        int64_t to = count - from < block ? count : from + block, i = from;
        __m256 s = _mm256_set1_ps(*scale);
        for (; i + 16 <= to; i += 16) store16(elem, in + i * bits / 8, s, out + i);
        if (i < to) dequant_each(elem, row, first + i, to - i, *scale, out + i);
    }
}

static void dequant(moi_dtype elem, const void *row, int64_t first, int64_t count, int64_t block, const float *scale, float *out)
{
    if (block == 0) {
        dequant_plain(elem, row, first, count, out);
        return;
    }
    bool on_byte = elem == MOI_E2M1 ? first % 2 == 0 : elem == MOI_E3M2 || elem == MOI_E2M3 ? first % 4 == 0 : true;
    switch (on_byte ? elem : MOI_F64) {
    case MOI_E4M3: dequant_blocks(MOI_E4M3, 8, row, first, count, block, scale, out); return;
    case MOI_E5M2: dequant_blocks(MOI_E5M2, 8, row, first, count, block, scale, out); return;
    case MOI_E3M2: dequant_blocks(MOI_E3M2, 6, row, first, count, block, scale, out); return;
    case MOI_E2M3: dequant_blocks(MOI_E2M3, 6, row, first, count, block, scale, out); return;
    case MOI_E2M1: dequant_blocks(MOI_E2M1, 4, row, first, count, block, scale, out); return;
    case MOI_INT8: dequant_blocks(MOI_INT8, 8, row, first, count, block, scale, out); return;
    default: break;
    }
    for (int64_t from = 0; from < count; from += block, scale++)
        dequant_each(elem, row, first + from, count - from < block ? count - from : block, *scale, out + from);
}
#else
static void dequant(moi_dtype elem, const void *row, int64_t first, int64_t count, int64_t block, const float *scale, float *out)
{
    if (block == 0) dequant_plain(elem, row, first, count, out);
    for (int64_t from = 0; block && from < count; from += block, scale++)
        dequant_each(elem, row, first + from, count - from < block ? count - from : block, *scale, out + from);
}
#endif

#endif
