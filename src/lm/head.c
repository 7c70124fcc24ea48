/* SPDX-License-Identifier: Apache-2.0
 * head.c: logits = x W^T with x in FP32 and W as it is stored, and the loss, a piece of rows at a time. */
#include "lm.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 26, CHUNK_MOST = 1024, CHUNK_LEAST = 16 };

static moi_status plan(moi_plan **out, moi_ctx *ctx, moi_order a, moi_order b, bool add, int64_t m, int64_t n, int64_t k)
{
    moi_gemm_desc d = MOI_GEMM_DESC_INIT;
    d.a = d.b = MOI_FORMAT_F32;
    d.a_order = a, d.b_order = b;
    d.accumulate = add;
    d.max_m = m, d.n = n, d.k = k;
    return moi_gemm_plan_create(out, ctx, &d);
}

static moi_status plan_all(moii_head *p, const moi_lm *lm, bool training)
{
    const int64_t v = lm->config.vocab_size, h = lm->config.hidden_size, n = p->chunk, rest = p->rows % n;
    MOII_TRY(moii_matmul_create(&p->fprop, lm->ctx, MOI_F32, &lm->head.format, n, v, h));
    if (!training) return MOI_OK;
    MOII_TRY(plan(&p->dgrad, lm->ctx, MOI_K_MAJOR, MOI_MN_MAJOR, false, n, h, v));
    MOII_TRY(plan(&p->wgrad, lm->ctx, MOI_MN_MAJOR, MOI_MN_MAJOR, true, v, h, n));
    return rest ? plan(&p->wgrad_rest, lm->ctx, MOI_MN_MAJOR, MOI_MN_MAJOR, true, v, h, rest) : MOI_OK;
}

moi_status moii_head_create(moii_head *p, const moi_lm *lm, int64_t rows, bool training)
{
    const int64_t fit = CHUNK_BYTES / 4 / lm->config.vocab_size / CHUNK_LEAST * CHUNK_LEAST; /* keeps rows of x aligned */
    p->rows = rows;
    p->chunk = moii_min(moii_max(moii_min(fit, CHUNK_MOST), CHUNK_LEAST), moii_max(rows, 1));
    MOII_TRY(plan_all(p, lm, training));
    MOII_TRY(moii_alloc(lm->ctx, p->chunk * lm->config.vocab_size * 4, &p->logits));
    return moii_alloc(lm->ctx, rows * 4, &p->loss);
}

void moii_head_free(moii_head *p)
{
    moii_matmul_free(&p->fprop);
    moi_plan_free(p->dgrad), moi_plan_free(p->wgrad), moi_plan_free(p->wgrad_rest);
}

int64_t moii_head_workspace(const moii_head *p)
{
    const moi_plan *plans[] = { p->dgrad, p->wgrad, p->wgrad_rest };
    int64_t most = moii_matmul_workspace(&p->fprop);
    for (int i = 0; i < 3; i++) most = moii_max(most, moi_plan_workspace_bytes(plans[i]));
    return most;
}

static moi_status product(const moi_plan *plan_, int64_t m, const void *a, const void *b, void *d, moii_space space)
{
    moi_gemm_args args = { .size = sizeof args, .m = m, .a = { a, NULL, 0 }, .b = { b, NULL, 0 }, .d = d };
    return moi_gemm_run(plan_, &args, space.at, space.bytes, NULL);
}

moi_status moii_head_logits(const moii_head *p, const moi_lm *lm, const float *x, int64_t rows, float *logits, moii_space space)
{
    const int64_t v = lm->config.vocab_size, h = lm->config.hidden_size;
    for (int64_t r = 0; r < rows; r += p->chunk) {
        const int64_t n = moii_min(p->chunk, rows - r);
        MOII_TRY(moii_matmul_run(&p->fprop, n, x + r * h, lm->head.at, p->logits, 0, space));
        memcpy(logits + r * v, p->logits, (size_t)(n * v) * sizeof *logits);
    }
    return MOI_OK;
}

moi_status moii_head_loss(const moii_head *p, const moi_lm *lm, const float *x, int64_t rows, const int32_t *targets, double *loss,
                          float *logits, float *grads, float *d_x, moii_space space)
{
    const int64_t v = lm->config.vocab_size, h = lm->config.hidden_size;
    for (int64_t r = 0; r < rows; r += p->chunk) {
        const int64_t n = moii_min(p->chunk, rows - r);
        MOII_TRY(moii_matmul_run(&p->fprop, n, x + r * h, lm->head.at, p->logits, 0, space));
        if (logits) memcpy(logits + r * v, p->logits, (size_t)(n * v) * sizeof *logits);
        moii_nn_of(lm)->cross_entropy(lm->ctx, p->logits, targets + r, n, v, p->loss + r, grads != NULL, 1.0f / (float)rows);
        if (!grads) continue;
        MOII_TRY(product(p->dgrad, n, p->logits, lm->head.at.data, d_x + r * h, space));
        MOII_TRY(product(n == p->chunk ? p->wgrad : p->wgrad_rest, v, p->logits, x + r * h, grads + lm->params.head, space));
    }
    *loss = rows ? moii_nn_of(lm)->sum(lm->ctx, p->loss, rows) / (double)rows : 0.0;
    return MOI_OK;
}
