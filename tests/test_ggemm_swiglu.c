/* SPDX-License-Identifier: Apache-2.0
 * test_ggemm_swiglu.c: SwiGLU of a grouped product, quantised, on every row, against SwiGLU's reference on the exact product.  Operands are
 * small multiples of powers of two, so that every sum is exact in whatever order and by whatever machine it is made. */
#include "support_gpu.h"
#include "support_products.h"

#include <math.h>
#include <stdlib.h>

#define V(r, e, layout) { (r), (e), MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, (layout), 0 }
static const struct { moi_format a, b; } pairs[] = {
    { V(MOI_RECIPE_BLK128, MOI_E4M3, MOI_LAYOUT_COL), { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 } },
    { V(MOI_RECIPE_BF16, MOI_BF16, MOI_LAYOUT_ROW), V(MOI_RECIPE_BF16, MOI_BF16, MOI_LAYOUT_ROW) },
    { V(MOI_RECIPE_BLK128, MOI_E5M2, MOI_LAYOUT_ROW), { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_COL, 0 } },
    { V(MOI_RECIPE_MX32, MOI_E4M3, MOI_LAYOUT_TILED), V(MOI_RECIPE_MX32, MOI_E4M3, MOI_LAYOUT_ROW) },
    { V(MOI_RECIPE_BLK128, MOI_E4M3, MOI_LAYOUT_ROW), V(MOI_RECIPE_BLK128, MOI_E4M3, MOI_LAYOUT_COL) },
    { V(MOI_RECIPE_BF16, MOI_BF16, MOI_LAYOUT_ROW), V(MOI_RECIPE_MX32, MOI_E4M3, MOI_LAYOUT_ROW) },
};
static const moi_format results[] = {
    V(MOI_RECIPE_MX32, MOI_E4M3, MOI_LAYOUT_ROW),   V(MOI_RECIPE_BLK128, MOI_E4M3, MOI_LAYOUT_COL), V(MOI_RECIPE_MX32, MOI_E4M3, MOI_LAYOUT_TILED),
    V(MOI_RECIPE_BLK128, MOI_E5M2, MOI_LAYOUT_ROW), V(MOI_RECIPE_MX32, MOI_E5M2, MOI_LAYOUT_COL),   V(MOI_RECIPE_MX32, MOI_E2M1, MOI_LAYOUT_ROW),
    { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, MOI_SCALE_POW2 },
    { MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_FLOOR, MOI_LAYOUT_ROW, 0 },
    { MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, MOI_NONFINITE_LENIENT },
    V(MOI_RECIPE_BF16, MOI_BF16, MOI_LAYOUT_ROW),
};
enum { PAIRS = sizeof pairs / sizeof *pairs, RESULTS = sizeof results / sizeof *results, GROUPS = 5 };
enum { BETWEEN = 0x5A }; /* what lies between rows, and stays */
/* of groups, and rows of none behind them */
static const int64_t sizes[][GROUPS + 1] = { { 3, 0, 70, 1, 130, 2 }, { 0, 200, 0, 0, 0, 0 }, { 129, 64, 65, 127, 5, 7 }, { 0, 0, 0, 0, 0, 3 } };
static const int64_t columns[] = { 256, 768, 64, 34, 512, 2 };
static const int64_t depths[] = { 144, 256, 0, 400, 32 };

typedef struct job {
    moit_matrix a, b;
    moi_ggemm_desc desc;
    int stored; /* 1, 2, 3: mixed_sm90, halves_sm90, ggemm_sm90 stores what SwiGLU makes, the last in BF16 */
    bool dealt; /* by tickets */
    int64_t offsets[GROUPS + 1], rows, a_rows;
    int32_t *index;
    moi_result got;
    moi_plan *plan;
} job;

static void tame(moit_matrix *x, moit_rng *rng)
{
    int64_t bytes = moi_dtype_bits(x->format.elem) / 8;
    for (int64_t i = 0; i < x->data_bytes / bytes; i++) moi_encode(x->format.elem, x->data, i, 0.5f * (float)((int)moit_below(rng, 9) - 4));
    for (int64_t i = 0; i < x->scale_bytes && x->format.recipe == MOI_RECIPE_MX32; i++)
        ((unsigned char *)x->scale)[i] = (unsigned char)(125 + moit_below(rng, 4));
    for (int64_t i = 0; i < x->scale_bytes / 4 && x->format.recipe == MOI_RECIPE_BLK128; i++)
        ((float *)x->scale)[i] = ldexpf(1.0f, (int)moit_below(rng, 4) - 2);
    moit_matrix_read(x);
}

static void see_kernel(void *user, const char *name, const char *value)
{
    if (strcmp(name, "kernel") || !strstr(value, "SWIGLU=1")) return;
    ((job *)user)->dealt = strstr(value, "DEAL=1") != NULL;
    ((job *)user)->stored = strstr(value, "mixed_sm90") ? 1 : strstr(value, "halves_sm90") ? 2 : strstr(value, "ACT_ELEM=3") ? 3 : 0;
}

/* deep: as many tiles, for few multiprocessors, and stages as tickets are for. */
static void job_open(job *j, const char *row, int c, moit_rng *rng, bool deep)
{
    moi_ggemm_desc d = MOI_GGEMM_DESC_INIT;
    const int64_t *size = sizes[c % 4];
    d.row = row, d.a = pairs[c % PAIRS].a, d.b = pairs[c % PAIRS].b, d.out = moit_below(rng, 4) ? MOI_BF16 : MOI_F32, d.groups = GROUPS;
    d.n = columns[moit_below(rng, 6)], d.k = depths[moit_below(rng, 5)], d.swiglu = true, d.rowwise = results[moit_below(rng, RESULTS)];
    if (d.a.recipe != d.b.recipe && moit_below(rng, 4)) d.rowwise = results[RESULTS - 1], d.k = 128 * (int64_t)moit_below(rng, 3); /* as mixed_sm90 does it */
    if (deep) d.out = MOI_BF16, d.n = 1024, d.k = d.a.elem == MOI_BF16 ? 2064 : 4112, d.rowwise = results[c < 60 ? c % 2 : RESULTS - 1], d.sm_limit = 2;
    bool equal = !deep && d.rowwise.recipe == MOI_RECIPE_MX32 && d.rowwise.elem == MOI_E4M3 && !(d.rowwise.flags & MOI_NONFINITE_LENIENT);
    if (equal && moit_below(rng, 2)) d.rowwise_mx = MOI_MX_PER_128;
    for (int g = 0; g < GROUPS; g++) j->offsets[g + 1] = j->offsets[g] + size[g];
    j->rows = j->offsets[GROUPS] + size[GROUPS], d.max_rows = j->rows + 5;
    if (moit_below(rng, 2) && d.a.layout != MOI_LAYOUT_TILED) { /* gathered */
        j->a_rows = 1 + moit_below(rng, 90), d.gather_rows = j->a_rows;
        j->index = moit_alloc(j->rows * (int64_t)sizeof *j->index);
        for (int64_t r = 0; r < j->rows; r++) j->index[r] = (int32_t)moit_below(rng, (uint32_t)j->a_rows);
    }
    if (!moit_below(rng, 3)) d.expected_rows = GROUPS * (1 + (int64_t)moit_below(rng, moit_below(rng, 2) ? 160 : 1000));
    j->a.format = d.a, j->a.rows = j->a_rows ? j->a_rows : j->rows, j->a.depth = j->b.depth = d.k;
    j->b.format = d.b, j->b.rows = d.n, j->b.batch = GROUPS;
    moit_matrix_make(&j->a, rng), moit_matrix_make(&j->b, rng);
    tame(&j->a, rng), tame(&j->b, rng);
    if (!moit_below(rng, 3) && j->a.rows && d.k) moit_matrix_set(&j->a, moit_below(rng, (uint32_t)j->a.rows), moit_below(rng, (uint32_t)d.k), NAN);
    moit_matrix_read(&j->a);
    int64_t f = d.n / 2;
    j->got.ld = c % 3 || d.rowwise.elem == MOI_E2M1 ? 0 : d.rowwise.elem == MOI_BF16 && c % 2 ? f + 1 + c % 7 : (f + 31) / 16 * 16;
    j->got.data = moit_alloc(j->rows * moi_row_bytes(d.rowwise.elem, j->got.ld ? j->got.ld : f));
    memset(j->got.data, BETWEEN, (size_t)moit_size(j->got.data));
    j->got.scale = moit_alloc(moi_scale_bytes(&d.rowwise, j->rows, f, 0));
    j->desc = d;
    moi_explain_config to = MOI_EXPLAIN_CONFIG_INIT;
    to.each = see_kernel, to.user = j;
    moit_ok(moi_ggemm_plan_create(&j->plan, moit_mem_of(row).ctx, &d));
    moit_ok(moi_ggemm_explain(moit_mem_of(row).ctx, &d, &to));
}

static void job_run(job *j)
{
    moit_mem m = moit_mem_of(moi_plan_row(j->plan));
    moi_ggemm_args x = { .size = sizeof x, .rows = j->rows };
    x.offsets = moit_in(&m, j->offsets, sizeof j->offsets);
    x.a = (moi_operand){ moit_in(&m, j->a.data, j->a.data_bytes), j->a.scale_bytes ? moit_in(&m, j->a.scale, j->a.scale_bytes) : NULL, j->a.ld };
    x.b = (moi_operand){ moit_in(&m, j->b.data, j->b.data_bytes), j->b.scale_bytes ? moit_in(&m, j->b.scale, j->b.scale_bytes) : NULL, j->b.ld };
    if (j->index) x.rows_of_a = moit_in(&m, j->index, j->rows * (int64_t)sizeof *j->index), x.a_rows = j->a_rows;
    x.rowwise = (moi_result){ moit_out(&m, j->got.data, moit_size(j->got.data)), moit_out(&m, j->got.scale, moit_size(j->got.scale)), j->got.ld };
    void *w = moit_mem_workspace(&m, j->plan);
    moit_mem_run(&m, moi_ggemm_run(j->plan, &x, w, moi_plan_workspace_bytes(j->plan), m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(w);
}

/* The exact product in desc.out, then SwiGLU's reference. */
static moi_result wanted(const job *j)
{
    const moi_ggemm_desc *d = &j->desc;
    int64_t f = d->n / 2, line = moi_row_bytes(d->out, d->n);
    char *product = moit_alloc(j->rows * line);
    memset(product, 0, (size_t)(j->rows * line));
    for (int64_t g = 0; g < GROUPS; g++)
        for (int64_t r = j->offsets[g]; r < j->offsets[g + 1]; r++)
            for (int64_t c = 0; c < d->n; c++) {
                const double *a = j->a.values + (j->index ? j->index[r] : r) * d->k, *b = j->b.values + (g * d->n + c) * d->k;
                double sum = 0.0;
                for (int64_t l = 0; l < d->k; l++) sum += a[l] * b[l];
                assert_true(isnan(sum) || (double)(float)sum == sum);
                moi_encode(d->out, product + r * line, c, (float)sum);
            }
    moi_swiglu_desc s = { .size = sizeof s, .row = "swiglu_ref", .in = d->out == MOI_F32 ? MOI_FORMAT_F32 : MOI_FORMAT_BF16, .out = d->out,
                          .rowwise = d->rowwise, .want = MOI_WANT_ROWWISE, .max_rows = j->rows, .width = f, .rowwise_mx = d->rowwise_mx };
    moi_plan *plan;
    moit_ok(moi_swiglu_plan_create(&plan, moit_ctx(0), &s));
    void *w = moit_workspace(plan);
    moi_result out = { moit_alloc(j->rows * moi_row_bytes(d->rowwise.elem, f)), moit_alloc(moi_scale_bytes(&d->rowwise, j->rows, f, 0)), 0 };
    moi_swiglu_args x = { .size = sizeof x, .rows = j->rows, .gate_up = { product, NULL, 0 }, .rowwise = out };
    moit_ok(moi_swiglu_run(plan, &x, w, moi_plan_workspace_bytes(plan), NULL));
    moi_plan_free(plan);
    moit_free(w);
    moit_free(product);
    return out;
}

static void job_check(const job *j, int c)
{
    const moi_format *r = &j->desc.rowwise;
    moi_result want = wanted(j);
    int64_t f = j->desc.n / 2, bytes = moi_row_bytes(r->elem, f), stride = moi_row_bytes(r->elem, j->got.ld ? j->got.ld : f);
    int64_t blocks = moi_scale_blocks(r, f, 0), size = r->recipe == MOI_RECIPE_MX32 ? 1 : 4;
    for (int64_t row = 0; row < j->offsets[GROUPS]; row++) {
        for (int64_t b = 0; b < blocks; b++) {
            int64_t at = size * moi_scale_index(r->layout, size == 1 ? MOI_E8M0 : MOI_F32, row, b, j->rows, blocks);
            if (memcmp((char *)j->got.scale + at, (char *)want.scale + at, (size_t)size) != 0)
                fail_msg("case %d, %s, n %lld, k %lld: scale of row %lld, block %lld", c, moi_plan_row(j->plan), (long long)j->desc.n, (long long)j->desc.k,
                         (long long)row, (long long)b);
        }
        for (int64_t i = 0; i < bytes; i++) {
            unsigned char x = ((unsigned char *)j->got.data)[row * stride + i], y = ((unsigned char *)want.data)[row * bytes + i];
            if (x != y)
                fail_msg("case %d, %s, n %lld, k %lld, recipe %s: code %lld of row %lld is 0x%02x, not 0x%02x", c, moi_plan_row(j->plan), (long long)j->desc.n,
                         (long long)j->desc.k, moi_recipe_name(r->recipe), (long long)i, (long long)row, x, y);
        }
    }
    for (int64_t row = 0; row < j->rows; row++)
        for (int64_t i = bytes; i < stride; i++) assert_int_equal(((unsigned char *)j->got.data)[row * stride + i], BETWEEN);
    moit_free(want.data);
    moit_free(want.scale);
}

static void job_close(job *j)
{
    moit_matrix_free(&j->a), moit_matrix_free(&j->b);
    moit_free(j->got.data), moit_free(j->got.scale);
    if (j->index) moit_free(j->index);
    moi_plan_free(j->plan);
}

/* P:ggemm.swiglu */
static void test_bits(void **state)
{
    (void)state;
    const char *row;
    int parts, part = moit_part(&parts), stored[4] = { 0 };
    for (int i = 0; (row = moit_any_row("ggemm", i)); i++)
        for (int c = part; c < 60; c += parts) {
            moit_rng rng = moit_seed("ggemm swiglu", (uint64_t)c);
            job j;
            memset(&j, 0, sizeof j);
            job_open(&j, row, c, &rng, false);
            job_run(&j);
            job_check(&j, c);
            stored[j.stored]++;
            job_close(&j);
        }
    assert_true(parts > 1 || !moit_hopper() || (stored[1] > 0 && stored[2] > 0 && stored[3] > 0));
}

/* Tiles that are drawn from a counter: scales by copies, by threads, none; the last two: results in BF16. */
static void test_tickets(void **state)
{
    (void)state;
    static const int cases[] = { 12, 14, 25, 61, 66 };
    if (!moit_hopper()) skip();
    int parts, part = moit_part(&parts);
    for (int i = part; i < (int)(sizeof cases / sizeof *cases); i += parts) {
        moit_rng rng = moit_seed("ggemm swiglu tickets", (uint64_t)i);
        job j = { .stored = 0 };
        job_open(&j, "ggemm_sm90", cases[i], &rng, true);
        assert_true(j.dealt && (j.stored == 3) == (cases[i] >= 60));
        job_run(&j);
        job_check(&j, cases[i]);
        job_close(&j);
    }
}

static void test_errors(void **state)
{
    (void)state;
    static _Alignas(128) unsigned char zeros[1024], codes[64], scales[64];
    static _Alignas(128) float d[64];
    static const int64_t offsets[] = { 0, 3, 6 };
    moi_plan *plan;
    moi_ggemm_desc ok = MOI_GGEMM_DESC_INIT, x;
    ok.a = ok.b = ok.rowwise = MOI_FORMAT_MXFP8, ok.groups = 2, ok.max_rows = 8, ok.n = 4, ok.k = 32, ok.swiglu = true;
    x = ok, x.n = 5;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &x), MOI_ERR_SHAPE, "n must be even with swiglu, got 5");
    x = ok, x.weighted = true;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &x), MOI_ERR_ARG, "neither accumulate nor scatter_rows nor weighted");
    x = ok, x.grouping = MOI_GROUP_MASKED;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &x), MOI_ERR_ARG, "swiglu needs grouping GROUP_M");
    x = ok, x.rowwise = MOI_FORMAT_BLK128_WEIGHT;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &x), MOI_ERR_ARG, "rowwise.block must be VECTOR");
    x = ok, x.rowwise_mx = MOI_MX_PER_ROW;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &x), MOI_ERR_ARG, "ggemm plan: rowwise_mx must be 0 (free) or 1 (per 128), got 2");
    x = ok, x.rowwise_mx = MOI_MX_PER_128, x.swiglu = false;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &x), MOI_ERR_ARG, "rowwise_mx must be 0 (free) where that result is not wanted, got 1");
    x = ok, x.rowwise.elem = MOI_F32;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &x), MOI_ERR_ARG, "ggemm plan: rowwise");
    for (int i = 0; moit_row("ggemm", i); i++) {
        ok.row = moit_row("ggemm", i);
        moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(0), &ok));
        void *w = moit_workspace(plan);
        int64_t bytes = moi_plan_workspace_bytes(plan);
        moi_ggemm_args good = { .size = sizeof good, .rows = 6, .offsets = offsets, .a = { zeros, zeros, 0 }, .b = { zeros, zeros, 0 },
                                .rowwise = { codes, scales, 0 } }, a = good;
        memset(codes, 0x55, sizeof codes), memset(scales, 0x55, sizeof scales);
        a.d = d;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "d must be NULL for a plan with swiglu");
        a = good, a.rowwise.data = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "ggemm run: rowwise: data is NULL");
        a = good, a.rowwise.scale = scales + 1;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ALIGN, "ggemm run: rowwise");
        for (int e = 0; e < 64; e++) assert_true(codes[e] == 0x55 && scales[e] == 0x55);
        moit_ok(moi_ggemm_run(plan, &good, w, bytes, NULL));
        for (int e = 0; e < 64; e++) assert_true(codes[e] == (e < 12 ? 0 : 0x55) && scales[e] == (e < 6 ? 0 : 0x55));
        moi_plan_free(plan);
        x = ok, x.swiglu = false;
        moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(0), &x));
        a = good, a.d = d;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rowwise must be NULL for a plan without swiglu");
        moi_plan_free(plan);
        moit_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bits), cmocka_unit_test(test_tickets), cmocka_unit_test(test_errors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
