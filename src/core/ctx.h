/* SPDX-License-Identifier: Apache-2.0
 * ctx.h: a context, the back end behind it, and plans. */
#ifndef MOII_CTX_H
#define MOII_CTX_H

#include "env.h"
#include "impl.h"
#include "moiety.h"

struct moii_nn; /* nn.h */

/* One back end: how it starts, where its memory comes from. */
typedef struct moii_backend {
    moi_backend id;
    const char *name;
    moi_status (*open)(moi_ctx *ctx); /* sets ctx->state, ctx->threads, ctx->text */
    void (*close)(moi_ctx *ctx);
    moi_status (*alloc)(moi_ctx *ctx, int64_t bytes, void **out);
    void (*release)(moi_ctx *ctx, void *p);
    moi_status (*sync)(moi_ctx *ctx, moi_stream stream);
    /* Enqueues a copy of a few host bytes, which may be gone when the call returns. */
    moi_status (*put)(moi_ctx *ctx, void *device, const void *host, int64_t bytes, moi_stream stream);
    /* moi_buf_put and moi_buf_get: any number of bytes, done when they return. */
    moi_status (*upload)(moi_ctx *ctx, void *device, const void *host, int64_t bytes, moi_stream stream);
    moi_status (*download)(moi_ctx *ctx, void *host, const void *device, int64_t bytes, moi_stream stream);
    /* moi_buf_copy: enqueues. */
    moi_status (*copy)(moi_ctx *ctx, void *to, const void *from, int64_t bytes, moi_stream stream);
    const struct moii_nn *nn; /* what the model needs beside the public operations */
    /* ctx->state for a device that need not be there, or (capability 0) is the one of `like`: rows can be asked what they support, plans made,
     * without anything compiled or loaded, and not run.  free() ends it.  NULL: any context will do. */
    moi_status (*imagine)(moi_ctx *ctx, const moi_ctx *like, int capability, int sms);
} moii_backend;

extern const moii_backend moii_backend_cpu, moii_backend_cuda;

struct moi_ctx {
    const moii_backend *backend;
    void *state; /* the back end's */
    moii_env env;
    int threads;
    int device; /* moi_ctx_config's */
    bool reference_only;
    moi_log_fn log;
    void *log_user;
    char text[192];
};

struct moi_plan {
    moi_ctx *ctx;
    moii_op op;
    const moii_impl *impl; /* NULL for compositions (MOII_OP_MOE and behind) */
    int64_t workspace_bytes;
    union {
        moi_quantize_desc quantize;
        moi_dequantize_desc dequantize;
        moi_rebase_desc rebase;
        moi_gemm_desc gemm;
        moi_ggemm_desc ggemm;
        moi_route_desc route;
        moi_permute_desc permute;
        moi_swiglu_desc swiglu;
        moi_moe_desc moe;
        moi_moe_decode_desc moe_decode;
    } desc;
    void *state; /* the row's */
    void (*unplan)(moi_plan *plan);
    moi_plan *grouped; /* moe_decode: what runs of many tokens take instead of the row, or NULL; freed with this */
};

/* Copies a caller's struct of `size` bytes into one of ours: shorter ones are zero-filled, longer ones must be zero behind
 * what we know.  `where` names the call. */
moi_status moii_take(void *to, size_t known, const void *from, const char *where);

/* Makes a plan for plan->desc, whose copy is in `desc` (desc_bytes): asks the rows of `op` in order, or the named one only.
 * `recipes`: every bit must be in the row's set. */
moi_status moii_plan_make(moi_plan **out, moi_ctx *ctx, moii_op op, const void *desc, size_t desc_bytes, const char *row,
                          uint32_t recipes);
/* moi_gemm_explain and its like, behind the checks of the description. */
moi_status moii_plan_explain(moi_ctx *ctx, moii_op op, const void *desc, size_t desc_bytes, const char *row, uint32_t recipes,
                             const moi_explain_config *config);
/* NULL if the row can do it, else the reason in words. */
const char *moii_plan_declines(const moii_impl *row, const moi_ctx *ctx, const void *desc, uint32_t recipes, bool named);
/* The checks every run begins with. */
moi_status moii_run_check(const moi_plan *plan, moii_op op, const void *args, const void *workspace, int64_t workspace_bytes,
                          moi_stream stream);
/* Ragged offsets: groups + 1 ascending numbers, first 0, last <= rows.  Only the CPU back end may read them here. */
moi_status moii_offsets_check(const moi_plan *plan, const char *where, const int64_t *offsets, int64_t groups, int64_t rows);

#endif
