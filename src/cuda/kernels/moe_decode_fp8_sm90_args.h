/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_fp8_sm90_args.h: one pass of a small-batch MoE layer on FP8 tensor cores, as the launcher fills it and the kernel reads it. */
#ifndef MOII_MOE_DECODE_FP8_SM90_ARGS_H
#define MOII_MOE_DECODE_FP8_SM90_ARGS_H

#include "product_sm90_args.h"

/* Warps: warpgroups that multiply, by pass; those that split columns; one that sends for weights. */
enum { FP8_GROUPS_UP = 4, FP8_GROUPS_DOWN = 2, FP8_SPLITTERS = 3, FP8_OTHERS = 32 * FP8_SPLITTERS + 32 };
/* Registers of a thread, so that for few tokens blocks of both passes share a multiprocessor: 640 * 56 + 384 * 72 <= 2^16. */
enum { FP8_REGISTERS_UP = 56, FP8_REGISTERS_DOWN = 72, FP8_REGISTERS_MANY = 96 };
/* Outputs of a tile in pass 1 (16 rows of gate, 16 of up, both halves of k beside each other) and in pass 2; rows of the tensor core's product. */
enum { FP8_TILE_UP = 16, FP8_TILE_DOWN = 64, FP8_ROWS = 64, FP8_SUM_ROWS = 68, FP8_MOST_PAIRS = 1024 };

typedef struct moe_decode_fp8_sm90_args {
    product_map map;                /* of the weights */
    const unsigned char *scale;
    const unsigned short *in;       /* BF16: x [tokens, k]; u [tokens * top_k, k] */
    void *out;                      /* u; y [tokens, hidden] */
    const int *ids;                 /* [tokens * top_k] */
    const float *weights;           /* the same; pass 2 */
    const float *logits;            /* [tokens, experts], or NULL: then ids */
    int *ids_out;                   /* pass 1, from logits: for the caller; weights_out for pass 2 too */
    float *weights_out;
    unsigned int expert_scale_bytes;
    int tokens, top_k, experts;
    int k, width, hidden;
    int scale_row;                  /* bytes of scales of a row */
    int renormalize;                /* from logits */
    int out_f32;                    /* y is FP32, else BF16 */
    int dense;                      /* pass 1: column j is token j whatever the expert; else the expert's tokens */
    int tiles;                      /* of an expert (pass 1), of an output (pass 2) */
    int stages;                     /* of an item (pass 1), of an expert and slice (pass 2) */
    int turns;                      /* of the ring for them: in pass 1 a multiple of FP8_GROUPS_UP, the last ones empty */
    int slices;                     /* pass 2: blocks that share a tile, each a part of k */
    unsigned int inverse_top_k;     /* i / top_k is i * this >> 16 */
    int ring, scale_slots;          /* stages of weights, items of scales that a block holds */
    int most_groups;
    /* where things lie in shared memory */
    int at_columns, at_scales, at_factors, at_sums, at_barriers, at_ids, at_weights, at_count, at_place, at_expert, at_column;
} moe_decode_fp8_sm90_args;

#endif
