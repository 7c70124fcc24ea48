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

/* The largest magnitude bits of the values i..end-1, a multiple of 32 of them.  BF16 keeps to 16-bit lanes. */
MOII_INLINE_AVX2 int amax_of32s(moi_dtype in, const void *v, int64_t i, int64_t end)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    if (in == MOI_BF16) {
        __m256i abs16 = _mm256_set1_epi16(0x7FFF);
        for (; i < end; i += 32) {
            a = _mm256_max_epi16(a, _mm256_and_si256(load16(v, i), abs16));
            b = _mm256_max_epi16(b, _mm256_and_si256(load16(v, i + 16), abs16));
        }
        a = _mm256_max_epi16(a, b);
        __m128i h = _mm_max_epi16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        h = _mm_minpos_epu16(_mm_xor_si128(h, _mm_set1_epi16(-1))); /* the least complement is the largest */
        return (int)((~(unsigned int)_mm_cvtsi128_si32(h) & 0xFFFFu) << 16);
    }
    __m256i abs32 = _mm256_set1_epi32(0x7FFFFFFF);
    for (; i < end; i += 16) {
        a = _mm256_max_epi32(a, _mm256_and_si256(_mm256_castps_si256(load8(in, v, i)), abs32));
        b = _mm256_max_epi32(b, _mm256_and_si256(_mm256_castps_si256(load8(in, v, i + 8)), abs32));
    }
    a = _mm256_max_epi32(a, b);
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4E));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xB1));
    return _mm_cvtsi128_si32(h);
}

MOII_INLINE_AVX2 __m256i larger16(__m256i a, __m256i b) { return _mm256_max_epi16(a, b); }

/* amax[0..7]: eight blocks of 32 BF16 values from i.  Three rounds of interleaving two vectors and keeping the larger halves
 * leave each block's largest in one place of either half of a register. */
MOII_INLINE_AVX2 void amax_8blocks_bf16(const void *v, int64_t i, unsigned int *amax)
{
    const __m256i abs16 = _mm256_set1_epi16(0x7FFF);
    __m256i m[8];
    for (int b = 0; b < 8; b++)
        m[b] = larger16(_mm256_and_si256(load16(v, i + 32 * b), abs16), _mm256_and_si256(load16(v, i + 32 * b + 16), abs16));
    for (int b = 0; b < 4; b++) m[b] = larger16(_mm256_unpacklo_epi16(m[2 * b], m[2 * b + 1]), _mm256_unpackhi_epi16(m[2 * b], m[2 * b + 1]));
    for (int b = 0; b < 2; b++) m[b] = larger16(_mm256_unpacklo_epi32(m[2 * b], m[2 * b + 1]), _mm256_unpackhi_epi32(m[2 * b], m[2 * b + 1]));
    m[0] = larger16(_mm256_unpacklo_epi64(m[0], m[1]), _mm256_unpackhi_epi64(m[0], m[1]));
    __m128i top = _mm_max_epi16(_mm256_castsi256_si128(m[0]), _mm256_extracti128_si256(m[0], 1));
    _mm256_storeu_si256((__m256i *)(void *)amax, _mm256_slli_epi32(_mm256_cvtepu16_epi32(top), 16));
}

/* amax[0..31]: down 32 neighbouring columns from column c */
MOII_INLINE_AVX2 void amax_lanes32(moi_dtype in, const void *v, int64_t ld, int64_t rows, int64_t c, int *amax)
{
    __m256i *to = (__m256i *)(void *)amax;
    if (in == MOI_BF16) {
        __m256i abs16 = _mm256_set1_epi16(0x7FFF), a = _mm256_setzero_si256(), b = a;
        for (int64_t r = 0; r < rows; r++) {
            a = _mm256_max_epi16(a, _mm256_and_si256(load16(v, r * ld + c), abs16));
            b = _mm256_max_epi16(b, _mm256_and_si256(load16(v, r * ld + c + 16), abs16));
        }
        __m128i part[4] = { _mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1), _mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1) };
        for (int k = 0; k < 4; k++) _mm256_storeu_si256(to + k, _mm256_slli_epi32(_mm256_cvtepu16_epi32(part[k]), 16));
        return;
    }
    __m256i abs32 = _mm256_set1_epi32(0x7FFFFFFF), top[4] = { _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256() };
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < 4; k++)
            top[k] = _mm256_max_epi32(top[k], _mm256_and_si256(_mm256_castps_si256(load8(in, v, r * ld + c + 8 * k)), abs32));
    for (int k = 0; k < 4; k++) _mm256_storeu_si256(to + k, top[k]);
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

MOII_INLINE_AVX2 void put32(unsigned char *to, __m256i x, bool stream)
{
    if (stream) _mm256_stream_si256((__m256i *)(void *)to, x);
    else store32(to, x);
}

MOII_INLINE_AVX2 void encode_row32(const codec8 *c, moi_dtype in, const void *v, int64_t i, __m256 inverse, unsigned char *codes, bool stream)
{
    __m256 x[4];
    for (int k = 0; k < 4; k++) x[k] = _mm256_mul_ps(load8(in, v, i + 8 * k), inverse);
    put32(codes, encode32(c, x), stream);
}

/* BF16 values and power-of-two scales stay in 16-bit lanes.  Exponents are counted from D = mantissa bits + 1 below the
 * smallest normal, where values begin to round to something: with t = (exponent << 7 | mantissa), `y` is the code with 8 bits
 * behind the point; where the result is normal that is t itself, moved; below, 1.mantissa times a power of two from a table.
 * The larger of both is the right one. */
typedef struct codec16 {
    __m256i table, below, max_code, sign;
    __m128i up;
    int lowest; /* the least E8M0 code this works for: see moii_sink.tiny */
    int sign_shift;
} codec16;

MOII_INLINE_AVX2 codec16 codec16_of(const moii_codec *c)
{
    int depth = c->mantissa_bits + 1;
    codec16 k = { .lowest = c->bias + depth, .sign_shift = c->sign_bit == 0x80 ? 0 : c->sign_bit == 0x20 ? 2 : 4 };
    __m128i powers = depth == 4 ? _mm_setr_epi8(0, 1, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
                   : depth == 3 ? _mm_setr_epi8(0, 1, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
                                : _mm_setr_epi8(0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    k.table = _mm256_broadcastsi128_si256(powers);
    k.below = _mm256_set1_epi16((short)(depth << 7));
    k.up = _mm_cvtsi32_si128(depth);
    k.max_code = _mm256_set1_epi8((char)c->max_code);
    k.sign = _mm256_set1_epi8((char)0x80);
    return k;
}

/* What a block's scale takes off the exponents, from the bits of its inverse 2^(127 - E).  Scales under `lowest` come with
 * blocks of zeros, for which anything will do, and with blocks that the caller makes himself. */
MOII_INLINE_AVX2 void find_takes(const codec16 *c, const float *inverse, int64_t n, uint16_t *take)
{
    for (int64_t i = 0; i < n; i++) {
        int above = 254 - c->lowest - (int)(moii_bits_of(inverse[i]) >> 23);
        take[i] = (uint16_t)((above > 0 ? above : 0) << 7);
    }
}

/* Codes with 8 bits behind the point to the nearest, ties to even: the even ones lose a last bit, then halves go up. */
MOII_INLINE_AVX2 __m256i round16(__m256i y)
{
    __m256i even = _mm256_andnot_si256(_mm256_srli_epi16(y, 8), _mm256_set1_epi16(1));
    return _mm256_mulhrs_epi16(_mm256_sub_epi16(y, even), _mm256_set1_epi16(128));
}

MOII_INLINE_AVX2 __m256i normal16(const codec16 *c, __m256i t) { return _mm256_sll_epi16(_mm256_subs_epu16(t, c->below), c->up); }

MOII_INLINE_AVX2 __m256i any16(const codec16 *c, __m256i t)
{
    __m256i power = _mm256_shuffle_epi8(c->table, _mm256_srli_epi16(t, 7));
    __m256i one = _mm256_or_si256(_mm256_and_si256(t, _mm256_set1_epi16(0x7F)), _mm256_set1_epi16(0x80));
    return _mm256_max_epu16(_mm256_mullo_epi16(one, power), normal16(c, t));
}

/* Subnormal results are rare in blocks scaled by their largest: 32 values without any take the short way. */
MOII_INLINE_AVX2 __m256i encode32_bf16(const codec16 *c, const void *v, int64_t i, __m256i take0, __m256i take1)
{
    const __m256i abs16 = _mm256_set1_epi16(0x7FFF), unit = _mm256_set1_epi16(0x80);
    __m256i a = load16(v, i), b = load16(v, i + 16), y0, y1;
    __m256i t0 = _mm256_subs_epu16(_mm256_and_si256(a, abs16), take0), t1 = _mm256_subs_epu16(_mm256_and_si256(b, abs16), take1);
    __m256i least = _mm256_min_epu16(_mm256_sub_epi16(t0, unit), _mm256_sub_epi16(t1, unit)); /* those that become 0 wrap around */
    if (__builtin_expect(_mm256_movemask_epi8(_mm256_cmpeq_epi16(_mm256_max_epu16(least, c->below), least)) == -1, 1)) {
        y0 = normal16(c, t0), y1 = normal16(c, t1);
    } else {
        y0 = any16(c, t0), y1 = any16(c, t1);
    }
    __m256i q = _mm256_packus_epi16(round16(y0), round16(y1));
    __m256i s = _mm256_and_si256(_mm256_packs_epi16(a, b), c->sign);
    if (c->sign_shift) s = _mm256_srli_epi16(s, c->sign_shift);
    return _mm256_permute4x64_epi64(_mm256_or_si256(_mm256_min_epu8(q, c->max_code), s), 0xD8);
}

MOII_INLINE_AVX2 void encode_row32_bf16(const codec16 *c, const void *v, int64_t i, uint16_t take_, unsigned char *codes, bool stream)
{
    __m256i take = _mm256_set1_epi16((short)take_);
    put32(codes, encode32_bf16(c, v, i, take, take), stream);
}

/* Down 32 columns from c; take[0..31] */
MOII_INLINE_AVX2 void encode_lanes32_bf16(const codec16 *k, const moii_span *x, int64_t c, const uint16_t *take, unsigned char *codes, int64_t codes_ld)
{
    __m256i low = load16(take, 0), high = load16(take, 16);
    for (int64_t r = 0; r < x->rows; r++) store32(codes + r * codes_ld, encode32_bf16(k, x->v, r * x->ld + c, low, high));
}

/* 16 values to odd; the carry of the lower half into the last bit is the smaller of it and 1 */
MOII_INLINE_AVX2 void narrow_odd16(const float *v, uint16_t *out)
{
    __m256i u[2];
    for (int k = 0; k < 2; k++) {
        u[k] = _mm256_loadu_si256((const __m256i *)(const void *)(v + 8 * k));
        u[k] = _mm256_or_si256(_mm256_srli_epi32(u[k], 16), _mm256_min_epu16(u[k], _mm256_set1_epi32(1)));
    }
    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_permute4x64_epi64(_mm256_packus_epi32(u[0], u[1]), 0xD8));
}

/* Whole cache lines, around the caches. */
static inline void stream_lines(unsigned char *to, const unsigned char *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 32)
        _mm256_stream_si256((__m256i *)(void *)(to + i), _mm256_loadu_si256((const __m256i *)(const void *)(from + i)));
}

/* One inverse per column: inverse[0..31] */
MOII_INLINE_AVX2 void encode_lanes32(const codec8 *c, moi_dtype in, const void *v, int64_t i, const float *inverse, unsigned char *codes)
{
    __m256 x[4];
    for (int k = 0; k < 4; k++) x[k] = _mm256_mul_ps(load8(in, v, i + 8 * k), _mm256_loadu_ps(inverse + 8 * k));
    store32(codes, encode32(c, x));
}

#endif
