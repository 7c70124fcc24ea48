/* SPDX-License-Identifier: Apache-2.0
 * test_gemm.c: every row of gemm against sums in double. */
#include "support_products.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define V(r, e) { (r), (e), MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#define SQ(e) { MOI_RECIPE_BLK128, (e), MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }

static const struct { moi_format a, b; } pairs[] = {
    { V(MOI_RECIPE_F32, MOI_F32), V(MOI_RECIPE_F32, MOI_F32) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_BF16, MOI_BF16) },
    { V(MOI_RECIPE_MX32, MOI_E4M3), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_MX32, MOI_E5M2), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_MX32, MOI_E4M3), V(MOI_RECIPE_MX32, MOI_E2M1) },
    { V(MOI_RECIPE_MX32, MOI_E2M1), V(MOI_RECIPE_MX32, MOI_E5M2) },
    { V(MOI_RECIPE_MX32, MOI_E3M2), V(MOI_RECIPE_MX32, MOI_E2M3) },
    { V(MOI_RECIPE_MX32, MOI_E2M3), V(MOI_RECIPE_MX32, MOI_E3M2) },
    { V(MOI_RECIPE_MX32, MOI_INT8), V(MOI_RECIPE_MX32, MOI_INT8) },
    { V(MOI_RECIPE_BLK128, MOI_E4M3), V(MOI_RECIPE_BLK128, MOI_E4M3) },
    { V(MOI_RECIPE_BLK128, MOI_E5M2), V(MOI_RECIPE_BLK128, MOI_E4M3) },
    { V(MOI_RECIPE_BLK128, MOI_E4M3), SQ(MOI_E4M3) },
    { V(MOI_RECIPE_BLK128, MOI_E4M3), SQ(MOI_E5M2) },
    /* plain activations beside weights of another format */
    { V(MOI_RECIPE_F32, MOI_F32), V(MOI_RECIPE_BF16, MOI_BF16) },
    { V(MOI_RECIPE_F32, MOI_F32), V(MOI_RECIPE_BF16, MOI_F16) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_BF16, MOI_F16) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_F32, MOI_F32) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_MX32, MOI_E4M3) },
    { V(MOI_RECIPE_F32, MOI_F32), V(MOI_RECIPE_MX32, MOI_E5M2) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_MX32, MOI_E2M1) },
    { V(MOI_RECIPE_F32, MOI_F32), V(MOI_RECIPE_MX32, MOI_E2M1) },
    { V(MOI_RECIPE_BF16, MOI_BF16), V(MOI_RECIPE_MX32, MOI_E2M3) },
    { V(MOI_RECIPE_F32, MOI_F32), V(MOI_RECIPE_MX32, MOI_INT8) },
    { V(MOI_RECIPE_BF16, MOI_BF16), SQ(MOI_E4M3) },
    { V(MOI_RECIPE_F32, MOI_F32), V(MOI_RECIPE_BLK128, MOI_E4M3) },
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static int opened; /* products that were made since it was set to 0 */

typedef struct shape { int64_t m, n, k; } shape;
static const shape small[] = { { 0, 5, 7 }, { 5, 0, 7 }, { 3, 2, 0 }, { 1, 1, 1 }, { 2, 3, 31 }, { 3, 5, 33 }, { 4, 6, 64 },
                               { 5, 9, 128 }, { 1, 18, 257 }, { 17, 1, 130 }, { 6, 131, 65 }, { 19, 21, 300 } };
static const shape large[] = { { 1, 600, 1100 }, { 4, 67, 1300 }, { 20, 530, 600 }, { 530, 20, 1030 }, { 3, 1, 3000 } };

/* One product: its operands, its result, its plan. */
typedef struct job {
    moit_matrix a, b;
    moi_gemm_desc desc;
    moi_plan *plan;
    shape s;
    int64_t ldd;
    float *before; /* [m, n], what D held */
    void *d;
} job;

static float result_get(const job *j, int64_t row, int64_t col)
{
    return moi_decode(j->desc.out, (char *)j->d + row * moi_row_bytes(j->desc.out, j->ldd), col);
}

/* false, and nothing to close: the row declines this problem, which only gemm_few may do. */
static bool job_open(job *j, const char *row, moi_ctx *ctx, moit_rng *rng)
{
    j->desc.size = sizeof j->desc, j->desc.row = row;
    j->desc.a = j->a.format, j->desc.b = j->b.format, j->desc.a_order = j->a.order, j->desc.b_order = j->b.order;
    j->desc.max_m = j->s.m + 3, j->desc.n = j->s.n, j->desc.k = j->s.k;
    moi_status status = moi_gemm_plan_create(&j->plan, ctx, &j->desc);
    if (status == MOI_ERR_UNSUPPORTED && row && !strcmp(row, "gemm_few")) return false;
    moit_ok(status);
    if (row) assert_string_equal(moi_plan_row(j->plan), row);
    j->a.rows = j->s.m, j->b.rows = j->s.n, j->a.depth = j->b.depth = j->s.k;
    moit_matrix_make(&j->a, rng);
    moit_matrix_make(&j->b, rng);
    j->ldd = j->s.n + j->a.pad;
    j->d = moit_alloc(j->s.m * moi_row_bytes(j->desc.out, j->ldd));
    memset(j->d, 0xFF, (size_t)(j->s.m * moi_row_bytes(j->desc.out, j->ldd))); /* NaN: must not come through */
    j->before = calloc((size_t)(j->s.m * j->s.n) + 1, sizeof(float));
    for (int64_t i = 0; i < j->s.m * j->s.n && j->desc.accumulate; i++) {
        j->before[i] = 100.0f * moit_normal(rng);
        ((float *)j->d)[i / j->s.n * j->ldd + i % j->s.n] = j->before[i];
    }
    opened++;
    return true;
}

static void job_run(job *j)
{
    void *w = moit_workspace(j->plan);
    moi_gemm_args args = { .size = sizeof args, .m = j->s.m, .a = moit_operand(&j->a), .b = moit_operand(&j->b), .d = j->d,
                           .ldd = j->a.pad ? j->ldd : 0 };
    moit_ok(moi_gemm_run(j->plan, &args, w, moi_plan_workspace_bytes(j->plan), NULL));
    moit_free(w);
}

/* The largest ratio to the bound; padding between rows of D must be as it was. */
static double job_check(const job *j, int strict)
{
    double worst = 0.0;
    for (int64_t r = 0; r < j->s.m; r++) {
        for (int64_t c = 0; c < j->s.n; c++) {
            double sum = j->before[r * j->s.n + c], magnitude = fabs(sum);
            for (int64_t l = 0; l < j->s.k; l++) {
                double p = j->a.values[r * j->s.k + l] * j->b.values[c * j->s.k + l];
                sum += p, magnitude += fabs(p);
            }
            double e = moit_product_error(j->desc.out, result_get(j, r, c), sum, magnitude, j->s.k, strict);
            if (!(e <= 1.0))
                fail_msg("%s %s x %s, %lldx%lldx%lld, orders %d %d, layouts %d %d, out %s: D[%lld][%lld] = %g, exact %g: %g of the bound",
                         moi_plan_row(j->plan), moi_dtype_name(j->desc.a.elem), moi_dtype_name(j->desc.b.elem), (long long)j->s.m,
                         (long long)j->s.n, (long long)j->s.k, j->desc.a_order, j->desc.b_order, j->desc.a.layout, j->desc.b.layout,
                         moi_dtype_name(j->desc.out), (long long)r, (long long)c, (double)result_get(j, r, c), sum, e);
            if (e > worst) worst = e;
        }
        const unsigned char *line = (const unsigned char *)j->d + r * moi_row_bytes(j->desc.out, j->ldd);
        for (int64_t i = moi_row_bytes(j->desc.out, j->s.n); i < moi_row_bytes(j->desc.out, j->ldd); i++) assert_int_equal(line[i], 0xFF);
    }
    return worst;
}

static void job_close(job *j)
{
    moit_matrix_free(&j->a);
    moit_matrix_free(&j->b);
    moit_free(j->d);
    free(j->before);
    moi_plan_free(j->plan);
}

static double one(const char *row, int pair, int variant, int mode, shape s, moit_spread spread)
{
    moit_rng rng = moit_seed("gemm", (uint64_t)((pair * 16 + variant) * 4 + mode) * 1000003u + (uint64_t)(s.m * 4001 + s.n * 71 + s.k));
    job j = { .a.format = pairs[pair].a, .b.format = pairs[pair].b, .s = s };
    if (pairs[pair].b.recipe <= MOI_RECIPE_BF16) {
        j.a.order = (moi_order)(variant & 1), j.b.order = (moi_order)(variant >> 1 & 1);
    } else if (pairs[pair].a.recipe <= MOI_RECIPE_BF16) {
        j.a.order = (moi_order)(variant & 1);
        j.b.format.layout = (moi_layout)(variant % 3);
        if (pairs[pair].b.recipe == MOI_RECIPE_BLK128 && j.b.format.layout == MOI_LAYOUT_TILED) j.b.format.layout = MOI_LAYOUT_COL;
    } else {
        j.a.format.layout = (moi_layout)(variant % 3), j.b.format.layout = (moi_layout)((variant + (pair & 1)) % 3);
        if (pairs[pair].a.recipe == MOI_RECIPE_BLK128) {
            if (j.a.format.layout == MOI_LAYOUT_TILED) j.a.format.layout = MOI_LAYOUT_COL;
            if (j.b.format.layout == MOI_LAYOUT_TILED) j.b.format.layout = MOI_LAYOUT_ROW;
        }
    }
    j.a.spread = spread, j.b.spread = spread == MOIT_LARGE ? MOIT_SMALL : MOIT_ORDINARY;
    j.a.pad = (int64_t)(moit_next(&rng) % 3) * 5, j.b.pad = (int64_t)(moit_next(&rng) % 3) * 4;
    j.desc.out = mode == 2 ? MOI_BF16 : MOI_F32, j.desc.accumulate = mode == 1;
    if (!job_open(&j, row, moit_ctx(0), &rng)) return 0.0;
    job_run(&j);
    double worst = job_check(&j, strcmp(row, "gemm_ref") == 0);
    job_close(&j);
    return worst;
}

/* P:gemm.bound, P:guard, P:empty */
static void test_bound(void **state)
{
    (void)state;
    const char *row;
    for (int i = 0; (row = moit_row("gemm", i)); i++) {
        double worst = 0.0;
        opened = 0;
        for (int pair = 0; pair < PAIRS; pair++)
            for (int variant = 0; variant < (pairs[pair].b.recipe <= MOI_RECIPE_BF16 ? 4 : 3); variant++)
                for (int mode = 0; mode < 3; mode++)
                    for (size_t s = 0; s < sizeof small / sizeof *small; s++)
                        worst = fmax(worst, one(row, pair, variant, mode, small[s], MOIT_ORDINARY));
        assert_true(opened > 100);
        printf("%s: at most %.3f of the bound, %d products\n", row, worst, opened);
    }
}

/* P:gemm.bound where the work is cut into blocks, and with scales near the ends of their range. */
static void test_bound_large(void **state)
{
    (void)state;
    const char *row;
    for (int i = 0; (row = moit_row("gemm", i)); i++) {
        double worst = 0.0;
        opened = 0;
        int strict = strcmp(row, "gemm_ref") == 0;
        for (int pair = 0; pair < PAIRS; pair++) {
            for (size_t s = strict ? 4 : 0; s < sizeof large / sizeof *large; s++)
                worst = fmax(worst, one(row, pair, (int)s % 4 + (pair & 1), (pair + (int)s) % 3, large[s], MOIT_ORDINARY));
            worst = fmax(worst, one(row, pair, 0, 0, (shape){ 9, 10, 200 }, MOIT_LARGE));
        }
        assert_true(opened > 10);
        printf("%s: at most %.3f of the bound, large, %d products\n", row, worst, opened);
    }
}

static int same_bits(float x, float y) { return memcmp(&x, &y, 4) == 0; }

/* Puts something not finite into row `row` of a matrix: as an element, or as a scale. */
static void poison(moit_matrix *m, int64_t row, int64_t l, int kind)
{
    if (kind == 0 && m->scale_bytes) moit_matrix_set_scale(m, 0, row, l, NAN);
    else if (kind == 1 && (m->format.recipe <= MOI_RECIPE_BF16 || m->format.elem == MOI_E5M2)) moit_matrix_set(m, row, l, INFINITY);
    else if (m->format.recipe == MOI_RECIPE_MX32 && m->format.elem != MOI_E4M3 && m->format.elem != MOI_E5M2)
        moit_matrix_set_scale(m, 0, row, l, NAN);
    else moit_matrix_set(m, row, l, NAN);
    moit_matrix_read(m);
}

/* P:gemm.nan: NaN and Inf stay in their row of A (their row of B: in their column), and zeros do not hide them. */
static void test_nan(void **state)
{
    (void)state;
    static const shape shapes[] = { { 3, 5, 70 }, { 13, 11, 40 }, { 1, 4, 33 }, { 9, 1, 64 }, { 18, 40, 129 }, { 4, 20, 300 } };
    const char *row;
    for (int i = 0; (row = moit_row("gemm", i)); i++)
        for (int c = 0; c < PAIRS * 6 * 2 * 2; c++) {
            int pair = c % PAIRS, kind = c / PAIRS % 2, into_b = c / PAIRS / 2 % 2;
            shape s = shapes[c / PAIRS / 4];
            moit_rng rng = moit_seed("gemm nan", (uint64_t)c);
            job j = { .a.format = pairs[pair].a, .b.format = pairs[pair].b, .s = s, .desc.out = c % 2 ? MOI_BF16 : MOI_F32 };
            if (pairs[pair].b.recipe <= MOI_RECIPE_BF16) j.a.order = (moi_order)(c / 3 % 2), j.b.order = (moi_order)(c / 5 % 2);
            if (!job_open(&j, row, moit_ctx(0), &rng)) continue;
            job_run(&j);
            float *clean = calloc((size_t)(s.m * s.n), sizeof(float));
            for (int64_t e = 0; e < s.m * s.n; e++) clean[e] = result_get(&j, e / s.n, e % s.n);
            moit_matrix *m = into_b ? &j.b : &j.a, *other = into_b ? &j.a : &j.b;
            int64_t at = moit_below(&rng, m->rows), l = moit_below(&rng, s.k), reach = m->format.block == MOI_BLOCK_SQUARE && kind == 0 ? 128 : 1;
            for (int64_t r = 0; r < other->rows; r += 2) moit_matrix_set(other, r, l, 0.0f);
            moit_matrix_read(other);
            job_run(&j);
            for (int64_t e = 0; e < s.m * s.n; e++) clean[e] = result_get(&j, e / s.n, e % s.n);
            poison(m, at, l, kind);
            job_run(&j);
            job_check(&j, strcmp(row, "gemm_ref") == 0); /* NaN and infinities exactly where they belong */
            for (int64_t e = 0; e < s.m * s.n; e++) {
                int64_t line = into_b ? e % s.n : e / s.n;
                if (line / reach != at / reach && !same_bits(clean[e], result_get(&j, e / s.n, e % s.n)))
                    fail_msg("%s %s: NaN in row %lld of %s reached D[%lld][%lld]", row, moi_dtype_name(m->format.elem), (long long)at,
                             into_b ? "B" : "A", (long long)(e / s.n), (long long)(e % s.n));
            }
            free(clean);
            job_close(&j);
        }
}

/* The reference by hand: no helper of the tests is involved. */
static void test_by_hand(void **state)
{
    (void)state;
    _Alignas(16) unsigned char a[32] = { 0x38, 0x40, 0xB8, 0x01 }, b[64] = { 0x38, 0x38, 0x38, 0x7E };
    _Alignas(16) unsigned char sa[16] = { 128 }, sb[16] = { 127, 126 };
    _Alignas(16) float d[2] = { 7, 8 };
    b[32] = 0x40; /* 2 */
    b[33] = 0x08; /* 2^-6 */
    moi_gemm_desc desc = MOI_GEMM_DESC_INIT;
    desc.row = "gemm_ref", desc.a = desc.b = MOI_FORMAT_MXFP8, desc.max_m = 1, desc.n = 2, desc.k = 32;
    moi_gemm_args args = { .size = sizeof args, .m = 1, .a = { a, sa, 0 }, .b = { b, sb, 0 }, .d = d };
    moi_plan *plan;
    moit_ok(moi_gemm_plan_create(&plan, moit_ctx(1), &desc));
    moit_ok(moi_gemm_run(plan, &args, NULL, 0, NULL));
    moi_plan_free(plan);
    assert_true(d[0] == 2.0f * (1.0f + 2.0f - 1.0f + 448.0f / 512.0f)); /* scales 2 and 1 */
    assert_true(d[1] == 1.0f * (2.0f + 2.0f / 64.0f));                  /* scales 2 and 1/2 */
    desc.a = MOI_FORMAT_BLK128_ACT, desc.b = MOI_FORMAT_BLK128_WEIGHT, desc.accumulate = true;
    _Alignas(16) float fa[4] = { 3.0f }, fb[4] = { 0.25f };
    args.a.scale = fa, args.b.scale = fb;
    moit_ok(moi_gemm_plan_create(&plan, moit_ctx(1), &desc));
    moit_ok(moi_gemm_run(plan, &args, NULL, 0, NULL));
    moi_plan_free(plan);
    assert_true(d[0] == 5.75f + 0.75f * 2.875f);
    assert_true(d[1] == 2.03125f + 0.75f * 2.03125f);
}

/* P:det */
static void test_deterministic(void **state)
{
    (void)state;
    const char *row;
    for (int i = 0; (row = moit_row("gemm", i)); i++)
        for (int pair = 0; pair < PAIRS; pair += 2) {
            moit_rng rng = moit_seed("gemm det", 1);
            int64_t m = strcmp(row, "gemm_few") ? 37 : 5;
            size_t bytes = (size_t)m * 150 * sizeof(float);
            job j = { .a.format = pairs[pair].a, .b.format = pairs[pair].b, .s = { m, 150, 400 }, .desc.out = MOI_F32 };
            if (!job_open(&j, row, moit_ctx(0), &rng)) continue;
            job_run(&j);
            float *first = malloc(bytes);
            memcpy(first, j.d, bytes);
            for (int again = 0; again < 3; again++) {
                memset(j.d, 0xFF, bytes);
                job_run(&j);
                assert_memory_equal(first, j.d, bytes);
            }
            free(first);
            job_close(&j);
        }
}

static void test_plan_errors(void **state)
{
    (void)state;
    moi_plan *plan;
    moi_gemm_desc d = MOI_GEMM_DESC_INIT, ok;
    d.a = d.b = MOI_FORMAT_MXFP8, d.max_m = 4, d.n = 4, d.k = 64;
    ok = d;
    moit_refused(moi_gemm_plan_create(NULL, moit_ctx(0), &d), MOI_ERR_ARG, "out is NULL");
    moit_refused(moi_gemm_plan_create(&plan, NULL, &d), MOI_ERR_ARG, "ctx is NULL");
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), NULL), MOI_ERR_ARG, "desc is NULL");
    d.a = MOI_FORMAT_BF16, d.b = MOI_FORMAT_F16, d.b.elem = MOI_F64;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "gemm plan: b: recipe bf16 needs elem bf16, got f64");
    d = ok, d.b = MOI_FORMAT_BF16;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "one recipe, got mx32 and bf16");
    d = ok, d.a.elem = MOI_BF16;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "gemm plan: a: recipe mx32 needs");
    d = ok, d.a = d.b = MOI_FORMAT_BLK128_WEIGHT;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "a.block must be VECTOR");
    d = ok, d.b_order = MOI_MN_MAJOR;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "b_order must be K_MAJOR");
    d = ok, d.a_order = (moi_order)7;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "got 7");
    d = ok, d.out = MOI_F16;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "out must be f32 or bf16, got f16");
    d = ok, d.out = MOI_BF16, d.accumulate = true;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "accumulate needs out f32");
    d = ok, d.mx = (moi_mx_scales)3;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "mx must be MX_FREE (0), MX_PER_128 (1) or MX_PER_ROW (2), got 3");
    d = ok, d.a = d.b = MOI_FORMAT_BF16, d.mx = MOI_MX_PER_ROW;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "mx is for recipe mx32, got bf16");
    d = ok, d.k = -1;
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_SHAPE, "got 4, 4, -1");
    d = ok, d.row = "gemm_missing";
    moit_refused(moi_gemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_UNSUPPORTED, "gemm_missing");
    assert_null(plan);
}

static void test_run_errors(void **state)
{
    (void)state;
    static _Alignas(128) unsigned char zeros[4096];
    static _Alignas(128) float d[64];
    for (int i = 0; moit_row("gemm", i); i++) {
        moi_plan *plan;
        moi_gemm_desc desc = MOI_GEMM_DESC_INIT;
        if (!strcmp(moit_row("gemm", i), "gemm_few")) continue;
        desc.row = moit_row("gemm", i), desc.a = desc.b = MOI_FORMAT_MXFP4, desc.max_m = 4, desc.n = 4, desc.k = 64;
        moit_ok(moi_gemm_plan_create(&plan, moit_ctx(0), &desc));
        int64_t bytes = moi_plan_workspace_bytes(plan);
        void *w = moit_workspace(plan);
        moi_gemm_args ok = { .size = sizeof ok, .m = 4, .a = { zeros, zeros, 0 }, .b = { zeros, zeros, 0 }, .d = d }, a = ok;
        for (int e = 0; e < 64; e++) d[e] = 5.0f;
        moit_refused(moi_gemm_run(NULL, &a, w, bytes, NULL), MOI_ERR_ARG, "plan is NULL");
        moit_refused(moi_gemm_run(plan, NULL, w, bytes, NULL), MOI_ERR_ARG, "args is NULL");
        moit_refused(moi_gemm_run(plan, &a, w, bytes, (moi_stream)d), MOI_ERR_ARG, "no streams");
        if (bytes) moit_refused(moi_gemm_run(plan, &a, w, bytes - 1, NULL), MOI_ERR_WORKSPACE, "workspace must hold");
        a.m = 5;
        moit_refused(moi_gemm_run(plan, &a, w, bytes, NULL), MOI_ERR_SHAPE, "m must be 0..4, got 5");
        a = ok, a.a.data = NULL;
        moit_refused(moi_gemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "gemm run: a: data is NULL");
        a = ok, a.b.scale = NULL;
        moit_refused(moi_gemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "gemm run: b: scale is NULL");
        a = ok, a.a.data = zeros + 8;
        moit_refused(moi_gemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ALIGN, "a: data must be aligned");
        a = ok, a.b.ld = 63;
        moit_refused(moi_gemm_run(plan, &a, w, bytes, NULL), MOI_ERR_SHAPE, "b: ld must be 0 or >= 64, got 63");
        a = ok, a.b.ld = 65;
        moit_refused(moi_gemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ALIGN, "whole bytes");
        a = ok, a.d = NULL;
        moit_refused(moi_gemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "d: data is NULL");
        a = ok, a.ldd = 3;
        moit_refused(moi_gemm_run(plan, &a, w, bytes, NULL), MOI_ERR_SHAPE, "d: ld must be 0 or >= 4, got 3");
        for (int e = 0; e < 64; e++) assert_true(d[e] == 5.0f);
        moit_free(w);
        moi_plan_free(plan);
    }
}

/* Weights beside plain activations may lie anywhere: the same bits from any address. */
static void test_unaligned_weights(void **state)
{
    (void)state;
    for (int i = 0; moit_row("gemm", i); i++)
        for (int pair = 0; pair < PAIRS; pair++) {
            const moi_format *a = &pairs[pair].a, *b = &pairs[pair].b;
            if (a->recipe > MOI_RECIPE_BF16) continue;
            moit_rng rng = moit_seed("gemm unaligned", (uint64_t)pair);
            job j = { .a.format = *a, .b.format = *b, .s = { 3, 7, 130 }, .desc.out = MOI_F32 };
            assert_true(job_open(&j, moit_row("gemm", i), moit_ctx(0), &rng));
            job_run(&j);
            float first[3 * 7];
            memcpy(first, j.d, sizeof first);
            int64_t data_step = moi_dtype_bits(b->elem) < 16 ? 1 : moi_dtype_bits(b->elem) / 8, scale_step = b->recipe == MOI_RECIPE_BLK128 ? 4 : 1;
            char *data = moit_alloc(j.b.data_bytes + data_step), *scale = moit_alloc(j.b.scale_bytes + scale_step);
            memcpy(data + data_step, j.b.data, (size_t)j.b.data_bytes);
            memcpy(scale + scale_step, j.b.scale, (size_t)j.b.scale_bytes);
            void *kept[2] = { j.b.data, j.b.scale };
            j.b.data = data + data_step, j.b.scale = scale + scale_step;
            memset(j.d, 0xFF, sizeof first);
            job_run(&j);
            assert_memory_equal(first, j.d, sizeof first);
            j.b.data = kept[0], j.b.scale = kept[1];
            moit_free(data);
            moit_free(scale);
            job_close(&j);
        }
}

static void remember_chosen(void *user, const char *name, const char *value)
{
    if (!strcmp(name, "chosen")) snprintf(user, 32, "%s", value);
}

/* Of a GPU that is not there: the row that would be taken there, by name as long as it is not verified. */
static void test_explain(void **state)
{
    (void)state;
    char chosen[32] = "";
    moi_explain_config to = MOI_EXPLAIN_CONFIG_INIT, ok;
    moi_gemm_desc d = MOI_GEMM_DESC_INIT;
    d.a = MOI_FORMAT_BLK128_ACT, d.b = MOI_FORMAT_BLK128_WEIGHT, d.max_m = 64, d.n = 4096, d.k = 7168;
    to.each = remember_chosen, to.user = chosen;
    ok = to;
    moit_ok(moi_gemm_explain(moit_ctx(0), &d, &to));
    assert_string_equal(chosen, "gemm_fast");
    to.capability = 90, d.row = "gemm_sm90";
    moit_ok(moi_gemm_explain(moit_ctx(0), &d, &to));
    assert_string_equal(chosen, "gemm_sm90");
    to.capability = 80;
    moit_ok(moi_gemm_explain(moit_ctx(0), &d, &to));
    assert_string_equal(chosen, "none");
    moit_refused(moi_gemm_explain(moit_ctx(0), &d, NULL), MOI_ERR_ARG, "config is NULL");
    moit_refused(moi_gemm_explain(NULL, &d, &to), MOI_ERR_ARG, "ctx is NULL");
    to = ok, to.each = NULL;
    moit_refused(moi_gemm_explain(moit_ctx(0), &d, &to), MOI_ERR_ARG, "config.each is NULL");
    to = ok, to.sms = 0;
    moit_refused(moi_gemm_explain(moit_ctx(0), &d, &to), MOI_ERR_ARG, "sms 1..4096, got 0 and 0");
    d.n = -1;
    moit_refused(moi_gemm_explain(moit_ctx(0), &d, &ok), MOI_ERR_SHAPE, "must be >= 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_bound), cmocka_unit_test(test_bound_large), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_deterministic), cmocka_unit_test(test_unaligned_weights), cmocka_unit_test(test_plan_errors), cmocka_unit_test(test_run_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
