/* SPDX-License-Identifier: Apache-2.0
 * product_activate.cuh: SwiGLU of a tile's sums, for product_sm90.cuh (SWIGLU): in BF16, which leaves as D does, or quantised along rows.
 *
 * A multiplying warpgroup has 64 columns of gate and the same 64 of up beside each other, the other warpgroup the next 64 of the same rows: a
 * lane has both of a pair, four lanes a row's block of 32, and the two warpgroups together its block of 128.  Gate, up, and what becomes of
 * them are rounded to BF16, as if they had been stored. */
#ifndef MOII_PRODUCT_ACTIVATE_CUH
#define MOII_PRODUCT_ACTIVATE_CUH

#if SWIGLU
#define PAIRS (BN / 16) /* of a lane in a row */

#include "activate_pairs.cuh"

/* The lane's sums of one row; v[4 j], v[4 j + 1] are a pair. */
MOII_FN void activate(const float *v, unsigned int act[PAIRS])
{
    unsigned int g[PAIRS], u[PAIRS];
#pragma unroll
    for (int j = 0; j < PAIRS; j++)
        g[j] = bf16_pair(v[j * 4], v[j * 4 + 1]), u[j] = bf16_pair(v[(j + PAIRS) * 4], v[(j + PAIRS) * 4 + 1]);
    activate_pairs(g, u, act);
}

#if !ACT_CODES
/* Pairs of BF16 to where boxes do not reach, two bytes at a time. */
MOII_FN void store_pairs(const product_args &a, const shared &s, const unit &u, int wg, int w, int lane, const unsigned int *pairs)
{
    const int row = wave_row(u, wg, w) + (int)threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++) {
        const int to = place_of(a, s, u, row + i % 2 * 8);
        unsigned short *d = (unsigned short *)a.d + to * a.ldd + u.col + wave_col(u, wg, w) + i / 2 * 8 + lane % 4 * 2;
        if (to >= 0) d[0] = (unsigned short)pairs[i], d[1] = (unsigned short)(pairs[i] >> 16);
    }
}

MOII_FN void store_activated(const product_args &a, const shared &s, const unit &u, hand h, int wg, float sum[WAVES][BN / 2])
{
    const int thread = (int)as_it_is(threadIdx.x), lane = thread % 32, warp = thread / 32 % 4;
    boxed pairs;
#pragma unroll
    for (int i = 0; i < WAVES * 2; i++) {
        unsigned int act[PAIRS];
        activate(sum[i / 2] + i % 2 * 2, act);
#pragma unroll
        for (int j = 0; j < PAIRS; j++) pairs[i / 2][2 * j + i % 2] = act[j];
    }
    if (by_boxes(a)) {
        store_boxes(a, s, u, h, wg, warp, lane, pairs);
        return;
    }
#pragma unroll
    for (int w = 0; w < WAVES; w++) store_pairs(a, s, u, wg, w, lane, pairs[w]);
}
#else
/* Bits of the largest magnitude of `count` pairs from act[first] on, as those of BF16. */
MOII_FN unsigned int pairs_top(const unsigned int *act, int count)
{
    unsigned int m = 0;
#pragma unroll
    for (int j = 0; j < count; j++) m = larger_pair(m, act[j] & 0x7FFF7FFFu);
    return max(m & 0xFFFFu, m >> 16);
}

/* Two numbers of 16 bits at once: the largest of the four lanes of a row. */
MOII_FN unsigned int row_top(unsigned int both)
{
    both = larger_pair(both, __shfl_xor_sync(~0u, both, 1));
    return larger_pair(both, __shfl_xor_sync(~0u, both, 2));
}

MOII_FN unsigned int two_codes(unsigned int pair, float inverse)
{
    unsigned short codes;
    const float x = low_value(pair) * inverse, y = high_value(pair) * inverse;
    if (ACT_ELEM == PRODUCT_E5M2) asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(y), "f"(x));
    else asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(y), "f"(x));
    return codes;
}

/* The scale of a block, and what its values are multiplied by; not finite: NaN, whose code is the one wanted. */
MOII_FN moii_block scale_block(const product_args &a, unsigned int top)
{
    moii_block_rule rule = a.act_rule;
    rule.mx = ACT_MX, rule.lenient = 0;
    moii_block b = moii_block_make(rule, top << 16);
    if (b.poisoned) b.inverse = moii_float_of(MOII_NAN_BITS);
    return b;
}

/* Word p of lane s of four becomes word s of lane p. */
MOII_FN void turn(unsigned int w[4], int lane)
{
#pragma unroll
    for (int p = 0; p < 4; p += 2) {
        const unsigned int got = __shfl_xor_sync(~0u, lane & 1 ? w[p] : w[p + 1], 1);
        w[p] = lane & 1 ? got : w[p], w[p + 1] = lane & 1 ? w[p + 1] : got;
    }
#pragma unroll
    for (int p = 0; p < 2; p++) {
        const unsigned int got = __shfl_xor_sync(~0u, lane & 2 ? w[p] : w[p + 2], 2);
        w[p] = lane & 2 ? got : w[p], w[p + 2] = lane & 2 ? w[p + 2] : got;
    }
}

/* 16 codes of the lane's row for each of four lanes; first, second: the inverse scales of the row's halves. */
MOII_FN uint4 row_codes(const unsigned int act[PAIRS], float first, float second, int lane)
{
    unsigned int w[4];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        const float inverse = p < 2 ? first : second;
        w[p] = two_codes(act[2 * p], inverse) | two_codes(act[2 * p + 1], inverse) << 16;
    }
    turn(w, lane);
    return make_uint4(__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[2], w[3], 0x5410), __byte_perm(w[0], w[1], 0x7632), __byte_perm(w[2], w[3], 0x7632));
}

/* One row of the warpgroup's 64 columns.  tops: mx32: of its two blocks; blk128: of the one that it shares. */
MOII_FN void store_act_row(const product_args &a, const unit &u, int wg, int row, int lane, const unsigned int act[PAIRS], unsigned int tops)
{
    const moii_block b0 = scale_block(a, tops & 0xFFFFu), b1 = ACT_MX ? scale_block(a, tops >> 16) : b0;
    const uint4 codes = row_codes(act, b0.inverse, b1.inverse, lane);
    if (row >= u.rows) return;
    const int line = u.d_row + row;
    *(uint4 *)((unsigned char *)a.act + line * a.act_pitch + u.col + wg * 64 + lane % 4 * 16) = codes;
    if (lane % 4) return;
#if ACT_MX
    unsigned char *to = (unsigned char *)a.act_scales.p + scale_index(a.act_scales, (unsigned int)line, (unsigned int)(u.col / 32 + wg * 2));
    if (a.act_scales.block_stride == 1) *(unsigned short *)to = (unsigned short)(b0.scale | b1.scale << 8);
    else to[0] = (unsigned char)b0.scale, to[a.act_scales.block_stride] = (unsigned char)b1.scale;
#else
    if (wg == 0) ((unsigned int *)a.act_scales.p)[scale_index(a.act_scales, (unsigned int)line, (unsigned int)(u.col / 128))] = b0.scale;
#endif
}

MOII_FN void store_activated(const product_args &a, const shared &s, const unit &u, hand, int wg, float sum[WAVES][BN / 2])
{
    const int thread = (int)as_it_is(threadIdx.x), lane = thread % 32, first = thread / 32 % 4 * 16 + lane / 4; /* no register keeps what can be found again */
    unsigned int act[WAVES * 2][PAIRS], tops[WAVES * 2];
#pragma unroll
    for (int i = 0; i < WAVES * 2; i++) { /* rows first + 8 i % 2 of wave i / 2 */
        activate(sum[i / 2] + i % 2 * 2, act[i]);
        tops[i] = row_top(ACT_MX ? pairs_top(act[i], PAIRS / 2) | pairs_top(act[i] + PAIRS / 2, PAIRS / 2) << 16 : pairs_top(act[i], PAIRS));
    }
#if !ACT_MX /* the warpgroups tell each other */
    unsigned int *all = (unsigned int *)(s.p + TOPS_AT);
#pragma unroll
    for (int i = 0; i < WAVES * 2; i++)
        if (lane % 4 == 0) all[wg * BM + i / 2 * 64 + i % 2 * 8 + first] = tops[i];
    threads_meet(4, TEAM);
#pragma unroll
    for (int i = 0; i < WAVES * 2; i++) tops[i] = max(tops[i], all[(1 - wg) * BM + i / 2 * 64 + i % 2 * 8 + first]);
    threads_meet(4, TEAM);
#endif
#pragma unroll
    for (int i = 0; i < WAVES * 2; i++) store_act_row(a, u, wg, i / 2 * 64 + i % 2 * 8 + first, lane, act[i], tops[i]);
}
#endif
#endif

#endif
