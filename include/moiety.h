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
 *   Async    *_run enqueues on `stream` (NULL: the back end's default) and may be captured in a CUDA graph.  The CPU back
 *            end has finished when the call returns and takes only NULL.
 *   Errors   All arguments are checked before anything is enqueued, so a refused call leaves its outputs untouched.
 *   Promise  P:det.  Same plan, same inputs, same device: same bits.   P:guard.  Nothing outside the stated shapes is
 *            read into results or written.   P:empty.  A size of 0 is legal wherever a row or group count is.
 * Pointers must be aligned to 16 bytes, workspaces to 128.  Operands must not overlap outputs unless said otherwise.
 */
#ifndef MOIETY_H
#define MOIETY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOI_VERSION_MAJOR 0
#define MOI_VERSION_MINOR 1
#define MOI_VERSION_PATCH 0

#if defined(__GNUC__)
#define MOI_API __attribute__((visibility("default")))
#else
#define MOI_API
#endif

/* ---- status ------------------------------------------------------------------------------------------------------ */

typedef enum moi_status {
    MOI_OK = 0,
    MOI_ERR_ARG = 1,         /* an argument is NULL, out of its range, or contradicts another */
    MOI_ERR_SHAPE = 2,       /* a size does not fit the operation or the plan */
    MOI_ERR_ALIGN = 3,       /* a pointer or leading dimension is not aligned as required */
    MOI_ERR_UNSUPPORTED = 4, /* no row supports the description; the message lists each row's reason */
    MOI_ERR_WORKSPACE = 5,   /* the workspace is missing or too small */
    MOI_ERR_NO_DEVICE = 6,
    MOI_ERR_NO_COMPILER = 7,
    MOI_ERR_COMPILE = 8,
    MOI_ERR_DRIVER = 9,
    MOI_ERR_NOMEM = 10,
    MOI_ERR_IO = 11,     /* the operating system refused to read or write; the message has its reason */
    MOI_ERR_FORMAT = 12, /* a file is malformed; the message says where and what was expected */
    MOI_ERR_INTERNAL = 13,
    MOI_ERR_CANCELLED = 14 /* a callback asked to stop */
} moi_status;

/* The message of this thread's last failing call: function, argument, rule, value, hint.  Never NULL; valid until the
 * thread's next failing call. */
MOI_API const char *moi_last_error(void);
/* "MOI_ERR_SHAPE" and so on; "unknown" for any other number. */
MOI_API const char *moi_status_name(moi_status status);
/* "0.1.0" */
MOI_API const char *moi_version(void);

/* ---- number formats, recipes, scale layouts ---------------------------------------------------------------------- */

/* Element types.  Codes of 6 and 4 bits are packed along a row, the first element in the lowest bits (an E2M1 byte
 * holds elements 2i and 2i+1 in its low and high nibble); a row begins on a byte. */
typedef enum moi_dtype {
    MOI_F32 = 1,
    MOI_F16 = 2,
    MOI_BF16 = 3,
    MOI_E4M3 = 4, /* 1-4-3, bias 7, max 448, NaN 0x7F, no infinity ("e4m3fn") */
    MOI_E5M2 = 5, /* 1-5-2, bias 15, max 57344, infinities and NaN */
    MOI_E3M2 = 6, /* 6 bits, bias 3, max 28 */
    MOI_E2M3 = 7, /* 6 bits, bias 1, max 7.5 */
    MOI_E2M1 = 8, /* 4 bits, bias 1, max 6 */
    MOI_INT8 = 9, /* MXINT8: two's complement, value = code / 64; -128 is never written */
    MOI_E8M0 = 10, /* a scale: 2^(code - 127), 0xFF is NaN */
    MOI_F64 = 11,
    MOI_I64 = 12,
    MOI_I32 = 13,
    MOI_I16 = 14,
    MOI_I8 = 15,
    MOI_U8 = 16,
    MOI_BOOL = 17,
    MOI_U16 = 18,
    MOI_U32 = 19,
    MOI_U64 = 20
} moi_dtype;

/* How numbers are scaled. */
typedef enum moi_recipe {
    MOI_RECIPE_F32 = 0,   /* plain FP32: no rounding of operands */
    MOI_RECIPE_BF16 = 1,  /* operands rounded to BF16 */
    MOI_RECIPE_MX32 = 2,  /* OCP MX: 1x32 blocks along the reduction, E8M0 scales; E4M3 E5M2 E3M2 E2M3 E2M1 INT8 */
    MOI_RECIPE_BLK128 = 3 /* 1x128 vectors or 128x128 squares, FP32 scales; E4M3 or E5M2 */
} moi_recipe;

/* Which power of two a 1x32 block gets; a = max |v| of the block, L = largest normal of the element, emax its exponent. */
typedef enum moi_round {
    MOI_ROUND_RCEIL = 0, /* smallest 2^s >= a / L: nothing saturates.  arXiv:2506.08027, the default */
    MOI_ROUND_FLOOR = 1, /* 2^(floor(log2 a) - emax): OCP MX v1.0, 6.3; the largest values may saturate */
    MOI_ROUND_CEIL = 2,  /* 2^(ceil(log2 a) - emax) */
    MOI_ROUND_EVEN = 3   /* FLOOR after rounding a to the element's mantissa (half away from zero) */
} moi_round;

/* Order of the scales in memory.  S[r][b]: row r, block b of nb = blocks per row. */
typedef enum moi_layout {
    MOI_LAYOUT_ROW = 0,      /* S[r][b] at r * nb + b */
    MOI_LAYOUT_TILED = 1,    /* E8M0 only, the 128x4 atoms that tcgen05.mma and cuBLASLt read: byte
                                ((r/128) * ceil(nb/4) + b/4) * 512 + (r%32) * 16 + (r/32%4) * 4 + b%4; padding is 0 */
    MOI_LAYOUT_COL = 2       /* S[r][b] at b * R + r, R = rows rounded up to 16 bytes of scales; padding is 0 */
} moi_layout;

typedef enum moi_block {
    MOI_BLOCK_VECTOR = 0, /* 1x32 (mx32) or 1x128 (blk128) along the reduction */
    MOI_BLOCK_SQUARE = 1  /* 128x128, blk128 weights */
} moi_block;

enum {
    MOI_SCALE_POW2 = 1,       /* blk128: round the FP32 scale up to a power of two ("ue8m0" checkpoints) */
    MOI_NONFINITE_LENIENT = 2 /* see moi_quantize_run: keep finite values of a block that has NaN or Inf */
};

/* How one matrix is stored.  Plain matrices (recipes F32 and BF16) have no scales and ignore the other fields. */
typedef struct moi_format {
    moi_recipe recipe;
    moi_dtype elem;
    moi_block block;
    moi_round round;
    moi_layout layout;
    uint32_t flags;
} moi_format;

#define MOI_FMT_(r, e, b) { (r), (e), (b), MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#ifndef __cplusplus
#define MOI_FORMAT_F32 ((moi_format)MOI_FMT_(MOI_RECIPE_F32, MOI_F32, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_BF16 ((moi_format)MOI_FMT_(MOI_RECIPE_BF16, MOI_BF16, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_F16 ((moi_format)MOI_FMT_(MOI_RECIPE_BF16, MOI_F16, MOI_BLOCK_VECTOR)) /* weights beside plain activations only */
#define MOI_FORMAT_MXFP8 ((moi_format)MOI_FMT_(MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_MXFP4 ((moi_format)MOI_FMT_(MOI_RECIPE_MX32, MOI_E2M1, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_BLK128_ACT ((moi_format)MOI_FMT_(MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_VECTOR))
#define MOI_FORMAT_BLK128_WEIGHT ((moi_format)MOI_FMT_(MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE))
#endif

/* Names as users write them ("e4m3", "bf16", "mx32", "rceil"); "?" for other numbers. */
MOI_API const char *moi_dtype_name(moi_dtype dtype);
MOI_API const char *moi_recipe_name(moi_recipe recipe);
MOI_API const char *moi_round_name(moi_round round);
MOI_API const char *moi_layout_name(moi_layout layout);
/* Bits of one element; 0 for an unknown type. */
MOI_API int moi_dtype_bits(moi_dtype dtype);
/* Largest finite magnitude; 0 for types that are not floating-point or MX elements. */
MOI_API double moi_dtype_max(moi_dtype dtype);
/* Bytes of one row of `cols` elements: ceil(cols * bits / 8). */
MOI_API int64_t moi_row_bytes(moi_dtype dtype, int64_t cols);
/* Elements that share one scale along the reduction: 32, 128, or 0 for plain formats. */
MOI_API int64_t moi_format_block(const moi_format *format);
/* Scales per row for a reduction of `cols`: ceil(cols / block), or, where the reduction is cut into `groups` > 0 ragged
 * groups, cols / block + groups: group g, starting at element o, owns blocks from o / block + g, so that no block
 * crosses a group and no group needs padding. */
MOI_API int64_t moi_scale_blocks(const moi_format *format, int64_t cols, int64_t groups);
/* Bytes of the scales of a rows x cols matrix in format->layout, padding included; 0 for plain formats, -1 where the
 * format is invalid or the size overflows. */
MOI_API int64_t moi_scale_bytes(const moi_format *format, int64_t rows, int64_t cols, int64_t groups);
/* Element index (not byte) of S[row][block] in the layout; row and block count scales, so for a 128x128 format pass
 * rows / 128.  `rows` and `blocks` are the full extents. */
MOI_API int64_t moi_scale_index(moi_layout layout, moi_dtype scale, int64_t row, int64_t block, int64_t rows, int64_t blocks);

/* Computes  the value of code `index` of a packed row.  Exact for every element type. */
MOI_API float moi_decode(moi_dtype dtype, const void *row, int64_t index);
/* Computes  row[index] = round-to-nearest-even(value), saturating for MX elements; NaN becomes 0x7F for E4M3 and E5M2,
 *           +max for E3M2, E2M3, E2M1 and INT8; infinities saturate for all MX elements. */
MOI_API void moi_encode(moi_dtype dtype, void *row, int64_t index, float value);

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
 *           MOI_CACHE (see moi_kernels_compile) and what docs/cuda.md lists.
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

MOI_API int64_t moi_plan_workspace_bytes(const moi_plan *plan);
MOI_API const char *moi_plan_row(const moi_plan *plan); /* the chosen row, "gemm_fast" */
MOI_API void moi_plan_free(moi_plan *plan);             /* NULL is allowed */

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

/* In every description `row` may name the row to use ("gemm_ref"); NULL lets the library choose. */

/* ---- quantise ---------------------------------------------------------------------------------------------------- */

enum { MOI_WANT_ROWWISE = 1, MOI_WANT_COLWISE = 2 };

typedef struct moi_quantize_desc {
    uint32_t size;
    const char *row;
    moi_dtype in;                  /* F32, BF16, F16 */
    moi_format rowwise, colwise;   /* recipes mx32, blk128, or bf16/f32 (a plain conversion) */
    uint32_t want;                 /* MOI_WANT_ROWWISE | MOI_WANT_COLWISE */
    int64_t max_rows, cols;
    int64_t batch;                 /* matrices of the same shape, one after the other, in all buffers; default 1 */
    int64_t groups;                /* > 0: rows are cut by args.offsets and column-wise blocks do not cross groups */
} moi_quantize_desc;
#define MOI_QUANTIZE_DESC_INIT { .size = sizeof(moi_quantize_desc), .in = MOI_F32, .want = MOI_WANT_ROWWISE, .batch = 1 }

typedef struct moi_quantize_args {
    uint32_t size;
    int64_t rows;           /* of each matrix, <= max_rows */
    moi_operand in;
    moi_result rowwise;     /* [rows, cols], blocks along cols */
    moi_result colwise;     /* [cols, rows], the transposed matrix, blocks along rows */
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
 * Shapes    in [rows, cols]; rowwise.data [rows, cols], colwise.data [cols, rows]; scales as moi_scale_bytes says:
 *           row-wise for (rows, cols, 0), column-wise for (cols, rows, groups).
 * Requires  blk128 squares: both directions hold the same numbers.  groups > 0: column-wise only for 8-bit and plain
 *           elements, vector blocks and layouts ROW and COL; batch = 1; codes and scales that no group owns become 0.
 *           Rows of sub-byte elements: ld * bits % 8 = 0; the spare bits of a row's last byte become 0.
 * Errors    ARG, SHAPE, ALIGN, UNSUPPORTED.
 * Promise   P:quantize.bits  every row gives the same bits.  P:quantize.once  both results come from one read of `in`.
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
    moi_format a, b;   /* same recipe; blk128: a and b VECTOR or b SQUARE.  Or a plain and b any format: weights alone in 8 bits */
    moi_order a_order, b_order;
    moi_dtype out;     /* F32 or BF16 */
    bool accumulate;   /* D += instead of D =; needs out F32 */
    int64_t max_m, n, k;
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
 *           Dequantised magnitudes of 2^128 and more count as infinite.
 * Errors    ARG, SHAPE, ALIGN, UNSUPPORTED, WORKSPACE.
 * Promise   P:gemm.bound  |D - exact| <= (k + 4) * 2^-24 * sum |A B| + half a unit of `out`, for the CPU rows; the sum
 *           includes |D| if it is added to, is below 2^128, and no number but 0 in it is below 2^-126 (2^-100 where a is
 *           plain and b scaled).
 *           P:gemm.nan  NaN or Inf in row i of A reaches only row i of D. */
MOI_API moi_status moi_gemm_plan_create(moi_plan **out, moi_ctx *ctx, const moi_gemm_desc *desc);
MOI_API moi_status moi_gemm_run(const moi_plan *plan, const moi_gemm_args *args, void *workspace,
                                int64_t workspace_bytes, moi_stream stream);

typedef enum moi_grouping {
    MOI_GROUP_M = 0, /* rows of A and D are cut into groups, each with its own B: fprop, dgrad */
    MOI_GROUP_K = 1  /* the reduction is cut into groups, each with its own D: wgrad */
} moi_grouping;

typedef struct moi_ggemm_desc {
    uint32_t size;
    const char *row;
    moi_grouping grouping;
    moi_format a, b;
    moi_order a_order, b_order;
    moi_dtype out;
    bool accumulate;
    int64_t groups;
    int64_t max_rows; /* of the ragged dimension */
    int64_t m;        /* GROUP_K only */
    int64_t n;
    int64_t k;        /* GROUP_M only */
} moi_ggemm_desc;
#define MOI_GGEMM_DESC_INIT { .size = sizeof(moi_ggemm_desc), .out = MOI_F32 }

typedef struct moi_ggemm_args {
    uint32_t size;
    int64_t rows;           /* of the ragged dimension, host side: sizes buffers and strides */
    const int64_t *offsets; /* device, groups + 1 ascending, first 0, last <= rows */
    moi_operand a, b;
    void *d;
    int64_t ldd;
} moi_ggemm_args;

/* Computes  GROUP_M  D[r][j] (+)= sum_l A[r][l] B_g[j][l]  for offsets[g] <= r < offsets[g+1]; later rows are untouched.
 *           GROUP_K  D_g[i][j] (+)= sum over offsets[g] <= t < offsets[g+1] of A[i][t] B[j][t]; an empty group gives 0
 *           (or leaves D_g).
 * Shapes    GROUP_M  A [rows, k], B [groups, n, k] with each expert's scales in one run of moi_scale_bytes(b, n, k, 0),
 *           D [rows, n].   GROUP_K  A [m, rows], B [n, rows], both with scales for `groups` ragged groups, D [groups, m, n].
 *           MN-major plain operands: A [rows, m] and B [rows, n] for GROUP_K; B [groups, k, n] for GROUP_M.
 * Requires  no padding and no alignment of group sizes; empty groups are legal.  GROUP_K: vector blocks only.
 * Errors    ARG, SHAPE, ALIGN, UNSUPPORTED, WORKSPACE.   Promise  P:ggemm.bound and P:ggemm.nan as gemm. */
MOI_API moi_status moi_ggemm_plan_create(moi_plan **out, moi_ctx *ctx, const moi_ggemm_desc *desc);
MOI_API moi_status moi_ggemm_run(const moi_plan *plan, const moi_ggemm_args *args, void *workspace,
                                 int64_t workspace_bytes, moi_stream stream);

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
    const int32_t *ids; /* [t, top_k] */
    const void *x;      /* [t, h], or NULL: only the map */
    void *x_sorted;     /* [t * top_k, h]: rows in order of expert, then token */
    int64_t *offsets;   /* [e + 1] */
    int32_t *row_of;    /* [t, top_k]: where the token's copy went */
    int32_t *token_of;  /* [t * top_k]: where a row came from */
} moi_permute_args;

/* Computes  a stable counting sort of (token, slot) by expert, and the copies of x in that order.
 * Errors    ARG, SHAPE.   Promise  P:permute.map  row_of and token_of are inverse; an id outside 0..e-1 is an ARG error on
 *           the CPU back end and undefined elsewhere. */
MOI_API moi_status moi_permute_plan_create(moi_plan **out, moi_ctx *ctx, const moi_permute_desc *desc);
MOI_API moi_status moi_permute_run(const moi_plan *plan, const moi_permute_args *args, void *workspace,
                                   int64_t workspace_bytes, moi_stream stream);

typedef struct moi_combine_args {
    uint32_t size;
    int64_t tokens;
    const int32_t *row_of;   /* [t, top_k] */
    const float *weights;    /* [t, top_k], or NULL: all 1 */
    const void *y_sorted;    /* [t * top_k, h] */
    void *y;                 /* [t, h] */
    const void *d_y;         /* backward: [t, h] */
    void *d_y_sorted;        /* backward: [t * top_k, h] */
    float *d_weights;        /* backward: [t, top_k], or NULL */
} moi_combine_args;

/* Computes  y[t] = sum over slots s, ascending, of weights[t][s] * y_sorted[row_of[t][s]] in FP32, rounded once.
 *           Backward: d_y_sorted[row_of[t][s]] = weights[t][s] * d_y[t]; d_weights[t][s] = d_y[t] . y_sorted[row_of[t][s]].
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
    moi_dtype x;         /* BF16 or F32: the activations; they are never quantised */
    moi_dtype out;       /* F32 or BF16 */
    int64_t max_tokens, hidden, width, experts, top_k;
} moi_moe_decode_desc;
#define MOI_MOE_DECODE_DESC_INIT { .size = sizeof(moi_moe_decode_desc), .x = MOI_BF16, .out = MOI_F32 }

/* The weights of one expert where they lie (in a mapped file, for example): gate and up [f, h], down [h, f]; dense, data and
 * scales with their elements' alignment. */
typedef struct moi_expert_operands { moi_operand gate, up, down; } moi_expert_operands;

typedef struct moi_moe_decode_args {
    uint32_t size;
    int64_t tokens;
    const void *x;          /* [t, h] */
    const int32_t *ids;     /* [t, top_k]; an expert may repeat; -1 skips a slot */
    const float *weights;   /* [t, top_k] */
    moi_operand gate_up;    /* [e, 2 f, h], dense, each expert's scales in one run of moi_scale_bytes(2 f, h) */
    moi_operand down;       /* [e, h, f] */
    void *y;                /* [t, h] */
    const moi_expert_operands *apart; /* [e] instead of gate_up and down, or NULL */
} moi_moe_decode_args;

/* Computes  u[t][s][i] = silu(gate_e[i] . x[t]) * (up_e[i] . x[t]), rounded to x's type;
 *           y[t][j] = sum over s of weights[t][s] * (down_e[j] . u[t][s]) in one FP32 accumulator per output.
 *           Two passes organised around outputs: no gather buffer, no per-expert output buffer.
 * Errors    ARG (an id >= experts, CPU back end), SHAPE, ALIGN, UNSUPPORTED, WORKSPACE.
 * Promise   P:decode.bound  the bound of gemm for each dot product plus 2^-100 for FP32's end, and 2^-8 relative per u for
 *           its BF16 rounding.
 *           P:decode.batch  a token's bits do not depend on the rest of the batch.
 * Source    "warp decode", cursor.com/blog, 2026. */
MOI_API moi_status moi_moe_decode_plan_create(moi_plan **out, moi_ctx *ctx, const moi_moe_decode_desc *desc);
MOI_API moi_status moi_moe_decode_run(const moi_plan *plan, const moi_moe_decode_args *args, void *workspace,
                                      int64_t workspace_bytes, moi_stream stream);

#ifdef __cplusplus
}
#endif
#endif
