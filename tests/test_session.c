/* SPDX-License-Identifier: Apache-2.0
 * test_session.c: generation with a KV cache against the whole forward pass. */
#include <math.h>
#include <stdlib.h>

#include "support_lm.h"

enum { LENGTH = 300 };

/* Logits of every position, uncached. */
static float *uncached(moi_lm *lm, const int32_t *tokens)
{
    double loss;
    float *logits = moit_alloc(LENGTH * lm->config.vocab_size * 4);
    moit_ok(moi_lm_evaluate(lm, tokens, 1, LENGTH, &loss, logits));
    return logits;
}

static double spread(const float *x, int64_t n) /* root mean square */
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += pow((double)x[i], 2);
    return sqrt(s / (double)n);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += pow((double)a[i] - (double)b[i], 2);
    return sqrt(s / (double)n);
}

static int64_t argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Cached logits agree with uncached ones.  F32: only the order of sums differs.  BF16: both round operands to 2^-9 relative,
 * one path more than the other rounds activations between the experts' two products, so they differ by a few such roundings.
 * MX32 and BLK128: one path has activations in E4M3 (2^-4 relative each), the other in BF16; a product of k such terms with
 * random errors keeps about 2^-4 / sqrt(3) of its own size, through two layers of three products each. */
static void test_cache(void **state)
{
    (void)state;
    static const struct { moi_recipe recipe; double tolerance; } cases[] = {
        { MOI_RECIPE_F32, 2e-5 }, { MOI_RECIPE_BF16, 0.03 }, { MOI_RECIPE_MX32, 0.2 }, { MOI_RECIPE_BLK128, 0.2 },
    };
    static const int64_t pieces[] = { 1, 1, 7, 1, 270, 1, 3, 1, 1 }; /* one tokens among prompts, and one longer than a prefill */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        moi_lm_config c = moit_lm_config();
        c.mlp_only[1] = 1;
        moi_lm *lm = moit_lm(&c, cases[i].recipe);
        int32_t tokens[LENGTH + 1];
        moit_tokens(tokens, LENGTH + 1, c.vocab_size, 3);
        float *want = uncached(lm, tokens), *got = moit_alloc(c.vocab_size * 4);
        moi_session *s;
        moit_ok(moi_session_create(&s, lm, LENGTH));
        int64_t at = 0;
        double worst = 0;
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            moit_ok(moi_session_feed(s, tokens + at, pieces[p], got));
            at += pieces[p];
            assert_int_equal(moi_session_length(s), at);
            const float *w = want + (at - 1) * c.vocab_size;
            const double error = distance(got, w, c.vocab_size) / spread(w, c.vocab_size);
            worst = fmax(worst, error);
            if (cases[i].recipe == MOI_RECIPE_F32) assert_int_equal(argmax(got, c.vocab_size), argmax(w, c.vocab_size));
        }
        print_message("%s: relative error of cached logits %.2g\n", moi_recipe_name(cases[i].recipe), worst);
        assert_true(worst < cases[i].tolerance);
        moi_session_free(s);
        moit_free(got), moit_free(want);
        moi_lm_free(lm);
    }
}

/* Greedy generation through the cache is the argmax of the whole forward pass at each step. */
static void test_greedy(void **state)
{
    (void)state;
    moi_lm_config c = moit_lm_config();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
    int32_t tokens[LENGTH + 1] = { 3, 1, 4, 1, 5 };
    float *logits = moit_alloc(c.vocab_size * 4), *all = moit_alloc(LENGTH * c.vocab_size * 4);
    moi_sampling greedy = MOI_SAMPLING_INIT;
    greedy.temperature = 0;
    moi_session *s;
    moit_ok(moi_session_create(&s, lm, 40));
    moit_ok(moi_session_feed(s, tokens, 5, logits));
    for (int64_t n = 5; n < 40; n++) {
        double loss;
        moit_ok(moi_sample(logits, c.vocab_size, &greedy, tokens + n));
        moit_ok(moi_lm_evaluate(lm, tokens, 1, n, &loss, all));
        assert_int_equal(tokens[n], argmax(all + (n - 1) * c.vocab_size, c.vocab_size));
        moit_ok(moi_session_feed(s, tokens + n, 1, logits));
    }
    moit_refused(moi_session_feed(s, tokens, 1, logits), MOI_ERR_SHAPE, "room for 40");
    assert_int_equal(moi_session_length(s), 40);
    moi_session_free(s);
    moit_free(logits), moit_free(all);
    moi_lm_free(lm);
}

static void test_weights_change(void **state) /* a session sees training that happens beside it */
{
    (void)state;
    enum { B = 2, S = 16 };
    moi_lm_config c = moit_lm_config();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_MX32);
    int32_t tokens[B * (S + 1)], one = 7;
    float *before = moit_alloc(c.vocab_size * 4), *after = moit_alloc(c.vocab_size * 4);
    moit_tokens(tokens, B * (S + 1), c.vocab_size, 3);
    moi_session *s, *fresh;
    moit_ok(moi_session_create(&s, lm, 4));
    moit_ok(moi_session_feed(s, &one, 1, before));
    moi_trainer *t;
    moi_train_config how = MOI_TRAIN_CONFIG_INIT;
    how.batch = B, how.seq = S, how.warmup_steps = 0, how.lr = 0.05f;
    moit_ok(moi_trainer_create(&t, lm, &how));
    moit_ok(moi_trainer_step(t, tokens, NULL));
    moi_session_free(s);
    moit_ok(moi_session_create(&s, lm, 4));
    moit_ok(moi_session_feed(s, &one, 1, after));
    assert_memory_not_equal(before, after, (size_t)c.vocab_size * 4);
    moit_ok(moi_trainer_step(t, tokens, NULL));
    moit_ok(moi_session_create(&fresh, lm, 4));
    moit_ok(moi_session_feed(fresh, &one, 1, before));
    moi_session_free(s), moi_session_free(fresh);
    moit_ok(moi_session_create(&s, lm, 4));
    moit_ok(moi_session_feed(s, &one, 1, after));
    assert_memory_equal(before, after, (size_t)c.vocab_size * 4);
    moi_session_free(s);
    moi_trainer_free(t);
    moit_free(before), moit_free(after);
    moi_lm_free(lm);
}

static void test_refusals(void **state)
{
    (void)state;
    moi_lm_config c = moit_lm_config();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
    moi_session *s;
    float logits[64];
    int32_t tokens[3] = { 1, 40, 2 };
    moit_refused(moi_session_create(&s, lm, 0), MOI_ERR_SHAPE, "max_tokens");
    moit_refused(moi_session_create(&s, lm, 601), MOI_ERR_SHAPE, "600");
    moit_refused(moi_session_create(&s, NULL, 6), MOI_ERR_ARG, "lm is NULL");
    moit_ok(moi_session_create(&s, lm, 4));
    moit_refused(moi_session_feed(s, tokens, 0, logits), MOI_ERR_SHAPE, "count");
    moit_refused(moi_session_feed(s, tokens, 5, logits), MOI_ERR_SHAPE, "room for 4");
    moit_refused(moi_session_feed(s, tokens, 3, logits), MOI_ERR_ARG, "token 1");
    moit_refused(moi_session_feed(s, NULL, 1, logits), MOI_ERR_ARG, "tokens is NULL");
    assert_int_equal(moi_session_length(s), 0);
    moi_session_free(s);
    moi_session_free(NULL);
    moi_lm_free(lm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache), cmocka_unit_test(test_greedy), cmocka_unit_test(test_weights_change), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
