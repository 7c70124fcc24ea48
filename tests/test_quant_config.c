/* SPDX-License-Identifier: Apache-2.0
 * test_quant_config.c: settings as the exporters write them, and which weights they cover.  What is refused is in
 * test_folder_errors.c. */
#include "support.h"
#include "support_files.h"
#include "support_folder.h"

#include <time.h>

#include "../src/lm/quant_config.h"

static moii_quant_config *parse(const char *text)
{
    moii_quant_config *c;
    json_error_t error;
    json_t *j = json_loads(text, 0, &error);
    if (!j) fail_msg("%s: %s", text, error.text);
    moit_ok(moii_quant_config_parse(&c, "config.json", j));
    json_decref(j);
    return c;
}

/* As the hub's folders have them: a dense FP8 one, a converted one, two of compressed-tensors, one with experts in blocks. */
#define FP8 "{\"quantization_config\": {\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", \"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]," \
            "\"modules_to_not_convert\": [\"lm_head\", \"ate_proj\", \"model.layers.0.input_layernorm\", \"model.layers.0.mlp.gate\", \"model.layers.1\"]}}"
#define FP8_SHORT "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"scale_fmt\": \"ue8m0\"," \
                  "\"ignored_layers\": [\"self_attn\"], \"modules_to_not_convert\": null}}"
#define MODELOPT "{\"quantization_config\": {\"ignore\": [\"lm_head\", \"model.layers.0.self_attn*\"], \"quant_algo\": \"MXFP8\", \"kv_cache_scheme\":" \
                 "{\"dynamic\": false, \"num_bits\": 8, \"type\": \"float\"}, \"producer\": {\"name\": \"modelopt\"}, \"quant_method\": \"modelopt\"}}"
#define MODELOPT_GROUP \
    "{\"quantization_config\": {\"quant_algo\": \"MXFP8\", \"group_size\": 32, \"exclude_modules\": [\"*.k_proj\"], \"quant_method\": \"modelopt\"}}"
#define CT(format, bits, targets, ignore) \
    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"" format "\", \"quantization_status\": \"compressed\"," \
    "\"kv_cache_scheme\": null, \"global_compression_ratio\": null, \"sparsity_config\": {}, \"transform_config\": {}, \"version\": \"0.13.0\"," \
    "\"ignore\": " ignore ", \"config_groups\": {\"group_0\": {\"format\": \"" format "\", \"input_activations\": null, \"output_activations\": null," \
    "\"targets\": " targets ", \"weights\": {\"actorder\": null, \"block_structure\": null, \"dynamic\": false, \"group_size\": 32, \"num_bits\": " bits "," \
    "\"observer\": \"memoryless_minmax\", \"observer_kwargs\": {}, \"scale_dtype\": \"torch.uint8\", \"strategy\": \"group\", \"symmetric\": true," \
    "\"type\": \"float\", \"zp_dtype\": \"torch.uint8\"}}}}}"
#define CT8 CT("mxfp8-quantized", "8", "[\"Linear\"]", "[\"lm_head\", \"re:.*mlp\\\\.gate$\", \"re:gate_proj\", \"model.layers.0.self_attn.q_proj\"]")
#define CT4 CT("mxfp4-pack-quantized", "4", "[\"re:.*experts\\\\.[0-9]+\\\\.(gate|up|down)_proj$\"]", "[]")
/* what Python's dialect has beyond POSIX, and an expression that never ends */
#define CT_PYTHON CT("mxfp8-quantized", "8", "[\"Linear\"]", \
    "[\"re:(?!.*experts).*\", \"re:.*layers\\\\.(?:7|1\\\\d)\\\\.\", \"re:(.*.*.*.*.*.*.*.*.*.*)*!\"]")
#define BLOCKS \
    "{\"quantization_config\": {\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": [\"model.layers.*.self_attn\", \"model.layers.*.mlp.router\"," \
    "\"model.embed_tokens\", \"lm_head\", \"model.layers.7.mlp\"]}}"

#define EXPERT(l) "model.layers." #l ".mlp.experts.3.gate_proj.weight"
#define QUERY(l) "model.layers." #l ".self_attn.q_proj.weight"
#define KEY(l) "model.layers." #l ".self_attn.k_proj.weight"
#define GATE(l) "model.layers." #l ".mlp.gate.weight"
#define PACKED(l) "model.layers." #l ".mlp.experts.gate_up_proj"

static const struct { const char *config; moii_quant_kind kind; moi_recipe recipe; moi_dtype elem; const char *yes[5], *no[5]; } cases[] = {
    { "{}", MOII_QUANT_NONE, 0, 0, { NULL }, { EXPERT(0), PACKED(0), "lm_head.weight" } },
    { "{\"quantization_config\": null}", MOII_QUANT_NONE, 0, 0, { NULL }, { EXPERT(0) } },
    { FP8, MOII_QUANT_FP8_BLOCK, MOI_RECIPE_BLK128, MOI_E4M3,
      { EXPERT(0), QUERY(0), "model.layers.0.mlp.gate_proj.weight", PACKED(10), QUERY(11) }, { "lm_head.weight", GATE(0), EXPERT(1), QUERY(1) } },
    { FP8_SHORT, MOII_QUANT_FP8_BLOCK, MOI_RECIPE_BLK128, MOI_E4M3, { EXPERT(0) }, { QUERY(0), KEY(12) } },
    { MODELOPT, MOII_QUANT_MODELOPT_MXFP8, MOI_RECIPE_MX32, MOI_E4M3, { EXPERT(0), QUERY(1) }, { QUERY(0), KEY(0), "lm_head.weight" } },
    { MODELOPT_GROUP, MOII_QUANT_MODELOPT_MXFP8, MOI_RECIPE_MX32, MOI_E4M3, { EXPERT(0), QUERY(0) }, { KEY(0), KEY(9) } },
    { CT8, MOII_QUANT_CT_MXFP8, MOI_RECIPE_MX32, MOI_E4M3, { EXPERT(0), KEY(0), "model.layers.0.mlp.gate_proj.weight", QUERY(1) },
      { QUERY(0), GATE(0), GATE(47), "lm_head.weight" } },
    { CT4, MOII_QUANT_CT_MXFP4, MOI_RECIPE_MX32, MOI_E2M1, { EXPERT(0), EXPERT(47) }, { QUERY(0), GATE(0), "lm_head.weight" } },
    { CT_PYTHON, MOII_QUANT_CT_MXFP8, MOI_RECIPE_MX32, MOI_E4M3, { EXPERT(0), EXPERT(47) }, { QUERY(0), EXPERT(7), EXPERT(19), "lm_head.weight" } },
    { BLOCKS, MOII_QUANT_BLOCKS_MXFP4, MOI_RECIPE_MX32, MOI_E2M1, { PACKED(0), PACKED(17), "model.layers.1.mlp.experts.down_proj" },
      { QUERY(0), EXPERT(0), "lm_head.weight", PACKED(7) } },
};

static void test_conventions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        moii_quant_config *c = parse(cases[i].config);
        assert_int_equal(moii_quant_config_kind(c), cases[i].kind);
        for (int k = 0; k < 5 && cases[i].yes[k]; k++) {
            moi_format f = { .round = MOI_ROUND_EVEN };
            if (!moii_quant_config_has(c, cases[i].yes[k], &f)) fail_msg("%s: not quantised under %s", cases[i].yes[k], cases[i].config);
            assert_int_equal(f.recipe, cases[i].recipe);
            assert_int_equal(f.elem, cases[i].elem);
            assert_int_equal(f.block, cases[i].kind == MOII_QUANT_FP8_BLOCK ? MOI_BLOCK_SQUARE : 0);
        }
        for (int k = 0; k < 5 && cases[i].no[k]; k++)
            if (moii_quant_config_has(c, cases[i].no[k], NULL)) fail_msg("%s: quantised under %s", cases[i].no[k], cases[i].config);
        moii_quant_config_free(c);
    }
}

static const moit_tensor stored[] = {
    { "p.weight", MOI_BF16, 2, { 130, 96 }, NULL },       { "q.weight", MOI_E4M3, 2, { 130, 96 }, NULL },
    { "q.weight_scale", MOI_U8, 2, { 130, 3 }, NULL },    { "q.weight_scale_inv", MOI_F32, 2, { 2, 1 }, NULL },
    { "q.weight_packed", MOI_U8, 2, { 130, 48 }, NULL },  { "b.experts.down_proj_blocks", MOI_U8, 4, { 2, 5, 3, 16 }, NULL },
    { "b.experts.down_proj_scales", MOI_U8, 3, { 2, 5, 3 }, NULL },
};

static void test_find(void **state)
{
    (void)state;
    static const struct { const char *config, *weight, *codes, *scales; int32_t rank; int64_t shape[3]; } finds[] = {
        { "{}", "p.weight", "p.weight", NULL, 2, { 130, 96 } },
        { FP8, "q.weight", "q.weight", "q.weight_scale_inv", 2, { 130, 96 } },
        { MODELOPT, "q.weight", "q.weight", "q.weight_scale", 2, { 130, 96 } },
        { CT8, "q.weight", "q.weight", "q.weight_scale", 2, { 130, 96 } },
        { CT("mxfp4-pack-quantized", "4", "[\"Linear\"]", "[\"p\"]"), "q.weight", "q.weight_packed", "q.weight_scale", 2, { 130, 96 } },
        { CT("mxfp4-pack-quantized", "4", "[\"Linear\"]", "[\"p\"]"), "p.weight", "p.weight", NULL, 2, { 130, 96 } },
        { BLOCKS, "b.experts.down_proj", "b.experts.down_proj_blocks", "b.experts.down_proj_scales", 3, { 2, 5, 96 } },
    };
    moii_shards *s;
    moit_write_model("stored", stored, sizeof stored / sizeof *stored, NULL);
    moit_ok(moii_shards_open(&s, moit_path("stored")));
    for (size_t i = 0; i < sizeof finds / sizeof *finds; i++) {
        moii_quant_config *c = parse(finds[i].config);
        moii_quant_weight w;
        moit_ok(moii_quant_find(c, s, finds[i].weight, finds[i].rank, finds[i].shape, &w));
        assert_int_equal(w.quantized, finds[i].scales != NULL);
        assert_string_equal(w.codes.name, finds[i].codes);
        assert_non_null(strstr(w.codes_file, "stored/model.safetensors"));
        if (w.quantized) assert_string_equal(w.scales.name, finds[i].scales);
        if (w.quantized) assert_string_equal(w.scales_file, w.codes_file);
        moii_quant_config_free(c);
    }
    moii_shards_close(s);
}

/* A list with an entry for every layer, asked for every expert weight of a large model. */
static void test_long_lists_are_fast(void **state)
{
    (void)state;
    enum { LAYERS = 94, WEIGHTS = 94 * 128 * 3 };
    char name[96];
    json_t *list = json_array();
    for (int l = 0; l < LAYERS; l++) {
        static const char *const kept[] = { "mlp.gate", "input_layernorm", "post_attention_layernorm" };
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "model.layers.%d.%s", l, kept[k]);
            json_array_append_new(list, json_string(name));
        }
    }
    json_t *config = json_pack("{s:{s:s, s:[i, i], s:o}}", "quantization_config", "quant_method", "fp8", "weight_block_size", 128, 128,
                               "modules_to_not_convert", list);
    moii_quant_config *c;
    moit_ok(moii_quant_config_parse(&c, "config.json", config));
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    int yes = 0;
    for (int i = 0; i < WEIGHTS; i++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s_proj.weight", i / 384, i / 3 % 128, i % 3 ? "up" : "down");
        yes += moii_quant_config_has(c, name, NULL);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_int_equal(yes, WEIGHTS);
    print_message("%d weights against %d entries: %.3f s\n", WEIGHTS, 3 * LAYERS, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    moii_quant_config_free(c);
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_conventions), cmocka_unit_test(test_find), cmocka_unit_test(test_long_lists_are_fast) };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
