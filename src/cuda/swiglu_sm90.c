/* SPDX-License-Identifier: Apache-2.0
 * swiglu_sm90.c: launches swiglu_sm90.cu: SwiGLU and its gradient with 8-bit results, from one read. */
#include <stdio.h>

#include "kernels/elem.h"
#include "kernels/swiglu_sm90_args.h"
#include "stored.h"
#include "swiglu_sm90.h"
#include "tile8.h"

/* What one variant of a kernel is compiled for. */
typedef struct shape { int in, wide; bool out_bf16; int row_kind, row_elem, col_kind, col_elem; bool ragged; } shape;

static void defines_for(const shape *s, bool backward, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "BACKWARD=%d IN_ELEM=%d IN_BYTES=%d IN_WIDE=%d OUT_BF16=%d ROW_KIND=%d ROW_ELEM=%d COL_KIND=%d COL_ELEM=%d RAGGED=%d",
             backward, s->in, s->in == ELEM_F32 ? 4 : s->in == ELEM_BF16 ? 2 : 1, s->wide, s->out_bf16, s->row_kind, s->row_elem, s->col_kind,
             s->col_elem, s->ragged);
}

/* The mixtures a caller may ask for besides are made of the same code. */
static const shape shapes[] = {
    { ELEM_BF16, 0, true, TILE_MX32, ELEM_E4M3, TILE_MX32, ELEM_E4M3, false },
    { ELEM_BF16, 0, true, TILE_MX32, ELEM_E4M3, TILE_NONE, 0, false },
    { ELEM_BF16, 0, true, TILE_NONE, 0, TILE_MX32, ELEM_E4M3, false },
    { ELEM_BF16, 0, true, TILE_MX32, ELEM_E5M2, TILE_MX32, ELEM_E5M2, false },
    { ELEM_BF16, 0, true, TILE_BLK128, ELEM_E4M3, TILE_BLK128, ELEM_E4M3, false },
    { ELEM_BF16, 0, true, TILE_BLK128, ELEM_E4M3, TILE_NONE, 0, false },
    { ELEM_BF16, 0, true, TILE_NONE, 0, TILE_BLK128, ELEM_E4M3, false },
    { ELEM_BF16, 0, true, TILE_MX32, ELEM_E4M3, TILE_MX32, ELEM_E4M3, true },
    { ELEM_BF16, 0, true, TILE_NONE, 0, TILE_MX32, ELEM_E4M3, true },
    { ELEM_BF16, 0, true, TILE_MX32, ELEM_E5M2, TILE_MX32, ELEM_E5M2, true },
    { ELEM_BF16, 0, true, TILE_BLK128, ELEM_E4M3, TILE_BLK128, ELEM_E4M3, true },
    { ELEM_BF16, 0, true, TILE_NONE, 0, TILE_BLK128, ELEM_E4M3, true },
    { ELEM_F32, 0, false, TILE_MX32, ELEM_E4M3, TILE_MX32, ELEM_E4M3, false },
    { ELEM_F32, 0, true, TILE_MX32, ELEM_E4M3, TILE_MX32, ELEM_E4M3, false },
    { ELEM_E4M3, 0, true, TILE_MX32, ELEM_E4M3, TILE_MX32, ELEM_E4M3, false },
    { ELEM_E4M3, 1, true, TILE_BLK128, ELEM_E4M3, TILE_BLK128, ELEM_E4M3, false },
    { ELEM_F32, 0, false, TILE_MX32, ELEM_E4M3, TILE_MX32, ELEM_E4M3, true },
    { ELEM_F32, 0, true, TILE_MX32, ELEM_E4M3, TILE_MX32, ELEM_E4M3, true },
    { ELEM_E4M3, 0, true, TILE_MX32, ELEM_E4M3, TILE_MX32, ELEM_E4M3, true },
    { ELEM_E4M3, 1, true, TILE_BLK128, ELEM_E4M3, TILE_BLK128, ELEM_E4M3, true },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static void variant(int i, char defines[MOII_DEFINES]) { defines_for(&shapes[i / 2], i % 2, defines); }

static const moii_kernel kernel = {
    .stem = "swiglu_sm90", .archs = "sm_90a sm_100a", .registers = 255, .variants = 2 * SHAPES, .variant = variant,
};

static int kind_of(const moi_format *f, bool wanted) { return wanted ? moii_tile8_kind(f) : TILE_NONE; }

static bool knows_input(const moi_format *f)
{
    int kind = moii_tile8_kind(f);
    return f->elem == MOI_F32 || f->elem == MOI_BF16 || kind == TILE_MX32 || kind == TILE_BLK128;
}

bool moii_swiglu_sm90_takes(const moi_swiglu_desc *d, const char **why)
{
    int row = kind_of(&d->rowwise, d->want & MOI_WANT_ROWWISE), col = kind_of(&d->colwise, d->want & MOI_WANT_COLWISE);
    *why = "in must be BF16, FP32, or E4M3 or E5M2 with scales of vectors";
    if (!knows_input(&d->in)) return false;
    *why = "results must be E4M3 or E5M2 with scales of vectors, not lenient, and one of them wanted";
    if (row < 0 || col < 0 || row == TILE_SQUARE || col == TILE_SQUARE || !d->want) return false;
    *why = "width must be a multiple of 128";
    if (d->width % MOII_TILE) return false;
    *why = "width must be below 2^28";
    if (d->width >= 1 << 28) return false;
    *why = "rows / 128 with groups must be below 65535";
    return d->max_rows / MOII_TILE + d->groups + 2 <= 65535;
}

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_swiglu_desc *d = desc;
    *why = "no equal scales";
    if (d->rowwise_mx || d->colwise_mx) return false;
    return moii_swiglu_sm90_takes(d, why) && moii_gpu_fits(ctx, &kernel, why);
}

static moi_status plan_it(moi_plan *plan)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    moii_gpu_kernel *k = moii_gpu_state(plan, 2 * sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    shape s = { .in = (int)d->in.elem, .wide = moii_format_scale(&d->in) == MOI_F32, .out_bf16 = d->out == MOI_BF16 };
    if (d->want & MOI_WANT_ROWWISE) s.row_kind = moii_tile8_kind(&d->rowwise), s.row_elem = (int)d->rowwise.elem;
    if (d->want & MOI_WANT_COLWISE) s.col_kind = moii_tile8_kind(&d->colwise), s.col_elem = (int)d->colwise.elem;
    s.ragged = s.col_kind != TILE_NONE && d->groups > 0;
    for (int i = 0; i < 2; i++) {
        k[i].kernel = plan->impl->kernels[0];
        k[i].shared_bytes = SWIGLU_SM90_SLOTS(s.in == ELEM_BF16, s.out_bf16) * TILE8_SLOT_BYTES;
        defines_for(&s, i, k[i].defines);
    }
    return moii_gpu_prepare(plan->ctx, k, 2);
}

/* How many strips a block makes.  With groups they lie below one another; else all blocks have one of the same rows at a time, and where there is
 * work for many rounds of blocks, two are as good as many. */
static int64_t depth_of(const moi_plan *plan, int64_t strips, int64_t stripes)
{
    enum { BLOCKS_AT_ONCE = 2, DEEP = 16, BEST = 2 };
    int64_t depth = moii_tile8_depth(strips, stripes, (int64_t)moii_gpu_of(plan->ctx)->sms * BLOCKS_AT_ONCE);
    return depth > DEEP ? BEST : depth;
}

swiglu_sm90_args moii_swiglu_sm90_args(const moi_swiglu_desc *d, const moi_swiglu_args *in, bool backward)
{
    int64_t columns = (1 + backward) * d->width;
    swiglu_sm90_args a = { .gate_up = moii_stored_of(&d->in, &in->gate_up, in->rows, 2 * d->width), .d_act = in->d_act, .plain = in->plain,
                           .width = d->width, .cut = { .rows = in->rows } };
    bool packets = a.gate_up.stride % (a.gate_up.scale ? 8 : MOII_ALIGN) == 0 && a.gate_up.stride <= UINT32_MAX;
    a.stride = packets ? (unsigned int)a.gate_up.stride : 0;
    if (d->want & MOI_WANT_COLWISE) a.cut.groups = d->groups, a.cut.offsets = (const long long *)(const void *)in->offsets;
    if (d->want & MOI_WANT_ROWWISE) a.row = moii_tile8_side(&d->rowwise, &in->rowwise, in->rows, columns, 0);
    if (d->want & MOI_WANT_COLWISE) a.col = moii_tile8_side(&d->colwise, &in->colwise, columns, in->rows, a.cut.groups);
    return a;
}

static moi_status run_either(const moi_plan *plan, const moi_swiglu_args *in, bool backward, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const moii_gpu_kernel *k = plan->state;
    swiglu_sm90_args a = moii_swiglu_sm90_args(d, in, backward);
    if (in->rows == 0 && !a.cut.groups) return MOI_OK;
    int64_t strips = moii_tile8_strips(in->rows, a.cut.groups, 1), stripes = d->width / MOII_TILE, depth = depth_of(plan, strips, stripes);
    int64_t parts = moii_ceil_div(strips, depth);
    a.strips = (unsigned int)strips;
    a.apart = (unsigned int)(a.cut.groups ? depth : 1), a.step = (unsigned int)(a.cut.groups ? 1 : parts);
    moii_gpu_launch launch = { .grid = { stripes, parts + (a.cut.groups > 0) }, .threads = MOII_TILE_THREADS, .shared_bytes = k[backward].shared_bytes };
    return moii_gpu_run(plan, &k[backward], &launch, &a, stream);
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

const moii_impl moii_impl_swiglu_sm90 = {
    .name = "swiglu_sm90", .op = MOII_OP_SWIGLU, .backend = MOI_BACKEND_CUDA, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_it, .run = run, .run_backward = run_backward,
    .kernels = kernels,
};
