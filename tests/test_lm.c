/* SPDX-License-Identifier: Apache-2.0
 * test_lm.c: the model against an independent one in float64: logits, losses, gradients; and that training works. */
#include <math.h>
#include <stdlib.h>

#include "../src/lm/trainer.h"
#include "support_lm.h"

enum { BATCH = 2, SEQ = 7, ROWS = BATCH * SEQ };

/* The reference asks mlp_only alone. */
static moi_lm *reference_view(moi_lm *lm)
{
    for (int64_t l = 0; l < lm->config.num_hidden_layers; l++)
        if (lm->config.num_experts == 0 || (l + 1) % lm->config.decoder_sparse_step) lm->config.mlp_only[l] = 1;
    return lm;
}

static void test_forward(void **state)
{
    (void)state;
    for (int i = 0; i < MOIT_VARIANTS; i++) {
        moi_lm_config c = moit_variant(i);
        moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
        moit_roughen_norms(lm);
        int32_t tokens[BATCH * (SEQ + 1)];
        moit_tokens(tokens, BATCH * (SEQ + 1), c.vocab_size, 1);
        float *logits = moit_alloc(ROWS * c.vocab_size * 4);
        double loss, aux, *want = malloc((size_t)(ROWS * c.vocab_size) * sizeof *want);
        moit_ok(moi_lm_evaluate(lm, tokens, BATCH, SEQ, &loss, logits));
        double expected = moit_lm_loss(reference_view(lm), tokens, BATCH, SEQ, &aux, want);
        assert_true(fabs(loss - expected) < 1e-5 * expected);
        for (int64_t j = 0; j < ROWS * c.vocab_size; j++)
            if (!(fabs((double)logits[j] - want[j]) < 2e-5)) fail_msg("variant %d logit %d: %g, want %g", i, (int)j, (double)logits[j], want[j]);
        int64_t elements = 0;
        for (int64_t p = 0; p < lm->params.count; p++) elements += moii_param_elements(&lm->params.items[p]);
        assert_int_equal(moi_lm_parameters(lm, false), elements);
        assert_true(moi_lm_parameters(lm, true) <= elements);
        moit_free(logits);
        free(want);
        moi_lm_free(lm);
    }
}

/* Central differences of the float64 model for entries of every tensor. */
static void test_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < MOIT_VARIANTS; i++) {
        moi_lm_config c = moit_variant(i);
        moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
        moit_roughen_norms(lm);
        moi_train_config how = MOI_TRAIN_CONFIG_INIT;
        how.batch = BATCH, how.seq = SEQ, how.lr = how.min_lr = 0, how.clip_norm = 0;
        moi_trainer *trainer;
        moit_ok(moi_trainer_create(&trainer, lm, &how));
        int32_t tokens[BATCH * (SEQ + 1)];
        moit_tokens(tokens, BATCH * (SEQ + 1), c.vocab_size, 2);
        moi_train_stats stats = { .size = sizeof stats };
        moit_ok(moi_trainer_step(trainer, tokens, &stats));
        double aux, loss = moit_lm_loss(reference_view(lm), tokens, BATCH, SEQ, &aux, NULL), squares = 0;
        assert_true(fabs(stats.loss - loss) < 1e-5 * loss && fabs(stats.aux_loss - aux) < 1e-5 * (aux + 1e-3));
        for (int64_t j = 0; j < lm->params.floats; j++) squares += pow((double)trainer->grads[j], 2);
        assert_true(fabs(stats.grad_norm - sqrt(squares)) < 1e-5 * sqrt(squares));
        moit_rng rng = moit_seed("entries", (uint64_t)i);
        for (int64_t p = 0; p < lm->params.count; p++)
            for (int k = 0; k < 2; k++) {
                const moii_param *t = &lm->params.items[p];
                int64_t at = t->offset + moit_below(&rng, moii_param_elements(t));
                if (p == 0) at = tokens[k] * c.hidden_size + k; /* a row that was used */
                float *w = lm->weights + at, old = *w, hi, lo;
                hi = *w = old + 0x1p-11f;
                double above = moit_lm_loss(lm, tokens, BATCH, SEQ, &aux, NULL) + aux;
                lo = *w = old - 0x1p-11f;
                double below = moit_lm_loss(lm, tokens, BATCH, SEQ, &aux, NULL) + aux, want = (above - below) / ((double)hi - (double)lo);
                *w = old;
                if (!(fabs((double)trainer->grads[at] - want) < 1e-4 * (fabs(want) + 0.02)))
                    fail_msg("variant %d, %s[%d]: gradient %g, want %g", i, t->name, (int)(at - t->offset), (double)trainer->grads[at], want);
            }
        moi_trainer_free(trainer);
        moi_lm_free(lm);
    }
}

static double train(moi_recipe recipe, int steps, double *first)
{
    enum { B = 8, S = 32 };
    moi_lm_config c = moit_lm_config();
    c.initializer_range = 0.05f;
    c.mlp_only[0] = 1;
    moi_lm *lm = moit_lm(&c, recipe);
    moi_train_config how = MOI_TRAIN_CONFIG_INIT;
    how.batch = B, how.seq = S, how.steps = steps, how.warmup_steps = 3, how.lr = 1e-2f;
    moi_trainer *trainer;
    moit_ok(moi_trainer_create(&trainer, lm, &how));
    moi_train_stats stats = { .size = sizeof stats };
    int32_t tokens[B * (S + 1)];
    for (int s = 0; s < steps; s++) {
        moit_tokens(tokens, B * (S + 1), c.vocab_size, (uint64_t)s);
        moit_ok(moi_trainer_step(trainer, tokens, &stats));
        if (s == 0) *first = stats.loss;
        assert_true(isfinite(stats.loss) && isfinite(stats.grad_norm) && stats.step == s + 1);
    }
    double loss; /* what training left is what evaluation sees */
    moit_ok(moi_lm_evaluate(lm, tokens, B, S, &loss, NULL));
    assert_true(loss < stats.loss + 0.2);
    moi_trainer_free(trainer);
    moi_lm_free(lm);
    return loss;
}

static void test_learning(void **state)
{
    (void)state;
    double first, plain = 0;
    for (int recipe = MOI_RECIPE_F32; recipe <= MOI_RECIPE_BLK128; recipe++) {
        double last = train((moi_recipe)recipe, 30, &first);
        if (recipe == MOI_RECIPE_F32) plain = last;
        print_message("%s: %.3f -> %.3f\n", moi_recipe_name((moi_recipe)recipe), first, last);
        assert_true(last < 0.75 * first);
        assert_true(fabs(last - plain) < 0.1 * plain);
    }
}

static void test_schedule(void **state)
{
    (void)state;
    moi_train_config c = MOI_TRAIN_CONFIG_INIT;
    c.steps = 110, c.warmup_steps = 10, c.lr = 1.0f, c.min_lr = 0.1f;
    static const struct { int64_t done; double lr; } want[] = { { 0, 0.1 }, { 4, 0.5 }, { 9, 1.0 }, { 10, 1.0 }, { 60, 0.55 }, { 110, 0.1 }, { 500, 0.1 } };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) assert_true(fabs(moii_learning_rate(&c, want[i].done) - want[i].lr) < 1e-6);
    c.warmup_steps = 110;
    assert_true(fabs(moii_learning_rate(&c, 200) - 0.1) < 1e-6);
}

static void test_not_finite(void **state) /* a step whose gradients are not finite leaves the weights alone */
{
    (void)state;
    moi_lm_config c = moit_lm_config();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_BF16);
    moi_train_config how = MOI_TRAIN_CONFIG_INIT;
    how.batch = BATCH, how.seq = SEQ;
    moi_trainer *trainer;
    moit_ok(moi_trainer_create(&trainer, lm, &how));
    int32_t tokens[BATCH * (SEQ + 1)];
    moit_tokens(tokens, BATCH * (SEQ + 1), c.vocab_size, 2);
    *moit_weight(lm, "model.norm.weight") = NAN;
    float *before = malloc((size_t)lm->params.floats * 4);
    memcpy(before, lm->weights, (size_t)lm->params.floats * 4);
    moi_train_stats stats = { .size = sizeof stats };
    moit_ok(moi_trainer_step(trainer, tokens, &stats));
    assert_true(isnan(stats.loss) && !isfinite(stats.grad_norm) && stats.step == 1);
    assert_memory_equal(before, lm->weights, (size_t)lm->params.floats * 4);
    free(before);
    moi_trainer_free(trainer);
    moi_lm_free(lm);
}

static void test_refusals(void **state)
{
    (void)state;
    moi_ctx *ctx = moit_ctx(0);
    moi_lm *lm;
    moi_lm_config good = moit_lm_config(), c = good;
    moit_refused(moi_lm_create(&lm, NULL, &c, NULL, 1), MOI_ERR_ARG, "ctx is NULL");
    moit_refused(moi_lm_create(&lm, ctx, NULL, NULL, 1), MOI_ERR_ARG, "config is NULL");
    c.num_key_value_heads = 3;
    moit_refused(moi_lm_create(&lm, ctx, &c, NULL, 1), MOI_ERR_ARG, "multiple of num_key_value_heads");
    c = good, c.head_dim = 7;
    moit_refused(moi_lm_create(&lm, ctx, &c, NULL, 1), MOI_ERR_ARG, "head_dim must be even");
    c = good, c.num_experts_per_tok = 5;
    moit_refused(moi_lm_create(&lm, ctx, &c, NULL, 1), MOI_ERR_ARG, "num_experts_per_tok must be 1..4");
    c = good, c.vocab_size = 0;
    moit_refused(moi_lm_create(&lm, ctx, &c, NULL, 1), MOI_ERR_ARG, "vocab_size");
    c = good, c.rms_norm_eps = NAN;
    moit_refused(moi_lm_create(&lm, ctx, &c, NULL, 1), MOI_ERR_ARG, "rms_norm_eps");
    c = good, c.hidden_size = 1 << 20, c.moe_intermediate_size = 1 << 20, c.num_experts = 65536;
    moit_refused(moi_lm_create(&lm, ctx, &c, NULL, 1), MOI_ERR_SHAPE, "parameters");
    lm = moit_lm(&good, MOI_RECIPE_F32);
    int32_t tokens[9] = { 0, 1, 2, 3, 40, 5, 6, 7, 8 };
    double loss;
    moit_refused(moi_lm_evaluate(lm, tokens, 1, 8, &loss, NULL), MOI_ERR_ARG, "token 4 must be 0..39, got 40");
    tokens[4] = -1;
    moit_refused(moi_lm_evaluate(lm, tokens, 1, 8, &loss, NULL), MOI_ERR_ARG, "got -1");
    moit_refused(moi_lm_evaluate(lm, tokens, 0, 8, &loss, NULL), MOI_ERR_SHAPE, "batch");
    moit_refused(moi_lm_evaluate(lm, tokens, 1, 601, &loss, NULL), MOI_ERR_SHAPE, "600");
    moi_trainer *trainer;
    moi_train_config how = MOI_TRAIN_CONFIG_INIT;
    how.eps = 0;
    moit_refused(moi_trainer_create(&trainer, lm, &how), MOI_ERR_ARG, "eps");
    how = (moi_train_config)MOI_TRAIN_CONFIG_INIT, how.seq = 601;
    moit_refused(moi_trainer_create(&trainer, lm, &how), MOI_ERR_ARG, "seq must be 1..600");
    how = (moi_train_config)MOI_TRAIN_CONFIG_INIT, how.lr = NAN;
    moit_refused(moi_trainer_create(&trainer, lm, &how), MOI_ERR_ARG, "lr");
    moi_lm_free(lm);
    moi_lm_free(NULL);
    moi_trainer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward), cmocka_unit_test(test_gradients), cmocka_unit_test(test_learning),
        cmocka_unit_test(test_schedule), cmocka_unit_test(test_not_finite), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("lm", tests, NULL, NULL);
}
