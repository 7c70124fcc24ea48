/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_f16_sm90.c: launches moe_decode_f16_sm90.cu twice: gate and up, then down; before them route_plain.cu, if many tokens come with
 * logits. */
#include <stdio.h>
#include <stdlib.h>

#include "decode_map.h"
#include "decode_routing.h"
#include "format.h"
#include "gpu.h"
#include "kernels/moe_decode_f16_sm90_args.h"
#include "route_plain.h"

static void defines_for(int pass, int groups, bool e5m2, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "PASS=%d GROUPS=%d E5M2=%d", pass, groups, e5m2);
}
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(1 + i % 2, 1 + i / 2 % 2, i / 4, defines); }

static const moii_kernel kernel = { .stem = "moe_decode_f16_sm90", .archs = "sm_90a", .registers = 168, .variants = 8, .variant = variant };

enum { MOST_TOKENS = 128, MOST_EXPERTS = 2048, MOST_HIDDEN = 7168, MOST_WIDTH = 7168, MOST_TOP_K = 16 };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_moe_decode_desc *d = desc;
    const moi_format *f = &d->weights;
    *why = "x must be BF16";
    if (d->x != MOI_BF16) return false;
    *why = "weights must be MXFP8 (E4M3, E5M2) with row-major scales";
    if (f->recipe != MOI_RECIPE_MX32 || (f->elem != MOI_E4M3 && f->elem != MOI_E5M2) || f->layout != MOI_LAYOUT_ROW) return false;
    *why = "hidden and width must be multiples of 128, at most 7168";
    if (d->hidden % F16_LINE || d->width % F16_LINE || !d->hidden || !d->width || d->hidden > MOST_HIDDEN || d->width > MOST_WIDTH) return false;
    *why = "top_k must be at most 16 and experts at most 2048";
    if (d->top_k > MOST_TOP_K || d->experts > MOST_EXPERTS) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

/* A pair of launches for batches up to so many tokens. */
enum { SIZES = 3 };
typedef struct launches {
    int64_t tokens;
    moii_gpu_kernel kernel[2];
    moe_decode_f16_sm90_args args[2]; /* but for the operands */
    moii_gpu_launch launch[2];
} launches;
typedef struct state {
    launches of[SIZES];
    int sizes;
    int64_t at_exponent; /* in the workspace; u is at 0 */
    moii_gpu_kernel route;
    moii_decode_places places;
} state;

static void unplan(moi_plan *plan) { free(plan->state); }

/* Reserves shared memory. */
static int take(int *at, int64_t bytes, int align)
{
    int here = *at = (int)moii_round_up(*at, align);
    *at += (int)bytes;
    return here;
}

enum { MOST_RING = 32, MOST_JOBS = 16 };

/* Places in shared memory; what they need. */
static int lay_out(moe_decode_f16_sm90_args *a, int pass, int groups, int64_t tokens)
{
    int64_t pairs = tokens * a->top_k;
    int at = a->ring * a->slot_bytes;
    a->most_jobs = (int)moii_min(pairs, moii_min(pairs, a->experts) + pairs / (8 * groups));
    if (pass == 1) a->scale_slots = (a->ring + a->parts - 2) / a->parts + 1; /* an item's are free once all of a later item's first slot is */
    else { /* as many jobs in the ring as make a slot the same warp's each time; one scale slot more for each warp where a job has more slots */
        int jobs = a->ring / a->parts;
        a->workers = (int)moii_min(jobs, F16_CONSUMERS);
        a->scale_slots = a->parts > 1 ? jobs + a->workers : jobs;
    }
    a->at_scales = take(&at, (int64_t)a->scale_slots * F16_ROWS * a->scale_row, 128);
    a->at_columns = take(&at, pass == 1 ? a->parts * F16_CONSUMERS * groups * (256 * a->columns + 256) : 0, 16);
    a->at_sums = take(&at, 2 * groups * F16_CONSUMERS * F16_SUM_BYTES, 16);
    a->at_barriers = take(&at, 16 * (a->ring + (pass == 1 ? 2 : 2 * F16_CONSUMERS)), 16);
    a->at_y = take(&at, pass == 2 ? 4 * tokens * F16_ROWS : 0, 16);
    a->at_ids = take(&at, 4 * pairs, 16), a->at_weights = take(&at, pass == 2 ? 4 * pairs : 0, 16);
    a->at_count = take(&at, 4 * (a->experts + 1), 16), a->at_place = take(&at, 2 * pairs, 16);
    a->at_expert = take(&at, 4 * a->most_jobs, 16), a->at_column = take(&at, (int64_t)2 * a->most_jobs * 8 * groups, 16);
    return at;
}

/* The deepest ring within so many bytes of shared memory: pass 1: some slots, at least 2; pass 2: 1, 2, 4, 8 or 16 jobs. */
static int fill(moe_decode_f16_sm90_args *a, int pass, int groups, int64_t tokens, int bytes)
{
    if (pass == 1)
        for (a->ring = MOST_RING; a->ring > 2 && lay_out(a, pass, groups, tokens) > bytes;) a->ring--;
    else
        for (a->ring = MOST_JOBS * a->parts; a->ring > a->parts && lay_out(a, pass, groups, tokens) > bytes;) a->ring /= 2;
    return lay_out(a, pass, groups, tokens);
}

enum { EARLY = 12 }; /* slots of pass 1 that may not be sent for when pass 2 begins */

static void plan_pass(moi_plan *plan, launches *l, int pass, int groups)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    moe_decode_f16_sm90_args *a = &l->args[pass - 1];
    int64_t k = pass == 1 ? d->hidden : d->width;
    int sms = moii_gpu_of(plan->ctx)->sms;
    *a = (moe_decode_f16_sm90_args){ .top_k = (int)d->top_k, .experts = (int)d->experts, .width = (int)d->width, .hidden = (int)d->hidden,
                                     .scale_row = (int)k / 32, .lines = (int)k / F16_LINE, .renormalize = d->renormalize, .out_f32 = d->out == MOI_F32,
                                     .dense = l->tokens <= 8, .columns = l->tokens <= 4 ? 4 : 8 };
    a->expert_scale_bytes = (unsigned int)((pass == 1 ? 2 * d->width : d->hidden) * k / 32);
    a->inverse_top_k = 65536u / (unsigned int)d->top_k + 1;
    a->tiles = (int)(pass == 1 ? d->width / (F16_ROWS / 2) : d->hidden / F16_ROWS);
    a->parts = (int)moii_ceil_div(a->lines, F16_CONSUMERS);
    a->slot_lines = (int)moii_ceil_div(a->lines, a->parts);
    a->slot_bytes = a->slot_lines * F16_LINE_BYTES;
    a->early = EARLY;
    l->kernel[pass - 1].kernel = &kernel;
    l->kernel[pass - 1].most_shared = true;
    defines_for(pass, groups, d->weights.elem == MOI_E5M2, l->kernel[pass - 1].defines);
    l->launch[pass - 1] = (moii_gpu_launch){ .threads = F16_THREADS, .overlap = true, .grid = { sms } };
    if (pass == 2) l->launch[1].grid[0] = moii_ceil_div(a->tiles, moii_ceil_div(a->tiles, sms)); /* as many tiles for each */
}

/* One multiprocessor's shared memory, less what each block costs: room for a block of either pass, so that passes overlap. */
enum { TOGETHER = 226 << 10, DOWN = 116 << 10, LEAST_BYTES = 64 << 10, LEAST_WORKERS = 4 };

static void plan_launches(moi_plan *plan, launches *l)
{
    int all = moii_gpu_of(plan->ctx)->shared_bytes, groups = l->tokens <= 8 ? 1 : 2, up, down;
    for (int pass = 1; pass <= 2; pass++) plan_pass(plan, l, pass, groups);
    down = fill(&l->args[1], 2, groups, l->tokens, DOWN);
    up = fill(&l->args[0], 1, groups, l->tokens, TOGETHER - down);
    if (groups == 2 || l->args[0].ring * l->args[0].slot_bytes < LEAST_BYTES || l->args[1].ring * l->args[1].slot_bytes < LEAST_BYTES
        || up + down > TOGETHER || l->args[1].workers < LEAST_WORKERS) { /* one after the other, then */
        down = fill(&l->args[1], 2, groups, l->tokens, all);
        up = fill(&l->args[0], 1, groups, l->tokens, all);
        if (groups == 2 && up > all) { /* long rows: 8 columns at a time */
            for (int pass = 1; pass <= 2; pass++) plan_pass(plan, l, pass, 1);
            down = fill(&l->args[1], 2, 1, l->tokens, all);
            up = fill(&l->args[0], 1, 1, l->tokens, all);
        }
    }
    l->kernel[0].shared_bytes = l->launch[0].shared_bytes = up;
    l->kernel[1].shared_bytes = l->launch[1].shared_bytes = down;
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    state *s = aligned_alloc(_Alignof(state), sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "moe_decode plan: no memory");
    *s = (state){ .sizes = 0 };
    plan->state = s;
    plan->unplan = unplan;
    int64_t most = moii_min(moii_min(moii_max(d->max_tokens, 1), MOST_TOKENS), F16_MOST_PAIRS / d->top_k);
    for (int64_t tokens = 4; s->sizes < SIZES; tokens = tokens == 4 ? 8 : MOST_TOKENS) {
        launches *l = &s->of[s->sizes++];
        for (l->tokens = moii_min(tokens, most);; l->tokens = (l->tokens + 1) / 2) {
            plan_launches(plan, l);
            if (l->tokens == 1 || moii_max(l->kernel[0].shared_bytes, l->kernel[1].shared_bytes) <= moii_gpu_of(plan->ctx)->shared_bytes) break;
        }
        MOII_TRY(moii_gpu_prepare(plan->ctx, l->kernel, 2));
        if (l->tokens == most || l->tokens < moii_min(tokens, most)) break;
    }
    int64_t tokens = s->of[s->sizes - 1].tokens;
    moii_decode_reserve(plan, tokens * d->top_k * d->width * 2);
    s->at_exponent = moii_decode_reserve(plan, tokens * d->top_k * d->width / 8);
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
        up.x = (const unsigned short *)in->x + t * d->hidden;
        up.u = down.u = workspace;
        up.exponent = down.exponent = (unsigned char *)workspace + s->at_exponent;
        down.out = (char *)in->y + t * moi_row_bytes(d->out, d->hidden);
        MOII_TRY(moii_gpu_run(plan, &l->kernel[0], &l->launch[0], &up, stream));
        MOII_TRY(moii_gpu_run(plan, &l->kernel[1], &l->launch[1], &down, stream));
    }
    return MOI_OK;
}

static const moii_kernel *const kernels[] = { &kernel, &moii_route_kernel, NULL };

const moii_impl moii_impl_moe_decode_f16_sm90 = {
    .name = "moe_decode_f16_sm90", .op = MOII_OP_MOE_DECODE, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32),
    .takes_logits = true, .supports = supports, .plan = plan_it, .run = run, .kernels = kernels, .is_unverified = true,
};
