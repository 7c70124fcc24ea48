/* SPDX-License-Identifier: Apache-2.0
 * test_open_errors.c: folders whose tensors or settings do not make a model, as moi_lm_open sees them: one line that names file,
 * tensor or field, and reason.  And settings that may be spelt in several ways. */
#include <stdio.h>
#include <stdlib.h>

#include "support_files.h"
#include "support_folder.h"
#include "support_hub.h"

#define MODEL "model.safetensors"
#define CONFIG "config.json"

enum { FLAT, PACKED, SQUARES };
static const moit_hub hubs[] = {
    [FLAT] = { MOIT_PLAIN, MOI_F32, false, false, NULL },
    [PACKED] = { MOIT_PLAIN, MOI_BF16, true, false, NULL },
    [SQUARES] = { MOIT_FP8_BLOCK, MOI_BF16, true, false, NULL },
};

static const struct { int hub; const char *file, *from, *to; moi_status status; const char *names[3]; } rows[] = {
    { FLAT, MODEL, "model.norm.weight", "model.nrom.weight", MOI_ERR_FORMAT, { "open-errors", "model.norm.weight is missing", "config.json" } },
    { FLAT, MODEL, "embed_tokens", "embed_token_", MOI_ERR_FORMAT, { "model.embed_tokens.weight is missing" } },
    { FLAT, MODEL, "1.self_attn.k_proj.weight", "1.self_attn.K_proj.weight", MOI_ERR_FORMAT,
      { MODEL, "model.layers.1.self_attn.k_proj.weight' is missing" } },
    { FLAT, MODEL, "1.self_attn.q_norm", "1.self_attn.Q_norm", MOI_ERR_FORMAT, { "model.layers.1.self_attn.q_norm.weight is missing" } },
    { FLAT, MODEL, "0.mlp.gate.weight", "0.mlp.gait.weight", MOI_ERR_FORMAT, { "model.layers.0.mlp.gate.weight is missing" } },
    { FLAT, MODEL, "experts.3.down_proj", "experts.4.down_proj", MOI_ERR_FORMAT, { MODEL, "model.layers.0.mlp.experts.3.down_proj.weight' is missing" } },
    { FLAT, MODEL, "1.mlp.up_proj", "1.mlp.upproj", MOI_ERR_FORMAT, { MODEL, "model.layers.1.mlp.up_proj.weight' is missing" } },
    { FLAT, MODEL, "\"model.norm.weight\":{\"dtype\":\"F32\"", "\"model.norm.weight\":{\"dtype\":\"I32\"", MOI_ERR_FORMAT,
      { MODEL, "model.norm.weight must be F32, F16 or BF16, got I32" } },
    { FLAT, MODEL, "\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[32]", "\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[16,2]",
      MOI_ERR_FORMAT, { MODEL, "model.norm.weight must be [32], as config.json says; got [16, 2]" } },
    { FLAT, MODEL, "[40,32]", "[32,40]", MOI_ERR_FORMAT, { MODEL, "model.embed_tokens.weight must be [40, 32]", "got [32, 40]" } },
    { FLAT, MODEL, "[4,32]", "[32,4]", MOI_ERR_FORMAT, { MODEL, "model.layers.0.mlp.gate.weight must be [4, 32]", "got [32, 4]" } },
    { FLAT, MODEL, "[16,32]", "[32,16]", MOI_ERR_FORMAT, { MODEL, "'model.layers.0.self_attn.k_proj.weight'", "[16, 32], got [32, 16]" } },
    { FLAT, CONFIG, "\"vocab_size\": 40", "\"vocab_size\": 41", MOI_ERR_FORMAT, { MODEL, "model.embed_tokens.weight must be [41, 32]" } },
    { FLAT, CONFIG, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", MOI_ERR_FORMAT, { "model.layers.2.input_layernorm.weight is missing" } },
    { FLAT, CONFIG, "\"num_experts\": 4", "\"num_experts\": 8", MOI_ERR_FORMAT, { MODEL, "model.layers.0.mlp.gate.weight must be [8, 32]" } },
    { FLAT, CONFIG, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", MOI_ERR_FORMAT, { "lm_head.weight is missing" } },
    { FLAT, CONFIG, "\"attention_bias\": false", "\"attention_bias\": true", MOI_ERR_FORMAT, { CONFIG, "attention_bias is not supported" } },
    { FLAT, CONFIG, "\"hidden_act\"", "\"rope_scaling\": {\"type\": \"yarn\"}, \"hidden_act\"", MOI_ERR_FORMAT, { CONFIG, "rope_scaling" } },
    { FLAT, CONFIG, "\"head_dim\": 8", "\"head_dim\": 6", MOI_ERR_UNSUPPORTED, { CONFIG, "head_dim must be a multiple of 4, got 6" } },
    { FLAT, CONFIG, "\"moe_intermediate_size\": 32", "\"moe_intermediate_size\": 36", MOI_ERR_UNSUPPORTED,
      { CONFIG, "moe_intermediate_size must be a multiple of 8, got 36" } },
    { FLAT, CONFIG, "\"hidden_act\"", "\"quantization_config\": {\"quant_method\": \"awq\"}, \"hidden_act\"", MOI_ERR_FORMAT,
      { CONFIG, "quant_method", "awq" } },
    { FLAT, CONFIG, NULL, NULL, MOI_ERR_IO, { CONFIG } },
    { FLAT, MODEL, NULL, NULL, MOI_ERR_IO, { MODEL } },
    { PACKED, MODEL, "[4,64,32]", "[4,32,64]", MOI_ERR_FORMAT, { MODEL, "experts.gate_up_proj'", "wanted shape [4, 64, 32], got [4, 32, 64]" } },
    { PACKED, MODEL, "0.mlp.experts.down_proj", "0.mlp.experts.down_prj_", MOI_ERR_FORMAT, { MODEL, "model.layers.0.mlp.experts.down_proj' is missing" } },
};

static moi_lm_config small(void)
{
    moi_lm_config c = moit_lm_config();
    c.mlp_only[1] = 1;
    return c;
}

static void test_rows(void **state)
{
    (void)state;
    const moi_lm_config c = small();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32), *mapped;
        char folder[320], path[400];
        snprintf(folder, sizeof folder, "%s", moit_path("open-errors"));
        moit_hub_write(lm, folder, &hubs[rows[i].hub]);
        moi_lm_free(lm);
        moit_ok(moi_lm_open(&mapped, moit_ctx(0), folder, NULL));
        moi_lm_free(mapped);
        snprintf(path, sizeof path, "%s/%s", folder, rows[i].file);
        moit_spoil(path, rows[i].from, rows[i].to);
        for (int k = 0; k < 3 && rows[i].names[k]; k++) moit_refused(moi_lm_open(&mapped, moit_ctx(0), folder, NULL), rows[i].status, rows[i].names[k]);
        assert_null(strchr(moi_last_error(), '\n'));
        assert_null(mapped);
    }
}

/* Squares of a packed tensor that would hold gate rows and up rows at once. */
static void test_shared_squares(void **state)
{
    (void)state;
    const moi_lm_config c = small();
    moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32), *mapped;
    moit_hub_write(lm, moit_path("open-errors"), &hubs[SQUARES]);
    moi_lm_free(lm);
    moit_refused(moi_lm_open(&mapped, moit_ctx(0), moit_path("open-errors"), NULL), MOI_ERR_UNSUPPORTED, "mix gate and up rows");
}

static const struct { const char *from, *to; } spellings[] = {
    { "\"num_experts\": 4", "\"num_local_experts\": 4" },
    { "\"num_experts\": 4", "\"num_experts\": null, \"num_local_experts\": 4" },
    { "\"torch_dtype\"", "\"dtype\"" },
    { "\"rope_theta\": 10000.0", "\"rope_theta\": null, \"rope_parameters\": {\"rope_theta\": 10000, \"rope_type\": \"default\"}" },
    { "\"rope_theta\": 10000.0", "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}" },
    { "\"hidden_act\"", "\"rope_scaling\": null, \"sliding_window\": null, \"eos_token_id\": [1, 2], \"layer_types\": [\"a\"], \"hidden_act\"" },
    { "\"head_dim\": 8", "\"head_dim\": null" },
    { "\"attention_bias\": false", "\"attention_bias\": null" },
    { "\"hidden_act\"", "\"quantization_config\": null, \"hidden_act\"" },
};

static void test_spellings(void **state)
{
    (void)state;
    const moi_lm_config c = small();
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        moi_lm *lm = moit_lm(&c, MOI_RECIPE_F32), *mapped;
        moi_lm_config got = { .size = sizeof got }, want = { .size = sizeof want };
        moit_hub_write(lm, moit_path("open-errors"), &hubs[FLAT]);
        moit_spoil(moit_path("open-errors/config.json"), spellings[i].from, spellings[i].to);
        moit_ok(moi_lm_open(&mapped, moit_ctx(0), moit_path("open-errors"), NULL));
        moit_ok(moi_lm_get_config(mapped, &got));
        moit_ok(moi_lm_get_config(lm, &want));
        assert_memory_equal(&got, &want, sizeof got);
        moi_lm_free(mapped), moi_lm_free(lm);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_shared_squares), cmocka_unit_test(test_spellings) };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
