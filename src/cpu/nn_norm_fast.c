/* SPDX-License-Identifier: Apache-2.0
 * nn_norm_fast.c: RMS norm, whole rows or per head, and rotary positions.  Rows are independent; sums over rows go in the
 * order of rows, columns being what the threads share out. */
#include "cpu.h"
#include "nn_cpu.h"
#include "nn_lanes.h"

void moii_cpu_rmsnorm(moi_ctx *ctx, moii_heads xs, const float *x, const float *gain, float eps, int64_t ldy, float *y, float *rstd)
{
    const int64_t w = xs.width;
#pragma omp parallel for num_threads(ctx->threads) schedule(static) if (xs.rows > 16)
    for (int64_t r = 0; r < xs.rows; r++)
        for (int64_t h = 0; h < xs.heads; h++) {
            const float *in = x + r * xs.ld + h * w;
            float *out = y + r * ldy + h * w;
            float s = 1.0f / sqrtf(moii_lanes_dot(in, in, w) / (float)w + eps);
            for (int64_t c = 0; c < w; c++) out[c] = in[c] * s * gain[c];
            if (rstd) rstd[r * xs.heads + h] = s;
        }
}

/* Columns c0..c1 of dgain: FP32 over runs of rows, FP64 over the runs. */
static void gain_gradient(moii_heads xs, const float *x, const float *rstd, int64_t ld_dy, const float *dy, int64_t c0, int64_t c1, float *dgain)
{
    enum { COLS = 32, RUN = 64 };
    double total[COLS] = { 0 };
    for (int64_t r0 = 0; r0 < xs.rows; r0 += RUN) {
        float acc[COLS] = { 0 };
        for (int64_t r = r0; r < moii_min(r0 + RUN, xs.rows); r++)
            for (int64_t h = 0; h < xs.heads; h++) {
                const float *in = x + r * xs.ld + h * xs.width, *d = dy + r * ld_dy + h * xs.width;
                const float s = rstd[r * xs.heads + h];
                for (int64_t c = c0; c < c1; c++) acc[c - c0] += d[c] * (in[c] * s);
            }
        for (int64_t c = c0; c < c1; c++) total[c - c0] += (double)acc[c - c0];
    }
    for (int64_t c = c0; c < c1; c++) dgain[c] += (float)total[c - c0];
}

/* y_c = g_c x_c s, s = rstd:  dx_c = s (g_c dy_c - x_c s^2 mean(g dy x)) */
void moii_cpu_rmsnorm_backward(moi_ctx *ctx, moii_heads xs, const float *x, const float *gain, const float *rstd, int64_t ld_dy,
                               const float *dy, int64_t ld_dx, float *dx, bool add, float *dgain)
{
    const int64_t w = xs.width;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t c0 = 0; c0 < w; c0 += 32) gain_gradient(xs, x, rstd, ld_dy, dy, c0, moii_min(c0 + 32, w), dgain);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t r = 0; r < xs.rows; r++)
        for (int64_t h = 0; h < xs.heads; h++) {
            const float *in = x + r * xs.ld + h * w, *d = dy + r * ld_dy + h * w;
            float *out = dx + r * ld_dx + h * w;
            const float s = rstd[r * xs.heads + h];
            float acc[MOII_LANES] = { 0 };
            int64_t c = 0;
            for (; c + MOII_LANES <= w; c += MOII_LANES)
                for (int l = 0; l < MOII_LANES; l++) acc[l] += gain[c + l] * d[c + l] * in[c + l];
            for (int l = 0; c < w; c++, l++) acc[l] += gain[c] * d[c] * in[c];
            const float k = moii_lanes_sum(acc) / (float)w * s * s;
            if (add)
                for (c = 0; c < w; c++) out[c] += s * (gain[c] * d[c] - in[c] * k);
            else
                for (c = 0; c < w; c++) out[c] = s * (gain[c] * d[c] - in[c] * k);
        }
}

void moii_cpu_rope(moi_ctx *ctx, moii_heads xs, float *x, const float *cos_sin, int64_t seq, int64_t past, bool inverse)
{
    const int64_t half = xs.width / 2;
    const float sign = inverse ? -1.0f : 1.0f;
#pragma omp parallel for num_threads(ctx->threads) schedule(static) if (xs.rows > 16)
    for (int64_t r = 0; r < xs.rows; r++) {
        const float *cosine = cos_sin + (past + r % seq) * xs.width, *sine = cosine + half;
        for (int64_t h = 0; h < xs.heads; h++) {
            float *restrict a = x + r * xs.ld + h * xs.width, *restrict b = a + half;
            for (int64_t i = 0; i < half; i++) {
                const float s = sign * sine[i], u = a[i], v = b[i];
                a[i] = u * cosine[i] - v * s;
                b[i] = v * cosine[i] + u * s;
            }
        }
    }
}
