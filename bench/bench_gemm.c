/* SPDX-License-Identifier: Apache-2.0
 * bench_gemm.c: matrix products, with or without the quantisation of A, against plain sgemm of the same size. */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

typedef struct job {
    moi_plan *plan, *quantize; /* quantize: NULL if A is given in its format */
    void *workspace, *q_workspace, *typed, *d; /* typed: A in BF16 */
    bench_matrix a, b;
    int64_t m;
} job;

static bool run(void *user, int64_t repetition)
{
    const job *j = user;
    (void)repetition;
    if (j->quantize) {
        moi_quantize_args q = { .size = sizeof q, .rows = j->m, .in = { j->typed, NULL, 0 } };
        q.rowwise = (moi_result){ j->a.data, j->a.scale, 0 };
        if (moi_quantize_run(j->quantize, &q, j->q_workspace, moi_plan_workspace_bytes(j->quantize), NULL)) return false;
    }
    moi_gemm_args g = { .size = sizeof g, .m = j->m, .a = bench_operand(&j->a, 0), .b = bench_operand(&j->b, 0), .d = j->d };
    return !moi_gemm_run(j->plan, &g, j->workspace, moi_plan_workspace_bytes(j->plan), NULL);
}

static void free_job(job *j)
{
    free(j->workspace), free(j->q_workspace), free(j->typed), free(j->d);
    bench_matrix_free(&j->a);
    bench_matrix_free(&j->b);
    moi_plan_free(j->quantize);
    moi_plan_free(j->plan);
}

static bool make(bench *b, job *j, const moi_gemm_desc *desc, bool quantize)
{
    if (!bench_matrix_random(b, &j->a, desc->a, j->m, desc->k, 1, 1) || !bench_matrix_random(b, &j->b, desc->b, desc->n, desc->k, 1, 1))
        return false;
    j->workspace = bench_alloc(moi_plan_workspace_bytes(j->plan));
    j->d = bench_alloc(j->m * moi_row_bytes(desc->out, desc->n));
    if (!quantize) return true;
    moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
    q.in = MOI_BF16;
    q.rowwise = desc->a;
    q.max_rows = j->m;
    q.cols = desc->k;
    if (moi_quantize_plan_create(&j->quantize, b->ctx, &q)) return false;
    j->q_workspace = bench_alloc(moi_plan_workspace_bytes(j->quantize));
    j->typed = bench_alloc(j->m * desc->k * 2);
    float *x = bench_alloc(j->m * desc->k * 4);
    bench_normal(b, x, j->m * desc->k, 1.0f);
    bench_to(MOI_BF16, j->typed, x, j->m * desc->k);
    free(x);
    return true;
}

/* How far from right, as a part of what is allowed.  The run before has left A quantised. */
static double check(const bench *b, job *j, const moi_gemm_desc *desc)
{
    if (!run(j, 0)) return (double)NAN;
    bench_corrupt(b, desc->out, j->d);
    double *x = bench_alloc(j->m * desc->k * 8), *y = bench_alloc(desc->n * desc->k * 8);
    bench_decode(&j->a, 0, NULL, 0, x);
    bench_decode(&j->b, 0, NULL, 0, y);
    double worst = bench_check_product(x, desc->k, y, desc->k, j->m, desc->n, desc->k, desc->out, j->d);
    free(x);
    free(y);
    return worst;
}

bool bench_gemm(bench *b, const shapes *s, int line, const char *row)
{
    static machine_limit limit;
    bench_case c = { .op = "gemm", .row = row };
    moi_gemm_desc desc = MOI_GEMM_DESC_INIT;
    job j = { .m = shapes_int(s, line, "m", 1024) };
    const char *format = shapes_text(s, line, "format", "mxfp8"), *out = shapes_text(s, line, "out", "f32");
    bool quantize = shapes_int(s, line, "quantize", 0) == 1;
    desc.row = row;
    desc.max_m = j.m;
    desc.n = shapes_int(s, line, "n", 1024);
    desc.k = shapes_int(s, line, "k", 1024);
    snprintf(c.name, sizeof c.name, "%lldx%lldx%lld %s%s>%s", (long long)j.m, (long long)desc.n, (long long)desc.k, quantize ? "bf16>" : "",
             format, out);
    if (!bench_format(format, &desc.a) || !bench_dtype(out, &desc.out)) return bench_refuse(b, c.op, c.name, row, "unknown format");
    desc.b = desc.a;
    if (desc.b.recipe == MOI_RECIPE_BLK128) desc.b.block = MOI_BLOCK_SQUARE;
    if (moi_gemm_plan_create(&j.plan, b->ctx, &desc)) return bench_declined(b, c.op, c.name, row);
    c.row = moi_plan_row(j.plan);
    bool good = make(b, &j, &desc, quantize);
    if (!good) bench_refuse(b, c.op, c.name, c.row, moi_last_error());
    if (good) good = bench_within(b, &c, check(b, &j, &desc));
    if (good && !machine_limit_sgemm(&limit, j.m, desc.n, desc.k)) good = bench_refuse(b, c.op, c.name, c.row, "no memory");
    if (good) {
        c.limit = &limit;
        c.flops = limit.amount;
        c.bytes = (double)(j.a.data_bytes + j.a.scale_bytes + j.b.data_bytes + j.b.scale_bytes + j.m * moi_row_bytes(desc.out, desc.n) +
                           (quantize ? j.m * desc.k * 2 : 0));
        c.work = (timing_work){ run, &j };
        good = bench_time(b, &c);
        machine_limit_free(&limit);
    }
    free_job(&j);
    return good;
}
