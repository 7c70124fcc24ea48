/* SPDX-License-Identifier: Apache-2.0
 * backward.c: the gradients of forward.c, from the last layer to the embedding.  x->d_x is the gradient of the residual
 * stream; each branch adds its part to it. */
#include <math.h>

#include "lm.h"
#include "status.h"

/* d_mid (in x->d_x) += through norm2 and the experts */
static moi_status experts_backward(moii_exec *x, int64_t layer, float *grads)
{
    const moi_lm *lm = x->lm;
    const moii_layer *y = &lm->params.layers[layer];
    const moii_saved *s = &x->layers[layer];
    const int64_t h = lm->config.hidden_size;
    moi_moe_args a = { .size = sizeof a, .tokens = x->max_tokens, .x = s->normed, .saved = s->moe, .d_y = x->d_x, .d_x = x->d_branch };
    a.router = y->experts > 1 ? lm->weights + y->router : NULL;
    a.prepared = moii_exec_prepared(x, layer).moe;
    a.d_router = y->experts > 1 ? grads + y->router : NULL;
    a.d_gate_up = grads + y->gate_up;
    a.d_down = grads + y->down;
    MOII_TRY(moi_moe_backward_run(x->moe[y->sparse], &a, x->space.at, x->space.bytes, NULL));
    moii_nn_of(lm)->rmsnorm_backward(lm->ctx, (moii_heads){ x->max_tokens, 1, h, h }, s->mid, lm->weights + y->norm2, s->rstd2, h,
                                     x->d_branch, h, x->d_x, true, grads + y->norm2);
    return MOI_OK;
}

/* d_attention (x->d_heads) -> d_qkv */
static void attend_backward(moii_exec *x, int64_t layer, float *grads)
{
    const moi_lm *lm = x->lm;
    const moi_lm_config *m = &lm->config;
    const moii_layer *y = &lm->params.layers[layer];
    const moii_saved *s = &x->layers[layer];
    const moii_nn *nn = moii_nn_of(lm);
    const int64_t q = moii_q_width(m), kv = moii_kv_width(m), t = x->max_tokens, wide = q + 2 * kv;
    moii_attention a = { .batch = x->batch, .queries = x->seq, .heads = m->num_attention_heads, .kv_heads = m->num_key_value_heads,
                         .width = m->head_dim, .scale = 1.0f / sqrtf((float)m->head_dim), .q = s->qk, .ldq = q + kv,
                         .k = s->qk + q, .ldk = q + kv, .v = s->qkv + q + kv, .ldv = wide, .out = s->attention, .ldo = q, .lse = s->lse,
                         .d_out = x->d_heads, .d_q = x->d_qk, .ld_dq = q + kv, .d_k = x->d_qk + q, .ld_dk = q + kv,
                         .d_v = x->d_qkv + q + kv, .ld_dv = wide };
    nn->attention_backward(lm->ctx, &a, x->space.at);
    nn->rope(lm->ctx, (moii_heads){ t, m->num_attention_heads + m->num_key_value_heads, m->head_dim, q + kv }, x->d_qk, x->cos_sin, x->seq, 0, true);
    nn->rmsnorm_backward(lm->ctx, (moii_heads){ t, m->num_attention_heads, m->head_dim, wide }, s->qkv, lm->weights + y->q_norm, s->rstd_q,
                         q + kv, x->d_qk, wide, x->d_qkv, false, grads + y->q_norm);
    nn->rmsnorm_backward(lm->ctx, (moii_heads){ t, m->num_key_value_heads, m->head_dim, wide }, s->qkv + q, lm->weights + y->k_norm, s->rstd_k,
                         q + kv, x->d_qk + q, wide, x->d_qkv + q, false, grads + y->k_norm);
}

static moi_status attention_branch_backward(moii_exec *x, int64_t layer, float *grads)
{
    const moi_lm *lm = x->lm;
    const moii_layer *y = &lm->params.layers[layer];
    const moii_saved *s = &x->layers[layer];
    const moii_prepared p = moii_exec_prepared(x, layer);
    const int64_t h = lm->config.hidden_size;
    MOII_TRY(moii_linear_backward(&x->o, p.o, s->o_x, x->d_x, x->d_heads, grads + y->o, x->space));
    attend_backward(x, layer, grads);
    MOII_TRY(moii_linear_backward(&x->qkv, p.qkv, s->qkv_x, x->d_qkv, x->d_branch, grads + y->qkv, x->space));
    moii_nn_of(lm)->rmsnorm_backward(lm->ctx, (moii_heads){ x->max_tokens, 1, h, h }, s->x, lm->weights + y->norm1, s->rstd1, h,
                                     x->d_branch, h, x->d_x, true, grads + y->norm1);
    return MOI_OK;
}

moi_status moii_backward(moii_exec *x, const moii_input *in, float *grads)
{
    const moi_lm *lm = x->lm;
    const int64_t h = lm->config.hidden_size;
    const moii_nn *nn = moii_nn_of(lm);
    nn->rmsnorm_backward(lm->ctx, (moii_heads){ x->max_tokens, 1, h, h }, x->branch, lm->weights + lm->params.norm, x->rstd_final, h,
                         x->d_branch, h, x->d_x, false, grads + lm->params.norm);
    for (int64_t l = lm->config.num_hidden_layers - 1; l >= 0; l--) {
        MOII_TRY(experts_backward(x, l, grads));
        MOII_TRY(attention_branch_backward(x, l, grads));
    }
    nn->embed_backward(lm->ctx, grads + lm->params.embed, in->ids, x->max_tokens, h, x->d_x);
    return MOI_OK;
}
