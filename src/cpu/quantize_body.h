/* SPDX-License-Identifier: Apache-2.0
 * quantize_body.h: the loops of quantize_loops.h.  Each isa_<name>.c includes this text once and is compiled with its own
 * flags; the loops are written so that the compiler turns them into SIMD code. */
#ifndef MOII_QUANTIZE_BODY_H
#define MOII_QUANTIZE_BODY_H

#include <string.h>
#if defined(__AVX2__)
#include "quantize_avx2.h"
#endif
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "quantize_loops.h"

#define MOII_INLINE static inline __attribute__((always_inline))

MOII_INLINE float value_at(moi_dtype in, const void *v, int64_t i)
{
    if (in == MOI_BF16) return moii_float_of((unsigned int)((const uint16_t *)v)[i] << 16);
    return ((const float *)v)[i];
}

MOII_INLINE int magnitude_at(moi_dtype in, const void *v, int64_t i)
{
    return (int)(moii_bits_of(value_at(in, v, i)) & 0x7FFFFFFFu);
}

/* ---- largest magnitudes ---- */

MOII_INLINE int larger(int a, int b) { return a > b ? a : b; }

MOII_INLINE int amax_span(moi_dtype in, const void *v, int64_t i, int64_t end)
{
    int top = 0;
#if defined(__AVX2__)
    for (; i + 32 <= end; i += 32) top = larger(top, amax32(in, v, i));
#endif
    for (; i < end; i++) top = larger(top, magnitude_at(in, v, i));
    return top;
}

MOII_INLINE void amax_blocks(moi_dtype in, const void *v, int64_t n, int64_t block, unsigned int *amax)
{
    for (int64_t b = 0, i = 0; i < n; b++, i += block) amax[b] = (unsigned int)amax_span(in, v, i, i + block < n ? i + block : n);
}

static void amax_rows(moi_dtype in, const void *v, int64_t n, int64_t block, unsigned int *amax)
{
    if (in == MOI_BF16) amax_blocks(MOI_BF16, v, n, block, amax);
    else amax_blocks(MOI_F32, v, n, block, amax);
}

MOII_INLINE void amax_cols_of(moi_dtype in, const void *v, int64_t ld, int64_t rows, int64_t cols, int *restrict amax)
{
    memset(amax, 0, (size_t)cols * sizeof *amax);
    for (int64_t r = 0; r < rows; r++) {
        int64_t c = 0;
#if defined(__AVX2__)
        for (; c + 32 <= cols; c += 32) amax_lanes32(in, v, r * ld + c, amax + c);
#endif
        for (; c < cols; c++) amax[c] = larger(amax[c], magnitude_at(in, v, r * ld + c));
    }
}

static void amax_cols(moi_dtype in, const void *v, int64_t ld, int64_t rows, int64_t cols, unsigned int *amax)
{
    if (in == MOI_BF16) amax_cols_of(MOI_BF16, v, ld, rows, cols, (int *)amax);
    else amax_cols_of(MOI_F32, v, ld, rows, cols, (int *)amax);
}

/* ---- scales ---- */

static void scale_blocks(moii_scale_rule rule, int rounding, const unsigned int *amax, int64_t n, unsigned char *restrict e,
                         float *restrict inverse)
{
    if (rule.emax == 0) { /* FP32 subnormals need more care there */
        for (int64_t i = 0; i < n; i++) {
            e[i] = (unsigned char)moii_e8m0_from_amax(moii_float_of(amax[i]), rule, rounding);
            inverse[i] = moii_e8m0_inverse(e[i]);
        }
        return;
    }
    int add = (int)moii_e8m0_carry(rule, rounding);
    for (int64_t i = 0; i < n; i++) { /* emax > 0 keeps the code under 254, so the inverse is a normal number */
        int code = (int)((amax[i] + (unsigned int)add) >> 23) - rule.emax;
        code = code > 0 ? code : 0;
        e[i] = (unsigned char)code;
        inverse[i] = moii_float_of((unsigned int)(254 - code) << 23);
    }
}

/* ---- encoding ---- */

/* Adding 1.5 * 2^17 rounds to multiples of 2^-6 and leaves them in the sum's low bits, in two's complement. */
MOII_INLINE unsigned char encode_int8(float x)
{
    x = x > 1.984375f ? 1.984375f : x;
    x = x < -1.984375f ? -1.984375f : x;
    return (unsigned char)moii_bits_of(x + 196608.0f);
}

MOII_INLINE unsigned char encode_one(const moii_codec *c, float x)
{
    if (c->is_int8) return encode_int8(x);
    unsigned int u = moii_bits_of(x);
    int m = (int)(u & 0x7FFFFFFFu);
    m = m < c->max_bits ? m : c->max_bits;
    int e = larger(m & 0x7F800000, c->min_exponent) + (c->shift << 23);
    int sum = (int)moii_bits_of(moii_float_of((unsigned int)m) + moii_float_of((unsigned int)e));
    int code = sum - e + (e >> c->shift) - c->offset;
    return (unsigned char)(code | ((int)u < 0 ? c->sign_bit : 0));
}

MOII_INLINE void encode_blocks(const moii_codec *c, moi_dtype in, const void *v, int64_t n, int64_t block, const float *inverse,
                               unsigned char *codes)
{
#if defined(__AVX2__)
    codec8 k = codec8_of(c);
#endif
    for (int64_t b = 0, i = 0; i < n; b++) {
        int64_t end = i + block < n ? i + block : n;
#if defined(__AVX2__)
        __m256 by = _mm256_set1_ps(inverse[b]);
        for (; i + 32 <= end; i += 32) encode_row32(&k, in, v, i, by, codes);
#endif
        for (; i < end; i++) codes[i] = encode_one(c, value_at(in, v, i) * inverse[b]);
    }
}

static void encode_rows(const moii_codec *c, moi_dtype in, const void *v, int64_t n, int64_t block, const float *inverse, unsigned char *codes)
{
    moii_codec k = *c; /* a local copy: no store can change it */
    if (in == MOI_BF16) encode_blocks(&k, MOI_BF16, v, n, block, inverse, codes);
    else encode_blocks(&k, MOI_F32, v, n, block, inverse, codes);
}

MOII_INLINE void encode_cols_of(const moii_codec *c, moi_dtype in, const void *v, int64_t ld, int64_t rows, int64_t cols,
                                const float *inverse, unsigned char *codes, int64_t codes_ld)
{
#if defined(__AVX2__)
    codec8 k = codec8_of(c);
#endif
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = 0;
#if defined(__AVX2__)
        for (; i + 32 <= cols; i += 32) encode_lanes32(&k, in, v, r * ld + i, inverse + i, codes + r * codes_ld + i);
#endif
        for (; i < cols; i++) codes[r * codes_ld + i] = encode_one(c, value_at(in, v, r * ld + i) * inverse[i]);
    }
}

static void encode_cols(const moii_codec *c, moi_dtype in, const void *v, int64_t ld, int64_t rows, int64_t cols, const float *inverse,
                        unsigned char *codes, int64_t codes_ld)
{
    moii_codec k = *c;
    if (in == MOI_BF16) encode_cols_of(&k, MOI_BF16, v, ld, rows, cols, inverse, codes, codes_ld);
    else encode_cols_of(&k, MOI_F32, v, ld, rows, cols, inverse, codes, codes_ld);
}

/* ---- bytes across: four rounds of interleaving rows i and i + 8 turn a 16 x 16 square ---- */

typedef unsigned char bytes16 __attribute__((vector_size(16)));
#define MOII_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define MOII_HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

MOII_INLINE void interleave16(const bytes16 *from, bytes16 *to)
{
    for (int i = 0; i < 8; i++) {
        to[2 * i] = MOII_LOW(from[i], from[i + 8]);
        to[2 * i + 1] = MOII_HIGH(from[i], from[i + 8]);
    }
}

static void transpose16(const unsigned char *from, int64_t from_ld, unsigned char *to, int64_t to_ld)
{
    bytes16 a[16], b[16];
    for (int i = 0; i < 16; i++) memcpy(&a[i], from + i * from_ld, 16);
    interleave16(a, b);
    interleave16(b, a);
    interleave16(a, b);
    interleave16(b, a);
    for (int i = 0; i < 16; i++) memcpy(to + i * to_ld, &a[i], 16);
}

static void transpose(const unsigned char *from, int64_t from_ld, int64_t rows, int64_t cols, unsigned char *to, int64_t to_ld)
{
    int64_t full_rows = rows / 16 * 16, full_cols = cols / 16 * 16;
    for (int64_t c = 0; c < full_cols; c += 16)
        for (int64_t r = 0; r < full_rows; r += 16) transpose16(from + r * from_ld + c, from_ld, to + c * to_ld + r, to_ld);
    for (int64_t c = 0; c < cols; c++)
        for (int64_t r = c < full_cols ? full_rows : 0; r < rows; r++) to[c * to_ld + r] = from[r * from_ld + c];
}

/* ---- plain values ---- */

static void widen(moi_dtype in, const void *v, int64_t n, float *out)
{
    int64_t i = 0;
    if (in == MOI_F16) {
        const uint16_t *h = v;
#if defined(__F16C__)
        for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(h + i))));
#endif
        for (; i < n; i++) out[i] = moii_f16_decode(h[i]);
    } else if (in == MOI_BF16) {
        for (; i < n; i++) out[i] = value_at(MOI_BF16, v, i);
    } else {
        memcpy(out, v, (size_t)n * sizeof *out);
    }
}

static void narrow(const float *v, int64_t n, uint16_t *restrict out)
{
    for (int64_t i = 0; i < n; i++) out[i] = (uint16_t)moii_bf16_encode(v[i]);
}

static const moii_quant_loops moii_quant_loops_here = { amax_rows, encode_rows, scale_blocks, amax_cols, encode_cols, transpose, widen, narrow };

#endif
