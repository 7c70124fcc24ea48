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

/* Two products, each rounded to nearest, subnormal ones too. */
MOII_FN unsigned int f16_times(unsigned int a, unsigned int b)
{
    unsigned int d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

#endif
