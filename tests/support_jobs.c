/* SPDX-License-Identifier: Apache-2.0 */
#include "support_jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define V(r, e) { (r), (e), MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#define SQ(e) { MOI_RECIPE_BLK128, (e), MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
const moit_pair moit_pairs[MOIT_ALL_PAIRS] = {
    { V(MOI_RECIPE_BLK128, MOI_E4M3), SQ(MOI_E4M3) },
    { V(MOI_RECIPE_BLK128, MOI_E4M3), V(MOI_RECIPE_BLK128, MOI_E4M3) },
    { V(MOI_RECIPE_MX32, MOI_E4M3), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_MX32, MOI_E5M2), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_BF16, MOI_BF16) },
    { V(MOI_RECIPE_BLK128, MOI_E5M2), SQ(MOI_E4M3) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_MX32, MOI_E5M2) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_MX32, MOI_E2M1) },
};

static void equal_scales(moit_matrix *x, moi_mx_scales mx)
{
    if (mx == MOI_MX_FREE) return;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t r = 0; r < x->rows; r++)
            for (int64_t g = 0; g < (x->groups ? x->groups : 1); g++) /* a group's are counted from its beginning */
                for (int64_t first = x->groups ? x->offsets[g] : 0, l = first; l < (x->groups ? x->offsets[g + 1] : x->depth); l += 32)
                    moit_matrix_set_scale(x, b, r, l, ldexpf(1.0f, (int)((b * 5 + g * 3 + (mx == MOI_MX_PER_ROW ? r : r * 7 + (l - first) / 128)) % 9) - 4));
    moit_matrix_read(x);
}

bool moit_job_experts(const moit_job *j) { return j->grouping == MOI_GROUP_M || j->grouping == MOI_GROUP_MASKED; }

void moit_job_operands(moit_job *j, moit_rng *rng)
{
    bool by_depth = j->grouping == MOI_GROUP_K;
    if (by_depth) j->rows = (j->rows + 15) / 16 * 16; /* pitch of plain operands */
    j->a.rows = j->a_rows ? j->a_rows : moit_job_experts(j) ? j->rows : j->m, j->a.depth = by_depth ? j->rows : j->k;
    j->b.rows = j->n, j->b.depth = j->a.depth;
    if (moit_job_experts(j)) j->b.batch = j->groups;
    if (j->grouping == MOI_GROUP_MASKED) j->a.batch = j->groups;
    if (by_depth) j->a.groups = j->b.groups = j->groups, j->a.offsets = j->b.offsets = j->offsets;
    moit_matrix_make(&j->a, rng);
    moit_matrix_make(&j->b, rng);
    equal_scales(&j->a, j->mx), equal_scales(&j->b, j->mx);
    for (int64_t g = 0; g < j->groups && j->grouping == MOI_GROUP_MASKED; g++) { /* rows that do not count hold whatever is worst */
        int64_t bytes = moi_row_bytes(j->a.format.elem, j->a.ld), line = g * j->rows + j->counts[g];
        memset((char *)j->a.data + line * bytes, 0xFF, (size_t)((j->rows - j->counts[g]) * bytes));
    }
    j->lines = j->d_rows ? j->d_rows : moit_job_experts(j) ? j->rows * j->a.batch : by_depth ? j->groups * j->m : j->m;
}

void moit_job_weigh(moit_job *j, moit_rng *rng)
{
    j->weight = malloc((size_t)j->rows * sizeof *j->weight + 1);
    for (int64_t r = 0; r < j->rows; r++) j->weight[r] = moit_normal(rng);
}

/* The product's rows go to rows of D in no order, some nowhere. */
void moit_job_scatter(moit_job *j, moit_rng *rng)
{
    j->d_rows = j->rows + 1 + moit_under(rng, 4);
    j->place = malloc((size_t)j->d_rows * sizeof *j->place);
    for (int64_t i = 0; i < j->d_rows; i++) {
        int64_t at = moit_under(rng, i + 1);
        j->place[i] = j->place[at], j->place[at] = (int32_t)i;
    }
    for (int64_t i = 0; i < j->d_rows; i++)
        if (!moit_under(rng, 10)) j->place[i] = -1;
}

void moit_job_gather(moit_job *j, moit_rng *rng, int64_t a_rows)
{
    j->a_rows = a_rows, j->index = malloc((size_t)j->rows * sizeof *j->index + 1);
    for (int64_t r = 0; r < j->rows; r++) j->index[r] = (int32_t)moit_under(rng, a_rows);
    for (int64_t r = j->offsets[j->groups]; r < j->rows; r++) j->index[r] = r % 2 ? INT32_MAX : -5; /* nobody looks at those */
}

static const char *row_of(const moit_job *j)
{
    if (j->gpu) return j->grouping == MOIT_DENSE ? "gemm_sm90" : "ggemm_sm90";
    return j->grouping == MOIT_DENSE ? "gemm_fast" : "ggemm_fast";
}

static void compare_told(void *user, const char *name, const char *value)
{
    moit_job *j = user;
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%lld", (long long)moi_plan_workspace_bytes(j->plan));
    if (!strcmp(name, "chosen")) assert_string_equal(value, moi_plan_row(j->plan));
    if (!strcmp(name, "workspace")) assert_string_equal(value, bytes);
    if (!strcmp(name, "kernel")) snprintf(j->kernel, sizeof j->kernel, "%s", value);
}

/* P:gemm.explain */
void moit_job_plan(moit_job *j, moi_ctx *ctx)
{
    moi_explain_config to = MOI_EXPLAIN_CONFIG_INIT;
    to.each = compare_told, to.user = j;
    if (j->grouping == MOIT_DENSE) {
        moi_gemm_desc d = { .size = sizeof d, .row = row_of(j), .a = j->a.format, .b = j->b.format, .a_order = j->a.order, .b_order = j->b.order,
                            .out = j->out, .accumulate = j->accumulate, .max_m = j->m, .n = j->n, .k = j->k, .mx = j->mx,
                            .sm_limit = j->sm_limit, .overlap = j->overlap };
        moit_ok(moi_gemm_plan_create(&j->plan, ctx, &d));
        moit_ok(moi_gemm_explain(ctx, &d, &to));
    } else {
        moi_ggemm_desc d = { .size = sizeof d, .row = row_of(j), .grouping = (moi_grouping)j->grouping, .a = j->a.format, .b = j->b.format,
                             .a_order = j->a.order, .b_order = j->b.order, .out = j->out, .accumulate = j->accumulate, .groups = j->groups,
                             .max_rows = j->rows, .m = j->grouping == MOI_GROUP_K ? j->m : 0, .n = j->n, .k = j->grouping == MOI_GROUP_K ? 0 : j->k,
                             .mx = j->mx, .expected_rows = j->expected, .sm_limit = j->sm_limit, .overlap = j->overlap, .gather_rows = j->a_rows,
                             .scatter_rows = j->d_rows, .weighted = j->weight != NULL };
        moit_ok(moi_ggemm_plan_create(&j->plan, ctx, &d));
        moit_ok(moi_ggemm_explain(ctx, &d, &to));
    }
    int64_t bytes = j->lines * moit_job_line(j);
    j->d = moit_alloc(bytes);
    memset(j->d, 0xFF, (size_t)bytes);
    j->before = calloc((size_t)(j->lines * j->n) + 1, sizeof(float));
}

int64_t moit_job_line(const moit_job *j) { return moi_row_bytes(j->out, j->ldd ? j->ldd : j->n); }

bool moit_job_chose(const moit_job *j, const char *define) { return strstr(j->kernel, define) != NULL; }

static int runs_of(const moit_job *j) { return j->runs > 0 ? j->runs : 1; }

/* All runs, up to one that fails. */
static moi_status run_dense(const moit_job *j, const moi_gemm_args *x, void *w, moi_stream stream)
{
    moi_status status = MOI_OK;
    for (int i = 0; i < runs_of(j) && !status; i++) status = moi_gemm_run(j->plan, x, w, moi_plan_workspace_bytes(j->plan), stream);
    return status;
}

static moi_status run_grouped(const moit_job *j, const moi_ggemm_args *x, void *w, moi_stream stream)
{
    moi_status status = MOI_OK;
    for (int i = 0; i < runs_of(j) && !status; i++) status = moi_ggemm_run(j->plan, x, w, moi_plan_workspace_bytes(j->plan), stream);
    return status;
}

void moit_job_run(moit_job *j)
{
    moit_mem m = moit_mem_of(row_of(j));
    moi_operand a = { moit_in(&m, j->a.data, j->a.data_bytes), j->a.scale_bytes ? moit_in(&m, j->a.scale, j->a.scale_bytes) : NULL, j->a.ld };
    moi_operand b = { moit_in(&m, j->b.data, j->b.data_bytes), j->b.scale_bytes ? moit_in(&m, j->b.scale, j->b.scale_bytes) : NULL, j->b.ld };
    void *d = moit_out(&m, j->d, j->lines * moit_job_line(j)), *w = moit_mem_workspace(&m, j->plan);
    if (j->grouping == MOIT_DENSE) {
        moi_gemm_args x = { .size = sizeof x, .m = j->m, .a = a, .b = b, .d = d, .ldd = j->ldd };
        moit_mem_run(&m, run_dense(j, &x, w, m.stream));
    } else {
        bool masked = j->grouping == MOI_GROUP_MASKED;
        int64_t *cuts = moit_in(&m, masked ? j->counts : j->offsets, (j->groups + !masked) * (int64_t)sizeof(int64_t));
        moi_ggemm_args x = { .size = sizeof x, .rows = j->rows, .offsets = masked ? NULL : cuts, .counts = masked ? cuts : NULL, .a = a, .b = b, .d = d,
                             .ldd = j->ldd };
        if (j->a_rows) x.rows_of_a = moit_in(&m, j->index, j->rows * (int64_t)sizeof(int32_t)), x.a_rows = j->a_rows;
        if (j->d_rows) x.rows_of_d = moit_in(&m, j->place, j->rows * (int64_t)sizeof(int32_t)), x.d_rows = j->d_rows;
        if (j->weight) x.row_weight = moit_in(&m, j->weight, j->rows * (int64_t)sizeof(float));
        moit_mem_run(&m, run_grouped(j, &x, w, m.stream));
    }
    moit_mem_done(&m);
    if (!m.gpu) moit_free(w);
}

/* The tensor cores' own error: 33 terms of a step of 32 products (17 of 16 where they are BF16), each cut behind the 13th (25th) fraction bit of
 * the largest, and the sum once more (shared by MMA-Sim's authors as bit-exact for Hopper); FP8 sums begin anew every 128 products, every 256
 * where rows have one scale. */
static double tensor_error(const moit_job *j, const double *a, const double *b, int64_t from, int64_t to)
{
    bool plain = j->a.format.recipe == MOI_RECIPE_BF16, mx = j->a.format.recipe == MOI_RECIPE_MX32 && j->mx == MOI_MX_FREE;
    bool wide = plain || (mx && j->grouping == MOI_GROUP_K) || moit_job_chose(j, "mixed_sm90");
    bool two = moit_job_chose(j, "SCALING=4") && moit_job_chose(j, "TURNS=1");
    int64_t step = wide ? 16 : 32, chain = wide ? to - from : mx ? 32 : two ? 256 : 128;
    double error = 0.0, sum = 0.0;
    for (int64_t l = from; l < to; l += step) {
        if ((l - from) % chain == 0) sum = 0.0;
        double most = fabs(sum);
        for (int64_t i = l; i < to && i < l + step; i++) {
            double product = a[i] * b[i], magnitude = fabs(product); /* finite: who asks has looked */
            most = magnitude > most ? magnitude : most, sum += product;
        }
        error += (double)(step + 2) * ldexp(most, wide ? -25 : -13);
    }
    return error * (wide ? 1.001 : 1.02); /* what the errors so far add to the largest term */
}

/* What FP16 has not of a row of A and of one of B (tensor_explain.c): values of A are multiples of 2^-39 of the largest, of B's blocks those deep below the
 * largest scale of the four they lie with are less exact or 0. */
static double lost_in_f16(const moit_job *j, const double *a, const double *b, int64_t matrix, int64_t col)
{
    const int deep = j->b.format.elem == MOI_E2M1 ? 24 : 21;
    double most = 0.0, sum = 0.0, error = 0.0;
    if (!moit_job_chose(j, "mixed_sm90") && !moit_job_chose(j, "halves_sm90")) return 0.0;
    for (int64_t l = 0; l < j->k; l++) most = fmax(most, fabs(a[l])), sum += fabs(b[l]);
    for (int64_t l = 0; l < j->k && moit_job_chose(j, "mixed_sm90"); l += 32) {
        int highest = 0, own = moit_matrix_power(&j->b, matrix, col, l);
        for (int64_t at = l / 128 * 128; at < j->k && at < l / 128 * 128 + 128; at += 32) {
            int power = moit_matrix_power(&j->b, matrix, col, at);
            highest = power > highest ? power : highest;
        }
        for (int64_t i = l; i < l + 32 && own < highest - deep; i++) error += fabs(a[i] * b[i]);
    }
    return error + 0x1p-40 * most * sum;
}

static double check_one(const moit_job *j, int64_t line, int64_t row, int64_t group, int64_t col, int64_t from, int64_t to)
{
    int64_t depth = j->a.depth;
    const double *a = j->a.values + (j->index ? j->index[row] : row) * depth, *b = j->b.values + ((moit_job_experts(j) ? group * j->n : 0) + col) * depth;
    double sum = j->before[line * j->n + col], magnitude = fabs(sum), weight = j->weight ? (double)j->weight[row] : 1.0;
    for (int64_t l = from; l < to; l++) {
        double product = weight * (a[l] * b[l]);
        sum += product, magnitude += fabs(product);
    }
    float got = moi_decode(j->out, (char *)j->d + line * moit_job_line(j), col);
    if (isnan(sum)) return isnan(got) ? 0.0 : HUGE_VAL;
    if (isinf(sum)) return isnan(got) || isinf(got) ? 0.0 : HUGE_VAL;
    double larger = fabs(sum) > fabs((double)got) ? sum : got;
    double roundings = (double)((to - from) / 32 + (j->weight ? 10 : 8));
    double scales = moit_job_chose(j, "OUTER=1") ? 17 * 0x1p-20 * (magnitude - fabs((double)j->before[line * j->n + col])) : 0.0; /* product_outer.cuh */
    double bound = fabs(weight) * tensor_error(j, a, b, from, to) + scales + roundings * 0x1p-23 * magnitude + moit_half_unit(j->out, larger) + 0x1p-120;
    bound += fabs(weight) * lost_in_f16(j, a, b, moit_job_experts(j) ? group : 0, col);
    return fabs((double)got - sum) / bound;
}

static bool is_place(const moit_job *j, int64_t line)
{
    for (int64_t r = 0; r < j->offsets[j->groups]; r++)
        if (j->place[r] == line) return true;
    return false;
}

double moit_job_check(const moit_job *j, uint64_t seed)
{
    double worst = 0.0;
    for (int64_t g = 0; g < (j->grouping == MOIT_DENSE ? 1 : j->groups); g++) {
        bool masked = j->grouping == MOI_GROUP_MASKED, by_rows = moit_job_experts(j), by_depth = j->grouping == MOI_GROUP_K;
        int64_t begin = masked ? g * j->rows : j->offsets[g], end = masked ? begin + j->counts[g] : j->offsets[g + 1];
        for (int64_t r = by_rows ? begin : 0; r < (by_rows ? end : j->m); r++)
            for (int64_t c = 0; c < j->n; c++) {
                int64_t line = by_depth ? g * j->m + r : j->d_rows ? j->place[r] : r;
                if (line < 0) continue;
                double e = check_one(j, line, r, g, c, by_depth ? begin : 0, by_depth ? end : j->k);
                if (!(e <= 1.0))
                    fail_msg("seed %llu: %s grouping %d, %s x %s, scales %d, out %s%s, %lld x %lld x %lld, %lld groups%s%s%s: "
                             "D[%lld][%lld] is %g of the bound off",
                             (unsigned long long)seed, moi_plan_row(j->plan), j->grouping, moi_dtype_name(j->a.format.elem),
                             moi_dtype_name(j->b.format.elem), (int)j->mx, moi_dtype_name(j->out), j->accumulate ? " +=" : "", (long long)j->m,
                             (long long)j->n, (long long)j->k, (long long)j->groups, j->a_rows ? ", gathered" : "", j->d_rows ? ", scattered" : "",
                             j->weight ? ", weighted" : "", (long long)line, (long long)c, e);
                worst = fmax(worst, e);
            }
    }
    for (int64_t line = 0; line < j->lines && moit_job_experts(j); line++) { /* rows of no group are untouched */
        bool masked = j->grouping == MOI_GROUP_MASKED;
        if (j->d_rows ? is_place(j, line) : masked ? line % j->rows < j->counts[line / j->rows] : line < j->offsets[j->groups]) continue;
        for (int64_t c = 0; c < j->n; c++) {
            float got = moi_decode(j->out, (char *)j->d + line * moit_job_line(j), c);
            assert_true(j->accumulate ? got == j->before[line * j->n + c] : isnan(got));
        }
    }
    for (int64_t line = 0; line < j->lines; line++) /* nor is what lies behind a row */
        for (int64_t i = moi_row_bytes(j->out, j->n); i < moit_job_line(j); i++) assert_int_equal(((unsigned char *)j->d)[line * moit_job_line(j) + i], 0xFF);
    return worst;
}

void moit_job_fill(moit_job *j, moit_rng *rng)
{
    for (int64_t i = 0; i < j->lines * j->n && j->accumulate; i++) {
        j->before[i] = 100.0f * moit_normal(rng);
        ((float *)(void *)((char *)j->d + i / j->n * moit_job_line(j)))[i % j->n] = j->before[i];
    }
}

void moit_job_free_lists(moit_job *j)
{
    free(j->index);
    free(j->place);
    free(j->weight);
    j->index = j->place = NULL, j->weight = NULL;
}

void moit_job_close(moit_job *j)
{
    moit_matrix_free(&j->a);
    moit_matrix_free(&j->b);
    moit_free(j->d);
    free(j->before);
    moit_job_free_lists(j);
    moi_plan_free(j->plan);
}

void moit_job_prove(moit_job *j, const char *chosen, moit_rng *rng, uint64_t seed)
{
    moit_job_plan(j, moit_gpu());
    assert_true(moit_job_chose(j, chosen));
    moit_job_fill(j, rng);
    moit_job_run(j);
    moit_job_check(j, seed);
    moit_job_close(j);
}
