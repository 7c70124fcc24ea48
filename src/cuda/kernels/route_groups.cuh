/* SPDX-License-Identifier: Apache-2.0
 * route_groups.cuh: the best experts, up to 8, of some tokens by one warp: of four tokens with up to 128 experts, or two with up to 256.  The ids are those
 * of route_ids.cuh.
 *
 *   HELD     4: a token has 8 lanes, 8: 16 lanes
 *   a lane   has 16 logits of its token, of experts 4 * lanes * i + 4 * lane + j
 *   eighth   the eighth best value comes of values alone: each lane sorts its own in two eights, and the best eight of two sorted eights are the greater ones
 *            of one and the other turned round
 *   slots    what is not below that, or by less than twice ROUTE_APART, is a candidate; each candidate counts those before it, of equal ones the lower experts
 *
 * There are branches only where all lanes take them: others cost more than what they would leave out. */
#ifndef MOII_ROUTE_GROUPS_CUH
#define MOII_ROUTE_GROUPS_CUH

#include "route_ids.cuh"

enum { GROUP_LANES = HELD == 4 ? 8 : 16, GROUP_TOKENS = 32 / GROUP_LANES, GROUP_SLOTS = 8, GROUP_HELD = 16, GROUP_CANDIDATES = 16 };
/* A warp's words: of each token its slots' experts, then of each token values and experts of candidates. */
enum { GROUP_ALL_SLOTS = GROUP_TOKENS * GROUP_SLOTS };
static_assert(GROUP_ALL_SLOTS + 2 * GROUP_TOKENS * GROUP_CANDIDATES <= ROUTE_SCRATCH(HELD), "room is enough");

MOII_FN int group_expert(int i, int lane) { return i / 4 * (4 * GROUP_LANES) + lane % GROUP_LANES * 4 + i % 4; }

/* of: the token's logits.  What is no number counts as the largest one, so that it is chosen, and seen. */
MOII_FN void group_read(float v[GROUP_HELD], const float *of, int experts, int lane)
{
    if (experts % 4 == 0 && !((unsigned long long)of & 15)) {
#pragma unroll
        for (int i = 0; i < GROUP_HELD; i += 4) {
            const int e = group_expert(i, lane);
            uint4 w = make_uint4(0xFF800000u, 0xFF800000u, 0xFF800000u, 0xFF800000u);
            if (e < experts) w = __ldcg((const uint4 *)(of + e));
            v[i] = moii_float_of(w.x), v[i + 1] = moii_float_of(w.y), v[i + 2] = moii_float_of(w.z), v[i + 3] = moii_float_of(w.w);
        }
    } else {
#pragma unroll
        for (int i = 0; i < GROUP_HELD; i++) v[i] = group_expert(i, lane) < experts ? __ldcg(of + group_expert(i, lane)) : moii_float_of(0xFF800000u);
    }
#pragma unroll
    for (int i = 0; i < GROUP_HELD; i++) v[i] = fminf(v[i], ROUTE_LARGEST);
}

MOII_FN void greater_first(float &a, float &b)
{
    const float least = fminf(a, b);
    a = fmaxf(a, b), b = least;
}
/* Of a sequence that rises and then falls, or the other way. */
MOII_FN void sort_turned(float v[8])
{
#pragma unroll
    for (int step = 4; step; step /= 2)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!(i & step)) greater_first(v[i], v[i + step]);
}
MOII_FN void sort_eight(float v[8])
{
#pragma unroll
    for (int i = 0; i < 8; i += 2) greater_first(v[i], v[i + 1]);
#pragma unroll
    for (int i = 0; i < 8; i += 4) greater_first(v[i], v[i + 2]), greater_first(v[i + 1], v[i + 3]), greater_first(v[i + 1], v[i + 2]);
#pragma unroll
    for (int i = 0; i < 4; i++) greater_first(v[i], v[i + 4]);
    greater_first(v[2], v[4]), greater_first(v[3], v[5]);
#pragma unroll
    for (int i = 1; i < 7; i += 2) greater_first(v[i], v[i + 1]);
}

/* The eighth best of a group's values. */
MOII_FN float group_eighth(const float v[GROUP_HELD])
{
    float best[8], other[8];
#pragma unroll
    for (int i = 0; i < 8; i++) best[i] = v[i], other[i] = v[i + 8];
    sort_eight(best), sort_eight(other);
#pragma unroll 1
    for (int step = 1;; step *= 2) {
#pragma unroll
        for (int i = 0; i < 8; i++) best[i] = fmaxf(best[i], other[7 - i]);
        if (step == GROUP_LANES) break;
        sort_turned(best);
#pragma unroll
        for (int i = 0; i < 8; i++) other[i] = __shfl_xor_sync(0xFFFFFFFFu, best[i], step);
    }
#pragma unroll
    for (int i = 0; i < 7; i++) best[7] = fminf(best[7], best[i]);
    return best[7];
}

/* What is not below `least`, in no order, to values and ids of the group; how many there are: of more than there is room for none. */
MOII_FN int group_candidates(const float v[GROUP_HELD], float least, float *values, int *ids, int lane)
{
    int mine = 0;
#pragma unroll
    for (int i = 0; i < GROUP_HELD; i++) mine += v[i] >= least;
    int until = mine;
#pragma unroll
    for (int step = 1; step < GROUP_LANES; step *= 2) {
        const int lower = __shfl_up_sync(0xFFFFFFFFu, until, step);
        until += lane % GROUP_LANES >= step ? lower : 0;
    }
    const int all = __shfl_sync(0xFFFFFFFFu, until, lane | (GROUP_LANES - 1));
    if (all > GROUP_CANDIDATES) least = moii_float_of(0x7F800000u);
    int at = until - mine;
#pragma unroll
    for (int i = 0; i < GROUP_HELD; i++)
        if (v[i] >= least) values[at] = v[i], ids[at] = group_expert(i, lane), at++;
    return all;
}

MOII_FN int group_slot(const float *scratch, int token, int slot) { return ((const int *)scratch)[token * GROUP_SLOTS + slot]; }

/* Slots of the lane's token.  True: they are sure: logits that matter are equal or apart, and finite. */
MOII_FN bool group_slots(const float v[GROUP_HELD], int top_k, float *scratch, int lane)
{
    float *values = scratch + GROUP_ALL_SLOTS + lane / GROUP_LANES * (2 * GROUP_CANDIDATES);
    int *ids = (int *)values + GROUP_CANDIDATES, *slots = (int *)scratch + lane / GROUP_LANES * GROUP_SLOTS;
    const float eighth = group_eighth(v);
    if (lane % GROUP_LANES < 8) values[lane % GROUP_LANES + 8] = moii_float_of(0xFF800000u); /* no candidate counts as one behind all */
    __syncwarp();
    const int all = group_candidates(v, eighth - 2 * ROUTE_APART, values, ids, lane);
    const bool more = __any_sync(0xFFFFFFFFu, all > 8);
    float most = -ROUTE_LARGEST;
    unsigned int gap = 0xFFFFFFFFu; /* the bits of a difference, less 1: what is above 0 and too little is less */
    __syncwarp();
#pragma unroll 1
    for (int i = lane % GROUP_LANES; i < (more ? (int)GROUP_CANDIDATES : 8); i += GROUP_LANES) {
        const float own = values[i];
        const int expert = ids[i];
        int slot = 0;
#pragma unroll 1
        for (int first = 0; first <= (more ? 8 : 0); first += 8) {
            const float4 v0 = *(const float4 *)(values + first), v1 = *(const float4 *)(values + first + 4);
            const uint4 e0 = *(const uint4 *)(ids + first), e1 = *(const uint4 *)(ids + first + 4);
            const float other[8] = { v0.x, v0.y, v0.z, v0.w, v1.x, v1.y, v1.z, v1.w };
            const unsigned int others[8] = { e0.x, e0.y, e0.z, e0.w, e1.x, e1.y, e1.z, e1.w };
#pragma unroll
            for (int j = 0; j < 8; j++) {
                slot += (int)(other[j] > own) | ((int)(other[j] == own) & (int)((int)others[j] < expert));
                gap = min(gap, (moii_bits_of(other[j] - own) & 0x7FFFFFFFu) - 1u);
                most = fmaxf(most, other[j]);
            }
        }
        if (i < all && all <= GROUP_CANDIDATES && slot < top_k) slots[slot] = expert; /* of too many none is there */
    }
    return all <= GROUP_CANDIDATES && gap >= moii_bits_of(ROUTE_APART) - 1u && most < ROUTE_LARGEST && eighth >= fmaxf(most - 60.0f, -ROUTE_LARGEST);
}

/* Slots of tokens `first` and on, GROUP_TOKENS or fewer: group_slot.  scratch: ROUTE_SCRATCH words, 16-byte aligned.  Bits of those tokens whose are not
 * sure: the caller asks p. */
MOII_FN unsigned int route_group(const float *logits, int first, int tokens, route_shape s, float *scratch, int lane)
{
    float v[GROUP_HELD];
    group_read(v, logits + (long long)min(first + lane / GROUP_LANES, tokens - 1) * s.experts, s.experts, lane);
    const unsigned int lanes = __ballot_sync(0xFFFFFFFFu, !group_slots(v, s.top_k, scratch, lane) && first + lane / GROUP_LANES < tokens);
    unsigned int unsure = 0;
#pragma unroll
    for (int i = 0; i < GROUP_TOKENS; i++) unsure |= (unsigned int)((lanes >> i * GROUP_LANES & ((1u << GROUP_LANES) - 1u)) != 0) << i;
    __syncwarp();
    return unsure;
}

#endif
