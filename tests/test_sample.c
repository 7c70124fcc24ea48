/* SPDX-License-Identifier: Apache-2.0
 * test_sample.c: greedy, top-k, top-p, the distribution, refusals. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "../src/lm/random.h"
#include "moiety_lm.h"

enum { DRAWS = 40000 };

static moi_sampling settings(float temperature, int top_k, float top_p)
{
    moi_sampling s = MOI_SAMPLING_INIT;
    s.temperature = temperature;
    s.top_k = top_k;
    s.top_p = top_p;
    return s;
}

static void count(const float *logits, int n, moi_sampling s, int *counts)
{
    memset(counts, 0, (size_t)n * sizeof *counts);
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = -1;
        moit_ok(moi_sample(logits, n, &s, &token));
        assert_true(token >= 0 && token < n);
        counts[token]++;
    }
}

static void test_greedy(void **state)
{
    (void)state;
    float logits[] = { -1.0f, 3.0f, 3.0f, -INFINITY };
    moi_sampling s = settings(0, 0, 1);
    uint64_t before = s.state;
    int32_t token;
    moit_ok(moi_sample(logits, 4, &s, &token));
    assert_int_equal(token, 1); /* a tie goes to the lower id */
    assert_true(s.state == before);
}

/* Counts of DRAWS independent draws stay within 5 standard deviations of the exact distribution. */
static void check_distribution(const float *logits, int n, moi_sampling s, const double *p)
{
    int counts[8];
    count(logits, n, s, counts);
    for (int i = 0; i < n; i++) {
        double deviation = sqrt(DRAWS * p[i] * (1 - p[i]));
        if (fabs(counts[i] - DRAWS * p[i]) > 5 * deviation + 1e-9)
            fail_msg("token %d: %d draws, expected %.1f +- %.1f", i, counts[i], DRAWS * p[i], deviation);
    }
}

static void test_distribution(void **state)
{
    (void)state;
    /* softmax(ln p / T) at T = 1 is p; at T = 0.5 it is p^2 normalised */
    float logits[4];
    double p[4] = { 0.1, 0.4, 0.2, 0.3 }, squared[4];
    for (int i = 0; i < 4; i++) logits[i] = (float)log(p[i]);
    for (int i = 0; i < 4; i++) squared[i] = p[i] * p[i] / 0.30;
    check_distribution(logits, 4, settings(1, 0, 1), p);
    check_distribution(logits, 4, settings(0.5f, 0, 1), squared);
    check_distribution(logits, 4, settings(1, 2, 1), (double[]){ 0, 4.0 / 7, 0, 3.0 / 7 });
    check_distribution(logits, 4, settings(1, 0, 0.65f), (double[]){ 0, 4.0 / 7, 0, 3.0 / 7 }); /* 0.4 + 0.3 reach 0.65 */
    check_distribution(logits, 4, settings(1, 0, 0.75f), (double[]){ 0, 4.0 / 9, 2.0 / 9, 3.0 / 9 });
    check_distribution(logits, 4, settings(1, 1, 1), (double[]){ 0, 1, 0, 0 });
    check_distribution(logits, 4, settings(1, 0, 0.01f), (double[]){ 0, 1, 0, 0 });
}

static void test_ties_and_extremes(void **state)
{
    (void)state;
    float equal[] = { 2, 2, 2, 2 }, huge[] = { 3e38f, -3e38f, -INFINITY };
    check_distribution(equal, 4, settings(1, 2, 1), (double[]){ 0.5, 0.5, 0, 0 }); /* lower ids win the cut */
    check_distribution(huge, 3, settings(1e-30f, 0, 1), (double[]){ 1, 0, 0 });
}

static void test_same_seed_same_tokens(void **state)
{
    (void)state;
    float logits[64];
    moit_rng rng = moit_seed("sample", 0);
    moit_fill_normal(&rng, logits, 64, 2);
    moi_sampling a = settings(1, 0, 0.9f), b = a;
    int differs = 0;
    int32_t first = -1;
    for (int i = 0; i < 200; i++) {
        int32_t x, y;
        moit_ok(moi_sample(logits, 64, &a, &x));
        moit_ok(moi_sample(logits, 64, &b, &y));
        assert_int_equal(x, y);
        if (i == 0) first = x;
        differs |= x != first;
    }
    assert_true(differs);
}

/* ---- against sorting everything ---------------------------------------------------------------------------------- */

typedef struct pair { float logit; int32_t id; } pair;

static int by_logit(const void *a_, const void *b_)
{
    const pair *a = a_, *b = b_;
    if (a->logit > b->logit || a->logit < b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id - b->id;
}

static int32_t sorted_sample(const float *logits, int64_t vocab, const moi_sampling *s)
{
    pair *c = malloc((size_t)vocab * sizeof *c);
    int64_t n = 0, kept = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (isfinite(logits[i])) c[n++] = (pair){ logits[i], (int32_t)i };
    qsort(c, (size_t)n, sizeof *c, by_logit);
    if (s->top_k > 0 && s->top_k < n) n = s->top_k;
    double all = 0, total = 0;
    for (int64_t i = 0; i < n; i++) all += exp(((double)c[i].logit - (double)c[0].logit) / (double)s->temperature);
    while (kept < n && total < (double)s->top_p * all) total += exp(((double)c[kept++].logit - (double)c[0].logit) / (double)s->temperature);
    double u = moii_unit(moii_mix(s->state)) * total;
    int64_t i = 0;
    for (; i + 1 < kept; i++)
        if ((u -= exp(((double)c[i].logit - (double)c[0].logit) / (double)s->temperature)) < 0) break;
    const int32_t id = c[i].id;
    free(c);
    return id;
}

static void test_sorted(void **state)
{
    (void)state;
    enum { VOCAB = 5000 };
    static const moi_sampling cases[] = {
        { sizeof(moi_sampling), 1, 0, 1, 1 },     { sizeof(moi_sampling), 1, 0, 0.95f, 2 },  { sizeof(moi_sampling), 0.6f, 20, 0.95f, 3 },
        { sizeof(moi_sampling), 5, 1, 1, 4 },     { sizeof(moi_sampling), 30, 0, 0.999f, 5 }, { sizeof(moi_sampling), 30, 4999, 1, 6 },
        { sizeof(moi_sampling), 2, 6000, 0.5f, 7 }, { sizeof(moi_sampling), 1e6f, 0, 1, 8 },
    };
    moit_rng rng = moit_seed("sorted", 0);
    float *logits = moit_alloc(VOCAB * 4);
    for (int round = 0; round < 60; round++) {
        const int64_t vocab = round % 3 == 2 ? 1 + moit_below(&rng, 9) : VOCAB;
        moit_fill_normal(&rng, logits, vocab, 3);
        if (round % 2) /* many ties, and tokens that may not be chosen */
            for (int64_t i = 0; i < vocab; i++) logits[i] = i && moit_below(&rng, 5) == 0 ? -INFINITY : rintf(logits[i]);
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            moi_sampling s = cases[k];
            s.state += (uint64_t)round * 1000;
            const int32_t want = sorted_sample(logits, vocab, &s);
            int32_t got = -1;
            moit_ok(moi_sample(logits, vocab, &s, &got));
            if (got != want) fail_msg("round %d, case %d: token %d, want %d", round, (int)k, got, want);
        }
    }
    moit_free(logits);
}

static void test_refusals(void **state)
{
    (void)state;
    float logits[] = { 0, 1 }, wild[] = { 0, NAN }, none[] = { -INFINITY, -INFINITY };
    int32_t token;
    moi_sampling s = settings(1, 0, 1), bad;
    moit_refused(moi_sample(NULL, 2, &s, &token), MOI_ERR_ARG, "logits is NULL");
    moit_refused(moi_sample(logits, 0, &s, &token), MOI_ERR_SHAPE, "got 0");
    moit_refused(moi_sample(wild, 2, &s, &token), MOI_ERR_ARG, "logit 1 is NaN");
    moit_refused(moi_sample(none, 2, &s, &token), MOI_ERR_ARG, "no logit is finite");
    bad = settings(-1, 0, 1);
    moit_refused(moi_sample(logits, 2, &bad, &token), MOI_ERR_ARG, "temperature");
    bad = settings(1, -2, 1);
    moit_refused(moi_sample(logits, 2, &bad, &token), MOI_ERR_ARG, "top_k");
    bad = settings(1, 0, 0);
    moit_refused(moi_sample(logits, 2, &bad, &token), MOI_ERR_ARG, "top_p");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy), cmocka_unit_test(test_distribution), cmocka_unit_test(test_ties_and_extremes),
        cmocka_unit_test(test_same_seed_same_tokens), cmocka_unit_test(test_sorted), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
