/* SPDX-License-Identifier: Apache-2.0
 * prepared.c: weights as FP32 masters, and what the recipe makes of them: one buffer for all layers, made again when the
 * masters changed. */
#include "decode.h"
#include "lm.h"
#include "status.h"

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

static moi_status plan(moii_exec *x)
{
    moi_lm *lm = x->lm;
    const moi_lm_config *m = &lm->config;
    const int64_t q = moii_q_width(m), kv = moii_kv_width(m);
    MOII_TRY(moii_linear_create(&x->qkv, lm->ctx, &lm->options, m->hidden_size, q + 2 * kv, x->max_tokens, x->training, lm->trained));
    MOII_TRY(moii_linear_create(&x->o, lm->ctx, &lm->options, q, m->hidden_size, x->max_tokens, x->training, lm->trained));
    for (int64_t l = 0; l < m->num_hidden_layers; l++)
        if (!x->moe[lm->params.layers[l].sparse]) MOII_TRY(plan_moe(x, lm->params.layers[l].sparse));
    return x->purpose == MOII_GENERATE ? moii_decode_create(&x->decode, lm) : MOI_OK;
}

static void unplan(moii_exec *x)
{
    moii_linear_free(&x->qkv);
    moii_linear_free(&x->o);
    moi_plan_free(x->moe[0]), moi_plan_free(x->moe[1]);
    moii_decode_free(x->decode, x->lm->ctx);
}

static int64_t space(const moii_exec *x)
{
    int64_t most = moii_max(moii_linear_space_bytes(&x->qkv), moii_linear_space_bytes(&x->o));
    for (int i = 0; i < 2; i++) most = moii_max(most, moi_plan_workspace_bytes(x->moe[i]));
    return most;
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

/* Makes the prepared weights if they are missing or old. */
static moi_status prepare(moii_exec *x)
{
    moi_lm *lm = x->lm;
    const int64_t bytes = prepared_before(x, lm->config.num_hidden_layers);
    if (lm->prepared && lm->prepared_version == lm->version && lm->prepared_bytes == bytes) return MOI_OK;
    if (!lm->prepared || lm->prepared_bytes != bytes) {
        moi_buf_free(lm->ctx, lm->prepared);
        lm->prepared = NULL, lm->prepared_bytes = 0;
        MOII_TRY(moii_check_memory("moi_lm", lm, bytes));
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

static moi_status ready(moii_exec *x, int64_t t)
{
    if (x->decode && t == 1) MOII_TRY(moii_decode_prepare(x->decode, x->lm));
    return prepare(x);
}

static void embed(const moii_exec *x, const int32_t *ids, int64_t t, float *y)
{
    const moi_lm *lm = x->lm;
    moii_nn_of(lm)->embed(lm->ctx, lm->weights + lm->params.embed, ids, t, lm->config.hidden_size, y);
}

static moi_status qkv(const moii_exec *x, int64_t layer, int64_t t, const moii_saved *s)
{
    return moii_linear_forward(&x->qkv, t, moii_exec_prepared(x, layer).qkv, x->normed, s->qkv_x, s->qkv, x->space);
}

static moi_status o(const moii_exec *x, int64_t layer, int64_t t, const moii_saved *s)
{
    return moii_linear_forward(&x->o, t, moii_exec_prepared(x, layer).o, s->attention, s->o_x, x->branch, x->space);
}

static moi_status experts(const moii_exec *x, int64_t layer, int64_t t, const moii_saved *s)
{
    const moi_lm *lm = x->lm;
    const moii_layer *y = &lm->params.layers[layer];
    if (x->decode && t == 1) return moii_decode_layer(x->decode, lm, layer, s->normed, x->branch);
    moi_moe_args a = { .size = sizeof a, .tokens = t, .x = s->normed, .y = x->branch };
    a.router = y->experts > 1 ? lm->weights + y->router : NULL;
    a.prepared = moii_exec_prepared(x, layer).moe;
    a.saved = s->moe;
    a.aux_loss = x->training && y->experts > 1 ? x->aux + layer : NULL;
    return moi_moe_forward_run(x->moe[y->sparse], &a, x->space.at, x->space.bytes, NULL);
}

const moii_source moii_source_masters = {
    .plan = plan, .unplan = unplan, .space = space, .ready = ready, .embed = embed, .qkv = qkv, .o = o, .experts = experts,
};
