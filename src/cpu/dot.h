/* SPDX-License-Identifier: Apache-2.0
 * dot.h: dot products of quantised rows with an FP32 vector, converted on the fly: the inner loop of decoding.
 *
 * Four rows at a time share the loads of x.  Blocks of 32 weights are summed unscaled, then multiplied by the block's scale;
 * a row's sums are taken in the same order whatever its neighbours are.  A kernel may want x in another order within each
 * 32 and multiplied by a power of two (what saves instructions differs from machine to machine).  A sum that is not finite,
 * because a weight, a scale or x is not or because FP32 was left on the way, means: compute this row strictly instead. */
#ifndef MOII_DOT_H
#define MOII_DOT_H

#include "moiety.h"

enum { MOII_DOT_ROWS = 4, MOII_DOT_BLOCK = 32 };
/* A weight may reach 2^128, which counts as infinite, only if its scale is 2^112 or more (57344 * 2^112 < 2^128); such scales
 * are passed as Inf, so that the row is computed strictly. */
enum { MOII_DOT_SCALE_LIMIT = 112 };

typedef struct moii_dot {
    const unsigned char *w[MOII_DOT_ROWS];
    const float *scale;   /* of row r, block b: scale[r * scale_stride + b]; not read for plain formats */
    int64_t scale_stride;
    const float *x;       /* cols rounded up to 32, zeros behind cols, placed and multiplied as the kernel wants */
    int64_t cols, row_bytes;
    int64_t ahead;        /* what will be needed soon lies so many bytes behind each row */
} moii_dot;

typedef struct moii_dot_kernel {
    void (*run)(const moii_dot *dot, float out[MOII_DOT_ROWS]);
    float x_factor;
    unsigned char place[MOII_DOT_BLOCK]; /* element i of a block of x stands at place[i] */
} moii_dot_kernel;

#endif
