/* SPDX-License-Identifier: Apache-2.0
 * tensor_product.c: plans and launches of the tensor-core products. */
#include "tensor_product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "format.h"
#include "log.h"
#include "tile8.h"

_Static_assert(PRODUCT_BF16 == MOI_BF16 && PRODUCT_E4M3 == MOI_E4M3 && PRODUCT_E5M2 == MOI_E5M2 && PRODUCT_E2M1 == MOI_E2M1,
               "product_sm90_args.h and moiety.h number alike");

/* A product of so many rows (of each group) reads every weight so often that copies in BF16, and the tensor cores' own sums, cost less
 * than a scale for every 32 products. */
enum { WIDEN_FROM = 512, WIDENS_FROM = 16384 }; /* and of so many, the kernel itself makes that of A as it goes along */

static const moi_format plain_bf16 = { .recipe = MOI_RECIPE_BF16, .elem = MOI_BF16 }, plain_f32 = { .elem = MOI_F32 };

static bool eight_bits(const moi_format *f) { return f->elem == MOI_E4M3 || f->elem == MOI_E5M2; }

static int size_of(const moi_format *f) { return f->elem == MOI_F32 ? 4 : f->elem == MOI_BF16 ? 2 : 1; }

/* Of the larger operand, and of A in order: device code numbers them in 32 bits; squares over all groups. */
static int64_t most_scales(const moii_tensor_product *p)
{
    int64_t groups = p->grouping == PRODUCT_DEPTH ? p->groups : 0, in_order = 0;
    moi_format columns = *p->a;
    columns.layout = MOI_LAYOUT_COL;
    if (p->gather_rows) in_order = moi_scale_bytes(&columns, p->m, p->k, 0);
    int64_t a = moi_scale_bytes(p->a, p->gather_rows ? p->gather_rows : p->m, p->k, groups), b = moi_scale_bytes(p->b, p->n, p->k, groups);
    if (a < 0 || b < 0 || in_order < 0) return -1;
    if (moii_tensor_experts(p) && p->b->block == MOI_BLOCK_SQUARE) b = moii_mul(b, p->groups);
    return b < 0 ? -1 : moii_max(moii_max(a, in_order), b);
}

/* Rows in order have their scales as it suits the product (tensor_copies.c). */
static void set_scaling(moii_tensor_product *p)
{
    bool a_cols = p->gather_rows || p->a->layout == MOI_LAYOUT_COL, b_cols = p->b->layout == MOI_LAYOUT_COL;
    if (p->b->elem == MOI_BF16) p->scaling = SCALING_NONE;
    else if (moii_tensor_weights_alone(p)) p->scaling = SCALING_MX, p->widened = true;
    else if (p->a->recipe == MOI_RECIPE_MX32) {
        p->scaling = p->mx == MOI_MX_PER_ROW ? SCALING_ROWS : p->mx == MOI_MX_FREE ? SCALING_MX : SCALING_VECTOR;
        p->scale_e8m0 = p->scaling == SCALING_VECTOR;
        p->scale_quads = p->scale_e8m0 && p->grouping != PRODUCT_ROWS && a_cols && b_cols;
        p->widened = p->scaling == SCALING_MX && p->grouping != PRODUCT_MASKED && (p->grouping == PRODUCT_DEPTH || p->m / moii_max(p->groups, 1) >= WIDEN_FROM);
    } else {
        p->scaling = p->b->block == MOI_BLOCK_SQUARE ? SCALING_SQUARE : SCALING_VECTOR;
        p->scales_bulk = a_cols && (p->scaling == SCALING_SQUARE || b_cols);
    }
}

#define IN_LAYOUTS(e) { [MOI_LAYOUT_ROW] = { .recipe = MOI_RECIPE_MX32, .elem = (e), .layout = MOI_LAYOUT_ROW }, \
                        [MOI_LAYOUT_COL] = { .recipe = MOI_RECIPE_MX32, .elem = (e), .layout = MOI_LAYOUT_COL }, \
                        [MOI_LAYOUT_TILED] = { .recipe = MOI_RECIPE_MX32, .elem = (e), .layout = MOI_LAYOUT_TILED } }
static const moi_format fours[] = IN_LAYOUTS(MOI_E2M1), eights[] = IN_LAYOUTS(MOI_E4M3);

/* Weights in E2M1 beside BF16, rows as they lie, are those of E4M3 once their codes are unpacked. */
static void unpack_weights(moii_tensor_product *p)
{
    if (p->a->elem != MOI_BF16 || p->b->elem != MOI_E2M1 || p->b->recipe != MOI_RECIPE_MX32 || p->b_turned || p->k % 32) return;
    p->unpacked = true;
    p->b = &eights[p->b->layout];
}

bool moii_tensor_fits(moii_tensor_product *p, moi_dtype out, const char **why)
{
    unpack_weights(p);
    bool plain = p->a->elem == MOI_BF16 && p->b->elem == MOI_BF16, alone = p->a->elem == MOI_BF16 && p->b->recipe == MOI_RECIPE_MX32;
    p->out_f32 = out == MOI_F32;
    *why = "operands must be BF16, or both E4M3 or E5M2 of one recipe, or b that of mx32, or E2M1 in rows of whole blocks, beside a in BF16";
    if (!plain && !(eight_bits(p->b) && (alone || (eight_bits(p->a) && p->a->recipe == p->b->recipe)))) return false;
    *why = "sizes must be below 2^31";
    if (p->gather_rows > INT32_MAX || p->scatter_rows > INT32_MAX) return false;
    if ( p->m > INT32_MAX || p->n > INT32_MAX - 512 || p->k > INT32_MAX - 512 || p->groups > INT32_MAX) return false;
    if (moii_tensor_depth(p, p->a, p->k) > INT32_MAX - 512) return false;
    if (p->grouping != PRODUCT_ROWS && moii_mul(p->groups, p->m) > INT32_MAX) return false;
    int64_t tiles = moii_mul(moii_ceil_div(p->m, 64) + 1, moii_ceil_div(p->n, 16) * p->groups), scales = most_scales(p);
    if (tiles < 0 || tiles > INT32_MAX || scales < 0 || scales > UINT32_MAX) return false;
    *why = "the reduction must be a multiple of 16 bytes";
    if (p->grouping != PRODUCT_DEPTH && ((!p->a_turned && p->k * size_of(p->a) % 16) || (!p->b_turned && p->k * size_of(p->b) % 16))) return false;
    *why = "rows of MN-major operands must be a multiple of 16 bytes";
    if ((p->a_turned && !moii_tensor_experts(p) && p->m % 8) || (p->b_turned && p->n % 8)) return false;
    *why = "BF16 operands of a ragged reduction must be MN-major: bulk copies cannot begin anywhere in a row";
    if (plain && p->grouping == PRODUCT_DEPTH && !(p->a_turned && p->b_turned)) return false;
    set_scaling(p);
    return true;
}

bool moii_tensor_activates(const moii_tensor_product *p, const moi_format *act)
{
    if (moii_mixed_pays(p)) return act->elem == MOI_BF16 && !p->out_f32;
    int kind = moii_tile8_kind(act);
    bool plain = moii_format_plain(act) && act->elem == MOI_BF16;
    bool sums = p->scaling == SCALING_SQUARE || p->scaling == SCALING_NONE || p->widened, known = plain || kind == TILE_MX32 || kind == TILE_BLK128;
    return sums && known && !p->out_f32 && !p->b_turned && p->n % 256 == 0 && moi_scale_bytes(act, p->m, p->n / 2, 0) <= UINT32_MAX;
}

static void append(char defines[MOII_DEFINES], const char *more)
{
    size_t n = strlen(defines);
    snprintf(defines + n, MOII_DEFINES - n, "%s", more);
}

void moii_tensor_defines(const moii_tensor_product *p, const moii_tensor_tile *t, char defines[MOII_DEFINES])
{
    if (t->thin) {
        moii_thin_defines(p, t, defines);
        return;
    }
    int n = snprintf(defines, MOII_DEFINES, "GROUPS=%d ELEM_A=%d ELEM_B=%d A_TURNED=%d B_TURNED=%d SCALING=%d SCALE_E8M0=%d SCALES_BULK=%d OUT_F32=%d ADD=%d",
                     p->grouping, (int)p->a->elem, (int)p->b->elem, p->a_turned, p->b_turned, p->scaling, p->scale_e8m0, p->scales_bulk, p->out_f32,
                     p->accumulate);
    snprintf(defines + n, MOII_DEFINES - (size_t)n, " WGS=%d WAVES=%d BN=%d STAGES=%d CLUSTER=%d SPLIT=%d TURNS=%d BOXES=%d", t->wgs, t->waves,
             t->bn, t->stages, t->cluster, t->split, t->turns, t->boxes);
    char bytes[32];
    snprintf(bytes, sizeof bytes, " SHARED_BYTES=%d", moii_tensor_shared(p, t));
    append(defines, bytes);
    if (p->scale_quads) append(defines, " QUADS=1");
    if (t->wide) append(defines, " WIDE=1");
    if (moii_tile_woven(p, t)) append(defines, " WOVEN=1");
    if (moii_tile_outer(p, t)) append(defines, " OUTER=1");
    if (moii_tile_strip(p, t)) append(defines, " STRIP=1");
    if (t->few) append(defines, t->few == 2 ? " SHORT=2" : " SHORT=1");
    if (moii_tile_lone(p, t)) append(defines, " LONE=1");
    if (p->dealt) append(defines, moii_tile_broad(p, t) ? " DEAL=1 BROAD=1" : " DEAL=1");
    if (p->widens) append(defines, p->widens == MOI_E4M3 ? " WIDENS=4" : " WIDENS=5");
    if (moii_tensor_follows(p)) append(defines, " FOLLOWS=1");
    if (p->scatter_rows) append(defines, " SCATTER=1");
    if (p->weighted) append(defines, " WEIGHTED=1");
    char act[32];
    snprintf(act, sizeof act, " SWIGLU=1 ACT_ELEM=%d", p->swiglu ? (int)p->act->elem : 0);
    if (p->swiglu) append(defines, act);
    if (moii_tensor_codes(p)) append(defines, p->act->recipe == MOI_RECIPE_MX32 ? " ACT_MX=1" : " ACT_MX=0");
}

int64_t moii_tensor_units(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m)
{
    int64_t bm = moii_tile_rows(p, t), tiles = moii_ceil_div(m, bm);
    if (p->grouping == PRODUCT_ROWS) tiles = m / bm + moii_min(p->groups, m);
    else if (p->grouping != PRODUCT_DENSE) tiles *= p->groups;
    return tiles * moii_tile_across(p, t) + moii_tile_strips(p, t, m);
}

/* Units that are dealt, pieces among them. */
static int64_t dealt_units(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m, product_cutting c)
{
    int64_t units = moii_tensor_units(p, t, m);
    return units <= c.cut ? units : c.cut + (units - c.cut) * c.pieces;
}

/* Units, as many as rows of groups mostly make. */
static int64_t usual_units(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    if (!moii_tensor_experts(p)) return moii_tensor_units(p, t, p->m);
    return moii_ceil_div(moii_tensor_group_rows(p), moii_tile_rows(p, t)) * p->groups * moii_tile_across(p, t);
}

/* Those of mixed_sm90 and halves_sm90 always.  Others: units for each cluster from which on it pays; of one matrix as many again, or so many stages; of groups,
 * which differ, fewer, and fewer still if they are long; with SwiGLU in the store so many stages of each. */
enum { DEALT_FROM = 8, DEALT_STAGES = 256, DEALT_GROUPS = 6, DEALT_LONG = 3, LONG_STAGES = 32, DEALT_SWIGLU = 32 };
bool moii_tensor_dealt(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    if (p->mixed) return true;
    if (p->k == 0 || p->widens || t->thin || t->few || t->split > 1 || moii_tile_lone(p, t)) return false;
    int64_t units = usual_units(p, t), clusters = moii_max(1, p->sms / t->cluster), stages = moii_ceil_div(p->k, p->scaling == SCALING_NONE ? 64 : 128);
    if (p->grouping == PRODUCT_DENSE) return units >= 2 * DEALT_FROM * clusters || (units >= 2 * clusters && units * stages >= DEALT_STAGES * clusters);
    if (p->swiglu && stages < DEALT_SWIGLU) return false;
    int from = !moii_tensor_experts(p) || p->swiglu ? DEALT_FROM : stages >= LONG_STAGES ? DEALT_LONG : DEALT_GROUPS;
    return units >= from * clusters;
}

bool moii_tile_broad(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    bool fits = p->grouping == PRODUCT_ROWS && moii_tile_halves(p, t) && t->waves == 2 && t->bn == 128 && !p->a_turned && p->n > t->bn * t->cluster;
    return fits && !p->mixed && moii_tensor_dealt(p, t);
}

void moii_tensor_settle(moii_tensor_product *p, int sms)
{
    p->sms = moii_tensor_sms(p, sms);
    p->mixed = p->halves = false;
    if (moii_mixed_pays(p)) p->mixed_rows = moii_mixed_tile(p).bn, p->halves = moii_mixed_halves(p), p->mixed = true;
    if (p->mixed && p->unpacked) p->unpacked = false, p->b = &fours[p->b->layout];
    if (p->mixed) p->widened = false, p->a = &plain_bf16;
    if (p->widened) {
        bool itself = p->grouping == PRODUCT_DENSE && p->m >= WIDENS_FROM && p->k > 0 && p->n > 0 && !moii_tensor_weights_alone(p);
        p->widens = itself ? p->a->elem : (moi_dtype)0;
        p->a = p->b = &plain_bf16, p->scaling = SCALING_NONE;
    }
}

void moii_tensor_variant(moii_tensor_product *p, moi_dtype out, char defines[MOII_DEFINES])
{
    const char *why;
    moii_tensor_fits(p, out, &why);
    moii_tensor_settle(p, 132);
    moii_tensor_tile t = moii_tensor_choose(p);
    p->dealt = moii_tensor_dealt(p, &t);
    moii_tensor_defines(p, &t, defines);
}

static void unplan(moi_plan *plan)
{
    moii_tensor_plan *s = plan->state;
    moi_plan_free(s->then.plan);
    free(s);
}

moi_status moii_tensor_plan_make(moi_plan *plan, const moii_kernel *kernel, const moii_tensor_product *product)
{
    moii_tensor_plan *s = calloc(1, sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "%s plan: no memory", moii_op_name(plan->op));
    plan->state = s;
    plan->unplan = unplan;
    s->product = *product;
    s->a = *product->a, s->b = *product->b;
    moii_tensor_settle(&s->product, moii_gpu_of(plan->ctx)->sms);
    if (s->product.mixed) s->b = *s->product.b;
    MOII_TRY(moii_tensor_plan_copies(plan, s));
    s->tile = moii_tensor_choose(&s->product);
    s->product.dealt = moii_tensor_dealt(&s->product, &s->tile);
    s->tickets_at = plan->workspace_bytes, plan->workspace_bytes += moii_round_up(moii_tensor_counters(&s->product, s->product.m) * 4, MOII_WORKSPACE_ALIGN);
    const moii_kernel *other = moii_thin_kernel_of(&s->product, &s->tile);
    s->kernel.kernel = other ? other : kernel;
    s->kernel.shared_bytes = moii_tensor_shared(&s->product, &s->tile);
    moii_tensor_defines(&s->product, &s->tile, s->kernel.defines);
    return moii_gpu_prepare(plan->ctx, &s->kernel, 1);
}

/* ---- launching ---- */

/* A map of a tensor whose lines lie `pitch` bytes apart; strides: in lines.  Tiles for few rows, which read weights once, wait less for them where L2
 * asks for 128 bytes at a time, or for what is missing, not for 256 (products_medians.csv); to others it is all the same. */
static moi_status encode_map(const moi_plan *plan, product_map *map, int size, const void *data, int rank, const uint64_t sizes[], uint64_t pitch,
                             const uint64_t strides[], const uint32_t box[])
{
    const moii_driver *driver = &moii_gpu_of(plan->ctx)->driver;
    const moii_tensor_plan *s = plan->state;
    moii_cuenum fetched = s->tile.thin ? MOII_CU_MAP_L2_NONE : s->tile.few ? MOII_CU_MAP_L2_128 : MOII_CU_MAP_L2_256;
    moii_cuenum type = size == 4 ? MOII_CU_MAP_F32 : size == 2 ? MOII_CU_MAP_BF16 : MOII_CU_MAP_U8;
    uint64_t bytes[4];
    uint32_t steps[5] = { 1, 1, 1, 1, 1 };
    for (int i = 0; i < rank - 1; i++) bytes[i] = pitch * strides[i];
    moii_cu_tensor_map out;
    moii_cuenum result = driver->cuTensorMapEncodeTiled(&out, type, (uint32_t)rank, (void *)(uintptr_t)data, sizes, bytes, box, steps, 0,
                                                        (int)box[0] * size == 64 ? MOII_CU_MAP_SWIZZLE_64 : MOII_CU_MAP_SWIZZLE_128, fetched, 0);
    if (result) return moii_driver_check(driver, result, "cuTensorMapEncodeTiled");
    for (int i = 0; i < 16; i++) map->opaque[i] = out.opaque[i];
    return MOI_OK;
}

moi_status moii_tensor_check_pitch(const moi_plan *plan, const char *where, const char *name, int64_t pitch)
{
    MOII_REQUIRE(pitch % 16 == 0, MOI_ERR_ALIGN, "%s: rows of %s must be a multiple of 16 bytes apart for %s, got %lld", where, name, plan->impl->name,
                 (long long)pitch);
    return MOI_OK;
}

/* Boxes of an operand [groups][lines][length], `length` elements of a line contiguous; woven: of so many lines of one matrix, in WOVEN's order. */
static moi_status make_map(const moi_plan *plan, const char *where, const char *name, product_map *map, const moi_format *f, const void *data,
                           const int64_t extent[3], int64_t ld, int box_across, int box_lines, bool woven)
{
    int size = size_of(f), fit = f->elem == MOI_E2M1 ? 2 : 1; /* elements in one of these */
    uint64_t pitch = (uint64_t)(ld ? ld : extent[0]) * (uint64_t)size / (uint64_t)fit;
    MOII_TRY(moii_tensor_check_pitch(plan, where, name, (int64_t)pitch));
    if (pitch == 0) pitch = 16; /* nothing will be read */
    uint64_t length = (uint64_t)moii_max(extent[0] / fit, 1), lines = (uint64_t)moii_max(extent[1], 1), groups = (uint64_t)moii_max(extent[2], 1);
    uint32_t across = (uint32_t)(box_across / fit), high = (uint32_t)box_lines;
    if (woven)
        return encode_map(plan, map, size, data, 5, (uint64_t[]){ length, 2, 4, 2, lines / 16 }, pitch, (uint64_t[]){ 1, 4, 2, 16 },
                          (uint32_t[]){ across, 2, 4, 2, high / 16 });
    return encode_map(plan, map, size, data, 3, (uint64_t[]){ length, lines, groups }, pitch, (uint64_t[]){ 1, lines }, (uint32_t[]){ across, high, 1 });
}

typedef struct map_set { product_map *a, *part, *b; } map_set; /* product_args' */

static moi_status make_maps(const moi_plan *plan, const char *where, const moii_tensor_run *r, int64_t k, map_set out)
{
    const moii_tensor_plan *s = plan->state;
    const moii_tensor_product *p = &s->product;
    const moii_tensor_tile *t = &s->tile;
    int step = PRODUCT_STEP_BYTES / size_of(p->a), b_step = PRODUCT_STEP_BYTES / size_of(p->b), bm = moii_tile_rows(p, t);
    int64_t za = p->grouping == PRODUCT_MASKED ? p->groups : 1, zb = moii_tensor_experts(p) ? p->groups : 1;
    int64_t a_straight[3] = { moii_tensor_across(p, k), r->m, za }, a_turned[3] = { r->m, k, 1 };
    int64_t b_straight[3] = { k, p->n, zb }, b_turned[3] = { p->n, k, zb };
    const void *nothing = p->swiglu ? r->act.data : r->d; /* an operand without elements needs no address */
    const void *a = r->a->data ? r->a->data : nothing;
    MOII_TRY(make_map(plan, where, "a", out.a, p->a, a, p->a_turned ? a_turned : a_straight, r->a->ld, p->a_turned ? 64 : step,
                      p->a_turned ? 64 : p->halves ? HALVES_ROWS : t->thin ? MIXED_ROWS(t->bn) : bm, false));
    if (moii_tile_halves(p, t) && !p->a_turned) MOII_TRY(make_map(plan, where, "a", out.part, p->a, a, a_straight, r->a->ld, step, 64, false));
    return make_map(plan, where, "b", out.b, p->b, r->b->data ? r->b->data : nothing, p->b_turned ? b_turned : b_straight, r->b->ld,
                    p->b_turned ? 64 : b_step, p->b_turned || p->swiglu ? 64 : moii_tile_lines(p, t), moii_tile_woven(p, t));
}

static moi_status set_act(const moi_plan *plan, const char *where, const moii_tensor_run *r, product_args *x)
{
    const moii_tensor_product *p = &((const moii_tensor_plan *)plan->state)->product;
    if (!moii_tensor_codes(p)) {
        x->d = (void *)(uintptr_t)r->act.data, x->ldd = r->act.ld ? r->act.ld : p->n / 2;
        return MOI_OK;
    }
    x->act = (void *)(uintptr_t)r->act.data;
    x->act_pitch = r->act.ld ? r->act.ld : p->n / 2;
    x->act_scales = moii_tensor_scales(p->act, &r->act, r->m, p->n / 2);
    x->act_rule = moii_block_rule_of(p->act);
    return moii_tensor_check_pitch(plan, where, "rowwise", x->act_pitch);
}

int64_t moii_tensor_clusters(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m, product_cutting *c)
{
    int64_t units = moii_tensor_units(p, t, m), most = t->split > 1 ? units : moii_min(units, moii_max(1, p->sms / t->cluster));
    if (units == 0) return 0;
    *c = moii_tensor_cut(p, t, m, units, most);
    if (p->grouping != PRODUCT_DENSE || c->cut < PRODUCT_UNCUT || moii_tile_rows(p, t) <= 128) return most;
    return moii_ceil_div(units, moii_ceil_div(units, most));
}

int64_t moii_tensor_strip_at(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m, int64_t clusters, product_cutting c)
{
    int64_t units = moii_tensor_units(p, t, m), whole = moii_min(units, c.cut), round = (units / clusters - 1) * clusters;
    return moii_max(0, moii_min(round, whole - moii_tile_strips(p, t, m)));
}

/* r->k: of the reduction as it lies in the operands. */
static moi_status launch_product(const moi_plan *plan, const char *where, const moii_tensor_run *r, void *workspace, moi_stream stream)
{
    const moii_tensor_plan *s = plan->state;
    const moii_tensor_product *p = &s->product;
    const moii_tensor_tile *t = &s->tile;
    product_args x = { .offsets = (const long long *)(const void *)r->offsets, .d = r->d,
                       .ldd = r->ldd ? r->ldd : p->n, .groups = p->grouping == PRODUCT_DENSE ? 1 : (int)p->groups, .m = (int)r->m, .n = (int)p->n,
                       .k = (int)r->k };
    MOII_TRY(make_maps(plan, where, r, r->k, (map_set){ &x.a_map, &x.part_map, &x.b_map }));
    if (p->scaling != SCALING_NONE) {
        if (!p->mixed) x.a_scales = moii_tensor_scales(p->gather_rows ? &s->in_order : p->a, r->a, r->m, r->k);
        x.b_scales = moii_tensor_scales(p->b, r->b, p->n, r->k);
    }
    if (p->mixed) x.row_factor = r->a->scale;
    x.rows_of_d = r->rows_of_d, x.d_rows = (int)r->d_rows, x.row_weight = r->row_weight;
    if (p->swiglu) MOII_TRY(set_act(plan, where, r, &x));
    x.n_tiles = (int)moii_tile_across(p, t);
    if (p->grouping == PRODUCT_DEPTH) x.depth_block = (int)moi_format_block(&s->a);
    x.band = moii_tensor_band(p, t);
    x.vectors = moii_aligned(x.d, 16) && x.ldd * (p->out_f32 ? 4 : 2) % 16 == 0;
    bool carries = moii_tile_carries(p, t);
    bool boxed = !p->out_f32 && !p->scatter_rows && !moii_tensor_codes(p) && t->split == 1 && !t->thin && !moii_tile_by_lines(p, t) && t->bn % 32 == 0;
    int64_t columns = p->swiglu ? p->n / 2 : p->n;
    bool whole = columns * (p->out_f32 ? 4 : 2) % 16 == 0; /* a box of which 16 bytes are not all in D stores them all the same */
    if (x.vectors && whole && (carries || boxed)) {
        int64_t extent[3] = { columns, p->grouping == PRODUCT_MASKED ? p->groups * r->m : r->m, p->grouping == PRODUCT_DEPTH ? p->groups : 1 };
        MOII_TRY(make_map(plan, where, "d", &x.d_map, carries ? &plain_f32 : &plain_bf16, x.d, extent, x.ldd, carries ? 32 : moii_tile_box(p, t), 64, false));
        x.d_boxes = 1;
    }
    product_cutting c;
    int64_t blocks = t->cluster * t->split, clusters = moii_tensor_clusters(p, t, r->m, &c);
    if (clusters == 0) return MOI_OK;
    x.cut = c.cut, x.pieces = c.pieces;
    x.strip_at = (int)moii_tensor_strip_at(p, t, r->m, clusters, c);
    if (p->widens) {
        x.a = r->narrow->data, x.a_pitch = r->narrow->ld ? r->narrow->ld : r->k, x.a_scales = moii_tensor_scales(&s->a, r->narrow, r->m, r->k);
        x.wide = (void *)(uintptr_t)r->a->data, x.counters = (int *)(void *)((char *)workspace + s->tickets_at);
    }
    if (p->dealt) {
        x.units = (int)dealt_units(p, t, r->m, c), x.tickets = r->tickets;
    }
    moii_gpu_launch launch = { .grid = { clusters * blocks }, .threads = 128 + 128 * t->wgs * t->turns, .shared_bytes = s->kernel.shared_bytes,
                               .cluster = blocks > 1 ? (int)blocks : 0, .overlap = p->overlap || p->mixed || moii_tensor_follows(p) };
    return moii_gpu_run(plan, &s->kernel, &launch, &x, stream);
}

/* Weights alone may lie anywhere, for others' sake: copies of 16 bytes do not take that. */
static moi_status check_weights(const char *where, const moii_tensor_plan *s, const moi_operand *b)
{
    bool lie = !moii_format_plain(&s->a) || moii_format_plain(&s->b) || (moii_aligned(b->data, 16) && moii_aligned(b->scale, 16));
    MOII_REQUIRE(lie, MOI_ERR_ALIGN, "%s: b: data and scales must be aligned to 16 bytes for this row, got %p and %p", where, b->data, b->scale);
    return MOI_OK;
}

/* Which the product's clusters draw from: 0 when they begin.  It is cleared, if so, before anything else, for a product may begin beside its copies. */
static moi_status get_counter(const moi_plan *plan, void *workspace, moi_stream stream, unsigned int **tickets)
{
    moii_gpu *gpu = moii_gpu_of(plan->ctx);
    const moii_tensor_plan *s = plan->state;
    if (!s->product.dealt) return MOI_OK;
    *tickets = moii_counter_of(&gpu->counters, workspace);
    if (*tickets) return MOI_OK;
    *tickets = (unsigned int *)(void *)((char *)workspace + s->tickets_at);
    moii_log(plan->ctx, MOI_LOG_DEBUG, "cuda: %s run: a counter is cleared first: more than %d workspaces", moii_op_name(plan->op), MOII_COUNTERS / 2);
    MOII_CUDA(&gpu->driver, cuMemsetD32Async, ((moii_cuptr)(uintptr_t)*tickets, 0, 1, stream));
    return MOI_OK;
}

/* Tensor maps are made in the current context. */
moi_status moii_tensor_launch(const moi_plan *plan, const char *where, const moii_tensor_run *run, void *workspace, moi_stream stream)
{
    const moii_gpu *gpu = moii_gpu_of(plan->ctx);
    const moii_tensor_plan *s = plan->state;
    bool pushed;
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    moii_tensor_copied c = { .run = *run };
    c.run.k = moii_tensor_depth(&s->product, &s->a, run->k);
    moi_status status = check_weights(where, s, run->b);
    if (!status) status = get_counter(plan, workspace, stream, &c.run.tickets);
    if (!status) status = moii_tensor_copy(plan, where, &c, workspace, stream);
    if (!status) status = launch_product(plan, where, &c.run, workspace, stream);
    moii_gpu_leave(gpu, pushed);
    return status;
}
