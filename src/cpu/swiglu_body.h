/* SPDX-License-Identifier: Apache-2.0
 * swiglu_body.h: SwiGLU of one row, in float64 inside: included by each isa_<name>.c, whose flags let the compiler
 * vectorise it.  Float64 costs less here than it seems (the products around SwiGLU dominate) and needs no care for
 * underflow of exp(gate) times a large up, nor for the cancellation in 1 + gate (1 - s). */
#ifndef MOII_SWIGLU_BODY_H
#define MOII_SWIGLU_BODY_H

#include <math.h>
#include <stdint.h>

typedef union moii_bits64 { double f; uint64_t u; } moii_bits64;

/* exp(x) to about 1e-14 for |x| <= 708; infinite above 709, 2^-1021 below -708 (exp there vanishes beside 1); NaN for NaN.
 * x = n ln 2 + r: adding 1.5 * 2^52 leaves n in the low bits; a Taylor polynomial of degree 11 in |r| <= ln 2 / 2. */
static inline double moii_exp64(double x)
{
    const double magic = 0x1.8p52, log2e = 0x1.71547652b82fep0, ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    double t = x < -707.5 ? -707.5 : x;
    moii_bits64 n = { .f = t * log2e + magic }, scale;
    double k = n.f - magic, r = (t - k * ln2_high) - k * ln2_low, r2 = r * r;
    scale.u = (n.u + 1023u) << 52;
    double a = 1.0 + r, b = 1.0 / 2 + r * (1.0 / 6), c = 1.0 / 24 + r * (1.0 / 120), e = 1.0 / 720 + r * (1.0 / 5040);
    double g = 1.0 / 40320 + r * (1.0 / 362880), h = 1.0 / 3628800 + r * (1.0 / 39916800), r4 = r2 * r2;
    double p = (a + r2 * b) + r4 * ((c + r2 * e) + r4 * (g + r2 * h));
    double y = p * scale.f;
    return x > 709.0 ? (double)INFINITY : y;
}

static void swiglu(const float *gate, const float *up, float *act, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = (double)gate[i];
        act[i] = (float)(x / (1.0 + moii_exp64(-x)) * (double)up[i]);
    }
}

static void swiglu_backward(const float *restrict gate, const float *restrict up, const float *restrict d_act,
                            float *restrict d_gate, float *restrict d_up, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = (double)gate[i], d = (double)d_act[i], s = 1.0 / (1.0 + moii_exp64(-x));
        d_gate[i] = (float)(d * (double)up[i] * s * (1.0 + x * (1.0 - s)));
        d_up[i] = (float)(d * (x * s));
    }
}

#endif
