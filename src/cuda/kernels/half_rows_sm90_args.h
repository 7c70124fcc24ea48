/* SPDX-License-Identifier: Apache-2.0
 * half_rows_sm90_args.h: rows of BF16 or of mx32 codes to FP16, as the launcher fills it and half_rows_sm90.cu reads it. */
#ifndef MOII_HALF_ROWS_SM90_ARGS_H
#define MOII_HALF_ROWS_SM90_ARGS_H

#include "product_scales_args.h"
#include "row_list_args.h"

#define HALF_ROWS_THREADS 128

typedef struct half_rows_sm90_args {
    const char *from;
    void *to;                /* FP16, dense */
    float *factor;           /* of each row */
    long long pitch;         /* bytes between rows of `from` */
    product_scales scales;   /* of codes */
    const long long *counts; /* of rows in each group of so many, or NULL: all */
    int group_rows;
    row_list list;
    int rows;                /* at most, of all groups */
    int pieces;              /* of 16 values in a row */
    int written;             /* of 16 values in a row of `to`: as many, or more */
} half_rows_sm90_args;

#endif
