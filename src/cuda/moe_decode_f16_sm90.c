/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_f16_sm90.c: launches moe_decode_f16_sm90.cu twice: gate and up, then down; before them route_plain.cu, if many tokens come with
 * logits. */
#include <stdio.h>
#include <stdlib.h>

#include "decode_f16_layout.h"
#include "decode_map.h"
#include "decode_routing.h"
#include "format.h"
#include "gpu.h"
#include "route_plain.h"

static void defines_for(int pass, bool e5m2, int held, char defines[MOII_DEFINES])
{
    if (pass == 1) snprintf(defines, MOII_DEFINES, "PASS=1 E5M2=%d HELD=%d", e5m2, held);
    else snprintf(defines, MOII_DEFINES, "PASS=2 E5M2=%d", e5m2);
}
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(i < 4 ? 1 : 2, i % 2, i / 2 ? 8 : 4, defines); }

static const moii_kernel kernel = { .stem = "moe_decode_f16_sm90", .archs = "sm_90a", .registers = 144, .variants = 6, .variant = variant };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_moe_decode_desc *d = desc;
    const moi_format *f = &d->weights;
    *why = "it takes at most 8 tokens";
    if (d->max_tokens > F16_MOST_TOKENS) return false;
    *why = "x must be BF16";
    if (d->x != MOI_BF16) return false;
    *why = "weights must be MXFP8 (E4M3, E5M2) with row-major scales";
    if (f->recipe != MOI_RECIPE_MX32 || (f->elem != MOI_E4M3 && f->elem != MOI_E5M2) || f->layout != MOI_LAYOUT_ROW) return false;
    *why = "hidden and width must be multiples of 128, at most 7168";
    if (d->hidden % F16_LINE || d->width % F16_LINE || !d->hidden || !d->width || d->hidden > MOII_DECODE_F16_K || d->width > MOII_DECODE_F16_K) return false;
    *why = "top_k must be at most 16 and experts at most 2048";
    if (d->top_k > MOII_DECODE_F16_TOP_K || d->experts > MOII_DECODE_F16_EXPERTS) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

/* Launches for batches up to 1, 2, 4, 8 tokens. */
enum { SIZES = 4 };
typedef struct launches {
    int tokens;
    moe_decode_f16_sm90_args args[2]; /* but for the operands */
    moii_gpu_launch launch[2];
} launches;
typedef struct state {
    moii_gpu_kernel kernel[2];
    launches of[SIZES];
    int sizes;
    int64_t at_exponent; /* in the workspace; u is at 0 */
    moii_gpu_kernel route;
    moii_decode_places places;
} state;

static void unplan(moi_plan *plan) { free(plan->state); }

static moi_status plan_it(moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    state *s = aligned_alloc(_Alignof(state), sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "moe_decode plan: no memory");
    *s = (state){ .sizes = 0 };
    plan->state = s;
    plan->unplan = unplan;
    const moii_gpu *gpu = moii_gpu_of(plan->ctx);
    for (int tokens = 1; s->sizes < SIZES; tokens *= 2) {
        launches *l = &s->of[s->sizes];
        l->tokens = tokens;
        moii_decode_f16_layout(d, tokens, gpu->sms, gpu->shared_bytes, l->args, l->launch);
        for (int pass = 0; pass < 2; pass++)
            if (l->launch[pass].shared_bytes > s->kernel[pass].shared_bytes) s->kernel[pass].shared_bytes = l->launch[pass].shared_bytes;
        s->sizes++;
        if (tokens >= d->max_tokens) break;
    }
    for (int pass = 0; pass < 2; pass++) {
        s->kernel[pass].kernel = &kernel;
        s->kernel[pass].most_shared = true;
        defines_for(pass + 1, d->weights.elem == MOI_E5M2, d->experts <= 128 ? 4 : 8, s->kernel[pass].defines);
    }
    MOII_TRY(moii_gpu_prepare(plan->ctx, s->kernel, 2));
    int64_t tokens = s->of[s->sizes - 1].tokens, columns = tokens * s->of[s->sizes - 1].args[0].most_jobs;
    moii_decode_reserve(plan, columns * d->width * 2);
    s->at_exponent = moii_decode_reserve(plan, columns * d->width / 8);
    if (!d->from_logits) return MOI_OK;
    s->places = moii_decode_places_for(plan, tokens);
    s->route.kernel = &moii_route_kernel;
    return moii_gpu_prepare(plan->ctx, &s->route, 1);
}

/* Lines of 128 bytes behind each other along k, rows within a line; of gate and up 8 rows each. */
static moi_status make_maps(const moi_plan *plan, const launches *l, const moi_moe_decode_args *in, product_map *up, product_map *down)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    int64_t h = d->hidden, f = d->width;
    const int64_t up_sizes[4] = { F16_LINE, f, 2 * d->experts, h / F16_LINE }, up_strides[3] = { h, f * h, F16_LINE };
    const int64_t down_sizes[3] = { F16_LINE, d->experts * h, f / F16_LINE }, down_strides[2] = { f, F16_LINE };
    const int up_box[4] = { F16_LINE, F16_ROWS / 2, 2, l->args[0].slot_lines }, down_box[3] = { F16_LINE, F16_ROWS, l->args[1].slot_lines };
    MOII_TRY(moii_decode_map(plan, up, in->gate_up.data, 4, up_sizes, up_strides, up_box));
    return moii_decode_map(plan, down, in->down.data, 3, down_sizes, down_strides, down_box);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    const moi_moe_decode_args *in = args;
    const state *s = plan->state;
    product_map maps[2];
    int size = 0;
    while (size + 1 < s->sizes && s->of[size].tokens < in->tokens) size++;
    const launches *l = &s->of[size];
    bool pushed;
    MOII_TRY(moii_gpu_enter(moii_gpu_of(plan->ctx), &pushed)); /* the driver encodes maps only where a context is current */
    moi_status status = make_maps(plan, l, in, &maps[0], &maps[1]);
    moii_gpu_leave(moii_gpu_of(plan->ctx), pushed);
    if (status) return status;
    for (int64_t t = 0; t < in->tokens; t += l->tokens) {
        moe_decode_f16_sm90_args up = l->args[0], down = l->args[1];
        up.map = maps[0], down.map = maps[1];
        up.tokens = down.tokens = (int)moii_min(l->tokens, in->tokens - t);
        up.scale = in->gate_up.scale, down.scale = in->down.scale;
        moii_decode_routing r;
        MOII_TRY(moii_decode_route(plan, in, t, up.tokens, &s->places, &s->route, workspace, stream, &r));
        MOII_DECODE_SET_ROUTING(&r, &up, &down);
        if (r.logits) down.ids = r.ids_out, down.logits = NULL;
        up.x = (const unsigned short *)in->x + t * d->hidden;
        up.u = down.u = workspace;
        up.exponent = down.exponent = (unsigned char *)workspace + s->at_exponent;
        down.out = (char *)in->y + t * moi_row_bytes(d->out, d->hidden);
        MOII_TRY(moii_gpu_run(plan, &s->kernel[0], &l->launch[0], &up, stream));
        MOII_TRY(moii_gpu_run(plan, &s->kernel[1], &l->launch[1], &down, stream));
    }
    return MOI_OK;
}

static const moii_kernel *const kernels[] = { &kernel, &moii_route_kernel, NULL };

const moii_impl moii_impl_moe_decode_f16_sm90 = {
    .name = "moe_decode_f16_sm90", .op = MOII_OP_MOE_DECODE, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32),
    .takes_logits = true, .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
