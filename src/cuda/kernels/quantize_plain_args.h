/* SPDX-License-Identifier: Apache-2.0
 * quantize_plain_args.h: one direction of a quantisation, as the launcher fills it and the kernel reads it.  "The side" is the result as it is
 * stored: column-wise it is the transposed matrix. */
#ifndef MOII_QUANTIZE_PLAIN_ARGS_H
#define MOII_QUANTIZE_PLAIN_ARGS_H

#include "block.h"

typedef struct quantize_plain_args {
    const void *in;
    unsigned char *data;
    void *scale;              /* NULL: plain elements */
    const long long *offsets; /* groups + 1, where groups > 0 */
    long long batch, rows, cols, groups;
    long long in_ld, in_bytes;                 /* elements between rows in memory; bytes between matrices */
    long long data_stride, data_bytes;         /* bytes between rows, between matrices */
    long long scale_rows, blocks, scale_bytes; /* the scales' extent; bytes between matrices */
    long long unit_rows, cells; /* units of work: scale rows and blocks with the layout's padding */
    int in_type, transposed;
    int width, width_bits, height; /* of a block: width = 1 << width_bits; height is 1 or 128 */
    int layout, wide;  /* of the scales; wide: FP32, else one byte */
    unsigned int nan_code;
    moii_block_rule rule;
} quantize_plain_args;

#endif
