/* SPDX-License-Identifier: Apache-2.0
 * halves_scales.cuh: the warps of halves_sm90 that make BF16 of scales of B's rows, exactly, and bring factors of A's. */
#ifndef MOII_HALVES_SCALES_CUH
#define MOII_HALVES_SCALES_CUH

MOII_FN unsigned int one_scale(unsigned int code) { return moii_bits_of(moii_e8m0_decode(code)) >> 16; }

/* Four E8M0 codes as pairs of BF16, the first in the lowest half. */
MOII_FN uint2 scale_pairs(unsigned int codes)
{
    const unsigned int zeros = (codes - 0x01010101u) & ~codes, ones = (~codes - 0x01010101u) & codes;
    if ((zeros | ones) & 0x80808080u)
        return make_uint2(one_scale(codes & 255) | one_scale(codes >> 8 & 255) << 16, one_scale(codes >> 16 & 255) | one_scale(codes >> 24) << 16);
    return make_uint2(__byte_perm(codes, 0, 0x4140) << 7, __byte_perm(codes, 0, 0x4342) << 7);
}

/* Where factors of the rows of a block's n-th unit are. */
MOII_FN unsigned int factors_at(unsigned int base, int n) { return base + FACTORS_AT + n % (STAGES + 1) * (BN * 4); }

/* Four codes of a row on their way, of which the first `left` are there: others become 0, as their values are.  Nothing is made of them before they are
 * wanted: who did would wait for them. */
#if WORDS
typedef unsigned int codes_sent;
MOII_FN void send_for_codes(const product_scales &, const unsigned char *from, int left, codes_sent &v)
{
    if (left > 0) v = __ldg((const unsigned int *)from);
}
MOII_FN unsigned int codes_taken(codes_sent v, int left) { return left < 4 ? v & ((1u << 8 * left) - 1) : v; }
#define WORDS_APART(t) words_apart(t)
#else
typedef struct codes_sent { unsigned int code[4]; } codes_sent;
MOII_FN void send_for_codes(const product_scales &t, const unsigned char *from, int left, codes_sent &v)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < left) v.code[i] = __ldg(from + i * t.block_stride);
}
MOII_FN unsigned int codes_taken(const codes_sent &v, int left)
{
    unsigned int codes = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < left) codes |= v.code[i] << 8 * i;
    return codes;
}
#define WORDS_APART(t) (4 * (int)t.block_stride)
#endif

/* Of 128 rows of B, and half of a unit's rows of A. */
MOII_FN void load_scales(const product_args &a, const group_list &groups, unsigned int base, int part)
{
    enum { EACH = 4, AHEAD = WORDS ? 4 : 1 }; /* rows of a lane; stages whose scales are on their way at a time */
    ring r = { 0, 0 };
    const int all = units_in_all(groups), first_row = part * (32 * EACH) + (int)threadIdx.x % 32, blocks = a.k / 32, steps = (blocks + 3) / 4;
    const int apart = WORDS_APART(a.b_scales), mine = part * 32 + (int)threadIdx.x % 32;
    int n = 0;
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < all; i += (int)gridDim.x, n++) {
        const unit u = find_unit(a, groups, i);
        const float smaller = ELEM_B == PRODUCT_E2M1 ? 16384.0f : 1.0f; /* codes are */
        const float factor = mine < u.rows ? __ldg(a.row_factor + u.d_row + mine) * smaller : 0.0f;
        const unsigned char *from[EACH];
        codes_sent v[AHEAD][EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) from[e] = words_of(a.b_scales, u.group, line_of(a, u, first_row + e * 32));
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
#pragma unroll
            for (int e = 0; e < EACH; e++, from[e - 1] += apart) send_for_codes(a.b_scales, from[e], blocks - 4 * j, v[j][e]);
#pragma unroll 1
        for (int first = 0; first < steps; first += AHEAD) {
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                const int left = blocks - 4 * (first + j);
                if (left <= 0) break;
                barrier_wait(empty_barrier(base, r.stage), r.parity ^ 1);
                if (first + j == 0) shared_write(factors_at(base, n) + mine * 4, factor);
#pragma unroll
                for (int e = 0; e < EACH; e++, from[e - 1] += apart) {
                    shared_write_two(base + SCALES_AT + r.stage * SCALES_BYTES + (first_row + e * 32) * SCALES_EACH, scale_pairs(codes_taken(v[j][e], left)));
                    send_for_codes(a.b_scales, from[e], left - 4 * AHEAD, v[j][e]);
                }
                __syncwarp();
                if (threadIdx.x % 32 == 0) barrier_arrive(full_barrier(base, r.stage));
                ring_step(r);
            }
        }
    }
}

#endif
