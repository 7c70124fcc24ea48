/* SPDX-License-Identifier: Apache-2.0
 * swiglu_fast.c: rows spread over threads, each computed by the SIMD body in pieces that stay in the first cache; then the
 * best quantiser row reads the result while it is in cache. */
#include <stdlib.h>

#include "cpu.h"
#include "isa.h"
#include "scales.h"
#include "then_quantize.h"

enum { PIECE = 512 }; /* columns at a time */

static void unplan(moi_plan *plan)
{
    moii_then_quantize_free(plan->state);
    free(plan->state);
}

static moi_status plan_(moi_plan *plan)
{
    moii_then_quantize *q = calloc(1, sizeof *q);
    MOII_REQUIRE(q, MOI_ERR_NOMEM, "swiglu plan: no memory");
    plan->state = q;
    plan->unplan = unplan;
    return moii_then_quantize_plan(q, plan);
}

/* n values from column c of a row of gate_up, as FP32: in place where they are, else copied into `to`. */
static const float *input(const moi_swiglu_desc *d, const moi_swiglu_args *a, int64_t r, int64_t c, int64_t n, float *to)
{
    const char *row = (const char *)a->gate_up.data + r * moii_ld_bytes(&d->in, a->gate_up.ld, 2 * d->width);
    int64_t block = moi_format_block(&d->in);
    if (d->in.elem == MOI_F32) return (const float *)row + c;
    if (d->in.elem == MOI_BF16) {
        for (int64_t i = 0; i < n; i++) to[i] = moii_bf16_decode(((const uint16_t *)row + c)[i]);
        return to;
    }
    moii_scales scales = moii_scales_of(&d->in, a->gate_up.scale, a->rows, 2 * d->width, 0);
    for (int64_t i = 0; i < n;) {
        int64_t end = moii_min(n, ((c + i) / block + 1) * block - c);
        float scale = moii_scale_get(&scales, r, (c + i) / block);
        for (; i < end; i++) to[i] = moi_decode(d->in.elem, row, c + i) * scale;
    }
    return to;
}

static const float *gradient(const moi_swiglu_desc *d, const void *d_act, int64_t at, int64_t n, float *to)
{
    if (d->out == MOI_F32) return (const float *)d_act + at;
    for (int64_t i = 0; i < n; i++) to[i] = moii_bf16_decode(((const uint16_t *)d_act + at)[i]);
    return to;
}

/* Where n results at `at` are computed: in place, or in `to` until output_done. */
static float *output(const moi_swiglu_desc *d, void *plain, int64_t at, float *to)
{
    return d->out == MOI_F32 ? (float *)plain + at : to;
}

static void output_done(const moi_swiglu_desc *d, void *plain, int64_t at, int64_t n, const float *from)
{
    if (d->out == MOI_F32) return;
    for (int64_t i = 0; i < n; i++) ((uint16_t *)plain + at)[i] = (uint16_t)moii_bf16_encode(from[i]);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const moi_swiglu_args *a = args;
    const moii_isa *isa = moii_cpu_isa(plan->ctx);
    int64_t f = d->width;
    void *plain = a->plain ? a->plain : workspace;
#pragma omp parallel for num_threads(plan->ctx->threads) schedule(static)
    for (int64_t r = 0; r < a->rows; r++) {
        float gate[PIECE], up[PIECE], act[PIECE];
        for (int64_t c = 0; c < f; c += PIECE) {
            int64_t n = moii_min(PIECE, f - c);
            float *to = output(d, plain, r * f + c, act);
            isa->swiglu(input(d, a, r, c, n, gate), input(d, a, r, f + c, n, up), to, n);
            output_done(d, plain, r * f + c, n, to);
        }
    }
    return moii_then_quantize_run(plan->state, plan, a, plain, workspace, false, stream);
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const moi_swiglu_args *a = args;
    const moii_isa *isa = moii_cpu_isa(plan->ctx);
    int64_t f = d->width;
    void *plain = a->plain ? a->plain : workspace;
#pragma omp parallel for num_threads(plan->ctx->threads) schedule(static)
    for (int64_t r = 0; r < a->rows; r++) {
        float gate[PIECE], up[PIECE], d_act[PIECE], d_gate[PIECE], d_up[PIECE];
        for (int64_t c = 0; c < f; c += PIECE) {
            int64_t n = moii_min(PIECE, f - c), at = r * 2 * f + c;
            float *to_gate = output(d, plain, at, d_gate), *to_up = output(d, plain, at + f, d_up);
            isa->swiglu_backward(input(d, a, r, c, n, gate), input(d, a, r, f + c, n, up),
                                 gradient(d, a->d_act, r * f + c, n, d_act), to_gate, to_up, n);
            output_done(d, plain, at, n, to_gate);
            output_done(d, plain, at + f, n, to_up);
        }
    }
    return moii_then_quantize_run(plan->state, plan, a, plain, workspace, true, stream);
}

const moii_impl moii_impl_swiglu_fast = {
    .name = "swiglu_fast", .op = MOII_OP_SWIGLU, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .plan = plan_, .run = run, .run_backward = run_backward,
};
