/* SPDX-License-Identifier: Apache-2.0
 * test_quantize.c: quantise, dequantise, rebase. */
#include "support.h"

#include <math.h>

/* One block of 32 whose last value is `last`, everything else 0. */
static void golden(const char *row, float last, unsigned int scale, unsigned int code)
{
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.row = row, d.rowwise = MOI_FORMAT_MXFP8, d.max_rows = 1, d.cols = 32;
    moi_plan *plan;
    moit_ok(moi_quantize_plan_create(&plan, moit_ctx(0), &d));
    float *x = moit_alloc(32 * 4);
    unsigned char *q = moit_alloc(32), *s = moit_alloc(1);
    void *ws = moit_workspace(plan);
    memset(x, 0, 32 * 4);
    x[31] = last;
    moi_quantize_args a = { .size = sizeof a, .rows = 1, .in = { x, NULL, 0 }, .rowwise = { q, s, 0 } };
    moit_ok(moi_quantize_run(plan, &a, ws, moi_plan_workspace_bytes(plan), NULL));
    assert_int_equal(s[0], scale);
    assert_int_equal(q[31], code);
    for (int i = 0; i < 31; i++) assert_int_equal(q[i], isfinite(last) ? 0 : 0x7F);
    moit_free(x), moit_free(q), moit_free(s), moit_free(ws);
    moi_plan_free(plan);
}

static void test_golden(void **state)
{
    (void)state;
    for (int i = 0; moit_row("quantize", i); i++) {
        const char *row = moit_row("quantize", i);
        golden(row, 448.0f, 127, 0x7E);
        golden(row, 0x1.c00006p8f, 128, 0x76);
        golden(row, 1.0f, 119, 0x78);
        golden(row, 1.75f, 119, 0x7E);
        golden(row, 0x1.c00002p0f, 120, 0x76);
        golden(row, -0.0007f, 108, 0xFB);
        golden(row, 0.0f, 0, 0);
        golden(row, 0x1p-127f, 0, 0x38);
        golden(row, 3.4028235e38f, 247, 0x78);
        golden(row, INFINITY, 255, 0x7F);
        golden(row, NAN, 255, 0x7F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
