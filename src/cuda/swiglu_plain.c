/* SPDX-License-Identifier: Apache-2.0
 * swiglu_plain.c: launches swiglu_plain.cu, then, if codes are wanted, the best quantiser on the plain result. */
#include <stdio.h>
#include <stdlib.h>

#include "format.h"
#include "gpu.h"
#include "kernels/elem.h"
#include "kernels/swiglu_plain_args.h"
#include "stored.h"
#include "then_quantize.h"

enum { THREADS = 256, BLOCKS_AT_ONCE = 8, RUN = 8 };

static void defines_for(bool backward, bool runs, bool in_bf16, bool out_bf16, char defines[MOII_DEFINES])
{
    int n = snprintf(defines, MOII_DEFINES, "BACKWARD=%d RUN=%d", backward, runs ? RUN : 1), elem = in_bf16 ? ELEM_BF16 : ELEM_F32;
    if (runs) snprintf(defines + n, MOII_DEFINES - (size_t)n, " IN_ELEM=%d IN_BYTES=%d IN_WIDE=0 OUT_BF16=%d", elem, in_bf16 ? 2 : 4, out_bf16);
}
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(i & 1, i > 1, i & 2, i > 5, defines); }

/* value by value, then the four mixtures of types; forward and backward */
static const moii_kernel kernel = { .stem = "swiglu_plain", .archs = "sm_80 sm_90a sm_100a", .newer = true, .registers = 64, .variants = 10,
                                    .variant = variant };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    (void)desc;
    return moii_gpu_fits(ctx, &kernel, why);
}

typedef struct state {
    moii_gpu_kernel kernel[2]; /* backward */
    bool direct;               /* rowwise is the plain result, and nothing else is quantised */
    moii_then_quantize then;
} state;

static void unplan(moi_plan *plan)
{
    state *s = plan->state;
    moii_then_quantize_free(&s->then);
    free(s);
}

static bool packs(moi_dtype t) { return t == MOI_F32 || t == MOI_BF16; }

static moi_status plan_it(moi_plan *plan)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    state *s = calloc(1, sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "swiglu plan: no memory");
    plan->state = s;
    plan->unplan = unplan;
    for (int i = 0; i < 2; i++) {
        s->kernel[i].kernel = &kernel;
        defines_for(i, packs(d->in.elem) && d->width % RUN == 0, d->in.elem == MOI_BF16, d->out == MOI_BF16, s->kernel[i].defines);
    }
    MOII_TRY(moii_gpu_prepare(plan->ctx, s->kernel, 2));
    s->direct = d->want == MOI_WANT_ROWWISE && moii_format_plain(&d->rowwise) && d->rowwise.elem == d->out;
    return s->direct ? MOI_OK : moii_then_quantize_plan(&s->then, plan);
}

/* out: rows of out_ld values */
static moi_status launch(const moi_plan *plan, const moi_swiglu_args *in, bool backward, void *out, int64_t out_ld, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const state *s = plan->state;
    int64_t size = moi_row_bytes(d->out, 1), columns = (1 + backward) * d->width;
    swiglu_plain_args a = { .gate_up = moii_stored_of(&d->in, &in->gate_up, in->rows, 2 * d->width), .d_act = in->d_act, .out = out,
                            .out_ld = out_ld ? out_ld : columns, .rows = in->rows, .width = d->width, .out_type = (int)d->out };
    a.packets = a.gate_up.stride % MOII_ALIGN == 0 && a.out_ld * size % MOII_ALIGN == 0;
    moii_gpu_launch l = { .grid = { moii_min(moii_ceil_div(a.rows * d->width, RUN * THREADS), (int64_t)moii_gpu_of(plan->ctx)->sms * BLOCKS_AT_ONCE) },
                          .threads = THREADS };
    return a.rows ? moii_gpu_run(plan, &s->kernel[backward], &l, &a, stream) : MOI_OK;
}

static moi_status run_either(const moi_plan *plan, const moi_swiglu_args *in, bool backward, void *workspace, moi_stream stream)
{
    const state *s = plan->state;
    if (s->direct) { /* both are seldom wanted: made twice */
        if (in->plain) MOII_TRY(launch(plan, in, backward, in->plain, 0, stream));
        return launch(plan, in, backward, in->rowwise.data, in->rowwise.ld, stream);
    }
    void *plain = in->plain ? in->plain : workspace;
    MOII_TRY(launch(plan, in, backward, plain, 0, stream));
    return moii_then_quantize_run(&s->then, plan, in, plain, workspace, backward, stream);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    return run_either(plan, args, false, workspace, stream);
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    return run_either(plan, args, true, workspace, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_swiglu_plain = {
    .name = "swiglu_plain", .op = MOII_OP_SWIGLU, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .run_backward = run_backward, .kernels = kernels,
};
