/* SPDX-License-Identifier: Apache-2.0
 * bench_ggemm.c: grouped products with groups of uneven sizes, one of them empty, against plain sgemm of the same work. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

typedef struct job {
    moi_plan *plan;
    void *workspace;
    char *d;
    int64_t *offsets, rows;
    bench_matrix a, b;
    moi_ggemm_desc desc;
} job;

static bool run(void *user, int64_t repetition)
{
    const job *j = user;
    (void)repetition;
    moi_ggemm_args g = { .size = sizeof g, .rows = j->rows, .offsets = j->offsets, .a = bench_operand(&j->a, 0),
                         .b = bench_operand(&j->b, 0), .d = j->d };
    return !moi_ggemm_run(j->plan, &g, j->workspace, moi_plan_workspace_bytes(j->plan), NULL);
}

/* Uneven offsets: random cuts in ascending order, the second group empty. */
static void make_offsets(bench *b, job *j)
{
    int64_t groups = j->desc.groups;
    j->offsets = bench_alloc((groups + 1) * 8);
    for (int64_t g = 1; g < groups; g++) {
        int64_t even = j->rows * g / groups, spread = j->rows / groups / 2 + 1;
        j->offsets[g] = even + bench_below(b, spread) - spread / 2;
        if (j->offsets[g] < j->offsets[g - 1]) j->offsets[g] = j->offsets[g - 1];
    }
    if (groups > 2) j->offsets[2] = j->offsets[1];
    j->offsets[groups] = j->rows;
}

/* The transpose of random [rows, cols], quantised along rows without crossing groups: how wgrad's operands look. */
static bool make_ragged(bench *b, job *j, bench_matrix *m, moi_format format, int64_t cols)
{
    *m = (bench_matrix){ .format = format, .rows = cols, .cols = j->rows, .count = 1 };
    m->data_bytes = cols * moi_row_bytes(format.elem, moi_ragged_cols(&format, j->rows, j->desc.groups));
    m->scale_bytes = moi_scale_bytes(&format, cols, j->rows, j->desc.groups);
    m->data = bench_alloc(m->data_bytes);
    m->scale = m->scale_bytes ? bench_alloc(m->scale_bytes) : NULL;
    moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
    q.colwise = format;
    q.want = MOI_WANT_COLWISE;
    q.max_rows = j->rows;
    q.cols = cols;
    q.groups = j->desc.groups;
    moi_plan *plan;
    if (moi_quantize_plan_create(&plan, b->ctx, &q)) return false;
    float *x = bench_alloc(j->rows * cols * 4);
    void *workspace = bench_alloc(moi_plan_workspace_bytes(plan));
    bench_normal(b, x, j->rows * cols, 1.0f);
    moi_quantize_args args = { .size = sizeof args, .rows = j->rows, .in = { x, NULL, 0 }, .offsets = j->offsets };
    args.colwise = (moi_result){ m->data, m->scale, 0 };
    bool good = !moi_quantize_run(plan, &args, workspace, moi_plan_workspace_bytes(plan), NULL);
    free(x);
    free(workspace);
    moi_plan_free(plan);
    return good;
}

static bool make(bench *b, job *j)
{
    const moi_ggemm_desc *d = &j->desc;
    make_offsets(b, j);
    j->workspace = bench_alloc(moi_plan_workspace_bytes(j->plan));
    if (d->grouping == MOI_GROUP_K) {
        j->d = bench_alloc(d->groups * d->m * d->n * 4);
        return make_ragged(b, j, &j->a, d->a, d->m) && make_ragged(b, j, &j->b, d->b, d->n);
    }
    j->d = bench_alloc(j->rows * d->n * 4);
    return bench_matrix_random(b, &j->a, d->a, j->rows, d->k, 1, 1) && bench_matrix_random(b, &j->b, d->b, d->n, d->k, d->groups, d->groups);
}

static void free_job(job *j)
{
    free(j->workspace), free(j->d), free(j->offsets);
    bench_matrix_free(&j->a);
    bench_matrix_free(&j->b);
    moi_plan_free(j->plan);
}

static double check_group(const job *j, int64_t g, const double *a, const double *b)
{
    const moi_ggemm_desc *d = &j->desc;
    int64_t from = j->offsets[g], count = j->offsets[g + 1] - from;
    if (d->grouping == MOI_GROUP_M)
        return bench_check_product(a + from * d->k, d->k, b, d->k, count, d->n, d->k, MOI_F32, j->d + from * d->n * 4);
    return bench_check_product(a + from, j->rows, b + from, j->rows, d->m, d->n, count, MOI_F32, j->d + g * d->m * d->n * 4);
}

static double check(const bench *bench_, job *j)
{
    const moi_ggemm_desc *d = &j->desc;
    bool by_k = d->grouping == MOI_GROUP_K;
    if (!run(j, 0)) return (double)NAN;
    bench_corrupt(bench_, MOI_F32, j->d);
    double *a = bench_alloc(j->a.rows * j->a.cols * 8), *b = bench_alloc(j->b.rows * j->b.cols * 8), worst = 0;
    int64_t groups = by_k ? d->groups : 0;
    bench_decode(&j->a, 0, j->offsets, groups, a);
    if (by_k) bench_decode(&j->b, 0, j->offsets, groups, b);
    for (int64_t g = 0; g < d->groups && worst <= 1; g++) {
        if (!by_k) bench_decode(&j->b, g, NULL, 0, b);
        double ratio = check_group(j, g, a, b);
        if (!(ratio <= worst)) worst = ratio;
    }
    free(a);
    free(b);
    return worst;
}

static bool describe(const shapes *s, int line, const char *row, job *j)
{
    const char *format = shapes_text(s, line, "format", "mxfp8");
    bool by_k = !strcmp(shapes_text(s, line, "group", "m"), "k");
    j->desc = (moi_ggemm_desc)MOI_GGEMM_DESC_INIT;
    j->rows = shapes_int(s, line, "rows", 2048);
    j->desc.row = row;
    j->desc.grouping = by_k ? MOI_GROUP_K : MOI_GROUP_M;
    j->desc.groups = shapes_int(s, line, "groups", 8);
    j->desc.max_rows = j->rows;
    j->desc.m = by_k ? shapes_int(s, line, "m", 1024) : 0;
    j->desc.n = shapes_int(s, line, "n", 512);
    j->desc.k = by_k ? 0 : shapes_int(s, line, "k", 512);
    if (!bench_format(format, &j->desc.a)) return false;
    j->desc.b = j->desc.a;
    if (j->desc.b.recipe == MOI_RECIPE_BLK128 && !by_k) j->desc.b.block = MOI_BLOCK_SQUARE;
    return true;
}

bool bench_ggemm(bench *b, const shapes *s, int line, const char *row)
{
    static machine_limit limit;
    bench_case c = { .op = "ggemm", .row = row };
    job j = { 0 };
    if (!describe(s, line, row, &j)) return bench_refuse(b, c.op, "?", row, "unknown format");
    const moi_ggemm_desc *d = &j.desc;
    bool by_k = d->grouping == MOI_GROUP_K;
    int64_t m = by_k ? d->m : j.rows, k = by_k ? j.rows : d->k;
    snprintf(c.name, sizeof c.name, "by %s in %lld groups %lldx%lldx%lld %s", by_k ? "k" : "m", (long long)d->groups, (long long)m,
             (long long)d->n, (long long)k, shapes_text(s, line, "format", "mxfp8"));
    if (moi_ggemm_plan_create(&j.plan, b->ctx, d)) return bench_declined(b, c.op, c.name, row);
    c.row = moi_plan_row(j.plan);
    bool good = make(b, &j);
    if (!good) bench_refuse(b, c.op, c.name, c.row, moi_last_error());
    if (good) good = bench_within(b, &c, check(b, &j));
    if (good && !machine_limit_sgemm(&limit, m, d->n, k)) good = bench_refuse(b, c.op, c.name, c.row, "no memory");
    if (good) {
        c.limit = &limit;
        c.flops = limit.amount;
        c.bytes = (double)(j.a.data_bytes + j.a.scale_bytes + j.b.count * (j.b.data_bytes + j.b.scale_bytes)) +
                  4.0 * (double)(by_k ? d->groups * d->m * d->n : j.rows * d->n);
        c.work = (timing_work){ run, &j };
        good = bench_time(b, &c);
        machine_limit_free(&limit);
    }
    free_job(&j);
    return good;
}
