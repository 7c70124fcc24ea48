/* SPDX-License-Identifier: Apache-2.0
 * widen_sm90_args.h: an mx32 operand to BF16, as the launcher fills it and widen_sm90.cu reads it. */
#ifndef MOII_WIDEN_SM90_ARGS_H
#define MOII_WIDEN_SM90_ARGS_H

#include "product_scales_args.h"
#include "row_list_args.h"

typedef struct widen_sm90_args {
    const unsigned char *codes;
    product_scales scales;
    const long long *counts;      /* of rows in each of so many groups, or NULL: all */
    unsigned int groups;
    row_list list;                /* of rows of `out`: of one group */
    unsigned int *out;            /* BF16, dense */
    long long ld;                 /* bytes between rows of codes */
    unsigned int group_rows;      /* rows of a group as it lies: their scales are one run */
    unsigned int pieces;          /* of 16 values in a row of `out` */
    unsigned int count;           /* of pieces in all rows */
    unsigned int counters;        /* to be cleared */
    int *counter;
} widen_sm90_args;

#endif
