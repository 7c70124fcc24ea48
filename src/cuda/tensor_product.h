/* SPDX-License-Identifier: Apache-2.0
 * tensor_product.h: what gemm_sm90 and ggemm_sm90 share: a product described, the tile chosen for it, its launch. */
#ifndef MOII_TENSOR_PRODUCT_H
#define MOII_TENSOR_PRODUCT_H

#include "format.h"
#include "gpu.h"
#include "then_swiglu.h"
#include "kernels/product_cut.h"
#include "kernels/product_sm90_args.h"

/* How the work is cut; product_sm90.cuh says what each number is. */
/* few: SHORT.  thin: thin_sm90's (of mixed: mixed_sm90's, or halves_sm90's), where B's rows are the tensor cores', bn rows of A their columns. */
typedef struct moii_tensor_tile { int wgs, waves, bn, stages, cluster, split, turns, boxes, wide, few, thin; } moii_tensor_tile;

typedef struct moii_tensor_product {
    int grouping, scaling;          /* PRODUCT_..., SCALING_... */
    const moi_format *a, *b;
    bool a_turned, b_turned, scale_e8m0, scales_bulk, scale_quads, widened, mixed, halves, out_f32, accumulate;
    int mixed_rows;                 /* mixed: of A in a tile */
    bool unpacked;                  /* B's codes are E2M1, and become E4M3 first, which b says they are; mixed takes them as they lie */
    moi_mx_scales mx;
    int64_t groups, m, n, k;        /* the largest: m rows of all groups for PRODUCT_ROWS, of each for PRODUCT_MASKED, k of all for PRODUCT_DEPTH */
    int64_t expected;               /* of the ragged dimension, all groups together; 0: the largest */
    int sms;                        /* that it may use */
    int sm_limit;                   /* as the description has it */
    bool overlap;
    int64_t gather_rows;            /* PRODUCT_ROWS: > 0: A has so many at most; a list names those of the product, which are copied into order first */
    int64_t scatter_rows;           /* PRODUCT_ROWS: > 0: D has so many at most, and a list names where those of the product go */
    bool weighted;                  /* PRODUCT_ROWS */
    bool dealt;                     /* clusters draw their tiles from a counter */
    moi_dtype widens;               /* widened, and A in the kernel that multiplies: of what codes; else 0 */
    bool swiglu;                    /* PRODUCT_ROWS: in the kernel; else, if it is wanted, behind it */
    const moi_format *act;          /* of what SwiGLU gives */
} moii_tensor_product;

/* B is scaled, A is BF16. */
static inline bool moii_tensor_weights_alone(const moii_tensor_product *p) { return p->a->elem == MOI_BF16 && p->b->elem != MOI_BF16; }

/* Bytes of a row of B in a stage of 128 values or, of plain operands, 64. */
static inline int moii_tensor_row_bytes(const moii_tensor_product *p) { return p->b->elem == MOI_E2M1 ? PRODUCT_STEP_BYTES / 2 : PRODUCT_STEP_BYTES; }

/* Each group has its own B. */
static inline bool moii_tensor_experts(const moii_tensor_product *p) { return p->grouping == PRODUCT_ROWS || p->grouping == PRODUCT_MASKED; }

/* Rows in order come from the kernel right in front: product_sm90.cuh's FOLLOWS. */
static inline bool moii_tensor_follows(const moii_tensor_product *p) { return p->gather_rows && !p->widened && !p->mixed; }

/* Of a tile: whether warpgroups have the same rows; rows, and rows of B. */
static inline bool moii_tile_beside(const moii_tensor_product *p, const moii_tensor_tile *t) { return p->swiglu || t->wide; }
static inline int moii_tile_rows(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    return t->thin ? t->bn : 64 * t->waves * (moii_tile_beside(p, t) ? 1 : t->wgs);
}
static inline int moii_tile_lines(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    return t->thin ? 64 * t->wgs * t->waves : t->bn * (moii_tile_beside(p, t) ? t->wgs : 1);
}

/* Whether the tensor cores can multiply scales with each other: product_sm90.cuh's OUTER; and whether they do, in such a tile. */
static inline bool moii_tensor_outer(const moii_tensor_product *p)
{
    return p->scaling == SCALING_VECTOR && (p->scales_bulk || p->scale_quads) && p->grouping != PRODUCT_ROWS;
}
static inline bool moii_tile_outer(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    bool grid = t->wgs == 2 && t->waves == 1 && t->bn == 128 && t->turns == 1 && t->split == 1 && !t->wide && !t->few && !t->thin;
    return grid && moii_tensor_outer(p);
}

/* Whether both warpgroups share a tile's last 64 rows: product_sm90.cuh's HALVES. */
static inline bool moii_tile_halves(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    bool grid = t->wgs == 2 && t->turns == 1 && t->split == 1 && t->bn % 128 == 0;
    return grid && !moii_tile_beside(p, t) && !t->few && p->grouping != PRODUCT_DEPTH && p->scaling != SCALING_MX && !moii_tile_outer(p, t);
}

/* Whether stages are multiplied two by two, with one sum of the tensor cores: product_multiply.cuh's DOUBLED. */
static inline bool moii_tile_doubled(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    return p->scaling == SCALING_ROWS && !t->few && t->turns == 1;
}

/* Whether FP32 leaves by boxes: product_sm90.cuh's CARRIES. */
static inline bool moii_tile_carries(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    bool large = t->wgs * t->waves > 2 || t->bn == 256;
    return p->out_f32 && !p->scatter_rows && (large || moii_tile_outer(p, t)) && t->turns == 1 && t->split == 1 && !t->few && !t->thin;
}

/* Whether copies lay rows of B as product_sm90.cuh's WOVEN says: a map of sixteens of rows needs whole ones. */
static inline bool moii_tile_woven(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    return moii_tile_carries(p, t) && p->scaling == SCALING_VECTOR && !moii_tensor_experts(p) && p->n % 16 == 0;
}

/* Whether the last columns, where a cluster's second block would have none, and the first one half of a tile's, are tiles of their own, a row of tiles for
 * each block: product_sm90.cuh's STRIP.  With additions between products such a tile is no faster than a whole one. */
static inline bool moii_tile_strip(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    bool fits = moii_tile_halves(p, t) && t->waves == 2 && t->bn == 128 && t->cluster == 2 && p->grouping == PRODUCT_DENSE && !p->a_turned && !p->widens;
    return fits && p->scaling == SCALING_NONE && p->n > 256 && p->n % 256 > 0 && p->n % 256 <= 64;
}

/* Tiles across for a cluster, without a strip; units of a strip of so many rows. */
static inline int64_t moii_tile_across(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    return moii_ceil_div(p->n, (int64_t)moii_tile_lines(p, t) * t->cluster) - moii_tile_strip(p, t);
}
static inline int64_t moii_tile_strips(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m)
{
    return moii_tile_strip(p, t) ? moii_ceil_div(m, 2 * (int64_t)moii_tile_rows(p, t)) : 0;
}

/* Units of work of m rows at most: a group may begin in the middle of what would be a tile. */
int64_t moii_tensor_units(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m);

/* Whether no block has a second tile of BF16, for which its first one would have to make room: product_sm90.cuh's LONE. */
static inline bool moii_tile_lone(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    bool small = p->grouping == PRODUCT_DENSE && p->scaling == SCALING_SQUARE && !p->out_f32 && !t->thin && t->waves == 1; /* larger ones lose by it */
    return small && moii_tensor_units(p, t, p->m) * t->cluster * t->split <= p->sms;
}
/* Whether it leaves by lines then. */
static inline bool moii_tile_by_lines(const moii_tensor_product *p, const moii_tensor_tile *t) { return t->few && moii_tile_lone(p, t); }

/* Whether what SwiGLU in the store gives is codes: product_sm90.cuh's ACT_CODES; columns of D of a warpgroup. */
static inline bool moii_tensor_codes(const moii_tensor_product *p) { return p->swiglu && !moii_format_plain(p->act); }
static inline int moii_tile_columns(const moii_tensor_product *p, const moii_tensor_tile *t) { return p->swiglu ? t->bn / 2 : t->bn; }

/* Columns of a box of BF16: product_sm90.cuh's BOX_COLS. */
static inline int moii_tile_box(const moii_tensor_product *p, const moii_tensor_tile *t) { return t->bn % 64 == 32 && !moii_tile_by_lines(p, t) ? 32 : 64; }

/* How the last of so many units, of m rows, are cut. */
product_cutting moii_tensor_cut(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m, int64_t units, int64_t clusters);

/* Blocks, by clusters, that are launched for m rows, and how their last units are cut.  As few as take no more rounds, where it is the tensor cores that
 * take the time: power bounds their clock. */
int64_t moii_tensor_clusters(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m, product_cutting *c);

/* The first unit of a strip: the last whole round begins with it, or sooner, so that none of it is cut. */
int64_t moii_tensor_strip_at(const moii_tensor_product *p, const moii_tensor_tile *t, int64_t m, int64_t clusters, product_cutting c);

/* One call's operands. */
typedef struct moii_tensor_run {
    const moi_operand *a, *b;
    const moi_operand *narrow;      /* widens: the caller's a */
    void *d;
    int64_t ldd, m, k;              /* this call's */
    const int64_t *offsets;         /* PRODUCT_MASKED: counts */
    const int32_t *rows_of_a;       /* gathered */
    int64_t a_rows;                 /* of A, gathered; else 0 */
    const int32_t *rows_of_d;       /* scattered, with d_rows */
    int64_t d_rows;
    const float *row_weight;        /* weighted */
    moi_operand act;                /* swiglu */
    unsigned int *tickets;          /* dealt: where these are counted */
} moii_tensor_run;

/* What a plan keeps.  Copies of operands, where it needs any, lie in the workspace. */
typedef struct moii_tensor_plan {
    moii_tensor_product product;
    moii_tensor_tile tile;
    moii_gpu_kernel kernel;
    moi_format a, b;                /* the caller's; unpacked: b as it is then */
    moi_format in_order;            /* of a in order */
    moii_gpu_kernel copy[2];        /* a: widens it, or brings its rows into order, or makes FP16 of it; b: widens it */
    int64_t copies_at[2], scales_at; /* from where on they lie, and a's scales, or factors of rows */
    moii_gpu_kernel unpack;         /* unpacked: B */
    int64_t codes_at;
    int64_t tickets_at;             /* widens: where the counters are; dealt: the one of a workspace that has none in the context */
    moii_then_swiglu then;
} moii_tensor_plan;

extern const moii_kernel moii_widen_kernel, moii_gather_kernel, moii_half_rows_kernel, moii_unpack_kernel;
extern const moii_kernel moii_thin_kernel, moii_mixed_kernel, moii_halves_kernel;

/* Where an operand's scales lie, of so many rows and values of the reduction. */
product_scales moii_tensor_scales(const moi_format *f, const moi_operand *o, int64_t rows, int64_t depth);
/* Of the reduction as it lies in the operands: ragged groups of scaled ones fill whole blocks. */
int64_t moii_tensor_depth(const moii_tensor_product *p, const moi_format *f, int64_t k);
/* In the workspace, for so many rows; the copy of b clears those of `widens`, a run that of `dealt` if it uses it. */
int64_t moii_tensor_counters(const moii_tensor_product *p, int64_t m);
/* What the product reads instead of the caller's operands, a run's k being as it lies: planned; enqueued, after which c->run names the copies, c->a and
 * c->b, made of c->codes where these are unpacked, and as its `narrow` the caller's a. */
typedef struct moii_tensor_copied { moii_tensor_run run; moi_operand a, b, codes; } moii_tensor_copied;
moi_status moii_tensor_plan_copies(moi_plan *plan, moii_tensor_plan *s);
moi_status moii_tensor_copy(const moi_plan *plan, const char *where, moii_tensor_copied *c, void *workspace, moi_stream stream);
/* Of an operand `name`: copies, by pieces or by maps, begin at multiples of 16 bytes. */
moi_status moii_tensor_check_pitch(const moi_plan *plan, const char *where, const char *name, int64_t pitch);

/* Whether the tensor cores can do it, and what SCALING it is. */
bool moii_tensor_fits(moii_tensor_product *p, moi_dtype out, const char **why);
/* Those that it may use, of so many. */
static inline int moii_tensor_sms(const moii_tensor_product *p, int sms) { return p->sm_limit && p->sm_limit < sms ? p->sm_limit : sms; }
/* Whether SwiGLU of p, which fits and knows its multiprocessors, can be made where it is stored, and is no faster behind it. */
bool moii_tensor_activates(const moii_tensor_product *p, const moi_format *act);
moii_tensor_tile moii_tensor_choose(const moii_tensor_product *p);
/* The same, and tells `told` of every candidate and its estimate in clocks. */
typedef void (*moii_tensor_told)(void *user, const moii_tensor_tile *tile, double clocks);
moii_tensor_tile moii_tensor_consider(const moii_tensor_product *p, moii_tensor_told told, void *user);
/* p, which fits, on a device of so many multiprocessors, as the kernel that multiplies sees it: behind the copies that it needs. */
void moii_tensor_settle(moii_tensor_product *p, int sms);
/* Whether clusters draw their tiles from a counter. */
bool moii_tensor_dealt(const moii_tensor_product *p, const moii_tensor_tile *t);
/* Rows of tiles that are walked together, so that what the tiles at work read of A and B is near a square: 2048 rows, and twice as many where A's take
 * no more than 9 MB of L2 (4.5 where no blocks share A).  With few columns one row of tiles after the other: all of B stays in L2, and A is read once; of a
 * dense FP8 product two, or six of 128 rows.  Of short reductions in groups so few that the tiles at work have whole rows of D. */
int moii_tensor_band(const moii_tensor_product *p, const moii_tensor_tile *t);
/* Whether what is left of a group's rows, if it is little, has tiles of twice the columns: product_sm90.cuh's BROAD. */
bool moii_tile_broad(const moii_tensor_product *p, const moii_tensor_tile *t);
/* Whether thin_sm90 takes operands whose scales of 32 lie so, with a reduction of k, in so many groups; does products of this kind; its defines. */
bool moii_thin_takes(const moi_format *f, int64_t k, int64_t groups);
bool moii_thin_fits(const moii_tensor_product *p);
/* mixed_sm90's A lies in an order of so many values of a row: a row of A as the product reads it, of k values. */
enum { MOII_PLACED = 128 };
static inline int64_t moii_tensor_across(const moii_tensor_product *p, int64_t k) { return p->mixed && !p->halves ? moii_round_up(k, MOII_PLACED) : k; }
/* Whether mixed_sm90 or halves_sm90, for which A becomes FP16 first, does this product, which fits, and faster than others do; if so, whether the latter. */
bool moii_mixed_pays(const moii_tensor_product *p);
bool moii_mixed_halves(const moii_tensor_product *p);
moii_tensor_tile moii_mixed_tile(const moii_tensor_product *p);
/* Rows of a group as they are expected, in the mean. */
int64_t moii_tensor_group_rows(const moii_tensor_product *p);
/* The kernel of such a tile; NULL: the row's own. */
const moii_kernel *moii_thin_kernel_of(const moii_tensor_product *p, const moii_tensor_tile *t);
void moii_thin_defines(const moii_tensor_product *p, const moii_tensor_tile *t, char defines[MOII_DEFINES]);
/* For a row's `explain`: p as it fits. */
void moii_tensor_explain(const moi_ctx *ctx, const moii_tensor_product *p, const moi_explain_config *to);
int moii_tensor_shared(const moii_tensor_product *p, const moii_tensor_tile *t);
void moii_tensor_defines(const moii_tensor_product *p, const moii_tensor_tile *t, char defines[MOII_DEFINES]);

/* Formats of models, for lists of what is compiled ahead. */
#define MOII_TENSOR_ACT { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_COL, 0 }
#define MOII_TENSOR_WEIGHT { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#define MOII_TENSOR_MXFP8 { MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#define MOII_TENSOR_MXFP8_COLS { MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_COL, 0 }
#define MOII_TENSOR_MXFP4 { MOI_RECIPE_MX32, MOI_E2M1, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#define MOII_TENSOR_BF16 { MOI_RECIPE_BF16, MOI_BF16, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }

/* The defines of a product on the devices we know best, for what is compiled ahead of time. */
void moii_tensor_variant(moii_tensor_product *p, moi_dtype out, char defines[MOII_DEFINES]);

moi_status moii_tensor_plan_make(moi_plan *plan, const moii_kernel *kernel, const moii_tensor_product *product);
moi_status moii_tensor_launch(const moi_plan *plan, const char *where, const moii_tensor_run *run, void *workspace, moi_stream stream);

#endif
