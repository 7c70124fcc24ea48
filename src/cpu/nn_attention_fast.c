/* SPDX-License-Identifier: Apache-2.0
 * nn_attention_fast.c: causal attention in blocks of query rows: one block's scores [BLOCK, keys] are all that is held.
 * The backward pass makes the probabilities again from the saved log-sum-exp.  Threads share out (sequence, key head)
 * pairs; each pair's sums run in one order. */
#include <math.h>
#include <string.h>

#include "blas.h"
#include "cpu.h"
#include "isa.h"
#include "nn_cpu.h"

enum { BLOCK = 64 };

/* One query head of one sequence. */
typedef struct head {
    const moii_attention *a;
    const moii_isa *isa;
    int64_t b, h, kv;
    const float *q, *k, *v;
} head;

static head head_of(const moii_attention *a, const moii_isa *isa, int64_t b, int64_t h)
{
    const int64_t keys = a->past + a->queries, kv = h / (a->heads / a->kv_heads);
    return (head){ a, isa, b, h, kv, a->q + b * a->queries * a->ldq + h * a->width, a->k + b * keys * a->ldk + kv * a->width,
                   a->v + b * keys * a->ldv + kv * a->width };
}

static int64_t block_floats(const moii_attention *a) { return moii_round_up(moii_min(BLOCK, a->queries) * (a->past + a->queries), 32); }

int64_t moii_cpu_attention_workspace(const moi_ctx *ctx, const moii_attention *a, bool backward)
{
    return (int64_t)ctx->threads * block_floats(a) * (backward ? 2 : 1) * 4;
}

/* [rows, n] = A [rows, width] B [n, width]^T */
static void scores(int64_t rows, int64_t n, int64_t width, const float *a, int64_t lda, const float *b, int64_t ldb, float *out)
{
    moii_sgemm(false, true, rows, n, width, a, lda, b, ldb, false, out, n);
}

static void forward_block(const head *x, int64_t i0, int64_t i1, float *p)
{
    const moii_attention *a = x->a;
    const int64_t n = a->past + i1, rows = i1 - i0;
    scores(rows, n, a->width, x->q + i0 * a->ldq, a->ldq, x->k, a->ldk, p);
    for (int64_t i = i0; i < i1; i++) {
        float *row = p + (i - i0) * n;
        const int64_t seen = a->past + i + 1;
        const float top = a->scale * x->isa->nn_max(row, seen);
        const float sum = x->isa->nn_exp_sum(row, row, a->scale, top, seen);
        x->isa->nn_scale(row, 1.0f / sum, seen);
        memset(row + seen, 0, (size_t)(n - seen) * sizeof *row);
        if (a->lse) a->lse[(x->b * a->heads + x->h) * a->queries + i] = top + logf(sum);
    }
    moii_sgemm(false, false, rows, a->width, n, p, n, x->v, a->ldv, false, a->out + (x->b * a->queries + i0) * a->ldo + x->h * a->width, a->ldo);
}

void moii_cpu_attention(moi_ctx *ctx, const moii_attention *a, void *workspace)
{
    const moii_isa *isa = moii_cpu_isa(ctx);
    const int64_t size = block_floats(a);
#pragma omp parallel num_threads(ctx->threads) if (a->queries > 1 || a->past > 256)
    {
        moii_blas_alone();
        float *p = (float *)workspace + omp_get_thread_num() * size;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a->batch * a->heads; i++) {
            head x = head_of(a, isa, i / a->heads, i % a->heads);
            for (int64_t i0 = 0; i0 < a->queries; i0 += BLOCK) forward_block(&x, i0, moii_min(i0 + BLOCK, a->queries), p);
        }
    }
}

/* p and ds: [BLOCK, n] each.  dk, dv [keys, width] are added to. */
static void backward_block(const head *x, int64_t i0, int64_t i1, float *p, float *ds, float *dk, float *dv)
{
    const moii_attention *a = x->a;
    const int64_t n = a->past + i1, rows = i1 - i0, first = x->b * a->queries + i0;
    const float *out = a->out + first * a->ldo + x->h * a->width, *d_out = a->d_out + first * a->ldo + x->h * a->width;
    scores(rows, n, a->width, x->q + i0 * a->ldq, a->ldq, x->k, a->ldk, p);
    scores(rows, n, a->width, d_out, a->ldo, x->v, a->ldv, ds);
    for (int64_t i = i0; i < i1; i++) {
        float *pr = p + (i - i0) * n, *dr = ds + (i - i0) * n;
        const int64_t seen = a->past + i + 1;
        const float delta = x->isa->nn_dot(out + (i - i0) * a->ldo, d_out + (i - i0) * a->ldo, a->width);
        x->isa->nn_exp_sum(pr, pr, a->scale, a->lse[(x->b * a->heads + x->h) * a->queries + i], seen);
        x->isa->nn_softmax_backward(dr, pr, dr, delta, a->scale, seen);
        memset(pr + seen, 0, (size_t)(n - seen) * sizeof *pr);
        memset(dr + seen, 0, (size_t)(n - seen) * sizeof *dr);
    }
    moii_sgemm(false, false, rows, a->width, n, ds, n, x->k, a->ldk, false, a->d_q + first * a->ld_dq + x->h * a->width, a->ld_dq);
    moii_sgemm(true, false, n, a->width, rows, ds, n, x->q + i0 * a->ldq, a->ldq, true, dk, a->ld_dk);
    moii_sgemm(true, false, n, a->width, rows, p, n, d_out, a->ldo, true, dv, a->ld_dv);
}

/* All query heads that read key head `kv` of sequence b. */
static void backward_group(const moii_attention *a, const moii_isa *isa, int64_t b, int64_t kv, float *p, float *ds)
{
    const int64_t group = a->heads / a->kv_heads, keys = a->past + a->queries;
    float *dk = a->d_k + b * keys * a->ld_dk + kv * a->width, *dv = a->d_v + b * keys * a->ld_dv + kv * a->width;
    for (int64_t r = 0; r < keys; r++) {
        memset(dk + r * a->ld_dk, 0, (size_t)a->width * sizeof *dk);
        memset(dv + r * a->ld_dv, 0, (size_t)a->width * sizeof *dv);
    }
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        head x = head_of(a, isa, b, h);
        for (int64_t i0 = 0; i0 < a->queries; i0 += BLOCK) backward_block(&x, i0, moii_min(i0 + BLOCK, a->queries), p, ds, dk, dv);
    }
}

void moii_cpu_attention_backward(moi_ctx *ctx, const moii_attention *a, void *workspace)
{
    const moii_isa *isa = moii_cpu_isa(ctx);
    const int64_t size = block_floats(a);
#pragma omp parallel num_threads(ctx->threads)
    {
        moii_blas_alone();
        float *p = (float *)workspace + 2 * omp_get_thread_num() * size;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a->batch * a->kv_heads; i++) backward_group(a, isa, i / a->kv_heads, i % a->kv_heads, p, p + size);
    }
}
