/* SPDX-License-Identifier: Apache-2.0
 * tensor_thin.c: which products thin_sm90 does, and with which defines. */
#include <stdio.h>

#include "dtype.h"
#include "format.h"
#include "tensor_product.h"

static const moi_format mxfp8 = MOII_TENSOR_MXFP8;

/* Compiled ahead: few rows of each of 8 groups, or of one matrix. */
static const struct { int grouping; moi_dtype out; int64_t rows, n, k; bool placed; } ahead[] = {
    { PRODUCT_ROWS, MOI_BF16, 256, 4096, 7168, false }, { PRODUCT_ROWS, MOI_F32, 256, 4096, 7168, false },
    { PRODUCT_ROWS, MOI_BF16, 256, 4096, 7168, true },  { PRODUCT_MASKED, MOI_BF16, 32, 4096, 7168, false },
    { PRODUCT_DENSE, MOI_BF16, 32, 24576, 1536, false },
};

static void variant(int i, char defines[MOII_DEFINES])
{
    moii_tensor_product p = { .grouping = ahead[i].grouping, .a = &mxfp8, .b = &mxfp8, .groups = ahead[i].grouping == PRODUCT_DENSE ? 1 : 8, .m = ahead[i].rows,
                              .n = ahead[i].n, .k = ahead[i].k, .scatter_rows = ahead[i].placed ? ahead[i].rows : 0, .weighted = ahead[i].placed };
    moii_tensor_variant(&p, ahead[i].out, defines);
}

const moii_kernel moii_thin_kernel = { .stem = "thin_sm90", .archs = "sm_90a", .registers = 255, .variants = sizeof ahead / sizeof *ahead, .variant = variant };

/* Four blocks' scales lie in a word, and no stage is a part of one. */
bool moii_thin_takes(const moi_format *f, int64_t k, int64_t groups)
{
    return k % 128 == 0 && f->layout != MOI_LAYOUT_COL && groups <= THIN_GROUPS;
}

/* Listed rows of A are brought into an order in which theirs lie so. */
bool moii_thin_fits(const moii_tensor_product *p)
{
    bool a = p->gather_rows || moii_thin_takes(p->a, p->k, p->groups);
    return p->scaling == SCALING_MX && p->grouping != PRODUCT_DEPTH && a && moii_thin_takes(p->b, p->k, p->groups);
}

void moii_thin_defines(const moii_tensor_product *p, const moii_tensor_tile *t, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "GROUPS=%d ELEM_A=%d ELEM_B=%d OUT_F32=%d ADD=%d SCATTER=%d WEIGHTED=%d WGS=%d BN=%d STAGES=%d SHARED_BYTES=%d",
             p->grouping, (int)p->a->elem, (int)p->b->elem, p->out_f32, p->accumulate, p->scatter_rows > 0, p->weighted, t->wgs, t->bn, t->stages,
             moii_tensor_shared(p, t));
}
