/* SPDX-License-Identifier: Apache-2.0
 * test_open.c: a model whose weights stay mapped against the float64 model, whole and through the cache; what it refuses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support_bound.h"
#include "support_files.h"
#include "support_lm.h"

typedef struct variant { int64_t heads, kv_heads; bool tied, dense_first, renormalize; int64_t step, experts, top_k; } variant;
static const variant variants[] = {
    { 4, 2, true, true, true, 1, 4, 2 }, { 2, 2, false, false, true, 1, 4, 2 }, { 4, 1, false, true, false, 1, 4, 3 },
    { 3, 1, true, false, true, 2, 4, 1 }, { 2, 1, false, false, true, 1, 1, 1 }, { 2, 1, true, false, true, 1, 0, 0 },
};
enum { VARIANTS = sizeof variants / sizeof *variants, BATCH = 2, SEQ = 19, ROWS = BATCH * SEQ };

static moi_lm_config config_of(const variant *v)
{
    moi_lm_config c = moit_lm_config();
    c.num_attention_heads = v->heads, c.num_key_value_heads = v->kv_heads;
    c.tie_word_embeddings = v->tied, c.norm_topk_prob = v->renormalize;
    c.num_experts = v->experts, c.num_experts_per_tok = v->top_k, c.decoder_sparse_step = v->step;
    c.mlp_only[0] = v->dense_first;
    return c;
}

static moi_lm *masters(const moi_lm_config *c)
{
    moi_lm *lm = moit_lm(c, MOI_RECIPE_F32);
    moit_rng rng = moit_seed("norms", 1);
    for (int64_t i = 0; i < lm->params.count; i++)
        for (int64_t r = 0; lm->params.items[i].cols == 0 && r < lm->params.items[i].rows; r++)
            lm->weights[lm->params.items[i].offset + r] += 0.2f * moit_normal(&rng);
    lm->version++;
    return lm;
}

static moi_lm *open_model(const char *folder, moi_recipe recipe)
{
    moi_lm *lm;
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    o.recipe = recipe;
    moit_ok(moi_lm_open(&lm, moit_ctx(0), folder, &o));
    return lm;
}

/* The mapped model and the one with masters are as close to the exact logits as FP32 has to be; so is any cut of a sequence
 * into pieces. */
static void test_logits(void **state)
{
    (void)state;
    static const int64_t pieces[] = { 1, 1, 7, 1, 8, 1 };
    for (int i = 0; i < VARIANTS; i++) {
        const moi_lm_config c = config_of(&variants[i]);
        const char *folder = moit_path("model");
        moi_lm *lm = masters(&c);
        moit_ok(moi_lm_save(lm, folder, MOI_F32));
        moi_lm *mapped = open_model(folder, MOI_RECIPE_F32);
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
    mapped = open_model(folder, MOI_RECIPE_BF16);
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
