/* SPDX-License-Identifier: Apache-2.0
 * four_f16.cuh: four codes of E4M3 (FOUR_E5M2: 1, of E5M2) as FP16, exactly, NaN and Inf too; the first in the lowest half. */
#ifndef MOII_FOUR_F16_CUH
#define MOII_FOUR_F16_CUH

#include "num.h"

MOII_FN uint2 four_f16(unsigned int w)
{
    uint2 d;
#if FOUR_E5M2
    asm("{\n .reg .b16 l, h;\n mov.b32 {l, h}, %2;\n cvt.rn.f16x2.e5m2x2 %0, l;\n cvt.rn.f16x2.e5m2x2 %1, h;\n}" : "=r"(d.x), "=r"(d.y) : "r"(w));
#else
    asm("{\n .reg .b16 l, h;\n mov.b32 {l, h}, %2;\n cvt.rn.f16x2.e4m3x2 %0, l;\n cvt.rn.f16x2.e4m3x2 %1, h;\n}" : "=r"(d.x), "=r"(d.y) : "r"(w));
#endif
    return d;
}

#endif
