/* SPDX-License-Identifier: Apache-2.0
 *
 * nn.h: what the language model needs beside the public operations: norms, rotary positions, attention, embedding,
 * cross-entropy, AdamW.  A back end fills one table.  Everything is FP32, and each function gives the same bits for any
 * number of threads.  Matrices are row-major; arguments are the model's own and are not checked again.
 */
#ifndef MOII_NN_H
#define MOII_NN_H

#include "moiety.h"

/* rows of `ld` floats, the first heads * width of them cut into heads. */
typedef struct moii_heads { int64_t rows, heads, width, ld; } moii_heads;

/* Causal attention with grouped queries.  Row i of a sequence's queries has position past + i and sees keys 0..past + i.
 * Sequence b has query rows b * queries... and key rows b * (past + queries)...  Query head h reads key head
 * h / (heads / kv_heads).  scores = scale * q . k. */
typedef struct moii_attention {
    int64_t batch, queries, past, heads, kv_heads, width;
    float scale;
    const float *q, *k, *v;
    float *out;
    int64_t ldq, ldk, ldv, ldo;
    float *lse; /* [batch, heads, queries]: log-sum-exp of each row's scores; NULL: not wanted; read backward */
    const float *d_out; /* backward, like out */
    float *d_q, *d_k, *d_v; /* backward, overwritten */
    int64_t ld_dq, ld_dk, ld_dv;
} moii_attention;

typedef struct moii_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* 1 - beta^step */
    float grad_scale;               /* clipping */
} moii_adamw;

typedef struct moii_nn {
    /* y = x * gain / sqrt(mean(x^2) + eps) per head; gain [width]; rstd [rows * heads] or NULL.  y may be x. */
    void (*rmsnorm)(moi_ctx *ctx, moii_heads xs, const float *x, const float *gain, float eps, int64_t ldy, float *y, float *rstd);
    /* dx = or += the gradient; dgain [width] += */
    void (*rmsnorm_backward)(moi_ctx *ctx, moii_heads xs, const float *x, const float *gain, const float *rstd, int64_t ld_dy,
                             const float *dy, int64_t ld_dx, float *dx, bool add, float *dgain);
    /* In place: (a, b) = (x[i], x[i + width / 2]) becomes (a cos - b sin, b cos + a sin); row r has position
     * past + r % seq; cos_sin [positions, width]: width / 2 cosines, then as many sines.  inverse: the other direction. */
    void (*rope)(moi_ctx *ctx, moii_heads xs, float *x, const float *cos_sin, int64_t seq, int64_t past, bool inverse);
    int64_t (*attention_workspace)(const moi_ctx *ctx, const moii_attention *a, bool backward);
    void (*attention)(moi_ctx *ctx, const moii_attention *a, void *workspace);
    void (*attention_backward)(moi_ctx *ctx, const moii_attention *a, void *workspace);
    void (*embed)(moi_ctx *ctx, const float *table, const int32_t *ids, int64_t rows, int64_t width, float *y);
    void (*embed_backward)(moi_ctx *ctx, float *dtable, const int32_t *ids, int64_t rows, int64_t width, const float *dy);
    /* loss[r] = logsumexp(logits[r]) - logits[r][target]; if want_grad, logits become (softmax - onehot) * scale. */
    void (*cross_entropy)(moi_ctx *ctx, float *logits, const int32_t *targets, int64_t rows, int64_t vocab, float *loss,
                          bool want_grad, float scale);
    double (*sum)(moi_ctx *ctx, const float *x, int64_t n);
    double (*squared_norm)(moi_ctx *ctx, const float *x, int64_t n);
    void (*add)(moi_ctx *ctx, float *z, const float *x, const float *y, int64_t n); /* z = x + y; may overlap exactly */
    void (*zero)(moi_ctx *ctx, float *x, int64_t n);
    /* m, v: moments; w -= lr * (m^ / (sqrt(v^) + eps) + weight_decay * w) */
    void (*adamw)(moi_ctx *ctx, float *w, const float *g, float *m, float *v, int64_t n, const moii_adamw *how);
} moii_nn;

#endif
