/* SPDX-License-Identifier: Apache-2.0
 * route_ids.cuh: one token's best experts by its logits, and then their weights, by one warp: the same bits as route_topk.cuh, sooner and in less code.
 *
 * Ids take no exponential: where the logits that matter are equal or 2^-20 apart, their order is that of p: p's relative error is below 2^-22,
 * 1 - exp(-2^-20) above 2^-21.  Elsewhere, and for NaN, infinities and what may underflow, p itself is asked. */
#ifndef MOII_ROUTE_IDS_CUH
#define MOII_ROUTE_IDS_CUH

#include "route_topk.cuh"

/* Words of shared memory for a warp, 16-byte aligned, by experts of a lane, 4, 8 or 16; most slots. */
#define ROUTE_SCRATCH(held) ((held) == 4 ? 176 : 32 * (held))
enum { ROUTE_SLOTS = 16 };

#define ROUTE_APART 9.5367431640625e-7f /* 2^-20 */
#define ROUTE_LARGEST 3.402823466e38f

/* A lane's logits of a token: of experts lane * per and on; -Inf where there is none. */
typedef struct route_logits { float l[ROUTE_HELD]; } route_logits;
MOII_FN route_logits route_read(const float *logits, route_shape s, int held, int per, int lane)
{
    route_logits r;
    if (per == held && s.experts == 32 * held && !((unsigned long long)logits & 15)) { /* a row is whole words of 16 bytes */
#pragma unroll
        for (int i = 0; i < held; i += 4) {
            const uint4 v = __ldcg((const uint4 *)(logits + lane * held) + i / 4);
            r.l[i] = moii_float_of(v.x), r.l[i + 1] = moii_float_of(v.y), r.l[i + 2] = moii_float_of(v.z), r.l[i + 3] = moii_float_of(v.w);
        }
        return r;
    }
#pragma unroll
    for (int i = 0; i < held; i++) r.l[i] = i < per && lane * per + i < s.experts ? __ldcg(logits + lane * per + i) : moii_float_of(0xFF800000u);
    return r;
}

/* How many of n numbers are greater than each of some, 1 or 2, a constant; n is a multiple of 32. */
MOII_FN void route_greater(const float *of, int n, const float *than, int some, int *greater)
{
    float count[2][4] = {};
#pragma unroll 1
    for (int base = 0; base < n; base += 32)
#pragma unroll
        for (int j = base; j < base + 32; j += 4) {
            const float4 v = *(const float4 *)(of + j);
#pragma unroll
            for (int i = 0; i < some; i++) {
                count[i][0] += v.x > than[i] ? 1.0f : 0.0f, count[i][1] += v.y > than[i] ? 1.0f : 0.0f;
                count[i][2] += v.z > than[i] ? 1.0f : 0.0f, count[i][3] += v.w > than[i] ? 1.0f : 0.0f;
            }
        }
#pragma unroll
    for (int i = 0; i < some; i++) greater[i] = (int)(count[i][0] + count[i][1] + (count[i][2] + count[i][3]));
}

/* Into shared memory; of lanes that write to the same place any one does. */
MOII_FN void route_put(int *to, int v)
{
    asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" :: "r"((unsigned int)__cvta_generic_to_shared(to)), "r"(v) : "memory");
}

/* Logits go in fours, of more than 256 experts in eights.  The best slots are in as many of them as there are slots, those with the greatest maxima: each
 * maximum counts the greater ones, then each logit of these fours the greater ones there, which is its slot; none waits for the one before.  A maximum's last
 * bits give way to its number, lest two be equal, and one of them is set, for zeros of both signs are; false: that has hidden a better one, or logits that
 * matter are neither equal nor apart, or not finite. */
#define ROUTE_WIDE(held) ((held) > 8 ? 8 : 4)
static_assert(64 + (ROUTE_WIDE(ROUTE_HELD) + 1) * ROUTE_SLOTS + 32 <= ROUTE_SCRATCH(ROUTE_HELD), "maxima, logits and places of the best, and the best");

MOII_FN float route_top(const float *l, int wide)
{
    float top = fmaxf(fmaxf(l[0], l[1]), fmaxf(l[2], l[3]));
    return wide > 4 ? fmaxf(top, fmaxf(fmaxf(l[4], l[5]), fmaxf(l[6], l[7]))) : top;
}
/* How many of four that equal `mine` are of lower experts; lower: so many of the four are. */
MOII_FN int route_equal_before(float4 v, float mine, int lower)
{
    return (v.x == mine && lower > 0) + (v.y == mine && lower > 1) + (v.z == mine && lower > 2) + (v.w == mine && lower > 3);
}

MOII_FN bool route_by_logits(const route_logits &r, route_shape s, int *ids, float *scratch, int held, int per, int lane)
{
    const int wide = ROUTE_WIDE(held), fours = held / wide, slots = wide * s.top_k;
    float *rows = scratch + 64, *best = rows + (wide + 1) * ROUTE_SLOTS, own[2], left = moii_float_of(0xFF800000u);
    int *first = (int *)(rows + wide * ROUTE_SLOTS), greater[2], left_at = 0;
    float v[ROUTE_HELD];
    bool finite = true;
#pragma unroll
    for (int i = 0; i < held; i++) finite = finite && r.l[i] <= ROUTE_LARGEST, v[i] = fminf(r.l[i], ROUTE_LARGEST); /* no NaN */
#pragma unroll
    for (int g = 0; g < fours; g++) {
        const unsigned int all = 32u * (unsigned int)fours, number = (unsigned int)(lane * fours + g);
        const unsigned int top = moii_bits_of(fmaxf(route_top(v + wide * g, wide), -ROUTE_LARGEST));
        own[g] = moii_float_of((top & ~(2u * all - 1u)) | all | (top >> 31 ? number : all - 1u - number));
        scratch[number] = own[g];
    }
    best[lane] = moii_float_of(0x7FFFFFFFu);
#pragma unroll
    for (int i = 0; i < wide * ROUTE_SLOTS; i += 32) rows[lane + i] = moii_float_of(0xFF800000u);
    __syncwarp();
    route_greater(scratch, 32 * fours, own, fours, greater);
#pragma unroll
    for (int g = 0; g < fours; g++) {
        const float *l = v + wide * g;
        if (greater[g] < s.top_k) {
#pragma unroll
            for (int i = 0; i < wide; i += 4) *(float4 *)(rows + wide * greater[g] + i) = make_float4(l[i], l[i + 1], l[i + 2], l[i + 3]);
            first[greater[g]] = lane * per + wide * g;
        } else {
            const float top = route_top(l, wide);
            if (top > left) left = top, left_at = lane * per + wide * g;
        }
    }
    __syncwarp();
    const int here = min(lane, s.top_k - 1);
#pragma unroll 1
    for (bool equals = false;; equals = true) { /* equal logits leave a slot empty, or are one too many: then the lower expert goes first */
        int chosen = 0;
#pragma unroll 1
        for (int base = 0; base < slots; base += 32) {
            const int at = min(base + lane, slots - 1), expert = first[at / wide] + at % wide;
            const float mine = rows[at];
            int slot;
            route_greater(rows, (slots + 31) & ~31, &mine, 1, &slot);
#pragma unroll 1
            for (int j = 0; j < s.top_k && equals; j++)
#pragma unroll
                for (int i = 0; i < wide; i += 4) slot += route_equal_before(*(const float4 *)(rows + wide * j + i), mine, expert - first[j] - i);
            const bool is = slot < s.top_k && base + lane < slots;
            chosen += __popc(__ballot_sync(0xFFFFFFFFu, is));
            if (is) route_put(ids + slot, expert), route_put((int *)best + slot, (int)moii_bits_of(mine)); /* of equal ones, zeros of both signs, either */
        }
        __syncwarp();
        const float end = best[s.top_k - 1], before = best[max(here - 1, 0)], mine = best[here];
        unsigned int gap = moii_bits_of(before - mine) - 1u; /* the bits of a difference, less 1: what is above 0 and too little is less */
#pragma unroll
        for (int i = 0; i < held; i++) gap = min(gap, moii_bits_of(end - v[i]) - 1u);
        bool sure = finite && chosen == s.top_k && mine == mine && gap >= moii_bits_of(ROUTE_APART) - 1u;
        sure = sure && end >= -ROUTE_LARGEST && end >= best[0] - 60.0f && (left < end || (left == end && left_at > ids[s.top_k - 1]));
        sure = __all_sync(0xFFFFFFFFu, sure);
        if (sure || equals) return sure;
        __syncwarp();
    }
}

/* A lane's experts, as many for each lane, some of which there may not be: lanes do not leave loops over them apart (own_warp.cuh). */
MOII_FN bool route_there(int i, int per, route_shape s, int lane) { return lane * per + i < s.experts; }

/* p of all experts, in memory.  Where a lane has many, some exponentials at once. */
#if HELD == 16
#define ROUTE_AT_ONCE 4
#else
#define ROUTE_AT_ONCE 1
#endif
MOII_FN void route_all(const float *logits, float *p, route_shape s, int per, int lane)
{
    float most = moii_float_of(0xFF800000u), *own = p + lane * per;
    double sum = 0;
    logits += lane * per;
#pragma unroll 4
    for (int i = 0; i < per; i++)
        if (route_there(i, per, s, lane)) own[i] = __ldcg(logits + i);
#pragma unroll 1
    for (int i = 0; i < per; i++)
        if (route_there(i, per, s, lane)) most = fmaxf(most, own[i]);
    most = route_most(most);
#pragma unroll ROUTE_AT_ONCE
    for (int i = 0; i < per; i++) { /* no branch between exponentials */
        const bool there = route_there(i, per, s, lane);
        const double x = route_exp(there ? own[i] : most, most);
        if (there) own[i] = (float)x;
        sum += there ? x : 0.0;
    }
    sum = route_sum(sum);
    const double inverse = 1.0 / sum;
#pragma unroll ROUTE_AT_ONCE
    for (int i = 0; i < per; i++)
        if (route_there(i, per, s, lane)) own[i] = route_quotient(own[i], sum, inverse);
    __syncwarp();
}

/* Ids by p, which is lost. */
MOII_FN void route_by_p(float *p, route_shape s, int *ids, int per, int lane)
{
#pragma unroll 1
    for (int slot = 0; slot < s.top_k; slot++) {
        unsigned int best = 0;
        int at = 0;
#pragma unroll 1
        for (int i = 0; i < per; i++) {
            if (!route_there(i, per, s, lane)) continue;
            const int e = lane * per + i;
            const unsigned int key = moii_bits_of(p[e]) == 0xFFFFFFFFu ? 0u : route_key(p[e]);
            if (key > best) best = key, at = e;
        }
        const unsigned int most = __reduce_max_sync(0xFFFFFFFFu, best), found = __ballot_sync(0xFFFFFFFFu, best == most);
        if (lane == __ffs((int)found) - 1) ids[slot] = at, p[at] = moii_float_of(0xFFFFFFFFu); /* taken */
    }
    __syncwarp();
}

/* ids of up to ROUTE_SLOTS slots.  r: its logits; scratch: ROUTE_SCRATCH words. */
MOII_FN void route_ids(const route_logits &r, const float *logits, route_shape s, int *ids, float *scratch, int held, int per, int lane)
{
    const bool sure = route_by_logits(r, s, ids, scratch, held, per, lane);
    __syncwarp();
    if (__builtin_expect(sure, 1)) return;
    route_all(logits, scratch, s, per, lane); /* seldom */
    route_by_p(scratch, s, ids, per, lane);
}

/* A slot's weight by p of all experts: lane i has slot i and its id, the others any. */
MOII_FN float route_weight(const float *p, route_shape s, int id)
{
    const float own = route_value(route_key(p[id]));
    double chosen = 0;
#pragma unroll 1
    for (int slot = 0; slot < s.top_k; slot++) chosen += (double)__shfl_sync(0xFFFFFFFFu, own, slot);
    return s.renormalize ? (float)((double)own / chosen) : own;
}

#endif
