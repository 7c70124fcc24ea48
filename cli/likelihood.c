/* SPDX-License-Identifier: Apache-2.0
 * likelihood.c: what rows of logits say of the tokens that came, in double.  Rows are shared out to threads; each row is
 * summed by one of them in order, so that the result does not depend on their number. */
#include "likelihood.h"

#include <math.h>

static likelihood one(const float *z, int32_t target, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (z[i] > z[best] || (isnan(z[best]) && !isnan(z[i]))) best = i;
    const double top = (double)z[best];
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++) sum += exp((double)z[i] - top);
    const double log_z = top + log(sum);
    return (likelihood){ log_z - (double)z[target], log_z, (int32_t)best };
}

void likelihood_rows(int threads, const float *logits, const int32_t *targets, int64_t rows, int64_t vocab, likelihood *out)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) out[r] = one(logits + r * vocab, targets[r], vocab);
}

void likelihood_kl(int threads, const float *a, const float *b, const likelihood *of_a, const likelihood *of_b, int64_t rows, int64_t vocab, double *out)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *x = a + r * vocab, *y = b + r * vocab;
        double sum = 0;
        for (int64_t i = 0; i < vocab; i++) {
            const double log_p = (double)x[i] - of_a[r].log_z, p = exp(log_p);
            if (p > 0) sum += p * (log_p - ((double)y[i] - of_b[r].log_z));
        }
        out[r] = sum < 0 ? 0 : sum; /* rounding */
    }
}
