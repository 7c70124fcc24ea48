/* SPDX-License-Identifier: Apache-2.0
 * product_ref.c: what a product of two quantised matrices is, number by number. */
#include "product.h"

#include <math.h>

/* decode(code) * scale is exact in double; from 2^128 on it counts as infinite, as it would in FP32. */
static double value(const moii_view *v, int64_t row, int64_t l)
{
    row = moii_view_row(v, row);
    int64_t line = v->mn_major ? l : row, index = v->mn_major ? row : l + v->shift;
    double x = moi_decode(v->format->elem, v->data + line * v->ld_bytes, index);
    if (v->block) x *= moii_scale_get(&v->scales, row, v->first_block + (l - v->first) / v->block);
    return fabs(x) >= 0x1p128 ? copysign(HUGE_VAL, x) : x;
}

/* One rounding to BF16: FP32 rounded to odd keeps what the second rounding needs to know. */
static float odd_float(double x)
{
    float f = (float)x;
    if (isnan(x) || (double)f == x) return f;
    unsigned int u = moii_bits_of(f);
    if (fabs((double)f) > fabs(x)) u--;
    return moii_float_of(u | 1u);
}

void moii_product_strict_row(const moii_view *a, const moii_view *b, moii_range r, int64_t i, const float *weight, moi_dtype out, bool accumulate, void *d)
{
    for (int64_t j = r.j0; j < r.j1; j++) {
        double before = accumulate ? moi_decode(out, d, j - r.j0) : 0.0, sum = weight ? 0.0 : before;
        for (int64_t l = r.l0; l < r.l1; l++) sum += value(a, i, l) * value(b, j, l);
        if (weight) sum = before + (double)*weight * sum;
        moi_encode(out, d, j - r.j0, out == MOI_F32 ? (float)sum : odd_float(sum));
    }
}

void moii_product_strict(const moii_view *a, const moii_view *b, moii_range r, moi_dtype out, bool accumulate, void *d, int64_t ldd)
{
    for (int64_t i = r.i0; i < r.i1; i++)
        moii_product_strict_row(a, b, r, i, NULL, out, accumulate, (char *)d + (i - r.i0) * moi_row_bytes(out, ldd));
}
