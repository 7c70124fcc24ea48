/* SPDX-License-Identifier: Apache-2.0
 * support_decode.h: random problems for moe_decode, their exact results, and how far from them a row may be. */
#ifndef MOIT_SUPPORT_DECODE_H
#define MOIT_SUPPORT_DECODE_H

#include "support_gpu.h"

typedef struct shape { int64_t tokens, h, f, experts, top_k; } shape;

/* Quantised activations and tensor cores: each dot product may be off by `dot` of its magnitudes' sum, each u by `u` of itself and `block` of the largest
 * of its token, each expert's output by `out` of itself. */
typedef struct coarse { double dot, u, block, out; } coarse;

typedef struct problem {
    moi_moe_decode_desc d;
    moi_moe_decode_args a;
    void *x, *codes[2], *scales[2]; /* 0: gate_up, 1: down */
    int32_t *ids;
    float *weights;
    coarse more; /* what exact() allows beyond FP32 products */
} problem;

/* Exactly `bytes` bytes, so that the address sanitizer sees a read behind them. */
void *exact_alloc(int64_t bytes);

/* 3 tokens: all to one expert; more than 1: some slots skipped; experts may repeat. */
problem problem_make(moi_format f, shape s, moi_dtype x, moi_dtype out);
void problem_free(problem *p);
int64_t y_bytes(const problem *p);

/* y in double, without any rounding, and how far FP32 dot products of any order may be from it:
 * each dot product by (k + 4) eps sum |.| + 2^-100, silu (slope <= 1.1) and its product by 8 eps, u by its rounding to x's type. */
void exact(const problem *p, double *y, double *bound);

/* Runs the row; on a GPU captured and replayed too.  False where the row does not take this problem (rows of the GPU only). */
bool run_on(moi_ctx *ctx, const char *row, problem *p, void *y);
/* The same of two problems in turn, twice, on one workspace. */
bool run_two(moi_ctx *ctx, const char *row, problem p[2], void *const y[2]);
/* Runs the row and holds every output to the exact one: within its bound, or the same NaN or Inf. */
bool check_row(moi_ctx *ctx, const char *row, problem *p, const double *y, const double *bound);
/* Row r of the cuda back end, NULL behind the last or where there is no device. */
const char *gpu_row(const char *op, int r);

/* Contexts beside the default one: other thread counts, and plain C bodies; a group's set-up and tear-down. */
enum { DECODE_CONTEXTS = 4 };
extern moi_ctx *decode_contexts[DECODE_CONTEXTS];
int decode_open_contexts(void **state);
int decode_close_contexts(void **state);
/* Every row, with the machine's best bodies and with plain C ones. */
void decode_check(problem *p);
/* A token's bits are those that it has alone. */
void decode_check_alone(const char *row, const problem *p, int64_t token);
/* Both, of the first token, of one behind 128, and of the last. */
void decode_check_tokens(problem *p);

/* Case i of a list; always: it is in the selection that runs without a GPU, where others are for a device alone. */
bool decode_picked(size_t i, bool always);
void decode_check_case(size_t i, const moi_format *weights, shape size, bool always);
typedef struct decode_case { const moi_format *weights; shape size; bool always; } decode_case;
void decode_check_cases(const decode_case *cases, size_t n);

#endif
