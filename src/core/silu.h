/* SPDX-License-Identifier: Apache-2.0
 *
 * silu.h: SwiGLU of one pair of values and its gradient, the same bits on every machine: FP32 operations in a fixed order, each
 * rounded once, fused only where moii_fma says so.  Like num.h it compiles under C11 and NVRTC.
 *
 *   exp(-x) = 2^k 2^f with k = round(-x log2 e); 2^f by a polynomial of degree 5, minimax on -0.5 .. 0.5 with p(0) = 1.  With
 *   u = 2^-24: the polynomial is within 1.6 u, its evaluation adds 1.2 u: exp within 2.8 u, the sigmoid within 4.8 u.
 *
 * Gates of magnitude up to 86 are `near`: neither exp(-x) nor the sigmoid leaves the normal numbers.  The others need care, and
 * are rare: whoever computes many gates checks them all for being near, and does the others again. */
#ifndef MOII_SILU_H
#define MOII_SILU_H

#include "num.h"

#ifdef __CUDACC_RTC__
MOII_FN float moii_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
/* 1 / d for 1 <= d < 2^126, rounded to nearest: what the machine's division does where nothing is subnormal. */
MOII_FN float moii_inverse(float d)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(d));
    return __fmaf_rn(y, __fmaf_rn(-d, y, 1.0f), y);
}
#else
MOII_FN float moii_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MOII_FN float moii_inverse(float d) { return 1.0f / d; }
#endif

/* Results that are NaN are 0x7FFFFFFF: the GPU's own.  MOII_MANY_NANS: device code that runs elsewhere. */
#if defined(__CUDACC_RTC__) && !defined(MOII_MANY_NANS)
MOII_FN float moii_one_nan(float x) { return x; }
#else
MOII_FN float moii_one_nan(float x) { return x == x ? x : moii_float_of(0x7FFFFFFFu); }
#endif

enum { MOII_SILU_NEAR_BITS = 0x42AC0000 }; /* 86.0f */
MOII_FN int moii_silu_near(float gate) { return (moii_bits_of(gate) & 0x7FFFFFFFu) <= MOII_SILU_NEAR_BITS; }

/* exp(-x) = 2^k times what is returned, which is 0.70 .. 1.42; *k has k in its low bits, above them a multiple of 2^9. */
MOII_FN float moii_exp_parts(float x, unsigned int *k)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, which then sits in the low bits */
    float t = moii_fma(x, -1.44269502162933349609f, magic), n = t - magic;
    float f = moii_fma(x, -1.92596299e-8f, moii_fma(x, -1.44269502162933349609f, -n));
    float p = moii_float_of(0x3AADECB8u);
    p = moii_fma(p, f, moii_float_of(0x3C1E745Bu));
    p = moii_fma(p, f, moii_float_of(0x3D635B6Du));
    p = moii_fma(p, f, moii_float_of(0x3E75FCE1u));
    p = moii_fma(p, f, moii_float_of(0x3F317215u));
    *k = moii_bits_of(t);
    return moii_fma(p, f, 1.0f);
}

/* exp(-x) of a near x. */
MOII_FN float moii_exp_minus(float x)
{
    unsigned int k;
    float p = moii_exp_parts(x, &k);
    return moii_float_of(moii_bits_of(p) + (k << 23));
}

/* factor * y * exp(gate) for gate < -86, where exp(gate) alone may vanish; |factor| <= 1 + |gate|. */
MOII_FN float moii_far_product(float factor, float gate, float y)
{
    unsigned int k;
    int n, half;
    float p;
    if (!(gate >= -300.0f)) return factor * 0.0f * y;
    p = moii_exp_parts(-gate, &k);
    n = (int)(k - 0x4B400000u) + 60;
    if (n < -252) n = -252; /* vanishes all the same */
    half = n / 2;
    p = (factor * p) * moii_float_of((unsigned int)(127 - 60) << 23) * y;
    return p * moii_float_of((unsigned int)(127 + half) << 23) * moii_float_of((unsigned int)(127 + n - half) << 23);
}

/* ---- forward: gate * sigmoid(gate) * up ---- */

MOII_FN float moii_swiglu_near(float gate, float up)
{
    return moii_one_nan(gate * (moii_inverse(1.0f + moii_exp_minus(gate)) * up));
}

MOII_FN float moii_swiglu_far(float gate, float up) /* NaN too */
{
    return moii_one_nan(gate < 0.0f ? moii_far_product(gate, gate, up) : gate * up);
}

MOII_FN float moii_swiglu(float gate, float up) { return moii_silu_near(gate) ? moii_swiglu_near(gate, up) : moii_swiglu_far(gate, up); }

/* ---- backward: d_gate = d_act up s (1 + gate (1 - s)), d_up = d_act gate s ---- */

typedef struct moii_swiglu_grad { float gate, up; } moii_swiglu_grad;

MOII_FN moii_swiglu_grad moii_swiglu_grad_near(float gate, float up, float d_act)
{
    moii_swiglu_grad d;
    float e = moii_exp_minus(gate), s = moii_inverse(1.0f + e), w = s * d_act;
    d.gate = moii_one_nan((w * up) * moii_fma(gate, e * s, 1.0f));
    d.up = moii_one_nan(gate * w);
    return d;
}

MOII_FN moii_swiglu_grad moii_swiglu_grad_far(float gate, float up, float d_act)
{
    moii_swiglu_grad d;
    if (gate < 0.0f) {
        d.gate = moii_one_nan(moii_far_product(1.0f + gate, gate, up) * d_act);
        d.up = moii_one_nan(moii_far_product(gate, gate, d_act));
    } else {
        d.gate = moii_one_nan((d_act * up) * moii_fma(gate, 0.0f, 1.0f)); /* NaN for an infinite gate */
        d.up = moii_one_nan(gate * d_act);
    }
    return d;
}

MOII_FN moii_swiglu_grad moii_swiglu_backward(float gate, float up, float d_act)
{
    return moii_silu_near(gate) ? moii_swiglu_grad_near(gate, up, d_act) : moii_swiglu_grad_far(gate, up, d_act);
}

#endif
