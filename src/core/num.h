/* SPDX-License-Identifier: Apache-2.0
 *
 * num.h: encode and decode every number format, in plain C that a C11 compiler and NVRTC both take.
 *
 * No headers are included here.  Everything works on bits, so the results depend on no rounding mode and no compiler flag
 * but one: FP32 subnormals must not be flushed.  The tests run these functions over all codes and all BF16 values.
 */
#ifndef MOII_NUM_H
#define MOII_NUM_H

#ifdef __CUDACC_RTC__
#define MOII_FN static __device__ __forceinline__
#else
#define MOII_FN static inline
#endif

typedef union moii_bits { float f; unsigned int u; } moii_bits;

MOII_FN unsigned int moii_bits_of(float x) { moii_bits b; b.f = x; return b.u; }
MOII_FN float moii_float_of(unsigned int u) { moii_bits b; b.u = u; return b.f; }
MOII_FN int moii_is_nan(float x) { return (moii_bits_of(x) & 0x7FFFFFFFu) > 0x7F800000u; }
MOII_FN int moii_is_finite(float x) { return (moii_bits_of(x) & 0x7F800000u) != 0x7F800000u; }

/* ---- 16 bits ---- */

MOII_FN float moii_bf16_decode(unsigned int code) { return moii_float_of(code << 16); }

MOII_FN unsigned int moii_bf16_encode(float x) /* ties to even; NaN stays NaN and becomes quiet */
{
    unsigned int u = moii_bits_of(x);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (u >> 16) | 0x40u;
    return (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
}

/* ---- small floats: 1 sign, EB exponent, MB mantissa bits ---- */

/* The value of the magnitude bits `code` of a float with that many exponent and mantissa bits and that bias. */
MOII_FN float moii_small_decode(unsigned int code, int mantissa_bits, int bias)
{
    unsigned int mantissa = code & ((1u << mantissa_bits) - 1u);
    int exponent = (int)(code >> mantissa_bits);
    if (exponent == 0) /* mantissa * 2^(1 - bias - MB), exact */
        return (float)mantissa * moii_float_of((unsigned int)(127 + 1 - bias - mantissa_bits) << 23);
    return moii_float_of(((unsigned int)(exponent - bias + 127) << 23) | (mantissa << (23 - mantissa_bits)));
}

/* Magnitude bits of |x| rounded to nearest, ties to even, not above `max_code`; |x| must not be NaN.  Works for
 * subnormal results: the mantissa, with its hidden bit, is shifted right by what the exponent lacks. */
MOII_FN unsigned int moii_small_encode(float x, int mantissa_bits, int bias, unsigned int max_code)
{
    unsigned int u = moii_bits_of(x) & 0x7FFFFFFFu;
    int exponent = (int)(u >> 23) - 127 + bias; /* biased exponent in the target */
    unsigned int code;
    if (exponent >= 1) {
        int shift = 23 - mantissa_bits;
        unsigned int r = u - ((unsigned int)(127 - bias) << 23);
        r += (1u << (shift - 1)) - 1u + ((r >> shift) & 1u);
        code = r >> shift;
    } else {
        int shift = 23 - mantissa_bits + 1 - exponent;
        unsigned int m = (u & 0x7FFFFFu) | (u >= 0x800000u ? 0x800000u : 0u);
        if (u < 0x800000u || shift > 25) return 0;
        m += (1u << (shift - 1)) - 1u + ((m >> shift) & 1u);
        code = m >> shift;
    }
    return code < max_code ? code : max_code;
}

MOII_FN float moii_f16_decode(unsigned int code) /* NaN becomes quiet, as in the conversion instructions */
{
    unsigned int sign = (code & 0x8000u) << 16, magnitude = code & 0x7FFFu;
    if (magnitude > 0x7C00u) return moii_float_of(sign | 0x7FC00000u | ((magnitude & 0x3FFu) << 13));
    if (magnitude == 0x7C00u) return moii_float_of(sign | 0x7F800000u);
    return moii_float_of(sign | moii_bits_of(moii_small_decode(magnitude, 10, 15)));
}

MOII_FN unsigned int moii_f16_encode(float x) /* overflow gives infinity; NaN stays NaN and becomes quiet */
{
    unsigned int sign = (moii_bits_of(x) >> 16) & 0x8000u;
    if (moii_is_nan(x)) return sign | 0x7E00u | ((moii_bits_of(x) >> 13) & 0x3FFu);
    return sign | moii_small_encode(x, 10, 15, 0x7C00u);
}

/* ---- MX elements: saturating; NaN is 0x7F for the 8-bit floats, +max for the others ---- */

MOII_FN unsigned int moii_e4m3_encode(float x)
{
    if (moii_is_nan(x)) return 0x7Fu;
    return ((moii_bits_of(x) >> 24) & 0x80u) | moii_small_encode(x, 3, 7, 0x7Eu);
}
MOII_FN float moii_e4m3_decode(unsigned int code)
{
    unsigned int sign = (code & 0x80u) << 24;
    if ((code & 0x7Fu) == 0x7Fu) return moii_float_of(sign | 0x7FC00000u);
    return moii_float_of(sign | moii_bits_of(moii_small_decode(code & 0x7Fu, 3, 7)));
}

MOII_FN unsigned int moii_e5m2_encode(float x)
{
    if (moii_is_nan(x)) return 0x7Fu;
    return ((moii_bits_of(x) >> 24) & 0x80u) | moii_small_encode(x, 2, 15, 0x7Bu);
}
MOII_FN float moii_e5m2_decode(unsigned int code)
{
    unsigned int sign = (code & 0x80u) << 24, magnitude = code & 0x7Fu;
    if (magnitude >= 0x7Cu) return moii_float_of(sign | 0x7F800000u | (magnitude > 0x7Cu ? 0x400000u : 0u));
    return moii_float_of(sign | moii_bits_of(moii_small_decode(magnitude, 2, 15)));
}

MOII_FN unsigned int moii_e3m2_encode(float x)
{
    if (moii_is_nan(x)) return 0x1Fu;
    return ((moii_bits_of(x) >> 26) & 0x20u) | moii_small_encode(x, 2, 3, 0x1Fu);
}
MOII_FN float moii_e3m2_decode(unsigned int code)
{
    return moii_float_of(((code & 0x20u) << 26) | moii_bits_of(moii_small_decode(code & 0x1Fu, 2, 3)));
}

MOII_FN unsigned int moii_e2m3_encode(float x)
{
    if (moii_is_nan(x)) return 0x1Fu;
    return ((moii_bits_of(x) >> 26) & 0x20u) | moii_small_encode(x, 3, 1, 0x1Fu);
}
MOII_FN float moii_e2m3_decode(unsigned int code)
{
    return moii_float_of(((code & 0x20u) << 26) | moii_bits_of(moii_small_decode(code & 0x1Fu, 3, 1)));
}

MOII_FN unsigned int moii_e2m1_encode(float x)
{
    if (moii_is_nan(x)) return 0x7u;
    return ((moii_bits_of(x) >> 28) & 0x8u) | moii_small_encode(x, 1, 1, 0x7u);
}
MOII_FN float moii_e2m1_decode(unsigned int code)
{
    return moii_float_of(((code & 0x8u) << 28) | moii_bits_of(moii_small_decode(code & 0x7u, 1, 1)));
}

MOII_FN unsigned int moii_int8_encode(float x) /* code = round-half-even(64 x), clamped to +-127 */
{
    unsigned int u = moii_bits_of(x) & 0x7FFFFFFFu, m;
    int exponent = (int)(u >> 23) - 127, shift = 17 - exponent; /* 64 |x| = 1.m * 2^(exponent + 6) */
    if (u > 0x7F800000u) return 0x7Fu;
    if (exponent >= 1) m = 127;
    else if (shift > 24) m = 0;
    else {
        m = (u & 0x7FFFFFu) | 0x800000u;
        m = (m + (1u << (shift - 1)) - 1u + ((m >> shift) & 1u)) >> shift;
        if (m > 127) m = 127;
    }
    return (moii_bits_of(x) >> 31 ? 0u - m : m) & 0xFFu;
}
MOII_FN float moii_int8_decode(unsigned int code)
{
    int v = (int)(code & 0xFFu);
    if (v >= 128) v -= 256;
    return (float)v * 0.015625f;
}

/* ---- E8M0 scales ---- */

MOII_FN float moii_e8m0_decode(unsigned int code)
{
    if (code == 0xFFu) return moii_float_of(0x7FC00000u);
    return moii_float_of(code == 0 ? 0x00400000u : code << 23);
}
/* 2^(127 - code): what a value is multiplied by before it is rounded to an element; code is 0..254. */
MOII_FN float moii_e8m0_inverse(unsigned int code) { return moii_e8m0_decode(254u - code); }

/* What a scale rule needs to know of an element: the exponent and the mantissa bits of its largest normal. */
typedef struct moii_scale_rule {
    int emax;
    unsigned int max_mantissa; /* 23 bits */
    int mantissa_bits;
} moii_scale_rule;

/* What is added to the bits of the largest magnitude so that a round-up carries into the exponent. */
MOII_FN unsigned int moii_e8m0_carry(moii_scale_rule rule, int rounding)
{
    if (rounding == 0) return 0x7FFFFFu - rule.max_mantissa;
    if (rounding == 2) return 0x7FFFFFu;
    if (rounding == 3) return 1u << (22 - rule.mantissa_bits);
    return 0;
}

/* E8M0 code for a block whose largest magnitude is the finite `amax` >= 0; rounding is a moi_round (0 ratio-ceil,
 * 1 floor, 2 ceil, 3 even).  Integer forms of the real-number rules, exact for every finite FP32; with amax = 2^(f-127) m,
 * adding (2^23 - 1 - mantissa of L) carries into the exponent exactly when m exceeds the mantissa of L. */
MOII_FN unsigned int moii_e8m0_from_amax(float amax, moii_scale_rule rule, int rounding)
{
    unsigned int u = moii_bits_of(amax) & 0x7FFFFFFFu;
    int e;
    if (u < 0x800000u && rule.emax == 0) { /* FP32 subnormals reach the clamp exactly: 2^-127 is 0x400000 */
        unsigned int half = 0x400000u;
        if (rounding == 1) return 0;
        if (rounding == 0) half += rule.max_mantissa >> 1;
        if (rounding == 3) half = 0x800000u - (1u << (21 - rule.mantissa_bits));
        return rounding == 3 ? u >= half : u > half;
    }
    e = (int)((u + moii_e8m0_carry(rule, rounding)) >> 23) - rule.emax;
    return (unsigned int)(e < 0 ? 0 : e > 254 ? 254 : e);
}

#endif
