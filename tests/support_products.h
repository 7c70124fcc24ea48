/* SPDX-License-Identifier: Apache-2.0
 * support_products.h: random operands of matrix products with their exact values, and the bound on results. */
#ifndef MOIT_SUPPORT_PRODUCTS_H
#define MOIT_SUPPORT_PRODUCTS_H

#include "support.h"

/* What the numbers look like: ordinary, or with scales near both ends of their range. */
typedef enum moit_spread { MOIT_ORDINARY, MOIT_LARGE, MOIT_SMALL } moit_spread;

/* `batch` matrices of rows x depth.  Whatever belongs to no element (padding, scales of no block, elements behind the last
 * offset) is filled with ones bits, which is NaN in every format that has one; codes between ragged groups are 0. */
typedef struct moit_matrix {
    moi_format format;
    moi_order order;
    moit_spread spread;
    int64_t batch, rows, depth, pad; /* pad: elements between rows beyond the dense ones */
    int64_t groups;
    const int64_t *offsets;          /* cuts of the depth, or NULL */
    void *data, *scale;
    int64_t data_bytes, scale_bytes, ld;
    double *values; /* [batch][rows][depth], dequantised */
} moit_matrix;

/* Fills data, scale, ld and values from the fields above them. */
void moit_matrix_make(moit_matrix *m, moit_rng *rng);
/* Decodes data and scale into values again, after a test changed them. */
void moit_matrix_read(moit_matrix *m);
void moit_matrix_free(moit_matrix *m);
/* Writes a code (or a plain value's bits) at an element of the first matrix; writes the scale of an element's block in the b-th. */
void moit_matrix_set(moit_matrix *m, int64_t row, int64_t l, float value);
void moit_matrix_set_scale(moit_matrix *m, int64_t b, int64_t row, int64_t l, float scale);
/* The scale of an element's block of the b-th matrix, an E8M0 code. */
int moit_matrix_power(const moit_matrix *m, int64_t b, int64_t row, int64_t l);
static inline moi_operand moit_operand(const moit_matrix *m) { return (moi_operand){ m->data, m->scale, m->pad ? m->ld : 0 }; }

/* Half of the distance between neighbours of `out` around x. */
double moit_half_unit(moi_dtype out, double x);
/* |got - exact| / bound, where bound = (k + 4) 2^-24 magnitude + half a unit; 0 where both are the same infinity or NaN;
 * HUGE_VAL where only one is.  `strict`: got must be `exact` rounded once. */
double moit_product_error(moi_dtype out, float got, double exact, double magnitude, int64_t k, int strict);

#endif
