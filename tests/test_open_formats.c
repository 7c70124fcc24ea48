/* SPDX-License-Identifier: Apache-2.0
 * test_open_formats.c: folders in every convention give the logits of the numbers that they hold. */
#include <math.h>
#include <stdlib.h>

#include "support_files.h"
#include "support_hub.h"

enum { BATCH = 2, SEQ = 13, ROWS = BATCH * SEQ };

static const moit_hub hubs[] = {
    { MOIT_PLAIN, MOI_F32, false, false, NULL },
    { MOIT_PLAIN, MOI_F32, true, true, NULL },
    { MOIT_PLAIN, MOI_BF16, false, true, NULL },
    { MOIT_PLAIN, MOI_BF16, true, false, NULL },
    { MOIT_PLAIN, MOI_F16, false, false, NULL },
    { MOIT_PLAIN, MOI_F16, true, true, NULL },
    { MOIT_FP8_BLOCK, MOI_BF16, false, false, NULL },
    { MOIT_FP8_BLOCK, MOI_BF16, true, true, NULL },
    { MOIT_FP8_BLOCK_BF16, MOI_BF16, false, true, "down_proj" },
    { MOIT_MODELOPT_MXFP8, MOI_BF16, false, false, NULL },
    { MOIT_MODELOPT_MXFP8, MOI_F16, true, true, "self_attn" },
    { MOIT_CT_MXFP8, MOI_BF16, false, true, NULL },
    { MOIT_CT_MXFP8, MOI_F32, true, false, NULL },
    { MOIT_CT_MXFP4, MOI_BF16, false, false, NULL },
    { MOIT_CT_MXFP4, MOI_BF16, true, true, NULL },
    { MOIT_BLOCKS_MXFP4, MOI_BF16, true, false, NULL },
    { MOIT_BLOCKS_MXFP4, MOI_F16, true, true, NULL },
};
enum { HUBS = sizeof hubs / sizeof *hubs };

/* Widths that leave ragged squares, and a packed gate_up whose halves can be told apart in squares. */
static moi_lm_config config_of(int i, const moit_hub *hub)
{
    moi_lm_config c = moit_lm_config();
    c.hidden_size = 160, c.intermediate_size = 96, c.moe_intermediate_size = hub->packed ? 128 : 160;
    c.num_key_value_heads = 1 << i % 3, c.head_dim = 24 + 8 * (i % 2) * 5;
    c.num_attention_heads = 4;
    c.tie_word_embeddings = i % 2, c.norm_topk_prob = i % 3 != 0, c.num_experts_per_tok = 1 + i % 3;
    c.mlp_only[i % 2] = 1;
    if (c.head_dim % 32) c.head_dim = 24, c.num_attention_heads = 4; /* 4 * 24 = 96: rows of o_proj in whole blocks */
    c.initializer_range = 0.1f;
    return c;
}

static moi_lm *open_model(const char *folder, moi_recipe recipe)
{
    moi_lm *lm;
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    o.recipe = recipe;
    moit_ok(moi_lm_open(&lm, moit_ctx(0), folder, &o));
    return lm;
}

static double furthest(const float *a, const double *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - b[i]);
        if (!(d <= most)) most = d;
    }
    return most;
}

static void test_logits(void **state)
{
    (void)state;
    for (int i = 0; i < HUBS; i++) {
        const moi_lm_config c = config_of(i, &hubs[i]);
        moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
        moit_hub_write(lm, moit_path("model"), &hubs[i]);
        int32_t tokens[BATCH * (SEQ + 1)];
        moit_tokens(tokens, BATCH * (SEQ + 1), c.vocab_size, 1);
        double loss, aux, *want = malloc((size_t)(ROWS * c.vocab_size) * sizeof *want);
        const double want_loss = moit_lm_loss(lm, tokens, BATCH, SEQ, &aux, want);
        float *got = moit_alloc(ROWS * c.vocab_size * 4);
        moi_lm *mapped = open_model(moit_path("model"), MOI_RECIPE_F32);
        moit_ok(moi_lm_evaluate(mapped, tokens, BATCH, SEQ, &loss, got));
        print_message("%s: %.2g, loss %g\n", moit_hub_name(&hubs[i]), furthest(got, want, ROWS * c.vocab_size), loss);
        assert_true(furthest(got, want, ROWS * c.vocab_size) < 2e-5);
        assert_true(fabs(loss - want_loss) < 1e-5 * want_loss);
        moi_session *s;
        moit_ok(moi_session_create(&s, mapped, SEQ));
        for (int64_t t = 0; t < SEQ; t++) {
            moit_ok(moi_session_feed(s, tokens + t, 1, got));
            if (!(furthest(got, want + t * c.vocab_size, c.vocab_size) < 2e-5))
                fail_msg("%s: token %d: %g", moit_hub_name(&hubs[i]), (int)t, furthest(got, want + t * c.vocab_size, c.vocab_size));
        }
        moi_session_free(s);
        moi_lm_free(mapped), moi_lm_free(lm);
        moit_free(got);
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_logits) };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
