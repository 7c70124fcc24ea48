/* SPDX-License-Identifier: Apache-2.0
 * config.c: checks a model's configuration. */
#include "config.h"

#include <math.h>

#include "ctx.h"
#include "status.h"

typedef struct limit { const char *name; int64_t value, min, max; } limit;

bool moii_config_sparse(const moi_lm_config *c, int64_t layer)
{
    return c->num_experts > 0 && !c->mlp_only[layer] && (layer + 1) % c->decoder_sparse_step == 0;
}

static moi_status check_sizes(const moi_lm_config *c, const char *where, moi_status status)
{
    enum { WIDE = 1 << 20 };
    const limit limits[] = {
        { "vocab_size", c->vocab_size, 1, 1 << 24 },
        { "hidden_size", c->hidden_size, 1, WIDE },
        { "num_hidden_layers", c->num_hidden_layers, 1, MOI_LM_MAX_LAYERS },
        { "num_attention_heads", c->num_attention_heads, 1, 4096 },
        { "num_key_value_heads", c->num_key_value_heads, 1, 4096 },
        { "head_dim", c->head_dim, 2, 4096 },
        { "intermediate_size", c->intermediate_size, 1, WIDE },
        { "moe_intermediate_size", c->moe_intermediate_size, 1, WIDE },
        { "num_experts", c->num_experts, 0, 65536 },
        { "num_experts_per_tok", c->num_experts_per_tok, c->num_experts ? 1 : 0, c->num_experts ? c->num_experts : 65536 },
        { "decoder_sparse_step", c->decoder_sparse_step, 1, MOI_LM_MAX_LAYERS },
        { "max_position_embeddings", c->max_position_embeddings, 1, 1 << 24 },
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        MOII_REQUIRE(limits[i].value >= limits[i].min && limits[i].value <= limits[i].max, status, "%s: %s must be %lld..%lld, got %lld", where,
                     limits[i].name, (long long)limits[i].min, (long long)limits[i].max, (long long)limits[i].value);
    MOII_REQUIRE(c->num_attention_heads % c->num_key_value_heads == 0, status,
                 "%s: num_attention_heads must be a multiple of num_key_value_heads, got %lld and %lld", where,
                 (long long)c->num_attention_heads, (long long)c->num_key_value_heads);
    MOII_REQUIRE(c->head_dim % 2 == 0, status, "%s: head_dim must be even, got %lld", where, (long long)c->head_dim);
    return MOI_OK;
}

moi_status moii_config_check(const moi_lm_config *c, const char *where, moi_status status)
{
    MOII_TRY(check_sizes(c, where, status));
    const struct { const char *name; float value, min, max; } reals[] = {
        { "rms_norm_eps", c->rms_norm_eps, 0.0f, 1.0f },
        { "rope_theta", c->rope_theta, 1.0f, 1e12f },
        { "initializer_range", c->initializer_range, 0.0f, 1e3f },
        { "router_aux_loss_coef", c->router_aux_loss_coef, 0.0f, 1e6f },
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        MOII_REQUIRE(reals[i].value >= reals[i].min && reals[i].value <= reals[i].max, status, "%s: %s must be %g..%g, got %g", where,
                     reals[i].name, (double)reals[i].min, (double)reals[i].max, (double)reals[i].value);
    for (int64_t l = 0; l < c->num_hidden_layers; l++)
        MOII_REQUIRE(c->mlp_only[l] <= 1, status, "%s: mlp_only[%lld] must be 0 or 1, got %d", where, (long long)l, c->mlp_only[l]);
    return MOI_OK;
}

moi_status moii_options_take(moi_lm_options *out, const moi_lm_options *options, const char *where)
{
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    if (options) MOII_TRY(moii_take(&o, sizeof o, options, where));
    MOII_REQUIRE((unsigned)o.recipe <= MOI_RECIPE_BLK128, MOI_ERR_ARG, "%s.recipe is unknown: %d", where, (int)o.recipe);
    MOII_REQUIRE((unsigned)o.round <= MOI_ROUND_EVEN, MOI_ERR_ARG, "%s.round is unknown: %d", where, (int)o.round);
    *out = o;
    return MOI_OK;
}
