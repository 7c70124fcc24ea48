/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_sm90_args.h: one pass of a small-batch MoE layer, as the launcher fills it and the kernel reads it. */
#ifndef MOII_MOE_DECODE_SM90_ARGS_H
#define MOII_MOE_DECODE_SM90_ARGS_H

/* What the weights are: WEIGHT of the kernel's defines. */
enum { WEIGHT_BF16 = 0, WEIGHT_MXFP8 = 1, WEIGHT_MXFP4 = 2, WEIGHT_BLK128 = 3, WEIGHT_SQUARE = 4 };
/* How scales arrive: in words of 4 bytes beside the weights, or byte by byte where rows of scales are no whole words. */
enum { SCALES_WORDS = 0, SCALES_BYTES = 1 };

/* A tile is 16 outputs of an expert (pass 1: 16 rows of gate, 16 of up) by 8 columns, tokens that share it; a stage is 2 KB of its rows. */
enum { DECODE_WARPS = 16, DECODE_THREADS = 512, DECODE_ROWS = 16, DECODE_COLUMNS = 8, DECODE_STAGE = 2048, DECODE_SPAN = 128, DECODE_MT_UP = 2 };
/* Warps that share a tile, each its part of k, by pass; in pass 1 twice as many from rows of so many bytes on. */
enum { DECODE_TEAM_UP = 4, DECODE_TEAM_DOWN = 2, DECODE_LONG_ROW = 4096,
       DECODE_RED_UP = 2 * DECODE_WARPS * 512 * DECODE_MT_UP, DECODE_RED_DOWN = DECODE_WARPS * 512 };

typedef struct moe_decode_sm90_args {
    const unsigned char *data, *scale; /* gate_up in pass 1, down in pass 2 */
    const void *in;                    /* BF16: x [tokens, k]; u [tokens * top_k, k] */
    void *out;                         /* u; y [tokens, hidden] */
    const int *ids;                    /* [tokens * top_k] */
    const float *weights;              /* pass 2 */
    const float *logits;               /* [tokens, experts]: ids follow from these; or NULL */
    int *ids_out;                      /* pass 1, from logits: [tokens * top_k] */
    float *weights_out;                /* the same; they are pass 2's weights */
    unsigned int expert_bytes, expert_scale_bytes; /* between experts */
    int tokens, top_k, experts;
    int k, row_bytes, scale_row;       /* values, bytes and bytes of scales of a row */
    int width, hidden;
    int out_f32;                       /* y is FP32, else BF16 */
    int renormalize;
    int tiles;                         /* of one expert; pass 1: width / 16, pass 2: hidden / 16 */
    int spans, stages;                 /* of 128 bytes, and stages, of a tile, for each warp of a team */
    unsigned int inverse_top_k;        /* i / top_k is i * this >> 16 */
    int scale_slots;                   /* tiles whose scales a warp holds in shared memory */
    unsigned int step_rows, second_half; /* bytes between the rows of two copies; from a tile's first 8 rows to its second */
    /* where things lie in shared memory */
    int at_ring, at_scales, at_red, at_ids, at_slot, at_count, at_order, at_expert, at_start, at_group, at_weights, at_dots;
} moe_decode_sm90_args;

#endif
