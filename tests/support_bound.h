/* SPDX-License-Identifier: Apache-2.0
 * support_bound.h: how far logits may be from the exact ones, computed for each of them.
 *
 * The model runs in float64 and beside each number carries the variance of the error that FP32 arithmetic in any order, and
 * inputs of linear layers rounded to BF16, bring into it: first-order propagation with independent rounding errors.  With
 * u = 2^-24 an operation adds (u y)^2, a sum of k products k u^2 sum (w x)^2 (its partial sums wander as a random walk does), a
 * rounding to BF16 (2^-9 x)^2: its largest error, which is sqrt(3) times its standard deviation. */
#ifndef MOIT_SUPPORT_BOUND_H
#define MOIT_SUPPORT_BOUND_H

#include "support_lm.h"

enum { MOIT_SIGMAS = 8, MOIT_SURE = 5 };

typedef struct moit_exact {
    double *logits, *sigma; /* [batch * seq, vocab] */
    bool *sure;             /* [batch * seq]: no choice of experts that led to this row can tip over */
} moit_exact;

/* Rows of seq + 1 tokens; lm has masters.  half: BF16 at linear layers. */
moit_exact moit_exact_logits(const moi_lm *lm, const int32_t *tokens, int64_t batch, int64_t seq, bool half);
void moit_exact_free(moit_exact *exact);
/* The largest |got - logits| / sigma over rows that are sure; their number in *rows. */
double moit_exact_worst(const moit_exact *exact, const float *got, int64_t first, int64_t count, int64_t vocab, int64_t *rows);

#endif
