/* SPDX-License-Identifier: Apache-2.0
 * unpack_sm90_args.h: E2M1 codes to E4M3, as the launcher fills it and unpack_sm90.cu reads it. */
#ifndef MOII_UNPACK_SM90_ARGS_H
#define MOII_UNPACK_SM90_ARGS_H

#define UNPACK_THREADS 256
#define UNPACK_BLOCKS 8 /* on a multiprocessor */

typedef struct unpack_sm90_args {
    const unsigned char *from;
    unsigned char *to;        /* dense */
    long long ld;             /* bytes between rows of `from` */
    const long long *offsets; /* of rows in each of the groups and behind them, or NULL: all are wanted */
    const long long *counts;  /* of rows in each of the groups, or NULL */
    int groups;               /* matrices */
    unsigned int rows;        /* of a matrix */
    unsigned int pieces;      /* of 16 codes in a row */
} unpack_sm90_args;

#endif
