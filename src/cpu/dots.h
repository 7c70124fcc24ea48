/* SPDX-License-Identifier: Apache-2.0
 * dots.h: rows of quantised weights times FP32 vectors: what decoding and products of few rows share. */
#ifndef MOII_DOTS_H
#define MOII_DOTS_H

#include "cpu.h"
#include "experts.h"
#include "isa.h"

/* Vectors of one length, each twice: in order, for rows that must be computed strictly, and as the kernel wants it. */
typedef struct moii_vectors {
    const moii_dot_kernel *kernel;
    float *plain;
    char *placed;
    int64_t cols, stride, placed_bytes; /* elements between plain vectors, bytes between placed ones */
} moii_vectors;

/* The next `bytes` of a workspace; base NULL: only measures. */
static inline void *moii_carve(char *base, int64_t *at, int64_t bytes)
{
    char *p = base ? base + *at : NULL;
    *at += moii_round_up(bytes, MOII_WORKSPACE_ALIGN);
    return p;
}

static inline moii_vectors moii_vectors_carve(char *base, int64_t *at, const moii_dot_kernel *kernel, int64_t count, int64_t cols)
{
    moii_vectors v = { .kernel = kernel, .cols = cols, .stride = moii_round_up(cols, MOII_WORKSPACE_ALIGN / 4) };
    v.placed_bytes = moii_round_up(moii_dot_placed_bytes(kernel, cols), MOII_WORKSPACE_ALIGN);
    v.plain = moii_carve(base, at, count * v.stride * 4);
    v.placed = moii_carve(base, at, count * v.placed_bytes);
    return v;
}

static inline float *moii_vectors_plain(const moii_vectors *v, int64_t i) { return v->plain + i * v->stride; }
/* After plain vector `i` was written. */
static inline void moii_vectors_place(const moii_vectors *v, int64_t i)
{
    v->kernel->place(v->kernel, moii_vectors_plain(v, i), v->cols, v->placed + i * v->placed_bytes);
}

/* Threads for reading so many weights: waking one takes as long as some ten thousands. */
static inline int moii_dots_threads(const moi_ctx *ctx, int64_t weights) { return weights < 1 << 16 ? 1 : ctx->threads; }

/* How many of `parts` a thread takes at once: few enough that one that is held up does not hold up the others, many enough that what it
 * reads lies together. */
static inline int64_t moii_dots_share(int64_t parts, int threads)
{
    enum { SHARES = 16 }; /* of each thread */
    return moii_max(parts / ((int64_t)threads * SHARES), 1);
}

/* Room for the scales of a row of up to `cols` weights, in floats. */
static inline int64_t moii_dots_scales(int64_t cols)
{
    return moii_round_up(moii_ceil_div(cols, MOII_DOT_BLOCK), MOII_WORKSPACE_ALIGN / 4);
}

/* Rows row .. row + rows - 1 of one expert (not over the end of its gate rows). */
typedef struct moii_rows { int64_t expert, row, rows; } moii_rows;
/* out[r * count + i] = row r of those . vector first + i.  scales: this thread's room. */
void moii_dots(const moii_isa *isa, const moii_experts *m, moii_rows rows, const moii_vectors *v, int64_t first, int64_t count, float *scales,
               double *out);

#endif
