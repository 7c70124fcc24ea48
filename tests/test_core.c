/* SPDX-License-Identifier: Apache-2.0
 * test_core.c: status, contexts, the table of rows, sizes of formats and layouts. */
#include "support.h"

#include <stdlib.h>

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(moi_version(), "0.1.0");
    assert_string_equal(moi_status_name(MOI_ERR_FORMAT), "MOI_ERR_FORMAT");
    assert_string_equal(moi_status_name((moi_status)999), "unknown");
    assert_string_equal(moi_dtype_name(MOI_E2M1), "e2m1");
    assert_string_equal(moi_dtype_name((moi_dtype)99), "?");
    assert_string_equal(moi_recipe_name(MOI_RECIPE_BLK128), "blk128");
    assert_int_equal(moi_dtype_bits(MOI_E3M2), 6);
    assert_int_equal(moi_dtype_bits((moi_dtype)-1), 0);
}

static void test_context(void **state)
{
    (void)state;
    moi_ctx *ctx;
    moi_ctx_config c = MOI_CTX_CONFIG_INIT;
    moit_refused(moi_ctx_create(NULL, NULL), MOI_ERR_ARG, "out is NULL");
    c.threads = -1;
    moit_refused(moi_ctx_create(&ctx, &c), MOI_ERR_ARG, "threads must be 0..1024, got -1");
    assert_null(ctx);
    c.threads = 3;
    c.backend = (moi_backend)9;
    moit_refused(moi_ctx_create(&ctx, &c), MOI_ERR_NO_DEVICE, "not in this build");
    c.device = -2;
    moit_refused(moi_ctx_create(&ctx, &c), MOI_ERR_ARG, "device must be -1..1024, got -2");
    c.device = -1;
    c.backend = MOI_BACKEND_CPU;
    moit_ok(moi_ctx_create(&ctx, &c));
    assert_int_equal(moi_ctx_threads(ctx), 3);
    assert_non_null(strstr(moi_ctx_describe(ctx), "cpu: 3 threads"));
    moit_ok(moi_ctx_sync(ctx, NULL));
    moi_ctx_free(ctx);
    moi_ctx_free(NULL);
    setenv("MOI_CPU_ISA", "mmx", 1);
    moit_refused(moi_ctx_create(&ctx, &c), MOI_ERR_ARG, "'mmx'");
    unsetenv("MOI_CPU_ISA");
    setenv("MOI_CPU_THREADS", "two", 1);
    moit_refused(moi_ctx_create(&ctx, &c), MOI_ERR_ARG, "'two'");
    unsetenv("MOI_CPU_THREADS");
}

static void test_buffers(void **state)
{
    (void)state;
    moi_ctx *ctx = moit_ctx(0);
    void *p;
    moit_ok(moi_buf_alloc(ctx, 1000, &p));
    assert_int_equal((uintptr_t)p % 128, 0);
    for (int i = 0; i < 1000; i++) assert_int_equal(((char *)p)[i], 0);
    moi_buf_free(ctx, p);
    moi_buf_free(ctx, NULL);
    char sent[5] = "four", got[5] = "";
    moit_ok(moi_buf_alloc(ctx, 5, &p));
    moit_ok(moi_buf_put(ctx, p, sent, 5, NULL));
    moit_ok(moi_buf_get(ctx, got, p, 5, NULL));
    assert_string_equal(got, "four");
    moit_ok(moi_buf_put(ctx, NULL, NULL, 0, NULL));
    moit_refused(moi_buf_put(ctx, p, NULL, 1, NULL), MOI_ERR_ARG, "moi_buf_put: host is NULL");
    moit_refused(moi_buf_get(ctx, got, NULL, 1, NULL), MOI_ERR_ARG, "moi_buf_get: buf is NULL");
    moit_refused(moi_buf_get(ctx, got, p, -3, NULL), MOI_ERR_ARG, "bytes must be >= 0, got -3");
    moit_refused(moi_buf_get(ctx, got, p, 1, p), MOI_ERR_ARG, "no streams");
    moit_ok(moi_buf_copy(ctx, p, sent + 2, 2, NULL));
    moit_ok(moi_buf_copy(ctx, NULL, NULL, 0, NULL));
    assert_string_equal(p, "urur");
    moit_refused(moi_buf_copy(ctx, p, (char *)p + 1, 2, NULL), MOI_ERR_ARG, "moi_buf_copy: to and from overlap");
    moit_refused(moi_buf_copy(ctx, NULL, p, 1, NULL), MOI_ERR_ARG, "moi_buf_copy: to is NULL");
    moit_refused(moi_buf_copy(ctx, p, sent, -1, NULL), MOI_ERR_ARG, "bytes must be >= 0, got -1");
    moi_buf_free(ctx, p);
    moit_refused(moi_buf_alloc(ctx, -1, &p), MOI_ERR_ARG, "got -1");
    moit_refused(moi_buf_alloc(ctx, INT64_MAX - 1, &p), MOI_ERR_NOMEM, "no memory");
}

static void test_rows(void **state)
{
    (void)state;
    moi_row_info info;
    assert_true(moi_row_count() > 0);
    moit_refused(moi_row_get(-1, &info), MOI_ERR_ARG, "index");
    moit_refused(moi_row_get(moi_row_count(), &info), MOI_ERR_ARG, "index");
    /* every operation that has rows has a reference, and it comes last */
    for (int i = 0; i < moi_row_count(); i++) {
        moi_row_info next;
        moit_ok(moi_row_get(i, &info));
        int last = 1;
        for (int j = i + 1; j < moi_row_count(); j++) {
            moit_ok(moi_row_get(j, &next));
            assert_string_not_equal(next.name, info.name);
            if (!strcmp(next.op, info.op)) last = 0;
        }
        if (last != info.is_reference) fail_msg("%s: the reference row, and only it, must come last of its operation", info.name);
    }
}

static void test_struct_sizes(void **state)
{
    (void)state;
    moi_plan *plan;
    struct { moi_dequantize_desc d; int64_t later; } longer = { .d = MOI_DEQUANTIZE_DESC_INIT };
    longer.d.in = MOI_FORMAT_MXFP8;
    longer.d.size = sizeof longer;
    moit_ok(moi_dequantize_plan_create(&plan, moit_ctx(0), &longer.d)); /* a longer struct with zeros is fine */
    moi_plan_free(plan);
    longer.later = 1;
    moit_refused(moi_dequantize_plan_create(&plan, moit_ctx(0), &longer.d), MOI_ERR_ARG, "a field behind them is set");
    longer.d.size = 0;
    moit_refused(moi_dequantize_plan_create(&plan, moit_ctx(0), &longer.d), MOI_ERR_ARG, "_INIT macro");
    longer.d = (moi_dequantize_desc)MOI_DEQUANTIZE_DESC_INIT;
    longer.d.in = MOI_FORMAT_MXFP8;
    longer.d.row = "no_such_row";
    moit_refused(moi_dequantize_plan_create(&plan, moit_ctx(0), &longer.d), MOI_ERR_UNSUPPORTED, "no_such_row: no such row");
}

static void test_scale_sizes(void **state)
{
    (void)state;
    moi_format f = MOI_FORMAT_MXFP8;
    assert_int_equal(moi_row_bytes(MOI_E3M2, 5), 4);
    assert_int_equal(moi_row_bytes(MOI_E2M1, 5), 3);
    assert_int_equal(moi_scale_blocks(&f, 33, 0), 2);
    assert_int_equal(moi_scale_blocks(&f, 100, 3), 6);
    assert_int_equal(moi_ragged_cols(&f, 100, 3), 192);
    assert_int_equal(moi_ragged_cols(&f, 100, 0), 100);
    assert_int_equal(moi_scale_bytes(&f, 130, 100, 0), 130 * 4);
    static const struct { int64_t rows, groups, ld; } far[] = {
        { 0, 0, 0 }, { 100, 0, 112 }, { 65520, 0, 65520 }, { 65535, 0, 65536 + 256 }, { 131072, 0, 131072 + 256 }, { 131073, 0, 131072 + 256 },
        { 131072, 3, 131072 + 256 }, { 131072 + 4000, 128, 139264 + 256 }, { -1, 0, -1 }, { INT64_MAX, 0, -1 },
    };
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) assert_int_equal(moi_colwise_ld(&f, far[i].rows, far[i].groups), far[i].ld);
    moi_format six = f, plain = MOI_FORMAT_BF16;
    six.elem = MOI_E3M2;
    assert_int_equal(moi_colwise_ld(&six, 1 << 20, 0), (1 << 20) + 1024); /* 256 bytes are no whole number of these: 768 are */
    assert_int_equal(moi_colwise_ld(&plain, 1 << 20, 0), (1 << 20) + 128);
    f.layout = MOI_LAYOUT_TILED;
    assert_int_equal(moi_scale_bytes(&f, 130, 160, 0), 2 * 2 * 512);
    assert_int_equal(moi_scale_index(MOI_LAYOUT_TILED, MOI_E8M0, 33, 5, 130, 5), 1 * 512 + 1 * 16 + 1 * 4 + 1);
    f.layout = MOI_LAYOUT_COL;
    assert_int_equal(moi_scale_bytes(&f, 130, 100, 0), 144 * 4);
    f = MOI_FORMAT_BLK128_WEIGHT;
    assert_int_equal(moi_scale_bytes(&f, 130, 129, 0), 2 * 2 * 4);
    f.layout = MOI_LAYOUT_COL;
    assert_int_equal(moi_scale_bytes(&f, 130, 129, 0), 4 * 2 * 4);
    assert_int_equal(moi_scale_bytes(&f, INT64_MAX / 2, INT64_MAX / 2, 0), -1);
    f = MOI_FORMAT_BF16;
    assert_int_equal(moi_scale_bytes(&f, 130, 129, 0), 0);
}

/* In each layout every (row, block) has its own place inside moi_scale_bytes. */
static void test_scale_index_is_injective(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = { { 1, 1 }, { 5, 3 }, { 128, 4 }, { 129, 5 }, { 300, 9 } };
    for (int layout = 0; layout <= MOI_LAYOUT_COL; layout++)
        for (size_t s = 0; s < 5; s++) {
            moi_format f = MOI_FORMAT_MXFP8;
            f.layout = (moi_layout)layout;
            int64_t rows = shapes[s][0], blocks = shapes[s][1], bytes = moi_scale_bytes(&f, rows, blocks * 32, 0);
            unsigned char *seen = calloc((size_t)bytes, 1);
            for (int64_t r = 0; r < rows; r++)
                for (int64_t b = 0; b < blocks; b++) {
                    int64_t i = moi_scale_index(f.layout, MOI_E8M0, r, b, rows, blocks);
                    assert_true(i >= 0 && i < bytes);
                    assert_int_equal(seen[i]++, 0);
                }
            free(seen);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_context), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_rows), cmocka_unit_test(test_struct_sizes), cmocka_unit_test(test_scale_sizes),
        cmocka_unit_test(test_scale_index_is_injective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
