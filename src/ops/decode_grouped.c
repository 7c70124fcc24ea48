/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_grouped.h"

#include <math.h>
#include <stdlib.h>

#include "log.h"
#include "moe.h"

enum { ROUTE, PERMUTE, TAKE_X, COMBINE, PARTS };
enum { UP, DOWN, PRODUCTS };
enum { SIZES = 7 };
typedef enum take { AS_IT_IS, QUANTIZED, WIDENED } take; /* how x becomes the first product's operand */

/* For so many tokens or fewer; u: what the first one leaves for the second. */
typedef struct product { int64_t tokens; moi_format u; moi_plan *plan[PRODUCTS]; } product;

typedef struct state {
    moi_format act; /* of x in the products */
    take take;
    moi_plan *part[PARTS];
    product product[SIZES]; /* ascending; the last one: for all */
    int sizes;
    int64_t part_workspace; /* the largest of the parts */
} state;

/* Where a step's scratch lies; laid out once for counting (base NULL) and once for running. */
typedef struct scratch {
    int32_t *ids, *row_of, *token_of;
    int64_t *offsets;
    float *weights, *probs;
    moii_moe_operand x, u;
    void *y_sorted;
    void *parts; /* the parts' workspace */
} scratch;

static const product *product_for(const state *s, int64_t tokens)
{
    const product *p = s->product;
    while (tokens > p->tokens) p++;
    return p;
}

static int64_t lay(const moi_plan *plan, const state *s, char *base, int64_t tokens, scratch *at)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    int64_t slots = tokens * d->top_k;
    moii_arena a = { base, 0 };
    *at = (scratch){ 0 };
    if (d->from_logits) {
        at->ids = moii_arena_take(&a, slots * 4);
        at->weights = moii_arena_take(&a, slots * 4);
        at->probs = moii_arena_take(&a, tokens * d->experts * 4);
    }
    at->offsets = moii_arena_take(&a, (d->experts + 1) * 8);
    at->row_of = moii_arena_take(&a, slots * 4);
    at->token_of = moii_arena_take(&a, slots * 4);
    if (s->take != AS_IT_IS) at->x = moii_arena_operand(&a, &s->act, tokens, d->hidden, 0);
    at->u = moii_arena_operand(&a, &product_for(s, tokens)->u, slots, d->width, 0);
    at->y_sorted = moii_arena_take(&a, slots * moi_row_bytes(d->out, d->hidden));
    at->parts = base ? base + a.used : NULL;
    return a.used;
}

/* BF16 beside weights of mx32; else activations as the weights are, in vectors, and in 8 bits where those are scaled: what one product takes together. */
static moi_format act_of(const moi_format *weights)
{
    if (weights->recipe == MOI_RECIPE_MX32) return moii_plain_format(MOI_BF16);
    moi_format f = *weights;
    if (!moii_format_plain(&f)) f.elem = MOI_E4M3;
    f.block = MOI_BLOCK_VECTOR;
    f.layout = MOI_LAYOUT_ROW;
    return f;
}

static moi_status plan_x(const moi_plan *plan, state *s)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    if (moii_format_plain(&s->act) && s->act.elem == d->x) return MOI_OK;
    if (s->act.elem != MOI_F32) {
        moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
        s->take = QUANTIZED;
        q.in = d->x, q.rowwise = s->act, q.want = MOI_WANT_ROWWISE, q.max_rows = d->max_tokens, q.cols = d->hidden;
        return moi_quantize_plan_create(&s->part[TAKE_X], plan->ctx, &q);
    }
    moi_dequantize_desc w = MOI_DEQUANTIZE_DESC_INIT;
    s->take = WIDENED;
    w.in = moii_plain_format(d->x), w.max_rows = d->max_tokens, w.cols = d->hidden;
    return moi_dequantize_plan_create(&s->part[TAKE_X], plan->ctx, &w);
}

/* Rows of all experts as products are cut for them: half of a router's experts have more than the mean, and a tile that takes most of those reads their
 * weights once.  So each counts as the mean and three quarters of its deviation, which is its root. */
static int64_t usual_rows(const moi_moe_decode_desc *d, int64_t tokens)
{
    double slots = (double)(tokens * d->top_k);
    return (int64_t)(slots + 0.75 * sqrt(slots * (double)d->experts));
}

static moi_status plan_product(const moi_plan *plan, const state *s, product *p)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    moi_ggemm_desc g = MOI_GGEMM_DESC_INIT;
    g.expected_rows = usual_rows(d, p->tokens);
    g.a = s->act, g.rowwise = p->u, g.b = d->weights, g.out = d->x, g.groups = d->experts, g.max_rows = p->tokens * d->top_k;
    g.n = 2 * d->width, g.k = d->hidden, g.gather_rows = p->tokens, g.swiglu = true;
    MOII_TRY(moi_ggemm_plan_create(&p->plan[UP], plan->ctx, &g));
    g.a = p->u, g.out = d->out, g.n = d->hidden, g.k = d->width, g.gather_rows = 0, g.swiglu = false;
    return moi_ggemm_plan_create(&p->plan[DOWN], plan->ctx, &g);
}

/* How products are cut, and whether weights of mx32 become BF16 first, or E2M1 E4M3, follows from how many rows there can be: what suits thousands of tokens
 * takes longer for a hundred than the decode rows.  So there are products for as few rows of each expert in the mean as mostly fit a tile of 64, of 128, of
 * 192 (of mx32: of 64, 96, 128, 144; of E2M1 of 32, too), for fewer than copies of weights are worth it for, and for all: as the products of Hopper change
 * their ways. */
static moi_status plan_sizes(const moi_plan *plan, state *s)
{
    static const int64_t ends[][SIZES] = { { 58, 119, 181, 511, INT64_MAX }, { 58, 78, 116, 146, 1669, INT64_MAX }, { 28, 58, 78, 116, 146, 1669, INT64_MAX } };
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    const int64_t *rows = ends[d->weights.recipe != MOI_RECIPE_MX32 ? 0 : d->weights.elem == MOI_E2M1 ? 2 : 1];
    for (int i = 0; i < SIZES; i++) {
        int64_t slots = moii_mul(rows[i], d->experts), tokens = slots < 0 ? d->max_tokens : moii_min(slots / d->top_k, d->max_tokens);
        if (tokens < d->grouped_from) continue; /* the decode row's */
        product *p = &s->product[s->sizes++];
        p->tokens = tokens, p->u = s->act;
        /* whole runs of scales come by copies then, which few rows gain nothing by */
        if (i > 0 && d->weights.recipe == MOI_RECIPE_BLK128 && d->weights.block == MOI_BLOCK_SQUARE) p->u.layout = MOI_LAYOUT_COL;
        MOII_TRY(plan_product(plan, s, p));
        if (tokens == d->max_tokens) break;
    }
    return MOI_OK;
}

static moi_status plan_lists(const moi_plan *plan, state *s)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    moi_permute_desc p = MOI_PERMUTE_DESC_INIT;
    p.dtype = d->out, p.max_tokens = d->max_tokens, p.hidden = d->hidden, p.experts = d->experts, p.top_k = d->top_k;
    MOII_TRY(moi_permute_plan_create(&s->part[PERMUTE], plan->ctx, &p));
    MOII_TRY(moi_combine_plan_create(&s->part[COMBINE], plan->ctx, &p));
    if (!d->from_logits) return MOI_OK;
    moi_route_desc r = MOI_ROUTE_DESC_INIT;
    r.max_tokens = d->max_tokens, r.experts = d->experts, r.top_k = d->top_k, r.renormalize = d->renormalize;
    return moi_route_plan_create(&s->part[ROUTE], plan->ctx, &r);
}

static void unplan(moi_plan *grouped)
{
    state *s = grouped->state;
    for (int i = 0; s && i < PARTS; i++) moi_plan_free(s->part[i]);
    for (int i = 0; s && i < s->sizes * PRODUCTS; i++) moi_plan_free(s->product[i / PRODUCTS].plan[i % PRODUCTS]);
    free(s);
}

static moi_status plan_parts(moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    MOII_TRY(moii_plan_make(&plan->grouped, plan->ctx, MOII_OP_DECODE_GROUPED, d, sizeof *d, NULL, 0));
    state *s = calloc(1, sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "no memory");
    plan->grouped->state = s, plan->grouped->unplan = unplan;
    MOII_REQUIRE(d->weights.elem != MOI_F16, MOI_ERR_UNSUPPORTED, "f16 weights are for the decode rows alone");
    s->act = act_of(&d->weights);
    MOII_TRY(plan_x(plan, s));
    MOII_TRY(plan_sizes(plan, s));
    MOII_TRY(plan_lists(plan, s));
    for (int i = 0; i < PARTS; i++) s->part_workspace = moii_max(s->part_workspace, moi_plan_workspace_bytes(s->part[i]));
    for (int i = 0; i < s->sizes * PRODUCTS; i++)
        s->part_workspace = moii_max(s->part_workspace, moi_plan_workspace_bytes(s->product[i / PRODUCTS].plan[i % PRODUCTS]));
    scratch at;
    plan->workspace_bytes = moii_max(plan->workspace_bytes, lay(plan, s, NULL, d->max_tokens, &at) + s->part_workspace);
    return MOI_OK;
}

/* The row alone, planned anew: with products behind it, it may have made do with fewer tokens at a time. */
static moi_status plan_alone(moi_plan *plan)
{
    plan->desc.moe_decode.grouped_from = 0;
    if (plan->unplan) plan->unplan(plan);
    plan->unplan = NULL, plan->state = NULL, plan->workspace_bytes = 0;
    return plan->impl->plan ? plan->impl->plan(plan) : MOI_OK;
}

moi_status moii_decode_grouped_plan(moi_plan *plan)
{
    moi_moe_decode_desc *d = &plan->desc.moe_decode;
    bool chosen_here = d->grouped_from == MOI_GROUPED_AUTO;
    if (chosen_here) d->grouped_from = plan->impl->grouped_from ? plan->impl->grouped_from(plan) : 0;
    if (d->grouped_from == 0 || d->grouped_from > d->max_tokens) return MOI_OK;
    moi_status status = plan_parts(plan);
    if (!status) return MOI_OK;
    moi_plan_free(plan->grouped);
    plan->grouped = NULL;
    if (!chosen_here || status != MOI_ERR_UNSUPPORTED) return moii_fail(status, "moe_decode plan: grouped_from: %s", moi_last_error());
    moii_log(plan->ctx, MOI_LOG_DEBUG, "dispatch: moe_decode takes no grouped products: %s", moi_last_error());
    return plan_alone(plan);
}

/* x as the first product's operand. */
static moi_status take_x(const moi_plan *plan, const moi_moe_decode_args *a, const scratch *at, moi_operand *x, moi_stream stream)
{
    const state *s = plan->grouped->state;
    const moi_plan *part = s->part[TAKE_X];
    *x = s->take == AS_IT_IS ? (moi_operand){ a->x, NULL, 0 } : moii_moe_read(at->x);
    if (s->take == AS_IT_IS) return MOI_OK;
    if (s->take == QUANTIZED) {
        moi_quantize_args q = { .size = sizeof q, .rows = a->tokens, .in = { a->x, NULL, 0 }, .rowwise = moii_moe_write(at->x) };
        return moi_quantize_run(part, &q, at->parts, s->part_workspace, stream);
    }
    moi_dequantize_args w = { .size = sizeof w, .rows = a->tokens, .in = { a->x, NULL, 0 }, .out = moii_moe_write(at->x) };
    return moi_dequantize_run(part, &w, at->parts, s->part_workspace, stream);
}

static moi_status multiply(const moi_plan *plan, const moi_moe_decode_args *a, const scratch *at, moi_operand x, moi_stream stream)
{
    const state *s = plan->grouped->state;
    int64_t slots = a->tokens * plan->desc.moe_decode.top_k;
    const product *p = product_for(s, a->tokens);
    moi_ggemm_args up = { .size = sizeof up, .rows = slots, .offsets = at->offsets, .a = x, .b = a->gate_up, .rows_of_a = at->token_of, .a_rows = a->tokens,
                          .rowwise = moii_moe_write(at->u) };
    MOII_TRY(moi_ggemm_run(p->plan[UP], &up, at->parts, s->part_workspace, stream));
    moi_ggemm_args down = { .size = sizeof down, .rows = slots, .offsets = at->offsets, .a = moii_moe_read(at->u), .b = a->down, .d = at->y_sorted };
    return moi_ggemm_run(p->plan[DOWN], &down, at->parts, s->part_workspace, stream);
}

moi_status moii_decode_grouped_run(const moi_plan *plan, const moi_moe_decode_args *a, void *workspace, moi_stream stream)
{
    const state *s = plan->grouped->state;
    scratch at;
    lay(plan, s, workspace, a->tokens, &at);
    const int32_t *ids = a->ids;
    const float *weights = a->weights;
    if (plan->desc.moe_decode.from_logits) {
        moi_route_args r = { .size = sizeof r, .tokens = a->tokens, .logits = a->logits, .probs = at.probs, .ids = a->ids_out ? a->ids_out : at.ids,
                             .weights = a->weights_out ? a->weights_out : at.weights };
        MOII_TRY(moi_route_run(s->part[ROUTE], &r, at.parts, s->part_workspace, stream));
        ids = r.ids, weights = r.weights;
    }
    if (plan->desc.moe_decode.hidden == 0) return MOI_OK;
    moi_permute_args p = { .size = sizeof p, .tokens = a->tokens, .ids = ids, .offsets = at.offsets, .row_of = at.row_of, .token_of = at.token_of };
    MOII_TRY(moi_permute_run(s->part[PERMUTE], &p, at.parts, s->part_workspace, stream));
    moi_operand x;
    MOII_TRY(take_x(plan, a, &at, &x, stream));
    MOII_TRY(multiply(plan, a, &at, x, stream));
    moi_combine_args c = { .size = sizeof c, .tokens = a->tokens, .row_of = at.row_of, .weights = weights, .y_sorted = at.y_sorted, .y = a->y };
    return moi_combine_run(s->part[COMBINE], &c, at.parts, s->part_workspace, stream);
}
