/* SPDX-License-Identifier: Apache-2.0
 * quantize_mx_sm90_args.h: BF16 to blocks of 32 down columns, or of 32 or 128 both ways, as the launcher fills it and quantize_mx_sm90.cu reads it. */
#ifndef MOII_QUANTIZE_MX_SM90_ARGS_H
#define MOII_QUANTIZE_MX_SM90_ARGS_H

#include "tile8_args.h"

/* Where the blocks of a cluster meet: when their reads are on the way, when a tile has come, before codes leave. */
#define MEET_FIRST 1
#define MEET_SECOND 2
#define MEET_STORES 4

typedef struct quantize_mx_sm90_args {
    const void *in;
    tile8_cut cut;
    long long in_bytes; /* between rows of `in` */
    long long blocks;   /* of 32 rows (or 128), as columns' codes have them */
    int packets;        /* rows of `in` begin at multiples of 16 bytes */
    int row_words;      /* rows of row-wise codes at multiples of 8 */
    int col_packets;    /* columns' codes at multiples of 16 */
    int meets;          /* with rows: MEET_... */
    unsigned int late;  /* strips of 256 rows from here on are read as what leaves the L2 cache first */
    tile8_side row, col;
} quantize_mx_sm90_args;

#endif
