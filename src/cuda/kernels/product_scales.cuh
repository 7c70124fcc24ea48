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

/* Four E8M0 codes as FP32, the first in the lowest byte.  Instructions count: it is done for all that is multiplied. */
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
