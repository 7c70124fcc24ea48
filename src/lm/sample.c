/* SPDX-License-Identifier: Apache-2.0
 * sample.c: a token from logits: temperature, top-k, top-p. */
#include <math.h>
#include <stdlib.h>

#include "moiety_lm.h"
#include "random.h"
#include "status.h"

typedef struct candidate { float logit; int32_t id; } candidate;

/* Larger logits first, the lower id where they are equal. */
static bool before(candidate a, candidate b) { return a.logit > b.logit || (!(a.logit < b.logit) && a.id < b.id); }

/* A heap gives the candidates in order, one at a time: of a large vocabulary few are ever asked for.  Those taken lie behind the
 * heap, the first of them last. */
typedef struct queue {
    candidate *c;
    int64_t n, taken; /* of n candidates */
} queue;

static void sink(queue *q, int64_t at)
{
    const int64_t n = q->n - q->taken;
    const candidate it = q->c[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(q->c[child + 1], q->c[child])) child++;
        if (!before(q->c[child], it)) break;
        q->c[at] = q->c[child];
    }
    q->c[at] = it;
}

static void order(queue *q)
{
    for (int64_t i = q->n / 2 - 1; i >= 0; i--) sink(q, i);
}

/* The i-th in order; asked for in order. */
static candidate nth(queue *q, int64_t i)
{
    if (i == q->taken) {
        const int64_t last = q->n - q->taken - 1;
        const candidate first = q->c[0];
        q->c[0] = q->c[last];
        q->c[last] = first;
        q->taken++;
        sink(q, 0);
    }
    return q->c[q->n - 1 - i];
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

static double weight(float logit, float best, const moi_sampling *s) { return exp(((double)logit - (double)best) / (double)s->temperature); }

/* How many candidates in order stay, and the sum of their weights. */
static int64_t keep(queue *q, float best, const moi_sampling *s, double *total)
{
    int64_t n = q->n;
    double all = 0;
    if (s->top_k > 0 && s->top_k < n) {
        n = s->top_k;
        for (int64_t i = 0; i < n; i++) all += weight(nth(q, i).logit, best, s);
    } else
        for (int64_t i = 0; i < n; i++) all += weight(q->c[i].logit, best, s);
    *total = all;
    if (!(s->top_p < 1)) return n;
    *total = 0;
    for (int64_t i = 0; i < n; i++) {
        *total += weight(nth(q, i).logit, best, s);
        if (*total >= (double)s->top_p * all) return i + 1;
    }
    return n;
}

static int32_t draw(queue *q, float best, moi_sampling *s)
{
    double total;
    order(q);
    const int64_t n = keep(q, best, s, &total);
    double u = moii_unit(moii_mix(s->state)) * total;
    s->state += 0x9E3779B97F4A7C15u;
    for (int64_t i = 0; i + 1 < n; i++) {
        const candidate c = nth(q, i);
        u -= weight(c.logit, best, s);
        if (u < 0) return c.id;
    }
    return nth(q, n - 1).id;
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
    queue q = { .c = malloc((size_t)n * sizeof *q.c) };
    MOII_REQUIRE(q.c, MOI_ERR_NOMEM, "moi_sample: no memory for %lld candidates", (long long)n);
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] != -INFINITY) q.c[q.n++] = (candidate){ logits[i], (int32_t)i };
    *token = draw(&q, logits[best], sampling);
    free(q.c);
    return MOI_OK;
}
