/* SPDX-License-Identifier: Apache-2.0
 * halves_scales.cuh: what the warps of halves_sm90 that bring scales leave in shared memory: BF16 of scales of B's rows, exactly, and factors of A's. */
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

enum { EACH = 4 };
typedef struct scales_kept { int none; } scales_kept;
MOII_FN void put_codes(unsigned int to, int part, const unsigned int codes[EACH], int, bool, scales_kept &)
{
#pragma unroll
    for (int e = 0; e < EACH; e++) shared_write_two(to + (part * (32 * EACH) + e * 32 + (int)threadIdx.x % 32) * SCALES_EACH, scale_pairs(codes[e]));
}

/* Where factors of the rows of a block's n-th unit are, while its card is not returned. */
MOII_FN unsigned int factors_at(unsigned int base, int n) { return base + FACTORS_AT + n % CARDS * (BN * 4); }

/* A lane's row of A. */
typedef float rows_taken;
MOII_FN int row_taken(int part) { return part * 32 + (int)threadIdx.x % 32; }
MOII_FN rows_taken take_rows(const product_args &a, const unit &u, int part)
{
    const float smaller = ELEM_B == PRODUCT_E2M1 ? 16384.0f : 1.0f; /* codes are */
    return row_taken(part) < u.rows ? __ldg(a.row_factor + u.d_row + row_taken(part)) * smaller : 0.0f;
}
MOII_FN void leave_rows(unsigned int base, int n, int part, rows_taken factor) { shared_write(factors_at(base, n) + row_taken(part) * 4, factor); }

#endif
