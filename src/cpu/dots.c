/* SPDX-License-Identifier: Apache-2.0 */
#include "dots.h"

#include <math.h>

/* See MOII_DOT_SCALE_LIMIT. */
static float usable(float scale)
{
    const float limit = 0x1p112f;
    return scale > -limit && scale < limit ? scale : INFINITY;
}

/* The scales of one row, one per 32 weights. */
static void row_scales(const moii_isa *isa, const moii_experts *m, const moii_expert_row *w, float *out)
{
    const moii_scales *s = &w->scales;
    moi_layout layout = m->format->layout;
    int64_t first = moi_scale_index(layout, s->dtype, w->row / s->row_div, 0, s->rows, s->blocks);
    int64_t step = layout == MOI_LAYOUT_COL ? moi_scale_index(layout, s->dtype, 0, 1, s->rows, s->blocks) : 1;
    if (s->dtype == MOI_F32) {
        const float *in = (const float *)s->data + first;
        int64_t full = m->cols / MOII_BLK; /* a last, short block may be less than four times 32 */
        for (int64_t b = 0; b < full; b++)
            for (int64_t i = 0; i < 4; i++) out[4 * b + i] = usable(in[b * step]);
        for (int64_t i = 4 * full; i * MOII_DOT_BLOCK < m->cols; i++) out[i] = usable(in[full * step]);
        return;
    }
    const unsigned char *in = (const unsigned char *)s->data + first;
    if (layout == MOI_LAYOUT_ROW) isa->dot_scales(in, out, s->blocks);
    else
        for (int64_t b = 0; b < s->blocks; b++) out[b] = usable(moii_e8m0_decode(in[layout == MOI_LAYOUT_COL ? b * step : b / 4 * 512 + b % 4]));
}

void moii_dots(const moii_isa *isa, const moii_experts *m, int64_t expert, int64_t row, const moii_vectors *v, int64_t first, int64_t count,
               float *scales, double *out)
{
    const moii_expert_row w = moii_experts_row(m, expert, row);
    moii_dot dot = { .w = (const unsigned char *)w.data, .scale = scales, .cols = m->cols, .row_bytes = moi_row_bytes(m->format->elem, m->cols) };
    if (m->scaled) row_scales(isa, m, &w, scales);
    for (int64_t i = 0; i < count; i++) {
        dot.x = v->placed + (first + i) * v->placed_bytes;
        float sum = v->kernel->run(&dot);
        out[i] = moii_is_finite(sum) ? (double)sum : moii_experts_dot(m, expert, row, moii_vectors_plain(v, first + i));
    }
}
