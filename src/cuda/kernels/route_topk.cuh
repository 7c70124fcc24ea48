/* SPDX-License-Identifier: Apache-2.0
 * route_topk.cuh: softmax and the best experts of one token by one warp: what route_plain computes, and what a decode kernel that
 * begins with router logits computes for itself; the same bits, since it is the same code.
 *
 *   up to 512 experts   lane i has `per` neighbours, i * per and on, as keys in registers, so that of equal keys the lowest lane's comes first:
 *                       one redux and one ballot find the best
 *   more                probabilities in memory, lane i has i, i + 32, ...
 *   arithmetic          exponentials and their sum in double; p is the FP32 rounding of their quotient, and p decides the order
 *
 * Where a kernel needs ids before weights: route_ids.cuh. */
#ifndef MOII_ROUTE_TOPK_CUH
#define MOII_ROUTE_TOPK_CUH

#include "num.h"

enum { ROUTE_IN_REGISTERS = 512, ROUTE_HELD = ROUTE_IN_REGISTERS / 32 }; /* experts, and of a lane; of more, probabilities must be in memory */

/* Keys that order as p does: NaN 1, then numbers; 0: no expert, or one that is taken. */
MOII_FN unsigned int route_key(float p) { return moii_is_nan(p) ? 1u : moii_bits_of(p) + 2u; }
MOII_FN float route_value(unsigned int key) { return moii_float_of(key == 1u ? 0x7FFFFFFFu : key - 2u); }

/* The largest of all lanes; no NaN among them. */
MOII_FN float route_most(float v)
{
    const unsigned int u = moii_bits_of(v);
    const unsigned int most = __reduce_max_sync(0xFFFFFFFFu, u >> 31 ? ~u : u | 0x80000000u);
    return moii_float_of(most >> 31 ? most & 0x7FFFFFFFu : ~most);
}

MOII_FN double route_sum(double v)
{
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
    return v;
}

/* exp(l - most), not above 1: without a branch, so that a lane's experts go side by side.  0 where FP32 has 0. */
MOII_FN double route_exp(float l, float most)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: the sum's low word is the nearest integer */
    double x = (double)l - (double)most;
    x = x < -700.0 ? -700.0 : x;
    const double t = __fma_rn(x, 1.4426950408889634, magic), n = t - magic;
    const double r = __fma_rn(n, -2.3190468138462996e-17, __fma_rn(n, -0.69314718055994529, x));
    double y = 1.0 / 6227020800.0; /* Taylor: |r| <= 0.35, the term behind is 4e-18 */
    y = __fma_rn(y, r, 1.0 / 479001600.0), y = __fma_rn(y, r, 1.0 / 39916800.0), y = __fma_rn(y, r, 1.0 / 3628800.0);
    y = __fma_rn(y, r, 1.0 / 362880.0), y = __fma_rn(y, r, 1.0 / 40320.0), y = __fma_rn(y, r, 1.0 / 5040.0), y = __fma_rn(y, r, 1.0 / 720.0);
    y = __fma_rn(y, r, 1.0 / 120.0), y = __fma_rn(y, r, 1.0 / 24.0), y = __fma_rn(y, r, 1.0 / 6.0), y = __fma_rn(y, r, 0.5);
    y = __fma_rn(y, r, 1.0), y = __fma_rn(y, r, 1.0);
    return y * __hiloint2double((__double2loint(t) + 1023) << 20, 0);
}

/* x / sum, rounded to double as a division would be: `inverse` is the rounded 1 / sum, and nothing here is subnormal. */
MOII_FN float route_quotient(float x, double sum, double inverse)
{
    const double q = (double)x * inverse;
    return (float)__fma_rn(__fma_rn(-q, sum, (double)x), inverse, q);
}

/* What a lane knows of its token's experts. */
typedef struct route_lane { unsigned int key[ROUTE_HELD]; } route_lane;

/* held: 4, 8 or 16, a constant, at least per; p: [experts] or NULL */
MOII_FN void route_softmax(route_lane &h, const float *logits, float *p, int experts, int held, int per, int lane)
{
    float l[ROUTE_HELD], most = moii_float_of(0xFF800000u);
    double sum = 0;
#pragma unroll
    for (int i = 0; i < held; i++) {
        l[i] = i < per && lane * per + i < experts ? __ldcg(logits + lane * per + i) : moii_float_of(0xFF800000u);
        most = fmaxf(most, l[i]);
    }
    most = route_most(most);
#pragma unroll
    for (int i = 0; i < held; i++) {
        const double x = route_exp(l[i], most);
        l[i] = (float)x;
        if (i < per && lane * per + i < experts) sum += x;
    }
    sum = route_sum(sum);
    const double inverse = 1.0 / sum;
#pragma unroll
    for (int i = 0; i < held; i++) {
        const bool mine = i < per && lane * per + i < experts;
        const float q = route_quotient(l[i], sum, inverse);
        h.key[i] = mine ? route_key(q) : 0u;
        if (p && mine) p[lane * per + i] = q;
    }
}

/* Takes the best expert out; all lanes learn which it is, and its key. */
MOII_FN int route_take(route_lane &h, unsigned int *key, int held, int per, int lane)
{
    unsigned int best = h.key[0];
    int at = 0;
#pragma unroll
    for (int i = 1; i < held; i++)
        if (h.key[i] > best) best = h.key[i], at = i;
    const unsigned int most = __reduce_max_sync(0xFFFFFFFFu, best);
    const int owner = __ffs((int)__ballot_sync(0xFFFFFFFFu, best == most)) - 1;
#pragma unroll
    for (int i = 0; i < held; i++)
        if (lane == owner && i == at) h.key[i] = 0;
    *key = most;
    return __shfl_sync(0xFFFFFFFFu, lane * per + at, owner);
}

/* The same for probabilities in memory, which stay: the best behind (last, *key). */
MOII_FN void route_softmax_memory(const float *logits, float *p, int experts, int lane)
{
    float most = moii_float_of(0xFF800000u);
    double sum = 0;
    for (int e = lane; e < experts; e += 32) most = fmaxf(most, logits[e]);
    most = route_most(most);
    for (int e = lane; e < experts; e += 32) {
        const double x = route_exp(logits[e], most);
        p[e] = (float)x;
        sum += x;
    }
    sum = route_sum(sum);
    const double inverse = 1.0 / sum;
    for (int e = lane; e < experts; e += 32) p[e] = route_quotient(p[e], sum, inverse);
}
MOII_FN int route_take_memory(const float *p, int last, unsigned int *key, int experts, int lane)
{
    const unsigned int behind = last < 0 ? 0xFFFFFFFFu : *key;
    unsigned int best = 0;
    int at = 0x7FFFFFFF;
    for (int e = lane; e < experts; e += 32) {
        const unsigned int k = route_key(p[e]);
        if ((k < behind || (k == behind && e > last)) && k > best) best = k, at = e;
    }
    *key = __reduce_max_sync(0xFFFFFFFFu, best);
    return (int)__reduce_min_sync(0xFFFFFFFFu, best == *key ? (unsigned int)at : 0xFFFFFFFFu);
}

typedef struct route_shape { int experts, top_k; bool renormalize; } route_shape;

/* The slots, best first.  held: 0 for probabilities in memory. */
MOII_FN void route_slots(route_lane &h, const float *p, route_shape s, int *ids, float *weights, int held, int per, int lane)
{
    double chosen = 0;
    unsigned int key = 0, mine = 0;
    int id = -1, my_id = 0;
    for (int slot = 0; slot < s.top_k; slot++) {
        id = held ? route_take(h, &key, held, per, lane) : route_take_memory(p, id, &key, s.experts, lane);
        chosen += (double)route_value(key);
        if (slot % 32 == lane) mine = key, my_id = id;
        if (slot % 32 != 31 && slot + 1 != s.top_k) continue;
        const int at = slot / 32 * 32 + lane; /* 32 slots, or the last */
        if (at > slot) continue;
        ids[at] = my_id;
        if (weights) weights[at] = route_value(mine);
    }
    for (int at = lane; weights && s.renormalize && at < s.top_k; at += 32)
        weights[at] = (float)((double)(s.top_k <= 32 ? route_value(mine) : weights[at]) / chosen);
    __syncwarp();
}

/* One token of up to 32 * held experts by one warp: ids and weights [top_k], p [experts]; weights and p may be NULL.  Any held that suffices gives
 * the same bits. */
MOII_FN void route_held(const float *logits, float *p, route_shape s, int *ids, float *weights, int held, int lane)
{
    const int per = (s.experts + 31) / 32;
    route_lane h;
    route_softmax(h, logits, p, s.experts, held, per, lane);
    route_slots(h, p, s, ids, weights, held, per, lane);
}

/* The same for any number of experts; p is not NULL. */
MOII_FN void route_token(const float *logits, float *p, route_shape s, int *ids, float *weights, int lane)
{
    if (s.experts <= 128) route_held(logits, p, s, ids, weights, 4, lane);
    else if (s.experts <= 256) route_held(logits, p, s, ids, weights, 8, lane);
    else if (s.experts <= ROUTE_IN_REGISTERS) route_held(logits, p, s, ids, weights, ROUTE_HELD, lane);
    else {
        route_lane none;
        route_softmax_memory(logits, p, s.experts, lane);
        route_slots(none, p, s, ids, weights, 0, 0, lane);
    }
}

#endif
