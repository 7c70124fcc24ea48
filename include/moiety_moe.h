/* SPDX-License-Identifier: Apache-2.0
 *
 * moiety_moe.h: the Mixture-of-Experts layer: its parts, the layer forward and backward, decoding a few tokens.  Part of moiety.h,
 * which says how to use all this, what the letters mean, and what holds for every function here.
 */
#ifndef MOIETY_MOE_H
#define MOIETY_MOE_H

#include "moiety_ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parts of a MoE layer ---------------------------------------------------------------------------------------- */

typedef struct moi_route_desc {
    uint32_t size;
    const char *row;
    int64_t max_tokens, experts, top_k;
    bool renormalize; /* weights of a token divided by their sum ("norm_topk_prob") */
    float aux_coef;   /* factor of the load-balancing loss; 0: none */
} moi_route_desc;
#define MOI_ROUTE_DESC_INIT { .size = sizeof(moi_route_desc) }

typedef struct moi_route_args {
    uint32_t size;
    int64_t tokens;
    const float *logits; /* [t, e] */
    float *probs;        /* [t, e]; written forward, read backward */
    int32_t *ids;        /* [t, top_k], best first */
    float *weights;      /* [t, top_k] */
    float *aux_loss;     /* one float, or NULL */
    const float *d_weights; /* backward: [t, top_k] */
    float *d_logits;        /* backward: [t, e], overwritten */
} moi_route_args;

/* Computes  p = softmax(logits) per token; ids = the top_k largest p, the lower index first where equal, NaN last;
 *           w = p[ids], divided by their sum if renormalize.  aux = aux_coef * e * sum_e (count_e / t) * mean_t p[t][e].
 *           Backward: d_logits for d_weights and for aux (with upstream gradient 1; count_e is constant).
 * Requires  1 <= top_k <= experts.   Errors ARG, SHAPE.
 * Promise   P:route.ids  every id is in 0..e-1 and no token has one twice, whatever the logits.
 *           P:route.nan  NaN in one token's logits reaches only that token's weights (and aux).
 * Source    Switch Transformer, arXiv:2101.03961, eq. 4-6. */
MOI_API moi_status moi_route_plan_create(moi_plan **out, moi_ctx *ctx, const moi_route_desc *desc);
MOI_API moi_status moi_route_run(const moi_plan *plan, const moi_route_args *args, void *workspace,
                                 int64_t workspace_bytes, moi_stream stream);
MOI_API moi_status moi_route_backward_run(const moi_plan *plan, const moi_route_args *args, void *workspace,
                                          int64_t workspace_bytes, moi_stream stream);

typedef struct moi_permute_desc {
    uint32_t size;
    const char *row;
    moi_dtype dtype; /* F32 or BF16, of x, y and their gradients */
    int64_t max_tokens, hidden, experts, top_k;
} moi_permute_desc;
#define MOI_PERMUTE_DESC_INIT { .size = sizeof(moi_permute_desc), .dtype = MOI_F32 }

typedef struct moi_permute_args {
    uint32_t size;
    int64_t tokens;
    const int32_t *ids; /* [t, top_k]; -1 skips a slot */
    const void *x;      /* [t, h], or NULL: only the map */
    void *x_sorted;     /* [t * top_k, h]: rows in order of expert, then token */
    int64_t *offsets;   /* [e + 1] */
    int32_t *row_of;    /* [t, top_k]: where the token's copy went; -1 of a skipped slot */
    int32_t *token_of;  /* [t * top_k]: where a row came from */
} moi_permute_args;

/* Computes  a stable counting sort of (token, slot) by expert, and the copies of x in that order.  Behind the last offset, where slots are
 *           skipped, x_sorted and token_of keep what they held.
 * Errors    ARG, SHAPE.   Promise  P:permute.map  row_of and token_of are inverse; an id outside -1..e-1 is an ARG error on
 *           the CPU back end and skips its slot elsewhere. */
MOI_API moi_status moi_permute_plan_create(moi_plan **out, moi_ctx *ctx, const moi_permute_desc *desc);
MOI_API moi_status moi_permute_run(const moi_plan *plan, const moi_permute_args *args, void *workspace,
                                   int64_t workspace_bytes, moi_stream stream);

typedef struct moi_combine_args {
    uint32_t size;
    int64_t tokens;
    const int32_t *row_of;   /* [t, top_k], -1 skips a slot; or NULL: t * top_k + s, as a product with scatter_rows can leave them */
    const float *weights;    /* [t, top_k], or NULL: all 1 */
    const void *y_sorted;    /* [t * top_k, h] */
    void *y;                 /* [t, h] */
    const void *d_y;         /* backward: [t, h] */
    void *d_y_sorted;        /* backward: [t * top_k, h] */
    float *d_weights;        /* backward: [t, top_k], or NULL */
} moi_combine_args;

/* Computes  y[t] = sum over slots s, ascending, of weights[t][s] * y_sorted[row_of[t][s]] in FP32, rounded once.
 *           Backward: d_y_sorted[row_of[t][s]] = weights[t][s] * d_y[t]; d_weights[t][s] = d_y[t] . y_sorted[row_of[t][s]].
 *           A skipped slot adds nothing, writes no row of d_y_sorted, and its d_weights is 0.
 *           With weights NULL, the forward is also the gradient of moi_permute.
 * Errors    ARG, SHAPE.   Takes a plan of moi_combine_plan_create, described like a permutation. */
MOI_API moi_status moi_combine_plan_create(moi_plan **out, moi_ctx *ctx, const moi_permute_desc *desc);
MOI_API moi_status moi_combine_run(const moi_plan *plan, const moi_combine_args *args, void *workspace,
                                   int64_t workspace_bytes, moi_stream stream);
MOI_API moi_status moi_combine_backward_run(const moi_plan *plan, const moi_combine_args *args, void *workspace,
                                            int64_t workspace_bytes, moi_stream stream);

typedef struct moi_swiglu_desc {
    uint32_t size;
    const char *row;
    moi_format in;               /* of gate_up: F32, BF16, or quantised row-wise (dequantised on the fly) */
    moi_dtype out;               /* of the plain result: F32 or BF16 */
    moi_format rowwise, colwise; /* of the quantised results */
    uint32_t want;               /* MOI_WANT_ROWWISE | MOI_WANT_COLWISE, 0: only the plain result */
    int64_t max_rows, width;     /* f */
    int64_t groups;              /* as moi_quantize_desc */
    moi_mx_scales rowwise_mx, colwise_mx; /* as moi_quantize_desc, FREE or PER_128 */
} moi_swiglu_desc;
#define MOI_SWIGLU_DESC_INIT { .size = sizeof(moi_swiglu_desc), .out = MOI_F32 }

typedef struct moi_swiglu_args {
    uint32_t size;
    int64_t rows;
    moi_operand gate_up;         /* [rows, 2 f]: gate, then up */
    void *plain;                 /* forward [rows, f], backward [rows, 2 f]; dense; NULL: not wanted */
    moi_result rowwise, colwise; /* quantised forms of the same result */
    const void *d_act;           /* backward: [rows, f] in desc.out's type, dense */
    const int64_t *offsets;
} moi_swiglu_args;

/* Computes  act = silu(gate) * up, silu(x) = x / (1 + exp(-x)), in FP32; quantised as moi_quantize_run does.
 *           Backward: d_gate = d_act * up * s (1 + gate (1 - s)), s = 1 / (1 + exp(-gate)); d_up = d_act * silu(gate); the
 *           result [rows, 2 f] is given plain and/or quantised like the forward one.  Quantisation reads the FP32
 *           value, or its BF16 rounding where out is BF16.
 * Errors    ARG, SHAPE, ALIGN, UNSUPPORTED.   Promise  P:swiglu.bits  every row gives the same bits; NaN is 0x7FFFFFFF or
 *           0x7FFF.  P:swiglu.bound  before rounding to `out`, act and d_up are within 8 * 2^-24 relative of the formulas,
 *           d_gate within 12 * 2^-24 of |d_act * up| s (1 + |gate| (1 - s)); all within (1 + |gate|) (1 + |up|) 2^-149 more
 *           where something is subnormal.  P:swiglu.fused  the quantised results are those of moi_quantize_run on the
 *           plain one, bit for bit. */
MOI_API moi_status moi_swiglu_plan_create(moi_plan **out, moi_ctx *ctx, const moi_swiglu_desc *desc);
MOI_API moi_status moi_swiglu_run(const moi_plan *plan, const moi_swiglu_args *args, void *workspace,
                                  int64_t workspace_bytes, moi_stream stream);
MOI_API moi_status moi_swiglu_backward_run(const moi_plan *plan, const moi_swiglu_args *args, void *workspace,
                                           int64_t workspace_bytes, moi_stream stream);

/* ---- the whole layer --------------------------------------------------------------------------------------------- */

typedef struct moi_moe_desc {
    uint32_t size;
    int64_t max_tokens, hidden, width, experts, top_k;
    bool renormalize;
    float aux_coef;
    moi_recipe recipe;
    moi_dtype elem_forward, elem_gradient; /* mx32 and blk128: of activations and weights, and of dY; default E4M3 */
    moi_round round;                       /* mx32 */
    uint32_t flags;                        /* MOI_SCALE_POW2, MOI_NONFINITE_LENIENT */
    moi_dtype io;                          /* of x, y, dy, dx: F32 or BF16 */
} moi_moe_desc;
#define MOI_MOE_DESC_INIT { .size = sizeof(moi_moe_desc), .recipe = MOI_RECIPE_MX32, .elem_forward = MOI_E4M3, \
                            .elem_gradient = MOI_E4M3, .io = MOI_F32 }

typedef struct moi_moe_args {
    uint32_t size;
    int64_t tokens;
    const void *x;         /* [t, h] */
    const float *router;   /* [e, h]; not read if experts = 1 */
    const void *prepared;  /* written by moi_moe_prepare */
    void *saved;           /* moi_moe_saved_bytes, written forward, read backward; NULL forward: inference */
    void *y;               /* [t, h] */
    float *aux_loss;       /* one float, or NULL */
    const void *d_y;       /* backward: [t, h] */
    void *d_x;             /* backward: [t, h], overwritten */
    float *d_router;       /* backward: [e, h], added to */
    float *d_gate_up;      /* backward: [e, 2 f, h], added to */
    float *d_down;         /* backward: [e, h, f], added to */
} moi_moe_args;

/* Computes  y[t] = sum_s w[t][s] * down_e( silu(x gate_e^T) * (x up_e^T) ), e = ids[t][s]; see route, swiglu, combine.
 *           Each product's operands are quantised along that product's own reduction: x and weights for fprop, dY and
 *           transposed weights for dgrad, transposed dY and x for wgrad.  Router, routing weights, SwiGLU, accumulators
 *           and weight gradients are FP32.  experts = 1 with top_k = 1 is a plain gated MLP and has no router.
 * Shapes    gate_up masters [e, 2 f, h] FP32: gate rows, then up rows; down masters [e, h, f] FP32.
 * Memory    moi_moe_prepare turns FP32 masters into the operands of the recipe, once per optimiser step, in
 *           moi_moe_prepared_bytes; with transposed forms if for_backward.  saved: moi_moe_saved_bytes(plan, tokens).
 * Errors    ARG, SHAPE, ALIGN, UNSUPPORTED, WORKSPACE.
 * Promise   P:moe.grad  gradients of recipe F32 agree with finite differences and with float64.
 *           P:moe.saved  backward reads nothing of the forward but x, prepared, router and saved. */
MOI_API moi_status moi_moe_plan_create(moi_plan **out, moi_ctx *ctx, const moi_moe_desc *desc);
MOI_API int64_t moi_moe_prepared_bytes(const moi_plan *plan, bool for_backward);
MOI_API int64_t moi_moe_saved_bytes(const moi_plan *plan, int64_t tokens);
MOI_API moi_status moi_moe_prepare(const moi_plan *plan, const float *gate_up, const float *down, void *prepared,
                                   bool for_backward, void *workspace, int64_t workspace_bytes, moi_stream stream);
MOI_API moi_status moi_moe_forward_run(const moi_plan *plan, const moi_moe_args *args, void *workspace,
                                       int64_t workspace_bytes, moi_stream stream);
MOI_API moi_status moi_moe_backward_run(const moi_plan *plan, const moi_moe_args *args, void *workspace,
                                        int64_t workspace_bytes, moi_stream stream);

typedef struct moi_moe_decode_desc {
    uint32_t size;
    const char *row;
    moi_format weights;  /* of gate_up and down, row-wise: F32, BF16, F16, mx32 or blk128 of any element */
    moi_dtype x;         /* BF16 or F32: the activations; rounded only by what grouped_from allows */
    moi_dtype out;       /* F32 or BF16 */
    int64_t max_tokens, hidden, width, experts, top_k;
    bool from_logits;    /* runs take router logits and route as moi_route_run does, instead of ids and weights */
    bool renormalize;    /* as moi_route_desc; only with from_logits */
    int64_t grouped_from; /* runs of so many tokens and more take grouped products, see P:decode.grouped; 0: none do; MOI_GROUPED_AUTO: those do for
                             which the plan expects them to be faster, and none where no row can form them */
} moi_moe_decode_desc;
enum { MOI_GROUPED_AUTO = -1 };
#define MOI_MOE_DECODE_DESC_INIT { .size = sizeof(moi_moe_decode_desc), .x = MOI_BF16, .out = MOI_F32 }

/* The weights of one expert where they lie (in a mapped file, for example): gate and up [f, h], down [h, f]; dense, data and
 * scales with their elements' alignment. */
typedef struct moi_expert_operands { moi_operand gate, up, down; } moi_expert_operands;

typedef struct moi_moe_decode_args {
    uint32_t size;
    int64_t tokens;
    const void *x;          /* [t, h] */
    const int32_t *ids;     /* [t, top_k]; an expert may repeat; -1 skips a slot.  NULL if from_logits */
    const float *weights;   /* [t, top_k].  NULL if from_logits */
    moi_operand gate_up;    /* [e, 2 f, h], dense, each expert's scales in one run of moi_scale_bytes(2 f, h) */
    moi_operand down;       /* [e, h, f] */
    void *y;                /* [t, h] */
    const moi_expert_operands *apart; /* [e] instead of gate_up and down, or NULL */
    const float *logits;    /* [t, e] if from_logits, else NULL */
    int32_t *ids_out;       /* if from_logits: [t, top_k], the chosen experts, best first, or NULL */
    float *weights_out;     /* if from_logits: [t, top_k], or NULL */
} moi_moe_decode_args;

/* Computes  u[t][s][i] = silu(gate_e[i] . x[t]) * (up_e[i] . x[t]), rounded to x's type;
 *           y[t][j] = sum over s of weights[t][s] * (down_e[j] . u[t][s]) in one FP32 accumulator per output.
 *           Two passes organised around outputs: no gather buffer, no per-expert output buffer.
 *           from_logits: ids and weights are those of moi_route for these logits.  On a GPU few tokens need no launch more for that.
 * Requires  top_k <= experts if from_logits.
 * Errors    ARG (an id >= experts, CPU back end), SHAPE, ALIGN, UNSUPPORTED, WORKSPACE.
 * Promise   P:decode.bound  the bound of gemm for each dot product plus 2^-100 for FP32's end, and 2^-8 relative per u for
 *           its BF16 rounding.
 *           P:decode.batch  a token's bits do not depend on the rest of the batch, nor on max_tokens among plans with the same row.
 *           P:decode.grouped  runs that take grouped products are outside of these two: y has the bits of moi_permute_run, moi_quantize_run of x row-wise,
 *           moi_ggemm_run of gathered rows with swiglu (out: x's type), moi_ggemm_run (out: desc.out) and moi_combine_run.  Beside mx32 weights x and u
 *           are BF16, beside blk128 ones E4M3 with the weights' flags, blocks in vectors, beside weights that are not scaled these' type.  Several times
 *           faster where many tokens share each expert's weights, as exact as such activations are.  Not for F16 weights and `apart`.
 *           P:decode.logits  from_logits, ids_out, weights_out and y have the bits of moi_route_run and this on its results.
 * Source    "warp decode", cursor.com/blog, 2026. */
MOI_API moi_status moi_moe_decode_plan_create(moi_plan **out, moi_ctx *ctx, const moi_moe_decode_desc *desc);
MOI_API moi_status moi_moe_decode_run(const moi_plan *plan, const moi_moe_decode_args *args, void *workspace,
                                      int64_t workspace_bytes, moi_stream stream);
/* The fewest tokens for which a run of this plan takes grouped products; 0: none does. */
MOI_API int64_t moi_moe_decode_grouped_from(const moi_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
