/* SPDX-License-Identifier: Apache-2.0
 *
 * route_plain: moi_route_run and moi_route_backward_run; plain CUDA for capability 8.0 and newer.
 *
 *   grid      ROUTE_TOKENS, ROUTE_BACKWARD: a warp for each token, 4 to a block; ROUTE_AUX, ROUTE_SLOPE: one block
 *   lanes     lane i has experts i, i + 32, ..., the first 8 in registers; sums of exponentials are in double, their order is the lanes' own
 *   launch    begins before the grid before it has ended, and waits for it, on devices that can (9.0 and newer)
 */
#include "num.h"
#include "route_plain_args.h"

MOII_FN float lane_max(float v)
{
    for (int step = 16; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, step));
    return v;
}
MOII_FN double lane_sum(double v)
{
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
    return v;
}

/* Expert a of probability p comes before expert b of q: larger first, numbers before NaN, then the lower index.  No expert: -1, last. */
MOII_FN bool before(float p, int a, float q, int b)
{
    if (a < 0 || b < 0) return b < 0 && a >= 0;
    if (p > q || (moii_is_nan(q) && !moii_is_nan(p))) return true;
    if (q > p || (moii_is_nan(p) && !moii_is_nan(q))) return false;
    return a < b;
}

enum { HELD = 8 };
typedef struct held { float v[HELD]; } held;

/* The best expert behind (last, p_last); -1 before the first. */
MOII_FN int next_best(const held &h, const float *p, int experts, int last, float p_last, int lane, float *value)
{
    int best = -1;
    float v = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const int e = lane + 32 * i;
        if (e < experts && (last < 0 || before(p_last, last, h.v[i], e)) && before(h.v[i], e, v, best)) v = h.v[i], best = e;
    }
    for (int e = lane + 32 * HELD; e < experts; e += 32) {
        const float q = p[e];
        if ((last < 0 || before(p_last, last, q, e)) && before(q, e, v, best)) v = q, best = e;
    }
    for (int step = 16; step; step /= 2) {
        const int other = __shfl_xor_sync(0xFFFFFFFFu, best, step);
        const float q = __shfl_xor_sync(0xFFFFFFFFu, v, step);
        if (before(q, other, v, best)) v = q, best = other;
    }
    *value = v;
    return best;
}

MOII_FN void route_token(const route_plain_args &a, long long t, int lane)
{
    const float *logits = a.logits + t * a.experts;
    float *p = a.probs + t * a.experts, *w = a.weights + t * a.top_k, most = moii_float_of(0xFF800000u);
    const int experts = (int)a.experts;
    double sum = 0, chosen = 0;
    held h;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        h.v[i] = lane + 32 * i < experts ? logits[lane + 32 * i] : moii_float_of(0xFF800000u);
        most = fmaxf(most, h.v[i]);
    }
    for (int e = lane + 32 * HELD; e < experts; e += 32) most = fmaxf(most, logits[e]);
    most = lane_max(most);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        if (lane + 32 * i >= experts) continue;
        const double x = exp((double)h.v[i] - (double)most);
        sum += x;
        h.v[i] = (float)x;
    }
    for (int e = lane + 32 * HELD; e < experts; e += 32) {
        const double x = exp((double)logits[e] - (double)most);
        sum += x;
        p[e] = (float)x;
    }
    sum = lane_sum(sum);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        if (lane + 32 * i >= experts) continue;
        p[lane + 32 * i] = h.v[i] = (float)((double)h.v[i] / sum);
    }
    for (int e = lane + 32 * HELD; e < experts; e += 32) p[e] = (float)((double)p[e] / sum);
    int last = -1;
    float v = 0;
    float mine = 0; /* of slot `lane` */
    for (long long s = 0; s < a.top_k; s++) {
        last = next_best(h, p, experts, last, v, lane, &v);
        chosen += (double)v;
        if (s % 32 == lane) mine = v;
        if (lane == 0) a.ids[t * a.top_k + s] = last;
        if (lane == 0 && (!a.renormalize || a.top_k > 32)) w[s] = v;
    }
    if (!a.renormalize) return;
    if (a.top_k <= 32 && lane < a.top_k) w[lane] = (float)((double)mine / chosen);
    for (long long s = 0; a.top_k > 32 && lane == 0 && s < a.top_k; s++) w[s] = (float)((double)w[s] / chosen);
}

/* slope[e] = its count and, for the loss, times its mass; then the loss, in the order of experts.  One block. */
MOII_FN void sum_experts(const route_plain_args &a)
{
    const double t = (double)a.tokens, coef = (double)a.aux_coef * (double)a.experts;
    for (long long e = threadIdx.x; e < a.experts; e += blockDim.x) {
        double mass = 0;
        long long count = 0;
        for (long long i = 0; i < a.tokens * a.top_k; i++) count += a.ids[i] == e;
        for (long long i = 0; a.step == ROUTE_AUX && i < a.tokens; i++) mass += (double)a.probs[i * a.experts + e];
        a.slope[e] = a.step == ROUTE_AUX ? (double)count / t * (mass / t) : (double)count * (coef / (t * t));
    }
    __syncthreads();
    if (a.step != ROUTE_AUX || threadIdx.x) return;
    double sum = 0;
    for (long long e = 0; e < a.experts; e++) sum += a.slope[e];
    *a.aux = (float)(coef * sum);
}

/* d_logits = p (dp - sum p dp): every lane sums all, in the reference's order. */
MOII_FN void route_token_backward(const route_plain_args &a, long long t, int lane)
{
    const float *p = a.probs + t * a.experts, *w = a.weights + t * a.top_k, *dw = a.d_weights + t * a.top_k;
    const int *ids = a.ids + t * a.top_k;
    double sum = 1, mean = 0, dot = 0;
    if (a.renormalize) {
        sum = 0;
        for (long long s = 0; s < a.top_k; s++) {
            sum += (double)p[ids[s]];
            mean += (double)dw[s] * (double)w[s];
        }
    }
    for (long long e = 0; e < a.experts; e++) dot += (double)p[e] * a.slope[e];
    for (long long s = 0; s < a.top_k; s++) dot += (double)p[ids[s]] * (((double)dw[s] - mean) / sum);
    for (long long e = lane; e < a.experts; e += 32) {
        double dp = a.slope[e];
        for (long long s = 0; s < a.top_k; s++)
            if (ids[s] == e) dp += ((double)dw[s] - mean) / sum;
        a.d_logits[t * a.experts + e] = (float)((double)p[e] * (dp - dot));
    }
}

extern "C" __global__ void __launch_bounds__(128, 4) route_plain(const __grid_constant__ route_plain_args a)
{
    const int lane = (int)threadIdx.x % 32;
    const long long t = blockIdx.x * 4LL + threadIdx.x / 32;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    if (a.step == ROUTE_AUX || a.step == ROUTE_SLOPE) sum_experts(a);
    else if (t < a.tokens && a.step == ROUTE_TOKENS) route_token(a, t, lane);
    else if (t < a.tokens) route_token_backward(a, t, lane);
}
