/* SPDX-License-Identifier: Apache-2.0
 *
 * route_plain: moi_route_run and moi_route_backward_run; plain CUDA for capability 8.0 and newer.
 *
 *   grid      ROUTE_TOKENS, ROUTE_BACKWARD: a warp for each token, 4 to a block; ROUTE_AUX, ROUTE_SLOPE: one block
 *   shared    these two: a word for each of ROUTE_HELD_EXPERTS; the others none, and so they start beside blocks that leave none
 *   token     route_topk.cuh
 *   launch    begins before the grid before it has ended, and waits for it, on devices that can (9.0 and newer)
 */
#include "num.h"
#include "own_warp.cuh"
#include "route_plain_args.h"
#include "route_topk.cuh"

extern "C" {
extern __shared__ unsigned int counted[];
}

/* counted[e]: slots of expert first + e. */
MOII_FN void count_slots(const route_plain_args &a, long long first)
{
    for (int e = (int)threadIdx.x; e < ROUTE_HELD_EXPERTS; e += (int)blockDim.x) counted[e] = 0;
    __syncthreads();
#pragma unroll 4
    for (long long i = threadIdx.x; i < a.tokens * a.top_k; i += blockDim.x) {
        const long long e = a.ids[i] - first;
        if (e >= 0 && e < ROUTE_HELD_EXPERTS) atomicAdd(counted + e, 1u);
    }
    __syncthreads();
}

/* The sum of p's column e, in the order of tokens. */
MOII_FN double mass_of(const route_plain_args &a, long long e)
{
    double mass = 0;
#pragma unroll 8
    for (long long i = 0; i < a.tokens; i++) mass += (double)a.probs[i * a.experts + e];
    return mass;
}

/* slope[e] = its count and, for the loss, times its mass; then the loss, in the order of experts.  One block. */
MOII_FN void sum_experts(const route_plain_args &a)
{
    const double t = (double)a.tokens, coef = (double)a.aux_coef * (double)a.experts;
    for (long long first = 0; first < a.experts; first += ROUTE_HELD_EXPERTS) {
        if (coef != 0) count_slots(a, first);
        for (long long e = first + threadIdx.x; e < min(a.experts, first + ROUTE_HELD_EXPERTS); e += blockDim.x) {
            const double count = coef != 0 ? (double)counted[e - first] : 0;
            a.slope[e] = a.step == ROUTE_AUX ? count / t * (mass_of(a, e) / t) : count * (coef / (t * t));
        }
        __syncthreads(); /* before they are counted anew */
    }
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
    const long long t = blockIdx.x * 4LL + own_warp();
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    if (a.step == ROUTE_AUX || a.step == ROUTE_SLOPE) sum_experts(a);
    else if (t < a.tokens && a.step == ROUTE_TOKENS) {
        route_shape s;
        s.experts = (int)a.experts, s.top_k = (int)a.top_k, s.renormalize = a.renormalize != 0;
        route_token(a.logits + t * a.experts, a.probs + t * a.experts, s, a.ids + t * a.top_k, a.weights + t * a.top_k, lane);
    } else if (t < a.tokens) route_token_backward(a, t, lane);
}
