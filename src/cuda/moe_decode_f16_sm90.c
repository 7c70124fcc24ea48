/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_f16_sm90.c: launches moe_decode_f16_sm90.cu twice: gate and up, then down; for more than 8 tokens, and for fewer of large layers,
 * moe_decode_many_sm90.cu three times: the same, then the sum of each token's slots; of wide experts down several times; before them route_plain.cu, if
 * logits are of many experts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode_crossing.h"
#include "decode_many_layout.h"
#include "decode_map.h"
#include "decode_routing.h"
#include "format.h"
#include "gpu.h"
#include "route_plain.h"

enum { HELD = 3 };

/* Weights, whether rows are no whole lines, and, of more tokens, whether slots have as many lines as there is room for, whether pass 1 has fewer teams, and
 * whether slots of pass 2 are longer.  The first ROWS are those of few tokens, too; pass 1 of these has UP_ROWS. */
typedef struct rows { int weights, tail, whole, fewer, longer; } rows;
static const rows all_rows[] = {
    { F16_MX_E4M3, 0, 0, 0, 0 }, { F16_MX_E5M2, 0, 0, 0, 0 }, { F16_SQUARES, 0, 0, 0, 0 }, { F16_MXFP4, 0, 0, 0, 0 },
    { F16_MX_E4M3, 1, 0, 0, 0 }, { F16_MX_E5M2, 1, 0, 0, 0 }, { F16_MXFP4, 1, 0, 0, 0 }, { F16_BF16, 0, 0, 0, 0 },
    { F16_BF16, 1, 0, 0, 0 }, { F16_MXFP4, 0, 1, 0, 0 }, { F16_SQUARES, 0, 1, 0, 0 }, { F16_MX_E4M3, 0, 1, 0, 0 },
    { F16_MX_E5M2, 0, 1, 0, 0 }, { F16_BF16, 0, 0, 1, 0 }, { F16_SQUARES, 0, 1, 1, 0 }, { F16_MX_E4M3, 0, 1, 1, 0 },
    { F16_MX_E5M2, 0, 1, 1, 0 }, { F16_MXFP4, 0, 0, 0, 1 }, { F16_MXFP4, 1, 0, 0, 1 },
};
enum { MANY_ROWS = sizeof all_rows / sizeof *all_rows, FEWER_ROWS = 4, LONGER_ROWS = 2, UP_ROWS = MANY_ROWS - FEWER_ROWS - LONGER_ROWS - 3 };
enum { ROWS = UP_ROWS - 1, ROWS_OF_BF16 = 2 };

static rows rows_of(const moe_decode_f16_sm90_args *a) { return (rows){ a->format, a->tail, a->whole, a->teams == MANY_FEWER_TEAMS, a->longer }; }
static const char *tail_of(rows r) { return r.tail ? " TAIL=1" : r.whole ? " WHOLE=1" : ""; }

static void up_defines_for(rows r, int held, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "PASS=1 WEIGHTS=%d HELD=%d%s", r.weights, held, tail_of(r));
}
static void down_defines_for(rows r, int lines, bool items, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "PASS=2 WEIGHTS=%d LINES=%d%s%s", r.weights, lines, tail_of(r), items ? " ITEMS=1" : "");
}
/* Pass 1; pass 2 with slots of two lines, and of three, which BF16, the last rows, has not: by parts, then by items. */
static void variant(int i, char defines[MOII_DEFINES])
{
    const int down = i - HELD * UP_ROWS, of_three = down - 2 * ROWS, some = ROWS - ROWS_OF_BF16;
    if (down < 0) up_defines_for(all_rows[i % UP_ROWS], 4 << i / UP_ROWS, defines);
    else if (of_three < 0) down_defines_for(all_rows[down % ROWS], 2, down / ROWS, defines);
    else down_defines_for(all_rows[of_three % some], 3, of_three / some, defines);
}

static void many_defines_for(int pass, rows r, int held, int groups, char defines[MOII_DEFINES])
{
    const char *fewer = r.fewer ? " FEWER=1" : "";
    if (pass == 1) snprintf(defines, MOII_DEFINES, "PASS=1 WEIGHTS=%d HELD=%d GROUPS=%d%s%s", r.weights, held, groups, tail_of(r), fewer);
    else if (pass == 2) snprintf(defines, MOII_DEFINES, "PASS=2 WEIGHTS=%d GROUPS=%d%s%s", r.weights, groups, tail_of(r), r.longer ? " LONGER=1" : "");
    else snprintf(defines, MOII_DEFINES, "PASS=3");
}
/* Pass 1 beside routing by p (held 0), of up to 32 tokens, has no registers for whole slots of MXFP8, and no jobs of 16 columns; its slots are not longer.
 * Pass 2 has no teams.  Jobs of 24 columns are not of MXFP4, nor of rows that are no whole lines, nor where more than 128 experts are routed, and their teams
 * are fewer only of BF16; those of 32 are of BF16 alone. */
static bool has_variant(int pass, rows r, int held, int groups)
{
    const bool bf16 = r.weights == F16_BF16;
    if (groups > 2 && (r.weights == F16_MXFP4 || r.tail || (!bf16 && (r.fewer || groups > 3)) || (pass == 1 && held != 4))) return false;
    if (pass == 2) return !r.fewer;
    if (!held && groups > 1) return false;
    return !r.longer && (held || !r.whole || r.weights == F16_SQUARES || r.weights == F16_MXFP4);
}
/* Of 8 columns: rows of pass 1 that there are not beside routing by p; of 24 and 32, of either pass. */
enum { NOT_BY_P = 4, UP_OF_24 = 8, DOWN_OF_24 = 7, UP_OF_32 = 2, DOWN_OF_32 = 1 };
enum { MANY_UP_ROWS = MANY_ROWS - LONGER_ROWS, MANY_DOWN_ROWS = MANY_ROWS - FEWER_ROWS };
enum { OF_8 = 3 * MANY_UP_ROWS - NOT_BY_P + MANY_DOWN_ROWS, OF_16 = 2 * MANY_UP_ROWS + MANY_DOWN_ROWS };
enum { MANY_VARIANTS = OF_8 + OF_16 + UP_OF_24 + DOWN_OF_24 + UP_OF_32 + DOWN_OF_32 + 1 };
/* Pass 1 of 4, of 8 and of no experts of a lane, pass 2, pass 3. */
static void many_variant(int i, char defines[MOII_DEFINES])
{
    static const int held[] = { 4, 8, 0, 0 };
    for (int side = 0; side < 4; side++)
        for (int row = 0; row < MANY_GROUPS * MANY_ROWS; row++) {
            const int pass = side < 3 ? 1 : 2;
            if (!has_variant(pass, all_rows[row % MANY_ROWS], held[side], row / MANY_ROWS + 1) || i--) continue;
            many_defines_for(pass, all_rows[row % MANY_ROWS], held[side], row / MANY_ROWS + 1, defines);
            return;
        }
    many_defines_for(3, all_rows[0], 0, 0, defines);
}

static const moii_kernel kernel = { .stem = "moe_decode_f16_sm90", .archs = "sm_90a", .registers = 120,
                                    .variants = HELD * UP_ROWS + 4 * ROWS - 2 * ROWS_OF_BF16, .variant = variant };
static const moii_kernel many_kernel = { .stem = "moe_decode_many_sm90", .archs = "sm_90a", .registers = 168, .variants = MANY_VARIANTS,
                                         .variant = many_variant };

/* For up to so many tokens.  passes: 2, or moe_decode_many_sm90's 3, of which the second is launched `downs` times. */
typedef struct launches {
    int tokens, passes, downs;
    moe_decode_f16_sm90_args args[2]; /* but for the operands */
    moii_gpu_launch launch[3];
    int kernel[3];
} launches;

/* False: so many tokens at once do not fit. */
static bool lay_out(const moi_moe_decode_desc *d, const moii_gpu *gpu, int tokens, launches *l, int *groups)
{
    const moii_decode_device on = { gpu->sms, gpu->memory_gb_s };
    launches three = { .tokens = tokens, .passes = 3 };
    l->tokens = tokens, l->passes = 2, l->downs = 1;
    const bool two = tokens <= F16_MOST_TOKENS && moii_decode_f16_layout(d, tokens, on, l->args, l->launch);
    if (two && !moii_decode_items_lose(&l->args[1], tokens, gpu->sms, l->launch[1].grid[0])) return true;
    if (!moii_decode_many_layout(d, tokens, gpu->sms, gpu->shared_bytes, three.args, three.launch, groups)) return two;
    three.downs = moii_decode_many_launches(d, &three.args[1]);
    if (!two || three.downs == 1) *l = three;
    return true;
}

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_moe_decode_desc *d = desc;
    const moi_format *f = &d->weights;
    *why = "x must be BF16";
    if (d->x != MOI_BF16) return false;
    *why = "weights must be MXFP8 (E4M3, E5M2), MXFP4 or E4M3 in squares of 128, with row-major scales, or BF16";
    bool mx = f->recipe == MOI_RECIPE_MX32 && (f->elem == MOI_E4M3 || f->elem == MOI_E5M2 || f->elem == MOI_E2M1);
    bool squares = f->recipe == MOI_RECIPE_BLK128 && f->block == MOI_BLOCK_SQUARE && f->elem == MOI_E4M3;
    bool bf16 = f->recipe == MOI_RECIPE_BF16 && f->elem == MOI_BF16;
    if (!bf16 && ((!mx && !squares) || f->layout != MOI_LAYOUT_ROW)) return false;
    *why = "hidden and width must be multiples of 32 (squares: of 128), hidden at most 8192 and width at most 32768";
    const int multiple = squares ? F16_LINE : 32;
    if (d->hidden % multiple || d->width % multiple || !d->hidden || !d->width) return false;
    if (d->hidden > MOII_DECODE_F16_HIDDEN || d->width > MOII_DECODE_F16_WIDTH) return false;
    *why = "top_k must be at most 16 and experts at most 2048";
    if (d->top_k > MOII_DECODE_F16_TOP_K || d->experts > MOII_DECODE_F16_EXPERTS) return false;
    if (!moii_gpu_fits(ctx, &kernel, why)) return false;
    *why = "a token's columns and lists do not fit shared memory";
    launches one;
    int groups;
    return lay_out(d, moii_gpu_of(ctx), 1, &one, &groups);
}

/* Batches with launches of their own (moii_decode_next_size), and kernels: at most one for each of their passes. */
enum { SIZES = 16, KERNELS = 3 * SIZES };

typedef struct state {
    moii_gpu_kernel kernel[KERNELS]; /* those that are needed */
    int kernels;
    launches of[SIZES];
    int sizes;
    int64_t at_exponent, at_jobs, at_shares, at_pairs, at_sums; /* in the workspace; u is at 0 */
    moii_gpu_kernel route;
    moii_decode_places places;
} state;

static void unplan(moi_plan *plan) { free(plan->state); }

/* The number of the kernel in the state, with room for this launch. */
static int needs(state *s, const moii_kernel *which, const char *defines, int shared_bytes)
{
    int i = 0;
    while (i < s->kernels && (s->kernel[i].kernel != which || strcmp(s->kernel[i].defines, defines))) i++;
    moii_gpu_kernel *k = &s->kernel[i];
    if (i == s->kernels) {
        k->kernel = which, k->most_shared = true, s->kernels++;
        snprintf(k->defines, sizeof k->defines, "%s", defines);
    }
    if (shared_bytes > k->shared_bytes) k->shared_bytes = shared_bytes;
    return i;
}

/* False: so many tokens at once do not fit. */
static bool add_size(state *s, const moi_moe_decode_desc *d, const moii_gpu *gpu, int tokens)
{
    launches *l = &s->of[s->sizes];
    int groups = 0;
    if (!lay_out(d, gpu, tokens, l, &groups)) return false;
    const bool many = l->passes == 3;
    for (int pass = 0; pass < l->passes; pass++) {
        char defines[MOII_DEFINES];
        const rows r = rows_of(&l->args[pass > 0]);
        if (many) many_defines_for(pass + 1, r, moii_decode_many_held(d->experts, d->top_k, tokens), groups, defines);
        else if (pass) down_defines_for(r, moii_decode_f16_lines(&l->args[1]), l->args[1].items, defines);
        else up_defines_for(r, moii_decode_held(d->experts), defines);
        l->kernel[pass] = needs(s, many ? &many_kernel : &kernel, defines, l->launch[pass].shared_bytes);
    }
    s->sizes++;
    return true;
}

static int64_t grouped_from(const moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    const state *s = plan->state;
    moii_decode_launch launch[SIZES];
    for (int i = 0; i < s->sizes; i++) {
        const moe_decode_f16_sm90_args *up = &s->of[i].args[0];
        launch[i] = (moii_decode_launch){ s->of[i].tokens, up->columns, moii_decode_many_shallow(up) };
    }
    return moii_decode_crossing(d, true, s->of[s->sizes - 1].tokens, moii_decode_late(d, launch, s->sizes));
}

/* Anew, with sizes for up to so many tokens. */
static void add_sizes(state *s, const moi_plan *plan, int64_t most)
{
    *s = (state){ .sizes = 0 };
    for (int tokens = 1; tokens <= MANY_TOKENS && add_size(s, &plan->desc.moe_decode, moii_gpu_of(plan->ctx), tokens) && tokens < most;)
        tokens = moii_decode_next_size(tokens);
}
/* Batches that are grouped products' need neither kernels nor a workspace. */
static void size_up(moi_plan *plan, state *s)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    add_sizes(s, plan, d->max_tokens);
    const int64_t from = d->grouped_from == MOI_GROUPED_AUTO ? grouped_from(plan) : d->grouped_from;
    if (from > 0 && from <= d->max_tokens) add_sizes(s, plan, from - 1);
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    state *s = aligned_alloc(_Alignof(state), sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "moe_decode plan: no memory");
    plan->state = s;
    plan->unplan = unplan;
    size_up(plan, s);
    MOII_TRY(moii_gpu_prepare(plan->ctx, s->kernel, s->kernels));
    int64_t u = 0, exponents = 0, jobs = 0, columns_left = 0, pairs = 0, tokens = s->of[s->sizes - 1].tokens;
    for (int i = 0; i < s->sizes; i++) {
        int64_t all = s->of[i].args[0].most_jobs, columns = all * s->of[i].args[0].columns;
        u = moii_max(u, columns * d->width * 2), exponents = moii_max(exponents, columns * s->of[i].args[0].exponent_row);
        jobs = moii_max(jobs, all + 1);
        if (s->of[i].passes == 3) columns_left = moii_max(columns_left, columns), pairs = s->of[i].tokens * d->top_k;
    }
    moii_decode_reserve(plan, u);
    s->at_exponent = moii_decode_reserve(plan, exponents);
    s->at_jobs = moii_decode_reserve(plan, 4 * jobs);
    s->at_shares = moii_decode_reserve(plan, columns_left ? 4 * MANY_SHARE_WORDS * moii_gpu_of(plan->ctx)->sms : 0);
    s->at_pairs = moii_decode_reserve(plan, 2 * columns_left);
    _Static_assert(MOII_WORKSPACE_ALIGN % 128 == 0, "sums are discarded by whole lines of L2");
    s->at_sums = moii_decode_reserve(plan, 4 * pairs * d->hidden);
    if (!d->from_logits) return MOI_OK;
    s->places = moii_decode_places_for(plan, tokens, moii_decode_many_routed(d->experts, d->top_k));
    s->route.kernel = &moii_route_kernel;
    return moii_gpu_prepare(plan->ctx, &s->route, 1);
}

/* Lines of 128 bytes, or 64, behind each other along k, rows within a line; of gate and up 8 rows each.  Rows that are no whole lines go as they lie, and a
 * box is one line, and by another map, where all of a slot's lines are whole.  Of MXFP4 in whole slots, pieces of two lines: 128 bytes. */
static moi_status map_up(const moi_plan *plan, const moi_moe_decode_args *in, moe_decode_f16_sm90_args *up)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    int64_t row = moi_row_bytes(d->weights.elem, d->hidden), f = d->width;
    const int lines = F16_PIECE_LINES(up->format, up->whole), line = lines * F16_ROW_BYTES(up->format);
    const int box[4] = { line, F16_ROWS / 2, 2, up->slot_lines / lines };
    const int64_t sizes[4] = { line, f, 2 * d->experts, row / line }, strides[3] = { row, f * row, line };
    if (!up->tail) return moii_decode_map(plan, &up->map, in->gate_up.data, 4, sizes, strides, box);
    if (row >= line) MOII_TRY(moii_decode_map(plan, &up->whole_map, in->gate_up.data, 4, sizes, strides, box));
    return moii_decode_map(plan, &up->map, in->gate_up.data, 3, (int64_t[]){ row, f, 2 * d->experts }, (int64_t[]){ row, f * row }, box);
}
/* Of lines `first` and on. */
static moi_status map_down(const moi_plan *plan, const moi_moe_decode_args *in, int64_t first, moe_decode_f16_sm90_args *down)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    int64_t row = moi_row_bytes(d->weights.elem, d->width), all = d->experts * d->hidden;
    const int lines = F16_PIECE_LINES(down->format, down->whole), line = lines * F16_ROW_BYTES(down->format);
    const int64_t before = first * F16_ROW_BYTES(down->format), left = row - before;
    const int64_t sizes[3] = { line, all, left / line }, strides[2] = { row, line };
    const int box[3] = { line, F16_ROWS, down->slot_lines / lines };
    const void *from = (const char *)in->down.data + before;
    if (!down->tail) return moii_decode_map(plan, &down->map, from, 3, sizes, strides, box);
    if (left >= line) MOII_TRY(moii_decode_map(plan, &down->whole_map, from, 3, sizes, strides, box));
    return moii_decode_map(plan, &down->map, from, 3, (int64_t[]){ left, all, 1 }, (int64_t[]){ row, all * row }, (int[]){ line, F16_ROWS, 1 });
}
/* Of pass 1's scales, where boxes bring them: rows as the codes' map has them. */
static moi_status map_scales(const moi_plan *plan, const moi_moe_decode_args *in, moe_decode_f16_sm90_args *up)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    if (!up->scale_rooms) return MOI_OK;
    const int64_t row = up->scale_row, sizes[3] = { row, d->width, 2 * d->experts }, strides[2] = { row, d->width * row };
    return moii_decode_map(plan, &up->scale_map, in->gate_up.scale, 3, sizes, strides, (int[]){ up->scale_box, F16_ROWS / 2, 2 });
}
static moi_status map_both(const moi_plan *plan, const moi_moe_decode_args *in, moe_decode_f16_sm90_args *up, moe_decode_f16_sm90_args *down)
{
    MOII_TRY(map_up(plan, in, up));
    MOII_TRY(map_scales(plan, in, up));
    return map_down(plan, in, 0, down);
}

/* Pass 2 of the lines behind those of the first launch. */
static moi_status run_further(const moi_plan *plan, const launches *l, const moi_moe_decode_args *in, const moe_decode_f16_sm90_args *first, moi_stream stream)
{
    const state *s = plan->state;
    moe_decode_f16_sm90_args down = *first;
    const int lines = down.lines, values = F16_LINE_VALUES(down.format);
    for (int n = 1; n < l->downs; n++) {
        down.before = n * lines, down.u += lines * values, down.exponent += lines * (values / 8), down.scale += lines * 4;
        const int64_t left = plan->desc.moe_decode.width - (int64_t)n * lines * values;
        down.lines = (int)moii_min(lines, moii_ceil_div(left, values));
        down.last_blocks = moii_decode_last_blocks(moii_min(left, lines * values), down.format);
        down.parts = (int)moii_ceil_div(down.lines, down.slot_lines);
        bool pushed;
        MOII_TRY(moii_gpu_enter(moii_gpu_of(plan->ctx), &pushed));
        moi_status status = map_down(plan, in, (int64_t)n * lines, &down);
        moii_gpu_leave(moii_gpu_of(plan->ctx), pushed);
        MOII_TRY(status);
        MOII_TRY(moii_gpu_run(plan, &s->kernel[l->kernel[1]], &l->launch[1], &down, stream));
    }
    return MOI_OK;
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    const moi_moe_decode_args *in = args;
    const state *s = plan->state;
    int size = 0;
    while (size + 1 < s->sizes && s->of[size].tokens < in->tokens) size++;
    const launches *l = &s->of[size];
    moe_decode_f16_sm90_args up = l->args[0], down = l->args[1];
    moii_decode_places places = s->places;
    if (l->tokens > places.in_pass) places.in_pass = 0; /* its kernel cannot, not even for the few that are left for a last launch */
    bool pushed;
    MOII_TRY(moii_gpu_enter(moii_gpu_of(plan->ctx), &pushed)); /* the driver encodes maps only where a context is current */
    moi_status status = map_both(plan, in, &up, &down);
    moii_gpu_leave(moii_gpu_of(plan->ctx), pushed);
    MOII_TRY(status);
    for (int64_t t = 0; t < in->tokens; t += l->tokens) {
        up.tokens = down.tokens = (int)moii_min(l->tokens, in->tokens - t);
        up.codes = in->gate_up.data, up.scale = in->gate_up.scale, down.codes = in->down.data, down.scale = in->down.scale;
        moii_decode_routing r;
        MOII_TRY(moii_decode_route(plan, in, t, up.tokens, &places, &s->route, workspace, stream, &r));
        MOII_DECODE_SET_ROUTING(&r, &up, &down);
        if (r.logits) down.ids = r.ids_out;
        if (r.logits && l->passes == 3) down.logits = NULL;
        up.x = (const unsigned short *)in->x + t * d->hidden;
        up.u = down.u = workspace;
        up.exponent = down.exponent = (unsigned char *)workspace + s->at_exponent;
        up.jobs_left = down.jobs_left = (int *)(void *)((char *)workspace + s->at_jobs);
        up.shares_left = down.shares_left = (int *)(void *)((char *)workspace + s->at_shares);
        up.pairs_left = down.pairs_left = (short *)(void *)((char *)workspace + s->at_pairs);
        down.out = (char *)in->y + t * moi_row_bytes(d->out, d->hidden);
        down.sums = (float *)(void *)((char *)workspace + s->at_sums);
        down.discards = moii_decode_many_discards(d, down.tokens);
        for (int pass = 0; pass < l->passes; pass++) {
            MOII_TRY(moii_gpu_run(plan, &s->kernel[l->kernel[pass]], &l->launch[pass], pass ? &down : &up, stream));
            if (pass == 1) MOII_TRY(run_further(plan, l, in, &down, stream));
        }
    }
    return MOI_OK;
}

static const moii_kernel *const kernels[] = { &kernel, &many_kernel, &moii_route_kernel, NULL };

const moii_impl moii_impl_moe_decode_f16_sm90 = {
    .name = "moe_decode_f16_sm90", .op = MOII_OP_MOE_DECODE, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_MX32) | MOII_RECIPE_BIT(MOI_RECIPE_BLK128) | MOII_RECIPE_BIT(MOI_RECIPE_BF16),
    .takes_logits = true, .supports = supports, .plan = plan_it, .run = run, .grouped_from = grouped_from, .kernels = kernels,
};
