/* SPDX-License-Identifier: Apache-2.0
 * swiglu_sm90_args.h: SwiGLU with quantised results, as the launcher fills it and swiglu_sm90.cu reads it. */
#ifndef MOII_SWIGLU_SM90_ARGS_H
#define MOII_SWIGLU_SM90_ARGS_H

#include "stored_args.h"
#include "tile8_args.h"

/* Slots of 16 bytes that each thread has. */
#define SWIGLU_SM90_SLOTS(in_bf16, out_bf16) ((in_bf16) && (out_bf16) ? 16 : 0)

typedef struct swiglu_sm90_args {
    stored_matrix gate_up; /* [rows, 2 width] */
    const void *d_act;     /* backward: [rows, width] in the type of `plain` */
    void *plain;           /* [rows, width], backward [rows, 2 width]; NULL: not wanted */
    long long width;       /* a multiple of 128 */
    unsigned int stride;   /* gate_up.stride, or 0 where rows do not begin at multiples of 16 bytes (8-bit elements: of 8) */
    tile8_cut cut;
    unsigned int strips, apart, step; /* there are; from a block's first to that of the block below; from a block's first to its next */
    unsigned int first_parts, first_strips; /* swiglu_mx_sm90: blocks above one another that come first, and the strips that these make */
    tile8_side row, col;
} swiglu_sm90_args;

#endif
