/* SPDX-License-Identifier: Apache-2.0
 * mapped_find.c: finds a model's weights among the tensors of a folder, by the names of the hub. */
#include "mapped.h"

#include <stdlib.h>

#include "status.h"
#include "weight.h"

typedef long long ll;

static bool same(const moi_format *a, const moi_format *b) { return a->recipe == b->recipe && a->elem == b->elem && a->block == b->block; }

/* Views that agree in all of this share plans. */
static moi_status set_shape(moii_mapped *m, moii_view *v, moi_dtype x)
{
    for (v->shape = 0; v->shape < m->shape_count; v->shape++) {
        const moii_shape *s = &m->shapes[v->shape];
        if (s->x == x && s->rows == v->rows && s->cols == v->cols && same(&s->format, &v->format)) return MOI_OK;
    }
    moii_shape *more = realloc(m->shapes, (size_t)(m->shape_count + 1) * sizeof *more);
    MOII_REQUIRE(more, MOI_ERR_NOMEM, "moi_lm_open: no memory for a list of shapes");
    m->shapes = more;
    m->shapes[m->shape_count++] = (moii_shape){ x, v->format, v->rows, v->cols };
    return MOI_OK;
}

static moi_status linear(moi_lm *lm, const char *module, int64_t rows, int64_t cols, moii_view *v)
{
    MOII_TRY(moii_weight_find(lm->mapped, module, 0, rows, cols, v));
    return set_shape(lm->mapped, v, moii_mapped_x(lm));
}

static moi_status attention(moi_lm *lm, ll l, moii_layer_views *w)
{
    const moi_lm_config *c = &lm->config;
    const int64_t h = c->hidden_size, q = moii_q_width(c), kv = moii_kv_width(c);
    moii_module m;
    MOII_TRY(linear(lm, moii_module_name(&m, "model.layers.%lld.self_attn.q_proj", l), q, h, &w->q));
    MOII_TRY(linear(lm, moii_module_name(&m, "model.layers.%lld.self_attn.k_proj", l), kv, h, &w->k));
    MOII_TRY(linear(lm, moii_module_name(&m, "model.layers.%lld.self_attn.v_proj", l), kv, h, &w->v));
    return linear(lm, moii_module_name(&m, "model.layers.%lld.self_attn.o_proj", l), h, q, &w->o);
}

/* gate, up and down of one expert, or of a dense layer, whose module is `mlp`. */
static moi_status expert(moi_lm *lm, const char *mlp, int64_t f, moii_expert_views *w)
{
    const int64_t h = lm->config.hidden_size;
    moii_module m;
    MOII_TRY(linear(lm, moii_module_name(&m, "%s.gate_proj", mlp), f, h, &w->gate));
    MOII_TRY(linear(lm, moii_module_name(&m, "%s.up_proj", mlp), f, h, &w->up));
    return linear(lm, moii_module_name(&m, "%s.down_proj", mlp), h, f, &w->down);
}

/* All experts of a layer in two tensors: gate_up_proj [e, 2 f, h], gate rows before up rows, and down_proj [e, h, f]. */
static moi_status packed(moi_lm *lm, const char *experts, const moii_layer *y, moii_expert_views *w)
{
    const int64_t h = lm->config.hidden_size, f = y->width;
    moii_module m;
    moii_view gate_up, down;
    MOII_TRY(moii_weight_find(lm->mapped, moii_module_name(&m, "%s.gate_up_proj", experts), y->experts, 2 * f, h, &gate_up));
    MOII_REQUIRE(moii_weight_cuts(&gate_up, f), MOI_ERR_UNSUPPORTED,
                 "moi_lm_open: %s: scales of 128x128 squares mix gate and up rows, as moe_intermediate_size is no multiple of 128: %lld", m.text, (ll)f);
    MOII_TRY(moii_weight_find(lm->mapped, moii_module_name(&m, "%s.down_proj", experts), y->experts, h, f, &down));
    for (int64_t e = 0; e < y->experts; e++) {
        w[e].gate = moii_weight_part(&gate_up, e, 0, f);
        w[e].up = moii_weight_part(&gate_up, e, f, f);
        w[e].down = moii_weight_part(&down, e, 0, h);
        MOII_TRY(set_shape(lm->mapped, &w[e].gate, moii_mapped_x(lm)));
        MOII_TRY(set_shape(lm->mapped, &w[e].up, moii_mapped_x(lm)));
        MOII_TRY(set_shape(lm->mapped, &w[e].down, moii_mapped_x(lm)));
    }
    return MOI_OK;
}

/* Experts that all have one format can run together; which plan they need for that. */
static moi_status together(moii_mapped *m, const moii_layer *y, moii_layer_views *w)
{
    const moi_format *f = &w->experts[0].gate.format;
    for (int64_t e = 0; e < y->experts; e++)
        if (!same(f, &w->experts[e].gate.format) || !same(f, &w->experts[e].up.format) || !same(f, &w->experts[e].down.format)) return MOI_OK;
    for (w->few = 0; w->few < m->few_count; w->few++)
        if (m->few[w->few].sparse == y->sparse && same(f, &m->few[w->few].format)) break;
    if (w->few == MOII_FEW_KINDS) return MOI_OK;
    if (w->few == m->few_count) m->few[m->few_count++] = (moii_few){ *f, y->sparse };
    w->apart = calloc((size_t)y->experts, sizeof *w->apart);
    MOII_REQUIRE(w->apart, MOI_ERR_NOMEM, "moi_lm_open: no memory for %lld experts", (ll)y->experts);
    for (int64_t e = 0; e < y->experts; e++) w->apart[e] = (moi_expert_operands){ w->experts[e].gate.at, w->experts[e].up.at, w->experts[e].down.at };
    return MOI_OK;
}

static moi_status experts(moi_lm *lm, ll l, const moii_layer *y, moii_layer_views *w)
{
    moii_module mlp, m;
    moii_module_name(&mlp, y->sparse ? "model.layers.%lld.mlp.experts" : "model.layers.%lld.mlp", l);
    w->experts = calloc((size_t)y->experts, sizeof *w->experts);
    MOII_REQUIRE(w->experts, MOI_ERR_NOMEM, "moi_lm_open: no memory for %lld experts", (ll)y->experts);
    if (!y->sparse) return expert(lm, mlp.text, y->width, w->experts);
    MOII_TRY(moii_plain_find(lm->mapped, moii_module_name(&m, "model.layers.%lld.mlp.gate.weight", l), y->experts, lm->config.hidden_size, &w->router));
    MOII_TRY(set_shape(lm->mapped, &w->router, MOI_F32));
    if (moii_weight_exists(lm->mapped, moii_module_name(&m, "%s.gate_up_proj", mlp.text))) return packed(lm, mlp.text, y, w->experts);
    for (int64_t e = 0; e < y->experts; e++)
        MOII_TRY(expert(lm, moii_module_name(&m, "%s.%lld", mlp.text, (ll)e), y->width, &w->experts[e]));
    return MOI_OK;
}

static moi_status layer(moi_lm *lm, ll l)
{
    const moii_layer *y = &lm->params.layers[l];
    moii_layer_views *w = &lm->mapped->layers[l];
    MOII_TRY(attention(lm, l, w));
    MOII_TRY(experts(lm, l, y, w));
    return together(lm->mapped, y, w);
}

/* Norms are small and are used in FP32 whatever the file has: lm->weights holds them, params their places. */
static moi_status norms(moi_lm *lm)
{
    moii_params_norms_only(&lm->params);
    MOII_TRY(moii_alloc(lm->ctx, lm->params.floats * 4, &lm->weights));
    for (int64_t i = 0; i < lm->params.count; i++) {
        const moii_param *p = &lm->params.items[i];
        if (p->cols == 0) MOII_TRY(moii_vector_read(lm->mapped, p->name, p->rows, lm->weights + p->offset));
    }
    return MOI_OK;
}

moi_status moii_mapped_find(moi_lm *lm)
{
    const moi_lm_config *c = &lm->config;
    moii_mapped *m = lm->mapped;
    MOII_TRY(norms(lm));
    MOII_TRY(moii_plain_find(m, "model.embed_tokens.weight", c->vocab_size, c->hidden_size, &m->embed));
    lm->head = m->embed;
    if (!c->tie_word_embeddings) MOII_TRY(moii_plain_find(m, "lm_head.weight", c->vocab_size, c->hidden_size, &lm->head));
    m->layers = calloc((size_t)c->num_hidden_layers, sizeof *m->layers);
    MOII_REQUIRE(m->layers, MOI_ERR_NOMEM, "moi_lm_open: no memory for %lld layers", (ll)c->num_hidden_layers);
    m->layer_count = c->num_hidden_layers;
    for (int64_t l = 0; l < m->layer_count; l++) MOII_TRY(layer(lm, l));
    return MOI_OK;
}
