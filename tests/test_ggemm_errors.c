/* SPDX-License-Identifier: Apache-2.0
 * test_ggemm_errors.c: what every row of ggemm refuses, and that a refused call writes nothing. */
#include "support_products.h"

static void test_plan_errors(void **state)
{
    (void)state;
    moi_plan *plan;
    moi_ggemm_desc d = MOI_GGEMM_DESC_INIT, ok;
    d.a = d.b = MOI_FORMAT_BF16, d.groups = 2, d.max_rows = 8, d.m = d.n = d.k = 4;
    ok = d;
    moit_refused(moi_ggemm_plan_create(&plan, NULL, &d), MOI_ERR_ARG, "ctx is NULL");
    d.grouping = (moi_grouping)3;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "got 3");
    d = ok, d.grouping = MOI_GROUP_MASKED, d.a_order = MOI_MN_MAJOR;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "a_order must be K_MAJOR");
    d = ok, d.gather_rows = -1;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "gather_rows must be >= 0, and 0 unless grouping is GROUP_M, got -1");
    d = ok, d.gather_rows = 3, d.grouping = MOI_GROUP_K;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "0 unless grouping is GROUP_M, got 3");
    d = ok, d.gather_rows = 3, d.row = "ggemm_fast", d.a = d.b = MOI_FORMAT_F32;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_UNSUPPORTED, "must lie in order");
    d = ok, d.scatter_rows = -1;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "scatter_rows must be >= 0, and 0 unless grouping is GROUP_M, got -1");
    d = ok, d.scatter_rows = 3, d.grouping = MOI_GROUP_MASKED;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "0 unless grouping is GROUP_M, got 3");
    d = ok, d.weighted = true, d.grouping = MOI_GROUP_K;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "weighted must be false unless grouping is GROUP_M");
    d = ok, d.sm_limit = -2;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "ggemm plan: sm_limit must be >= 0, got -2");
    d = ok, d.expected_rows = -3;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_SHAPE, "expected_rows must be >= 0, got -3");
    d = ok, d.a_order = MOI_MN_MAJOR;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "a_order must be K_MAJOR for GROUP_M");
    d = ok, d.grouping = MOI_GROUP_K, d.a = MOI_FORMAT_BLK128_ACT, d.b = MOI_FORMAT_BLK128_WEIGHT;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "b.block must be VECTOR for GROUP_K");
    d = ok, d.grouping = MOI_GROUP_K, d.b = MOI_FORMAT_MXFP8; /* weights alone: of groups of rows */
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "ggemm plan: a and b must have one recipe");
    d = ok, d.groups = -1;
    moit_refused(moi_ggemm_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_SHAPE, "must be >= 0, got -1");
    assert_null(plan);
}

static void test_run_errors(void **state)
{
    (void)state;
    static _Alignas(128) unsigned char zeros[4096];
    static _Alignas(128) float d[64];
    static const int64_t good[] = { 0, 3, 6 }, late[] = { 1, 3, 6 }, back[] = { 0, 4, 3 }, far[] = { 0, 3, 9 };
    for (int i = 0; moit_row("ggemm", i); i++) {
        moi_plan *plan;
        moi_ggemm_desc desc = MOI_GGEMM_DESC_INIT;
        desc.row = moit_row("ggemm", i), desc.a = desc.b = MOI_FORMAT_MXFP8, desc.groups = 2, desc.max_rows = 8, desc.n = 4, desc.k = 32;
        moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(0), &desc));
        int64_t bytes = moi_plan_workspace_bytes(plan);
        void *w = moit_workspace(plan);
        moi_ggemm_args ok = { .size = sizeof ok, .rows = 8, .offsets = good, .a = { zeros, zeros, 0 }, .b = { zeros, zeros, 0 }, .d = d }, a = ok;
        for (int e = 0; e < 64; e++) d[e] = 5.0f;
        a.rows = 9;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_SHAPE, "rows must be 0..8, got 9");
        a = ok, a.offsets = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "offsets is NULL");
        a = ok, a.offsets = late;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "offsets[0] must be 0, got 1");
        a = ok, a.offsets = back;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "offsets must ascend, got 3 behind 4 at 2");
        a = ok, a.offsets = far;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "must be <= rows = 8, got 9");
        a = ok, a.rows_of_a = (const int32_t *)zeros;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rows_of_a and a_rows must be NULL and 0");
        a = ok, a.counts = good;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "counts must be NULL for GROUP_M");
        a = ok, a.b.data = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "ggemm run: b: data is NULL");
        a = ok, a.a.scale = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "ggemm run: a: scale is NULL");
        a = ok, a.d = (char *)d + 4;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ALIGN, "ggemm run: d");
        for (int e = 0; e < 64; e++) assert_true(d[e] == 5.0f);
        moit_free(w);
        moi_plan_free(plan);
    }
}

static void test_masked_errors(void **state)
{
    (void)state;
    static _Alignas(128) unsigned char zeros[4096];
    static _Alignas(128) float d[64];
    static const int64_t good[] = { 8, 0 }, many[] = { 3, 9 }, less[] = { -1, 3 };
    for (int i = 0; moit_row("ggemm", i); i++) {
        moi_plan *plan;
        moi_ggemm_desc desc = MOI_GGEMM_DESC_INIT;
        desc.grouping = MOI_GROUP_MASKED;
        desc.row = moit_row("ggemm", i), desc.a = desc.b = MOI_FORMAT_MXFP8, desc.groups = 2, desc.max_rows = 8, desc.n = 4, desc.k = 32;
        moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(0), &desc));
        int64_t bytes = moi_plan_workspace_bytes(plan);
        void *w = moit_workspace(plan);
        moi_ggemm_args ok = { .size = sizeof ok, .rows = 8, .counts = good, .a = { zeros, zeros, 0 }, .b = { zeros, zeros, 0 }, .d = d }, a = ok;
        for (int e = 0; e < 64; e++) d[e] = 5.0f;
        a.counts = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "counts is NULL");
        a = ok, a.offsets = good;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "offsets must be NULL for GROUP_MASKED");
        a = ok, a.counts = many;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "counts must be 0..rows = 8, got 9 at 1");
        a = ok, a.counts = less;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "counts must be 0..rows = 8, got -1 at 0");
        a = ok, a.rows = 9;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_SHAPE, "rows must be 0..8, got 9");
        a = ok, a.d = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "ggemm run: d");
        for (int e = 0; e < 64; e++) assert_true(d[e] == 5.0f);
        moit_ok(moi_ggemm_run(plan, &ok, w, bytes, NULL));
        for (int e = 0; e < 64; e++) assert_true(d[e] == (e < 32 ? 0.0f : 5.0f));
        moit_free(w);
        moi_plan_free(plan);
    }
}

static void test_gather_errors(void **state)
{
    (void)state;
    static _Alignas(128) unsigned char zeros[4096];
    static _Alignas(128) float d[64];
    static const int64_t offsets[] = { 0, 3, 6 };
    static const int32_t good[] = { 4, 0, 4, 1, 2, 3 }, high[] = { 4, 0, 4, 1, 2, 5 }, low[] = { 4, -1, 4, 1, 2, 3 };
    for (int i = 0; moit_row("ggemm", i); i++) {
        moi_plan *plan;
        moi_ggemm_desc desc = MOI_GGEMM_DESC_INIT;
        desc.row = moit_row("ggemm", i), desc.a = desc.b = MOI_FORMAT_MXFP8, desc.groups = 2, desc.max_rows = 8, desc.n = 4, desc.k = 32;
        desc.gather_rows = 7;
        moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(0), &desc));
        int64_t bytes = moi_plan_workspace_bytes(plan);
        void *w = moit_workspace(plan);
        moi_ggemm_args ok = { .size = sizeof ok, .rows = 6, .offsets = offsets, .a = { zeros, zeros, 0 }, .b = { zeros, zeros, 0 }, .d = d,
                              .rows_of_a = good, .a_rows = 5 }, a = ok;
        for (int e = 0; e < 64; e++) d[e] = 5.0f;
        a.rows_of_a = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rows_of_a is NULL");
        a = ok, a.a_rows = 8;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_SHAPE, "a_rows must be 0..7, got 8");
        a = ok, a.a_rows = 0;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_SHAPE, "a_rows must be > 0 where there are rows");
        a = ok, a.rows_of_a = high;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rows_of_a must be 0..4, got 5 at 5");
        a = ok, a.rows_of_a = low;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rows_of_a must be 0..4, got -1 at 1");
        for (int e = 0; e < 64; e++) assert_true(d[e] == 5.0f);
        moit_ok(moi_ggemm_run(plan, &ok, w, bytes, NULL));
        for (int e = 0; e < 64; e++) assert_true(d[e] == (e < 24 ? 0.0f : 5.0f));
        moit_free(w);
        moi_plan_free(plan);
    }
}

static void test_scatter_errors(void **state)
{
    (void)state;
    static _Alignas(128) unsigned char zeros[4096];
    static _Alignas(128) float d[64];
    static const int64_t offsets[] = { 0, 3, 6 };
    static const int32_t good[] = { 4, 0, -1, 1, 2, 3 }, high[] = { 4, 0, 6, 1, 2, 5 }, low[] = { 4, -2, 6, 1, 2, 3 };
    static const float weight[6] = { 1 };
    for (int i = 0; moit_row("ggemm", i); i++) {
        moi_plan *plan;
        moi_ggemm_desc desc = MOI_GGEMM_DESC_INIT;
        desc.row = moit_row("ggemm", i), desc.a = desc.b = MOI_FORMAT_MXFP8, desc.groups = 2, desc.max_rows = 8, desc.n = 4, desc.k = 32;
        moi_ggemm_args ok = { .size = sizeof ok, .rows = 6, .offsets = offsets, .a = { zeros, zeros, 0 }, .b = { zeros, zeros, 0 }, .d = d }, a = ok;
        for (int e = 0; e < 64; e++) d[e] = 5.0f;
        moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(0), &desc));
        void *w = moit_workspace(plan);
        int64_t bytes = moi_plan_workspace_bytes(plan);
        a.row_weight = weight;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "row_weight must be NULL for a plan without weights");
        a = ok, a.rows_of_d = good;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rows_of_d and d_rows must be NULL and 0");
        moit_free(w);
        moi_plan_free(plan);
        desc.scatter_rows = 7, desc.weighted = true;
        moit_ok(moi_ggemm_plan_create(&plan, moit_ctx(0), &desc));
        w = moit_workspace(plan), bytes = moi_plan_workspace_bytes(plan);
        ok.rows_of_d = good, ok.d_rows = 5, ok.row_weight = weight;
        a = ok, a.row_weight = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "row_weight is NULL for a plan with weights");
        a = ok, a.rows_of_d = NULL;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rows_of_d is NULL");
        a = ok, a.d_rows = 8;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_SHAPE, "d_rows must be 0..7, got 8");
        a = ok, a.rows_of_d = high;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rows_of_d must be -1..4, got 6 at 2");
        a = ok, a.rows_of_d = low;
        moit_refused(moi_ggemm_run(plan, &a, w, bytes, NULL), MOI_ERR_ARG, "rows_of_d must be -1..4, got -2 at 1");
        for (int e = 0; e < 64; e++) assert_true(d[e] == 5.0f);
        moit_ok(moi_ggemm_run(plan, &ok, w, bytes, NULL));
        for (int e = 0; e < 64; e++) assert_true(d[e] == (e < 20 ? 0.0f : 5.0f));
        moit_free(w);
        moi_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_errors), cmocka_unit_test(test_run_errors), cmocka_unit_test(test_masked_errors), cmocka_unit_test(test_gather_errors),
        cmocka_unit_test(test_scatter_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
