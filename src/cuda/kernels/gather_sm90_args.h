/* SPDX-License-Identifier: Apache-2.0
 * gather_sm90_args.h: rows brought into order, as the launcher fills it and gather_sm90.cu reads it. */
#ifndef MOII_GATHER_SM90_ARGS_H
#define MOII_GATHER_SM90_ARGS_H

#include "product_scales_args.h"
#include "row_list_args.h"

#define GATHER_THREADS 256
#define GATHER_BLOCKS 6   /* on a multiprocessor */
#define GATHER_PIECES 128 /* of a row, that a warp copies at once */
#define GATHER_ROWS 8     /* whose scales a warp copies at once */

typedef struct gather_sm90_args {
    const char *from;
    char *to;                /* dense */
    long long pitch;         /* bytes between rows of `from` */
    row_list list;
    int rows;                /* at most */
    int pieces;              /* of 16 bytes in a row */
    product_scales scales;
    product_scales in_order; /* p: written */
    int blocks, block_step;  /* of a row's scales, of which each block_step-th is wanted */
} gather_sm90_args;

#endif
