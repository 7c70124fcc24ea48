/* SPDX-License-Identifier: Apache-2.0
 * stored_args.h: a matrix of any format as it lies in memory, for kernels that read it code by code. */
#ifndef MOII_STORED_ARGS_H
#define MOII_STORED_ARGS_H

typedef struct stored_matrix {
    const unsigned char *data;
    const void *scale;            /* NULL: plain elements */
    long long stride;             /* bytes between rows */
    long long scale_rows, blocks; /* the scales' extent */
    int elem;
    int block, height;            /* values of a row that share a scale; rows that do: 1 or 128 */
    int layout, wide;             /* of the scales; wide: FP32, else one byte */
} stored_matrix;

#endif
