/* SPDX-License-Identifier: Apache-2.0
 * tensor_copies.c: copies of operands that a tensor-core product reads in their place: 1x32 scaled ones as BF16, rows of A as FP16, or those that a list
 * names in order, E2M1 as E4M3. */
#include <stdio.h>

#include "dtype.h"
#include "format.h"
#include "kernels/gather_sm90_args.h"
#include "kernels/half_rows_sm90_args.h"
#include "kernels/unpack_sm90_args.h"
#include "kernels/widen_sm90_args.h"
#include "tensor_product.h"

static void widen_defines(moi_dtype elem, char defines[MOII_DEFINES]) { snprintf(defines, MOII_DEFINES, "ELEM=%d", (int)elem); }
static void widen_variant(int i, char defines[MOII_DEFINES]) { widen_defines(i ? MOI_E5M2 : MOI_E4M3, defines); }
static void half_rows_defines(moi_dtype elem, bool placed, char defines[MOII_DEFINES])
{
    snprintf(defines, MOII_DEFINES, "ELEM=%d PLACED=%d", (int)elem, placed);
}
static void half_rows_variant(int i, char defines[MOII_DEFINES])
{
    static const moi_dtype elem[] = { MOI_BF16, MOI_BF16, MOI_E4M3, MOI_E5M2 };
    half_rows_defines(elem[i], i > 0, defines);
}
static void gather_variant(int i, char defines[MOII_DEFINES]) { snprintf(defines, MOII_DEFINES, "SCALE_BYTES=%d", i == 2 ? 4 : i); }

static void no_defines(int i, char defines[MOII_DEFINES]) { (void)i, defines[0] = 0; }

const moii_kernel moii_widen_kernel = { .stem = "widen_sm90", .archs = "sm_90a", .registers = 64, .variants = 2, .variant = widen_variant };
const moii_kernel moii_gather_kernel = { .stem = "gather_sm90", .archs = "sm_90a", .registers = 40, .variants = 3, .variant = gather_variant };
const moii_kernel moii_half_rows_kernel = { .stem = "half_rows_sm90", .archs = "sm_90a", .registers = 64, .variants = 4, .variant = half_rows_variant };
const moii_kernel moii_unpack_kernel = { .stem = "unpack_sm90", .archs = "sm_90a", .registers = 40, .variants = 1, .variant = no_defines };

product_scales moii_tensor_scales(const moi_format *f, const moi_operand *o, int64_t rows, int64_t depth)
{
    int64_t blocks = moi_scale_blocks(f, depth, 0), size = f->recipe == MOI_RECIPE_MX32 ? 1 : 4;
    product_scales s = { .p = o->scale, .rows = (int)moii_scale_rows(f, rows), .group_bytes = moi_scale_bytes(f, rows, depth, 0) };
    if (f->layout == MOI_LAYOUT_COL) s.row_stride = 1, s.block_stride = (unsigned int)(moii_round_up(s.rows * size, 16) / size);
    else s.row_stride = (unsigned int)blocks, s.block_stride = 1;
    if (f->layout == MOI_LAYOUT_TILED) s.across = (int)moii_ceil_div(blocks, 4);
    s.words = s.across || (f->layout == MOI_LAYOUT_ROW && blocks % 4 == 0);
    return s;
}

int64_t moii_tensor_depth(const moii_tensor_product *p, const moi_format *f, int64_t k)
{
    return p->grouping == PRODUCT_DEPTH && k ? moi_ragged_cols(f, k, p->groups) : k;
}

int64_t moii_tensor_counters(const moii_tensor_product *p, int64_t m)
{
    return p->widens ? 1 + moii_ceil_div(m, WIDEN_CHUNK) : p->dealt;
}

/* ---- planning ---- */

/* How many matrices operand a (0) or b (1) has. */
static int64_t matrices(const moii_tensor_product *p, int operand)
{
    return (operand ? moii_tensor_experts(p) : p->grouping == PRODUCT_MASKED) ? p->groups : 1;
}

/* Values of a row of the copy of an operand. */
static int64_t copied_depth(const moii_tensor_product *p, int operand, int64_t k) { return operand ? k : moii_tensor_across(p, k); }

/* Elements of the largest. */
static int64_t elements(const moii_tensor_plan *s, int operand)
{
    const moii_tensor_product *p = &s->product;
    return moii_mul(moii_mul(operand ? p->n : p->m, moii_tensor_depth(p, &s->a, copied_depth(p, operand, p->k))), matrices(p, operand));
}

static moi_status plan_widening(moi_plan *plan, moii_tensor_plan *s, int i)
{
    int64_t count = elements(s, i);
    MOII_REQUIRE(count >= 0 && count / 16 < UINT32_MAX, MOI_ERR_SHAPE, "%s plan: operand %s has too many elements", moii_op_name(plan->op), i ? "b" : "a");
    s->copies_at[i] = plan->workspace_bytes, plan->workspace_bytes += moii_round_up(2 * count, MOII_WORKSPACE_ALIGN);
    s->copy[i].kernel = &moii_widen_kernel;
    widen_defines((i ? &s->b : &s->a)->elem, s->copy[i].defines);
    return moii_gpu_prepare(plan->ctx, &s->copy[i], 1);
}

/* FP16, and a factor for each row. */
static moi_status plan_halves(moi_plan *plan, moii_tensor_plan *s)
{
    int64_t rows = s->product.m * matrices(&s->product, 0);
    s->scales_at = moii_round_up(2 * elements(s, 0), MOII_WORKSPACE_ALIGN);
    plan->workspace_bytes = s->scales_at + moii_round_up(4 * rows, MOII_WORKSPACE_ALIGN);
    s->copy[0].kernel = &moii_half_rows_kernel;
    half_rows_defines(s->a.elem, !s->product.halves, s->copy[0].defines);
    return moii_gpu_prepare(plan->ctx, s->copy, 1);
}

static int scale_bytes(const moi_format *f) { return moii_format_plain(f) ? 0 : f->recipe == MOI_RECIPE_MX32 ? 1 : 4; }

/* Scales of neighbouring rows lie side by side, for runs of them are copied at once; those of 32 values are read four of a row at a time. */
static moi_status plan_order(moi_plan *plan, moii_tensor_plan *s)
{
    const moii_tensor_product *p = &s->product;
    s->in_order = s->a;
    s->in_order.layout = p->scaling == SCALING_MX ? MOI_LAYOUT_ROW : MOI_LAYOUT_COL;
    int64_t bytes = moii_mul(p->m, moi_row_bytes(s->a.elem, p->k));
    MOII_REQUIRE(bytes >= 0 && bytes < INT64_MAX / 2, MOI_ERR_SHAPE, "%s plan: operand a has too many elements", moii_op_name(plan->op));
    s->scales_at = moii_round_up(bytes, MOII_WORKSPACE_ALIGN);
    plan->workspace_bytes = s->scales_at;
    if (scale_bytes(&s->a)) plan->workspace_bytes += moii_round_up(moi_scale_bytes(&s->in_order, p->m, p->k, 0), MOII_WORKSPACE_ALIGN);
    s->copy[0].kernel = &moii_gather_kernel;
    snprintf(s->copy[0].defines, MOII_DEFINES, "SCALE_BYTES=%d", scale_bytes(&s->a));
    return moii_gpu_prepare(plan->ctx, s->copy, 1);
}

/* Whether the first copy is rows in the list's order, and nothing else. */
static bool orders(const moii_tensor_plan *s)
{
    return s->product.gather_rows && !s->product.mixed && (!s->product.widened || moii_format_plain(&s->a));
}

static moi_status plan_unpacking(moi_plan *plan, moii_tensor_plan *s)
{
    int64_t count = elements(s, 1);
    MOII_REQUIRE(count >= 0 && count / 16 < UINT32_MAX, MOI_ERR_SHAPE, "%s plan: operand b has too many elements", moii_op_name(plan->op));
    s->codes_at = plan->workspace_bytes, plan->workspace_bytes += moii_round_up(count, MOII_WORKSPACE_ALIGN);
    s->unpack.kernel = &moii_unpack_kernel;
    return moii_gpu_prepare(plan->ctx, &s->unpack, 1);
}

moi_status moii_tensor_plan_copies(moi_plan *plan, moii_tensor_plan *s)
{
    if (s->product.mixed) MOII_TRY(plan_halves(plan, s));
    else if (orders(s)) MOII_TRY(plan_order(plan, s));
    else if (s->product.widened && !moii_format_plain(&s->a)) MOII_TRY(plan_widening(plan, s, 0));
    if (s->product.widened) MOII_TRY(plan_widening(plan, s, 1));
    return s->product.unpacked ? plan_unpacking(plan, s) : MOI_OK;
}

/* ---- launching ---- */

/* A block that copies, not several, on each of a limited number of multiprocessors: nothing says which ones take them. */
static int64_t copying_blocks(const moii_tensor_plan *s, int each) { return (int64_t)s->product.sms * (s->product.sm_limit ? 1 : each); }

static row_list list_of(const moii_tensor_plan *s, const moii_tensor_run *r)
{
    if (!s->product.gather_rows) return (row_list){ NULL, NULL, 0 };
    return (row_list){ r->rows_of_a, (const long long *)(const void *)(r->offsets + s->product.groups), (int)r->a_rows };
}

/* Bytes between an operand's rows. */
static int64_t pitch_of(const moi_format *f, const moi_operand *o, int64_t k) { return moi_row_bytes(f->elem, o->ld ? o->ld : k); }

static moi_status widen(const moi_plan *plan, int i, const moii_tensor_run *r, char *workspace, moi_stream stream)
{
    const moii_tensor_plan *s = plan->state;
    const moii_tensor_product *p = &s->product;
    const moi_operand *o = i ? r->b : r->a;
    int64_t rows = i ? p->n : r->m, lie = i == 0 && p->gather_rows ? r->a_rows : rows, groups = matrices(p, i), pieces = r->k / 16;
    widen_sm90_args x = { .codes = o->data, .scales = moii_tensor_scales(i ? &s->b : &s->a, o, lie, r->k), .out = (void *)(workspace + s->copies_at[i]),
                          .counter = (int *)(void *)(workspace + s->tickets_at), .counters = p->widens ? (unsigned int)moii_tensor_counters(p, r->m) : 0,
                          .ld = pitch_of(i ? &s->b : &s->a, o, r->k), .group_rows = (unsigned int)lie, .pieces = (unsigned int)pieces,
                          .count = (unsigned int)(rows * groups * pieces) };
    if (i == 0) x.list = list_of(s, r), x.groups = (unsigned int)p->groups;
    if (i == 0 && p->grouping == PRODUCT_MASKED) x.counts = (const long long *)(const void *)r->offsets;
    if (x.count == 0) return MOI_OK;
    int64_t most = copying_blocks(s, 64), high = x.counts ? moii_min(p->groups, most) : 1;
    moii_gpu_launch launch = { .grid = { moii_min(moii_ceil_div(x.count / high, 256), most / high), high }, .threads = 256 };
    return moii_gpu_run(plan, &s->copy[i], &launch, &x, stream);
}

static moi_status bring_into_order(const moi_plan *plan, const moii_tensor_run *r, const moi_operand *to, moi_stream stream)
{
    enum { WARPS = GATHER_THREADS / 32 };
    const moii_tensor_plan *s = plan->state;
    const moii_tensor_product *p = &s->product;
    gather_sm90_args x = { .from = r->a->data, .to = (void *)(uintptr_t)to->data, .pitch = pitch_of(&s->a, r->a, r->k), .list = list_of(s, r),
                           .rows = (int)r->m, .pieces = (int)(moi_row_bytes(s->a.elem, r->k) / 16) };
    if (scale_bytes(&s->a)) {
        x.scales = moii_tensor_scales(&s->a, r->a, r->a_rows, r->k), x.in_order = moii_tensor_scales(&s->in_order, to, r->m, r->k);
        x.blocks = (int)moi_scale_blocks(&s->a, r->k, 0);
        x.block_step = p->scaling == SCALING_ROWS ? (int)moii_max(x.blocks, 1) : p->scale_e8m0 ? 4 : 1;
    }
    int64_t warps = r->m * moii_ceil_div(x.pieces, GATHER_PIECES) + moii_ceil_div(r->m, GATHER_ROWS);
    moii_gpu_launch launch = { .grid = { moii_max(1, moii_min(moii_ceil_div(warps, WARPS), copying_blocks(s, GATHER_BLOCKS))) },
                               .threads = GATHER_THREADS, .overlap = p->overlap };
    return moii_gpu_run(plan, &s->copy[0], &launch, &x, stream);
}

static moi_status halve(const moi_plan *plan, const moii_tensor_run *r, const moi_operand *to, moi_stream stream)
{
    enum { ROWS = HALF_ROWS_THREADS / 32, BLOCKS = 8 };
    const moii_tensor_plan *s = plan->state;
    const moii_tensor_product *p = &s->product;
    half_rows_sm90_args x = { .from = r->a->data, .to = (void *)(uintptr_t)to->data, .factor = (float *)(uintptr_t)to->scale,
                              .pitch = pitch_of(&s->a, r->a, r->k), .list = list_of(s, r), .rows = (int)(r->m * matrices(p, 0)), .pieces = (int)(r->k / 16),
                              .written = (int)(moii_tensor_across(p, r->k) / 16) };
    if (!moii_format_plain(&s->a)) x.scales = moii_tensor_scales(&s->a, r->a, p->gather_rows ? r->a_rows : r->m, r->k);
    if (p->grouping == PRODUCT_MASKED) x.counts = (const long long *)(const void *)r->offsets, x.group_rows = (int)r->m;
    if (x.rows == 0) return MOI_OK;
    moii_gpu_launch launch = { .grid = { moii_min(moii_ceil_div(x.rows, ROWS), copying_blocks(s, BLOCKS)) }, .threads = HALF_ROWS_THREADS,
                               .overlap = p->overlap };
    return moii_gpu_run(plan, &s->copy[0], &launch, &x, stream);
}

/* It lets nobody start before it has ended. */
static moi_status unpack(const moi_plan *plan, const moii_tensor_run *r, unsigned char *to, moi_stream stream)
{
    const moii_tensor_plan *s = plan->state;
    const moii_tensor_product *p = &s->product;
    unpack_sm90_args x = { .from = r->b->data, .to = to, .ld = moi_row_bytes(MOI_E2M1, r->b->ld ? r->b->ld : r->k), .groups = (int)matrices(p, 1),
                           .rows = (unsigned int)p->n, .pieces = (unsigned int)(r->k / 16) };
    const long long *rows = (const long long *)(const void *)r->offsets;
    if (p->grouping == PRODUCT_ROWS) x.offsets = rows;
    if (p->grouping == PRODUCT_MASKED) x.counts = rows;
    int64_t most = copying_blocks(s, UNPACK_BLOCKS), high = moii_min(x.groups, most), pieces = (int64_t)x.rows * x.pieces;
    if (pieces == 0 || high == 0) return MOI_OK;
    moii_gpu_launch launch = { .grid = { moii_min(moii_ceil_div(pieces, UNPACK_THREADS), moii_ceil_div(most, high)), high }, .threads = UNPACK_THREADS };
    return moii_gpu_run(plan, &s->unpack, &launch, &x, stream);
}

moi_status moii_tensor_copy(const moi_plan *plan, const char *where, moii_tensor_copied *c, void *workspace, moi_stream stream)
{
    const moii_tensor_plan *s = plan->state;
    const moii_tensor_product *p = &s->product;
    char *base = workspace;
    if (p->unpacked) {
        MOII_TRY(moii_tensor_check_pitch(plan, where, "b", moi_row_bytes(MOI_E2M1, c->run.b->ld ? c->run.b->ld : c->run.k)));
        MOII_TRY(unpack(plan, &c->run, (unsigned char *)base + s->codes_at, stream));
        c->codes = (moi_operand){ base + s->codes_at, c->run.b->scale, 0 }, c->run.b = &c->codes;
    }
    if (!p->widened && !p->mixed && !p->gather_rows) return MOI_OK;
    MOII_TRY(moii_tensor_check_pitch(plan, where, "a", pitch_of(&s->a, c->run.a, c->run.k)));
    if (p->widened || p->mixed) MOII_TRY(moii_tensor_check_pitch(plan, where, "b", pitch_of(&s->b, c->run.b, c->run.k)));
    c->a = (moi_operand){ base + s->copies_at[0], base + s->scales_at, 0 };
    if (p->mixed) MOII_TRY(halve(plan, &c->run, &c->a, stream));
    else if (orders(s)) MOII_TRY(bring_into_order(plan, &c->run, &c->a, stream));
    else if (s->copy[0].kernel && !p->widens) MOII_TRY(widen(plan, 0, &c->run, base, stream)); /* else the product does it */
    if (p->widened) {
        c->b = (moi_operand){ base + s->copies_at[1], NULL, 0 };
        MOII_TRY(widen(plan, 1, &c->run, base, stream));
        c->run.narrow = c->run.a, c->run.b = &c->b;
    }
    if (s->copy[0].kernel) c->run.a = &c->a;
    return MOI_OK;
}
