/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_sm90.c: launches moe_decode_sm90.cu twice: gate and up, then down; before them route_plain.cu, if many tokens come with logits. */
#include <stdio.h>

#include "decode_crossing.h"
#include "decode_routing.h"
#include "format.h"
#include "gpu.h"
#include "kernels/moe_decode_sm90_args.h"
#include "route_plain.h"

/* words of scales, rows that fill their stages and others; then bytes of scales, of MXFP8 and MXFP4; each with three teams */
enum { WEIGHTS = 5, SIDES = 3, WITH_WORDS = SIDES * 2 * WEIGHTS, VARIANTS = WITH_WORDS + SIDES * 2, RING = 4 };

static void defines_for(int pass, int team, int weight, int scales, int exact, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "PASS=%d TEAM=%d WEIGHT=%d SCALES=%d EXACT=%d RING=%d", pass, team, weight, scales, exact, RING);
}
static void variant(int i, char defines[MOII_DEFINES])
{
    static const int teams[SIDES] = { DECODE_TEAM_DOWN, DECODE_TEAM_UP, 2 * DECODE_TEAM_UP };
    int side = i % SIDES, pass = side ? 1 : 2, n = i / SIDES;
    if (i < WITH_WORDS) defines_for(pass, teams[side], n / 2, SCALES_WORDS, n % 2, defines);
    else defines_for(pass, teams[side], n == WITH_WORDS / SIDES ? WEIGHT_MXFP8 : WEIGHT_MXFP4, SCALES_BYTES, 0, defines);
}

static const moii_kernel kernel = {
    .stem = "moe_decode_sm90", .archs = "sm_90a", .registers = 128, .variants = VARIANTS, .variant = variant,
};

/* WEIGHT_..., or -1 */
static int weight_of(const moi_format *f)
{
    if (f->recipe == MOI_RECIPE_BF16) return f->elem == MOI_BF16 ? WEIGHT_BF16 : -1;
    if (f->layout != MOI_LAYOUT_ROW) return -1;
    if (f->recipe == MOI_RECIPE_MX32) return f->elem == MOI_E4M3 ? WEIGHT_MXFP8 : f->elem == MOI_E2M1 ? WEIGHT_MXFP4 : -1;
    if (f->recipe == MOI_RECIPE_BLK128 && f->elem == MOI_E4M3) return f->block == MOI_BLOCK_SQUARE ? WEIGHT_SQUARE : WEIGHT_BLK128;
    return -1;
}

/* Tokens of a launch: what its lists hold. */
enum { MOST_TOKENS = 128, MOST_PAIRS = 1024, MOST_EXPERTS = 2048, MOST_WIDTH = 32768, MOST_TOP_K = 16 };
enum { ROUTED_IN_PASS = 32, ROUTED_EXPERTS = 256 }; /* tokens; measured: from about 48 on, a launch costs less */
static int64_t most_tokens(const moi_moe_decode_desc *d)
{
    return moii_min(moii_min(moii_max(d->max_tokens, 1), MOST_TOKENS), MOST_PAIRS / d->top_k);
}

/* Reserves shared memory. */
static int take(int *at, int64_t bytes)
{
    int here = *at;
    *at += (int)moii_round_up(bytes, 16);
    return here;
}

/* Places in shared memory; what they need. */
static int lay_out(moe_decode_sm90_args *a, int pass, int words, int64_t tokens)
{
    int64_t pairs = tokens * a->top_k, actives = moii_min(pairs, a->experts);
    int at = 0;
    a->at_ring = take(&at, DECODE_WARPS * RING * DECODE_STAGE);
    a->at_scales = take(&at, (int64_t)DECODE_WARPS * a->scale_slots * a->spans * DECODE_ROWS * (pass == 1 ? DECODE_MT_UP : 1) * 4 * words);
    a->at_red = take(&at, pass == 1 ? DECODE_RED_UP : DECODE_RED_DOWN);
    a->at_ids = take(&at, 4 * pairs), a->at_slot = take(&at, 2 * pairs), a->at_order = take(&at, 2 * pairs);
    a->at_count = take(&at, 4 * (a->experts + 1)), a->at_expert = take(&at, 4 * actives);
    a->at_start = take(&at, 4 * (actives + 1)), a->at_group = take(&at, 4 * (actives + 1));
    a->at_weights = take(&at, pass == 2 ? 4 * pairs : 0), a->at_dots = take(&at, pass == 2 ? 4 * DECODE_ROWS * pairs : 0);
    return at;
}

/* One pass of so many tokens: its arguments but for the operands, the kernel's defines, and what it needs of shared memory. */
typedef struct cut { moe_decode_sm90_args args; char defines[MOII_DEFINES]; int shared_bytes; } cut;

static cut cut_as(const moi_moe_decode_desc *d, int pass, int64_t tokens, int scales)
{
    const int weight = weight_of(&d->weights), words = weight == WEIGHT_BF16 ? 0 : weight == WEIGHT_MXFP4 ? 2 : 1;
    int64_t k = pass == 1 ? d->hidden : d->width, rows = pass == 1 ? 2 * d->width : d->hidden;
    cut c = { .args = { .top_k = (int)d->top_k, .experts = (int)d->experts, .k = (int)k, .row_bytes = (int)moi_row_bytes(d->weights.elem, k),
                        .width = (int)d->width, .hidden = (int)d->hidden, .out_f32 = d->out == MOI_F32, .renormalize = d->renormalize } };
    moe_decode_sm90_args *a = &c.args;
    int team = pass == 2 ? DECODE_TEAM_DOWN : a->row_bytes < DECODE_LONG_ROW ? DECODE_TEAM_UP : 2 * DECODE_TEAM_UP;
    a->expert_bytes = (unsigned int)rows * (unsigned int)a->row_bytes;
    a->expert_scale_bytes = (unsigned int)moi_scale_bytes(&d->weights, rows, k, 0);
    a->tiles = (int)((pass == 1 ? d->width : d->hidden) / 16);
    a->spans = (int)moii_ceil_div(a->row_bytes, DECODE_SPAN * team);
    a->stages = a->spans * (pass == 1 ? DECODE_MT_UP : 1);
    a->inverse_top_k = 65536u / (unsigned int)d->top_k + 1;
    a->step_rows = (pass == 1 ? 8u : 4u) * (unsigned int)a->row_bytes;
    a->second_half = (pass == 1 ? (unsigned int)d->width : 8u) * (unsigned int)a->row_bytes;
    if (words) a->scale_row = (int)moi_scale_blocks(&d->weights, k, 0) * (weight == WEIGHT_BLK128 || weight == WEIGHT_SQUARE ? 4 : 1);
    if (a->scale_row % 4) scales = SCALES_BYTES;
    a->scale_slots = (RING + a->stages - 1) / a->stages + 1;
    c.shared_bytes = lay_out(a, pass, scales == SCALES_WORDS ? words : 0, tokens);
    defines_for(pass, team, weight, scales, scales == SCALES_WORDS && a->row_bytes == a->spans * team * DECODE_SPAN, c.defines);
    return c;
}

/* Scales come in words where those of a row fit beside one token's lists, else 1x32 ones byte by byte. */
static cut cut_pass(const moi_moe_decode_desc *d, int pass, int64_t tokens, int shared_bytes)
{
    bool words = d->weights.recipe != MOI_RECIPE_MX32 || cut_as(d, pass, 1, SCALES_WORDS).shared_bytes <= shared_bytes;
    return cut_as(d, pass, tokens, words ? SCALES_WORDS : SCALES_BYTES);
}

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_moe_decode_desc *d = desc;
    *why = "x must be BF16";
    if (d->x != MOI_BF16) return false;
    *why = "weights must be BF16, MXFP8 or MXFP4 (E4M3, E2M1), or E4M3 of blk128, with row-major scales";
    if (weight_of(&d->weights) < 0) return false;
    *why = "hidden and width must be multiples of 32, from 32 to 32768";
    if (d->hidden % 32 || d->width % 32 || !d->hidden || !d->width || d->hidden > MOST_WIDTH || d->width > MOST_WIDTH) return false;
    *why = "an expert's gate and up must have less than 4 GB";
    if (2 * d->width * moi_row_bytes(d->weights.elem, d->hidden) > UINT32_MAX) return false;
    *why = "top_k must be at most 16 and experts at most 2048";
    if (d->top_k > MOST_TOP_K || d->experts > MOST_EXPERTS) return false;
    if (!moii_gpu_fits(ctx, &kernel, why)) return false;
    *why = "scales of a row and one token's lists do not fit shared memory";
    const int room = moii_gpu_of(ctx)->shared_bytes;
    return cut_pass(d, 1, 1, room).shared_bytes <= room && cut_pass(d, 2, 1, room).shared_bytes <= room;
}

typedef struct state {
    moii_gpu_kernel kernel[3]; /* the passes, then routing */
    moe_decode_sm90_args args[2]; /* but for the operands */
    moii_gpu_launch launch[2];
    int64_t tokens; /* of one launch */
    moii_decode_places places;
} state;

/* u of one launch's tokens; from logits, what routing leaves. */
static void plan_workspace(moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    state *s = plan->state;
    moii_decode_reserve(plan, s->tokens * d->top_k * d->width * 2);
    if (!d->from_logits) return;
    s->places = moii_decode_places_for(plan, s->tokens, d->experts <= ROUTED_EXPERTS ? ROUTED_IN_PASS : 0);
}

static void plan_pass(moi_plan *plan, int pass)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    const moii_gpu *gpu = moii_gpu_of(plan->ctx);
    state *s = plan->state;
    const cut c = cut_pass(d, pass, s->tokens, gpu->shared_bytes);
    moii_gpu_kernel *g = &s->kernel[pass - 1];
    g->kernel = &kernel;
    g->most_shared = true; /* blocks of both passes are to be there at once */
    g->shared_bytes = c.shared_bytes;
    snprintf(g->defines, sizeof g->defines, "%s", c.defines);
    s->args[pass - 1] = c.args;
    s->launch[pass - 1] = (moii_gpu_launch){ .threads = DECODE_THREADS, .shared_bytes = g->shared_bytes, .overlap = true,
                                             .grid = { moii_min(pass == 1 ? s->tokens * d->top_k * c.args.tiles : c.args.tiles, gpu->sms) } };
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    state *s = moii_gpu_state(plan, sizeof *s);
    if (!s) return MOI_ERR_NOMEM;
    for (s->tokens = most_tokens(d);; s->tokens = (s->tokens + 1) / 2) {
        for (int pass = 1; pass <= 2; pass++) plan_pass(plan, pass);
        if (s->tokens == 1 || moii_max(s->kernel[0].shared_bytes, s->kernel[1].shared_bytes) <= moii_gpu_of(plan->ctx)->shared_bytes) break;
    }
    plan_workspace(plan);
    s->kernel[2].kernel = &moii_route_kernel;
    return moii_gpu_prepare(plan->ctx, s->kernel, d->from_logits ? 3 : 2);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    const moi_moe_decode_args *in = args;
    const state *s = plan->state;
    int64_t most = s->tokens;
    for (int64_t t = 0; t < in->tokens; t += most) {
        moe_decode_sm90_args up = s->args[0], down = s->args[1];
        up.tokens = down.tokens = (int)moii_min(most, in->tokens - t);
        up.data = in->gate_up.data, up.scale = in->gate_up.scale;
        down.data = in->down.data, down.scale = in->down.scale;
        moii_decode_routing r;
        MOII_TRY(moii_decode_route(plan, in, t, up.tokens, &s->places, &s->kernel[2], workspace, stream, &r));
        MOII_DECODE_SET_ROUTING(&r, &up, &down);
        up.in = (const char *)in->x + t * d->hidden * 2;
        up.out = workspace;
        down.in = workspace;
        down.out = (char *)in->y + t * moi_row_bytes(d->out, d->hidden);
        MOII_TRY(moii_gpu_run(plan, &s->kernel[0], &s->launch[0], &up, stream));
        MOII_TRY(moii_gpu_run(plan, &s->kernel[1], &s->launch[1], &down, stream));
    }
    return MOI_OK;
}

static int64_t grouped_from(const moi_plan *plan)
{
    const state *s = plan->state;
    return moii_decode_crossing(&plan->desc.moe_decode, false, s->tokens, s->tokens + 1);
}

static const moii_kernel *const kernels[] = { &kernel, &moii_route_kernel, NULL };

const moii_impl moii_impl_moe_decode_sm90 = {
    .name = "moe_decode_sm90", .op = MOII_OP_MOE_DECODE, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_BF16) | MOII_RECIPE_BIT(MOI_RECIPE_MX32) | MOII_RECIPE_BIT(MOI_RECIPE_BLK128),
    .takes_logits = true, .supports = supports, .plan = plan_it, .run = run, .grouped_from = grouped_from, .kernels = kernels,
};
