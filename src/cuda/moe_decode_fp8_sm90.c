/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_fp8_sm90.c: launches moe_decode_fp8_sm90.cu twice: gate and up, then down. */
#include <stdio.h>
#include <stdlib.h>

#include "decode_map.h"
#include "decode_routing.h"
#include "format.h"
#include "gpu.h"
#include "kernels/moe_decode_fp8_sm90_args.h"
#include "route_plain.h"

/* How k is cut: bytes of a row in a tile, tiles of a stage. */
typedef struct cut { int line, chunks; } cut;
static const cut cuts[2][4] = { { { 128, 1 }, { 64, 1 } }, { { 128, 2 }, { 128, 1 }, { 64, 3 }, { 64, 1 } } };

/* The coarsest for so many values. */
static cut cut_of(int pass, int64_t k)
{
    int i = 0;
    while (k % (cuts[pass - 1][i].line * cuts[pass - 1][i].chunks)) i++;
    return cuts[pass - 1][i];
}

static void defines_for(int pass, int tokens, bool e5m2, cut c, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "PASS=%d TOKENS=%d E5M2=%d LINE=%d CHUNKS=%d", pass, tokens, e5m2, c.line, c.chunks);
}
static void variant(int i, char defines[MOII_DEFINES])
{
    int n = i / 4;
    defines_for(n < 2 ? 1 : 2, i & 1 ? 8 : 4, i & 2, n < 2 ? cuts[0][n] : cuts[1][n - 2], defines);
}

static const moii_kernel kernel = { .stem = "moe_decode_fp8_sm90", .archs = "sm_90a", .registers = 104, .variants = 24, .variant = variant };

enum { FASTER_TO = 2 }; /* tokens of a plan that names no row: measured, docs/notes/warp-decode.md */
enum { MOST_TOKENS = 128, MOST_EXPERTS = 2048, MOST_SIZE = 7168, MOST_TOP_K = 16 };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_moe_decode_desc *d = desc;
    const moi_format *f = &d->weights;
    *why = "more than 2 tokens take moe_decode_sm90 less time";
    if (!d->row && d->max_tokens > FASTER_TO) return false;
    *why = "x must be BF16";
    if (d->x != MOI_BF16) return false;
    *why = "weights must be MXFP8 (E4M3, E5M2) with row-major scales";
    if (f->recipe != MOI_RECIPE_MX32 || (f->elem != MOI_E4M3 && f->elem != MOI_E5M2) || f->layout != MOI_LAYOUT_ROW) return false;
    *why = "hidden must be a multiple of 128, width one of 64, both at most 7168";
    if (d->hidden % 128 || d->width % 64 || !d->hidden || !d->width || d->hidden > MOST_SIZE || d->width > MOST_SIZE) return false;
    *why = "top_k must be at most 16 and experts at most 2048";
    if (d->top_k > MOST_TOP_K || d->experts > MOST_EXPERTS) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

/* A pair of launches for batches up to so many tokens. */
enum { SIZES = 3 };
typedef struct launches {
    int64_t tokens;
    moii_gpu_kernel kernel[2];
    moe_decode_fp8_sm90_args args[2]; /* but for the operands */
    moii_gpu_launch launch[2];
} launches;
typedef struct state {
    launches of[SIZES];
    int sizes, slices;
    cut cut[2];
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

/* Places in shared memory; what they need. */
static int lay_out(moe_decode_fp8_sm90_args *a, int pass, int group, int step, int64_t tokens)
{
    int64_t pairs = tokens * a->top_k, columns = (pass == 1 ? 4 : 2) * group * step;
    int at = a->ring * FP8_ROWS * step;
    a->most_groups = (int)moii_min(pairs, moii_min(pairs, a->experts) + pairs / group);
    a->scale_slots = (a->ring + a->turns - 1) / a->turns + 1; /* an item's are free once all of a later item's stage is */
    a->at_columns = take(&at, columns * (pass == 1 ? a->stages : a->ring), 1024);
    a->at_scales = take(&at, (int64_t)a->scale_slots * (pass == 1 ? 2 * FP8_TILE_UP : FP8_TILE_DOWN) * a->scale_row, 128);
    a->at_sums = take(&at, pass == 1 ? 512 * FP8_GROUPS_UP * group : 8 * tokens * FP8_SUM_ROWS, 16);
    a->at_factors = take(&at, 4 * group * (pass == 1 ? 2 * a->stages : a->ring), 16);
    a->at_barriers = take(&at, 8 * (2 * a->ring + (pass == 1 ? 2 * a->stages + a->scale_slots : 0)), 16);
    a->at_ids = take(&at, 4 * pairs, 16), a->at_weights = take(&at, pass == 2 ? 4 * pairs : 0, 16);
    a->at_count = take(&at, 4 * (a->experts + 1), 16), a->at_place = take(&at, 2 * pairs, 16);
    a->at_expert = take(&at, 4 * a->most_groups, 16), a->at_column = take(&at, 2 * a->most_groups * group, 16);
    return at;
}

/* The deepest ring of at most `most` stages within so many bytes of shared memory, but at least 4; in pass 1 a multiple of 4. */
static int fill(moe_decode_fp8_sm90_args *a, int pass, int group, int step, int64_t tokens, int most, int bytes)
{
    for (a->ring = most; a->ring > 4 && lay_out(a, pass, group, step, tokens) > bytes;) a->ring -= pass == 1 ? FP8_GROUPS_UP : 1;
    return lay_out(a, pass, group, step, tokens);
}

/* One multiprocessor's shared memory, less what each block costs: room for a block of either pass, so that passes overlap. */
enum { TOGETHER = 226 << 10, DOWN = 100 << 10, LEAST_RING = 5, MOST_RING = 16, DOWN_RING = 8 };

static void plan_pass(moi_plan *plan, launches *l, int pass)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    const state *s = plan->state;
    moe_decode_fp8_sm90_args *a = &l->args[pass - 1];
    cut c = s->cut[pass - 1];
    int64_t k = pass == 1 ? d->hidden : d->width;
    int step = c.line * c.chunks, group = l->tokens <= 4 ? 4 : 8;
    *a = (moe_decode_fp8_sm90_args){ .top_k = (int)d->top_k, .experts = (int)d->experts, .k = (int)k, .width = (int)d->width, .hidden = (int)d->hidden,
                                     .scale_row = (int)k / 32, .renormalize = d->renormalize, .out_f32 = d->out == MOI_F32,
                                     .dense = l->tokens <= 8, .slices = s->slices };
    a->expert_scale_bytes = (unsigned int)((pass == 1 ? 2 * d->width : d->hidden) * k / 32);
    a->inverse_top_k = 65536u / (unsigned int)d->top_k + 1;
    a->tiles = (int)(pass == 1 ? d->width / FP8_TILE_UP : d->hidden / FP8_TILE_DOWN);
    a->stages = (int)k / (pass == 1 ? 2 : s->slices) / step;
    a->turns = pass == 1 ? (int)moii_round_up(a->stages, FP8_GROUPS_UP) : a->stages;
    l->kernel[pass - 1].kernel = &kernel;
    l->kernel[pass - 1].most_shared = true;
    defines_for(pass, group, d->weights.elem == MOI_E5M2, c, l->kernel[pass - 1].defines);
    l->launch[pass - 1] = (moii_gpu_launch){ .threads = 128 * (pass == 1 ? FP8_GROUPS_UP : FP8_GROUPS_DOWN) + FP8_OTHERS, .overlap = true,
                                             .cluster = pass == 2 && s->slices > 1 ? s->slices : 0,
                                             .grid = { pass == 1 ? moii_gpu_of(plan->ctx)->sms : a->tiles * s->slices } };
}

static void plan_launches(moi_plan *plan, launches *l)
{
    const state *s = plan->state;
    int all = moii_gpu_of(plan->ctx)->shared_bytes, group = l->tokens <= 4 ? 4 : 8, step[2];
    for (int pass = 1; pass <= 2; pass++) plan_pass(plan, l, pass), step[pass - 1] = s->cut[pass - 1].line * s->cut[pass - 1].chunks;
    int down = fill(&l->args[1], 2, group, step[1], l->tokens, DOWN_RING, DOWN);
    int up = fill(&l->args[0], 1, group, step[0], l->tokens, MOST_RING, TOGETHER - down);
    if (group == 8 || l->args[0].ring < LEAST_RING || l->args[1].ring < LEAST_RING || up + down > TOGETHER) { /* one after the other, then */
        down = fill(&l->args[1], 2, group, step[1], l->tokens, DOWN_RING, all);
        up = fill(&l->args[0], 1, group, step[0], l->tokens, MOST_RING, all);
    }
    l->kernel[0].shared_bytes = l->launch[0].shared_bytes = up;
    l->kernel[1].shared_bytes = l->launch[1].shared_bytes = down;
}

/* Blocks that share 64 outputs: as many as let all outputs' blocks be there at once. */
static int slices_of(const moi_ctx *ctx, const moi_moe_decode_desc *d)
{
    int n = 8;
    while (n > 1 && (d->hidden / FP8_TILE_DOWN * n > moii_gpu_of(ctx)->sms || d->width % (64 * n))) n /= 2;
    return n;
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    state *s = aligned_alloc(_Alignof(state), sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "moe_decode plan: no memory");
    *s = (state){ .sizes = 0 };
    plan->state = s;
    plan->unplan = unplan;
    s->slices = slices_of(plan->ctx, d);
    s->cut[0] = cut_of(1, d->hidden / 2), s->cut[1] = cut_of(2, d->width / s->slices);
    int64_t most = moii_min(moii_min(moii_max(d->max_tokens, 1), MOST_TOKENS), FP8_MOST_PAIRS / d->top_k);
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
    if (!d->from_logits) return MOI_OK;
    s->places = moii_decode_places_for(plan, tokens);
    s->route.kernel = &moii_route_kernel;
    return moii_gpu_prepare(plan->ctx, &s->route, 1);
}

/* Gate and up: both halves of k, rows of gate and up by eights beside each other.  Down: chunks of k behind each other. */
static moi_status make_maps(const moi_plan *plan, const moi_moe_decode_args *in, product_map *up, product_map *down)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    const state *s = plan->state;
    int64_t h = d->hidden, f = d->width, line = s->cut[1].line;
    const int64_t up_sizes[5] = { h / 2, 8, 2 * d->experts, f / 8, 2 }, up_strides[4] = { h, f * h, 8 * h, h / 2 };
    const int64_t down_sizes[3] = { line, d->experts * h, f / line }, down_strides[2] = { f, line };
    const int up_box[5] = { s->cut[0].line, 8, 2, 2, 2 }, down_box[3] = { s->cut[1].line, FP8_ROWS, s->cut[1].chunks };
    MOII_TRY(moii_decode_map(plan, up, in->gate_up.data, 5, up_sizes, up_strides, up_box));
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
    moi_status status = make_maps(plan, in, &maps[0], &maps[1]);
    moii_gpu_leave(moii_gpu_of(plan->ctx), pushed);
    if (status) return status;
    for (int64_t t = 0; t < in->tokens; t += l->tokens) {
        moe_decode_fp8_sm90_args up = l->args[0], down = l->args[1];
        up.map = maps[0], down.map = maps[1];
        up.tokens = down.tokens = (int)moii_min(l->tokens, in->tokens - t);
        up.scale = in->gate_up.scale, down.scale = in->down.scale;
        moii_decode_routing r;
        MOII_TRY(moii_decode_route(plan, in, t, up.tokens, &s->places, &s->route, workspace, stream, &r));
        MOII_DECODE_SET_ROUTING(&r, &up, &down);
        up.in = (const unsigned short *)in->x + t * d->hidden;
        up.out = workspace;
        down.in = workspace;
        down.out = (char *)in->y + t * moi_row_bytes(d->out, d->hidden);
        MOII_TRY(moii_gpu_run(plan, &l->kernel[0], &l->launch[0], &up, stream));
        MOII_TRY(moii_gpu_run(plan, &l->kernel[1], &l->launch[1], &down, stream));
    }
    return MOI_OK;
}

static const moii_kernel *const kernels[] = { &kernel, &moii_route_kernel, NULL };

const moii_impl moii_impl_moe_decode_fp8_sm90 = {
    .name = "moe_decode_fp8_sm90", .op = MOII_OP_MOE_DECODE, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32),
    .takes_logits = true, .supports = supports, .plan = plan_it, .run = run, .kernels = kernels,
};
