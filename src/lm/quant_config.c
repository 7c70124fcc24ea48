/* SPDX-License-Identifier: Apache-2.0
 * quant_config.c: reading "quantization_config".  What is not one of the conventions in the header is refused, field by field. */
#include "quant_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "json_file.h"
#include "module_list.h"
#include "quant_config_types.h"
#include "safetensors.h"
#include "status.h"

enum { CONFIG_MAX = 1 << 24, SHOWN = 80 };

typedef struct reader { const char *where; moii_quant_config *config; } reader;

/* "config.json: quantization_config.FIELD: wanted W, got G"; NULL is a missing field. */
static moi_status refuse(const reader *r, const char *field, const char *wanted, const json_t *got)
{
    char shown[MOII_ST_SHOWN] = "nothing";
    char *text = got ? json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (text) moii_st_show(shown, text);
    free(text);
    return moii_fail(MOI_ERR_FORMAT, "%s: quantization_config.%s: wanted %s, got %.*s", r->where, field, wanted, (int)SHOWN, shown);
}

static bool is_text(const json_t *v, const char *text) { return json_is_string(v) && !strcmp(json_string_value(v), text); }
static bool is_int(const json_t *v, int64_t n) { return json_is_integer(v) && json_integer_value(v) == n; }
static bool is_absent(const json_t *v) { return !v || json_is_null(v); }
static bool is_empty(const json_t *v) { return is_absent(v) || (json_is_object(v) && !json_object_size(v)) || (json_is_array(v) && !json_array_size(v)); }

/* A list of names that may be missing. */
static moi_status read_list(const reader *r, const json_t *q, const char *key, const char *field, moii_module_list *list)
{
    const json_t *names = json_object_get(q, key);
    if (is_absent(names)) return MOI_OK;
    if (!json_is_array(names)) return refuse(r, field, "a list of module names", names);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const json_t *name = json_array_get(names, i);
        if (!json_is_string(name)) return refuse(r, field, "a list of module names", name);
        MOII_TRY(moii_module_list_add(list, r->where, field, json_string_value(name)));
    }
    return MOI_OK;
}

static moi_status read_fp8(const reader *r, const json_t *q)
{
    const json_t *fmt = json_object_get(q, "fmt"), *scheme = json_object_get(q, "activation_scheme");
    const json_t *block = json_object_get(q, "weight_block_size"), *scale = json_object_get(q, "scale_fmt");
    const json_t *convert = json_object_get(q, "modules_to_convert");
    r->config->kind = MOII_QUANT_FP8_BLOCK;
    if (!is_absent(fmt) && !is_text(fmt, "e4m3")) return refuse(r, "fmt", "\"e4m3\"", fmt);
    if (!is_absent(scheme) && !is_text(scheme, "dynamic")) return refuse(r, "activation_scheme", "\"dynamic\"", scheme);
    if (json_array_size(block) != 2 || !is_int(json_array_get(block, 0), 128) || !is_int(json_array_get(block, 1), 128))
        return refuse(r, "weight_block_size", "[128, 128]", block);
    if (!is_absent(scale) && !is_text(scale, "float") && !is_text(scale, "ue8m0")) return refuse(r, "scale_fmt", "\"float\" or \"ue8m0\"", scale);
    if (!is_empty(convert)) return refuse(r, "modules_to_convert", "nothing", convert);
    MOII_TRY(moii_module_list_create(&r->config->kept, MOII_MODULE_PARTS));
    MOII_TRY(read_list(r, q, "modules_to_not_convert", "modules_to_not_convert", r->config->kept));
    return read_list(r, q, "ignored_layers", "ignored_layers", r->config->kept);
}

/* Its exporter writes "ignore" into config.json and "exclude_modules" into a file of its own, which tools copy over. */
static moi_status read_modelopt(const reader *r, const json_t *q)
{
    const json_t *algo = json_object_get(q, "quant_algo"), *group = json_object_get(q, "group_size");
    r->config->kind = MOII_QUANT_MODELOPT_MXFP8;
    if (!is_text(algo, "MXFP8")) return refuse(r, "quant_algo", "\"MXFP8\"", algo);
    if (!is_absent(group) && !is_int(group, 32)) return refuse(r, "group_size", "32", group);
    MOII_TRY(moii_module_list_create(&r->config->kept, MOII_MODULE_PARTS));
    MOII_TRY(read_list(r, q, "exclude_modules", "exclude_modules", r->config->kept));
    return read_list(r, q, "ignore", "ignore", r->config->kept);
}

static moi_status read_blocks(const reader *r, const json_t *q)
{
    r->config->kind = MOII_QUANT_BLOCKS_MXFP4;
    MOII_TRY(moii_module_list_create(&r->config->kept, MOII_MODULE_PARTS));
    return read_list(r, q, "modules_to_not_convert", "modules_to_not_convert", r->config->kept);
}

/* ---- compressed-tensors ---- */

static moi_status read_group_weights(const reader *r, const char *group, const json_t *w, int bits)
{
    char field[2 * SHOWN], number[8];
    const struct { const char *key; const char *text; int64_t number; bool optional; } rules[] = {
        { "num_bits", NULL, bits, false }, { "type", "float", 0, false }, { "strategy", "group", 0, true }, { "group_size", NULL, 32, false },
        { "scale_dtype", "torch.uint8", 0, true },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const json_t *v = json_object_get(w, rules[i].key);
        if ((is_absent(v) && rules[i].optional) || (rules[i].text ? is_text(v, rules[i].text) : is_int(v, rules[i].number))) continue;
        snprintf(field, sizeof field, "config_groups.%.*s.weights.%s", (int)SHOWN, group, rules[i].key);
        snprintf(number, sizeof number, "%d", (int)rules[i].number);
        return refuse(r, field, rules[i].text ? rules[i].text : number, v);
    }
    const json_t *symmetric = json_object_get(w, "symmetric"), *dynamic = json_object_get(w, "dynamic");
    snprintf(field, sizeof field, "config_groups.%.*s.weights.%s", (int)SHOWN, group, json_is_false(symmetric) ? "symmetric" : "dynamic");
    if (json_is_false(symmetric)) return refuse(r, field, "true", symmetric);
    if (!is_absent(dynamic) && !json_is_false(dynamic)) return refuse(r, field, "false", dynamic);
    return MOI_OK;
}

static moi_status read_group(const reader *r, const char *name, const json_t *group, const char *format, int bits)
{
    char shown[MOII_ST_SHOWN], field[2 * SHOWN];
    moii_st_show(shown, name);
    snprintf(field, sizeof field, "config_groups.%.*s", (int)SHOWN, shown);
    if (!json_is_object(group)) return refuse(r, field, "an object with targets and weights", group);
    const json_t *own = json_object_get(group, "format"), *weights = json_object_get(group, "weights"), *targets = json_object_get(group, "targets");
    if (!is_absent(own) && !is_text(own, format)) {
        snprintf(field, sizeof field, "config_groups.%.*s.format", (int)SHOWN, shown);
        return refuse(r, field, format, own);
    }
    snprintf(field, sizeof field, "config_groups.%.*s.weights", (int)SHOWN, shown);
    if (!json_is_object(weights)) return refuse(r, field, "an object", weights);
    MOII_TRY(read_group_weights(r, shown, weights, bits));
    snprintf(field, sizeof field, "config_groups.%.*s.targets", (int)SHOWN, shown);
    if (!json_array_size(targets)) return refuse(r, field, "a list such as [\"Linear\"]", targets);
    for (size_t i = 0; i < json_array_size(targets); i++) /* the class of every weight that we are asked for */
        if (is_text(json_array_get(targets, i), "Linear")) r->config->all_linear = true;
    return read_list(r, group, "targets", field, r->config->targets);
}

static moi_status read_compressed(const reader *r, const json_t *q)
{
    const json_t *format = json_object_get(q, "format"), *groups = json_object_get(q, "config_groups");
    const json_t *transform = json_object_get(json_object_get(q, "transform_config"), "config_groups");
    const json_t *sparsity = json_object_get(q, "sparsity_config"), *status = json_object_get(q, "quantization_status");
    const char *name;
    json_t *group;
    bool mxfp8 = is_text(format, "mxfp8-quantized");
    r->config->kind = mxfp8 ? MOII_QUANT_CT_MXFP8 : MOII_QUANT_CT_MXFP4;
    if (!mxfp8 && !is_text(format, "mxfp4-pack-quantized")) return refuse(r, "format", "\"mxfp8-quantized\" or \"mxfp4-pack-quantized\"", format);
    if (!is_absent(status) && !is_text(status, "compressed")) return refuse(r, "quantization_status", "\"compressed\"", status);
    if (!is_empty(transform)) return refuse(r, "transform_config.config_groups", "nothing", transform);
    if (!is_empty(sparsity) && !is_text(json_object_get(sparsity, "format"), "dense")) return refuse(r, "sparsity_config", "nothing", sparsity);
    if (!json_is_object(groups) || !json_object_size(groups)) return refuse(r, "config_groups", "an object with at least one group", groups);
    MOII_TRY(moii_module_list_create(&r->config->targets, MOII_MODULE_EXACT));
    MOII_TRY(moii_module_list_create(&r->config->kept, MOII_MODULE_EXACT));
    json_object_foreach((json_t *)(uintptr_t)groups, name, group) MOII_TRY(read_group(r, name, group, json_string_value(format), mxfp8 ? 8 : 4));
    return read_list(r, q, "ignore", "ignore", r->config->kept);
}

/* ---- all ---- */

static moi_status read_method(const reader *r, const json_t *q)
{
    const json_t *method = json_object_get(q, "quant_method");
    if (is_text(method, "fp8")) return read_fp8(r, q);
    if (is_text(method, "modelopt")) return read_modelopt(r, q);
    if (is_text(method, "compressed-tensors")) return read_compressed(r, q);
    if (is_text(method, "mxfp4")) return read_blocks(r, q);
    return refuse(r, "quant_method", "\"fp8\", \"modelopt\", \"compressed-tensors\" or \"mxfp4\"", method);
}

moi_status moii_quant_config_parse(moii_quant_config **out, const char *where, const json_t *config)
{
    const json_t *q = json_object_get(config, "quantization_config");
    *out = NULL;
    moii_quant_config *c = calloc(1, sizeof *c);
    if (c) c->where = strdup(where);
    moi_status status = c && c->where ? MOI_OK : moii_fail(MOI_ERR_NOMEM, "%s: no memory", where);
    const reader r = { where, c };
    if (!status && !is_absent(q) && !json_is_object(q)) status = moii_fail(MOI_ERR_FORMAT, "%s: quantization_config: wanted an object", where);
    if (!status && !is_absent(q)) status = read_method(&r, q);
    if (status) moii_quant_config_free(c);
    else *out = c;
    return status;
}

moi_status moii_quant_config_load(moii_quant_config **out, const char *folder)
{
    moii_path path;
    json_t *config;
    *out = NULL;
    MOII_TRY(moii_folder_path(&path, folder, "config.json"));
    MOII_TRY(moii_json_load(&config, path.text, CONFIG_MAX));
    moi_status status = moii_quant_config_parse(out, path.text, config);
    json_decref(config);
    return status;
}

void moii_quant_config_free(moii_quant_config *c)
{
    if (!c) return;
    moii_module_list_free(c->targets);
    moii_module_list_free(c->kept);
    free(c->where);
    free(c);
}

moii_quant_kind moii_quant_config_kind(const moii_quant_config *c) { return c->kind; }

const char *moii_quant_config_name(const moii_quant_config *c)
{
    static const char *const names[] = { "none", "fp8 in blocks", "modelopt MXFP8", "compressed-tensors mxfp8-quantized",
                                         "compressed-tensors mxfp4-pack-quantized", "mxfp4 in blocks" };
    return names[c->kind];
}
