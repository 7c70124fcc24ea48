/* SPDX-License-Identifier: Apache-2.0
 *
 * moiety.h: kernels for Mixture-of-Experts models in 8 bits.  Stable part of libmoiety.
 *
 * How to use it
 *   moi_ctx_create            choose a back end, start it
 *   fill a *_desc             describe the problem: sizes, formats; MOI_<OP>_DESC_INIT sets .size and defaults
 *   moi_<op>_plan_create      check it, choose an implementation (a "row"), state the workspace
 *   moi_plan_workspace_bytes  the caller allocates it once
 *   moi_<op>_run              enqueue; allocates nothing, compiles nothing, waits for nothing
 *   moi_plan_free, moi_ctx_free
 *
 *   moi_gemm_desc d = MOI_GEMM_DESC_INIT;
 *   d.n = 2048; d.k = 7168; d.max_m = 8192; d.a = MOI_FORMAT_MXFP8; d.b = MOI_FORMAT_MXFP8; d.out = MOI_BF16;
 *   moi_plan *p;
 *   if (moi_gemm_plan_create(&p, ctx, &d)) { puts(moi_last_error()); return 1; }
 *   moi_gemm_args a = { .size = sizeof a, .m = m, .a = { qa, sa, 0 }, .b = { qb, sb, 0 }, .d = out };
 *   moi_gemm_run(p, &a, workspace, moi_plan_workspace_bytes(p), NULL);
 *
 * Letters: m n k rows, columns, reduction; g groups; t tokens; e experts; h hidden width; f expert width.
 * Sizes are int64_t and count elements unless the name ends in _bytes.  Matrices are row-major; ld counts elements
 * between rows and 0 means "dense".  Every caller-filled struct begins with its size and only grows at its end.
 *
 * Each function is documented by the same lines: Computes, Shapes, Requires, Memory, Async, Errors, Promise, Source.
 * Those that hold for every function are said once, here:
 *   Memory   The caller owns every buffer.  The library allocates device memory only in moi_ctx_create and moi_buf_alloc.
 *            A workspace holds nothing from one run to the next: runs that follow each other on one stream may share one.  Two
 *            that run at the same time must not: both may leave out parts of their results, and so may runs behind them.
 *   Async    *_run enqueues on `stream` (NULL: the back end's default) and may be captured in a CUDA graph.  The CPU back
 *            end has finished when the call returns and takes only NULL.
 *   Errors   All arguments are checked before anything is enqueued, so a refused call leaves its outputs untouched.
 *   Promise  P:det.  Same plan, same inputs, same device: same bits.   P:guard.  Nothing outside the stated shapes is
 *            read into results or written.   P:empty.  A size of 0 is legal wherever a row or group count is.
 * Pointers must be aligned to 16 bytes, workspaces to 128.  Operands must not overlap outputs unless said otherwise.
 * In every description `row` may name the row to use ("gemm_ref"); NULL lets the library choose.
 *
 * The contract is four files; this one includes the others, in the order in which they are read:
 *   moiety_types.h   status, element types, recipes, formats, scale layouts
 *   moiety_ctx.h     contexts, buffers, plans, compiled kernels, operands
 *   here             quantising and matrix products
 *   moiety_moe.h     the MoE layer: its parts, the whole, decoding
 */
#ifndef MOIETY_H
#define MOIETY_H

#define MOI_VERSION_MAJOR 0
#define MOI_VERSION_MINOR 1
#define MOI_VERSION_PATCH 0

#include "moiety_types.h"
#include "moiety_ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- quantise ---------------------------------------------------------------------------------------------------- */

typedef struct moi_quantize_desc {
    uint32_t size;
    const char *row;
    moi_dtype in;                  /* F32, BF16, F16 */
    moi_format rowwise, colwise;   /* recipes mx32, blk128, or bf16/f32 (a plain conversion) */
    uint32_t want;                 /* MOI_WANT_ROWWISE | MOI_WANT_COLWISE */
    int64_t max_rows, cols;
    int64_t batch;                 /* matrices of the same shape, one after the other, in all buffers; default 1 */
    int64_t groups;                /* > 0: rows are cut by args.offsets and column-wise blocks do not cross groups */
    moi_mx_scales rowwise_mx;      /* equal scales of the row-wise result, which must be mx32 with E4M3 and not lenient */
    moi_mx_scales colwise_mx;      /* of the column-wise one alike; a group's elements are counted from its beginning, and PER_ROW is per group */
} moi_quantize_desc;
#define MOI_QUANTIZE_DESC_INIT { .size = sizeof(moi_quantize_desc), .in = MOI_F32, .want = MOI_WANT_ROWWISE, .batch = 1 }

typedef struct moi_quantize_args {
    uint32_t size;
    int64_t rows;           /* of each matrix, <= max_rows */
    moi_operand in;
    moi_result rowwise;     /* [rows, cols], blocks along cols */
    moi_result colwise;     /* [cols, rows], the transposed matrix, blocks along rows; groups > 0: [cols, moi_ragged_cols(rows)] */
    const int64_t *offsets; /* groups + 1 ascending row offsets in device memory, first 0, last <= rows; else NULL */
} moi_quantize_args;

/* Computes  q[i] = round_elem(v[i] / s), saturating, ties to even, one scale s per block (32, 128 or 128x128 elements;
 *           the last block of a row may be short).  Scales:
 *           mx32    a = max |v|; s = 2^(E - 127) by format.round, E clamped to 0..254.
 *           blk128  s = max(a / max_elem, 2^-126) in FP32, 1 if a = 0; q = round_elem(v * (1 / s)) with 1 / s rounded to
 *                   FP32; with MOI_SCALE_POW2, s is the smallest power of two >= a / max_elem, at least 2^-126.
 *           a = 0: E = 0 and codes of +-0.  NaN or Inf in a block: the scale is NaN (E = 0xFF) and every code is
 *           0x7F for E4M3 and E5M2 and 0 for the others, so that nothing of the block passes for a number.  With
 *           MOI_NONFINITE_LENIENT: NaN does not count for a, Inf counts as the largest finite FP32 for blk128 and gives
 *           E = 254 for mx32; elements are encoded as by moi_encode.
 *           rowwise_mx, colwise_mx: then that result is rebased, as by moi_rebase_run in place with group 128 or 0 (a ragged group's part of each
 *           of its rows by itself); its bound holds.  Products whose operands' scales are equal in each 128 run at FP8 speed: see moi_gemm_desc.mx.
 * Shapes    in [rows, cols]; rowwise.data [rows, cols], colwise.data [cols, rows]; scales as moi_scale_bytes says:
 *           row-wise for (rows, cols, 0), column-wise for (cols, rows, groups).
 *           groups > 0: colwise.data [cols, moi_ragged_cols(colwise, rows, groups)], every group at whole blocks: the rows
 *           offsets[g] .. offsets[g+1] - 1 are elements block * (offsets[g] / block + g) and following of each row.
 * Requires  blk128 squares: both directions hold the same numbers.  groups > 0: column-wise only for 8-bit and plain
 *           elements, vector blocks and layouts ROW and COL; batch = 1; codes and scales that no group owns become 0, those
 *           between a group's last row and the end of its last block too.
 *           Rows of sub-byte elements: ld * bits % 8 = 0; the spare bits of a row's last byte become 0.
 * Speed     colwise.ld as moi_colwise_ld says.  colwise_mx PER_ROW takes a second pass over the column-wise codes.
 * Errors    ARG, SHAPE, ALIGN, UNSUPPORTED.
 * Promise   P:quantize.bits  every row gives the same bits.  P:quantize.once  both results come from one read of `in`.
 *           P:quantize.rebase  those of rowwise_mx and colwise_mx are the bits of quantising, then rebasing.
 * Source    OCP Microscaling Formats v1.0; arXiv:2506.08027; DeepSeek-V3 report, arXiv:2412.19437, section 3.3. */
MOI_API moi_status moi_quantize_plan_create(moi_plan **out, moi_ctx *ctx, const moi_quantize_desc *desc);
MOI_API moi_status moi_quantize_run(const moi_plan *plan, const moi_quantize_args *args, void *workspace,
                                    int64_t workspace_bytes, moi_stream stream);

typedef struct moi_dequantize_desc {
    uint32_t size;
    const char *row;
    moi_format in;
    moi_dtype out; /* F32 or BF16 */
    int64_t max_rows, cols;
} moi_dequantize_desc;
#define MOI_DEQUANTIZE_DESC_INIT { .size = sizeof(moi_dequantize_desc), .out = MOI_F32 }

typedef struct moi_dequantize_args {
    uint32_t size;
    int64_t rows;
    moi_operand in;
    moi_result out;
} moi_dequantize_args;

/* Computes  v[i] = decode(q[i]) * s, rounded once to FP32 and, for BF16, once more.  A NaN scale gives NaN; every
 *           NaN is 0x7FC00000 (0x7FC0).
 * Shapes    in and out [rows, cols].   Errors ARG, SHAPE, ALIGN, UNSUPPORTED.
 * Promise   P:dequantize.bits  every row gives the same bits. */
MOI_API moi_status moi_dequantize_plan_create(moi_plan **out, moi_ctx *ctx, const moi_dequantize_desc *desc);
MOI_API moi_status moi_dequantize_run(const moi_plan *plan, const moi_dequantize_args *args, void *workspace,
                                      int64_t workspace_bytes, moi_stream stream);

typedef struct moi_rebase_desc {
    uint32_t size;
    const char *row;
    moi_format format; /* mx32, E4M3; input and output alike */
    int64_t group;     /* elements that get one common scale: 128, or 0 for the whole row */
    int64_t max_rows, cols;
} moi_rebase_desc;
#define MOI_REBASE_DESC_INIT { .size = sizeof(moi_rebase_desc), .group = 128 }

typedef struct moi_rebase_args {
    uint32_t size;
    int64_t rows;
    moi_operand in;
    moi_result out;     /* may be `in` */
    int32_t *max_shift; /* device; the largest d met, or NULL */
    float *bound;       /* device, [rows, ceil(cols / group)]: no element of the group moved further, or NULL */
} moi_rebase_args;

/* Computes  E* = max E_b over a group's blocks that are neither NaN nor all zero (0 if none); d_b = E* - E_b;
 *           q' = round_e4m3(q * 2^-d_b); E' = E*.  A group with a NaN scale becomes all NaN (E' = 0xFF), its bound too.
 *           bound = 2^-10 * 2^(E* - 127) if some d_b > 0, else 0: q * 2^-d is exact unless it is subnormal in E4M3, where
 *           the rounding step is 2^-9, so an element moves by at most half of it.
 * Shapes    as quantise, row-wise.   Errors ARG, SHAPE, ALIGN, UNSUPPORTED.
 * Promise   P:rebase.bound  no element moves further than `bound`.  P:rebase.bits  every row gives the same bits. */
MOI_API moi_status moi_rebase_plan_create(moi_plan **out, moi_ctx *ctx, const moi_rebase_desc *desc);
MOI_API moi_status moi_rebase_run(const moi_plan *plan, const moi_rebase_args *args, void *workspace,
                                  int64_t workspace_bytes, moi_stream stream);

/* ---- matrix products --------------------------------------------------------------------------------------------- */

/* How a plain (F32, BF16) operand lies in memory; quantised operands are always K-major. */
typedef enum moi_order { MOI_K_MAJOR = 0, MOI_MN_MAJOR = 1 } moi_order;

typedef struct moi_gemm_desc {
    uint32_t size;
    const char *row;
    moi_format a, b;   /* same recipe; blk128: a and b VECTOR or b SQUARE.  Or a plain and b any format: weights alone in 8 or 4 bits */
    moi_order a_order, b_order;
    moi_dtype out;     /* F32 or BF16 */
    bool accumulate;   /* D += instead of D =; needs out F32 */
    int64_t max_m, n, k;
    moi_mx_scales mx;  /* a promise; rows of the cuda back end read only the first of equal scales, and are faster for it */
    /* Of the cuda back end; the CPU's rows ignore both: */
    int32_t sm_limit;  /* no more multiprocessors than this work at a run, so that others are free beside it; 0: all */
    bool overlap;      /* may be started before what the stream holds has ended (programmatic dependent launch), and waits for it before
                          it touches memory: hides the start where its predecessor releases it early, as products do */
} moi_gemm_desc;
#define MOI_GEMM_DESC_INIT { .size = sizeof(moi_gemm_desc), .out = MOI_F32 }

typedef struct moi_gemm_args {
    uint32_t size;
    int64_t m;
    moi_operand a, b;
    void *d;
    int64_t ldd;
} moi_gemm_args;

/* Computes  D[i][j] = (accumulate ? D[i][j] : 0) + sum over l of A[i][l] * B[j][l], A and B the dequantised operands.
 * Shapes    A [m, k] ([k, m] if MN-major), B [n, k] ([k, n] if MN-major), D [m, n]; ld counts the stored rows' stride.
 * Requires  recipe F32: elem F32, BF16: elem BF16; mx32: any two MX elements.  Any n, k; k = 0 gives 0 (or leaves D).
 *           b beside a plain a (mapped weights): data and scales need only their elements' alignment.
 *           cuda back end: there a is BF16 and b mx32 of E4M3 or E5M2, |b| below 2^80, data and scales at multiples of 16 bytes; magnitudes of a below
 *           2^-32 of its row's largest may be rounded to multiples of 2^-39 of it (moi_gemm_explain: "copies").
 *           Dequantised magnitudes of 2^128 and more count as infinite; those below 2^-126 may be rounded to multiples of 2^-133 where
 *           1x32 scaled operands become BF16 on the way (moi_gemm_explain: "copies").
 * Errors    ARG, SHAPE, ALIGN, UNSUPPORTED, WORKSPACE.
 * Promise   P:gemm.bound  |D - exact| <= (k + 4) * 2^-24 * sum |A B| + half a unit of `out`, for the CPU rows; the sum
 *           includes |D| if it is added to, is below 2^128, and no number but 0 in it is below 2^-126 (2^-100 where a is
 *           plain and b scaled).
 *           Rows of the cuda back end: 2^-23 for 2^-24, and what the tensor cores cut off besides: for each 32 products of 8 bits 34 * 2^-13
 *           of the largest of them and of the sum since the last multiple of 128 (1x32 scales: 32; mx PER_ROW: 128 or 256, as
 *           moi_gemm_explain tells), for each 16 of BF16 18 * 2^-25; where they also multiply scales of 1x128 by 1x128
 *           (not GROUP_M; explained, too), 17 * 2^-20 of sum |A B| without |D|.
 *           P:gemm.nan  NaN or Inf in row i of A reaches only row i of D. */
MOI_API moi_status moi_gemm_plan_create(moi_plan **out, moi_ctx *ctx, const moi_gemm_desc *desc);
MOI_API moi_status moi_gemm_run(const moi_plan *plan, const moi_gemm_args *args, void *workspace,
                                int64_t workspace_bytes, moi_stream stream);

/* Computes  tells config->each, name by name, what a plan for the description would be, without making it: "row" (each in order, and why
 *           it is not taken), "chosen", then of the chosen one, or else ("shown") of the first that is only not verified: "workspace" (bytes),
 *           "tile" (each way to cut the work, with the estimate that decides, the best last), "bound", and what else it knows.
 * Errors    ARG, SHAPE: as the plan.  That no row supports it is none: "chosen" is "none" then.
 * Promise   P:gemm.explain  "chosen" and "workspace" are what the plan has. */
MOI_API moi_status moi_gemm_explain(moi_ctx *ctx, const moi_gemm_desc *desc, const moi_explain_config *config);

typedef enum moi_grouping {
    MOI_GROUP_M = 0, /* rows of A and D are cut into groups, each with its own B: fprop, dgrad */
    MOI_GROUP_K = 1, /* the reduction is cut into groups, each with its own D: wgrad */
    MOI_GROUP_MASKED = 2 /* a matrix of A and of D for each group, the first rows of which count: one captured graph for any sizes */
} moi_grouping;

typedef struct moi_ggemm_desc {
    uint32_t size;
    const char *row;
    moi_grouping grouping;
    moi_format a, b;  /* as moi_gemm_desc; GROUP_K: of one recipe */
    moi_order a_order, b_order;
    moi_dtype out;
    bool accumulate;
    int64_t groups;
    int64_t max_rows; /* of the ragged dimension; GROUP_MASKED: of each group's matrix */
    int64_t m;        /* GROUP_K only */
    int64_t n;
    int64_t k;        /* not for GROUP_K */
    moi_mx_scales mx; /* as moi_gemm_desc; a group's elements are counted from its beginning, PER_ROW of GROUP_K is of its part of a row */
    int64_t expected_rows; /* that all groups together will mostly have: how the work is cut is chosen for them; 0: as many as there can be */
    int32_t sm_limit; /* as moi_gemm_desc */
    bool overlap;     /* as moi_gemm_desc */
    int64_t gather_rows; /* > 0, GROUP_M: A has up to so many rows, and args.rows_of_a names the one that each row of the product takes */
    int64_t scatter_rows; /* > 0, GROUP_M: D has up to so many rows, and args.rows_of_d names the one that each row of the product goes to */
    bool weighted;       /* GROUP_M: args.row_weight multiplies the rows of the product */
    bool swiglu;         /* GROUP_M: the product is gate and up, n = 2 f columns; what moi_swiglu_run makes of it is wanted, not itself */
    moi_format rowwise;  /* of that, if swiglu: as moi_swiglu_desc's, in vectors */
    moi_mx_scales rowwise_mx; /* as moi_swiglu_desc's */
} moi_ggemm_desc;
#define MOI_GGEMM_DESC_INIT { .size = sizeof(moi_ggemm_desc), .out = MOI_F32 }

typedef struct moi_ggemm_args {
    uint32_t size;
    int64_t rows;           /* of the ragged dimension, host side: sizes buffers and strides */
    const int64_t *offsets; /* device, groups + 1 ascending, first 0, last <= rows; GROUP_MASKED: NULL */
    moi_operand a, b;
    void *d;
    int64_t ldd;
    const int64_t *counts;  /* GROUP_MASKED: device, groups numbers, each 0..rows; else NULL */
    const int32_t *rows_of_a; /* gather_rows > 0: device, rows numbers, each 0..a_rows - 1; else NULL */
    int64_t a_rows;         /* of A, <= gather_rows; else 0 */
    const int32_t *rows_of_d; /* scatter_rows > 0: device, rows numbers, each 0..d_rows - 1 and none twice, or -1: to nowhere; else NULL */
    int64_t d_rows;         /* of D, <= scatter_rows; else 0 */
    const float *row_weight; /* weighted: device, rows numbers; else NULL */
    moi_result rowwise;     /* swiglu: [rows, n / 2]; d is NULL then */
} moi_ggemm_args;

/* Computes  GROUP_M  D[r][j] (+)= sum_l A[r][l] B_g[j][l]  for offsets[g] <= r < offsets[g+1]; later rows are untouched.
 *           GROUP_K  D_g[i][j] (+)= sum over offsets[g] <= t < offsets[g+1] of A[i][t] B[j][t]; an empty group gives 0
 *           (or leaves D_g).
 *           GROUP_M with gather_rows: A[rows_of_a[r]] for A[r]; with scatter_rows: D[rows_of_d[r]] for D[r], and other rows of D are
 *           untouched; weighted: row_weight[r] times the sum, in FP32, before it is rounded or added to D.  What the three lists hold
 *           behind the last offset is not looked at.  swiglu: args.rowwise is moi_swiglu_run's of D, which nobody sees, from and by way of
 *           desc.out; what it holds for rows behind the last offset is not specified.
 *           Scattered rows that go to t * top_k + s are what moi_combine sums without row_of and weights.
 *           GROUP_MASKED  D_g[r][j] (+)= sum_l A_g[r][l] B_g[j][l]  for r < counts[g]; later rows are untouched, and whatever A
 *           holds there reaches nothing.
 * Shapes    GROUP_M  A [rows, k], B [groups, n, k] with each expert's scales in one run of moi_scale_bytes(b, n, k, 0),
 *           D [rows, n].   GROUP_K  A [m, rows], B [n, rows], both with scales for `groups` ragged groups, D [groups, m, n].
 *           GROUP_MASKED  A [groups, rows, k] and B [groups, n, k], each group's scales in one run of moi_scale_bytes(a, rows, k, 0)
 *           or (b, n, k, 0), D [groups, rows, n].
 *           Quantised operands of GROUP_K have rows of moi_ragged_cols elements and their groups at whole blocks, as
 *           moi_quantize_run leaves them.
 *           gather_rows  A [a_rows, k], with scales for a_rows.   scatter_rows  D [d_rows, n].
 *           MN-major plain operands: A [rows, m] and B [rows, n] for GROUP_K; else B [groups, k, n].
 * Requires  swiglu: n even, neither accumulate nor scatter_rows nor weighted.
 *           no padding and no alignment of group sizes; empty groups are legal.  GROUP_K: vector blocks only, and codes
 *           that no group owns are 0.
 *           cuda back end: a count below 0 or above rows is taken for the nearest of both; so is a number of rows_of_a; one of
 *           rows_of_d that is not there is taken for -1, and where one is there twice
 *           that row of D is not specified.  gather_rows: the workspace holds a copy of the named rows, in order.
 * Errors    ARG, SHAPE, ALIGN, UNSUPPORTED, WORKSPACE.   Promise  P:ggemm.bound and P:ggemm.nan as gemm; with
 *           weights the bound is |row_weight| times as large, and 2^-23 of the weighted sum more.
 *           P:ggemm.swiglu  with swiglu, the bits of moi_swiglu_run on a D within that bound. */
MOI_API moi_status moi_ggemm_plan_create(moi_plan **out, moi_ctx *ctx, const moi_ggemm_desc *desc);
MOI_API moi_status moi_ggemm_run(const moi_plan *plan, const moi_ggemm_args *args, void *workspace,
                                 int64_t workspace_bytes, moi_stream stream);

MOI_API moi_status moi_ggemm_explain(moi_ctx *ctx, const moi_ggemm_desc *desc, const moi_explain_config *config); /* as moi_gemm_explain */

#ifdef __cplusplus
}
#endif

#include "moiety_moe.h"

#endif
