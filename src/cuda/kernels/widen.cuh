/* SPDX-License-Identifier: Apache-2.0
 * widen.cuh: two codes of E4M3 (WIDEN_E5M2: 1, of E5M2) times a scale, as BF16.  Exact from 2^-126 to below 2^128, where BF16's exponents end: an
 * element has at most 4 significant bits. */
#ifndef MOII_WIDEN_CUH
#define MOII_WIDEN_CUH

#include "f16x2.cuh"
#include "num.h"

MOII_FN unsigned int widen_pair(unsigned int codes, float scale)
{
    unsigned int halves, out;
    float x, y;
#if WIDEN_E5M2
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)codes));
#else
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)codes));
#endif
    f16_values(halves, x, y);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(y * scale), "f"(x * scale));
    return out;
}

#endif
