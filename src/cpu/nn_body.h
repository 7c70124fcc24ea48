/* SPDX-License-Identifier: Apache-2.0
 * nn_body.h: the model's inner loops, compiled once per instruction set by isa_<name>.c.  Lanes are fixed, so every
 * instruction set gives the same bits. */
#include "nn_lanes.h"

static float nn_max(const float *x, int64_t n)
{
    float acc[MOII_LANES], best = -INFINITY;
    for (int l = 0; l < MOII_LANES; l++) acc[l] = -INFINITY;
    int64_t i = 0;
    for (; i + MOII_LANES <= n; i += MOII_LANES)
        for (int l = 0; l < MOII_LANES; l++) acc[l] = x[i + l] > acc[l] ? x[i + l] : acc[l];
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    for (int l = 0; l < MOII_LANES; l++) best = acc[l] > best ? acc[l] : best;
    return best;
}

/* y = exp(scale * x - shift); returns the sum.  y may be x. */
static float nn_exp_sum(float *y, const float *x, float scale, float shift, int64_t n)
{
    float acc[MOII_LANES] = { 0 };
    int64_t i = 0;
    for (; i + MOII_LANES <= n; i += MOII_LANES)
        for (int l = 0; l < MOII_LANES; l++) {
            float e = moii_exp(scale * x[i + l] - shift);
            y[i + l] = e;
            acc[l] += e;
        }
    for (int l = 0; i < n; i++, l++) {
        float e = moii_exp(scale * x[i] - shift);
        y[i] = e;
        acc[l] += e;
    }
    return moii_lanes_sum(acc);
}

static float nn_dot(const float *a, const float *b, int64_t n) { return moii_lanes_dot(a, b, n); }

static void nn_scale(float *y, float s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] *= s;
}

/* ds = scale * p * (dp - delta), over p */
static void nn_softmax_backward(float *ds, const float *p, const float *dp, float delta, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) ds[i] = scale * (p[i] * (dp[i] - delta));
}

static void nn_adamw(float *w, const float *g, float *m, float *v, int64_t n, const moii_adamw *h)
{
    const float b1 = h->beta1, b2 = h->beta2, c1 = 1.0f / h->correction1, c2 = 1.0f / h->correction2;
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * h->grad_scale;
        m[i] = b1 * m[i] + (1.0f - b1) * gi;
        v[i] = b2 * v[i] + (1.0f - b2) * (gi * gi);
        float step = (m[i] * c1) / (sqrtf(v[i] * c2) + h->eps) + h->weight_decay * w[i];
        w[i] -= h->lr * step;
    }
}
