/* SPDX-License-Identifier: Apache-2.0
 * quantize_sm90_args.h: a quantisation in one or both directions, as the launcher fills it and quantize_sm90.cu reads it. */
#ifndef MOII_QUANTIZE_SM90_ARGS_H
#define MOII_QUANTIZE_SM90_ARGS_H

#include "tile8_args.h"

typedef struct quantize_sm90_args {
    const void *in;
    const long long *offsets; /* groups + 1, where groups > 0 */
    long long rows, cols, groups;
    unsigned int strips, across, across_magic, across_shift; /* of a matrix; tiles of a strip; i / across = i * magic >> 32 + shift, magic 0: i */
    int one_matrix;
    long long in_ld, in_bytes; /* elements between rows, bytes between matrices */
    int vectors;               /* rows of `in` begin at multiples of 16 bytes */
    tile8_side row, col;
} quantize_sm90_args;

#endif
