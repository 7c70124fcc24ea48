/* SPDX-License-Identifier: Apache-2.0
 * scales.h: reading and writing the scales of a quantised matrix, whatever their layout. */
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

/* Stores a scale at (row, block) counted in scales: an E8M0 code or the bits of an FP32. */
static inline void moii_scale_put(const moii_scales *s, void *data, int64_t row, int64_t block, unsigned int bits)
{
    int64_t i = moi_scale_index(s->format->layout, s->dtype, row, block, s->rows, s->blocks);
    if (s->dtype == MOI_E8M0) ((unsigned char *)data)[i] = (unsigned char)bits;
    else ((float *)data)[i] = moii_float_of(bits);
}

/* Zeroes what the layout adds behind the rows and blocks; not the scales themselves, which may be in use. */
static inline void moii_scales_pad(const moii_scales *s, void *data)
{
    moi_layout layout = s->format->layout;
    int64_t unit = layout == MOI_LAYOUT_TILED ? 128 : layout == MOI_LAYOUT_COL ? (s->dtype == MOI_E8M0 ? 16 : 4) : 1;
    int64_t rows = moii_round_up(s->rows, unit), blocks = layout == MOI_LAYOUT_TILED ? moii_round_up(s->blocks, 4) : s->blocks;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t b = r < s->rows ? s->blocks : 0; b < blocks; b++) moii_scale_put(s, data, r, b, 0);
}

/* Zeroes the blocks from..to-1 of every row: those that no ragged group owns. */
static inline void moii_scales_clear(const moii_scales *s, void *data, int64_t from, int64_t to)
{
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t b = from; b < to; b++) moii_scale_put(s, data, r, b, 0);
}

/* out[i] = the scale of block `block` + i of matrix row `row`: what the dequantising bodies take. */
static inline void moii_scale_span(const moii_scales *s, int64_t row, int64_t block, int64_t count, float *out)
{
    if (s->dtype == MOI_E8M0 && s->format->layout == MOI_LAYOUT_ROW) {
        const unsigned char *in = (const unsigned char *)s->data + row / s->row_div * s->blocks + block;
        for (int64_t i = 0; i < count; i++) out[i] = moii_e8m0_decode(in[i]);
    } else {
        for (int64_t i = 0; i < count; i++) out[i] = moii_scale_get(s, row, block + i);
    }
}

#endif
