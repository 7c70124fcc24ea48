/* SPDX-License-Identifier: Apache-2.0
 * quantize_sm90_args.h: a quantisation in one or both directions, as the launcher fills it and quantize_sm90.cu reads it. */
#ifndef MOII_QUANTIZE_SM90_ARGS_H
#define MOII_QUANTIZE_SM90_ARGS_H

#include "block.h"

/* What a side's blocks are: the defines ROW_KIND and COL_KIND. */
#define TILE_NONE 0
#define TILE_MX32 1
#define TILE_BLK128 2
#define TILE_SQUARE 3

/* One direction's result as it is stored: column-wise it is the transposed matrix. */
typedef struct quantize_sm90_side {
    unsigned char *data;
    void *scale;
    long long stride, data_bytes;              /* between rows, between matrices */
    long long scale_rows, blocks, scale_bytes; /* the scales' extent; bytes between matrices */
    int layout;
    unsigned int carry; /* mx32: moii_e8m0_carry */
    moii_block_rule rule;
} quantize_sm90_side;

typedef struct quantize_sm90_args {
    const void *in;
    const long long *offsets; /* groups + 1, where groups > 0 */
    long long batch, rows, cols, groups, strips;
    long long in_ld, in_bytes; /* elements between rows, bytes between matrices */
    int vectors;               /* rows of `in` begin at multiples of 16 bytes */
    quantize_sm90_side row, col;
} quantize_sm90_args;

#endif
