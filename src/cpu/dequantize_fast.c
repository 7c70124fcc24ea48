/* SPDX-License-Identifier: Apache-2.0
 * dequantize_fast.c: rows over all threads, a span of a row at a time. */
#include <string.h>

#include "cpu.h"
#include "isa.h"
#include "quantize_block.h"
#include "quantize_loops.h"
#include "scales.h"

enum { SPAN = 1024 };

/* Products of NaN keep one operand's bits, and which one is the compiler's choice: there is one NaN in results. */
static void canonical(float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned int u = moii_bits_of(v[i]);
        v[i] = moii_float_of((u & 0x7FFFFFFFu) > MOII_INF_BITS ? (unsigned int)MOII_NAN_BITS : u);
    }
}

static void dequantize_span(const moi_plan *plan, const moi_dequantize_args *a, const moii_scales *scales, int64_t r, int64_t c)
{
    const moi_dequantize_desc *d = &plan->desc.dequantize;
    const moii_isa *isa = moii_cpu_isa(plan->ctx);
    int64_t block = moi_format_block(&d->in), n = moii_min(SPAN, d->cols - c);
    float scale[SPAN / MOII_MX_BLOCK], wide[SPAN];
    for (int64_t b = 0; block && b * block < n; b++) scale[b] = moii_scale_get(scales, r, c / block + b);
    char *out = (char *)a->out.data + r * moi_row_bytes(d->out, a->out.ld ? a->out.ld : d->cols) + moi_row_bytes(d->out, c);
    float *to = d->out == MOI_F32 ? (float *)(void *)out : wide;
    isa->dequant(d->in.elem, (const char *)a->in.data + r * moii_ld_bytes(&d->in, a->in.ld, d->cols), c, n, block, scale, to);
    canonical(to, n);
    if (d->out != MOI_F32) isa->quant->narrow(wide, n, (uint16_t *)(void *)out);
}

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_dequantize_desc *d = &plan->desc.dequantize;
    const moi_dequantize_args *a = args_;
    (void)workspace, (void)stream;
    moii_scales scales = moii_scales_of(&d->in, a->in.scale, a->rows, d->cols, 0);
    int64_t spans = moii_ceil_div(d->cols, SPAN), items = a->rows * spans;
#pragma omp parallel for num_threads(plan->ctx->threads) schedule(static) if (a->rows * d->cols >= 1 << 14)
    for (int64_t i = 0; i < items; i++) dequantize_span(plan, a, &scales, i / spans, i % spans * SPAN);
    return MOI_OK;
}

const moii_impl moii_impl_dequantize_fast = {
    .name = "dequantize_fast", .op = MOII_OP_DEQUANTIZE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES, .run = run,
};
