/* SPDX-License-Identifier: Apache-2.0
 * impl.h: one implementation of one operation is one row of a table (impls.def). */
#ifndef MOII_IMPL_H
#define MOII_IMPL_H

#include "moiety.h"

typedef enum moii_op {
    MOII_OP_QUANTIZE,
    MOII_OP_DEQUANTIZE,
    MOII_OP_REBASE,
    MOII_OP_GEMM,
    MOII_OP_GGEMM,
    MOII_OP_ROUTE,
    MOII_OP_PERMUTE,
    MOII_OP_COMBINE,
    MOII_OP_SWIGLU,
    MOII_OP_MOE_DECODE,
    MOII_OP_MOE, /* from here on: compositions of the others, no rows */
    MOII_OP_DECODE_GROUPED
} moii_op;

const char *moii_op_name(moii_op op);

#define MOII_RECIPE_BIT(r) (1u << (unsigned)(r))
enum { MOII_ALL_RECIPES = 0xF };

struct moii_kernel; /* src/cuda/jit.h */

typedef struct moii_impl {
    const char *name; /* the stem: also the file's name */
    moii_op op;
    moi_backend backend;
    uint32_t recipes;
    bool is_reference;
    bool is_unverified; /* never run on real hardware: chosen only by name */
    /* moe_decode: from how many tokens grouped products are expected to be faster than this row's plan; 0: never.  NULL: never. */
    int64_t (*grouped_from)(const moi_plan *plan);
    bool takes_logits;  /* moe_decode: runs route themselves where the plan is from_logits */
    /* True if this row can do it; otherwise *why says in words why not.  NULL: anything of its recipes. */
    bool (*supports)(const moi_ctx *ctx, const void *desc, const char **why);
    /* Sets plan->workspace_bytes and, if it needs one, plan->state and plan->unplan.  NULL: nothing to prepare. */
    moi_status (*plan)(moi_plan *plan);
    moi_status (*run)(const moi_plan *plan, const void *args, void *workspace, moi_stream stream);
    moi_status (*run_backward)(const moi_plan *plan, const void *args, void *workspace, moi_stream stream);
    /* Tells what its plan would be, in a context whose device need not be there.  NULL: nothing to tell. */
    void (*explain)(const moi_ctx *ctx, const void *desc, const moi_explain_config *to);
    const struct moii_kernel *const *kernels; /* rows of the cuda back end: what they launch, up to NULL */
} moii_impl;

extern const moii_impl *const moii_impls[];
extern const int moii_impl_count;

#endif
