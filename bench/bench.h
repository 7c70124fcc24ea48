/* SPDX-License-Identifier: Apache-2.0
 * bench.h: what the benches share.  A bench is bench_<op>.c: it makes inputs, checks a row's result, and only then times it. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "machine.h"
#include "moiety.h"
#include "shapes.h"
#include "timing.h"

typedef struct bench {
    moi_ctx *ctx;
    moi_ctx *host;    /* makes inputs: ctx, or where that is a GPU's, one of the CPU */
    const char *rows; /* NULL: what the library chooses; "all"; or a name */
    bool quick;
    bool corrupt;     /* spoil every result, to see that the check refuses it */
    FILE *csv;
    const char *commit;
    int timed, refused;
    uint64_t random;
} bench;

/* One case on one row, ready to be checked and timed. */
typedef struct bench_case {
    const char *op, *row;
    char name[96];
    timing_work work;
    double flops, bytes;  /* of one call */
    int64_t calls;        /* of a repetition, 0: 1 */
    machine_limit *limit; /* percent of this; its unit says whether flops or bytes count */
    bool last;
} bench_case;

/* Runs a line of the shapes on one row (NULL: the library's choice). */
typedef bool (*bench_line_fn)(bench *b, const shapes *s, int line, const char *row);

typedef struct bench_op { const char *name; bench_line_fn run; } bench_op;
extern const bench_op bench_ops[];
extern const int bench_op_count;

bool bench_quantize(bench *b, const shapes *s, int line, const char *row);
bool bench_dequantize(bench *b, const shapes *s, int line, const char *row);
bool bench_gemm(bench *b, const shapes *s, int line, const char *row);
bool bench_ggemm(bench *b, const shapes *s, int line, const char *row);
bool bench_moe(bench *b, const shapes *s, int line, const char *row);
bool bench_moe_decode(bench *b, const shapes *s, int line, const char *row);
bool bench_moe_decode_cuda(bench *b, const shapes *s, int line, const char *row);
bool bench_model(bench *b, const shapes *s, int line, const char *row);

/* ---- reporting: all of these return false where the case has failed ---------------------------------------------- */

void bench_header(bench *b);
/* Times a checked case and prints its line. */
bool bench_time(bench *b, const bench_case *c);
/* The case cannot run: prints `why`. */
bool bench_refuse(bench *b, const char *op, const char *name, const char *row, const char *why);
/* Refuses a result that is further off than its bound in moiety.h: worst is the largest error over it, above 1 or NaN is wrong. */
bool bench_within(bench *b, const bench_case *c, double worst);
/* A row other than the one asked for by --rows all declined: says so, and is no failure. */
bool bench_declined(bench *b, const char *op, const char *name, const char *row);

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

void *bench_alloc(int64_t bytes); /* aligned to 128, zeroed; ends the program where there is no memory */
void bench_normal(bench *b, float *x, int64_t count, float scale);
void bench_to(moi_dtype dtype, void *to, const float *from, int64_t count); /* F32, BF16 or F16 */
int64_t bench_below(bench *b, int64_t n);
bool bench_format(const char *name, moi_format *out);     /* "mxfp8" */
bool bench_dtype(const char *name, moi_dtype *out);       /* "bf16" */

/* `count` matrices [rows, cols] in one buffer, each with its scales. */
typedef struct bench_matrix {
    moi_format format;
    int64_t rows, cols, count, data_bytes, scale_bytes; /* bytes of one matrix */
    char *data, *scale;
} bench_matrix;

/* One matrix, of these numbers, in this format. */
bool bench_matrix_of(bench *b, bench_matrix *m, moi_format format, int64_t rows, int64_t cols, const float *from);
/* Random normals.  distinct: the first matrices differ, the others repeat them. */
bool bench_matrix_random(bench *b, bench_matrix *m, moi_format format, int64_t rows, int64_t cols, int64_t count, int64_t distinct);
void bench_matrix_free(bench_matrix *m);
moi_operand bench_operand(const bench_matrix *m, int64_t index);
/* What the matrix means, in float64, without using any row: dst [rows, cols].  groups > 0: see moi_ragged_cols. */
void bench_decode(const bench_matrix *m, int64_t index, const int64_t *offsets, int64_t groups, double *dst);

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* The largest |D - exact| / bound of moiety.h's P:gemm.bound, D [m, n] = A [m, k] B [n, k]^T; above 1 (or NaN) is wrong. */
double bench_check_product(const double *a, int64_t lda, const double *b, int64_t ldb, int64_t m, int64_t n, int64_t k, moi_dtype out,
                           const void *d);
double bench_value(moi_dtype dtype, const void *x, int64_t index);
/* Spoils the first element if the bench was asked to. */
void bench_corrupt(const bench *b, moi_dtype dtype, void *x);

#endif
