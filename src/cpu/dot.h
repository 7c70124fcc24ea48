/* SPDX-License-Identifier: Apache-2.0
 * dot.h: the dot product of a quantised row with an FP32 vector, converted on the fly: the inner loop of decoding.
 *
 * One row at a time, four blocks of 32 weights in flight: one stream that runs ahead of itself is what memory serves best.
 * A block is summed unscaled, then multiplied by its scale; the order of the sums depends on the length alone.  A kernel wants
 * x prepared in a form of its own, made once for many rows.  A sum that is not finite, because a weight, a scale or x is not
 * or because FP32 was left on the way, means: compute this row strictly instead. */
#ifndef MOII_DOT_H
#define MOII_DOT_H

#include "moiety.h"

enum { MOII_DOT_BLOCK = 32, MOII_DOT_PAIR = 2 * MOII_DOT_BLOCK };
enum { MOII_DOT_AHEAD = 4096 }; /* bytes from what is read to what is asked for */
/* A weight may reach 2^128, which counts as infinite, only if its scale is 2^112 or more (57344 * 2^112 < 2^128); such scales
 * are passed as Inf, so that the row is computed strictly. */
enum { MOII_DOT_SCALE_LIMIT = 112 };

typedef struct moii_dot {
    const unsigned char *w;
    const float *scale; /* of each block; not read for plain formats */
    const void *x;      /* placed */
    int64_t cols, row_bytes;
} moii_dot;

typedef struct moii_dot_kernel moii_dot_kernel;
struct moii_dot_kernel {
    float (*run)(const moii_dot *dot);
    /* x [cols] -> placed, which has moii_dot_placed_bytes(kernel, cols), aligned to 128 */
    void (*place)(const moii_dot_kernel *kernel, const float *x, int64_t cols, void *placed);
    float x_factor;                      /* a power of two by which x is multiplied */
    unsigned char order[MOII_DOT_BLOCK]; /* element i of a block of x stands at order[i] */
    int64_t head_bytes, pair_bytes;      /* of the placed form: before all, and per 64 elements */
};

static inline int64_t moii_dot_placed_bytes(const moii_dot_kernel *kernel, int64_t cols)
{
    return kernel->head_bytes + (cols + MOII_DOT_PAIR - 1) / MOII_DOT_PAIR * kernel->pair_bytes;
}

#endif
