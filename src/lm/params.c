/* SPDX-License-Identifier: Apache-2.0
 * params.c: lays a model's tensors out: matrices first, norms behind them, so that weight decay is one stretch. */
#include "params.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "format.h"
#include "status.h"

enum { ALIGN_FLOATS = 32 };

static moi_status add(moii_params *p, int64_t offset, int64_t rows, int64_t cols, const char *format, ...) __attribute__((format(printf, 5, 6)));
static moi_status add(moii_params *p, int64_t offset, int64_t rows, int64_t cols, const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 64;
        moii_param *items = realloc(p->items, (size_t)room * sizeof *items);
        MOII_REQUIRE(items, MOI_ERR_NOMEM, "moi_lm: no memory for the list of tensors");
        p->items = items;
        p->room = room;
    }
    char *copy = strdup(name);
    MOII_REQUIRE(copy, MOI_ERR_NOMEM, "moi_lm: no memory for the list of tensors");
    p->items[p->count++] = (moii_param){ copy, offset, rows, cols };
    p->elements += rows * (cols ? cols : 1);
    return MOI_OK;
}

/* The next `n` floats; *at goes on, aligned. */
static int64_t take(int64_t *at, int64_t n)
{
    int64_t here = *at;
    *at = moii_round_up(here + n, ALIGN_FLOATS);
    return here;
}

static void place_layer(moii_layer *y, const moi_lm_config *c, int64_t l, int64_t *matrices)
{
    const int64_t h = c->hidden_size, q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    y->sparse = moii_config_sparse(c, l);
    y->experts = y->sparse ? c->num_experts : 1;
    y->top_k = y->sparse ? c->num_experts_per_tok : 1;
    y->width = y->sparse ? c->moe_intermediate_size : c->intermediate_size;
    y->qkv = take(matrices, (q + 2 * kv) * h);
    y->o = take(matrices, h * q);
    y->router = y->sparse ? take(matrices, y->experts * h) : 0;
    y->gate_up = take(matrices, y->experts * 2 * y->width * h);
    y->down = take(matrices, y->experts * h * y->width);
}

static void place_norms(moii_layer *y, const moi_lm_config *c, int64_t *at)
{
    y->norm1 = take(at, c->hidden_size);
    y->q_norm = take(at, c->head_dim);
    y->k_norm = take(at, c->head_dim);
    y->norm2 = take(at, c->hidden_size);
}

static moi_status name_expert(moii_params *p, const moii_layer *y, int64_t h, long long l, int64_t e)
{
    char mlp[80];
    const int64_t f = y->width, gate = y->gate_up + e * 2 * f * h;
    if (y->sparse) snprintf(mlp, sizeof mlp, "model.layers.%lld.mlp.experts.%lld", l, (long long)e);
    else snprintf(mlp, sizeof mlp, "model.layers.%lld.mlp", l);
    MOII_TRY(add(p, gate, f, h, "%s.gate_proj.weight", mlp));
    MOII_TRY(add(p, gate + f * h, f, h, "%s.up_proj.weight", mlp));
    return add(p, y->down + e * h * f, h, f, "%s.down_proj.weight", mlp);
}

static moi_status name_layer(moii_params *p, const moi_lm_config *c, int64_t layer)
{
    const moii_layer *y = &p->layers[layer];
    const int64_t h = c->hidden_size, q = c->num_attention_heads * c->head_dim, kv = c->num_key_value_heads * c->head_dim;
    const long long l = layer;
    MOII_TRY(add(p, y->norm1, h, 0, "model.layers.%lld.input_layernorm.weight", l));
    MOII_TRY(add(p, y->qkv, q, h, "model.layers.%lld.self_attn.q_proj.weight", l));
    MOII_TRY(add(p, y->qkv + q * h, kv, h, "model.layers.%lld.self_attn.k_proj.weight", l));
    MOII_TRY(add(p, y->qkv + (q + kv) * h, kv, h, "model.layers.%lld.self_attn.v_proj.weight", l));
    MOII_TRY(add(p, y->o, h, q, "model.layers.%lld.self_attn.o_proj.weight", l));
    MOII_TRY(add(p, y->q_norm, c->head_dim, 0, "model.layers.%lld.self_attn.q_norm.weight", l));
    MOII_TRY(add(p, y->k_norm, c->head_dim, 0, "model.layers.%lld.self_attn.k_norm.weight", l));
    MOII_TRY(add(p, y->norm2, h, 0, "model.layers.%lld.post_attention_layernorm.weight", l));
    if (y->sparse) MOII_TRY(add(p, y->router, y->experts, h, "model.layers.%lld.mlp.gate.weight", l));
    for (int64_t e = 0; e < y->experts; e++) MOII_TRY(name_expert(p, y, h, l, e));
    p->active -= 3 * (y->experts - y->top_k) * h * y->width;
    return MOI_OK;
}

/* Upper bound of all floats, so that no offset can overflow. */
static moi_status check_total(const moi_lm_config *c)
{
    double h = (double)c->hidden_size, heads = (double)(c->num_attention_heads + 2 * c->num_key_value_heads) * (double)c->head_dim;
    double width = (double)moii_max(c->intermediate_size, c->moe_intermediate_size * c->num_experts);
    double floats = (double)c->num_hidden_layers * h * (2 * heads + 3 * width + (double)c->num_experts) + 2 * h * (double)c->vocab_size;
    MOII_REQUIRE(floats < 0x1p50, MOI_ERR_SHAPE, "moi_lm: a model of about %.2g parameters is more than this library addresses", floats);
    return MOI_OK;
}

moi_status moii_params_layout(moii_params *p, const moi_lm_config *c)
{
    int64_t at = 0;
    MOII_TRY(check_total(c));
    p->embed = take(&at, c->vocab_size * c->hidden_size);
    p->head = c->tie_word_embeddings ? p->embed : take(&at, c->vocab_size * c->hidden_size);
    for (int64_t l = 0; l < c->num_hidden_layers; l++) place_layer(&p->layers[l], c, l, &at);
    p->decayed = at;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) place_norms(&p->layers[l], c, &at);
    p->norm = take(&at, c->hidden_size);
    p->floats = at;
    MOII_TRY(add(p, p->embed, c->vocab_size, c->hidden_size, "model.embed_tokens.weight"));
    for (int64_t l = 0; l < c->num_hidden_layers; l++) MOII_TRY(name_layer(p, c, l));
    MOII_TRY(add(p, p->norm, c->hidden_size, 0, "model.norm.weight"));
    if (!c->tie_word_embeddings) MOII_TRY(add(p, p->head, c->vocab_size, c->hidden_size, "lm_head.weight"));
    p->active += p->elements;
    return MOI_OK;
}

void moii_params_norms_only(moii_params *p)
{
    const int64_t before = p->decayed;
    for (int64_t l = 0; l < MOI_LM_MAX_LAYERS; l++) {
        moii_layer *y = &p->layers[l];
        y->norm1 -= before, y->q_norm -= before, y->k_norm -= before, y->norm2 -= before;
        y->qkv = y->o = y->router = y->gate_up = y->down = -1;
    }
    for (int64_t i = 0; i < p->count; i++) p->items[i].offset = p->items[i].cols ? -1 : p->items[i].offset - before;
    p->norm -= before, p->floats -= before;
    p->embed = p->head = -1;
    p->decayed = 0;
}

void moii_params_free(moii_params *p)
{
    for (int64_t i = 0; i < p->count; i++) free(p->items[i].name);
    free(p->items);
    p->items = NULL;
    p->count = 0;
}
