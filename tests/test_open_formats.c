/* SPDX-License-Identifier: Apache-2.0
 * test_open_formats.c: folders in every convention give the logits of the numbers that they hold. */
#include <math.h>
#include <stdlib.h>

#include "support_bound.h"
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

/* Logits of the whole, of single tokens and of pieces that go through experts together, against the exact ones. */
static double worst_of(moi_lm *lm, const int32_t *tokens, const moit_exact *exact, int64_t *rows)
{
    static const int64_t pieces[] = { 1, 1, 7, 1, 1, 2 };
    const int64_t vocab = lm->config.vocab_size;
    double loss, worst;
    float *got = moit_alloc(ROWS * vocab * 4);
    moi_session *s;
    moit_ok(moi_lm_evaluate(lm, tokens, BATCH, SEQ, &loss, got));
    worst = moit_exact_worst(exact, got, 0, ROWS, vocab, rows);
    moit_ok(moi_session_create(&s, lm, SEQ));
    for (int64_t p = 0, at = 0; at < SEQ; p++) {
        moit_ok(moi_session_feed(s, tokens + at, pieces[p], got));
        at += pieces[p];
        worst = fmax(worst, moit_exact_worst(exact, got, at - 1, 1, vocab, rows));
    }
    moi_session_free(s);
    moit_free(got);
    return worst;
}

/* Not a factor but a count of standard deviations: 8 of them are out of reach of some 30,000 numbers whose errors are sums of
 * many, and a wrong scale, row or expert is thousands away. */
static void test_logits(void **state)
{
    (void)state;
    for (int i = 0; i < HUBS; i++)
        for (int half = 0; half < 2; half++) {
            const moi_lm_config c = config_of(i, &hubs[i]);
            int32_t tokens[BATCH * (SEQ + 1)];
            int64_t rows = 0;
            moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32);
            moit_hub_write(lm, moit_path("model"), &hubs[i]);
            moit_tokens(tokens, BATCH * (SEQ + 1), c.vocab_size, 1);
            moit_exact exact = moit_exact_logits(lm, tokens, BATCH, SEQ, half);
            moi_lm *mapped = moit_open(moit_path("model"), half ? MOI_RECIPE_BF16 : MOI_RECIPE_F32);
            const double worst = worst_of(mapped, tokens, &exact, &rows);
            print_message("%s, activations %s: %.2f sigma (about %.2g), in %d rows\n", moit_hub_name(&hubs[i]), half ? "bf16" : "f32", worst,
                          exact.sigma[0], (int)rows);
            assert_true(worst < MOIT_SIGMAS && rows >= (half ? 2 : ROWS / 2));
            moit_exact_free(&exact);
            moi_lm_free(mapped), moi_lm_free(lm);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_logits) };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
