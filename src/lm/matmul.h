/* SPDX-License-Identifier: Apache-2.0
 * matmul.h: y = x W^T with x plain and W as it is stored.  Two plans: a product of few rows is bound by reading W, which other
 * code does best than a product of many. */
#ifndef MOII_MATMUL_H
#define MOII_MATMUL_H

#include "linear.h"

enum { MOII_FEW = 8 }; /* rows of x that count as few */

typedef struct moii_matmul { moi_plan *few, *many; } moii_matmul;

/* x: F32 or BF16.  y is FP32. */
moi_status moii_matmul_create(moii_matmul *product, moi_ctx *ctx, moi_dtype x, const moi_format *w, int64_t max_m, int64_t n, int64_t k);
void moii_matmul_free(moii_matmul *product);
int64_t moii_matmul_workspace(const moii_matmul *product);
/* y [m, n], ldy elements between rows (0: dense) */
moi_status moii_matmul_run(const moii_matmul *product, int64_t m, const void *x, moi_operand w, float *y, int64_t ldy, moii_space space);

#endif
