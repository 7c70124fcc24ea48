/* SPDX-License-Identifier: Apache-2.0
 * quantize_rows_sm90_args.h: a row-wise quantisation with one scale for a whole row, as the launcher fills it and the kernel reads it. */
#ifndef MOII_QUANTIZE_ROWS_SM90_ARGS_H
#define MOII_QUANTIZE_ROWS_SM90_ARGS_H

#include "tile8_args.h"

/* What a block has: threads at most, where each holds so many packets of eight values of a row, and rows at one time. */
enum { QUANTIZE_ROWS_SM90_MANY_PACKETS = 8, QUANTIZE_ROWS_SM90_FEW_PACKETS = 4 };
#define QUANTIZE_ROWS_SM90_THREADS(packets) ((packets) == QUANTIZE_ROWS_SM90_FEW_PACKETS ? 256 : 512)
#define QUANTIZE_ROWS_SM90_ROWS(packets) ((packets) == QUANTIZE_ROWS_SM90_FEW_PACKETS ? 2 : 1)

typedef struct quantize_rows_sm90_args {
    const void *in;
    long long rows, cols;
    long long in_ld, in_bytes; /* elements between rows, bytes between matrices */
    int vectors;               /* rows of `in` begin at multiples of 16 bytes */
    int once;                  /* scales in the tiled layout: only a row's first four */
    tile8_side row;
} quantize_rows_sm90_args;

#endif
