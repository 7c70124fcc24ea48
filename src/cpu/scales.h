/* SPDX-License-Identifier: Apache-2.0
 * scales.h: reading the scales of a quantised matrix, whatever their layout. */
#ifndef MOII_SCALES_H
#define MOII_SCALES_H

#include "dtype.h"
#include "format.h"

/* The scales of a rows x cols matrix. */
typedef struct moii_scales {
    const moi_format *format;
    const void *data;
    moi_dtype dtype;
    int64_t rows, blocks; /* in scales */
    int64_t row_div;      /* matrix rows per scale row: 1 or 128 */
} moii_scales;

static inline moii_scales moii_scales_of(const moi_format *f, const void *data, int64_t rows, int64_t cols, int64_t groups)
{
    return (moii_scales){ f, data, moii_format_scale(f), moii_scale_rows(f, rows), moi_scale_blocks(f, cols, groups),
                          f->recipe == MOI_RECIPE_BLK128 && f->block == MOI_BLOCK_SQUARE ? MOII_BLK : 1 };
}

/* The scale of block `block` of matrix row `row`; 1 for plain formats. */
static inline float moii_scale_get(const moii_scales *s, int64_t row, int64_t block)
{
    if (!s->dtype) return 1.0f;
    int64_t i = moi_scale_index(s->format->layout, s->dtype, row / s->row_div, block, s->rows, s->blocks);
    if (s->dtype == MOI_E8M0) return moii_e8m0_decode(((const unsigned char *)s->data)[i]);
    return ((const float *)s->data)[i];
}

#endif
