/* SPDX-License-Identifier: Apache-2.0 */
#include "support_hub.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const struct {
    const char *name, *codes, *scale;
    moi_format format;
    moi_dtype codes_type, scale_type;
    const char *config; /* one %s: a module that is kept */
} conventions[MOIT_CONVENTIONS] = {
    [MOIT_PLAIN] = { .name = "plain" },
    [MOIT_FP8_BLOCK] = { "fp8-block", "", "_scale_inv", { .recipe = MOI_RECIPE_BLK128, .elem = MOI_E4M3, .block = MOI_BLOCK_SQUARE }, MOI_E4M3, MOI_F32,
        "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 128],"
        "\"modules_to_not_convert\": [\"%s\"]}" },
    [MOIT_FP8_BLOCK_BF16] = { "fp8-block, bf16 scales", "", "_scale_inv",
        { .recipe = MOI_RECIPE_BLK128, .elem = MOI_E4M3, .block = MOI_BLOCK_SQUARE, .flags = MOI_SCALE_POW2 }, MOI_E4M3, MOI_BF16,
        "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"scale_fmt\": \"ue8m0\", \"modules_to_not_convert\": [\"%s\"]}" },
    [MOIT_MODELOPT_MXFP8] = { "modelopt mxfp8", "", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E4M3 }, MOI_E4M3, MOI_U8,
        "{\"quant_method\": \"modelopt\", \"quant_algo\": \"MXFP8\", \"ignore\": [\"lm_head\", \"%s\"]}" },
    [MOIT_CT_MXFP8] = { "compressed-tensors mxfp8", "", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E4M3 }, MOI_E4M3, MOI_U8,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp8-quantized\", \"ignore\": [\"lm_head\", \"re:.*mlp\\\\.gate$\", \"%s\"],"
        "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"group_size\": 32}}}}" },
    [MOIT_CT_MXFP4] = { "compressed-tensors mxfp4", "_packed", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M1 }, MOI_U8, MOI_U8,
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", \"ignore\": [\"lm_head\", \"re:.*mlp\\\\.gate$\", \"%s\"],"
        "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": \"float\", \"group_size\": 32}}}}" },
    [MOIT_BLOCKS_MXFP4] = { "mxfp4 blocks", "_blocks", "_scales", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M1 }, MOI_U8, MOI_U8,
        "{\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": [\"lm_head\", \"%s\"]}" },
};

const char *moit_hub_name(const moit_hub *hub)
{
    static char text[96];
    snprintf(text, sizeof text, "%s, %s%s%s%s%s", conventions[hub->convention].name, moi_dtype_name(hub->plain), hub->packed ? ", packed" : "",
             hub->odd ? ", odd" : "", hub->keep ? ", but " : "", hub->keep ? hub->keep : "");
    return text;
}

/* A weight to write: [experts, rows, cols], [rows, cols] or [rows]. */
typedef struct entry {
    char name[128];
    int64_t offset, experts, rows, cols;
    bool quantized;
    unsigned char *codes, *scales;
    int64_t codes_bytes, scales_bytes;
} entry;

static int64_t elements(const entry *e) { return (e->experts ? e->experts : 1) * e->rows * (e->cols ? e->cols : 1); }

static bool is_quantized(const moit_hub *hub, const entry *e)
{
    const bool packed = strstr(e->name, ".experts.gate_up_proj") || strstr(e->name, ".experts.down_proj");
    if (hub->convention == MOIT_PLAIN || !strstr(e->name, "_proj") || (hub->keep && strstr(e->name, hub->keep))) return false;
    return hub->convention != MOIT_BLOCKS_MXFP4 || packed;
}

static int list(const moi_lm *lm, const moit_hub *hub, entry *out)
{
    int n = 0;
    for (int64_t i = 0; i < lm->params.count; i++) {
        const moii_param *p = &lm->params.items[i];
        if (hub->packed && strstr(p->name, ".mlp.experts.")) continue;
        out[n] = (entry){ .offset = p->offset, .rows = p->rows, .cols = p->cols };
        snprintf(out[n++].name, sizeof out->name, "%s", p->name);
    }
    for (int l = 0; hub->packed && l < lm->config.num_hidden_layers; l++) {
        const moii_layer *y = &lm->params.layers[l];
        const int64_t h = lm->config.hidden_size, f = y->width;
        if (!y->sparse) continue;
        out[n] = (entry){ .offset = y->gate_up, .experts = y->experts, .rows = 2 * f, .cols = h };
        snprintf(out[n++].name, sizeof out->name, "model.layers.%d.mlp.experts.gate_up_proj", l);
        out[n] = (entry){ .offset = y->down, .experts = y->experts, .rows = h, .cols = f };
        snprintf(out[n++].name, sizeof out->name, "model.layers.%d.mlp.experts.down_proj", l);
    }
    for (int i = 0; i < n; i++) out[i].quantized = is_quantized(hub, &out[i]);
    return n;
}

static void encode_plain(moi_lm *lm, const moit_hub *hub, entry *e)
{
    e->codes_bytes = elements(e) * moi_dtype_bits(hub->plain) / 8;
    e->codes = calloc((size_t)e->codes_bytes + 1, 1);
    for (int64_t i = 0; i < elements(e); i++) {
        moi_encode(hub->plain, e->codes, i, lm->weights[e->offset + i]);
        lm->weights[e->offset + i] = moi_decode(hub->plain, e->codes, i);
    }
}

static void encode(moi_lm *lm, const moit_hub *hub, entry *e)
{
    const moi_format f = conventions[hub->convention].format;
    const int64_t n = e->experts ? e->experts : 1, row = moi_row_bytes(f.elem, e->cols), scales = moi_scale_bytes(&f, e->rows, e->cols, 0);
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.rowwise = f, d.max_rows = e->rows, d.cols = e->cols;
    moi_plan *p;
    moit_ok(moi_quantize_plan_create(&p, moit_ctx(1), &d));
    void *ws = moit_workspace(p), *in = moit_alloc(e->rows * e->cols * 4), *codes = moit_alloc(e->rows * row), *scale = moit_alloc(scales);
    e->codes_bytes = n * e->rows * row, e->scales_bytes = n * scales;
    e->codes = calloc((size_t)e->codes_bytes + 1, 1), e->scales = calloc((size_t)e->scales_bytes + 4, 1);
    for (int64_t x = 0; x < n; x++) {
        float *w = lm->weights + e->offset + x * e->rows * e->cols;
        memcpy(in, w, (size_t)(e->rows * e->cols) * 4);
        moi_quantize_args a = { .size = sizeof a, .rows = e->rows, .in = { in, NULL, 0 }, .rowwise = { codes, scale, 0 } };
        moit_ok(moi_quantize_run(p, &a, ws, moi_plan_workspace_bytes(p), NULL));
        memcpy(e->codes + x * e->rows * row, codes, (size_t)(e->rows * row));
        memcpy(e->scales + x * scales, scale, (size_t)scales);
        const int64_t block = moi_format_block(&f), per_row = (e->cols + block - 1) / block;
        for (int64_t r = 0; r < e->rows; r++)
            for (int64_t c = 0; c < e->cols; c++) {
                const int64_t at = (f.block == MOI_BLOCK_SQUARE ? r / 128 : r) * per_row + c / block;
                const float s = f.recipe == MOI_RECIPE_MX32 ? moi_decode(MOI_E8M0, scale, at) : ((float *)scale)[at];
                w[r * e->cols + c] = moi_decode(f.elem, (char *)codes + r * row, c) * s;
            }
    }
    if (conventions[hub->convention].scale_type == MOI_BF16) { /* powers of two: exact */
        for (int64_t i = 0; i < e->scales_bytes / 4; i++) {
            float s;
            memcpy(&s, e->scales + 4 * i, 4);
            moi_encode(MOI_BF16, e->scales, i, s);
        }
        e->scales_bytes /= 2;
    }
    moit_free(in), moit_free(codes), moit_free(scale), moit_free(ws);
    moi_plan_free(p);
}

static void declare(moi_st_writer *w, const moit_hub *hub, const entry *e)
{
    char name[160];
    int64_t shape[4] = { e->experts, e->rows, e->cols };
    const int first = e->experts ? 0 : 1;
    const int32_t rank = e->cols ? 3 - first : 1;
    if (!e->quantized) {
        moit_ok(moi_st_writer_declare(w, e->name, hub->plain, rank, shape + first));
        return;
    }
    const moi_format *f = &conventions[hub->convention].format;
    const int64_t block = moi_format_block(f), n = e->experts ? e->experts : 1;
    const moi_dtype scale_type = conventions[hub->convention].scale_type;
    int64_t scale_shape[4] = { e->experts, f->block == MOI_BLOCK_SQUARE ? (e->rows + 127) / 128 : e->rows, (e->cols + block - 1) / block };
    assert_int_equal(n * scale_shape[1] * scale_shape[2] * moi_dtype_bits(scale_type) / 8, e->scales_bytes);
    snprintf(name, sizeof name, "%.127s%s", e->name, conventions[hub->convention].codes);
    if (conventions[hub->convention].codes_type == MOI_U8) shape[2] /= 2;
    const bool blocks = hub->convention == MOIT_BLOCKS_MXFP4;
    if (blocks) shape[2] /= 16, shape[3] = 16;
    moit_ok(moi_st_writer_declare(w, name, conventions[hub->convention].codes_type, rank + blocks, shape + first));
    snprintf(name, sizeof name, "%.127s%s", e->name, conventions[hub->convention].scale);
    moit_ok(moi_st_writer_declare(w, name, scale_type, rank, scale_shape + first));
}

static void write_config(const moi_lm *lm, const char *folder, const moit_hub *hub)
{
    char path[400], text[600], keep[160];
    json_error_t error;
    moit_ok(moi_lm_save(lm, folder, MOI_F32));
    snprintf(path, sizeof path, "%s/config.json", folder);
    if (hub->convention == MOIT_PLAIN) return;
    snprintf(keep, sizeof keep, "%s", hub->keep ? hub->keep : "none");
    snprintf(text, sizeof text, conventions[hub->convention].config, keep);
    json_t *config = json_load_file(path, 0, &error), *q = json_loads(text, 0, &error);
    if (!config || !q) fail_msg("%s: %s", text, error.text);
    json_object_set_new(config, "quantization_config", q);
    assert_int_equal(json_dump_file(config, path, JSON_INDENT(2)), 0);
    json_decref(config);
}

void moit_hub_write(moi_lm *lm, const char *folder, const moit_hub *hub)
{
    static entry entries[1024];
    static const int64_t three[] = { 3 };
    char path[400];
    moi_st_writer *w;
    const int n = list(lm, hub, entries);
    write_config(lm, folder, hub);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    moit_ok(moi_st_writer_create(&w, path));
    if (hub->odd) moit_ok(moi_st_writer_declare(w, "odd", MOI_U8, 1, three));
    for (int i = 0; i < n; i++) {
        if (entries[i].quantized) encode(lm, hub, &entries[i]);
        else encode_plain(lm, hub, &entries[i]);
        declare(w, hub, &entries[i]);
    }
    if (hub->odd) moit_ok(moi_st_writer_write(w, "odd", 3));
    for (int i = 0; i < n; i++) {
        moit_ok(moi_st_writer_write(w, entries[i].codes, entries[i].codes_bytes));
        if (entries[i].quantized) moit_ok(moi_st_writer_write(w, entries[i].scales, entries[i].scales_bytes));
        free(entries[i].codes), free(entries[i].scales);
    }
    moit_ok(moi_st_writer_commit(w));
    lm->version++;
}
