/* SPDX-License-Identifier: Apache-2.0
 * experts.h: the weight matrices of all experts, in one format: [e, rows, cols], each expert's scales in one run. */
#ifndef MOII_EXPERTS_H
#define MOII_EXPERTS_H

#include "scales.h"

typedef struct moii_experts {
    const moi_format *format;
    const char *data;
    const char *scale;
    moii_scales scales; /* of the first expert */
    int64_t rows, cols;
    int64_t row_bytes, scale_bytes; /* of a row's data, of an expert's scales */
} moii_experts;

static inline moii_experts moii_experts_of(const moi_format *f, const moi_operand *w, int64_t rows, int64_t cols)
{
    return (moii_experts){ f, w->data, w->scale, moii_scales_of(f, w->scale, rows, cols, 0), rows, cols,
                           moi_row_bytes(f->elem, cols), moi_scale_bytes(f, rows, cols, 0) };
}

static inline const char *moii_experts_row(const moii_experts *m, int64_t expert, int64_t row)
{
    return m->data + (expert * m->rows + row) * m->row_bytes;
}

static inline moii_scales moii_experts_scales(const moii_experts *m, int64_t expert)
{
    moii_scales s = m->scales;
    if (m->scale) s.data = m->scale + expert * m->scale_bytes;
    return s;
}

/* The row . x, each weight dequantised as moi_dequantize_run says, summed in double: the truth, and what the fast row falls
 * back to where FP32 partial sums leave its range. */
static inline double moii_experts_dot(const moii_experts *m, int64_t expert, int64_t row, const float *x)
{
    const char *w = moii_experts_row(m, expert, row);
    moii_scales scales = moii_experts_scales(m, expert);
    int64_t block = moi_format_block(m->format);
    double sum = 0;
    for (int64_t l = 0; l < m->cols; l++) {
        float v = moi_decode(m->format->elem, w, l);
        if (block) v *= moii_scale_get(&scales, row, l / block);
        sum += (double)v * (double)x[l];
    }
    return sum;
}

#endif
