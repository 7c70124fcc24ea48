/* SPDX-License-Identifier: Apache-2.0
 * quantize_mx_sm90_args.h: BF16 to blocks of 32 down columns, or both ways, as the launcher fills it and quantize_mx_sm90.cu reads it. */
#ifndef MOII_QUANTIZE_MX_SM90_ARGS_H
#define MOII_QUANTIZE_MX_SM90_ARGS_H

#include "tile8_args.h"

typedef struct quantize_mx_sm90_args {
    const void *in;
    tile8_cut cut;
    long long cols, in_ld; /* a multiple of 128; elements between rows */
    long long blocks;      /* of 32 rows, as columns' codes have them */
    unsigned int stripes;  /* tiles of a strip */
    int packets;           /* rows of `in` begin at multiples of 16 bytes */
    tile8_side row, col;
} quantize_mx_sm90_args;

#endif
