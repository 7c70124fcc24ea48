/* SPDX-License-Identifier: Apache-2.0
 * route_body.h: routing of one token, and what is summed over all of them.  Both rows share it, because ids must agree
 * even where two probabilities differ in the last bit only. */
#ifndef MOII_ROUTE_BODY_H
#define MOII_ROUTE_BODY_H

#include <math.h>

#include "cpu.h"

/* Sorts before: larger, and any number before NaN.  Strict, so that of equals the one met first stays ahead. */
static inline bool moii_route_before(float a, float b) { return a > b || (moii_is_nan(b) && !moii_is_nan(a)); }

/* Exponentials and their sum in float64, so that p has two roundings to FP32 and no more. */
static inline void moii_route_softmax(const float *logits, float *p, int64_t experts)
{
    double sum = 0;
    float max = -INFINITY;
    for (int64_t e = 0; e < experts; e++)
        if (logits[e] > max) max = logits[e];
    for (int64_t e = 0; e < experts; e++) {
        double x = exp((double)logits[e] - (double)max);
        sum += x;
        p[e] = (float)x;
    }
    for (int64_t e = 0; e < experts; e++) p[e] = (float)((double)p[e] / sum);
}

/* Inserts each expert into the sorted list of the best; an expert enters once, so ids are distinct whatever p holds. */
static inline void moii_route_select(const float *p, int32_t *ids, int64_t experts, int64_t top_k)
{
    int64_t held = 0;
    for (int64_t e = 0; e < experts; e++) {
        int64_t at = held;
        while (at > 0 && moii_route_before(p[e], p[ids[at - 1]])) at--;
        if (at == top_k) continue;
        if (held < top_k) held++;
        for (int64_t s = held - 1; s > at; s--) ids[s] = ids[s - 1];
        ids[at] = (int32_t)e;
    }
}

static inline void moii_route_token(const moi_route_desc *d, const moi_route_args *a, int64_t t)
{
    float *p = a->probs + t * d->experts, *w = a->weights + t * d->top_k;
    int32_t *ids = a->ids + t * d->top_k;
    double sum = 0;
    moii_route_softmax(a->logits + t * d->experts, p, d->experts);
    moii_route_select(p, ids, d->experts, d->top_k);
    for (int64_t s = 0; s < d->top_k; s++) sum += (double)p[ids[s]];
    for (int64_t s = 0; s < d->top_k; s++) w[s] = d->renormalize ? (float)((double)p[ids[s]] / sum) : p[ids[s]];
}

/* count[e] of all slots; refuses ids that are no experts, since backward they come from the caller. */
static inline moi_status moii_route_count(const moi_route_desc *d, const moi_route_args *a, double *count)
{
    for (int64_t e = 0; e < d->experts; e++) count[e] = 0;
    for (int64_t i = 0; i < a->tokens * d->top_k; i++) {
        MOII_REQUIRE(a->ids[i] >= 0 && a->ids[i] < d->experts, MOI_ERR_ARG, "route run: ids[%lld] must be 0..%lld, got %d",
                     (long long)i, (long long)d->experts - 1, a->ids[i]);
        count[a->ids[i]] += 1;
    }
    return MOI_OK;
}

/* workspace: 2 * experts doubles */
static inline moi_status moii_route_aux(const moi_route_desc *d, const moi_route_args *a, double *workspace)
{
    double *count = workspace, *mass = workspace + d->experts, sum = 0, t = (double)a->tokens;
    if (!a->aux_loss) return MOI_OK;
    *a->aux_loss = 0;
    if (a->tokens == 0 || d->aux_coef == 0) return MOI_OK;
    MOII_TRY(moii_route_count(d, a, count));
    for (int64_t e = 0; e < d->experts; e++) mass[e] = 0;
    for (int64_t i = 0; i < a->tokens; i++)
        for (int64_t e = 0; e < d->experts; e++) mass[e] += (double)a->probs[i * d->experts + e];
    for (int64_t e = 0; e < d->experts; e++) sum += count[e] / t * (mass[e] / t);
    *a->aux_loss = (float)((double)d->aux_coef * (double)d->experts * sum);
    return MOI_OK;
}

/* d aux / d p[t][e] = coef * E * count_e / t^2, the same for every token: replaces count by it. */
static inline moi_status moii_route_aux_slope(const moi_route_desc *d, const moi_route_args *a, double *count)
{
    double t = (double)a->tokens;
    MOII_TRY(moii_route_count(d, a, count));
    for (int64_t e = 0; e < d->experts; e++) count[e] *= (double)d->aux_coef * (double)d->experts / (t * t);
    return MOI_OK;
}

/* dp = slope + the selected slots' gradients; d_logits = p (dp - sum p dp).  With w = p / S: dp_s = (d_w_s - sum d_w w) / S. */
static inline void moii_route_token_backward(const moi_route_desc *d, const moi_route_args *a, const double *slope, int64_t t)
{
    const float *p = a->probs + t * d->experts, *w = a->weights + t * d->top_k, *dw = a->d_weights + t * d->top_k;
    const int32_t *ids = a->ids + t * d->top_k;
    float *dl = a->d_logits + t * d->experts;
    double sum = 1, mean = 0, dot = 0;
    if (d->renormalize) {
        sum = 0;
        for (int64_t s = 0; s < d->top_k; s++) {
            sum += (double)p[ids[s]];
            mean += (double)dw[s] * (double)w[s];
        }
    }
    for (int64_t e = 0; e < d->experts; e++) dot += (double)p[e] * slope[e];
    for (int64_t s = 0; s < d->top_k; s++) dot += (double)p[ids[s]] * (((double)dw[s] - mean) / sum);
    for (int64_t e = 0; e < d->experts; e++) {
        double dp = slope[e];
        for (int64_t s = 0; s < d->top_k; s++)
            if (ids[s] == e) dp += ((double)dw[s] - mean) / sum;
        dl[e] = (float)((double)p[e] * (dp - dot));
    }
}

#endif
