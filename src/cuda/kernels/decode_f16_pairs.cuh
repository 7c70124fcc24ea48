/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_pairs.cuh: pairs of a token and a slot, token * top_k + slot, for few tokens and many. */
#ifndef MOII_DECODE_F16_PAIRS_CUH
#define MOII_DECODE_F16_PAIRS_CUH

#include "moe_decode_f16_sm90_args.h"
#include "num.h"
#include "route_ids.cuh"

/* What pass 1 makes blank, until it is there: NaN, one FP32 or two FP16, of bits that are never written. */
#define BLANK_WORD 0xFFFFFFFFu
MOII_FN void write_word(void *to, unsigned int v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(to), "r"(v) : "memory"); }
MOII_FN unsigned int read_word(const void *from)
{
    unsigned int v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}

MOII_FN int token_of(const moe_decode_f16_sm90_args &a, int pair) { return (int)((unsigned int)pair * a.inverse_top_k >> 16); }

MOII_FN route_shape shape_of(const moe_decode_f16_sm90_args &a)
{
    const route_shape s = { a.experts, a.top_k, a.renormalize != 0 };
    return s;
}

#endif
