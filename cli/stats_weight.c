/* SPDX-License-Identifier: Apache-2.0
 * stats_weight.c: the numbers behind quantised weights, and the error that quantising would make.
 *
 * A weight is walked in rectangles of whole scale blocks; each is copied out of the file into aligned memory first. */
#include "stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

enum { WIDTH = 8192, PIECE = 1 << 20, SQUARE = 128 };

/* The weight as matrices of rows x cols, and the buffers for one rectangle of it. */
typedef struct walk {
    moi_ctx *ctx;
    moi_format format;
    int64_t matrices, rows, cols;
    int64_t width, step; /* of a rectangle: columns, at most so many rows */
    unsigned char *source, *codes, *scales;
    float *x, *y;
    moi_plan *quantize, *dequantize;
    void *work;
    int64_t work_bytes;
} walk;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t blocks_of(int64_t n, int64_t block) { return n / block + (n % block != 0); }

static bool walk_open(walk *w)
{
    w->source = aligned_alloc(128, PIECE * 4);
    w->codes = aligned_alloc(128, PIECE);
    w->scales = aligned_alloc(128, PIECE);
    w->x = aligned_alloc(128, PIECE * 4);
    w->y = aligned_alloc(128, PIECE * 4);
    return w->source && w->codes && w->scales && w->x && w->y;
}

static void walk_close(walk *w)
{
    moi_plan_free(w->quantize);
    moi_plan_free(w->dequantize);
    free(w->work);
    free(w->source);
    free(w->codes);
    free(w->scales);
    free(w->x);
    free(w->y);
}

/* Plans for rectangles at column `col`.  `in`: also a plan that quantises from this type, 0: none. */
static moi_status walk_column(walk *w, int64_t col, moi_dtype in)
{
    moi_plan_free(w->quantize);
    moi_plan_free(w->dequantize);
    free(w->work);
    w->quantize = w->dequantize = NULL;
    w->work = NULL;
    w->width = smaller(WIDTH, w->cols - col);
    w->step = PIECE / (blocks_of(w->width, SQUARE) * SQUARE) / SQUARE * SQUARE;
    moi_dequantize_desc d = MOI_DEQUANTIZE_DESC_INIT;
    d.in = w->format;
    d.max_rows = w->step;
    d.cols = w->width;
    moi_status status = moi_dequantize_plan_create(&w->dequantize, w->ctx, &d);
    if (!status && in) {
        moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
        q.in = in;
        q.rowwise = w->format;
        q.max_rows = w->step;
        q.cols = w->width;
        status = moi_quantize_plan_create(&w->quantize, w->ctx, &q);
    }
    if (status) return status;
    int64_t a = moi_plan_workspace_bytes(w->quantize), b = moi_plan_workspace_bytes(w->dequantize);
    w->work_bytes = blocks_of(a > b ? a : b, 128) * 128;
    if (w->work_bytes) w->work = aligned_alloc(128, (size_t)w->work_bytes);
    return w->work_bytes && !w->work ? MOI_ERR_NOMEM : MOI_OK;
}

static moi_status dequantize(const walk *w, int64_t rows)
{
    moi_dequantize_args a = { .size = sizeof a, .rows = rows, .in = { w->codes, w->scales, 0 }, .out = { w->y, NULL, 0 } };
    return moi_dequantize_run(w->dequantize, &a, w->work, w->work_bytes, NULL);
}

/* `rows` runs of `bytes`, `stride` apart, close together. */
static void gather(unsigned char *to, const void *from, int64_t rows, int64_t bytes, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * bytes, (const char *)from + r * stride, (size_t)bytes);
}

static void forget_rows(const moi_st *file, const moi_tensor *t, int64_t first, int64_t bytes)
{
    moi_tensor part = *t;
    part.data = (const char *)t->data + first;
    part.bytes = bytes;
    moi_st_forget(file, &part);
}

/* ---- quantised weights of a file ---- */

static bool find_base(moi_file_format format, const moi_tensor *codes, char *name, size_t size)
{
    static const char packed[] = "_packed";
    size_t n = strlen(codes->name), cut = 0;
    bool is_packed = format == MOI_FILE_MXFP4 || format == MOI_FILE_MXFP6;
    if (codes->rank < 2 || n >= size - 16 || codes->dtype != (is_packed ? MOI_U8 : MOI_E4M3)) return false;
    if (is_packed) {
        cut = sizeof packed - 1;
        if (n <= cut || strcmp(codes->name + n - cut, packed) != 0) return false;
    }
    memcpy(name, codes->name, n - cut);
    name[n - cut] = '\0';
    return true;
}

static int64_t columns(const stats_weight *w)
{
    return w->codes.shape[w->codes.rank - 1] * 8 / moi_dtype_bits(tensor_format(w->format).elem);
}

bool stats_find_weight(const moi_st *file, moi_file_format format, const moi_tensor *codes, stats_weight *w)
{
    char scale_name[sizeof w->name + 16];
    *w = (stats_weight){ .format = format, .codes = *codes };
    if (!find_base(format, codes, w->name, sizeof w->name)) return false;
    moi_format f = tensor_format(format);
    bool square = f.recipe == MOI_RECIPE_BLK128;
    snprintf(scale_name, sizeof scale_name, "%s%s", w->name, square ? "_scale_inv" : "_scale");
    if (moi_st_find(file, scale_name, &w->scales)) return false;
    int64_t cols = columns(w), rows = codes->shape[codes->rank - 2];
    if (w->scales.rank != codes->rank || w->scales.dtype != (square ? MOI_F32 : MOI_U8)) return false;
    for (int32_t i = 0; i < codes->rank - 2; i++)
        if (w->scales.shape[i] != codes->shape[i]) return false;
    return moi_row_bytes(f.elem, cols) == codes->shape[codes->rank - 1] && (square || cols % 32 == 0) &&
           w->scales.shape[codes->rank - 2] == (square ? blocks_of(rows, SQUARE) : rows) &&
           w->scales.shape[codes->rank - 1] == moi_scale_blocks(&f, cols, 0);
}

static moi_status add_rectangles(walk *w, const moi_st *file, const stats_weight *t, stats *s)
{
    bool square = w->format.recipe == MOI_RECIPE_BLK128;
    int64_t row_bytes = moi_row_bytes(w->format.elem, w->cols), scale_size = square ? 4 : 1, div = square ? SQUARE : 1;
    int64_t scale_row = moi_scale_blocks(&w->format, w->cols, 0) * scale_size, block = moi_format_block(&w->format);
    for (int64_t col = 0; col < w->cols; col += WIDTH) {
        moi_status status = walk_column(w, col, (moi_dtype)0);
        for (int64_t m = 0; !status && m < w->matrices; m++)
            for (int64_t row = 0; !status && row < w->rows; row += w->step) {
                int64_t n = smaller(w->step, w->rows - row), first = (m * w->rows + row) * row_bytes;
                int64_t scale_first = (m * blocks_of(w->rows, div) + row / div) * scale_row + col / block * scale_size;
                gather(w->codes, (const char *)t->codes.data + first + moi_row_bytes(w->format.elem, col), n,
                       moi_row_bytes(w->format.elem, w->width), row_bytes);
                gather(w->scales, (const char *)t->scales.data + scale_first, blocks_of(n, div),
                       moi_scale_blocks(&w->format, w->width, 0) * scale_size, scale_row);
                status = dequantize(w, n);
                if (!status) stats_add(s, w->y, n * w->width);
                forget_rows(file, &t->codes, first, n * row_bytes);
            }
        if (status) return status;
    }
    return MOI_OK;
}

moi_status stats_of_weight(moi_ctx *ctx, const moi_st *file, const stats_weight *t, stats *s)
{
    walk w = { .ctx = ctx, .format = tensor_format(t->format), .rows = t->codes.shape[t->codes.rank - 2], .cols = columns(t) };
    if (w.rows == 0 || w.cols == 0) return MOI_OK;
    w.matrices = t->codes.elements / (w.rows * t->codes.shape[t->codes.rank - 1]);
    moi_status status = walk_open(&w) ? add_rectangles(&w, file, t, s) : MOI_ERR_NOMEM;
    moi_st_forget(file, &t->scales);
    walk_close(&w);
    return status;
}

/* ---- what quantising would cost ---- */

typedef struct sums { double error, value; int64_t lost; } sums;

static moi_status lose(walk *w, const moi_tensor *t, int64_t rows, sums *s)
{
    moi_quantize_args a = { .size = sizeof a, .rows = rows, .in = { w->source, NULL, 0 }, .rowwise = { w->codes, w->scales, 0 } };
    moi_status status = moi_quantize_run(w->quantize, &a, w->work, w->work_bytes, NULL);
    if (!status) status = dequantize(w, rows);
    if (status) return status;
    stats_decode(t->dtype, w->source, rows * w->width, w->x);
    for (int64_t i = 0; i < rows * w->width; i++) {
        double v = (double)w->x[i], e = v - (double)w->y[i];
        if (v - v != 0) continue; /* NaN and Inf have no error to speak of */
        if (e - e != 0) s->lost++;
        else s->error += e * e, s->value += v * v;
    }
    return MOI_OK;
}

moi_status stats_of_loss(moi_ctx *ctx, const moi_st *file, moi_file_format format, const moi_tensor *t, stats_loss *loss)
{
    walk w = { .ctx = ctx, .format = tensor_format(format), .rows = t->shape[t->rank - 2], .cols = t->shape[t->rank - 1] };
    sums s = { 0 };
    int64_t size = moi_dtype_bits(t->dtype) / 8;
    *loss = (stats_loss){ 0 };
    if (t->elements == 0) return MOI_OK;
    w.matrices = t->elements / (w.rows * w.cols);
    moi_status status = walk_open(&w) ? MOI_OK : MOI_ERR_NOMEM;
    for (int64_t col = 0; !status && col < w.cols; col += WIDTH) {
        status = walk_column(&w, col, t->dtype);
        for (int64_t m = 0; !status && m < w.matrices; m++)
            for (int64_t row = 0; !status && row < w.rows; row += w.step) {
                int64_t n = smaller(w.step, w.rows - row), first = (m * w.rows + row) * w.cols * size;
                gather(w.source, (const char *)t->data + first + col * size, n, w.width * size, w.cols * size);
                status = lose(&w, t, n, &s);
                forget_rows(file, t, first, n * w.cols * size);
            }
    }
    loss->error = s.value > 0 ? sqrt(s.error / s.value) : 0.0;
    loss->lost = s.lost;
    walk_close(&w);
    return status;
}
