/* SPDX-License-Identifier: Apache-2.0
 * lm.h: a model and what runs it.
 *
 * moi_lm       weights from one of two sources: FP32 masters and the recipe's forms of them ("prepared"), made again when the
 *              masters changed; or weights as they lie in mapped files, for inference only.
 * moii_exec    plans, activations and workspace for a bounded number of tokens; one for training, one for evaluation, one per
 *              session.  It never changes the model but for its prepared weights. */
#ifndef MOII_LM_H
#define MOII_LM_H

#include <string.h>

#include "ctx.h"
#include "linear.h"
#include "moiety_lm.h"
#include "nn.h"
#include "params.h"
#include "matmul.h"
#include "view.h"

typedef struct moii_exec moii_exec;
typedef struct moii_source moii_source;

struct moi_lm {
    moi_ctx *ctx;
    moi_lm_config config;
    moi_lm_options options;
    moii_params params;
    const moii_source *source;
    struct moii_mapped *mapped; /* mapped.h; NULL: masters */
    moii_view head;             /* [vocab, h] */
    float *weights;             /* the masters; of a mapped model the norms alone */
    uint64_t version; /* raised when the weights change */
    bool trained;     /* a trainer exists or existed: prepared weights have their forms for the backward pass */
    void *prepared;
    int64_t prepared_bytes;
    uint64_t prepared_version;
    moii_exec *eval; /* the last one, for moi_lm_evaluate and moi_lm_forward */
    int64_t known;   /* rows of eval->final that moi_lm_logits may use */
    int64_t held;    /* bytes of moii_hold's buffers */
};

/* The head in pieces of rows, so that logits stay small. */
typedef struct moii_head {
    int64_t chunk, rows;
    float *logits; /* [chunk, vocab] */
    float *loss;   /* [rows] */
    moii_matmul fprop;
    moi_plan *dgrad, *wgrad, *wgrad_rest;
} moii_head;

/* What one layer keeps for its backward pass. */
typedef struct moii_saved {
    float *x, *rstd1;              /* [t, h], [t] */
    void *qkv_x;                   /* moii_linear_saved_bytes */
    float *qkv;                    /* [t, q + 2 kv], before the norms */
    float *qk, *rstd_q, *rstd_k;   /* [t, q + kv] normed and rotated */
    float *lse, *attention;        /* [b, heads, s], [t, q] */
    void *o_x;
    float *mid, *rstd2, *normed;   /* [t, h], [t], [t, h] */
    void *moe;
} moii_saved;

typedef enum moii_purpose { MOII_EVALUATE, MOII_TRAIN, MOII_GENERATE } moii_purpose;

struct moii_exec {
    moi_lm *lm;
    int64_t max_tokens, positions; /* rows of cos_sin */
    moii_purpose purpose;
    bool training;      /* purpose == MOII_TRAIN */
    int64_t batch, seq; /* training: fixed */
    moii_linear qkv, o; /* masters only, as the next two */
    moi_plan *moe[2];   /* dense, sparse; NULL where the model has no such layer */
    struct moii_decode *decode;       /* for one token at a time; NULL unless generating */
    struct moii_mapped_exec *mapped;  /* mapped models only */
    moii_head head;
    float *cos_sin;
    char *arena;
    int64_t arena_bytes;
    moii_saved *layers; /* one per layer in training, else all the same */
    float *normed, *branch, *final, *rstd_final; /* [t, h] each, [t] */
    float *aux;                                  /* [layers] */
    float *d_x, *d_branch, *d_heads, *d_qkv;     /* backward: [t, h], [t, h], [t, max(q, h)], [t, q + 2 kv] */
    float *d_qk;                                 /* [t, q + kv] */
    moii_space space;
};

/* A KV cache that a forward pass appends to; layer l at l * stride floats: [room, kv]. */
typedef struct moii_cache {
    float *k, *v;
    int64_t stride, past;
} moii_cache;

typedef struct moii_input {
    const int32_t *ids; /* [batch * seq] */
    int64_t batch, seq;
    const moii_cache *cache; /* batch is 1; NULL: none */
} moii_input;

/* How a forward pass over t tokens applies the model's weights. */
struct moii_source {
    moi_status (*plan)(moii_exec *exec); /* for up to exec->max_tokens tokens */
    void (*unplan)(moii_exec *exec);
    int64_t (*space)(const moii_exec *exec);           /* bytes of exec->space that the others use */
    moi_status (*ready)(moii_exec *exec, int64_t t);   /* before each pass */
    void (*embed)(const moii_exec *exec, const int32_t *ids, int64_t t, float *y);                /* y [t, h] */
    moi_status (*qkv)(const moii_exec *exec, int64_t layer, int64_t t, const moii_saved *s);      /* exec->normed -> s->qkv */
    moi_status (*o)(const moii_exec *exec, int64_t layer, int64_t t, const moii_saved *s);        /* s->attention -> exec->branch */
    moi_status (*experts)(const moii_exec *exec, int64_t layer, int64_t t, const moii_saved *s);  /* s->normed -> exec->branch */
};
extern const moii_source moii_source_masters; /* prepared.c */
extern const moii_source moii_source_mapped;  /* mapped.c */

/* training: for exactly batch x seq tokens; else for up to batch * seq tokens and `positions` positions. */
moi_status moii_exec_create(moii_exec **out, moi_lm *lm, int64_t batch, int64_t seq, int64_t positions, moii_purpose purpose,
                            const char *call);
void moii_exec_free(moii_exec *exec);
/* Where layer l's prepared weights lie. */
typedef struct moii_prepared { char *qkv, *o, *moe; } moii_prepared;
moii_prepared moii_exec_prepared(const moii_exec *exec, int64_t layer);

/* exec->final = final norm of the last layer's output; exec->aux if training. */
moi_status moii_forward(moii_exec *exec, const moii_input *input);
/* Gradients of everything behind exec->final, from exec->d_branch = its gradient.  Added to `grads`. */
moi_status moii_backward(moii_exec *exec, const moii_input *input, float *grads);

moi_status moii_head_create(moii_head *head, const moi_lm *lm, int64_t rows, bool training);
void moii_head_free(moii_head *head);
int64_t moii_head_workspace(const moii_head *head);
/* logits [rows, vocab] of rows of x */
moi_status moii_head_logits(const moii_head *head, const moi_lm *lm, const float *x, int64_t rows, float *logits, moii_space space);
/* Mean loss over rows.  grads (the model's, or NULL): added to; d_x [rows, h] is then overwritten.  logits: [rows, vocab] or NULL. */
moi_status moii_head_loss(const moii_head *head, const moi_lm *lm, const float *x, int64_t rows, const int32_t *targets, double *loss,
                          float *logits, float *grads, float *d_x, moii_space space);

/* A model without weights.  config and options are checked already. */
moi_status moii_lm_begin(moi_lm **out, moi_ctx *ctx, const moi_lm_config *config, const moi_lm_options *options);
/* The same with masters that are not set. */
moi_status moii_lm_alloc(moi_lm **out, moi_ctx *ctx, const moi_lm_config *config, const moi_lm_options *options);
/* Refuses a model whose weights are mapped. */
moi_status moii_check_masters(const moi_lm *lm, const char *call);
/* lm->eval for batch rows of seq tokens, made larger if it has to be. */
moi_status moii_eval_exec(moi_lm *lm, int64_t batch, int64_t seq, const char *call);
moi_status moii_check_tokens(const moi_lm *lm, const char *call, const int32_t *tokens, int64_t count);
/* Splits rows of seq + 1 tokens into ids and targets, [batch * seq] each. */
void moii_split_tokens(const int32_t *tokens, int64_t batch, int64_t seq, int32_t *ids, int32_t *targets);

/* moi_buf_alloc into a pointer of any type: `at` is the address of one. */
static inline moi_status moii_alloc(moi_ctx *ctx, int64_t bytes, void *at)
{
    void *p;
    moi_status status = moi_buf_alloc(ctx, bytes, &p);
    memcpy(at, &p, sizeof p);
    return status;
}

/* Refuses where the model's weights, all that moii_hold has given for it, and `more` bytes are beyond the memory that this machine has
 * in all. */
moi_status moii_check_memory(const char *call, const moi_lm *lm, int64_t more);
/* The large buffers of running and training a model: moii_alloc behind that check.  moii_let_go takes NULL. */
moi_status moii_hold(moi_lm *lm, const char *call, int64_t bytes, void *at);
void moii_let_go(moi_lm *lm, void *p, int64_t bytes);

static inline const moii_nn *moii_nn_of(const moi_lm *lm) { return lm->ctx->backend->nn; }
static inline int64_t moii_q_width(const moi_lm_config *c) { return c->num_attention_heads * c->head_dim; }
static inline int64_t moii_kv_width(const moi_lm_config *c) { return c->num_key_value_heads * c->head_dim; }

#endif
