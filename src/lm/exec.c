/* SPDX-License-Identifier: Apache-2.0
 * exec.c: plans and memory for running a model on a bounded number of tokens.  Everything is allocated here, once. */
#include <math.h>
#include <stdlib.h>

#include "lm.h"
#include "status.h"

/* Two passes over the same list of buffers: the first with base NULL adds their sizes up, the second hands out places. */
typedef struct carve { char *base; int64_t used; } carve;

static void *take(carve *c, int64_t bytes)
{
    char *p = c->base ? c->base + c->used : NULL;
    c->used += moii_round_up(bytes, MOII_BUFFER_ALIGN);
    return p;
}
static float *take_floats(carve *c, int64_t n) { return take(c, n * 4); }

static void carve_layer(moii_exec *x, carve *c, moii_saved *s, bool sparse)
{
    const moi_lm_config *m = &x->lm->config;
    const int64_t t = x->max_tokens, h = m->hidden_size, q = moii_q_width(m), kv = moii_kv_width(m);
    s->x = take_floats(c, t * h);
    s->rstd1 = take_floats(c, t);
    s->qkv_x = x->training ? take(c, moii_linear_saved_bytes(&x->qkv)) : NULL;
    s->qkv = take_floats(c, t * (q + 2 * kv));
    s->qk = take_floats(c, t * (q + kv));
    s->rstd_q = take_floats(c, t * m->num_attention_heads);
    s->rstd_k = take_floats(c, t * m->num_key_value_heads);
    s->lse = x->training ? take_floats(c, t * m->num_attention_heads) : NULL;
    s->attention = take_floats(c, t * q);
    s->o_x = x->training ? take(c, moii_linear_saved_bytes(&x->o)) : NULL;
    s->mid = take_floats(c, t * h);
    s->rstd2 = take_floats(c, t);
    s->normed = take_floats(c, t * h);
    s->moe = x->training ? take(c, moi_moe_saved_bytes(x->moe[sparse], t)) : NULL;
}

static void carve_all(moii_exec *x, carve *c, int64_t space)
{
    const moi_lm_config *m = &x->lm->config;
    const int64_t t = x->max_tokens, h = m->hidden_size, q = moii_q_width(m), kv = moii_kv_width(m);
    for (int64_t l = 0; l < m->num_hidden_layers; l++) {
        if (l == 0 || x->training) carve_layer(x, c, &x->layers[l], x->lm->params.layers[l].sparse);
        else x->layers[l] = x->layers[0];
    }
    x->normed = take_floats(c, t * h);
    x->branch = take_floats(c, t * h);
    x->final = take_floats(c, t * h);
    x->rstd_final = take_floats(c, t);
    x->aux = take_floats(c, m->num_hidden_layers);
    if (x->training) {
        x->d_x = take_floats(c, t * h);
        x->d_branch = take_floats(c, t * h);
        x->d_heads = take_floats(c, t * moii_max(q, h));
        x->d_qkv = take_floats(c, t * (q + 2 * kv));
        x->d_qk = take_floats(c, t * (q + kv));
    }
    x->cos_sin = take_floats(c, x->positions * m->head_dim);
    x->space = (moii_space){ take(c, space), space };
}

static void fill_rotations(moii_exec *x)
{
    const int64_t w = x->lm->config.head_dim, half = w / 2;
    for (int64_t i = 0; i < half; i++) {
        const double frequency = pow((double)x->lm->config.rope_theta, -2.0 * (double)i / (double)w);
        for (int64_t p = 0; p < x->positions; p++) {
            x->cos_sin[p * w + i] = (float)cos((double)p * frequency);
            x->cos_sin[p * w + half + i] = (float)sin((double)p * frequency);
        }
    }
}

static moi_status plan_moe(moii_exec *x, bool sparse)
{
    const moi_lm_config *m = &x->lm->config;
    const moi_lm_options *o = &x->lm->options;
    moi_moe_desc d = MOI_MOE_DESC_INIT;
    d.max_tokens = x->max_tokens;
    d.hidden = m->hidden_size;
    d.width = sparse ? m->moe_intermediate_size : m->intermediate_size;
    d.experts = sparse ? m->num_experts : 1;
    d.top_k = sparse ? m->num_experts_per_tok : 1;
    d.renormalize = m->norm_topk_prob;
    d.aux_coef = sparse ? m->router_aux_loss_coef : 0.0f;
    d.recipe = o->recipe, d.elem_forward = o->elem_forward, d.elem_gradient = o->elem_gradient, d.round = o->round;
    return moi_moe_plan_create(&x->moe[sparse], x->lm->ctx, &d);
}

static moi_status plan_all(moii_exec *x)
{
    moi_lm *lm = x->lm;
    const moi_lm_config *m = &lm->config;
    const int64_t q = moii_q_width(m), kv = moii_kv_width(m);
    MOII_TRY(moii_linear_create(&x->qkv, lm->ctx, &lm->options, m->hidden_size, q + 2 * kv, x->max_tokens, x->training, lm->trained));
    MOII_TRY(moii_linear_create(&x->o, lm->ctx, &lm->options, q, m->hidden_size, x->max_tokens, x->training, lm->trained));
    for (int64_t l = 0; l < m->num_hidden_layers; l++)
        if (!x->moe[lm->params.layers[l].sparse]) MOII_TRY(plan_moe(x, lm->params.layers[l].sparse));
    return moii_head_create(&x->head, lm, x->max_tokens, x->training);
}

static int64_t attention_space(const moii_exec *x)
{
    const moi_lm_config *m = &x->lm->config;
    moii_attention a = { .batch = 1, .queries = x->training ? x->seq : x->max_tokens, .heads = m->num_attention_heads,
                         .kv_heads = m->num_key_value_heads, .width = m->head_dim };
    a.past = x->training ? 0 : moii_max(x->positions - a.queries, 0);
    return moii_nn_of(x->lm)->attention_workspace(x->lm->ctx, &a, x->training);
}

static moi_status build(moii_exec *x)
{
    moi_lm *lm = x->lm;
    x->layers = calloc((size_t)lm->config.num_hidden_layers, sizeof *x->layers);
    MOII_REQUIRE(x->layers, MOI_ERR_NOMEM, "moi_lm: no memory for %lld layers", (long long)lm->config.num_hidden_layers);
    MOII_TRY(plan_all(x));
    int64_t space = moii_max(moii_linear_space_bytes(&x->qkv), moii_linear_space_bytes(&x->o));
    for (int i = 0; i < 2; i++) space = moii_max(space, moi_plan_workspace_bytes(x->moe[i]));
    space = moii_max(moii_max(space, moii_head_workspace(&x->head)), attention_space(x));
    carve sizes = { NULL, 0 };
    carve_all(x, &sizes, space);
    MOII_TRY(moii_alloc(lm->ctx, sizes.used, &x->arena));
    x->arena_bytes = sizes.used;
    carve places = { x->arena, 0 };
    carve_all(x, &places, space);
    fill_rotations(x);
    return MOI_OK;
}

moi_status moii_exec_create(moii_exec **out, moi_lm *lm, int64_t batch, int64_t seq, int64_t positions, bool training)
{
    *out = NULL;
    moii_exec *x = calloc(1, sizeof *x);
    MOII_REQUIRE(x, MOI_ERR_NOMEM, "moi_lm: no memory for running the model");
    x->lm = lm;
    x->batch = batch, x->seq = seq;
    x->max_tokens = batch * seq;
    x->positions = positions;
    x->training = training;
    moi_status status = build(x);
    if (status) moii_exec_free(x);
    else *out = x;
    return status;
}

void moii_exec_free(moii_exec *x)
{
    if (!x) return;
    moii_linear_free(&x->qkv);
    moii_linear_free(&x->o);
    moi_plan_free(x->moe[0]), moi_plan_free(x->moe[1]);
    moii_head_free(&x->head);
    moi_buf_free(x->lm->ctx, x->head.logits), moi_buf_free(x->lm->ctx, x->head.loss);
    moi_buf_free(x->lm->ctx, x->arena);
    free(x->layers);
    free(x);
}

/* Prepared weights lie layer by layer: qkv, o, moe. */
static int64_t prepared_moe_bytes(const moii_exec *x, bool sparse)
{
    return x->moe[sparse] ? moii_round_up(moi_moe_prepared_bytes(x->moe[sparse], x->lm->trained), MOII_BUFFER_ALIGN) : 0;
}

static int64_t prepared_before(const moii_exec *x, int64_t layer)
{
    int64_t sparse = 0;
    for (int64_t l = 0; l < layer; l++) sparse += x->lm->params.layers[l].sparse;
    return layer * (moii_linear_prepared_bytes(&x->qkv) + moii_linear_prepared_bytes(&x->o)) + sparse * prepared_moe_bytes(x, true) +
           (layer - sparse) * prepared_moe_bytes(x, false);
}

moii_prepared moii_exec_prepared(const moii_exec *x, int64_t layer)
{
    char *qkv = (char *)x->lm->prepared + prepared_before(x, layer), *o = qkv + moii_linear_prepared_bytes(&x->qkv);
    return (moii_prepared){ qkv, o, o + moii_linear_prepared_bytes(&x->o) };
}

moi_status moii_exec_prepare(moii_exec *x)
{
    moi_lm *lm = x->lm;
    const int64_t bytes = prepared_before(x, lm->config.num_hidden_layers);
    if (lm->prepared && lm->prepared_version == lm->version && lm->prepared_bytes == bytes) return MOI_OK;
    if (!lm->prepared || lm->prepared_bytes != bytes) {
        moi_buf_free(lm->ctx, lm->prepared);
        lm->prepared = NULL;
        MOII_TRY(moi_buf_alloc(lm->ctx, bytes, &lm->prepared));
        lm->prepared_bytes = bytes;
    }
    lm->prepared_version = 0; /* no version: an error below must not leave half of them for whole */
    for (int64_t l = 0; l < lm->config.num_hidden_layers; l++) {
        const moii_layer *y = &lm->params.layers[l];
        const moii_prepared p = moii_exec_prepared(x, l);
        MOII_TRY(moii_linear_prepare(&x->qkv, lm->weights + y->qkv, p.qkv, x->space));
        MOII_TRY(moii_linear_prepare(&x->o, lm->weights + y->o, p.o, x->space));
        MOII_TRY(moi_moe_prepare(x->moe[y->sparse], lm->weights + y->gate_up, lm->weights + y->down, p.moe, lm->trained, x->space.at,
                                 x->space.bytes, NULL));
    }
    lm->prepared_version = lm->version;
    return MOI_OK;
}
