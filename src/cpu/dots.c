/* SPDX-License-Identifier: Apache-2.0 */
#include "dots.h"

#include <math.h>

enum { SCALES_AHEAD = 512 }; /* bytes */

/* See MOII_DOT_SCALE_LIMIT. */
static float usable(float scale)
{
    const float limit = 0x1p112f;
    return scale > -limit && scale < limit ? scale : INFINITY;
}

/* FP32 scales of blocks of 128, one per 32 weights; a last, short block may be less than four times 32. */
static void spread(const float *in, int64_t step, int64_t cols, float *out)
{
    int64_t full = cols / MOII_BLK;
    for (int64_t b = 0; b < full; b++) {
        float s = usable(in[b * step]);
        for (int64_t i = 0; i < 4; i++) out[4 * b + i] = s;
    }
    for (int64_t i = 4 * full; i * MOII_DOT_BLOCK < cols; i++) out[i] = usable(in[full * step]);
}

/* The scales of one row, one per 32 weights. */
static void row_scales(const moii_isa *isa, const moii_scales *s, int64_t row, int64_t cols, float *out)
{
    moi_layout layout = s->format->layout;
    int64_t line = row / s->row_div, first = line * s->blocks, step = 1;
    if (layout != MOI_LAYOUT_ROW) first = moi_scale_index(layout, s->dtype, line, 0, s->rows, s->blocks);
    if (layout == MOI_LAYOUT_COL) step = moi_scale_index(layout, s->dtype, 0, 1, s->rows, s->blocks);
    const unsigned char *in = (const unsigned char *)s->data + first;
    __builtin_prefetch(in + SCALES_AHEAD);
    __builtin_prefetch(in + SCALES_AHEAD + 64);
    if (s->dtype == MOI_F32) spread((const float *)s->data + first, step, cols, out);
    else if (layout == MOI_LAYOUT_ROW) isa->dot_scales(in, out, s->blocks);
    else
        for (int64_t b = 0; b < s->blocks; b++) out[b] = usable(moii_e8m0_decode(in[layout == MOI_LAYOUT_COL ? b * step : b / 4 * 512 + b % 4]));
}

void moii_dots(const moii_isa *isa, const moii_experts *m, moii_rows rows, const moii_vectors *v, int64_t first, int64_t count, float *scales,
               double *out)
{
    const moii_expert_row w = moii_experts_row(m, rows.expert, rows.row);
    moii_dot dot = { .scale = scales, .cols = m->cols, .row_bytes = moi_row_bytes(m->format->elem, m->cols) };
    for (int64_t r = 0; r < rows.rows; r++) {
        int64_t row = w.row + r;
        dot.w = (const unsigned char *)w.data + r * m->row_bytes;
        if (m->scaled && (r == 0 || row % w.scales.row_div == 0)) row_scales(isa, &w.scales, row, m->cols, scales);
        for (int64_t i = 0; i < count; i++) {
            dot.x = v->placed + (first + i) * v->placed_bytes;
            float sum = v->kernel->run(&dot);
            out[r * count + i] = moii_is_finite(sum) ? (double)sum : moii_experts_dot(m, rows.expert, rows.row + r, moii_vectors_plain(v, first + i));
        }
    }
}
