/* SPDX-License-Identifier: Apache-2.0
 * test_open.c: a model whose weights stay mapped against the float64 model, whole and through the cache; what it refuses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_bound.h"
#include "support_files.h"
#include "support_lm.h"

enum { BATCH = 2, SEQ = 19, ROWS = BATCH * SEQ };

static moi_lm *masters(const moi_lm_config *c)
{
    moi_lm *lm = moit_lm(c, MOI_RECIPE_F32);
    moit_roughen_norms(lm);
    return lm;
}

/* The mapped model and the one with masters are as close to the exact logits as FP32 has to be; so is any cut of a sequence
 * into pieces. */
static void test_logits(void **state)
{
    (void)state;
    static const int64_t pieces[] = { 1, 1, 7, 1, 8, 1 };
    for (int i = 0; i < MOIT_VARIANTS; i++) {
        const moi_lm_config c = moit_variant(i);
        const char *folder = moit_path("model");
        moi_lm *lm = masters(&c);
        moit_ok(moi_lm_save(lm, folder, MOI_F32));
        moi_lm *mapped = moit_open(folder, MOI_RECIPE_F32);
        assert_int_equal(moi_lm_parameters(mapped, false), moi_lm_parameters(lm, false));
        assert_int_equal(moi_lm_parameters(mapped, true), moi_lm_parameters(lm, true));
        int32_t tokens[BATCH * (SEQ + 1)];
        moit_tokens(tokens, BATCH * (SEQ + 1), c.vocab_size, 1);
        double want_loss, loss;
        int64_t rows = 0;
        float *got = moit_alloc(ROWS * c.vocab_size * 4);
        moit_exact exact = moit_exact_logits(lm, tokens, BATCH, SEQ, false);
        moit_ok(moi_lm_evaluate(lm, tokens, BATCH, SEQ, &want_loss, got));
        const double of_masters = moit_exact_worst(&exact, got, 0, ROWS, c.vocab_size, &rows);
        moit_ok(moi_lm_evaluate(mapped, tokens, BATCH, SEQ, &loss, got));
        double of_mapped = moit_exact_worst(&exact, got, 0, ROWS, c.vocab_size, &rows);
        moi_session *s;
        moit_ok(moi_session_create(&s, mapped, SEQ));
        for (size_t p = 0, at = 0; p < sizeof pieces / sizeof *pieces; p++) {
            moit_ok(moi_session_feed(s, tokens + at, pieces[p], got));
            at += (size_t)pieces[p];
            of_mapped = fmax(of_mapped, moit_exact_worst(&exact, got, (int64_t)at - 1, 1, c.vocab_size, &rows));
        }
        print_message("variant %d: masters %.2f sigma, mapped %.2f\n", i, of_masters, of_mapped);
        assert_true(of_masters < MOIT_SIGMAS && of_mapped < MOIT_SIGMAS && rows > ROWS);
        assert_true(fabs(loss - want_loss) < 1e-5 * want_loss);
        moi_session_free(s);
        moit_exact_free(&exact);
        moit_free(got);
        moi_lm_free(mapped), moi_lm_free(lm);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    moi_lm_config c = moit_lm_config();
    moi_lm *lm = masters(&c), *mapped;
    const char *folder = moit_path("model");
    moit_ok(moi_lm_save(lm, folder, MOI_BF16));
    moi_lm_free(lm);
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    o.recipe = MOI_RECIPE_MX32;
    moit_refused(moi_lm_open(&mapped, moit_ctx(0), folder, &o), MOI_ERR_UNSUPPORTED, "moi_lm_load");
    moit_refused(moi_lm_open(&mapped, moit_ctx(0), moit_path("nowhere"), NULL), MOI_ERR_IO, "nowhere");
    moit_refused(moi_lm_open(NULL, moit_ctx(0), folder, NULL), MOI_ERR_ARG, "out is NULL");
    mapped = moit_open(folder, MOI_RECIPE_BF16);
    moi_trainer *t;
    moit_refused(moi_trainer_create(&t, mapped, NULL), MOI_ERR_UNSUPPORTED, "moi_lm_load");
    moit_refused(moi_lm_save(mapped, moit_path("copy"), MOI_F32), MOI_ERR_UNSUPPORTED, "moi_lm_load");
    moi_lm_free(mapped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
