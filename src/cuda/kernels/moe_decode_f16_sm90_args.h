/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_f16_sm90_args.h: one pass of a small-batch MoE layer with MXFP8 weights, as the launcher fills it and the kernel reads it. */
#ifndef MOII_MOE_DECODE_F16_SM90_ARGS_H
#define MOII_MOE_DECODE_F16_SM90_ARGS_H

#include "product_sm90_args.h"

/* Warps: that multiply, one that adds up what those have, one that sends for weights. */
enum { F16_CONSUMERS = 8, F16_WARPS = F16_CONSUMERS + 2, F16_THREADS = 32 * F16_WARPS };
/* Rows of an item (pass 1: 8 of gate, then 8 of up), bytes of a row in a line, bytes of an item's line and of a warp's sums. */
enum { F16_ROWS = 16, F16_LINE = 128, F16_LINE_BYTES = F16_ROWS * F16_LINE, F16_SUM_BYTES = 512, F16_MOST_PAIRS = 1024 };

typedef struct moe_decode_f16_sm90_args {
    product_map map;            /* of the weights */
    const unsigned char *scale;
    const unsigned short *x;    /* BF16 [tokens, hidden] */
    unsigned short *u;          /* FP16 [tokens * top_k, width], times a power of two for each 8 values: 2^(exponent - 141) */
    unsigned char *exponent;    /* [tokens * top_k, width / 8]: decode_f16_columns.cuh */
    void *out;                  /* y [tokens, hidden] */
    const int *ids;             /* [tokens * top_k] */
    const float *weights;       /* the same; pass 2 */
    const float *logits;        /* [tokens, experts], or NULL: then ids */
    int *ids_out;               /* pass 1, from logits: for the caller; weights_out for pass 2 too */
    float *weights_out;
    unsigned int expert_scale_bytes;
    int tokens, top_k, experts;
    int width, hidden;
    int renormalize;
    int out_f32;                /* y is FP32, else BF16 */
    int dense;                  /* column j of every expert is token j; else columns are gathered */
    int columns;                /* of x that are kept: 4 or 8 */
    int tiles;                  /* items of one expert */
    int lines, parts, slot_lines; /* of an item; slots of the ring for an item; lines of a slot */
    int ring, slot_bytes;
    int early;                  /* pass 1: pass 2 may start when all but so many slots have been sent for */
    int workers;                /* pass 2: warps that multiply, each a job of its own; the ring holds a multiple of as many jobs */
    int scale_row, scale_slots; /* bytes of scales of a row; items whose scales there is room for */
    unsigned int inverse_top_k; /* i / top_k is i * this >> 16 */
    int most_jobs;
    /* where things lie in shared memory; the ring at 0 */
    int at_scales, at_columns, at_sums, at_barriers, at_y, at_ids, at_weights, at_count, at_place, at_expert, at_column;
} moe_decode_f16_sm90_args;

#endif
