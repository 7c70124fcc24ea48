/* SPDX-License-Identifier: Apache-2.0
 * nn_fast.c: embedding, cross-entropy, sums, AdamW; and the table of all that the model asks of this back end. */
#include <math.h>
#include <string.h>

#include "cpu.h"
#include "isa.h"
#include "nn_cpu.h"

/* Sums run over PARTS fixed parts, whatever the number of threads, in runs of RUN. */
enum { PARTS = 64, RUN = 512 };

static void embed(moi_ctx *ctx, const float *table, const int32_t *ids, int64_t rows, int64_t width, float *y)
{
#pragma omp parallel for num_threads(ctx->threads) schedule(static) if (rows > 16)
    for (int64_t r = 0; r < rows; r++) memcpy(y + r * width, table + ids[r] * width, (size_t)width * sizeof *y);
}

/* Threads own columns, so that equal ids meet in the order of rows. */
static void embed_backward(moi_ctx *ctx, float *dtable, const int32_t *ids, int64_t rows, int64_t width, const float *dy)
{
    enum { COLS = 32 };
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t c0 = 0; c0 < width; c0 += COLS)
        for (int64_t r = 0; r < rows; r++) {
            float *to = dtable + ids[r] * width;
            for (int64_t c = c0; c < moii_min(c0 + COLS, width); c++) to[c] += dy[r * width + c];
        }
}

static void cross_entropy(moi_ctx *ctx, float *logits, const int32_t *targets, int64_t rows, int64_t vocab, float *loss,
                          bool want_grad, float scale)
{
    const moii_isa *isa = moii_cpu_isa(ctx);
#pragma omp parallel num_threads(ctx->threads)
    {
        float scratch[RUN];
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            float *x = logits + r * vocab, hit = x[targets[r]], sum = 0;
            const float top = isa->nn_max(x, vocab);
            for (int64_t c = 0; c < vocab; c += RUN) /* the same runs either way: the same loss */
                sum += isa->nn_exp_sum(want_grad ? x + c : scratch, x + c, 1.0f, top, moii_min(RUN, vocab - c));
            loss[r] = (top - hit) + logf(sum);
            if (!want_grad) continue;
            isa->nn_scale(x, scale / sum, vocab);
            x[targets[r]] -= scale;
        }
    }
}

static double total(const double *part)
{
    double s = 0;
    for (int i = 0; i < PARTS; i++) s += part[i];
    return s;
}

static double sum(moi_ctx *ctx, const float *x, int64_t n)
{
    double s = 0;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) s += (double)x[i];
    return s;
}

static double squared_norm(moi_ctx *ctx, const float *x, int64_t n)
{
    const moii_isa *isa = moii_cpu_isa(ctx);
    double part[PARTS];
    const int64_t each = moii_round_up(moii_ceil_div(n, PARTS), RUN);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t p = 0; p < PARTS; p++) {
        part[p] = 0;
        const int64_t end = moii_min((p + 1) * each, n);
        for (int64_t i = p * each; i < end; i += RUN) part[p] += (double)isa->nn_dot(x + i, x + i, moii_min(RUN, end - i));
    }
    return total(part);
}

static void add(moi_ctx *ctx, float *z, const float *x, const float *y, int64_t n)
{
#pragma omp parallel for num_threads(ctx->threads) schedule(static) if (n > 8192)
    for (int64_t i = 0; i < n; i++) z[i] = x[i] + y[i];
}

static void zero(moi_ctx *ctx, float *x, int64_t n)
{
    (void)ctx;
    memset(x, 0, (size_t)n * sizeof *x);
}

static void adamw(moi_ctx *ctx, float *w, const float *g, float *m, float *v, int64_t n, const moii_adamw *how)
{
    const moii_isa *isa = moii_cpu_isa(ctx);
    enum { STRETCH = 8192 };
#pragma omp parallel for num_threads(ctx->threads) schedule(static) if (n > STRETCH)
    for (int64_t i = 0; i < n; i += STRETCH) isa->nn_adamw(w + i, g + i, m + i, v + i, moii_min(STRETCH, n - i), how);
}

const moii_nn moii_nn_cpu = {
    .rmsnorm = moii_cpu_rmsnorm, .rmsnorm_backward = moii_cpu_rmsnorm_backward, .rope = moii_cpu_rope,
    .attention_workspace = moii_cpu_attention_workspace, .attention = moii_cpu_attention,
    .attention_backward = moii_cpu_attention_backward, .embed = embed, .embed_backward = embed_backward,
    .cross_entropy = cross_entropy, .sum = sum, .squared_norm = squared_norm, .add = add, .zero = zero, .adamw = adamw,
};
