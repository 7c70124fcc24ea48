/* SPDX-License-Identifier: Apache-2.0
 * widen_sm90_args.h: an mx32 operand to BF16, as the launcher fills it and widen_sm90.cu reads it. */
#ifndef MOII_WIDEN_SM90_ARGS_H
#define MOII_WIDEN_SM90_ARGS_H

typedef struct widen_sm90_args {
    const unsigned char *codes, *scales;
    unsigned int *out;            /* BF16, dense */
    long long ld, group_bytes;    /* bytes between rows of codes, and between groups of scales */
    unsigned int group_rows;      /* rows of a group: their scales are one run */
    unsigned int row_stride, block_stride, across; /* product_scales */
    unsigned int pieces;          /* of 16 values in a row */
    unsigned int count;           /* of pieces in all rows */
} widen_sm90_args;

#endif
