/* SPDX-License-Identifier: Apache-2.0
 * inputs.c: random inputs in every format, and what they mean in float64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

void *bench_alloc(int64_t bytes)
{
    size_t size = (size_t)(bytes > 0 ? bytes : 1);
    size = (size + 127) / 128 * 128;
    void *p = aligned_alloc(128, size);
    if (!p) {
        fprintf(stderr, "moiety bench: no memory for %lld bytes\n", (long long)bytes);
        exit(1);
    }
    return memset(p, 0, size);
}

static uint64_t next(bench *b)
{
    b->random ^= b->random >> 12;
    b->random ^= b->random << 25;
    b->random ^= b->random >> 27;
    return b->random * 0x2545F4914F6CDD1Dull;
}

int64_t bench_below(bench *b, int64_t n) { return (int64_t)(next(b) >> 11) % n; }

void bench_normal(bench *b, float *x, int64_t count, float scale)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t r = next(b);
        double u = ((double)(r >> 32) + 0.5) * 0x1p-32, v = (double)(r & 0xFFFFFFFFu) * 0x1p-32;
        x[i] = scale * (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
    }
}

void bench_to(moi_dtype dtype, void *to, const float *from, int64_t count)
{
    if (dtype == MOI_F32) memcpy(to, from, (size_t)count * 4);
    else
        for (int64_t i = 0; i < count; i++) moi_encode(dtype, to, i, from[i]);
}

bool bench_dtype(const char *name, moi_dtype *out)
{
    for (moi_dtype d = MOI_F32; d <= MOI_BOOL; d++)
        if (!strcmp(name, moi_dtype_name(d))) return *out = d, true;
    return false;
}

bool bench_format(const char *name, moi_format *out)
{
    static const struct { const char *name; moi_format format; } names[] = {
        { "f32", MOI_FMT_(MOI_RECIPE_F32, MOI_F32, MOI_BLOCK_VECTOR) },
        { "bf16", MOI_FMT_(MOI_RECIPE_BF16, MOI_BF16, MOI_BLOCK_VECTOR) },
        { "mxfp8", MOI_FMT_(MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR) },
        { "mxe5m2", MOI_FMT_(MOI_RECIPE_MX32, MOI_E5M2, MOI_BLOCK_VECTOR) },
        { "mxfp6", MOI_FMT_(MOI_RECIPE_MX32, MOI_E2M3, MOI_BLOCK_VECTOR) },
        { "mxe3m2", MOI_FMT_(MOI_RECIPE_MX32, MOI_E3M2, MOI_BLOCK_VECTOR) },
        { "mxfp4", MOI_FMT_(MOI_RECIPE_MX32, MOI_E2M1, MOI_BLOCK_VECTOR) },
        { "mxint8", MOI_FMT_(MOI_RECIPE_MX32, MOI_INT8, MOI_BLOCK_VECTOR) },
        { "blk128", MOI_FMT_(MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_VECTOR) },
        { "blk128w", MOI_FMT_(MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE) },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].name, name)) return *out = names[i].format, true;
    return false;
}

static bool fill_one(const moi_plan *plan, const bench_matrix *m, int64_t index, const float *from, void *workspace)
{
    char *data = m->data + index * m->data_bytes;
    if (!plan) return bench_to(m->format.elem, data, from, m->rows * m->cols), true;
    moi_quantize_args args = { .size = sizeof args, .rows = m->rows, .in = { from, NULL, 0 } };
    args.rowwise = (moi_result){ data, m->scale + index * m->scale_bytes, 0 };
    return !moi_quantize_run(plan, &args, workspace, moi_plan_workspace_bytes(plan), NULL);
}

/* Memory for the matrices, and the plan that fills them, NULL for plain ones. */
static bool open_matrix(bench *b, bench_matrix *m, moi_plan **plan)
{
    bool plain = m->format.recipe == MOI_RECIPE_F32 || m->format.recipe == MOI_RECIPE_BF16;
    *plan = NULL;
    if (!plain) {
        moi_quantize_desc desc = MOI_QUANTIZE_DESC_INIT;
        desc.rowwise = m->format;
        desc.max_rows = m->rows;
        desc.cols = m->cols;
        if (moi_quantize_plan_create(plan, b->host, &desc)) return false;
        m->scale_bytes = moi_scale_bytes(&m->format, m->rows, m->cols, 0);
    }
    m->data_bytes = m->rows * moi_row_bytes(m->format.elem, m->cols);
    m->data = bench_alloc(m->count * m->data_bytes);
    m->scale = plain ? NULL : bench_alloc(m->count * m->scale_bytes);
    return true;
}

bool bench_matrix_of(bench *b, bench_matrix *m, moi_format format, int64_t rows, int64_t cols, const float *from)
{
    moi_plan *plan;
    *m = (bench_matrix){ .format = format, .rows = rows, .cols = cols, .count = 1 };
    if (!open_matrix(b, m, &plan)) return false;
    void *workspace = plan ? bench_alloc(moi_plan_workspace_bytes(plan)) : NULL;
    bool good = fill_one(plan, m, 0, from, workspace);
    free(workspace);
    moi_plan_free(plan);
    return good;
}

bool bench_matrix_random(bench *b, bench_matrix *m, moi_format format, int64_t rows, int64_t cols, int64_t count, int64_t distinct)
{
    moi_plan *plan;
    *m = (bench_matrix){ .format = format, .rows = rows, .cols = cols, .count = count };
    if (!open_matrix(b, m, &plan)) return false;
    float *from = bench_alloc(rows * cols * 4);
    void *workspace = plan ? bench_alloc(moi_plan_workspace_bytes(plan)) : NULL;
    bool good = true;
    for (int64_t i = 0; good && i < count; i++) {
        if (i < distinct) {
            bench_normal(b, from, rows * cols, 1.0f / sqrtf((float)cols));
            good = fill_one(plan, m, i, from, workspace);
        } else {
            memcpy(m->data + i * m->data_bytes, m->data + (i % distinct) * m->data_bytes, (size_t)m->data_bytes);
            if (m->scale) memcpy(m->scale + i * m->scale_bytes, m->scale + (i % distinct) * m->scale_bytes, (size_t)m->scale_bytes);
        }
    }
    free(from);
    free(workspace);
    moi_plan_free(plan);
    return good;
}

void bench_matrix_free(bench_matrix *m)
{
    free(m->data);
    free(m->scale);
    m->data = m->scale = NULL;
}

moi_operand bench_operand(const bench_matrix *m, int64_t index)
{
    return (moi_operand){ m->data + index * m->data_bytes, m->scale ? m->scale + index * m->scale_bytes : NULL, 0 };
}

static double scale_of(const bench_matrix *m, const char *scale, int64_t row, int64_t block, int64_t blocks)
{
    bool square = m->format.block == MOI_BLOCK_SQUARE;
    moi_dtype type = m->format.recipe == MOI_RECIPE_MX32 ? MOI_E8M0 : MOI_F32;
    int64_t rows = square ? (m->rows + 127) / 128 : m->rows;
    int64_t at = moi_scale_index(m->format.layout, type, square ? row / 128 : row, block, rows, blocks);
    if (type == MOI_F32) return (double)((const float *)(const void *)scale)[at];
    uint8_t code = ((const uint8_t *)scale)[at];
    return code == 0xFF ? (double)NAN : ldexp(1.0, code - 127);
}

void bench_decode(const bench_matrix *m, int64_t index, const int64_t *offsets, int64_t groups, double *dst)
{
    int64_t width = moi_format_block(&m->format), blocks = width ? moi_scale_blocks(&m->format, m->cols, groups) : 0;
    const char *data = m->data + index * m->data_bytes, *scale = m->scale ? m->scale + index * m->scale_bytes : NULL;
    for (int64_t r = 0; r < m->rows; r++) {
        const char *row = data + r * moi_row_bytes(m->format.elem, moi_ragged_cols(&m->format, m->cols, groups));
        int64_t group = 0;
        for (int64_t c = 0; c < m->cols; c++) {
            int64_t at = c;
            double scale_here = 1.0;
            if (width) {
                int64_t start = 0;
                while (groups && group + 1 < groups && c >= offsets[group + 1]) group++;
                if (groups) start = offsets[group];
                int64_t block = (groups ? start / width + group : 0) + (c - start) / width;
                scale_here = scale_of(m, scale, r, block, blocks);
                if (groups) at = block * width + (c - start) % width;
            }
            dst[r * m->cols + c] = (double)moi_decode(m->format.elem, row, at) * scale_here;
        }
    }
}
