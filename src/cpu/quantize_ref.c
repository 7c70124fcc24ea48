/* SPDX-License-Identifier: Apache-2.0
 * quantize_ref.c: block by block: largest magnitude, scale, codes.  The column-wise result is the row-wise one of the
 * transposed view. */
#include <string.h>

#include "cpu.h"
#include "quantize_block.h"
#include "scales.h"

/* Rows r0..r1-1, columns c0..c1-1 of the side share one scale, at (srow, sblock); codes lie where it does. */
static void quantize_block(const moii_side *s, const moii_scales *scales, char *data, int64_t stride, int64_t r0, int64_t r1,
                           int64_t c0, int64_t c1, int64_t sblock)
{
    const moi_format *f = s->format;
    unsigned int amax = 0;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++) amax = moii_amax(f, amax, moii_view_get(&s->in, r, c));
    moii_block block = moii_block_of(f, amax);
    moii_scale_put(scales, s->scale, r0 / scales->row_div, sblock, block.scale);
    int bits = moii_dtype(f->elem)->bits;
    int64_t to = sblock * moi_format_block(f) - c0;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t c = c0; c < c1; c++)
            moii_code_store(bits, data + r * stride, to + c, moii_block_encode(f, block, moii_view_get(&s->in, r, c)));
}

static void quantize_scaled(const moii_side *s, char *data, int64_t stride, const int64_t *offsets, int64_t groups)
{
    moii_scales scales = moii_scales_of(s->format, s->scale, s->rows, s->cols, s->groups);
    int64_t width = moi_format_block(s->format), next = 0; /* next: the first block that nobody has written */
    for (int64_t g = 0; g < groups; g++) {
        int64_t first = offsets[g] / width + g;
        moii_scales_clear(&scales, s->scale, next, first);
        for (int64_t c = offsets[g]; c < offsets[g + 1]; c += width)
            for (int64_t r = 0; r < s->rows; r += scales.row_div)
                quantize_block(s, &scales, data, stride, r, moii_min(r + scales.row_div, s->rows), c,
                               moii_min(c + width, offsets[g + 1]), first + (c - offsets[g]) / width);
        next = first + moii_ceil_div(offsets[g + 1] - offsets[g], width);
    }
    moii_scales_clear(&scales, s->scale, next, scales.blocks);
    moii_scales_pad(&scales, s->scale);
}

void moii_quantize_side_ref(const moii_side *s)
{
    int64_t stored = moi_ragged_cols(s->format, s->cols, s->groups), whole[2] = { 0, s->cols }, stride = moii_ld_bytes(s->format, s->ld, stored);
    const int64_t *offsets = s->groups ? s->offsets : whole;
    int64_t groups = s->groups ? s->groups : 1;
    char *data = s->data;
    for (int64_t r = 0; data && r < s->rows; r++) memset(data + r * stride, 0, (size_t)moi_row_bytes(s->format->elem, stored));
    if (!moii_format_plain(s->format)) {
        if (s->scale) quantize_scaled(s, data, stride, offsets, groups);
        return;
    }
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < offsets[groups]; c++) moi_encode(s->format->elem, data + r * stride, c, moii_view_get(&s->in, r, c));
}

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moi_quantize_args *a = args_;
    (void)workspace, (void)stream;
    int64_t ld = a->in.ld ? a->in.ld : d->cols, in_bytes = a->rows * moi_row_bytes(d->in, ld);
    for (int want = MOI_WANT_ROWWISE; want <= MOI_WANT_COLWISE; want++) {
        if (!(d->want & (uint32_t)want)) continue;
        bool t = want == MOI_WANT_COLWISE;
        const moi_format *f = t ? &d->colwise : &d->rowwise;
        const moi_result *out = t ? &a->colwise : &a->rowwise;
        moii_side s = { { a->in.data, d->in, ld, t }, f, t ? d->cols : a->rows, t ? a->rows : d->cols,
                        t ? d->groups : 0, a->offsets, out->data, out->scale, out->ld };
        int64_t data_bytes = s.rows * moii_ld_bytes(f, s.ld, moi_ragged_cols(f, s.cols, s.groups)), scale_bytes = moi_scale_bytes(f, s.rows, s.cols, s.groups);
        for (int64_t i = 0; i < d->batch; i++) {
            moii_quantize_side_ref(&s);
            if (t ? d->colwise_mx : d->rowwise_mx) moii_rebase_side(&s, t ? d->colwise_mx : d->rowwise_mx, 0, s.rows);
            if (s.in.data) s.in.data = (const char *)s.in.data + in_bytes;
            if (s.data) s.data = (char *)s.data + data_bytes;
            if (s.scale) s.scale = (char *)s.scale + scale_bytes;
        }
    }
    return MOI_OK;
}

const moii_impl moii_impl_quantize_ref = {
    .name = "quantize_ref", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .is_reference = true, .run = run,
};
