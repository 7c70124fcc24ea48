/* SPDX-License-Identifier: Apache-2.0
 *
 * moiety_ctx.h: what every operation runs in: contexts, device memory, plans, rows, compiled kernels, operands.  Part of moiety.h,
 * which says how to use all this and what holds for every function here.
 */
#ifndef MOIETY_CTX_H
#define MOIETY_CTX_H

#include "moiety_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- context, buffers, plans ------------------------------------------------------------------------------------- */

typedef struct moi_ctx moi_ctx;
typedef struct moi_plan moi_plan;
typedef void *moi_stream;

typedef enum moi_backend { MOI_BACKEND_AUTO = 0, MOI_BACKEND_CPU = 1, MOI_BACKEND_CUDA = 2 } moi_backend;

typedef enum moi_log_level { MOI_LOG_ERROR = 0, MOI_LOG_WARN = 1, MOI_LOG_INFO = 2, MOI_LOG_DEBUG = 3 } moi_log_level;
typedef void (*moi_log_fn)(void *user, moi_log_level level, const char *text);

typedef struct moi_ctx_config {
    uint32_t size;
    moi_backend backend;
    int32_t threads;       /* CPU threads, 0: MOI_CPU_THREADS or all cores */
    bool reference_only;   /* choose only reference rows: slow and strict */
    moi_log_fn log;        /* NULL: messages that MOI_LOG asks for go to stderr */
    void *log_user;
    int32_t device;        /* cuda: -1 joins the thread's current CUDA context, or else takes device 0; n: device n's primary context */
} moi_ctx_config;
#define MOI_CTX_CONFIG_INIT { .size = sizeof(moi_ctx_config), .device = -1 }

/* Computes  a context on one back end.  AUTO takes MOI_BACKEND's, else cuda where there are a driver and a device, else cpu.
 *           Reads the environment once: MOI_BACKEND, MOI_CPU_THREADS, MOI_CPU_ISA, MOI_LOG; for cuda also MOI_NVRTC, MOI_KERNELS,
 *           MOI_CACHE (see moi_kernels_compile) and what docs/cuda.md lists.  cuda: not while a stream is captured.
 * Requires  config may be NULL (all defaults).
 * Errors    ARG (out is NULL, bad config or environment value), NOMEM; cuda: NO_DEVICE (no driver, no such device), DRIVER (too
 *           old a driver, or it refuses), UNSUPPORTED (a device below capability 8.0). */
MOI_API moi_status moi_ctx_create(moi_ctx **out, const moi_ctx_config *config);
MOI_API void moi_ctx_free(moi_ctx *ctx); /* NULL is allowed; plans of the context must be freed before */
MOI_API moi_status moi_ctx_sync(moi_ctx *ctx, moi_stream stream);
MOI_API const char *moi_ctx_describe(const moi_ctx *ctx); /* "cpu: 2 threads, avx2" */
MOI_API int moi_ctx_threads(const moi_ctx *ctx);

/* Device memory aligned to 128 bytes, zeroed.  Errors: NOMEM, ARG (negative size). */
MOI_API moi_status moi_buf_alloc(moi_ctx *ctx, int64_t bytes, void **out);
MOI_API void moi_buf_free(moi_ctx *ctx, void *buf);
/* Copy between host memory and a buffer, behind the work that `stream` holds; done when they return.  Not for capture.
 * Errors: ARG, DRIVER. */
MOI_API moi_status moi_buf_put(moi_ctx *ctx, void *buf, const void *host, int64_t bytes, moi_stream stream);
MOI_API moi_status moi_buf_get(moi_ctx *ctx, void *host, const void *buf, int64_t bytes, moi_stream stream);
/* Copies between two buffers that do not overlap, as one more piece of work in `stream`; may be captured.  Errors: ARG, DRIVER. */
MOI_API moi_status moi_buf_copy(moi_ctx *ctx, void *to, const void *from, int64_t bytes, moi_stream stream);

MOI_API int64_t moi_plan_workspace_bytes(const moi_plan *plan);
MOI_API const char *moi_plan_row(const moi_plan *plan); /* the chosen row, "gemm_fast" */
MOI_API void moi_plan_free(moi_plan *plan);             /* NULL is allowed */

/* Whom moi_gemm_explain and moi_ggemm_explain tell what a plan would be. */
typedef struct moi_explain_config {
    uint32_t size;
    int32_t capability; /* of a GPU that need not be there, 90 for 9.0; 0: what the context has */
    int32_t sms;        /* and its multiprocessors */
    void (*each)(void *user, const char *name, const char *value);
    void *user;
} moi_explain_config;
#define MOI_EXPLAIN_CONFIG_INIT { .size = sizeof(moi_explain_config), .sms = 132 }

/* One implementation of one operation, as `moiety info` lists them. */
typedef struct moi_row_info {
    uint32_t size;
    const char *name, *op;
    moi_backend backend;
    uint32_t recipes; /* bit 1 << moi_recipe */
    bool is_reference, is_unverified;
} moi_row_info;
MOI_API int moi_row_count(void);
MOI_API moi_status moi_row_get(int index, moi_row_info *out); /* Errors: ARG (index) */

/* One compiled (or listed) GPU kernel, of one arch and one set of defines. */
typedef struct moi_kernel_info {
    uint32_t size;
    const char *stem, *arch, *defines; /* "quantize_plain", "sm_90a", "ELEM=4" */
    int32_t registers, register_limit, local_bytes, shared_bytes; /* per thread; shared: static, per block */
    int64_t cubin_bytes;
    bool compiled;       /* false: the folder had it already */
    double seconds;
    moi_status status;
    const char *error;   /* NULL where status is OK */
} moi_kernel_info;
typedef struct moi_kernels_config {
    uint32_t size;
    const char *archs;   /* "sm_90a,sm_100a"; NULL: each kernel for all it is written for */
    const char *folder;  /* where compiled kernels go; NULL: compile nothing, only list */
    int32_t threads;     /* 0: all cores */
    void (*each)(void *user, const moi_kernel_info *info);
    void *user;
    int32_t part, parts; /* every parts-th kernel from the part-th on, for several machines; parts 0: all */
} moi_kernels_config;
#define MOI_KERNELS_CONFIG_INIT { .size = sizeof(moi_kernels_config) }

/* Computes  every kernel of the library compiled into `folder`, which may be shipped and named by MOI_KERNELS; on any machine that
 *           has NVRTC.  Contexts look in MOI_KERNELS, then in the cache (MOI_CACHE, else XDG_CACHE_HOME/moiety, else ~/.cache/moiety;
 *           MOI_CACHE empty: none), and compile what neither has.
 * Errors    ARG, IO, NO_COMPILER, COMPILE (also: spills, local memory or more registers than the kernel states), NOMEM. */
MOI_API moi_status moi_kernels_compile(const moi_kernels_config *config);
/* Tells `each`, name by name ("device", "driver", "nvrtc", "cache", ...), what the cuda back end finds or misses on this machine. */
MOI_API moi_status moi_cuda_describe(void (*each)(void *user, const char *name, const char *value), void *user);

/* A matrix operand of a run: data, scales (NULL for plain formats), elements between rows (0: dense). */
typedef struct moi_operand { const void *data; const void *scale; int64_t ld; } moi_operand;
typedef struct moi_result { void *data; void *scale; int64_t ld; } moi_result;

/* Which results of a quantising operation are wanted: blocks along the rows, and the transposed matrix with blocks along its own. */
enum { MOI_WANT_ROWWISE = 1, MOI_WANT_COLWISE = 2 };

#ifdef __cplusplus
}
#endif
#endif
