/* SPDX-License-Identifier: Apache-2.0
 * stored.cuh: values of a stored_matrix, dequantised as the reference does it.  Plain rather than fast: the type is looked at for
 * each value. */
#ifndef MOII_STORED_CUH
#define MOII_STORED_CUH

#include "elem.cuh"
#include "stored_args.h"

/* The value of code i of a packed row. */
MOII_FN float stored_decode(int elem, const unsigned char *row, long long i)
{
    if (elem == ELEM_F32 || elem == ELEM_F16 || elem == ELEM_BF16) return elem_load(elem, row, i);
    if (elem == ELEM_E2M1) return moii_e2m1_decode(row[i >> 1] >> (4 * (i & 1)) & 0xFu);
    if (elem == ELEM_E3M2 || elem == ELEM_E2M3) {
        const long long bit = 6 * i;
        const int shift = (int)(bit & 7);
        unsigned int v = row[bit >> 3];
        if (shift > 2) v |= (unsigned int)row[(bit >> 3) + 1] << 8;
        v = v >> shift & 0x3Fu;
        return elem == ELEM_E3M2 ? moii_e3m2_decode(v) : moii_e2m3_decode(v);
    }
    return elem == ELEM_E4M3 ? moii_e4m3_decode(row[i]) : elem == ELEM_E5M2 ? moii_e5m2_decode(row[i]) : moii_int8_decode(row[i]);
}

/* Where the scale of (row, block), both counted in scales, lies. */
MOII_FN long long stored_scale_place(int layout, int wide, long long r, long long b, long long rows, long long blocks)
{
    const long long last = wide ? 3 : 15; /* of 16 bytes of scales */
    if (layout == SCALES_TILED) return ((r / 128) * ((blocks + 3) / 4) + b / 4) * 512 + (r % 32) * 16 + (r / 32 % 4) * 4 + b % 4;
    if (layout == SCALES_COL) return b * ((rows + last) & ~last) + r;
    return r * blocks + b;
}

MOII_FN float stored_get(const stored_matrix &m, long long r, long long c)
{
    const float v = stored_decode(m.elem, m.data + r * m.stride, c);
    if (!m.scale) return v;
    const long long i = stored_scale_place(m.layout, m.wide, r / m.height, c / m.block, m.scale_rows, m.blocks);
    return v * (m.wide ? ((const float *)m.scale)[i] : moii_e8m0_decode(((const unsigned char *)m.scale)[i]));
}

#endif
