/* SPDX-License-Identifier: Apache-2.0
 * activate_pairs.cuh: SwiGLU of a lane's PAIRS pairs of gate and as many of up, in BF16. */
#ifndef MOII_ACTIVATE_PAIRS_CUH
#define MOII_ACTIVATE_PAIRS_CUH

#include "silu.h"

MOII_FN float low_value(unsigned int w) { return moii_float_of(w << 16); }
MOII_FN float high_value(unsigned int w) { return moii_float_of(w & 0xFFFF0000u); }

/* A pair at a time, whatever the gates.  Arrays move along: an index would put them into memory. */
MOII_FN void activate_slowly(unsigned int g[PAIRS], unsigned int u[PAIRS], unsigned int act[PAIRS])
{
#pragma unroll 1
    for (int c = 0; c < PAIRS; c++) {
        const float x = moii_swiglu(low_value(g[0]), low_value(u[0])), y = moii_swiglu(high_value(g[0]), high_value(u[0]));
#pragma unroll
        for (int j = 0; j + 1 < PAIRS; j++) g[j] = g[j + 1], u[j] = u[j + 1], act[j] = act[j + 1];
        act[PAIRS - 1] = bf16_pair(x, y);
    }
}

MOII_FN void activate_pairs(unsigned int g[PAIRS], unsigned int u[PAIRS], unsigned int act[PAIRS])
{
    unsigned int top = 0;
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        top = larger_pair(top, g[j] & 0x7FFF7FFFu);
        act[j] = bf16_pair(moii_swiglu_near(low_value(g[j]), low_value(u[j])), moii_swiglu_near(high_value(g[j]), high_value(u[j])));
    }
    if (max(top & 0xFFFFu, top >> 16) > MOII_SILU_NEAR_BITS >> 16) activate_slowly(g, u, act);
}

#endif
