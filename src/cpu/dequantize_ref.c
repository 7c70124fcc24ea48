/* SPDX-License-Identifier: Apache-2.0
 * dequantize_ref.c: v = decode(q) * s, element by element. */
#include "cpu.h"
#include "scales.h"

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_dequantize_desc *d = &plan->desc.dequantize;
    const moi_dequantize_args *a = args_;
    (void)workspace, (void)stream;
    moii_scales scales = moii_scales_of(&d->in, a->in.scale, a->rows, d->cols, 0);
    int64_t block = moi_format_block(&d->in);
    for (int64_t r = 0; r < a->rows; r++) {
        const char *in = (const char *)a->in.data + r * moii_ld_bytes(&d->in, a->in.ld, d->cols);
        char *out = (char *)a->out.data + r * moi_row_bytes(d->out, a->out.ld ? a->out.ld : d->cols);
        for (int64_t c = 0; c < d->cols; c++) {
            float v = moi_decode(d->in.elem, in, c);
            if (block) v *= moii_scale_get(&scales, r, c / block);
            if (moii_is_nan(v)) v = moii_float_of(0x7FC00000u); /* a product's NaN may have either operand's bits */
            moi_encode(d->out, out, c, v);
        }
    }
    return MOI_OK;
}

const moii_impl moii_impl_dequantize_ref = {
    .name = "dequantize_ref", .op = MOII_OP_DEQUANTIZE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .is_reference = true, .run = run,
};
