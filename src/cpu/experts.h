/* SPDX-License-Identifier: Apache-2.0
 * experts.h: the weight matrices of all experts, in one format: one behind the other, or each where it lies. */
#ifndef MOII_EXPERTS_H
#define MOII_EXPERTS_H

#include "scales.h"

typedef struct moii_experts {
    const moi_format *format;
    const char *data, *scale;       /* [e, rows, cols], each expert's scales in one run; not read if `apart` */
    const moi_expert_operands *apart;
    bool down;                      /* apart: the down matrices; else gate, and behind its rows up */
    bool scaled;
    moii_scales scales;             /* of one matrix; data to be set */
    int64_t rows, cols;             /* rows of one matrix of memory: apart those of gate or up alone */
    int64_t row_bytes, scale_bytes; /* between rows; of an expert's scales */
} moii_experts;

/* A row of one expert: its codes, and its place among the scales of its matrix. */
typedef struct moii_expert_row {
    const char *data;
    moii_scales scales;
    int64_t row;
} moii_expert_row;

static inline moii_experts moii_experts_of(const moi_format *f, const moi_operand *w, int64_t rows, int64_t cols)
{
    return (moii_experts){ .format = f, .data = w->data, .scale = w->scale, .scaled = !moii_format_plain(f),
                           .scales = moii_scales_of(f, w->scale, rows, cols, 0), .rows = rows, .cols = cols,
                           .row_bytes = moii_ld_bytes(f, w->ld, cols), .scale_bytes = moi_scale_bytes(f, rows, cols, 0) };
}

/* down: [h, f] of each expert; else gate and up, [f, h] each. */
static inline moii_experts moii_experts_apart(const moi_format *f, const moi_expert_operands *apart, bool down, int64_t rows, int64_t cols)
{
    static const moi_operand none = { NULL, NULL, 0 };
    moii_experts m = moii_experts_of(f, &none, rows, cols);
    m.apart = apart;
    m.down = down;
    return m;
}

static inline moii_expert_row moii_experts_row(const moii_experts *m, int64_t expert, int64_t row)
{
    moii_expert_row r = { m->data, m->scales, row };
    if (m->apart) {
        const moi_expert_operands *e = &m->apart[expert];
        const moi_operand *w = m->down ? &e->down : row < m->rows ? &e->gate : &e->up;
        if (row >= m->rows) r.row -= m->rows;
        r.data = w->data;
        r.scales.data = w->scale;
    } else {
        r.data += expert * m->rows * m->row_bytes;
        if (m->scaled) r.scales.data = m->scale + expert * m->scale_bytes;
    }
    r.data += r.row * m->row_bytes;
    return r;
}

/* The row . x, each weight dequantised as moi_dequantize_run says, summed in double: the truth, and what the fast rows fall
 * back to where FP32 partial sums leave its range. */
static inline double moii_experts_dot(const moii_experts *m, int64_t expert, int64_t row, const float *x)
{
    const moii_expert_row w = moii_experts_row(m, expert, row);
    int64_t block = moi_format_block(m->format);
    double sum = 0;
    for (int64_t l = 0; l < m->cols; l++) {
        float v = moi_decode(m->format->elem, w.data, l);
        if (block) v *= moii_scale_get(&w.scales, w.row, l / block);
        sum += (double)v * (double)x[l];
    }
    return sum;
}

#endif
