/* SPDX-License-Identifier: Apache-2.0
 * combine_fast.c: tokens spread over threads, columns in pieces that the compiler vectorises.  Every sum has combine_ref's
 * order; only the dot products of d_weights are added in another one (16 partial sums). */
#include <string.h>

#include "combine_rows.h"

enum { PIECE = 64, LANES = 16 };

static void load(moi_dtype dtype, const void *base, int64_t at, float *v, int64_t n)
{
    if (dtype == MOI_F32) memcpy(v, (const float *)base + at, (size_t)n * sizeof *v);
    else
        for (int64_t i = 0; i < n; i++) v[i] = moii_bf16_decode(((const uint16_t *)base + at)[i]);
}

static void store(moi_dtype dtype, void *base, int64_t at, const float *v, int64_t n)
{
    if (dtype == MOI_F32) memcpy((float *)base + at, v, (size_t)n * sizeof *v);
    else
        for (int64_t i = 0; i < n; i++) ((uint16_t *)base + at)[i] = (uint16_t)moii_bf16_encode(v[i]);
}

static void combine_token(const moi_permute_desc *d, const moi_combine_args *a, int64_t t)
{
    for (int64_t c = 0; c < d->hidden; c += PIECE) {
        int64_t n = moii_min(PIECE, d->hidden - c);
        float sum[PIECE] = { 0 }, v[PIECE] = { 0 };
        for (int64_t s = t * d->top_k; s < (t + 1) * d->top_k; s++) {
            float w = a->weights ? a->weights[s] : 1.0f;
            int64_t row = moii_combine_row(a, s);
            if (row < 0) continue;
            load(d->dtype, a->y_sorted, row * d->hidden + c, v, n);
            for (int64_t i = 0; i < PIECE; i++) sum[i] += w * v[i];
        }
        store(d->dtype, a->y, t * d->hidden + c, sum, n);
    }
}

static void spread_row(const moi_permute_desc *d, const moi_combine_args *a, int64_t s)
{
    float lanes[LANES] = { 0 }, w = a->weights ? a->weights[s] : 1.0f;
    int64_t row = moii_combine_row(a, s);
    for (int64_t c = 0; row >= 0 && c < d->hidden; c += PIECE) {
        int64_t n = moii_min(PIECE, d->hidden - c), at = row * d->hidden + c;
        float dy[PIECE] = { 0 }, v[PIECE] = { 0 };
        load(d->dtype, a->d_y, s / d->top_k * d->hidden + c, dy, n);
        if (a->d_weights) {
            load(d->dtype, a->y_sorted, at, v, n);
            for (int64_t i = 0; i < PIECE; i += LANES)
                for (int64_t l = 0; l < LANES; l++) lanes[l] += dy[i + l] * v[i + l];
        }
        for (int64_t i = 0; i < PIECE; i++) dy[i] *= w;
        store(d->dtype, a->d_y_sorted, at, dy, n);
    }
    if (!a->d_weights) return;
    double dot = 0;
    for (int64_t l = 0; l < LANES; l++) dot += (double)lanes[l];
    a->d_weights[s] = (float)dot;
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_permute_desc *d = &plan->desc.permute;
    const moi_combine_args *a = args;
    (void)workspace, (void)stream;
    MOII_TRY(moii_combine_check(d, a));
#pragma omp parallel for num_threads(plan->ctx->threads) schedule(static)
    for (int64_t t = 0; t < a->tokens; t++) combine_token(d, a, t);
    return MOI_OK;
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_permute_desc *d = &plan->desc.permute;
    const moi_combine_args *a = args;
    int64_t rows = a->tokens * d->top_k;
    (void)workspace, (void)stream;
    MOII_TRY(moii_combine_check(d, a));
#pragma omp parallel for num_threads(plan->ctx->threads) schedule(static)
    for (int64_t s = 0; s < rows; s++) spread_row(d, a, s);
    return MOI_OK;
}

const moii_impl moii_impl_combine_fast = {
    .name = "combine_fast", .op = MOII_OP_COMBINE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .run = run, .run_backward = run_backward,
};
