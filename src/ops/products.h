/* SPDX-License-Identifier: Apache-2.0
 * products.h: the checks that gemm and ggemm share. */
#ifndef MOII_PRODUCTS_H
#define MOII_PRODUCTS_H

#include "format.h"
#include "status.h"

/* What a description says about its operands and its result; `where` begins the message ("gemm plan"). */
typedef struct moii_product_desc {
    const moi_format *a, *b;
    moi_order a_order, b_order;
    moi_dtype out;
    bool accumulate;
    bool weights_alone; /* a may be plain where b is of any format */
    moi_mx_scales mx;
    int32_t sm_limit;
} moii_product_desc;

/* a plain, b of another format: weights alone are quantised */
static inline bool moii_product_mixed(const moi_format *a, const moi_format *b)
{
    return moii_format_plain(a) && (b->recipe != a->recipe || b->elem != a->elem);
}

moi_status moii_product_check(const char *where, const moii_product_desc *desc);

/* A matrix of `rows` x `depth` (depth: along the reduction) in either order. */
static inline moi_status moii_product_operand(const char *where, const moi_format *f, moi_order order, const moi_operand *o,
                                              int64_t rows, int64_t depth)
{
    bool turned = order == MOI_MN_MAJOR;
    return moii_operand_check(where, f, o->data, o->scale, o->ld, turned ? depth : rows, turned ? rows : depth);
}

/* The same for a weight that lies where a file has it. */
static inline moi_status moii_product_weight(const char *where, const moi_format *f, moi_order order, const moi_operand *o,
                                             int64_t rows, int64_t depth)
{
    bool turned = order == MOI_MN_MAJOR;
    return moii_weight_check(where, f, o->data, o->scale, o->ld, turned ? depth : rows, turned ? rows : depth);
}

/* b, which may lie as a file has it where a is plain. */
static inline moi_status moii_product_second(const char *where, const moi_format *a, const moi_format *b, moi_order order, const moi_operand *o,
                                             int64_t rows, int64_t depth)
{
    return (moii_format_plain(a) ? moii_product_weight : moii_product_operand)(where, b, order, o, rows, depth);
}

#endif
