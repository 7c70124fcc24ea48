/* SPDX-License-Identifier: Apache-2.0
 * test_folder_errors.c: a list of malformed model folders.  Each row takes a good folder, spoils one thing in one file (see
 * moit_spoil), and says what the one-line error must name: the file, the tensor or field, the reason. */
#include "support.h"
#include "support_files.h"
#include "support_folder.h"

#include <stdio.h>

#include "../src/lm/quant_config.h"
#include "../src/lm/shards.h"

#define A "model-00001-of-00002.safetensors"
#define B "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"
#define CONFIG "config.json"

static const moit_tensor plain[] = {
    { "a", MOI_F32, 2, { 4, 4 }, A }, { "b", MOI_BF16, 1, { 7 }, A }, { "c", MOI_F32, 2, { 4, 4 }, B }, { "d", MOI_U8, 1, { 3 }, B },
};

#define GATE "model.layers.0.mlp.experts.0.gate_proj.weight"
#define DOWN "model.layers.0.mlp.experts.0.down_proj.weight"
#define PACKED "model.layers.0.mlp.experts.gate_up_proj"

static const moit_tensor fp8[] = {
    { GATE, MOI_E4M3, 2, { 130, 256 }, A }, { GATE "_scale_inv", MOI_F32, 2, { 2, 2 }, B }, { DOWN, MOI_BF16, 2, { 256, 130 }, B },
};
static const moit_tensor mxfp8[] = {
    { GATE, MOI_E4M3, 2, { 130, 256 }, A }, { GATE "_scale", MOI_U8, 2, { 130, 8 }, B }, { DOWN, MOI_BF16, 2, { 256, 130 }, B },
};
static const moit_tensor mxfp4[] = {
    { GATE "_packed", MOI_U8, 2, { 130, 128 }, A }, { GATE "_scale", MOI_U8, 2, { 130, 8 }, B }, { DOWN, MOI_BF16, 2, { 256, 130 }, B },
};
static const moit_tensor blocks[] = {
    { PACKED "_blocks", MOI_U8, 4, { 2, 4, 8, 16 }, A }, { PACKED "_scales", MOI_U8, 3, { 2, 4, 8 }, B },
};

#define FP8_CONFIG "{\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\"," \
                   "\"weight_block_size\": [128, 128], \"modules_to_not_convert\": [\"down_proj\"]}}"
#define MODELOPT_CONFIG \
    "{\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"MXFP8\", \"group_size\": 32, \"ignore\": [\"down_proj\"]}}"
#define CT_CONFIG(format, bits) "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"" format "\"," \
    "\"quantization_status\": \"compressed\", \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": " bits "," \
    "\"type\": \"float\", \"strategy\": \"group\", \"group_size\": 32, \"symmetric\": true, \"dynamic\": false, \"scale_dtype\": \"torch.uint8\"}}}," \
    "\"ignore\": [\"re:.*down_proj$\"]}}"
#define BLOCKS_CONFIG "{\"quantization_config\": {\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": [\"model.layers.*.self_attn\"]}}"

typedef struct layout { const moit_tensor *tensors; int count; const char *config; } layout;
#define LAYOUT(tensors, config) { (tensors), (int)(sizeof(tensors) / sizeof *(tensors)), (config) }
enum { PLAIN, FP8, MODELOPT, CT8, CT4, BLOCKS };
static const layout layouts[] = {
    [PLAIN] = LAYOUT(plain, "{}"),
    [FP8] = LAYOUT(fp8, FP8_CONFIG),
    [MODELOPT] = LAYOUT(mxfp8, MODELOPT_CONFIG),
    [CT8] = LAYOUT(mxfp8, CT_CONFIG("mxfp8-quantized", "8")),
    [CT4] = LAYOUT(mxfp4, CT_CONFIG("mxfp4-pack-quantized", "4")),
    [BLOCKS] = LAYOUT(blocks, BLOCKS_CONFIG),
};

typedef struct row {
    int layout;
    const char *file, *from, *to;
    moi_status status;
    const char *names[3];
} row;

static const row rows[] = {
    /* the index */
    { PLAIN, INDEX, NULL, NULL, MOI_ERR_IO, { "errors", "no model here", "model.safetensors or model.safetensors.index.json" } },
    { PLAIN, INDEX, NULL, "<100", MOI_ERR_FORMAT, { INDEX, "line", "not valid JSON" } },
    { PLAIN, INDEX, NULL, "<0", MOI_ERR_FORMAT, { INDEX, "not valid JSON" } },
    { PLAIN, INDEX, NULL, "[1]", MOI_ERR_FORMAT, { INDEX, "wanted a JSON object" } },
    { PLAIN, INDEX, NULL, "{\"metadata\": {}}", MOI_ERR_FORMAT, { INDEX, "\"weight_map\" is missing" } },
    { PLAIN, INDEX, NULL, "{\"weight_map\": []}", MOI_ERR_FORMAT, { INDEX, "\"weight_map\"", "wanted an object" } },
    { PLAIN, INDEX, NULL, "{\"weight_map\": null}", MOI_ERR_FORMAT, { INDEX, "\"weight_map\"", "wanted an object" } },
    { PLAIN, INDEX, NULL, "{\"weight_map\": {}}", MOI_ERR_FORMAT, { INDEX, "\"weight_map\"", "at least one tensor" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": 7", MOI_ERR_FORMAT, { INDEX, "'b'", "wanted a file name as a string" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"../" A "\"", MOI_ERR_FORMAT,
      { INDEX, "'b'", "wanted the plain name of a file in this folder, got '../" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"/etc/passwd\"", MOI_ERR_FORMAT, { INDEX, "'b'", "got '/etc/passwd'" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"..\"", MOI_ERR_FORMAT, { INDEX, "'b'", "got '..'" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"\"", MOI_ERR_FORMAT, { INDEX, "'b'", "got ''" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"" A "\", \"b\": \"" B "\"", MOI_ERR_FORMAT, { INDEX, "\"b\"", "duplicate" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"" B "\"", MOI_ERR_FORMAT,
      { INDEX, "'b'", "shard '" B "', which lacks it; it is in '" A "'" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"" A "\", \"e\": \"" A "\"", MOI_ERR_FORMAT, { INDEX, "'e'", "'" A "', which lacks it" } },
    { PLAIN, INDEX, "\"b\": \"" A "\"", "\"b\": \"x.safetensors\"", MOI_ERR_IO,
      { INDEX, "'b'", "the shard 'x.safetensors', which is missing" } },
    /* the shards */
    { PLAIN, B, NULL, NULL, MOI_ERR_IO, { INDEX, "'c'", "the shard '" B "', which is missing" } },
    { PLAIN, B, NULL, "<20", MOI_ERR_FORMAT, { B, "truncated" } },
    { PLAIN, B, NULL, "<0", MOI_ERR_FORMAT, { B, "wanted a safetensors file" } },
    { PLAIN, B, NULL, "<200", MOI_ERR_FORMAT, { B, "'", "data_offsets must ascend within" } },
    { PLAIN, B, "\"c\":", "\"a\":", MOI_ERR_FORMAT, { B, "'a'", "is also in " A } },
    { PLAIN, B, "\"d\":", "\"c\":", MOI_ERR_FORMAT, { B, "'c'", "is there twice" } },
    { PLAIN, B, "\"F32\"", "\"F31\"", MOI_ERR_FORMAT, { B, "'c'", "unknown dtype 'F31'" } },
    { PLAIN, B, "[4,4]", "[-4,-4]", MOI_ERR_FORMAT, { B, "'c'", "dimension 0 must be an integer >= 0" } },
    { PLAIN, B, "[4,4]", "[4,5]", MOI_ERR_FORMAT, { B, "'c'", "its shape wants 80 bytes" } },
    { PLAIN, B, "[4,4]", "[4,4611686018427387904]", MOI_ERR_FORMAT, { B, "'c'", "overflows" } },
    { PLAIN, B, "[0,64]", "[4,68]", MOI_ERR_FORMAT, { B, "'", "" } },
    /* quantization_config */
    { FP8, CONFIG, NULL, NULL, MOI_ERR_IO, { CONFIG, "No such file" } },
    { FP8, CONFIG, NULL, "<40", MOI_ERR_FORMAT, { CONFIG, "not valid JSON" } },
    { FP8, CONFIG, NULL, "{\"quantization_config\": 3}", MOI_ERR_FORMAT, { CONFIG, "quantization_config", "wanted an object" } },
    { FP8, CONFIG, "\"fp8\"", "\"gptq\"", MOI_ERR_FORMAT, { CONFIG, "quantization_config.quant_method", "wanted \"fp8\"", } },
    { FP8, CONFIG, "\"quant_method\": \"fp8\",", "", MOI_ERR_FORMAT, { CONFIG, "quantization_config.quant_method", "got nothing" } },
    { FP8, CONFIG, "e4m3", "e5m2", MOI_ERR_FORMAT, { CONFIG, "quantization_config.fmt", "wanted \"e4m3\", got \"e5m2\"" } },
    { FP8, CONFIG, "\"dynamic\"", "\"static\"", MOI_ERR_FORMAT,
      { CONFIG, "quantization_config.activation_scheme", "wanted \"dynamic\", got \"static\"" } },
    { FP8, CONFIG, "[128, 128]", "[64, 64]", MOI_ERR_FORMAT,
      { CONFIG, "quantization_config.weight_block_size", "wanted [128, 128], got [64,64]" } },
    { FP8, CONFIG, "[128, 128]", "null", MOI_ERR_FORMAT, { CONFIG, "quantization_config.weight_block_size", "got null" } },
    { FP8, CONFIG, "[128, 128]", "[-128, 128]", MOI_ERR_FORMAT, { CONFIG, "quantization_config.weight_block_size", "got [-128,128]" } },
    { FP8, CONFIG, "[128, 128],", "[128, 128], \"scale_fmt\": \"e5m3\",", MOI_ERR_FORMAT,
      { CONFIG, "quantization_config.scale_fmt", "got \"e5m3\"" } },
    { FP8, CONFIG, "[\"down_proj\"]", "[7]", MOI_ERR_FORMAT,
      { CONFIG, "quantization_config.modules_to_not_convert", "wanted a list of module names, got 7" } },
    { FP8, CONFIG, "[\"down_proj\"]", "\"down_proj\"", MOI_ERR_FORMAT,
      { CONFIG, "quantization_config.modules_to_not_convert", "wanted a list" } },
    { MODELOPT, CONFIG, "MXFP8", "NVFP4", MOI_ERR_FORMAT, { CONFIG, "quantization_config.quant_algo", "wanted \"MXFP8\", got \"NVFP4\"" } },
    { MODELOPT, CONFIG, "\"group_size\": 32", "\"group_size\": 16", MOI_ERR_FORMAT,
      { CONFIG, "quantization_config.group_size", "wanted 32, got 16" } },
    { CT8, CONFIG, "mxfp8-quantized", "nvfp4-pack-quantized", MOI_ERR_FORMAT,
      { CONFIG, "quantization_config.format", "got \"nvfp4-pack-quantized\"" } },
    { CT8, CONFIG, "\"group_size\": 32", "\"group_size\": 16", MOI_ERR_FORMAT,
      { CONFIG, "config_groups.group_0.weights.group_size", "wanted 32, got 16" } },
    { CT8, CONFIG, "\"group_size\": 32", "\"group_size\": -32", MOI_ERR_FORMAT,
      { CONFIG, "config_groups.group_0.weights.group_size", "got -32" } },
    { CT8, CONFIG, "\"num_bits\": 8", "\"num_bits\": 4", MOI_ERR_FORMAT,
      { CONFIG, "config_groups.group_0.weights.num_bits", "wanted 8, got 4" } },
    { CT8, CONFIG, "\"float\"", "\"int\"", MOI_ERR_FORMAT, { CONFIG, "config_groups.group_0.weights.type", "wanted float, got \"int\"" } },
    { CT8, CONFIG, "\"group\"", "\"channel\"", MOI_ERR_FORMAT, { CONFIG, "config_groups.group_0.weights.strategy", "got \"channel\"" } },
    { CT8, CONFIG, "torch.uint8", "torch.float8_e4m3fn", MOI_ERR_FORMAT,
      { CONFIG, "config_groups.group_0.weights.scale_dtype", "got \"torch.float8_e4m3fn\"" } },
    { CT8, CONFIG, "true", "false", MOI_ERR_FORMAT, { CONFIG, "config_groups.group_0.weights.symmetric", "wanted true, got false" } },
    { CT8, CONFIG, "\"dynamic\": false", "\"dynamic\": true", MOI_ERR_FORMAT,
      { CONFIG, "config_groups.group_0.weights.dynamic", "wanted false, got true" } },
    { CT8, CONFIG, "\"compressed\"", "\"frozen\"", MOI_ERR_FORMAT,
      { CONFIG, "quantization_config.quantization_status", "got \"frozen\"" } },
    { CT8, CONFIG, "[\"Linear\"]", "[]", MOI_ERR_FORMAT, { CONFIG, "config_groups.group_0.targets", "got []" } },
    { CT8, CONFIG, "re:.*down_proj$", "re:(down_proj", MOI_ERR_FORMAT, { CONFIG, "ignore", "got \"re:(down_proj\"" } },
    { CT8, CONFIG, "re:.*down_proj$", "re:[z-a]", MOI_ERR_FORMAT, { CONFIG, "ignore", "got \"re:[z-a]\"" } },
    { CT8, CONFIG, "re:.*down_proj$", "re:down_proj\\\\", MOI_ERR_FORMAT, { CONFIG, "ignore", "wanted a regular expression" } },
    { CT8, CONFIG, "\"config_groups\"", "\"groups\"", MOI_ERR_FORMAT, { CONFIG, "quantization_config.config_groups", "got nothing" } },
    /* the tensors that it promises */
    { FP8, CONFIG, "down_proj", "up_proj", MOI_ERR_FORMAT, { B, "'" DOWN "'", "wanted dtype F8_E4M3, got BF16" } },
    { FP8, CONFIG, "down_proj", "gate_proj", MOI_ERR_FORMAT, { A, "'" GATE "'", "wanted dtype BF16 or F32 or F16, got F8_E4M3" } },
    { FP8, CONFIG, "\"quantization_config\"", "\"other\"", MOI_ERR_FORMAT,
      { A, "'" GATE "'", "wanted dtype BF16 or F32 or F16, got F8_E4M3" } },
    { FP8, A, "F8_E4M3", "F8_E5M2", MOI_ERR_FORMAT, { A, "'" GATE "'", "wanted dtype F8_E4M3, got F8_E5M2" } },
    { FP8, A, "[130,256]", "[256,130]", MOI_ERR_FORMAT, { A, "'" GATE "'", "wanted shape [130, 256], got [256, 130]" } },
    { FP8, B, "[2,2]", "[4,1]", MOI_ERR_FORMAT, { B, "'" GATE "_scale_inv'", "wanted shape [2, 2], got [4, 1]" } },
    { FP8, B, "[2,2]", "[4]", MOI_ERR_FORMAT, { B, "'" GATE "_scale_inv'", "wanted shape [2, 2], got [4]" } },
    { FP8, B, "F32", "I32", MOI_ERR_FORMAT, { B, "'" GATE "_scale_inv'", "wanted dtype F32 or BF16, got I32" } },
    { FP8, INDEX, "\"" GATE "_scale_inv\": \"" B "\",", "", MOI_ERR_FORMAT, { INDEX, "'" GATE "_scale_inv' is missing", "fp8" } },
    { FP8, INDEX, "\"" GATE "\": \"" A "\",", "", MOI_ERR_FORMAT, { INDEX, "'" GATE "' is missing", "quantization_config" } },
    { MODELOPT, B, "[130,8]", "[8,130]", MOI_ERR_FORMAT, { B, "'" GATE "_scale'", "wanted shape [130, 8], got [8, 130]" } },
    { MODELOPT, B, "\"U8\"", "\"I8\"", MOI_ERR_FORMAT, { B, "'" GATE "_scale'", "wanted dtype U8 or F8_E8M0, got I8" } },
    { CT8, A, "F8_E4M3", "U8", MOI_ERR_FORMAT, { A, "'" GATE "'", "wanted dtype F8_E4M3, got U8" } },
    { CT8, CONFIG, "down_proj", "up_proj", MOI_ERR_FORMAT, { CONFIG, "'" DOWN "'", "wanted rows of a multiple of 32, got 130" } },
    { CT4, A, "[130,128]", "[128,130]", MOI_ERR_FORMAT, { A, "'" GATE "_packed'", "wanted shape [130, 128], got [128, 130]" } },
    { CT4, A, "\"U8\"", "\"I8\"", MOI_ERR_FORMAT, { A, "'" GATE "_packed'", "wanted dtype U8, got I8" } },
    { BLOCKS, A, "[2,4,8,16]", "[2,4,16,8]", MOI_ERR_FORMAT,
      { A, "'" PACKED "_blocks'", "wanted shape [2, 4, 8, 16], got [2, 4, 16, 8]" } },
    { BLOCKS, B, "[2,4,8]", "[2,8,4]", MOI_ERR_FORMAT, { B, "'" PACKED "_scales'", "wanted shape [2, 4, 8], got [2, 8, 4]" } },
};

static moi_status find(const moii_quant_config *c, const moii_shards *s, const char *weight, int32_t rank, const int64_t *shape)
{
    moii_quant_weight w;
    return moii_quant_find(c, s, weight, rank, shape, &w);
}

static moi_status open_folder(const char *folder, int layout_of)
{
    moii_shards *shards = NULL;
    moii_quant_config *config = NULL;
    moi_status status = moii_quant_config_load(&config, folder);
    if (!status) status = moii_shards_open(&shards, folder);
    if (!status && layout_of == BLOCKS) status = find(config, shards, PACKED, 3, (const int64_t[]){ 2, 4, 256 });
    if (!status && layout_of != PLAIN && layout_of != BLOCKS) {
        status = find(config, shards, GATE, 2, (const int64_t[]){ 130, 256 });
        if (!status) status = find(config, shards, DOWN, 2, (const int64_t[]){ 256, 130 });
    }
    moii_shards_close(shards);
    moii_quant_config_free(config);
    return status;
}

static void test_rows(void **state)
{
    (void)state;
    char folder[320], path[400];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        const layout *l = &layouts[r->layout];
        moit_write_model("errors", l->tensors, l->count, l->config);
        strcpy(folder, moit_path("errors"));
        moit_ok(open_folder(folder, r->layout));
        snprintf(path, sizeof path, "%s/%s", folder, r->file);
        moit_spoil(path, r->from, r->to);
        for (int k = 0; k < 3 && r->names[k]; k++) moit_refused(open_folder(folder, r->layout), r->status, r->names[k]);
        assert_null(strchr(moi_last_error(), '\n'));
    }
    assert_int_equal(moit_entries(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows) };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
