/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h: the scale of a block of values: the one place that knows the scale rules and what NaN and Inf do to a block.  Like
 * num.h it compiles under C11 and NVRTC, so that every row of every back end gives the same bits. */
#ifndef MOII_BLOCK_H
#define MOII_BLOCK_H

#include "num.h"

enum { MOII_INF_BITS = 0x7F800000, MOII_NAN_BITS = 0x7FC00000, MOII_FLT_MAX_BITS = 0x7F7FFFFF };

typedef struct moii_block {
    unsigned int scale; /* E8M0 code, or the bits of an FP32 scale */
    float inverse;      /* what values are multiplied by before rounding */
    int poisoned;       /* every code is the element's nan_code */
} moii_block;

/* What the scale of a block depends on beside its values. */
typedef struct moii_block_rule {
    moii_scale_rule element;
    float max;     /* the element's largest finite magnitude */
    int rounding;  /* a moi_round */
    int mx;        /* mx32 (E8M0), else blk128 (FP32) */
    int pow2;      /* blk128: MOI_SCALE_POW2 */
    int lenient;   /* MOI_NONFINITE_LENIENT */
} moii_block_rule;

/* Magnitudes are compared as integers, so that Inf and NaN sort above every finite value and survive the maximum.
 * Lenient blocks ignore NaN. */
MOII_FN unsigned int moii_block_amax(int lenient, unsigned int amax, float v)
{
    unsigned int u = moii_bits_of(v) & 0x7FFFFFFFu;
    if (u > MOII_INF_BITS && lenient) return amax;
    return u > amax ? u : amax;
}

/* mx32: a power of two by the rounding. */
MOII_FN unsigned int moii_block_mx32(moii_block_rule rule, unsigned int amax)
{
    return amax < MOII_INF_BITS ? moii_e8m0_from_amax(moii_float_of(amax), rule.element, rule.rounding) : 254u;
}

/* blk128: amax / max in FP32, or the next power of two above it. */
MOII_FN float moii_block_blk128(moii_block_rule rule, unsigned int amax)
{
    float s;
    if (amax >= MOII_INF_BITS) amax = MOII_FLT_MAX_BITS;
    if (amax == 0) return 1.0f;
    if (rule.pow2) {
        unsigned int e = moii_e8m0_from_amax(moii_float_of(amax), rule.element, 0);
        return moii_e8m0_decode(e ? e : 1);
    }
    s = moii_float_of(amax) / rule.max;
    return s < moii_float_of(0x00800000u) ? moii_float_of(0x00800000u) : s; /* 2^-126 */
}

/* `amax`: bits gathered by moii_block_amax.  The strict rule comes first; behind it only lenient blocks can be infinite. */
MOII_FN moii_block moii_block_make(moii_block_rule rule, unsigned int amax)
{
    moii_block b;
    b.poisoned = amax >= MOII_INF_BITS && !rule.lenient;
    b.inverse = 1.0f;
    if (b.poisoned) {
        b.scale = rule.mx ? 0xFFu : MOII_NAN_BITS;
    } else if (rule.mx) {
        b.scale = moii_block_mx32(rule, amax);
        b.inverse = moii_e8m0_inverse(b.scale);
    } else {
        float s = moii_block_blk128(rule, amax);
        b.scale = moii_bits_of(s);
        b.inverse = 1.0f / s;
    }
    return b;
}

#endif
