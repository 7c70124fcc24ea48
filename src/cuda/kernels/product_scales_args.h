/* SPDX-License-Identifier: Apache-2.0
 * product_scales_args.h: an operand's scales, as the launchers of products describe them to the device. */
#ifndef MOII_PRODUCT_SCALES_ARGS_H
#define MOII_PRODUCT_SCALES_ARGS_H

/* Where scales lie: S[row][block] of group g at p + g group_bytes, in elements row * row_stride + block * block_stride, or in 128 x 4
 * atoms, `across` of them beside each other. */
typedef struct product_scales {
    const void *p;
    long long group_bytes;
    unsigned int row_stride, block_stride;
    int across; /* 0: not in atoms */
    int words;  /* four blocks of a row, the first a multiple of 4, lie in one aligned word */
    int rows;   /* that are there */
} product_scales;

#endif
