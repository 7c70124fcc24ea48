/* SPDX-License-Identifier: Apache-2.0
 * test_logits.c: logits asked for in pieces are those of the whole evaluation. */
#include <math.h>

#include "support_lm.h"

enum { LENGTH = 45 };

/* Both sum h products of x and a row w of the head in FP32, in whatever order: each is off by at most h 2^-24 |x| |w|, and x is
 * behind a norm with gains 1: |x| <= sqrt(h). */
static double bound(const moi_lm *lm, const float *w)
{
    const int64_t h = lm->config.hidden_size;
    double sum = 0;
    for (int64_t i = 0; i < h; i++) sum += (double)w[i] * (double)w[i];
    return 2 * (double)h * 0x1p-24 * sqrt((double)h * sum);
}

static void same(const moi_lm *lm, const float *got, const float *want, int64_t rows)
{
    const int64_t v = lm->config.vocab_size, h = lm->config.hidden_size;
    const float *head = moit_weight(lm, lm->config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < v; i++)
            if (!(fabs((double)got[r * v + i] - (double)want[r * v + i]) <= bound(lm, head + i * h)))
                fail_msg("row %d, logit %d: %g, want %g", (int)r, (int)i, (double)got[r * v + i], (double)want[r * v + i]);
}

/* P:lm.pieces */
static void test_pieces(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        moi_lm_config c = moit_lm_config();
        c.vocab_size = 41, c.tie_word_embeddings = tied;
        moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
        int32_t tokens[LENGTH + 1];
        double loss;
        moit_tokens(tokens, LENGTH + 1, c.vocab_size, 3);
        float *want = moit_alloc(LENGTH * c.vocab_size * 4);
        moit_ok(moi_lm_evaluate(lm, tokens, 1, LENGTH, &loss, want));
        for (int64_t piece = 1; piece <= LENGTH; piece += piece < 4 ? 1 : 13) {
            moit_ok(moi_lm_forward(lm, tokens, LENGTH));
            for (int64_t first = 0; first < LENGTH; first += piece) {
                const int64_t n = LENGTH - first < piece ? LENGTH - first : piece;
                float *got = moit_alloc(n * c.vocab_size * 4);
                moit_ok(moi_lm_logits(lm, first, n, got));
                same(lm, got, want + first * c.vocab_size, n);
                moit_free(got);
            }
        }
        float *again = moit_alloc(c.vocab_size * 4); /* in any order */
        moit_ok(moi_lm_logits(lm, 7, 1, again));
        same(lm, again, want + 7 * c.vocab_size, 1);
        moit_ok(moi_lm_logits(lm, LENGTH, 0, again));
        moit_free(again), moit_free(want);
        moi_lm_free(lm);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    moi_lm_config c = moit_lm_config();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
    int32_t tokens[9] = { 0 };
    float *logits = moit_alloc(8 * c.vocab_size * 4);
    double loss;
    moit_refused(moi_lm_logits(lm, 0, 1, logits), MOI_ERR_ARG, "no moi_lm_forward");
    moit_refused(moi_lm_forward(NULL, tokens, 1), MOI_ERR_ARG, "lm is NULL");
    moit_refused(moi_lm_forward(lm, NULL, 1), MOI_ERR_ARG, "tokens is NULL");
    moit_refused(moi_lm_forward(lm, tokens, 0), MOI_ERR_SHAPE, "got 0");
    moit_refused(moi_lm_forward(lm, tokens, 601), MOI_ERR_SHAPE, "1..600");
    moit_ok(moi_lm_forward(lm, tokens, 8));
    moit_refused(moi_lm_logits(lm, 0, 1, NULL), MOI_ERR_ARG, "logits is NULL");
    moit_refused(moi_lm_logits(lm, 0, 9, logits), MOI_ERR_SHAPE, "8 tokens");
    moit_refused(moi_lm_logits(lm, -1, 1, logits), MOI_ERR_SHAPE, "got -1");
    moit_refused(moi_lm_logits(lm, 1, INT64_MAX, logits), MOI_ERR_SHAPE, "8 tokens");
    tokens[3] = (int32_t)c.vocab_size;
    moit_refused(moi_lm_forward(lm, tokens, 8), MOI_ERR_ARG, "token 3 must be 0..39, got 40");
    tokens[3] = 0;
    moit_ok(moi_lm_evaluate(lm, tokens, 1, 8, &loss, NULL));
    moit_refused(moi_lm_logits(lm, 0, 1, logits), MOI_ERR_ARG, "moi_lm_evaluate was called since");
    moit_free(logits);
    moi_lm_free(lm);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_pieces), cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
