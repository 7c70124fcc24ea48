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

#endif
