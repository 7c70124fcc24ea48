/* SPDX-License-Identifier: Apache-2.0
 * convert.c: quantising the linear weights of a checkpoint, tensor by tensor, in pieces of a few MB.
 *
 * The data goes through pread and pwrite, not through the mapping, so that neither the size of the file nor of a tensor shows
 * in memory.  A tensor's codes and scales grow side by side: each piece is written where it belongs. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ctx.h"
#include "format.h"
#include "safetensors.h"
#include "status.h"

/* A piece has at most PIECE elements.  MX: whole rows of MX_COLS; squares: bands of 128 rows, at most SQUARE_COLS wide. */
enum { PIECE = 1 << 20, MX_COLS = 1024, SQUARE_COLS = PIECE / MOII_BLK };

typedef struct file_format {
    const char *name; /* in the metadata */
    const char *suffix, *scale_suffix;
    moi_format format;
    moi_dtype type, scale_type; /* as the file declares them */
} file_format;

static const file_format formats[] = {
    [MOI_FILE_MXFP8] = { "mxfp8", "", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E4M3 }, MOI_E4M3, MOI_U8 },
    [MOI_FILE_MXFP4] = { "mxfp4", "_packed", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M1 }, MOI_U8, MOI_U8 },
    [MOI_FILE_MXFP6] = { "mxfp6", "_packed", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M3 }, MOI_U8, MOI_U8 },
    [MOI_FILE_FP8_BLOCK] = { "fp8-block", "", "_scale_inv",
                             { .recipe = MOI_RECIPE_BLK128, .elem = MOI_E4M3, .block = MOI_BLOCK_SQUARE }, MOI_E4M3, MOI_F32 },
};

typedef struct job {
    moi_ctx *ctx;
    moi_convert_options options;
    const file_format *file_format;
    moi_format format;
    moi_st *in;
    moi_st_writer *out;
    int64_t declared;          /* tensors of the output so far */
    int64_t next;              /* output tensor that comes next */
    int64_t done, total;       /* bytes of the input */
    unsigned char *source, *codes, *scales;
    moi_plan *plan;            /* of plan_desc */
    moi_quantize_desc plan_desc;
    void *workspace;
} job;

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Whether one of the comma-separated pieces of `list` is part of the name. */
static bool listed(const char *list, const char *name)
{
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        for (const char *at = name; n && *at; at++)
            if (!strncmp(at, p, n)) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

static bool is_linear(const job *j, const moi_tensor *t)
{
    if (t->rank < 2 || (t->dtype != MOI_F32 && t->dtype != MOI_F16 && t->dtype != MOI_BF16)) return false;
    if (!ends_in(t->name, "_proj.weight") && !ends_in(t->name, "experts.gate_up_proj") && !ends_in(t->name, "experts.down_proj")) return false;
    return !listed(j->options.keep, t->name);
}

/* ---- what the output will contain ---- */

static moi_status declare(job *j, const moi_tensor *t, const char *suffix, moi_dtype dtype, const int64_t *shape)
{
    size_t size = strlen(t->name) + strlen(suffix) + 1;
    char *name = malloc(size);
    MOII_REQUIRE(name, MOI_ERR_NOMEM, "moi_checkpoint_quantize: no memory");
    memcpy(name, t->name, strlen(t->name));
    memcpy(name + strlen(t->name), suffix, strlen(suffix) + 1);
    moi_status status = moi_st_writer_declare(j->out, name, dtype, t->rank, shape);
    free(name);
    if (!status) j->declared++;
    return status;
}

static moi_status declare_quantized(job *j, const moi_tensor *t)
{
    const file_format *f = j->file_format;
    char shown[MOII_ST_SHOWN];
    int64_t codes[MOI_ST_MAX_RANK], scales[MOI_ST_MAX_RANK], cols = t->shape[t->rank - 1];
    bool mx = f->format.recipe == MOI_RECIPE_MX32;
    MOII_REQUIRE(!mx || cols % MOII_MX_BLOCK == 0, MOI_ERR_SHAPE,
                 "moi_checkpoint_quantize: tensor '%s': %s needs a last dimension that is a multiple of 32, got %lld; name it in `keep`",
                 moii_st_show(shown, t->name), f->name, (long long)cols);
    for (int32_t i = 0; i < t->rank; i++) codes[i] = scales[i] = t->shape[i];
    codes[t->rank - 1] = moi_row_bytes(f->format.elem, cols);
    scales[t->rank - 1] = moi_scale_blocks(&f->format, cols, 0);
    scales[t->rank - 2] = moii_scale_rows(&f->format, t->shape[t->rank - 2]);
    MOII_TRY(declare(j, t, f->suffix, f->type, codes));
    return declare(j, t, f->scale_suffix, f->scale_type, scales);
}

static moi_status declare_all(job *j)
{
    const char *key;
    json_t *value;
    json_object_foreach(j->in->metadata, key, value) MOII_TRY(moi_st_writer_metadata(j->out, key, json_string_value(value)));
    MOII_TRY(moi_st_writer_metadata(j->out, "moiety.format", j->file_format->name));
    if (j->format.recipe == MOI_RECIPE_MX32) MOII_TRY(moi_st_writer_metadata(j->out, "moiety.round", moi_round_name(j->format.round)));
    for (int64_t i = 0; i < j->in->count; i++) {
        const moi_tensor *t = &j->in->tensors[i];
        j->total += t->bytes;
        if (is_linear(j, t)) MOII_TRY(declare_quantized(j, t));
        else MOII_TRY(declare(j, t, "", t->dtype, t->shape));
    }
    return MOI_OK;
}

/* ---- one piece ---- */

static moi_status advance(job *j, const moi_tensor *t, int64_t bytes)
{
    char shown[MOII_ST_SHOWN];
    j->done += bytes;
    if (!j->options.progress || j->options.progress(j->options.user, t->name, j->done, j->total)) return MOI_OK;
    MOII_FAIL(MOI_ERR_CANCELLED, "moi_checkpoint_quantize: stopped at tensor '%s', after %lld of %lld bytes", moii_st_show(shown, t->name),
              (long long)j->done, (long long)j->total);
}

static void drop_plan(job *j)
{
    moi_plan_free(j->plan);
    free(j->workspace);
    j->plan = NULL;
    j->workspace = NULL;
}

static moi_status plan_for(job *j, moi_dtype in, int64_t max_rows, int64_t cols)
{
    if (j->plan && j->plan_desc.in == in && j->plan_desc.max_rows == max_rows && j->plan_desc.cols == cols) return MOI_OK;
    drop_plan(j);
    j->plan_desc = (moi_quantize_desc)MOI_QUANTIZE_DESC_INIT;
    j->plan_desc.in = in;
    j->plan_desc.rowwise = j->format;
    j->plan_desc.max_rows = max_rows;
    j->plan_desc.cols = cols;
    MOII_TRY(moi_quantize_plan_create(&j->plan, j->ctx, &j->plan_desc));
    int64_t bytes = moi_plan_workspace_bytes(j->plan);
    if (bytes == 0) return MOI_OK;
    j->workspace = aligned_alloc(MOII_WORKSPACE_ALIGN, (size_t)moii_round_up(bytes, MOII_WORKSPACE_ALIGN));
    MOII_REQUIRE(j->workspace, MOI_ERR_NOMEM, "moi_checkpoint_quantize: no memory for %lld bytes of workspace", (long long)bytes);
    return MOI_OK;
}

static moi_status quantize(job *j, int64_t rows)
{
    moi_quantize_args a = { .size = sizeof a, .rows = rows, .in = { j->source, NULL, 0 }, .rowwise = { j->codes, j->scales, 0 } };
    return moi_quantize_run(j->plan, &a, j->workspace, moi_plan_workspace_bytes(j->plan), NULL);
}

/* ---- one tensor ---- */

static moi_status copy(job *j, const moi_tensor *t)
{
    int64_t out = j->next++, piece = (int64_t)PIECE * 4;
    for (int64_t at = 0; at < t->bytes; at += piece) {
        int64_t n = moii_min(piece, t->bytes - at);
        MOII_TRY(moii_st_read(j->in, t, at, j->source, n));
        MOII_TRY(moii_st_writer_write_at(j->out, out, j->source, n, at));
        MOII_TRY(advance(j, t, n));
    }
    return MOI_OK;
}

/* Rows are whole blocks and dense, so the tensor is one string of blocks, whatever its shape: it is cut into rows of our own,
 * MX_COLS wide, and the rest into rows of one block. */
static moi_status quantize_mx(job *j, const moi_tensor *t)
{
    int64_t out = j->next, in_size = moi_dtype_bits(t->dtype) / 8;
    j->next += 2;
    for (int64_t at = 0; at < t->elements;) {
        int64_t left = t->elements - at, cols = left >= MX_COLS ? MX_COLS : MOII_MX_BLOCK;
        int64_t rows = moii_min(left, PIECE) / cols, n = rows * cols;
        MOII_TRY(plan_for(j, t->dtype, PIECE / cols, cols));
        MOII_TRY(moii_st_read(j->in, t, at * in_size, j->source, n * in_size));
        MOII_TRY(quantize(j, rows));
        MOII_TRY(moii_st_writer_write_at(j->out, out, j->codes, moi_row_bytes(j->format.elem, n), moi_row_bytes(j->format.elem, at)));
        MOII_TRY(moii_st_writer_write_at(j->out, out + 1, j->scales, n / MOII_MX_BLOCK, at / MOII_MX_BLOCK));
        MOII_TRY(advance(j, t, n * in_size));
        at += n;
    }
    return MOI_OK;
}

/* A rectangle of one matrix of a tensor, whose first element is `at`; the matrix has `cols` columns. */
static moi_status read_rectangle(const job *j, const moi_tensor *t, int64_t at, int64_t cols, int64_t rows, int64_t width)
{
    int64_t size = moi_dtype_bits(t->dtype) / 8;
    if (width == cols) return moii_st_read(j->in, t, at * size, j->source, rows * cols * size);
    for (int64_t r = 0; r < rows; r++)
        MOII_TRY(moii_st_read(j->in, t, (at + r * cols) * size, j->source + r * width * size, width * size));
    return MOI_OK;
}

static moi_status write_rectangle(const job *j, int64_t out, int64_t at, int64_t cols, int64_t rows, int64_t width)
{
    if (width == cols) return moii_st_writer_write_at(j->out, out, j->codes, rows * cols, at);
    for (int64_t r = 0; r < rows; r++) MOII_TRY(moii_st_writer_write_at(j->out, out, j->codes + r * width, width, at + r * cols));
    return MOI_OK;
}

static moi_status quantize_squares(job *j, const moi_tensor *t)
{
    int64_t out = j->next, rows = t->shape[t->rank - 2], cols = t->shape[t->rank - 1];
    j->next += 2;
    if (t->elements == 0) return MOI_OK;
    int64_t matrices = t->elements / (rows * cols), blocks = moii_ceil_div(cols, MOII_BLK), bands = moii_ceil_div(rows, MOII_BLK);
    for (int64_t col = 0; col < cols; col += SQUARE_COLS) {
        int64_t width = moii_min(SQUARE_COLS, cols - col), step = SQUARE_COLS / moii_round_up(width, MOII_BLK) * MOII_BLK;
        if (width < cols) step = MOII_BLK; /* so that the scales of a piece lie together */
        MOII_TRY(plan_for(j, t->dtype, step, width));
        for (int64_t m = 0; m < matrices; m++)
            for (int64_t row = 0; row < rows; row += step) {
                int64_t n = moii_min(step, rows - row), at = (m * rows + row) * cols + col;
                MOII_TRY(read_rectangle(j, t, at, cols, n, width));
                MOII_TRY(quantize(j, n));
                MOII_TRY(write_rectangle(j, out, at, cols, n, width));
                int64_t scales = moii_ceil_div(n, MOII_BLK) * moii_ceil_div(width, MOII_BLK);
                int64_t first = (m * bands + row / MOII_BLK) * blocks + col / MOII_BLK;
                MOII_TRY(moii_st_writer_write_at(j->out, out + 1, j->scales, scales * 4, first * 4));
                MOII_TRY(advance(j, t, n * width * moi_dtype_bits(t->dtype) / 8));
            }
    }
    return MOI_OK;
}

/* ---- the file ---- */

static moi_status convert(job *j)
{
    j->source = aligned_alloc(MOII_WORKSPACE_ALIGN, (size_t)PIECE * 4);
    j->codes = aligned_alloc(MOII_WORKSPACE_ALIGN, PIECE);
    j->scales = aligned_alloc(MOII_WORKSPACE_ALIGN, PIECE / MOII_MX_BLOCK);
    MOII_REQUIRE(j->source && j->codes && j->scales, MOI_ERR_NOMEM, "moi_checkpoint_quantize: no memory");
    MOII_TRY(declare_all(j));
    posix_fadvise(j->in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (int64_t i = 0; i < j->in->count; i++) {
        const moi_tensor *t = &j->in->tensors[i];
        if (!is_linear(j, t)) MOII_TRY(copy(j, t));
        else if (j->format.recipe == MOI_RECIPE_MX32) MOII_TRY(quantize_mx(j, t));
        else MOII_TRY(quantize_squares(j, t));
    }
    moi_st_writer *out = j->out;
    j->out = NULL;
    return moi_st_writer_commit(out);
}

static moi_status check_paths(const char *in, const char *out)
{
    struct stat a, b;
    bool same = stat(in, &a) == 0 && stat(out, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    MOII_REQUIRE(!same, MOI_ERR_ARG, "moi_checkpoint_quantize: in and out are the same file, %s", in);
    return MOI_OK;
}

moi_status moi_checkpoint_quantize(moi_ctx *ctx, const char *in, const char *out, const moi_convert_options *options)
{
    job j = { .ctx = ctx };
    MOII_REQUIRE(ctx && in && out, MOI_ERR_ARG, "moi_checkpoint_quantize: %s is NULL", !ctx ? "ctx" : in ? "out" : "in");
    MOII_TRY(moii_take(&j.options, sizeof j.options, options, "moi_checkpoint_quantize: options"));
    MOII_REQUIRE(j.options.format >= MOI_FILE_MXFP8 && j.options.format <= MOI_FILE_FP8_BLOCK, MOI_ERR_ARG,
                 "moi_checkpoint_quantize: format must be 1..4, got %d", (int)j.options.format);
    MOII_REQUIRE((unsigned int)j.options.round <= MOI_ROUND_EVEN, MOI_ERR_ARG, "moi_checkpoint_quantize: round must be 0..3, got %d",
                 (int)j.options.round);
    MOII_REQUIRE(ctx->backend->id == MOI_BACKEND_CPU, MOI_ERR_UNSUPPORTED,
                 "moi_checkpoint_quantize: needs a context of the cpu back end, got %s", ctx->backend->name);
    j.file_format = &formats[j.options.format];
    j.format = j.file_format->format;
    j.format.round = j.options.round;
    MOII_TRY(check_paths(in, out));
    moi_status status = moi_st_open(&j.in, in);
    if (!status && moi_st_metadata(j.in, "moiety.format"))
        status = moii_fail(MOI_ERR_FORMAT, "%s: wanted plain weights, got a file quantised to %.32s", in, moi_st_metadata(j.in, "moiety.format"));
    if (!status) status = moi_st_writer_create(&j.out, out);
    if (!status) status = convert(&j);
    moi_st_writer_cancel(j.out);
    moi_st_close(j.in);
    drop_plan(&j);
    free(j.source);
    free(j.codes);
    free(j.scales);
    return status;
}
