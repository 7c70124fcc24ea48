/* SPDX-License-Identifier: Apache-2.0
 * swiglu_ref.c: silu.h, element by element; then the reference quantiser on the result. */
#include "cpu.h"
#include "quantize_block.h"
#include "scales.h"
#include "silu.h"

/* The plain result where the caller does not want it: quantisation reads it from here. */
static moi_status plan_(moi_plan *plan)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    if (d->want) plan->workspace_bytes = d->max_rows * moi_row_bytes(d->out, 2 * d->width);
    return MOI_OK;
}

static void quantize(const moi_swiglu_desc *d, const moi_swiglu_args *a, const void *plain, int64_t columns)
{
    moii_side row = { { plain, d->out, columns, false }, &d->rowwise, a->rows, columns, 0, NULL, a->rowwise.data, a->rowwise.scale,
                      a->rowwise.ld };
    moii_side col = { { plain, d->out, columns, true }, &d->colwise, columns, a->rows, d->groups, a->offsets, a->colwise.data,
                      a->colwise.scale, a->colwise.ld };
    if (d->want & MOI_WANT_ROWWISE) moii_quantize_side_ref(&row);
    if (d->want & MOI_WANT_COLWISE) moii_quantize_side_ref(&col);
    if (d->rowwise_mx) moii_rebase_side(&row, d->rowwise_mx, 0, row.rows);
    if (d->colwise_mx) moii_rebase_side(&col, d->colwise_mx, 0, col.rows);
}

/* gate and up of one element, dequantised. */
typedef struct source {
    const moi_swiglu_desc *d;
    const moi_swiglu_args *a;
    moii_scales scales;
    int64_t block, stride;
} source;

static source source_of(const moi_swiglu_desc *d, const moi_swiglu_args *a)
{
    return (source){ d, a, moii_scales_of(&d->in, a->gate_up.scale, a->rows, 2 * d->width, 0), moi_format_block(&d->in),
                     moii_ld_bytes(&d->in, a->gate_up.ld, 2 * d->width) };
}

static float get(const source *s, int64_t r, int64_t c)
{
    float v = moi_decode(s->d->in.elem, (const char *)s->a->gate_up.data + r * s->stride, c);
    if (s->block) v *= moii_scale_get(&s->scales, r, c / s->block);
    return v;
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const moi_swiglu_args *a = args;
    (void)stream;
    source s = source_of(d, a);
    int64_t f = d->width;
    void *plain = a->plain ? a->plain : workspace;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < f; c++) moi_encode(d->out, plain, r * f + c, moii_swiglu(get(&s, r, c), get(&s, r, f + c)));
    quantize(d, a, plain, f);
    return MOI_OK;
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const moi_swiglu_args *a = args;
    (void)stream;
    source src = source_of(d, a);
    int64_t f = d->width;
    void *plain = a->plain ? a->plain : workspace;
    for (int64_t r = 0; r < a->rows; r++) {
        for (int64_t c = 0; c < f; c++) {
            float d_act = moi_decode(d->out, a->d_act, r * f + c);
            moii_swiglu_grad grad = moii_swiglu_backward(get(&src, r, c), get(&src, r, f + c), d_act);
            moi_encode(d->out, plain, r * 2 * f + c, grad.gate);
            moi_encode(d->out, plain, r * 2 * f + f + c, grad.up);
        }
    }
    quantize(d, a, plain, 2 * f);
    return MOI_OK;
}

const moii_impl moii_impl_swiglu_ref = {
    .name = "swiglu_ref", .op = MOII_OP_SWIGLU, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .is_reference = true, .plan = plan_, .run = run, .run_backward = run_backward,
};
