/* SPDX-License-Identifier: Apache-2.0
 * f16x2.cuh: two FP16 values in a word. */
#ifndef MOII_F16X2_CUH
#define MOII_F16X2_CUH

#include "num.h"

/* Two values to FP16, the first in the lower half; NaN stays NaN. */
MOII_FN unsigned int f16_pair(float low, float high)
{
    unsigned int v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

/* The same of two values of BF16 times a number. */
MOII_FN unsigned int f16_of_bf16(unsigned int pair, float times)
{
    const float high = moii_float_of(pair & 0xFFFF0000u) * times, low = moii_float_of(pair << 16) * times;
    return f16_pair(low, high);
}

MOII_FN void f16_values(unsigned int pair, float &low, float &high)
{
    asm("{\n .reg .b16 l, h;\n mov.b32 {l, h}, %2;\n cvt.f32.f16 %0, l;\n cvt.f32.f16 %1, h;\n}" : "=f"(low), "=f"(high) : "r"(pair));
}

/* Two products, each rounded to nearest, subnormal ones too. */
MOII_FN unsigned int f16_times(unsigned int a, unsigned int b)
{
    unsigned int d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

#endif
