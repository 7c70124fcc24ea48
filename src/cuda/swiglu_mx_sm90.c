/* SPDX-License-Identifier: Apache-2.0
 * swiglu_mx_sm90.c: launches swiglu_mx_sm90.cu: SwiGLU and its gradient from BF16 to blocks of 32, whole or in groups. */
#include <stdio.h>

#include "format.h"
#include "kernels/elem.h"
#include "swiglu_sm90.h"
#include "tile8.h"

enum { THREADS = 512 };

/* What one variant is compiled for; elem 0: that side is not wanted. */
typedef struct shape { int row_elem, col_elem; bool row_rebase, col_rebase, ragged; } shape;

static void defines_for(shape s, bool backward, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "BACKWARD=%d ROW_KIND=%d ROW_ELEM=%d COL_KIND=%d COL_ELEM=%d ROW_REBASE=%d COL_REBASE=%d RAGGED=%d", backward,
             s.row_elem ? TILE_MX32 : TILE_NONE, s.row_elem, s.col_elem ? TILE_MX32 : TILE_NONE, s.col_elem, s.row_rebase, s.col_rebase,
             s.ragged);
}

static const shape shapes[] = {
    { ELEM_E4M3, ELEM_E4M3, false, false, false }, { ELEM_E4M3, 0, false, false, false },        { 0, ELEM_E4M3, false, false, false },
    { ELEM_E5M2, ELEM_E5M2, false, false, false }, { ELEM_E5M2, 0, false, false, false },        { 0, ELEM_E5M2, false, false, false },
    { ELEM_E4M3, ELEM_E4M3, true, true, false },   { ELEM_E4M3, 0, true, false, false },         { ELEM_E4M3, ELEM_E4M3, false, false, true },
    { 0, ELEM_E4M3, false, false, true },          { ELEM_E4M3, ELEM_E4M3, true, true, true },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(shapes[i / 2], i % 2, defines); }

static const moii_kernel kernel = {
    .stem = "swiglu_mx_sm90", .archs = "sm_90a sm_100a", .registers = 128, .variants = 2 * SHAPES, .variant = variant,
};

/* As the kernel's struct shared_memory: tiles of 128 x 128 in BF16, as codes, and scales. */
static int shared_bytes(shape s, bool backward)
{
    enum { CODES = MOII_TILE * MOII_TILE, SCALES = 4 * MOII_TILE };
    return (2 + (backward || s.col_elem)) * 2 * CODES + (s.col_elem ? CODES : 0) + 2 * SCALES;
}

static bool is_mx(const moi_format *f, bool wanted) { return !wanted || moii_tile8_kind(f) == TILE_MX32; }

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_swiglu_desc *d = desc;
    *why = "only from BF16, with plain values in BF16";
    if (d->in.elem != MOI_BF16 || d->out != MOI_BF16) return false;
    if (!moii_swiglu_sm90_takes(d, why)) return false;
    *why = "results must be in blocks of 32";
    if (!is_mx(&d->rowwise, d->want & MOI_WANT_ROWWISE) || !is_mx(&d->colwise, d->want & MOI_WANT_COLWISE)) return false;
    *why = "columns alone, not in groups, need scales that are free";
    if (d->colwise_mx && !d->groups && !(d->want & MOI_WANT_ROWWISE)) return false;
    return moii_gpu_fits(ctx, &kernel, why);
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    moii_gpu_kernel *k = moii_gpu_state(plan, 2 * sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    const shape s = { .row_elem = d->want & MOI_WANT_ROWWISE ? (int)d->rowwise.elem : 0, .col_elem = d->want & MOI_WANT_COLWISE ? (int)d->colwise.elem : 0,
                      .row_rebase = d->rowwise_mx == MOI_MX_PER_128, .col_rebase = d->colwise_mx == MOI_MX_PER_128,
                      .ragged = d->groups && d->want & MOI_WANT_COLWISE };
    for (int i = 0; i < 2; i++) {
        k[i].kernel = &kernel;
        k[i].shared_bytes = shared_bytes(s, i);
        defines_for(s, i, k[i].defines);
    }
    return moii_gpu_prepare(plan->ctx, k, 2);
}

/* How many strips a block makes: where there is work for many rounds of blocks, two; else forward one long round, and backward one strip, as
 * its tiles are large.  Backward with groups the kernel makes no second one (ONE_STRIP). */
static int64_t depth_of(int64_t strips, int64_t stripes, int64_t sms, bool backward, bool ragged)
{
    enum { BLOCKS_AT_ONCE = 2, DEEP = 16, BEST = 2 };
    if (backward && ragged) return 1;
    int64_t depth = moii_tile8_depth(strips, stripes, sms * BLOCKS_AT_ONCE);
    if (depth > DEEP) return BEST;
    return backward ? 1 : depth;
}

/* Sets which strips blocks make; gives how many blocks there are above one another.  In one long round two blocks share a multiprocessor, which
 * serves the one that came first before the other: both are done at the same time where that one has 11 of 16 strips (measured). */
static int64_t deal(swiglu_sm90_args *a, int64_t strips, int64_t stripes, int64_t sms, bool backward)
{
    enum { LEAST = 8, MOST = 32 };
    const int64_t half = sms / stripes, two = half ? moii_ceil_div(strips, half) : 0; /* as many as two blocks have together */
    const bool uneven = !backward && two >= LEAST && two <= MOST && 16 * half * stripes >= 15 * sms;
    const int64_t parts = uneven ? 2 * half : moii_ceil_div(strips, depth_of(strips, stripes, sms, backward, a->cut.groups > 0));
    a->strips = (unsigned int)strips;
    a->step = a->first_parts = (unsigned int)(uneven ? half : parts);
    a->first_strips = (unsigned int)(uneven ? half * ((two * 11 + 8) / 16) : strips);
    return parts;
}

/* Of 128 rows; with groups, of four slots of 32, of which each group may have one more, and equal scales of columns begin anew with each group. */
static int64_t strips_of(const swiglu_sm90_args *a, bool equal)
{
    if (a->cut.groups && !equal) return moii_ceil_div(a->cut.rows / MOII_MX_BLOCK + a->cut.groups + 1, MOII_TILE / MOII_MX_BLOCK);
    return moii_tile8_strips(a->cut.rows, a->cut.groups, 1);
}

static moi_status run_either(const moi_plan *plan, const moi_swiglu_args *in, bool backward, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const moii_gpu_kernel *k = (const moii_gpu_kernel *)plan->state + backward;
    swiglu_sm90_args a = moii_swiglu_sm90_args(d, in, backward);
    if (in->rows == 0 && !a.cut.groups) return MOI_OK;
    const int64_t stripes = d->width / MOII_TILE;
    const int64_t parts = deal(&a, strips_of(&a, d->colwise_mx), stripes, moii_gpu_of(plan->ctx)->sms, backward);
    moii_gpu_launch launch = { .grid = { stripes, parts }, .threads = THREADS, .shared_bytes = k->shared_bytes };
    return moii_gpu_run(plan, k, &launch, &a, stream);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    (void)workspace;
    return run_either(plan, args, false, stream);
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    (void)workspace;
    return run_either(plan, args, true, stream);
}

static const moii_kernel *const kernels[] = { &kernel, NULL };

const moii_impl moii_impl_swiglu_mx_sm90 = {
    .name = "swiglu_mx_sm90", .op = MOII_OP_SWIGLU, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_BF16) | MOII_RECIPE_BIT(MOI_RECIPE_MX32),
    .supports = supports, .plan = plan_it, .run = run, .run_backward = run_backward, .kernels = kernels,
};
