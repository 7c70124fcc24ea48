/* SPDX-License-Identifier: Apache-2.0
 * forward.c: one pass through the layers.   h = hidden, q / kv = widths of all query / key heads, t = tokens.
 *
 *   x1 = x + o( attention( rope(norm(q)), rope(norm(k)), v ) ),  [q k v] = qkv( norm(x) )
 *   x2 = x1 + experts( norm(x1) )                                                                        */
#include <math.h>
#include <string.h>

#include "lm.h"
#include "status.h"

static void append_to_cache(const moii_exec *x, const moii_cache *cache, int64_t layer, const moii_saved *s, int64_t t)
{
    const moi_lm_config *m = &x->lm->config;
    const int64_t q = moii_q_width(m), kv = moii_kv_width(m);
    float *k = cache->k + layer * cache->stride + cache->past * kv, *v = cache->v + layer * cache->stride + cache->past * kv;
    for (int64_t r = 0; r < t; r++) {
        memcpy(k + r * kv, s->qk + r * (q + kv) + q, (size_t)kv * sizeof *k);
        memcpy(v + r * kv, s->qkv + r * (q + 2 * kv) + q + kv, (size_t)kv * sizeof *v);
    }
}

/* s->qkv [t, q + 2 kv] -> s->attention [t, q] */
static void attend(moii_exec *x, const moii_input *in, int64_t layer, moii_saved *s)
{
    const moi_lm *lm = x->lm;
    const moi_lm_config *m = &lm->config;
    const moii_layer *y = &lm->params.layers[layer];
    const moii_nn *nn = moii_nn_of(lm);
    const int64_t q = moii_q_width(m), kv = moii_kv_width(m), t = in->batch * in->seq, past = in->cache ? in->cache->past : 0;
    const moii_heads qs = { t, m->num_attention_heads, m->head_dim, q + 2 * kv }, ks = { t, m->num_key_value_heads, m->head_dim, q + 2 * kv };
    const moii_heads rotated = { t, m->num_attention_heads + m->num_key_value_heads, m->head_dim, q + kv };
    nn->rmsnorm(lm->ctx, qs, s->qkv, lm->weights + y->q_norm, m->rms_norm_eps, q + kv, s->qk, s->rstd_q);
    nn->rmsnorm(lm->ctx, ks, s->qkv + q, lm->weights + y->k_norm, m->rms_norm_eps, q + kv, s->qk + q, s->rstd_k);
    nn->rope(lm->ctx, rotated, s->qk, x->cos_sin, in->seq, past, false);
    moii_attention a = { .batch = in->batch, .queries = in->seq, .past = past, .heads = m->num_attention_heads,
                         .kv_heads = m->num_key_value_heads, .width = m->head_dim, .scale = 1.0f / sqrtf((float)m->head_dim),
                         .q = s->qk, .ldq = q + kv, .k = s->qk + q, .ldk = q + kv, .v = s->qkv + q + kv, .ldv = q + 2 * kv,
                         .out = s->attention, .ldo = q, .lse = s->lse };
    if (in->cache) {
        append_to_cache(x, in->cache, layer, s, t);
        a.k = in->cache->k + layer * in->cache->stride, a.v = in->cache->v + layer * in->cache->stride;
        a.ldk = a.ldv = kv;
    }
    nn->attention(lm->ctx, &a, x->space.at);
}

/* s->x -> out */
static moi_status run_layer(moii_exec *x, const moii_input *in, int64_t layer, float *out)
{
    const moi_lm *lm = x->lm;
    const moii_layer *y = &lm->params.layers[layer];
    const moii_nn *nn = moii_nn_of(lm);
    const int64_t t = in->batch * in->seq, h = lm->config.hidden_size;
    const moii_heads rows = { t, 1, h, h };
    moii_saved *s = &x->layers[layer];
    nn->rmsnorm(lm->ctx, rows, s->x, lm->weights + y->norm1, lm->config.rms_norm_eps, h, x->normed, s->rstd1);
    MOII_TRY(lm->source->qkv(x, layer, t, s));
    attend(x, in, layer, s);
    MOII_TRY(lm->source->o(x, layer, t, s));
    nn->add(lm->ctx, s->mid, s->x, x->branch, t * h);
    nn->rmsnorm(lm->ctx, rows, s->mid, lm->weights + y->norm2, lm->config.rms_norm_eps, h, s->normed, s->rstd2);
    MOII_TRY(lm->source->experts(x, layer, t, s));
    nn->add(lm->ctx, out, s->mid, x->branch, t * h);
    return MOI_OK;
}

moi_status moii_forward(moii_exec *x, const moii_input *in)
{
    const moi_lm *lm = x->lm;
    const int64_t t = in->batch * in->seq, h = lm->config.hidden_size, layers = lm->config.num_hidden_layers;
    const moii_nn *nn = moii_nn_of(lm);
    MOII_TRY(lm->source->ready(x, t));
    lm->source->embed(x, in->ids, t, x->layers[0].x);
    for (int64_t l = 0; l < layers; l++) MOII_TRY(run_layer(x, in, l, l + 1 < layers ? x->layers[l + 1].x : x->branch));
    nn->rmsnorm(lm->ctx, (moii_heads){ t, 1, h, h }, x->branch, lm->weights + lm->params.norm, lm->config.rms_norm_eps, h, x->final, x->rstd_final);
    return MOI_OK;
}
