/* SPDX-License-Identifier: Apache-2.0
 * swiglu_body.h: SwiGLU of one row by silu.h: included by each isa_<name>.c, whose flags let the compiler vectorise it.  All
 * values are computed as if their gates were near; where some are not, those are done again. */
#ifndef MOII_SWIGLU_BODY_H
#define MOII_SWIGLU_BODY_H

#include <stdint.h>

#include "silu.h"

static int swiglu_all_near(const float *gate, int64_t n)
{
    unsigned int top = 0;
    for (int64_t i = 0; i < n; i++) {
        unsigned int u = moii_bits_of(gate[i]) & 0x7FFFFFFFu;
        top = u > top ? u : top;
    }
    return top <= MOII_SILU_NEAR_BITS;
}

static void swiglu(const float *restrict gate, const float *restrict up, float *restrict act, int64_t n)
{
    for (int64_t i = 0; i < n; i++) act[i] = moii_swiglu_near(gate[i], up[i]);
    if (swiglu_all_near(gate, n)) return;
    for (int64_t i = 0; i < n; i++) act[i] = moii_swiglu(gate[i], up[i]);
}

static void swiglu_backward(const float *restrict gate, const float *restrict up, const float *restrict d_act,
                            float *restrict d_gate, float *restrict d_up, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        moii_swiglu_grad d = moii_swiglu_grad_near(gate[i], up[i], d_act[i]);
        d_gate[i] = d.gate, d_up[i] = d.up;
    }
    if (swiglu_all_near(gate, n)) return;
    for (int64_t i = 0; i < n; i++) {
        moii_swiglu_grad d = moii_swiglu_backward(gate[i], up[i], d_act[i]);
        d_gate[i] = d.gate, d_up[i] = d.up;
    }
}

#endif
