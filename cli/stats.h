/* SPDX-License-Identifier: Apache-2.0
 * stats.h: what `moiety inspect` counts in a tensor. */
#ifndef STATS_H
#define STATS_H

#include "moiety_lm.h"

typedef struct stats {
    int64_t count, nans, infs, zeros;
    double min, max;      /* of finite values; min > max where there is none */
    double sum_squares;   /* of finite values */
} stats;
#define STATS_INIT { .min = 1, .max = -1 }

void stats_add(stats *s, const float *x, int64_t n);
/* Mean square of the finite values, 0 where there is none. */
double stats_mean_square(const stats *s);
/* `n` elements of a float type as FP32; `src` is aligned to nothing. */
void stats_decode(moi_dtype dtype, const void *src, int64_t n, float *to);

/* A pass over one tensor of an open file, in pieces, giving back its pages as it goes.  false: no memory. */
bool stats_of_tensor(const moi_st *file, const moi_tensor *t, stats *s);

/* A weight as moi_checkpoint_quantize stores it: finds the two tensors that belong to `codes`, if it is the first of such a
 * pair and their shapes fit. */
typedef struct stats_weight {
    moi_file_format format;
    moi_tensor codes, scales;
    char name[256]; /* of the weight */
} stats_weight;
bool stats_find_weight(const moi_st *file, moi_file_format format, const moi_tensor *codes, stats_weight *w);

/* The numbers the weight stands for. */
moi_status stats_of_weight(moi_ctx *ctx, const moi_st *file, const stats_weight *w, stats *s);

/* How a weight of F32, F16 or BF16 would suffer. */
typedef struct stats_loss {
    double error;       /* sqrt(sum (v - q)^2 / sum v^2) over finite v with finite q */
    int64_t lost;       /* finite v that share a block with NaN or Inf and become NaN */
} stats_loss;
moi_status stats_of_loss(moi_ctx *ctx, const moi_st *file, moi_file_format format, const moi_tensor *t, stats_loss *loss);

#endif
