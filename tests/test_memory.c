/* SPDX-License-Identifier: Apache-2.0
 * test_memory.c: what this machine's memory cannot hold is refused in words before it is tried, whoever asks, and what was held is
 * given back. */
#include <stdlib.h>
#include <unistd.h>

#include "../src/lm/trainer.h"
#include "support_files.h"
#include "support_lm.h"

enum { HIDDEN = 4096, LONGEST = 1 << 24 };

static int64_t machine_bytes(void) { return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }
/* So many that their rows of one activation alone fill the machine. */
static int64_t too_many(void) { return machine_bytes() / (HIDDEN * 4) + 1; }
static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

static moi_lm_config wide(void)
{
    moi_lm_config c = moit_lm_config();
    c.hidden_size = HIDDEN, c.max_position_embeddings = at_most(too_many(), LONGEST);
    return c;
}

/* Every way to ask for buffers, far too large and then small; `who` is the model in messages. */
static void refuse_all(moi_lm *lm, const char *who)
{
    const int64_t many = too_many(), row = at_most(many, LONGEST), h = lm->held;
    int32_t *tokens = calloc((size_t)(2 * many + 2), sizeof *tokens);
    double loss;
    moi_session *s;
    assert_non_null(tokens);
    moit_refused(moi_lm_evaluate(lm, tokens, many, 1, &loss, NULL), MOI_ERR_NOMEM, who);
    moit_refused(moi_lm_evaluate(lm, tokens, many / row, row, &loss, NULL), MOI_ERR_NOMEM, "moi_lm_evaluate: ");
    moit_refused(moi_lm_forward(lm, tokens, row), MOI_ERR_NOMEM, "moi_lm_forward: ");
    assert_int_equal(lm->held, h);
    moit_ok(moi_lm_evaluate(lm, tokens, 2, 3, &loss, NULL));
    moit_ok(moi_session_create(&s, lm, 4));
    assert_true(lm->held > h);
    /* what is held already counts: the same small request when nearly all memory is taken */
    lm->held += machine_bytes();
    moit_refused(moi_lm_evaluate(lm, tokens, 2, 5, &loss, NULL), MOI_ERR_NOMEM, "GB of memory, this machine has ");
    moi_session *another;
    moit_refused(moi_session_create(&another, lm, 4), MOI_ERR_NOMEM, "moi_session_create: ");
    assert_null(another);
    lm->held -= machine_bytes();
    moit_ok(moi_lm_evaluate(lm, tokens, 2, 5, &loss, NULL));
    moi_session_free(s);
    moii_exec_free(lm->eval), lm->eval = NULL;
    assert_int_equal(lm->held, h);
    free(tokens);
}

static void test_masters(void **state)
{
    (void)state;
    const moi_lm_config c = wide();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
    refuse_all(lm, "the model needs ");
    moi_lm_free(lm);
}

static void test_mapped(void **state)
{
    (void)state;
    const moi_lm_config c = wide();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
    moit_ok(moi_lm_save(lm, moit_path("model"), MOI_BF16));
    moi_lm_free(lm);
    lm = moit_open(moit_path("model"), MOI_RECIPE_BF16);
    refuse_all(lm, "/model needs ");
    moi_lm_free(lm);
}

static void test_trainer(void **state)
{
    (void)state;
    const moi_lm_config c = wide();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
    moi_train_config how = MOI_TRAIN_CONFIG_INIT;
    moi_trainer *t;
    how.batch = too_many() / 1024 + 1, how.seq = 1024;
    moit_refused(moi_trainer_create(&t, lm, &how), MOI_ERR_NOMEM, "moi_trainer_create: the model needs ");
    assert_null(t);
    assert_int_equal(lm->held, 0);
    how.batch = 1, how.seq = 4;
    lm->held = machine_bytes() - lm->params.floats * 12; /* room for some of its buffers */
    moit_refused(moi_trainer_create(&t, lm, &how), MOI_ERR_NOMEM, "moi_trainer_create: the model needs ");
    assert_int_equal(lm->held, machine_bytes() - lm->params.floats * 12);
    lm->held = 0;
    moit_ok(moi_trainer_create(&t, lm, &how));
    assert_true(lm->held > lm->params.floats * 12);
    moi_trainer_free(t);
    assert_int_equal(lm->held, 0);
    moi_lm_free(lm);
}

static void test_weights(void **state)
{
    (void)state;
    moi_lm_config c = moit_lm_config();
    moi_lm *lm;
    c.hidden_size = c.moe_intermediate_size = 1 << 14, c.num_experts = 1024; /* 3.3 TB a layer */
    moit_refused(moi_lm_create(&lm, moit_ctx(0), &c, NULL, 1), MOI_ERR_NOMEM, "moi_lm: the model needs 6597.");
    assert_null(lm);
}

int main(void)
{
    const struct CMUnitTest tests[] = { 
        cmocka_unit_test(test_weights), cmocka_unit_test(test_masters), cmocka_unit_test(test_mapped), cmocka_unit_test(test_trainer),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, moit_remove_folder);
}
