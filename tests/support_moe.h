/* SPDX-License-Identifier: Apache-2.0
 * support_moe.h: a MoE layer in float64, forward and backward, by loops that share nothing with the library's. */
#ifndef MOIT_SUPPORT_MOE_H
#define MOIT_SUPPORT_MOE_H

#include "support.h"

/* Values, and how far an FP32 evaluation may be from them: each step adds what it does to its operands' errors and
 * (k + 4) * 2^-24 * sum |a b| of its own. */
typedef struct moit_mat { int64_t rows, cols; double *v, *e; } moit_mat;

/* Inputs are FP32 values (already rounded to the layer's io type).  After moit_moe_run the matrices hold what the layer
 * computes.  Recipe F32: exact, with errors.  Other recipes: operands and intermediate results are rounded where the layer
 * rounds them, and the errors mean nothing. */
typedef struct moit_moe {
    moi_moe_desc d;
    int64_t tokens;
    double *x, *router, *gate_up, *down, *d_y;
    int32_t *ids; /* [t, top_k]; kept as they are if fixed_ids */
    bool fixed_ids;
    moit_mat y, d_x, d_router, d_gate_up, d_down;
    double aux, aux_error, objective; /* objective = sum y d_y + aux, whose gradients the others are */
} moit_moe;

void moit_moe_run(moit_moe *m, bool backward);
void moit_moe_clear(moit_moe *m); /* frees what moit_moe_run made */

#endif
