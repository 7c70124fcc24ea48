/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_products.c: the products on Hopper's tensor cores, over random shapes, formats and groups, against sums in double; a few of
 * them also on the CPU's rows, so that the test itself is tested where there is no GPU. */
#include "support_gpu.h"
#include "support_products.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define V(r, e) { (r), (e), MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#define SQ(e) { MOI_RECIPE_BLK128, (e), MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
static const struct { moi_format a, b; } pairs[] = {
    { V(MOI_RECIPE_BLK128, MOI_E4M3), SQ(MOI_E4M3) },
    { V(MOI_RECIPE_BLK128, MOI_E4M3), V(MOI_RECIPE_BLK128, MOI_E4M3) },
    { V(MOI_RECIPE_MX32, MOI_E4M3), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_MX32, MOI_E5M2), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_BF16, MOI_BF16) },
    { V(MOI_RECIPE_BLK128, MOI_E5M2), SQ(MOI_E4M3) },
};
enum { PAIRS = sizeof pairs / sizeof *pairs, GROUPS = 9, DENSE = -1 };

typedef struct job {
    bool gpu;
    int grouping;       /* DENSE, MOI_GROUP_M, MOI_GROUP_K, MOI_GROUP_MASKED */
    moit_matrix a, b;
    moi_dtype out;
    bool accumulate;
    moi_mx_scales mx;
    int32_t sm_limit;
    bool overlap;
    int64_t expected, m, n, k, groups, offsets[GROUPS + 1], counts[GROUPS], rows, lines; /* masked: rows of each matrix; offsets is not used */
    int64_t a_rows;     /* > 0: index names each row's row of A */
    int32_t *index;
    int64_t d_rows;     /* > 0: place names where each row goes, or -1 */
    int32_t *place;
    float *weight;      /* of each row, or NULL */
    moi_plan *plan;
    char kernel[512];   /* its defines */
    float *before;
    void *d;
} job;

static int64_t below(moit_rng *rng, int64_t n) { return (int64_t)moit_below(rng, (uint32_t)n); }

/* Small sizes mostly, now and then one that several tiles cover. */
static int64_t size(moit_rng *rng, int64_t step)
{
    static const int64_t most[] = { 3, 20, 70, 140, 300 };
    return (1 + below(rng, most[below(rng, 5)])) * step;
}

static void equal_scales(moit_matrix *x, moi_mx_scales mx)
{
    if (mx == MOI_MX_FREE) return;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t r = 0; r < x->rows; r++)
            for (int64_t l = 0; l < x->depth; l += 32)
                moit_matrix_set_scale(x, b, r, l, ldexpf(1.0f, (int)((b * 5 + (mx == MOI_MX_PER_ROW ? r : r * 7 + l / 128)) % 9) - 4));
    moit_matrix_read(x);
}

static bool experts(const job *j) { return j->grouping == MOI_GROUP_M || j->grouping == MOI_GROUP_MASKED; }

static void open_operands(job *j, moit_rng *rng)
{
    bool by_depth = j->grouping == MOI_GROUP_K;
    if (by_depth) j->rows = (j->rows + 15) / 16 * 16; /* pitch of plain operands */
    j->a.rows = j->a_rows ? j->a_rows : experts(j) ? j->rows : j->m, j->a.depth = by_depth ? j->rows : j->k;
    j->b.rows = j->n, j->b.depth = j->a.depth;
    if (experts(j)) j->b.batch = j->groups;
    if (j->grouping == MOI_GROUP_MASKED) j->a.batch = j->groups;
    if (by_depth) j->a.groups = j->b.groups = j->groups, j->a.offsets = j->b.offsets = j->offsets;
    moit_matrix_make(&j->a, rng);
    moit_matrix_make(&j->b, rng);
    equal_scales(&j->a, j->mx), equal_scales(&j->b, j->mx);
    for (int64_t g = 0; g < j->groups && j->grouping == MOI_GROUP_MASKED; g++) { /* rows that do not count hold whatever is worst */
        int64_t bytes = moi_row_bytes(j->a.format.elem, j->a.ld), line = g * j->rows + j->counts[g];
        memset((char *)j->a.data + line * bytes, 0xFF, (size_t)((j->rows - j->counts[g]) * bytes));
    }
    j->lines = j->d_rows ? j->d_rows : experts(j) ? j->rows * j->a.batch : by_depth ? j->groups * j->m : j->m;
}

static void weigh(job *j, moit_rng *rng)
{
    j->weight = malloc((size_t)j->rows * sizeof *j->weight + 1);
    for (int64_t r = 0; r < j->rows; r++) j->weight[r] = moit_normal(rng);
}

/* The product's rows go to rows of D in no order, some nowhere. */
static void scatter(job *j, moit_rng *rng)
{
    j->d_rows = j->rows + 1 + below(rng, 4);
    j->place = malloc((size_t)j->d_rows * sizeof *j->place);
    for (int64_t i = 0; i < j->d_rows; i++) {
        int64_t at = below(rng, i + 1);
        j->place[i] = j->place[at], j->place[at] = (int32_t)i;
    }
    for (int64_t i = 0; i < j->d_rows; i++)
        if (!below(rng, 10)) j->place[i] = -1;
}

static void gather(job *j, moit_rng *rng, int64_t a_rows)
{
    j->a_rows = a_rows, j->index = malloc((size_t)j->rows * sizeof *j->index + 1);
    for (int64_t r = 0; r < j->rows; r++) j->index[r] = (int32_t)below(rng, a_rows);
}

static void choose(job *j, int grouping, moit_rng *rng)
{
    *j = (job){ .grouping = grouping };
    int pair = (int)below(rng, PAIRS);
    j->a.format = pairs[pair].a, j->b.format = pairs[pair].b;
    if (grouping == MOI_GROUP_K && j->b.format.block == MOI_BLOCK_SQUARE) j->b.format.block = MOI_BLOCK_VECTOR;
    bool plain = j->a.format.recipe == MOI_RECIPE_BF16;
    if (!plain) {
        int layouts = j->a.format.recipe == MOI_RECIPE_MX32 ? 3 : 2;
        static const moi_layout kinds[] = { MOI_LAYOUT_ROW, MOI_LAYOUT_COL, MOI_LAYOUT_TILED };
        j->a.format.layout = kinds[below(rng, layouts)];
        j->b.format.layout = j->b.format.block == MOI_BLOCK_SQUARE ? kinds[below(rng, 2)] : kinds[below(rng, layouts)];
        if (grouping == MOI_GROUP_K && j->a.format.layout == MOI_LAYOUT_TILED) j->a.format.layout = MOI_LAYOUT_ROW;
        if (grouping == MOI_GROUP_K && j->b.format.layout == MOI_LAYOUT_TILED) j->b.format.layout = MOI_LAYOUT_COL;
    }
    j->out = below(rng, 3) ? MOI_F32 : MOI_BF16;
    j->accumulate = j->out == MOI_F32 && below(rng, 2);
    j->m = size(rng, 1), j->n = size(rng, 1), j->k = below(rng, 16) ? size(rng, 16) : 0;
    if (plain) {
        j->a.order = (moi_order)(grouping == MOI_GROUP_K || (grouping == DENSE && below(rng, 2)));
        j->b.order = (moi_order)(grouping == MOI_GROUP_K || below(rng, 2));
        if (j->a.order) j->m = (j->m + 7) / 8 * 8;
        if (j->b.order) j->n = (j->n + 7) / 8 * 8;
        j->a.pad = 8 * below(rng, 3), j->b.pad = 8 * below(rng, 3);
    } else j->a.pad = 16 * below(rng, 3), j->b.pad = 16 * below(rng, 3);
    if (grouping != MOI_GROUP_K && j->a.format.recipe == MOI_RECIPE_MX32) j->mx = (moi_mx_scales)below(rng, 3);
    if (grouping == DENSE && j->a.format.recipe == MOI_RECIPE_MX32 && !below(rng, 16)) /* so many rows are widened by the product itself */
        j->mx = MOI_MX_FREE, j->m = 16384 + below(rng, 300), j->n = 1 + below(rng, 20), j->k = 16 * (1 + below(rng, 40));
    if (!below(rng, 3)) j->sm_limit = 1 + (int32_t)below(rng, 40);
    j->overlap = below(rng, 2);
    if (grouping == DENSE) return;
    j->groups = 1 + below(rng, GROUPS);
    int kind = (int)below(rng, 4); /* uniform, all to one, skewed, many empty */
    for (int g = 0; g < j->groups; g++) {
        if (kind == 3 && !j->k) kind = 4; /* all empty */
        int64_t n = below(rng, 90);
        if (kind == 4 || (kind == 3 && below(rng, 2))) n = 0;
        else if (kind == 1) n = g == j->groups / 2 ? 150 : 0;
        else if (kind == 2) n = 200 / (1 + g * g);
        j->offsets[g + 1] = j->offsets[g] + n;
        j->counts[g] = n;
    }
    j->rows = j->offsets[j->groups] + below(rng, 3);
    if (grouping == MOI_GROUP_M && below(rng, 2)) gather(j, rng, 1 + below(rng, 200));
    if (grouping == MOI_GROUP_M && below(rng, 2)) weigh(j, rng);
    if (grouping == MOI_GROUP_M && !below(rng, 2)) scatter(j, rng);
    if (below(rng, 2)) j->expected = 1 + below(rng, 2000);
    if (grouping == MOI_GROUP_MASKED) j->rows = 1 + below(rng, 3) * 70;
    for (int g = 0; g < j->groups && grouping == MOI_GROUP_MASKED; g++)
        if (j->counts[g] > j->rows) j->counts[g] = j->rows;
}

static const char *row_of(const job *j)
{
    if (j->gpu) return j->grouping == DENSE ? "gemm_sm90" : "ggemm_sm90";
    return j->grouping == DENSE ? "gemm_fast" : "ggemm_fast";
}

static void compare_told(void *user, const char *name, const char *value)
{
    job *j = user;
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%lld", (long long)moi_plan_workspace_bytes(j->plan));
    if (!strcmp(name, "chosen")) assert_string_equal(value, moi_plan_row(j->plan));
    if (!strcmp(name, "workspace")) assert_string_equal(value, bytes);
    if (!strcmp(name, "kernel")) snprintf(j->kernel, sizeof j->kernel, "%s", value);
}

/* P:gemm.explain */
static void open_plan(job *j, moi_ctx *ctx)
{
    moi_explain_config to = MOI_EXPLAIN_CONFIG_INIT;
    to.each = compare_told, to.user = j;
    if (j->grouping == DENSE) {
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
    int64_t bytes = j->lines * moi_row_bytes(j->out, j->n);
    j->d = moit_alloc(bytes);
    memset(j->d, 0xFF, (size_t)bytes);
    j->before = calloc((size_t)(j->lines * j->n) + 1, sizeof(float));
}

static bool chose(const job *j, const char *define) { return strstr(j->kernel, define) != NULL; }

static void run(job *j)
{
    moit_mem m = moit_mem_of(row_of(j));
    moi_operand a = { moit_in(&m, j->a.data, j->a.data_bytes), j->a.scale_bytes ? moit_in(&m, j->a.scale, j->a.scale_bytes) : NULL, j->a.ld };
    moi_operand b = { moit_in(&m, j->b.data, j->b.data_bytes), j->b.scale_bytes ? moit_in(&m, j->b.scale, j->b.scale_bytes) : NULL, j->b.ld };
    void *d = moit_out(&m, j->d, j->lines * moi_row_bytes(j->out, j->n)), *w = moit_mem_workspace(&m, j->plan);
    if (j->grouping == DENSE) {
        moi_gemm_args x = { .size = sizeof x, .m = j->m, .a = a, .b = b, .d = d };
        moit_mem_run(&m, moi_gemm_run(j->plan, &x, w, moi_plan_workspace_bytes(j->plan), m.stream));
    } else {
        bool masked = j->grouping == MOI_GROUP_MASKED;
        int64_t *cuts = moit_in(&m, masked ? j->counts : j->offsets, (j->groups + !masked) * (int64_t)sizeof(int64_t));
        moi_ggemm_args x = { .size = sizeof x, .rows = j->rows, .offsets = masked ? NULL : cuts, .counts = masked ? cuts : NULL, .a = a, .b = b, .d = d };
        if (j->a_rows) x.rows_of_a = moit_in(&m, j->index, j->rows * (int64_t)sizeof(int32_t)), x.a_rows = j->a_rows;
        if (j->d_rows) x.rows_of_d = moit_in(&m, j->place, j->rows * (int64_t)sizeof(int32_t)), x.d_rows = j->d_rows;
        if (j->weight) x.row_weight = moit_in(&m, j->weight, j->rows * (int64_t)sizeof(float));
        moit_mem_run(&m, moi_ggemm_run(j->plan, &x, w, moi_plan_workspace_bytes(j->plan), m.stream));
    }
    moit_mem_done(&m);
    if (!m.gpu) moit_free(w);
}

/* The tensor cores' own error: 33 terms of a step of 32 products (17 of 16 where they are BF16), each cut behind the 13th (25th) fraction bit of
 * the largest, and the sum once more (shared by MMA-Sim's authors as bit-exact for Hopper); FP8 sums begin anew every 128 products. */
static double tensor_error(const job *j, const double *a, const double *b, int64_t from, int64_t to)
{
    bool wide = j->a.format.recipe == MOI_RECIPE_BF16 || (j->a.format.recipe == MOI_RECIPE_MX32 && j->grouping == MOI_GROUP_K);
    int64_t step = wide ? 16 : 32, chain = wide ? to - from : j->a.format.recipe == MOI_RECIPE_MX32 && j->mx == MOI_MX_FREE ? 32 : 128;
    double error = 0.0, sum = 0.0;
    for (int64_t l = from; l < to; l += step) {
        if ((l - from) % chain == 0) sum = 0.0;
        double most = fabs(sum);
        for (int64_t i = l; i < to && i < l + step; i++) most = fmax(most, fabs(a[i] * b[i])), sum += a[i] * b[i];
        error += (double)(step + 2) * ldexp(most, wide ? -25 : -13);
    }
    return error * (wide ? 1.001 : 1.02); /* what the errors so far add to the largest term */
}

static double check_one(const job *j, int64_t line, int64_t row, int64_t group, int64_t col, int64_t from, int64_t to)
{
    int64_t depth = j->a.depth;
    const double *a = j->a.values + (j->index ? j->index[row] : row) * depth, *b = j->b.values + ((experts(j) ? group * j->n : 0) + col) * depth;
    double sum = j->before[line * j->n + col], magnitude = fabs(sum), weight = j->weight ? (double)j->weight[row] : 1.0;
    for (int64_t l = from; l < to; l++) sum += weight * (a[l] * b[l]), magnitude += fabs(weight * a[l] * b[l]);
    float got = moi_decode(j->out, (char *)j->d + line * moi_row_bytes(j->out, j->n), col);
    if (isnan(sum)) return isnan(got) ? 0.0 : HUGE_VAL;
    if (isinf(sum)) return isnan(got) || isinf(got) ? 0.0 : HUGE_VAL;
    double larger = fabs(sum) > fabs((double)got) ? sum : got;
    double roundings = (double)((to - from) / 32 + (j->weight ? 10 : 8));
    double bound = fabs(weight) * tensor_error(j, a, b, from, to) + roundings * 0x1p-23 * magnitude + moit_half_unit(j->out, larger) + 0x1p-120;
    return fabs((double)got - sum) / bound;
}

static bool is_place(const job *j, int64_t line)
{
    for (int64_t r = 0; r < j->offsets[j->groups]; r++)
        if (j->place[r] == line) return true;
    return false;
}

static double check(const job *j, uint64_t seed)
{
    double worst = 0.0;
    for (int64_t g = 0; g < (j->grouping == DENSE ? 1 : j->groups); g++) {
        bool masked = j->grouping == MOI_GROUP_MASKED, by_rows = experts(j), by_depth = j->grouping == MOI_GROUP_K;
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
    for (int64_t line = 0; line < j->lines && experts(j); line++) { /* rows of no group are untouched */
        bool masked = j->grouping == MOI_GROUP_MASKED;
        if (j->d_rows ? is_place(j, line) : masked ? line % j->rows < j->counts[line / j->rows] : line < j->offsets[j->groups]) continue;
        for (int64_t c = 0; c < j->n; c++) {
            float got = moi_decode(j->out, (char *)j->d + line * moi_row_bytes(j->out, j->n), c);
            assert_true(j->accumulate ? got == j->before[line * j->n + c] : isnan(got));
        }
    }
    return worst;
}

static void fill_before(job *j, moit_rng *rng)
{
    for (int64_t i = 0; i < j->lines * j->n && j->accumulate; i++) ((float *)j->d)[i] = j->before[i] = 100.0f * moit_normal(rng);
}

static void free_lists(job *j)
{
    free(j->index);
    free(j->place);
    free(j->weight);
    j->index = j->place = NULL, j->weight = NULL;
}

static void close(job *j)
{
    moit_matrix_free(&j->a);
    moit_matrix_free(&j->b);
    moit_free(j->d);
    free(j->before);
    free_lists(j);
    moi_plan_free(j->plan);
}

/* One random product; poison: with a NaN in it, which reaches exactly what it must. */
static double one(bool gpu, int grouping, uint64_t seed, bool poison)
{
    moit_rng rng = moit_seed("tensor products", seed);
    job j;
    choose(&j, grouping, &rng);
    j.gpu = gpu;
    open_operands(&j, &rng);
    open_plan(&j, gpu ? moit_gpu() : moit_ctx(0));
    fill_before(&j, &rng);
    int64_t depth = grouping == MOI_GROUP_K ? j.offsets[j.groups] : j.k;
    if (poison && j.a.rows && depth) { /* masked: of the first group */
        moit_matrix *x = below(&rng, 2) ? &j.a : &j.b;
        moit_matrix_set(x, below(&rng, x->rows), below(&rng, depth), NAN);
        moit_matrix_read(x);
    }
    run(&j);
    double worst = check(&j, seed);
    close(&j);
    return worst;
}

static int sweep_length(void) /* compute-sanitizer is slow: MOIT_GUARDS=0 goes with it */
{
    const char *text = getenv("MOIT_GUARDS");
    return text && !strcmp(text, "0") ? 12 : 700;
}

static void sweep(bool gpu, int grouping, bool poison, int count)
{
    if (gpu && !moit_gpu()) skip();
    double worst = 0.0;
    int parts, part = moit_part(&parts);
    for (int i = part; i < count; i += parts) {
        uint64_t seed = (uint64_t)(i * 4 + (grouping == MOI_GROUP_MASKED ? 3 : grouping + 1) + (poison ? 1 << 20 : 0));
        worst = fmax(worst, one(gpu, grouping, seed, poison));
    }
    printf("%d products: at most %.3f of the bound\n", (count - part + parts - 1) / parts, worst);
}

/* P:gemm.bound, P:ggemm.bound on the tensor cores; captured and replayed runs give the same bits (moit_mem_run). */
static void test_dense(void **state) { (void)state; sweep(true, DENSE, false, sweep_length()); }
static void test_rows(void **state) { (void)state; sweep(true, MOI_GROUP_M, false, sweep_length()); }
static void test_masked(void **state) { (void)state; sweep(true, MOI_GROUP_MASKED, false, sweep_length()); }
static void test_depth(void **state) { (void)state; sweep(true, MOI_GROUP_K, false, sweep_length()); }
/* P:gemm.nan, P:ggemm.nan */
static void test_nan(void **state)
{
    (void)state;
    for (int grouping = DENSE; grouping <= MOI_GROUP_MASKED; grouping++) sweep(true, grouping, true, sweep_length() / 10);
}

/* Fewer multiprocessors, and a start beside what the stream holds: the same bits, where the tile adds up in the same order (BF16 has one). */
static void test_limit(void **state)
{
    (void)state;
    if (!moit_gpu()) skip();
    int parts, part = moit_part(&parts);
    for (int i = part; i < 12; i += parts) {
        moit_rng rng = moit_seed("tensor limit", (uint64_t)i);
        int grouping = i % 4 - 1;
        job j = { .gpu = true };
        do free_lists(&j), choose(&j, grouping, &rng);
        while (j.a.format.recipe != MOI_RECIPE_BF16 || j.accumulate || (grouping == DENSE && j.m <= 256)); /* without parts */
        j.gpu = true, j.sm_limit = 0, j.overlap = false;
        open_operands(&j, &rng);
        open_plan(&j, moit_gpu());
        run(&j);
        int64_t bytes = j.lines * moi_row_bytes(j.out, j.n);
        void *first = j.d;
        free(j.before);
        moi_plan_free(j.plan);
        j.sm_limit = 1 + i * 3, j.overlap = true;
        open_plan(&j, moit_gpu());
        run(&j);
        assert_memory_equal(first, j.d, (size_t)bytes);
        moit_free(first);
        close(&j);
    }
}

/* Tiles of groups that differ are drawn from a counter, or dealt one after the other (overlap): the same bits, and right. */
static void both_orders(job *j, moit_rng *rng, bool broad, bool checked)
{
    open_operands(j, rng);
    open_plan(j, moit_gpu());
    assert_true(chose(j, "DEAL=1"));
    assert_true(!broad || chose(j, "BROAD=1"));
    moit_rng was = *rng;
    fill_before(j, &was);
    run(j);
    if (checked) check(j, 0);
    void *first = j->d;
    free(j->before);
    moi_plan_free(j->plan);
    j->overlap = true;
    open_plan(j, moit_gpu());
    assert_false(chose(j, "DEAL=1") || chose(j, "BROAD=1"));
    fill_before(j, rng);
    run(j);
    assert_memory_equal(first, j->d, (size_t)(j->lines * moi_row_bytes(j->out, j->n)));
    moit_free(first);
    close(j);
}

static void test_tickets(void **state)
{
    (void)state;
    if (!moit_gpu()) skip();
    static const int64_t cuts[] = { 0, 700, 740, 740, 1260, 1390 };
    int parts, part = moit_part(&parts);
    for (int i = part; i < PAIRS; i += parts) {
        moit_rng rng = moit_seed("tensor tickets", (uint64_t)i);
        job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = i % 2 ? MOI_F32 : MOI_BF16, .n = 520, .k = 256, .groups = 5, .rows = 1391, .sm_limit = 4 };
        j.a.format = pairs[i].a, j.b.format = pairs[i].b;
        memcpy(j.offsets, cuts, sizeof cuts);
        both_orders(&j, &rng, false, i == 0);
    }
}

/* What is left of a group, if it is at most half a tile's rows, in tiles of twice the columns: one and two blocks of 64 rows, whole and not, behind
 * full tiles and alone, columns that end in either half, more stages than scales are fetched for at once. */
static void test_broad(void **state)
{
    (void)state;
    if (!moit_gpu()) skip();
    static const int64_t cuts[][GROUPS + 1] = { { 0, 100, 164, 292, 421, 421, 805, 806, 1190, 1253 }, { 0, 65, 192, 200, 264, 392, 392, 393, 500, 530 } };
    static const struct {
        int pair, cuts;
        int64_t n, k;
        moi_dtype out;
        moi_layout layout;
        moi_mx_scales mx;
        moi_order order;
        bool gathers, placed, accumulates;
    } cases[] = {
        { .pair = 0, .n = 1200, .k = 416, .out = MOI_BF16, .layout = MOI_LAYOUT_COL },
        { .pair = 0, .n = 776, .k = 1424, .out = MOI_F32, .layout = MOI_LAYOUT_COL, .accumulates = true },
        { .pair = 0, .cuts = 1, .n = 300, .k = 8336, .out = MOI_BF16, .layout = MOI_LAYOUT_COL },
        { .pair = 0, .n = 1032, .k = 384, .out = MOI_BF16, .layout = MOI_LAYOUT_COL, .placed = true },
        { .pair = 5, .n = 650, .k = 272, .out = MOI_BF16, .layout = MOI_LAYOUT_ROW, .gathers = true },
        { .pair = 0, .n = 1280, .k = 640, .out = MOI_F32, .layout = MOI_LAYOUT_COL, .gathers = true, .placed = true },
        { .pair = 4, .n = 1024, .k = 336, .out = MOI_BF16 },
        { .pair = 4, .n = 1032, .k = 208, .out = MOI_F32, .order = MOI_MN_MAJOR, .placed = true },
        { .pair = 4, .n = 640, .k = 80, .out = MOI_BF16, .gathers = true },
        { .pair = 2, .n = 1288, .k = 544, .out = MOI_BF16, .layout = MOI_LAYOUT_TILED, .mx = MOI_MX_PER_ROW },
    };
    int parts, part = moit_part(&parts), count = (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor broad", (uint64_t)i);
        job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = cases[i].out, .n = cases[i].n, .k = cases[i].k, .groups = GROUPS, .mx = cases[i].mx,
                  .accumulate = cases[i].accumulates, .expected = 600 * GROUPS, .sm_limit = 4 };
        j.a.format = pairs[cases[i].pair].a, j.b.format = pairs[cases[i].pair].b, j.b.order = cases[i].order;
        j.a.format.layout = j.b.format.layout = cases[i].layout;
        memcpy(j.offsets, cuts[cases[i].cuts], sizeof j.offsets);
        j.rows = j.offsets[GROUPS] + 2;
        if (cases[i].gathers) gather(&j, &rng, 300);
        if (cases[i].placed) weigh(&j, &rng), scatter(&j, &rng);
        both_orders(&j, &rng, true, true);
    }
}

/* Fewer multiprocessors, of which a few would have one tile more than the others: it is cut in two or four.  The same bits as without. */
static void test_cut(void **state)
{
    (void)state;
    if (!moit_gpu()) skip();
    static const struct { int grouping; int32_t sm_limit, other; int64_t n; } cases[] = {
        { DENSE, 16, 0, 520 }, { DENSE, 8, 14, 520 }, { MOI_GROUP_M, 8, 6, 1200 }, { MOI_GROUP_M, 4, 6, 520 },
        { DENSE, 8, 14, 512 }, { MOI_GROUP_M, 8, 6, 512 }, /* BF16 too in clusters: no columns are left over for a pair of tiles */
    };
    static const int64_t cuts[] = { 0, 700, 1200, 2000 };
    int parts, part = moit_part(&parts), count = PAIRS * (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor cut", (uint64_t)i);
        int c = i / PAIRS;
        job j = { .gpu = true, .grouping = cases[c].grouping, .out = i % 3 ? MOI_BF16 : MOI_F32, .m = 1300 - 37 * (i % 2), .n = cases[c].n, .k = 256,
                  .sm_limit = cases[c].sm_limit };
        if (j.grouping == MOI_GROUP_M) j.groups = 3, j.rows = 2000, j.m = 0;
        j.a.format = pairs[i % PAIRS].a, j.b.format = pairs[i % PAIRS].b;
        memcpy(j.offsets, cuts, sizeof cuts);
        open_operands(&j, &rng);
        open_plan(&j, moit_gpu());
        run(&j);
        check(&j, (uint64_t)i);
        void *first = j.d;
        free(j.before);
        moi_plan_free(j.plan);
        j.sm_limit = cases[c].other;
        open_plan(&j, moit_gpu());
        run(&j);
        assert_memory_equal(first, j.d, (size_t)(j.lines * moi_row_bytes(j.out, j.n)));
        moit_free(first);
        close(&j);
    }
}

/* FP32 that leaves by boxes: columns that are whole sixteens or not, that are left over for a pair of tiles or not, none at all, rows left over
 * for a warpgroup, groups without values, rows of D that no box can name. */
static void test_boxes(void **state)
{
    (void)state;
    if (!moit_gpu()) skip();
    static const struct { int grouping; moi_recipe recipe; moi_layout layout; int64_t m, n; const char *define; } cases[] = {
        { MOI_GROUP_K, MOI_RECIPE_BLK128, MOI_LAYOUT_COL, 580, 512, "CLUSTER=2" }, { MOI_GROUP_K, MOI_RECIPE_BLK128, MOI_LAYOUT_COL, 1100, 368, "WOVEN=1" },
        { MOI_GROUP_K, MOI_RECIPE_BLK128, MOI_LAYOUT_ROW, 1153, 508, "WGS=3" }, { MOI_GROUP_K, MOI_RECIPE_BLK128, MOI_LAYOUT_COL, 1150, 509, "WGS=3" },
        { DENSE, MOI_RECIPE_BLK128, MOI_LAYOUT_COL, 1150, 496, "WOVEN=1" }, { DENSE, MOI_RECIPE_MX32, MOI_LAYOUT_ROW, 1089, 512, "WOVEN=1" },
        { MOI_GROUP_K, MOI_RECIPE_BLK128, MOI_LAYOUT_COL, 1100, 0, "WOVEN=1" }, { DENSE, MOI_RECIPE_BLK128, MOI_LAYOUT_COL, 1100, 0, "WOVEN=1" },
    };
    static const int64_t cuts[] = { 0, 200, 200, 737, 738 };
    int parts, part = moit_part(&parts), count = 2 * (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor boxes", (uint64_t)i);
        const int c = i / 2;
        job j = { .gpu = true, .grouping = cases[c].grouping, .out = MOI_F32, .accumulate = i % 2, .m = cases[c].m, .n = cases[c].n, .k = 400,
                  .mx = cases[c].recipe == MOI_RECIPE_MX32 ? MOI_MX_PER_128 : MOI_MX_FREE, .sm_limit = 4 };
        if (j.grouping == MOI_GROUP_K) j.groups = 4, j.rows = 740, j.k = 0;
        j.a.format = (moi_format)V(cases[c].recipe, MOI_E4M3), j.b.format = (moi_format)V(cases[c].recipe, c % 2 ? MOI_E5M2 : MOI_E4M3);
        j.a.format.layout = j.b.format.layout = cases[c].layout;
        memcpy(j.offsets, cuts, sizeof cuts);
        open_operands(&j, &rng);
        open_plan(&j, moit_gpu());
        assert_true(chose(&j, cases[c].define));
        fill_before(&j, &rng);
        run(&j);
        check(&j, (uint64_t)i);
        close(&j);
    }
}

/* Scales of 1x32 blocks whose code is 0, 2^-127, among others, in words and in bytes, with and without a last stage of fewer blocks. */
static void test_scale_ends(void **state)
{
    (void)state;
    if (!moit_gpu()) skip();
    static const struct { moi_layout layout; int64_t k; } cases[] = {
        { MOI_LAYOUT_ROW, 400 }, { MOI_LAYOUT_TILED, 400 }, { MOI_LAYOUT_ROW, 512 }, { MOI_LAYOUT_COL, 352 },
    };
    int parts, part = moit_part(&parts);
    for (int i = part; i < 8; i += parts) {
        moit_rng rng = moit_seed("tensor scale ends", (uint64_t)i);
        job j = { .gpu = true, .grouping = DENSE, .out = MOI_F32, .m = i % 2 ? 70 : 11, .n = 40, .k = cases[i / 2].k };
        j.a.format = j.b.format = (moi_format)V(MOI_RECIPE_MX32, MOI_E4M3);
        j.a.format.layout = j.b.format.layout = cases[i / 2].layout;
        open_operands(&j, &rng);
        for (int64_t l = 0; l < j.k; l += 32) {
            for (int64_t r = 0; r < j.m; r++) moit_matrix_set_scale(&j.a, 0, r, l, ldexpf(1.0f, (int)((r + l / 32) % 3) - 127));
            for (int64_t r = 0; r < j.n; r++) moit_matrix_set_scale(&j.b, 0, r, l, ldexpf(1.0f, 60 + (int)((r + l / 32) % 5)));
        }
        moit_matrix_read(&j.a), moit_matrix_read(&j.b);
        open_plan(&j, moit_gpu());
        assert_true(chose(&j, "SCALING=3"));
        fill_before(&j, &rng);
        run(&j);
        check(&j, (uint64_t)i);
        close(&j);
    }
}

/* The CPU's rows keep a tighter bound than the one asked for here. */
static void test_cpu(void **state)
{
    (void)state;
    for (int grouping = DENSE; grouping <= MOI_GROUP_MASKED; grouping++) sweep(false, grouping, false, 60), sweep(false, grouping, true, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu), cmocka_unit_test(test_tickets), cmocka_unit_test(test_broad), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_boxes), cmocka_unit_test(test_limit), cmocka_unit_test(test_dense), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_depth), cmocka_unit_test(test_masked), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_scale_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
