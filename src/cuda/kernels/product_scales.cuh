/* SPDX-License-Identifier: Apache-2.0
 * product_scales.cuh: where the scales of a product's operand lie. */
#ifndef MOII_PRODUCT_SCALES_CUH
#define MOII_PRODUCT_SCALES_CUH

#include "num.h"
#include "product_scales_args.h"

/* Which element of a group's scales S[row][block] is. */
MOII_FN unsigned int scale_index(const product_scales &t, unsigned int row, unsigned int block)
{
    if (t.across) return ((row >> 7) * t.across + (block >> 2)) * 512 + (row & 31) * 16 + (row >> 5 & 3) * 4 + (block & 3);
    return row * t.row_stride + block * t.block_stride;
}

/* E8M0 codes of four blocks of a row, of which so many are there, the first in the lowest byte.  p: the first one's. */
MOII_FN unsigned int four_codes(const product_scales &t, const unsigned char *p, int there)
{
    if (t.words) return __ldg((const unsigned int *)p);
    unsigned int codes = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) codes |= (unsigned int)__ldg(p + (unsigned int)min(i, there - 1) * t.block_stride) << 8 * i;
    return codes;
}

/* What lies behind the last block may be anything: 1 takes its place. */
MOII_FN unsigned int ones_behind(unsigned int codes, int there)
{
    const unsigned int keep = (1u << 8 * there) - 1;
    return there < 4 ? (codes & keep) | (0x7F7F7F7Fu & ~keep) : codes;
}

/* Four codes as FP32.  Instructions count: three warps make the scales of all that the others multiply. */
MOII_FN float4 four_scales(unsigned int codes)
{
    const unsigned int zeros = (codes - 0x01010101u) & ~codes, ones = (~codes - 0x01010101u) & codes, field = 0x7F800000u;
    if ((zeros | ones) & 0x80808080u)
        return make_float4(moii_e8m0_decode(codes & 255), moii_e8m0_decode(codes >> 8 & 255), moii_e8m0_decode(codes >> 16 & 255),
                           moii_e8m0_decode(codes >> 24));
    return make_float4(moii_float_of(codes << 23 & field), moii_float_of(codes << 15 & field), moii_float_of(codes << 7 & field),
                       moii_float_of(codes >> 1 & field));
}

#endif
