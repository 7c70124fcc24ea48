/* SPDX-License-Identifier: Apache-2.0
 * bench_quantize.c: quantise and dequantise: bit for bit the reference, then bytes per second against memcpy. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { COPIES = 16 };

/* One buffer set of a run; several rotate so that no repetition finds its data in a cache. */
typedef struct buffers { void *in, *in_scale, *row, *row_scale, *col, *col_scale; } buffers;

typedef struct job {
    moi_plan *plan;
    void *workspace;
    int64_t rows, in_bytes, in_scale_bytes, row_bytes, row_scale_bytes, col_bytes, col_scale_bytes;
    int copies;
    buffers set[COPIES + 1]; /* the last is the reference's */
    bool dequantize;
} job;

static int copies_for(int64_t bytes)
{
    int64_t n = 2 * machine_cache_bytes() / (bytes + 1) + 2;
    return (int)(n > COPIES ? COPIES : n);
}

static bool run_on(const job *j, const moi_plan *plan, void *workspace, const buffers *s)
{
    if (j->dequantize) {
        moi_dequantize_args d = { .size = sizeof d, .rows = j->rows, .in = { s->in, s->in_scale, 0 }, .out = { s->row, NULL, 0 } };
        return !moi_dequantize_run(plan, &d, workspace, moi_plan_workspace_bytes(plan), NULL);
    }
    moi_quantize_args q = { .size = sizeof q, .rows = j->rows, .in = { s->in, NULL, 0 } };
    q.rowwise = (moi_result){ s->row, s->row_scale, 0 };
    q.colwise = (moi_result){ s->col, s->col_scale, 0 };
    return !moi_quantize_run(plan, &q, workspace, moi_plan_workspace_bytes(plan), NULL);
}

static bool run(void *user, int64_t repetition)
{
    const job *j = user;
    return run_on(j, j->plan, j->workspace, &j->set[repetition % j->copies]);
}

static void *copy_of(const void *from, int64_t bytes) { return bytes ? memcpy(bench_alloc(bytes), from, (size_t)bytes) : NULL; }

static void make_buffers(job *j, void *in, void *in_scale)
{
    for (int i = 0; i <= j->copies; i++) {
        buffers *s = &j->set[i];
        s->in = copy_of(in, j->in_bytes);
        s->in_scale = copy_of(in_scale, j->in_scale_bytes);
        s->row = j->row_bytes ? bench_alloc(j->row_bytes) : NULL;
        s->row_scale = j->row_scale_bytes ? bench_alloc(j->row_scale_bytes) : NULL;
        s->col = j->col_bytes ? bench_alloc(j->col_bytes) : NULL;
        s->col_scale = j->col_scale_bytes ? bench_alloc(j->col_scale_bytes) : NULL;
    }
}

static void free_job(job *j)
{
    for (int i = 0; i <= j->copies; i++) {
        buffers *s = &j->set[i];
        free(s->in), free(s->in_scale), free(s->row), free(s->row_scale), free(s->col), free(s->col_scale);
    }
    free(j->workspace);
    moi_plan_free(j->plan);
}

static bool same(const void *a, const void *b, int64_t bytes) { return !bytes || !memcmp(a, b, (size_t)bytes); }

/* NULL, or what differs from the reference. */
static const char *check(const bench *b, job *j, moi_plan *reference, moi_dtype out)
{
    buffers *got = &j->set[0], *want = &j->set[j->copies];
    void *workspace = bench_alloc(moi_plan_workspace_bytes(reference));
    bool ran = run_on(j, j->plan, j->workspace, got) && run_on(j, reference, workspace, want);
    free(workspace);
    if (!ran) return moi_last_error();
    bench_corrupt(b, out, got->row ? got->row : got->col);
    if (!same(got->row, want->row, j->row_bytes)) return "row-wise elements differ from the reference";
    if (!same(got->row_scale, want->row_scale, j->row_scale_bytes)) return "row-wise scales differ from the reference";
    if (!same(got->col, want->col, j->col_bytes)) return "column-wise elements differ from the reference";
    if (!same(got->col_scale, want->col_scale, j->col_scale_bytes)) return "column-wise scales differ from the reference";
    return NULL;
}

static bool finish(bench *b, bench_case *c, job *j, moi_plan *reference, moi_dtype out)
{
    static machine_limit limit;
    const char *wrong = check(b, j, reference, out);
    bool good = wrong ? bench_refuse(b, c->op, c->name, c->row, wrong) : true;
    if (good) good = machine_limit_copy(&limit, moi_ctx_threads(b->ctx)) || bench_refuse(b, c->op, c->name, c->row, "no memory");
    if (good) {
        c->limit = &limit;
        c->bytes = (double)(j->in_bytes + j->in_scale_bytes + j->row_bytes + j->row_scale_bytes + j->col_bytes + j->col_scale_bytes);
        c->work = (timing_work){ run, j };
        good = bench_time(b, c);
        machine_limit_free(&limit);
    }
    free_job(j);
    moi_plan_free(reference);
    return good;
}

bool bench_quantize(bench *b, const shapes *s, int line, const char *row)
{
    bench_case c = { .op = "quantize", .row = row };
    moi_quantize_desc desc = MOI_QUANTIZE_DESC_INIT;
    job j = { .rows = shapes_int(s, line, "rows", 4096) };
    const char *format = shapes_text(s, line, "format", "mxfp8"), *in = shapes_text(s, line, "in", "bf16");
    const char *want = shapes_text(s, line, "want", "row");
    moi_format f;
    desc.cols = shapes_int(s, line, "cols", 4096);
    desc.max_rows = j.rows;
    desc.row = row;
    snprintf(c.name, sizeof c.name, "%lldx%lld %s>%s %s", (long long)j.rows, (long long)desc.cols, in, format, want);
    if (!bench_format(format, &f) || !bench_dtype(in, &desc.in)) return bench_refuse(b, c.op, c.name, row, "unknown format");
    desc.rowwise = desc.colwise = f;
    desc.want = !strcmp(want, "both") ? MOI_WANT_ROWWISE | MOI_WANT_COLWISE : !strcmp(want, "col") ? MOI_WANT_COLWISE : MOI_WANT_ROWWISE;
    if (moi_quantize_plan_create(&j.plan, b->ctx, &desc)) return bench_declined(b, c.op, c.name, row);
    c.row = moi_plan_row(j.plan);
    moi_plan *reference;
    desc.row = "quantize_ref";
    if (moi_quantize_plan_create(&reference, b->ctx, &desc)) {
        moi_plan_free(j.plan);
        return bench_refuse(b, c.op, c.name, c.row, moi_last_error());
    }
    j.in_bytes = j.rows * moi_row_bytes(desc.in, desc.cols);
    if (desc.want & MOI_WANT_ROWWISE) {
        j.row_bytes = j.rows * moi_row_bytes(f.elem, desc.cols);
        j.row_scale_bytes = moi_scale_bytes(&f, j.rows, desc.cols, 0);
    }
    if (desc.want & MOI_WANT_COLWISE) {
        j.col_bytes = desc.cols * moi_row_bytes(f.elem, j.rows);
        j.col_scale_bytes = moi_scale_bytes(&f, desc.cols, j.rows, 0);
    }
    j.copies = copies_for(j.in_bytes + j.row_bytes + j.col_bytes);
    j.workspace = bench_alloc(moi_plan_workspace_bytes(j.plan));
    float *x = bench_alloc(j.rows * desc.cols * 4);
    void *typed = bench_alloc(j.in_bytes);
    bench_normal(b, x, j.rows * desc.cols, 1.0f);
    bench_to(desc.in, typed, x, j.rows * desc.cols);
    make_buffers(&j, typed, NULL);
    free(x);
    free(typed);
    return finish(b, &c, &j, reference, f.elem);
}

bool bench_dequantize(bench *b, const shapes *s, int line, const char *row)
{
    bench_case c = { .op = "dequantize", .row = row };
    moi_dequantize_desc desc = MOI_DEQUANTIZE_DESC_INIT;
    job j = { .rows = shapes_int(s, line, "rows", 4096), .dequantize = true };
    const char *format = shapes_text(s, line, "format", "mxfp8"), *out = shapes_text(s, line, "out", "f32");
    desc.cols = shapes_int(s, line, "cols", 4096);
    desc.max_rows = j.rows;
    desc.row = row;
    snprintf(c.name, sizeof c.name, "%lldx%lld %s>%s", (long long)j.rows, (long long)desc.cols, format, out);
    if (!bench_format(format, &desc.in) || !bench_dtype(out, &desc.out)) return bench_refuse(b, c.op, c.name, row, "unknown format");
    if (moi_dequantize_plan_create(&j.plan, b->ctx, &desc)) return bench_declined(b, c.op, c.name, row);
    c.row = moi_plan_row(j.plan);
    moi_plan *reference;
    bench_matrix in;
    desc.row = "dequantize_ref";
    if (moi_dequantize_plan_create(&reference, b->ctx, &desc)) {
        moi_plan_free(j.plan);
        return bench_refuse(b, c.op, c.name, c.row, moi_last_error());
    }
    if (!bench_matrix_random(b, &in, desc.in, j.rows, desc.cols, 1, 1)) {
        moi_plan_free(j.plan);
        moi_plan_free(reference);
        bench_matrix_free(&in);
        return bench_refuse(b, c.op, c.name, c.row, moi_last_error());
    }
    j.in_bytes = in.data_bytes;
    j.in_scale_bytes = in.scale_bytes;
    j.row_bytes = j.rows * moi_row_bytes(desc.out, desc.cols);
    j.copies = copies_for(j.in_bytes + j.row_bytes);
    j.workspace = bench_alloc(moi_plan_workspace_bytes(j.plan));
    make_buffers(&j, in.data, in.scale);
    bench_matrix_free(&in);
    return finish(b, &c, &j, reference, desc.out);
}
