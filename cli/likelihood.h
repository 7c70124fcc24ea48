/* SPDX-License-Identifier: Apache-2.0
 * likelihood.h: what rows of logits say of the tokens that came, in double. */
#ifndef LIKELIHOOD_H
#define LIKELIHOOD_H

#include <stdint.h>

typedef struct likelihood {
    double nats;  /* -log p(target) */
    double log_z; /* log of the sum of exp(logit) */
    int32_t best; /* the likeliest token, the lowest of equals */
} likelihood;

/* One result for each row of logits [rows, vocab].  Where a logit is NaN or +Inf, nats is NaN. */
void likelihood_rows(int threads, const float *logits, const int32_t *targets, int64_t rows, int64_t vocab, likelihood *out);
/* KL(A || B) of each row in nats, with the results of likelihood_rows for both. */
void likelihood_kl(int threads, const float *a, const float *b, const likelihood *of_a, const likelihood *of_b, int64_t rows, int64_t vocab, double *out);

#endif
