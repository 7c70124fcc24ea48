/* SPDX-License-Identifier: Apache-2.0
 * moe.h: the MoE layer as a composition of other operations' plans. */
#ifndef MOII_MOE_H
#define MOII_MOE_H

#include "ctx.h"
#include "format.h"
#include "status.h"

/* The operand formats of one recipe: of activations and weights forward, of gradients backward. */
typedef struct moii_moe_formats {
    moi_format act, weight, grad;
    bool scaled;     /* operands carry scales and exist row-wise and column-wise; otherwise one plain copy serves both */
    moi_dtype inner; /* of gate_up, act and d_act between products: F32 for recipe f32, else BF16 */
} moii_moe_formats;

typedef enum moii_moe_part {
    /* prepare */
    MOII_MOE_Q_GATE_UP, MOII_MOE_Q_DOWN, MOII_MOE_Q_GATE_UP_FORWARD, MOII_MOE_Q_DOWN_FORWARD,
    /* forward */
    MOII_MOE_WIDEN_X, MOII_MOE_LOGITS, MOII_MOE_ROUTE, MOII_MOE_PERMUTE, MOII_MOE_Q_X, MOII_MOE_Q_X_FORWARD, MOII_MOE_UP, MOII_MOE_SWIGLU,
    MOII_MOE_SWIGLU_FORWARD, MOII_MOE_DOWN, MOII_MOE_COMBINE,
    /* backward */
    MOII_MOE_Q_DY, MOII_MOE_D_ACT, MOII_MOE_D_SWIGLU, MOII_MOE_D_SORTED, MOII_MOE_D_DOWN, MOII_MOE_D_GATE_UP, MOII_MOE_D_COMBINE,
    MOII_MOE_D_X, MOII_MOE_D_X_ROUTER, MOII_MOE_D_ROUTER, MOII_MOE_NARROW_DX,
    MOII_MOE_PARTS
} moii_moe_part;

typedef struct moii_moe {
    moii_moe_formats formats;
    bool routed; /* false: one expert, a plain gated MLP */
    moi_plan *part[MOII_MOE_PARTS];
    int64_t part_workspace; /* the largest of the parts */
} moii_moe;

/* A quantised matrix somewhere in memory. */
typedef struct moii_moe_operand { void *data, *scale; int64_t ld; } moii_moe_operand;

/* What the forward pass leaves for the backward pass; `rows` = tokens * top_k. */
typedef struct moii_moe_saved {
    int64_t *offsets;         /* [e + 1] */
    int32_t *ids, *row_of;    /* [t, top_k], routed only, like all of this block */
    int32_t *token_of;        /* [rows] */
    float *weights, *probs;   /* [t, top_k], [t, e] */
    void *y_sorted;           /* [rows, h] in io's type: the gradient of the routing weights needs it */
    moii_moe_operand x, act;  /* for wgrad: column-wise [h, rows], [f, rows], or plain [rows, h], [rows, f] */
    void *gate_up;            /* [rows, 2 f] */
} moii_moe_saved;

/* Both matrices of prepared weights; `t` only for scaled recipes: the transposed, column-wise quantised form. */
typedef struct moii_moe_prepared { moii_moe_operand gate_up, down, gate_up_t, down_t; } moii_moe_prepared;

/* A cursor that hands out aligned pieces of a buffer; base NULL: only counts. */
typedef struct moii_arena { char *base; int64_t used; } moii_arena;
static inline void *moii_arena_take(moii_arena *a, int64_t bytes)
{
    void *p = a->base ? a->base + a->used : NULL;
    a->used += moii_round_up(bytes, MOII_WORKSPACE_ALIGN);
    return p;
}
moii_moe_operand moii_arena_operand(moii_arena *a, const moi_format *f, int64_t rows, int64_t cols, int64_t groups);

/* Each lays its part out behind what the arena has already given. */
void moii_moe_lay_saved(const moi_plan *plan, moii_arena *a, int64_t tokens, bool training, moii_moe_saved *out);
void moii_moe_lay_prepared(const moi_plan *plan, moii_arena *a, bool for_backward, moii_moe_prepared *out);
int64_t moii_moe_forward_scratch(const moi_plan *plan, int64_t tokens, bool training);
int64_t moii_moe_backward_scratch(const moi_plan *plan, int64_t tokens);

static inline const moii_moe *moii_moe_of(const moi_plan *plan) { return plan->state; }
/* The caller's x is the first product's operand as it is. */
static inline bool moii_moe_reads_x(const moi_plan *plan)
{
    const moii_moe *m = plan->state;
    return !m->routed && !m->formats.scaled && m->formats.act.elem == plan->desc.moe.io;
}
static inline moi_operand moii_moe_read(moii_moe_operand o) { return (moi_operand){ o.data, o.scale, o.ld }; }
static inline moi_result moii_moe_write(moii_moe_operand o) { return (moi_result){ o.data, o.scale, o.ld }; }

/* The checks that forward and backward share; copies the caller's args. */
moi_status moii_moe_take_args(const moi_plan *plan, const char *call, const moi_moe_args *args, moi_moe_args *out, bool backward,
                              const void *workspace, int64_t workspace_bytes, moi_stream stream);

#endif
