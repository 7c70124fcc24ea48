/* SPDX-License-Identifier: Apache-2.0
 * sample.c: a token from logits: temperature, top-k, top-p. */
#include <math.h>
#include <stdlib.h>

#include "moiety_lm.h"
#include "random.h"
#include "status.h"

typedef struct candidate { float logit; int32_t id; } candidate;

/* Larger logits first, the lower id where they are equal. */
static int by_logit(const void *a_, const void *b_)
{
    const candidate *a = a_, *b = b_;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static moi_status check(const float *logits, int64_t vocab, const moi_sampling *s, const int32_t *token)
{
    MOII_REQUIRE(logits && s && token, MOI_ERR_ARG, "moi_sample: %s is NULL", !logits ? "logits" : !s ? "sampling" : "token");
    MOII_REQUIRE(vocab > 0 && vocab <= INT32_MAX, MOI_ERR_SHAPE, "moi_sample: vocab must be 1..2^31-1, got %lld", (long long)vocab);
    MOII_REQUIRE(s->temperature >= 0 && isfinite(s->temperature), MOI_ERR_ARG, "moi_sample: temperature must be finite and >= 0, got %g",
                 (double)s->temperature);
    MOII_REQUIRE(s->top_k >= 0, MOI_ERR_ARG, "moi_sample: top_k must be >= 0, got %d", s->top_k);
    MOII_REQUIRE(s->top_p > 0 && s->top_p <= 1, MOI_ERR_ARG, "moi_sample: top_p must be in (0, 1], got %g", (double)s->top_p);
    return MOI_OK;
}

/* How many of the sorted candidates stay; p[i] becomes their unnormalised probabilities and *total their sum. */
static int64_t keep(const candidate *c, int64_t n, const moi_sampling *s, double *p, double *total)
{
    double all = 0;
    if (s->top_k > 0 && s->top_k < n) n = s->top_k;
    for (int64_t i = 0; i < n; i++) all += p[i] = exp(((double)c[i].logit - (double)c[0].logit) / (double)s->temperature);
    *total = 0;
    for (int64_t i = 0; i < n; i++) {
        *total += p[i];
        if (*total >= (double)s->top_p * all) return i + 1;
    }
    return n;
}

static int32_t draw(candidate *c, int64_t n, moi_sampling *s, double *p)
{
    double total;
    qsort(c, (size_t)n, sizeof *c, by_logit);
    n = keep(c, n, s, p, &total);
    double u = moii_unit(moii_mix(s->state)) * total;
    s->state += 0x9E3779B97F4A7C15u;
    for (int64_t i = 0; i + 1 < n; i++) {
        u -= p[i];
        if (u < 0) return c[i].id;
    }
    return c[n - 1].id;
}

moi_status moi_sample(const float *logits, int64_t vocab, moi_sampling *sampling, int32_t *token)
{
    MOII_TRY(check(logits, vocab, sampling, token));
    int64_t n = 0, best = -1;
    for (int64_t i = 0; i < vocab; i++) {
        MOII_REQUIRE(!isnan(logits[i]) && logits[i] != INFINITY, MOI_ERR_ARG, "moi_sample: logit %lld is %s", (long long)i,
                     isnan(logits[i]) ? "NaN" : "infinite");
        if (logits[i] == -INFINITY) continue; /* a token that may not be chosen */
        if (best < 0 || logits[i] > logits[best]) best = i;
        n++;
    }
    MOII_REQUIRE(best >= 0, MOI_ERR_ARG, "moi_sample: no logit is finite");
    if (sampling->temperature == 0) {
        *token = (int32_t)best;
        return MOI_OK;
    }
    candidate *c = malloc((size_t)n * sizeof *c);
    double *p = malloc((size_t)n * sizeof *p);
    if (c && p) {
        n = 0;
        for (int64_t i = 0; i < vocab; i++)
            if (logits[i] != -INFINITY) c[n++] = (candidate){ logits[i], (int32_t)i };
        *token = draw(c, n, sampling, p);
    }
    bool made = c && p;
    free(c);
    free(p);
    MOII_REQUIRE(made, MOI_ERR_NOMEM, "moi_sample: no memory for %lld candidates", (long long)n);
    return MOI_OK;
}
