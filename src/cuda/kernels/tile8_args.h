/* SPDX-License-Identifier: Apache-2.0
 * tile8_args.h: where tile8.cuh puts the codes and scales of one direction, and how groups cut the rows. */
#ifndef MOII_TILE8_ARGS_H
#define MOII_TILE8_ARGS_H

#include "block.h"

/* What a side's blocks are: the defines ROW_KIND and COL_KIND. */
#define TILE_NONE 0
#define TILE_MX32 1
#define TILE_BLK128 2
#define TILE_SQUARE 3

/* One direction's result as it is stored: column-wise it is the transposed matrix. */
typedef struct tile8_side {
    unsigned char *data;
    void *scale;
    long long stride, data_bytes;              /* between rows, between matrices */
    long long scale_rows, blocks, scale_bytes; /* the scales' extent; bytes between matrices */
    int layout;
    unsigned int carry; /* mx32: moii_e8m0_carry */
    unsigned int carry2, emax2; /* mx32: the upper half of carry, and the element's largest exponent, twice */
    unsigned int minus_zero;      /* mx32: -0 of BF16 above, 0 below */
    moii_block_rule rule;
} tile8_side;

enum { TILE8_SLOT_BYTES = 16 * 256 }; /* of dynamic shared memory */

typedef struct tile8_cut {
    const long long *offsets; /* groups + 1, where groups > 0 */
    long long rows, groups;
} tile8_cut;

#endif
