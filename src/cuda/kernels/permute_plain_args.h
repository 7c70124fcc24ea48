/* SPDX-License-Identifier: Apache-2.0
 * permute_plain_args.h: a permutation, as the launcher fills it and the kernel reads it. */
#ifndef MOII_PERMUTE_PLAIN_ARGS_H
#define MOII_PERMUTE_PLAIN_ARGS_H

/* One launch does one of these. */
enum { PERMUTE_COUNT = 0, PERMUTE_PLACE = 1, PERMUTE_COPY = 2 };

enum { PERMUTE_WARPS = 16 }; /* at most, of a block */

typedef struct permute_plain_args {
    const int *ids;
    const void *x;
    void *x_sorted;
    long long *offsets;
    int *row_of, *token_of;
    int *counts;              /* [chunks, experts]: slots of each expert; NULL: each block counts for itself */
    long long tokens, units;  /* units of a row of x */
    int slots, top_k, experts;
    int chunk, chunks;        /* slots that a block takes, a multiple of the block's threads */
    int step;
} permute_plain_args;

#endif
