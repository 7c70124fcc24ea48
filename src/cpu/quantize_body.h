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
    int64_t whole = i + (end - i) / 32 * 32;
    if (i < whole) top = amax_of32s(in, v, i, whole);
    i = whole;
#endif
    for (; i < end; i++) top = larger(top, magnitude_at(in, v, i));
    return top;
}

#if defined(__AVX2__)
/* Blocks of 32 BF16 values, eight at a time where a row has so many left. */
static void amax_rows32_bf16(const moii_span *x, unsigned int *amax)
{
    int64_t whole = x->cols / 256 * 256;
    for (int64_t r = 0; r < x->rows; r++) {
        int64_t at = r * x->ld, i = 0;
        for (; i < whole; i += 256, amax += 8) amax_8blocks_bf16(x->v, at + i, amax);
        for (; i < x->cols; i += 32) *amax++ = (unsigned int)amax_span(MOI_BF16, x->v, at + i, at + (i + 32 < x->cols ? i + 32 : x->cols));
    }
}
#endif

MOII_INLINE void amax_blocks(moi_dtype in, const moii_span *x, int64_t block, unsigned int *amax)
{
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t i = r * x->ld, end = i + x->cols; i < end; i += block)
            *amax++ = (unsigned int)amax_span(in, x->v, i, i + block < end ? i + block : end);
}

static void amax_rows(const moii_span *x, int64_t block, unsigned int *amax)
{
    moii_span k = *x; /* local copies here and below: no store can change them */
    if (k.ld == k.cols && k.cols % block == 0) k = (moii_span){ k.in, k.v, 0, 1, k.rows * k.cols, k.ahead }; /* one long row */
#if defined(__AVX2__)
    if (k.in == MOI_BF16 && block == 32) {
        amax_rows32_bf16(&k, amax);
        return;
    }
#endif
    if (k.in == MOI_BF16) amax_blocks(MOI_BF16, &k, block, amax);
    else if (block == 32) amax_blocks(MOI_F32, &k, 32, amax);
    else amax_blocks(MOI_F32, &k, block, amax);
}

MOII_INLINE void amax_cols_of(moi_dtype in, const moii_span *x, int *restrict amax)
{
    memset(amax, 0, (size_t)x->cols * sizeof *amax);
    int64_t c = 0;
#if defined(__AVX2__)
    for (; c + 32 <= x->cols; c += 32) amax_lanes32(in, x->v, x->ld, x->rows, c, amax + c);
#endif
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t i = c; i < x->cols; i++) amax[i] = larger(amax[i], magnitude_at(in, x->v, r * x->ld + i));
}

static void amax_cols(const moii_span *x, unsigned int *amax)
{
    moii_span k = *x;
    if (k.in == MOI_BF16) amax_cols_of(MOI_BF16, &k, (int *)amax);
    else amax_cols_of(MOI_F32, &k, (int *)amax);
}

/* ---- scales ---- */

static bool outside(const unsigned int *amax, int64_t n, unsigned int tiny)
{
    unsigned int bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= (unsigned int)(amax[i] >= 0x7F800000u) | (unsigned int)(amax[i] - 1u < tiny);
    return bad;
}

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

static void scale_f32(float most, const unsigned int *amax, int64_t n, float *restrict scale, float *restrict inverse)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned int u = amax[i] < 0x7F800000u ? amax[i] : 0x7F7FFFFFu;
        float s = moii_float_of(u) / most;
        s = s < 0x1p-126f ? 0x1p-126f : s;
        s = u ? s : 1.0f;
        scale[i] = s;
        inverse[i] = 1.0f / s;
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

/* One prefetch per cache line of values. */
static inline void prefetch32(moi_dtype in, const moii_span *x, int64_t i)
{
    const char *p = (const char *)x->v + x->ahead + i * (in == MOI_BF16 ? 2 : 4);
    if (!x->ahead) return;
    __builtin_prefetch(p);
    if (in != MOI_BF16) __builtin_prefetch(p + 64);
}

/* Values i..end-1 of the row that begins at `at`, all of one block. */
MOII_INLINE void encode_tail(const moii_codec *c, moi_dtype in, const moii_span *x, int64_t at, int64_t i, int64_t end, float inverse,
                             unsigned char *codes)
{
    for (; i < end; i++) codes[i] = encode_one(c, value_at(in, x->v, at + i) * inverse);
}

#if defined(__AVX2__)
MOII_INLINE void encode_blocks(const moii_codec *c, moi_dtype in, const moii_span *x, int64_t block, const float *inverse,
                               unsigned char *codes, int64_t codes_ld, bool stream)
{
    codec8 k = codec8_of(c);
    int64_t whole = x->cols / 32 * 32;
    for (int64_t r = 0; r < x->rows; r++, codes += codes_ld) {
        int64_t at = r * x->ld;
        for (int64_t i = 0; i < whole; inverse++) {
            __m256 by = _mm256_set1_ps(*inverse);
            for (int64_t stop = i + block < whole ? i + block : whole; i < stop; i += 32) {
                prefetch32(in, x, at + i);
                encode_row32(&k, in, x->v, at + i, by, codes + i, stream);
            }
        }
        if (whole == x->cols) continue;
        if (whole % block) inverse--; /* the last block began before `whole` */
        encode_tail(c, in, x, at, whole, x->cols, *inverse++, codes);
    }
}

/* BF16 and powers of two.  (Apart from encode_blocks, so that neither loop's constants push the other's out of registers.) */
MOII_INLINE void encode_blocks_bf16(const codec16 *k, const moii_span *x, int64_t block, const uint16_t *take, unsigned char *codes,
                                    int64_t codes_ld, bool stream, bool prefetch)
{
    int64_t whole = x->cols / 32 * 32, blocks = x->cols / block + (x->cols % block != 0);
    for (int64_t r = 0; r < x->rows; r++, codes += codes_ld, take += blocks) {
        int64_t at = r * x->ld, i = 0;
        for (const uint16_t *t = take; i < whole; t++)
            for (int64_t stop = i + block < whole ? i + block : whole; i < stop; i += 32) {
                if (prefetch) __builtin_prefetch((const uint16_t *)x->v + x->ahead / 2 + at + i);
                encode_row32_bf16(k, x->v, at + i, *t, codes + i, stream);
            }
    }
}

static __attribute__((noinline)) void encode_rows_bf16(const moii_codec *c, const moii_span *span, int64_t block, const float *inverse,
                                                       unsigned char *codes, int64_t codes_ld, bool stream)
{
    enum { TAKES = 16384 / 32 + 128 };
    moii_span x = *span;
    codec16 k = codec16_of(c);
    uint16_t take[TAKES];
    int64_t blocks = x.cols / block + (x.cols % block != 0), whole = x.cols / 32 * 32;
    find_takes(&k, inverse, x.rows * blocks, take);
    if (block == 32 && stream && x.ahead) encode_blocks_bf16(&k, &x, 32, take, codes, codes_ld, true, true);
    else if (block == 32 && !x.ahead) encode_blocks_bf16(&k, &x, 32, take, codes, codes_ld, stream, false);
    else encode_blocks_bf16(&k, &x, block, take, codes, codes_ld, stream, x.ahead != 0);
    for (int64_t r = 0; whole < x.cols && r < x.rows; r++)
        encode_tail(c, MOI_BF16, &x, r * x.ld, whole, x.cols, inverse[(r + 1) * blocks - 1], codes + r * codes_ld);
}
#else
MOII_INLINE void encode_blocks(const moii_codec *c, moi_dtype in, const moii_span *x, int64_t block, const float *inverse,
                               unsigned char *codes, int64_t codes_ld, bool stream)
{
    (void)stream;
    for (int64_t r = 0; r < x->rows; r++, codes += codes_ld)
        for (int64_t i = 0; i < x->cols; i += block)
            encode_tail(c, in, x, r * x->ld, i, i + block < x->cols ? i + block : x->cols, *inverse++, codes);
}
#endif

static void encode_rows(const moii_codec *c, const moii_span *x, int64_t block, const float *inverse, unsigned char *codes, int64_t codes_ld,
                        bool stream)
{
    moii_codec k = *c;
    moii_span s = *x;
    if (((uintptr_t)codes | (uintptr_t)codes_ld) % 64 != 0) stream = false;
#if defined(__AVX2__)
    if (s.in == MOI_BF16 && k.pow2) {
        encode_rows_bf16(&k, &s, block, inverse, codes, codes_ld, stream);
        return;
    }
#endif
    if (s.in == MOI_BF16 && stream) encode_blocks(&k, MOI_BF16, &s, block, inverse, codes, codes_ld, true);
    else if (s.in == MOI_BF16) encode_blocks(&k, MOI_BF16, &s, block, inverse, codes, codes_ld, false);
    else if (stream) encode_blocks(&k, MOI_F32, &s, block, inverse, codes, codes_ld, true);
    else encode_blocks(&k, MOI_F32, &s, block, inverse, codes, codes_ld, false);
}

/* Columns `done` and up, one value at a time. */
MOII_INLINE void encode_last_cols(const moii_codec *c, moi_dtype in, const moii_span *x, int64_t done, const float *inverse,
                                  unsigned char *codes, int64_t codes_ld)
{
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t i = done; i < x->cols; i++) codes[r * codes_ld + i] = encode_one(c, value_at(in, x->v, r * x->ld + i) * inverse[i]);
}

MOII_INLINE void encode_cols_of(const moii_codec *c, moi_dtype in, const moii_span *x, const float *inverse, unsigned char *codes,
                                int64_t codes_ld)
{
    int64_t done = 0;
#if defined(__AVX2__)
    codec8 k = codec8_of(c);
    for (; done + 32 <= x->cols; done += 32)
        for (int64_t r = 0; r < x->rows; r++)
            encode_lanes32(&k, in, x->v, r * x->ld + done, inverse + done, codes + r * codes_ld + done);
#endif
    encode_last_cols(c, in, x, done, inverse, codes, codes_ld);
}

#if defined(__AVX2__)
static __attribute__((noinline)) void encode_cols_bf16(const moii_codec *c, const moii_span *span, const float *inverse, unsigned char *codes,
                                                       int64_t codes_ld)
{
    moii_span local = *span;
    const moii_span *x = &local;
    int64_t done = 0;
    codec16 k = codec16_of(c);
    for (; done + 32 <= x->cols; done += 32) {
        uint16_t take[32];
        find_takes(&k, inverse + done, 32, take);
        encode_lanes32_bf16(&k, x, done, take, codes + done, codes_ld);
    }
    encode_last_cols(c, MOI_BF16, x, done, inverse, codes, codes_ld);
}
#endif

static void encode_cols(const moii_codec *c, const moii_span *x, const float *inverse, unsigned char *codes, int64_t codes_ld)
{
    moii_codec k = *c;
    moii_span s = *x;
#if defined(__AVX2__)
    if (s.in == MOI_BF16 && k.pow2) {
        encode_cols_bf16(&k, &s, inverse, codes, codes_ld);
        return;
    }
#endif
    if (s.in == MOI_BF16) encode_cols_of(&k, MOI_BF16, &s, inverse, codes, codes_ld);
    else encode_cols_of(&k, MOI_F32, &s, inverse, codes, codes_ld);
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

static void copy_rows(const unsigned char *from, int64_t from_ld, int64_t rows, int64_t bytes, unsigned char *to, int64_t to_ld, bool stream)
{
    int64_t lines = 0;
#if defined(__AVX2__)
    if (stream && ((uintptr_t)to | (uintptr_t)to_ld) % 64 == 0) lines = bytes / 64 * 64;
#endif
    (void)stream;
    for (int64_t r = 0; r < rows; r++, from += from_ld, to += to_ld) {
#if defined(__AVX2__)
        if (lines == 0 && bytes % 32 == 0) { /* short rows: cheaper than calls */
            for (int64_t i = 0; i < bytes; i += 32) store32(to + i, _mm256_loadu_si256((const __m256i *)(const void *)(from + i)));
            continue;
        }
        stream_lines(to, from, lines);
#endif
        memcpy(to + lines, from + lines, (size_t)(bytes - lines));
    }
}

static void fence(void)
{
#if defined(__AVX2__)
    _mm_sfence();
#endif
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

static void narrow_odd(const float *v, int64_t n, uint16_t *restrict out)
{
    int64_t i = 0;
#if defined(__AVX2__)
    for (; i + 16 <= n; i += 16) narrow_odd16(v + i, out + i);
#endif
    for (; i < n; i++) {
        unsigned int u = moii_bits_of(v[i]);
        out[i] = (uint16_t)(u >> 16 | ((u & 0xFFFFu) != 0));
    }
}

static const moii_quant_loops moii_quant_loops_here = { amax_rows, encode_rows, outside, scale_blocks, scale_f32, amax_cols, encode_cols, transpose,
                                                     copy_rows, fence, widen, narrow,
                                                     narrow_odd };

#endif
