/* SPDX-License-Identifier: Apache-2.0
 * exec.c: plans and memory for running a model on a bounded number of tokens.  Everything is allocated here, once. */
#include <math.h>
#include <stdlib.h>

#include "carve.h"
#include "lm.h"
#include "status.h"

static void carve_layer(moii_exec *x, moii_carve *c, moii_saved *s, bool sparse)
{
    const moi_lm_config *m = &x->lm->config;
    const int64_t t = x->max_tokens, h = m->hidden_size, q = moii_q_width(m), kv = moii_kv_width(m);
    s->x = moii_carve_floats(c, t * h);
    s->rstd1 = moii_carve_floats(c, t);
    s->qkv_x = x->training ? moii_carve_take(c, moii_linear_saved_bytes(&x->qkv)) : NULL;
    s->qkv = moii_carve_floats(c, t * (q + 2 * kv));
    s->qk = moii_carve_floats(c, t * (q + kv));
    s->rstd_q = moii_carve_floats(c, t * m->num_attention_heads);
    s->rstd_k = moii_carve_floats(c, t * m->num_key_value_heads);
    s->lse = x->training ? moii_carve_floats(c, t * m->num_attention_heads) : NULL;
    s->attention = moii_carve_floats(c, t * q);
    s->o_x = x->training ? moii_carve_take(c, moii_linear_saved_bytes(&x->o)) : NULL;
    s->mid = moii_carve_floats(c, t * h);
    s->rstd2 = moii_carve_floats(c, t);
    s->normed = moii_carve_floats(c, t * h);
    s->moe = x->training ? moii_carve_take(c, moi_moe_saved_bytes(x->moe[sparse], t)) : NULL;
}

static void carve_all(moii_exec *x, moii_carve *c, int64_t space)
{
    const moi_lm_config *m = &x->lm->config;
    const int64_t t = x->max_tokens, h = m->hidden_size, q = moii_q_width(m), kv = moii_kv_width(m);
    for (int64_t l = 0; l < m->num_hidden_layers; l++) {
        if (l == 0 || x->training) carve_layer(x, c, &x->layers[l], x->lm->params.layers[l].sparse);
        else x->layers[l] = x->layers[0];
    }
    x->normed = moii_carve_floats(c, t * h);
    x->branch = moii_carve_floats(c, t * h);
    x->final = moii_carve_floats(c, t * h);
    x->rstd_final = moii_carve_floats(c, t);
    x->aux = moii_carve_floats(c, m->num_hidden_layers);
    if (x->training) {
        x->d_x = moii_carve_floats(c, t * h);
        x->d_branch = moii_carve_floats(c, t * h);
        x->d_heads = moii_carve_floats(c, t * moii_max(q, h));
        x->d_qkv = moii_carve_floats(c, t * (q + 2 * kv));
        x->d_qk = moii_carve_floats(c, t * (q + kv));
    }
    x->cos_sin = moii_carve_floats(c, x->positions * m->head_dim);
    x->space = (moii_space){ moii_carve_take(c, space), space };
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

static int64_t attention_space(const moii_exec *x)
{
    const moi_lm_config *m = &x->lm->config;
    moii_attention a = { .batch = 1, .queries = x->training ? x->seq : x->max_tokens, .heads = m->num_attention_heads,
                         .kv_heads = m->num_key_value_heads, .width = m->head_dim };
    a.past = x->training ? 0 : moii_max(x->positions - a.queries, 0);
    return moii_nn_of(x->lm)->attention_workspace(x->lm->ctx, &a, x->training);
}

static moi_status build(moii_exec *x, const char *call)
{
    moi_lm *lm = x->lm;
    x->layers = calloc((size_t)lm->config.num_hidden_layers, sizeof *x->layers);
    MOII_REQUIRE(x->layers, MOI_ERR_NOMEM, "moi_lm: no memory for %lld layers", (long long)lm->config.num_hidden_layers);
    MOII_TRY(lm->source->plan(x));
    MOII_TRY(moii_head_create(&x->head, lm, x->max_tokens, x->training));
    const int64_t space = moii_max(moii_max(lm->source->space(x), moii_head_workspace(&x->head)), attention_space(x));
    moii_carve sizes = { NULL, 0 };
    carve_all(x, &sizes, space);
    MOII_TRY(moii_hold(lm, call, sizes.used, &x->arena));
    x->arena_bytes = sizes.used;
    moii_carve places = { x->arena, 0 };
    carve_all(x, &places, space);
    fill_rotations(x);
    return MOI_OK;
}

moi_status moii_exec_create(moii_exec **out, moi_lm *lm, int64_t batch, int64_t seq, int64_t positions, moii_purpose purpose,
                            const char *call)
{
    *out = NULL;
    moii_exec *x = calloc(1, sizeof *x);
    MOII_REQUIRE(x, MOI_ERR_NOMEM, "moi_lm: no memory for running the model");
    x->lm = lm;
    x->batch = batch, x->seq = seq;
    x->max_tokens = batch * seq;
    x->positions = positions;
    x->purpose = purpose;
    x->training = purpose == MOII_TRAIN;
    moi_status status = build(x, call);
    if (status) moii_exec_free(x);
    else *out = x;
    return status;
}

void moii_exec_free(moii_exec *x)
{
    if (!x) return;
    x->lm->source->unplan(x);
    moii_head_free(&x->head);
    moi_buf_free(x->lm->ctx, x->head.logits), moi_buf_free(x->lm->ctx, x->head.loss);
    moii_let_go(x->lm, x->arena, x->arena_bytes);
    free(x->layers);
    free(x);
}
