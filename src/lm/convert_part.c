/* SPDX-License-Identifier: Apache-2.0
 * convert_part.c: the numbers of one part, in pieces of a few MB.
 *
 * The data goes through pread and pwrite, not through the mapping, so that neither the size of the file nor of a tensor shows
 * in memory.  A part's codes and scales grow side by side: each piece is written where it belongs. */
#include <stdlib.h>

#include "convert.h"
#include "ctx.h"
#include "format.h"
#include "status.h"

/* MX: whole rows of MX_COLS; squares: bands of 128 rows, at most SQUARE_COLS wide. */
enum { PIECE = MOII_CONVERT_PIECE, MX_COLS = 1024, SQUARE_COLS = PIECE / MOII_BLK };

static moi_status advance(moii_convert *c, const moi_tensor *t, int64_t bytes)
{
    char shown[MOII_ST_SHOWN];
    c->done += bytes;
    if (!c->options.progress || c->options.progress(c->options.user, t->name, c->done, c->total)) return MOI_OK;
    MOII_FAIL(MOI_ERR_CANCELLED, "%s: stopped at tensor '%s', after %lld of %lld bytes", c->call, moii_st_show(shown, t->name),
              (long long)c->done, (long long)c->total);
}

static moi_status plan_for(moii_convert *c, moi_dtype in, int64_t max_rows, int64_t cols)
{
    if (c->plan && c->plan_desc.in == in && c->plan_desc.max_rows == max_rows && c->plan_desc.cols == cols) return MOI_OK;
    moi_plan_free(c->plan);
    free(c->workspace);
    c->plan = NULL;
    c->workspace = NULL;
    c->plan_desc = (moi_quantize_desc)MOI_QUANTIZE_DESC_INIT;
    c->plan_desc.in = in;
    c->plan_desc.rowwise = c->format;
    c->plan_desc.max_rows = max_rows;
    c->plan_desc.cols = cols;
    MOII_TRY(moi_quantize_plan_create(&c->plan, c->ctx, &c->plan_desc));
    int64_t bytes = moi_plan_workspace_bytes(c->plan);
    if (bytes == 0) return MOI_OK;
    c->workspace = aligned_alloc(MOII_WORKSPACE_ALIGN, (size_t)moii_round_up(bytes, MOII_WORKSPACE_ALIGN));
    MOII_REQUIRE(c->workspace, MOI_ERR_NOMEM, "%s: no memory for %lld bytes of workspace", c->call, (long long)bytes);
    return MOI_OK;
}

static moi_status quantize(moii_convert *c, int64_t rows)
{
    moi_quantize_args a = { .size = sizeof a, .rows = rows, .in = { c->source, NULL, 0 }, .rowwise = { c->codes, c->scales, 0 } };
    return moi_quantize_run(c->plan, &a, c->workspace, moi_plan_workspace_bytes(c->plan), NULL);
}

/* A part that is copied is a whole tensor. */
static moi_status copy(moii_convert *c, const moi_tensor *t)
{
    int64_t out = c->next++, piece = (int64_t)PIECE * 4;
    for (int64_t at = 0; at < t->bytes; at += piece) {
        int64_t n = moii_min(piece, t->bytes - at);
        MOII_TRY(moii_st_read(c->in, t, at, c->source, n));
        MOII_TRY(moii_st_writer_write_at(c->out, out, c->source, n, at));
        MOII_TRY(advance(c, t, n));
    }
    return MOI_OK;
}

/* Rows are whole blocks and dense, so the part is one string of blocks, whatever its shape: it is cut into rows of our own,
 * MX_COLS wide, and the rest into rows of one block. */
static moi_status quantize_mx(moii_convert *c, const moii_part *p)
{
    const moi_tensor *t = p->tensor;
    int64_t out = c->next, in_size = moi_dtype_bits(t->dtype) / 8;
    c->next += 2;
    for (int64_t at = 0; at < p->elements;) {
        int64_t left = p->elements - at, cols = left >= MX_COLS ? MX_COLS : MOII_MX_BLOCK;
        int64_t rows = moii_min(left, PIECE) / cols, n = rows * cols;
        MOII_TRY(plan_for(c, t->dtype, PIECE / cols, cols));
        MOII_TRY(moii_st_read(c->in, t, (p->first + at) * in_size, c->source, n * in_size));
        MOII_TRY(quantize(c, rows));
        MOII_TRY(moii_st_writer_write_at(c->out, out, c->codes, moi_row_bytes(c->format.elem, n), moi_row_bytes(c->format.elem, at)));
        MOII_TRY(moii_st_writer_write_at(c->out, out + 1, c->scales, n / MOII_MX_BLOCK, at / MOII_MX_BLOCK));
        MOII_TRY(advance(c, t, n * in_size));
        at += n;
    }
    return MOI_OK;
}

/* A rectangle of one matrix of a tensor, whose first element is `at`; the matrix has `cols` columns. */
static moi_status read_rectangle(const moii_convert *c, const moi_tensor *t, int64_t at, int64_t cols, int64_t rows, int64_t width)
{
    int64_t size = moi_dtype_bits(t->dtype) / 8;
    if (width == cols) return moii_st_read(c->in, t, at * size, c->source, rows * cols * size);
    for (int64_t r = 0; r < rows; r++)
        MOII_TRY(moii_st_read(c->in, t, (at + r * cols) * size, c->source + r * width * size, width * size));
    return MOI_OK;
}

static moi_status write_rectangle(const moii_convert *c, int64_t out, int64_t at, int64_t cols, int64_t rows, int64_t width)
{
    if (width == cols) return moii_st_writer_write_at(c->out, out, c->codes, rows * cols, at);
    for (int64_t r = 0; r < rows; r++) MOII_TRY(moii_st_writer_write_at(c->out, out, c->codes + r * width, width, at + r * cols));
    return MOI_OK;
}

static moi_status quantize_squares(moii_convert *c, const moii_part *p)
{
    const moi_tensor *t = p->tensor;
    int64_t out = c->next, rows = p->shape[p->rank - 2], cols = p->shape[p->rank - 1];
    c->next += 2;
    if (p->elements == 0) return MOI_OK;
    int64_t matrices = p->elements / (rows * cols), blocks = moii_ceil_div(cols, MOII_BLK), bands = moii_ceil_div(rows, MOII_BLK);
    for (int64_t col = 0; col < cols; col += SQUARE_COLS) {
        int64_t width = moii_min(SQUARE_COLS, cols - col), step = SQUARE_COLS / moii_round_up(width, MOII_BLK) * MOII_BLK;
        if (width < cols) step = MOII_BLK; /* so that the scales of a piece lie together */
        MOII_TRY(plan_for(c, t->dtype, step, width));
        for (int64_t m = 0; m < matrices; m++)
            for (int64_t row = 0; row < rows; row += step) {
                int64_t n = moii_min(step, rows - row), at = (m * rows + row) * cols + col;
                MOII_TRY(read_rectangle(c, t, p->first + at, cols, n, width));
                MOII_TRY(quantize(c, n));
                MOII_TRY(write_rectangle(c, out, at, cols, n, width));
                int64_t scales = moii_ceil_div(n, MOII_BLK) * moii_ceil_div(width, MOII_BLK);
                int64_t first = (m * bands + row / MOII_BLK) * blocks + col / MOII_BLK;
                MOII_TRY(moii_st_writer_write_at(c->out, out + 1, c->scales, scales * 4, first * 4));
                MOII_TRY(advance(c, t, n * width * moi_dtype_bits(t->dtype) / 8));
            }
    }
    return MOI_OK;
}

moi_status moii_convert_part(moii_convert *c, const moii_part *p)
{
    if (!p->quantized) return copy(c, p->tensor);
    return c->format.recipe == MOI_RECIPE_MX32 ? quantize_mx(c, p) : quantize_squares(c, p);
}
