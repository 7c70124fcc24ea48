/* SPDX-License-Identifier: Apache-2.0
 * combine_plain_args.h: a combination or its gradient, as the launcher fills it and the kernel reads it. */
#ifndef MOII_COMBINE_PLAIN_ARGS_H
#define MOII_COMBINE_PLAIN_ARGS_H

typedef struct combine_plain_args {
    const int *row_of;    /* NULL: slots lie in order */
    const float *weights; /* NULL: all 1 */
    const void *y_sorted, *d_y;
    void *y, *d_y_sorted;
    float *d_weights;     /* NULL: not wanted */
    long long tokens, top_k, hidden;
} combine_plain_args;

#endif
