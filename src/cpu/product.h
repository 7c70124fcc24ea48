/* SPDX-License-Identifier: Apache-2.0
 * product.h: an operand of a matrix product, whatever its format, order and group. */
#ifndef MOII_PRODUCT_H
#define MOII_PRODUCT_H

#include "cpu.h"
#include "scales.h"

/* A matrix seen as rows x depth, depth being the reduction. */
typedef struct moii_view {
    const moi_format *format;
    const char *data;
    int64_t ld_bytes;
    bool mn_major;             /* stored [depth, rows] */
    const int32_t *rows_of;    /* which stored row each row is; NULL: itself.  K-major alone */
    moii_scales scales;
    int64_t block;             /* elements per scale along the reduction, 0 for plain formats */
    int64_t first, first_block; /* the group's first element and its block: blocks count from there */
    int64_t shift;             /* by how much elements lie further along their row: ragged groups begin at whole blocks */
} moii_view;

/* `groups` > 0: the reduction is cut into that many ragged groups (moi_scale_blocks). */
static inline moii_view moii_view_of(const moi_format *f, moi_order order, const moi_operand *o, int64_t rows, int64_t depth, int64_t groups)
{
    bool turned = order == MOI_MN_MAJOR;
    int64_t line = turned ? rows : moi_ragged_cols(f, depth, groups);
    return (moii_view){ .format = f, .data = o->data, .ld_bytes = moii_ld_bytes(f, o->ld, line), .mn_major = turned,
                        .scales = moii_scales_of(f, o->scale, rows, depth, groups), .block = moi_format_block(f) };
}

static inline int64_t moii_view_row(const moii_view *v, int64_t row) { return v->rows_of ? v->rows_of[row] : row; }

/* The operand's `index`-th matrix where matrices of rows x depth lie one behind the other. */
static inline moii_view moii_view_at(moii_view v, int64_t index, int64_t rows, int64_t depth)
{
    v.data += index * (v.mn_major ? depth : rows) * v.ld_bytes;
    if (v.block) v.scales.data = (const char *)v.scales.data + index * moi_scale_bytes(v.format, rows, depth, 0);
    return v;
}

/* The same matrix with blocks counted from `offset`, where group `group` of the reduction begins. */
static inline moii_view moii_view_group(moii_view v, int64_t group, int64_t offset)
{
    v.first = offset;
    v.first_block = v.block ? offset / v.block + group : 0;
    v.shift = moii_ragged_start(v.format, offset, group) - offset;
    return v;
}

/* A part of a product: rows i0..i1 of A times rows j0..j1 of B over depth l0..l1; d is D[i0][j0]. */
typedef struct moii_range { int64_t i0, i1, j0, j1, l0, l1; } moii_range;

/* The strict product: values and sums in double, in order of the reduction, rounded once to `out`. */
void moii_product_strict(const moii_view *a, const moii_view *b, moii_range range, moi_dtype out, bool accumulate, void *d, int64_t ldd);
/* Row `row` of it at `d`, all of the range's columns: sums times *weight, or, where it is NULL, as they are. */
void moii_product_strict_row(const moii_view *a, const moii_view *b, moii_range range, int64_t row, const float *weight, moi_dtype out,
                             bool accumulate, void *d);

#endif
