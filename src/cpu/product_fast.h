/* SPDX-License-Identifier: Apache-2.0
 * product_fast.h: products of tiles of D, each by one thread: operands become FP32 panels, BLAS multiplies them. */
#ifndef MOII_PRODUCT_FAST_H
#define MOII_PRODUCT_FAST_H

#include "blas.h"
#include "product.h"

/* How large tiles get: m and n at most, and the depth of a panel.  What one thread needs is scratch_bytes. */
typedef struct moii_tiling {
    int64_t m, n, depth;
    int64_t a_bytes, b_bytes, scale_bytes, d_bytes, scratch_bytes;
} moii_tiling;

/* For operands of these formats and products of at most m x n x k. */
moii_tiling moii_tiling_of(const moi_format *a, const moi_format *b, moi_dtype out, int64_t m, int64_t n, int64_t k);

/* Into how many equal parts a product of m x n is cut along m and n, so that `tasks` threads have about the same to do. */
typedef struct moii_cut { int64_t m_parts, n_parts; } moii_cut;
moii_cut moii_cut_of(const moii_tiling *t, int64_t m, int64_t n, int64_t tasks);
/* Where part `i` of `parts` of `size` begins; parts begin at multiples of 16 where there are enough. */
int64_t moii_part(int64_t size, int64_t parts, int64_t i);

/* D's tile for the ranges; d points to D[i0][j0].  `scratch`: t->scratch_bytes of this thread's own. */
void moii_product_tile(const moi_ctx *ctx, const moii_tiling *t, const moii_view *a, const moii_view *b, moii_range r, moi_dtype out,
                       bool accumulate, void *d, int64_t ldd, void *scratch);

/* BLAS counts in int: refuses leading dimensions that do not fit, before anything is written. */
moi_status moii_product_fits(const char *where, const moi_operand *a, const moi_operand *b, int64_t ldd);

#endif
