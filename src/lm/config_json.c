/* SPDX-License-Identifier: Apache-2.0
 * config_json.c: config.json of Qwen3-MoE, read with suspicion: what this library would compute differently is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "json_file.h"
#include "status.h"

enum { CONFIG_MAX = 1 << 20 };

json_t *moii_json_float(float x)
{
    char text[32];
    double value = (double)x;
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        value = strtod(text, NULL);
        if ((float)value == x) break;
    }
    return json_real(value);
}

moi_status moii_json_get_float(const json_t *object, const char *where, const char *key, int need, double min, double max, float *out)
{
    double value = (double)*out;
    MOII_TRY(moii_json_real(object, where, key, need, min, max, &value));
    *out = (float)value;
    return MOI_OK;
}

typedef struct int_key { const char *key; int need; int64_t *out; } int_key;

static moi_status read_sizes(const json_t *j, const char *path, moi_lm_config *c)
{
    int64_t experts = -1;
    MOII_TRY(moii_json_int(j, path, "num_experts", MOII_JSON_OPTIONAL, 0, INT32_MAX, &experts));
    if (experts < 0) MOII_TRY(moii_json_int(j, path, "num_local_experts", MOII_JSON_REQUIRED, 0, INT32_MAX, &experts));
    c->num_experts = experts;
    c->decoder_sparse_step = 1;
    c->head_dim = 0;
    c->max_position_embeddings = 32768;
    const int_key keys[] = {
        { "vocab_size", MOII_JSON_REQUIRED, &c->vocab_size },
        { "hidden_size", MOII_JSON_REQUIRED, &c->hidden_size },
        { "num_hidden_layers", MOII_JSON_REQUIRED, &c->num_hidden_layers },
        { "num_attention_heads", MOII_JSON_REQUIRED, &c->num_attention_heads },
        { "num_key_value_heads", MOII_JSON_REQUIRED, &c->num_key_value_heads },
        { "head_dim", MOII_JSON_OPTIONAL, &c->head_dim },
        { "intermediate_size", MOII_JSON_REQUIRED, &c->intermediate_size },
        { "moe_intermediate_size", MOII_JSON_REQUIRED, &c->moe_intermediate_size },
        { "num_experts_per_tok", MOII_JSON_REQUIRED, &c->num_experts_per_tok },
        { "decoder_sparse_step", MOII_JSON_OPTIONAL, &c->decoder_sparse_step },
        { "max_position_embeddings", MOII_JSON_OPTIONAL, &c->max_position_embeddings },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) MOII_TRY(moii_json_int(j, path, keys[i].key, keys[i].need, 0, INT32_MAX, keys[i].out));
    if (c->head_dim == 0 && c->num_attention_heads > 0) c->head_dim = c->hidden_size / c->num_attention_heads;
    return MOI_OK;
}

static moi_status read_mlp_only(const json_t *j, const char *path, moi_lm_config *c)
{
    memset(c->mlp_only, 0, sizeof c->mlp_only);
    const json_t *list = json_object_get(j, "mlp_only_layers");
    if (!list || json_is_null(list)) return MOI_OK;
    MOII_REQUIRE(json_is_array(list), MOI_ERR_FORMAT, "%s: mlp_only_layers must be a list", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        MOII_REQUIRE(json_is_integer(item) && json_integer_value(item) >= 0 && json_integer_value(item) < MOI_LM_MAX_LAYERS, MOI_ERR_FORMAT,
                     "%s: mlp_only_layers[%zu] must be an integer 0..%d", path, i, MOI_LM_MAX_LAYERS - 1);
        c->mlp_only[json_integer_value(item)] = 1;
    }
    return MOI_OK;
}

static moi_status read_rope(const json_t *j, const char *path, moi_lm_config *c)
{
    const json_t *scaling = json_object_get(j, "rope_scaling"), *rope = json_object_get(j, "rope_parameters");
    MOII_REQUIRE(!scaling || json_is_null(scaling), MOI_ERR_FORMAT, "%s: rope_scaling is not supported; it must be null", path);
    c->rope_theta = 10000.0f;
    MOII_TRY(moii_json_get_float(j, path, "rope_theta", MOII_JSON_OPTIONAL, 1.0, 1e12, &c->rope_theta));
    if (!rope || json_is_null(rope)) return MOI_OK;
    MOII_REQUIRE(json_is_object(rope), MOI_ERR_FORMAT, "%s: rope_parameters must be an object", path);
    const char *type = "default";
    MOII_TRY(moii_json_string(rope, path, "rope_type", MOII_JSON_OPTIONAL, &type));
    MOII_REQUIRE(!strcmp(type, "default"), MOI_ERR_FORMAT, "%s: rope_type must be \"default\", got \"%.40s\"", path, type);
    return moii_json_get_float(rope, path, "rope_theta", MOII_JSON_OPTIONAL, 1.0, 1e12, &c->rope_theta);
}

static moi_status read_model(const json_t *j, const char *path, moi_lm_config *c)
{
    const char *type = "", *act = "silu";
    bool bias = false, sliding = false;
    MOII_TRY(moii_json_string(j, path, "model_type", MOII_JSON_REQUIRED, &type));
    MOII_REQUIRE(!strcmp(type, "qwen3_moe"), MOI_ERR_FORMAT, "%s: model_type must be \"qwen3_moe\", got \"%.40s\"", path, type);
    MOII_TRY(moii_json_string(j, path, "hidden_act", MOII_JSON_OPTIONAL, &act));
    MOII_REQUIRE(!strcmp(act, "silu"), MOI_ERR_FORMAT, "%s: hidden_act must be \"silu\", got \"%.40s\"", path, act);
    MOII_TRY(moii_json_bool(j, path, "attention_bias", MOII_JSON_OPTIONAL, &bias));
    MOII_TRY(moii_json_bool(j, path, "use_sliding_window", MOII_JSON_OPTIONAL, &sliding));
    MOII_REQUIRE(!bias && !sliding, MOI_ERR_FORMAT, "%s: %s is not supported; it must be false", path, bias ? "attention_bias" : "use_sliding_window");
    MOII_TRY(read_sizes(j, path, c));
    MOII_TRY(read_mlp_only(j, path, c));
    MOII_TRY(read_rope(j, path, c));
    c->rms_norm_eps = 1e-6f, c->initializer_range = 0.02f, c->router_aux_loss_coef = 0.001f;
    MOII_TRY(moii_json_get_float(j, path, "rms_norm_eps", MOII_JSON_OPTIONAL, 0.0, 1.0, &c->rms_norm_eps));
    MOII_TRY(moii_json_get_float(j, path, "initializer_range", MOII_JSON_OPTIONAL, 0.0, 1e3, &c->initializer_range));
    MOII_TRY(moii_json_get_float(j, path, "router_aux_loss_coef", MOII_JSON_OPTIONAL, 0.0, 1e6, &c->router_aux_loss_coef));
    c->norm_topk_prob = false, c->tie_word_embeddings = false;
    MOII_TRY(moii_json_bool(j, path, "norm_topk_prob", MOII_JSON_OPTIONAL, &c->norm_topk_prob));
    MOII_TRY(moii_json_bool(j, path, "tie_word_embeddings", MOII_JSON_OPTIONAL, &c->tie_word_embeddings));
    return moii_config_check(c, path, MOI_ERR_FORMAT);
}

moi_status moii_config_load(moi_lm_config *out, const char *path)
{
    json_t *j;
    moi_lm_config c = MOI_LM_CONFIG_INIT;
    MOII_TRY(moii_json_load(&j, path, CONFIG_MAX));
    moi_status status = read_model(j, path, &c);
    json_decref(j);
    if (!status) *out = c;
    return status;
}

json_t *moii_config_json(const moi_lm_config *c, moi_dtype dtype)
{
    json_t *only = json_array();
    for (int64_t l = 0; only && l < c->num_hidden_layers; l++)
        if (c->mlp_only[l] && json_array_append_new(only, json_integer(l))) {
            json_decref(only);
            only = NULL;
        }
    return json_pack("{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:s}",
                     "architectures", "Qwen3MoeForCausalLM", "model_type", "qwen3_moe", "hidden_act", "silu",
                     "vocab_size", (json_int_t)c->vocab_size, "hidden_size", (json_int_t)c->hidden_size,
                     "num_hidden_layers", (json_int_t)c->num_hidden_layers, "num_attention_heads", (json_int_t)c->num_attention_heads,
                     "num_key_value_heads", (json_int_t)c->num_key_value_heads, "head_dim", (json_int_t)c->head_dim,
                     "intermediate_size", (json_int_t)c->intermediate_size, "moe_intermediate_size", (json_int_t)c->moe_intermediate_size,
                     "num_experts", (json_int_t)c->num_experts, "num_experts_per_tok", (json_int_t)c->num_experts_per_tok,
                     "decoder_sparse_step", (json_int_t)c->decoder_sparse_step, "mlp_only_layers", only,
                     "max_position_embeddings", (json_int_t)c->max_position_embeddings, "rms_norm_eps", moii_json_float(c->rms_norm_eps),
                     "rope_theta", moii_json_float(c->rope_theta), "initializer_range", moii_json_float(c->initializer_range),
                     "router_aux_loss_coef", moii_json_float(c->router_aux_loss_coef), "norm_topk_prob", (int)c->norm_topk_prob,
                     "tie_word_embeddings", (int)c->tie_word_embeddings, "attention_bias", 0, "use_sliding_window", 0,
                     "torch_dtype", dtype == MOI_BF16 ? "bfloat16" : "float32");
}
