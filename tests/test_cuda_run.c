/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_run.c: contexts, buffers and streams of the cuda back end, on a device; without one the tests count as skipped. */
#include "support_gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "../src/cuda/gpu.h"

#define NEED_GPU() do { (void)state; if (!moit_gpu()) skip(); } while (0)
#define CUDA(call, arguments) moit_ok(moii_driver_check(&gpu->driver, gpu->driver.call arguments, #call))

static void test_context(void **state)
{
    NEED_GPU();
    moi_ctx *ctx;
    moi_ctx_config c = MOI_CTX_CONFIG_INIT;
    c.backend = MOI_BACKEND_CUDA;
    print_message("%s\n", moi_ctx_describe(moit_gpu()));
    assert_non_null(strstr(moi_ctx_describe(moit_gpu()), "cuda: "));
    c.device = 1000;
    moit_refused(moi_ctx_create(&ctx, &c), MOI_ERR_NO_DEVICE, "device 1000 is not there");
    c.device = 0;
    moit_ok(moi_ctx_create(&ctx, &c));
    assert_ptr_equal(moii_gpu_of(ctx)->context, moii_gpu_of(moit_gpu())->context); /* the primary one, twice */
    moi_ctx_free(ctx);
    c.backend = MOI_BACKEND_AUTO, c.device = -1;
    moit_ok(moi_ctx_create(&ctx, &c)); /* unless MOI_BACKEND says otherwise */
    if (!getenv("MOI_BACKEND")) assert_non_null(strstr(moi_ctx_describe(ctx), "cuda: "));
    moi_ctx_free(ctx);
}

/* A context joins what is current on the thread, and no call changes that. */
static void test_joins_current(void **state)
{
    NEED_GPU();
    moii_gpu *gpu = moii_gpu_of(moit_gpu());
    moii_cucontext current, popped;
    moi_ctx *ctx;
    moi_ctx_config c = MOI_CTX_CONFIG_INIT;
    c.backend = MOI_BACKEND_CUDA;
    CUDA(cuCtxPushCurrent, (gpu->context));
    moit_ok(moi_ctx_create(&ctx, &c));
    assert_ptr_equal(moii_gpu_of(ctx)->context, gpu->context);
    assert_false(moii_gpu_of(ctx)->retained);
    CUDA(cuCtxPopCurrent, (&popped));
    CUDA(cuCtxGetCurrent, (&current));
    void *p;
    moit_ok(moi_buf_alloc(ctx, 100, &p)); /* made current for the call only */
    moi_buf_free(ctx, p);
    CUDA(cuCtxGetCurrent, (&popped));
    assert_ptr_equal(popped, current);
    moi_ctx_free(ctx);
}

static void test_buffers(void **state)
{
    NEED_GPU();
    moi_ctx *ctx = moit_gpu();
    unsigned char sent[1000], got[1000];
    char *p;
    moit_ok(moi_buf_alloc(ctx, 1000, (void **)&p));
    assert_int_equal((uintptr_t)p % 128, 0);
    moit_ok(moi_buf_get(ctx, got, p, 1000, NULL));
    for (int i = 0; i < 1000; i++) assert_int_equal(got[i], 0);
    for (int i = 0; i < 1000; i++) sent[i] = (unsigned char)(i * 31);
    moit_ok(moi_buf_put(ctx, p, sent, 1000, NULL));
    moit_ok(moi_buf_get(ctx, got, p, 1000, NULL));
    assert_memory_equal(got, sent, 1000);
    moit_ok(ctx->backend->put(ctx, p + 8, "0123456789abc", 13, NULL)); /* as fills of words and bytes */
    memcpy(sent + 8, "0123456789abc", 13);
    moit_ok(moi_buf_get(ctx, got, p, 1000, NULL));
    assert_memory_equal(got, sent, 1000);
    moit_ok(moi_buf_copy(ctx, p, p + 500, 500, NULL));
    memcpy(sent, sent + 500, 500);
    moit_ok(moi_buf_get(ctx, got, p, 1000, NULL));
    assert_memory_equal(got, sent, 1000);
    moi_buf_free(ctx, p);
    moit_refused(moi_buf_alloc(ctx, -1, (void **)&p), MOI_ERR_ARG, "got -1");
    moit_refused(moi_buf_alloc(ctx, (int64_t)1 << 50, (void **)&p), MOI_ERR_NOMEM, "no memory");
    moit_refused(moi_buf_alloc(ctx, INT64_MAX - 1, (void **)&p), MOI_ERR_NOMEM, "no memory");
    moit_ok(moi_buf_alloc(ctx, 0, (void **)&p)); /* an error leaves the device in order */
    moi_buf_free(ctx, p);
}

/* Small values enqueued under capture are in the graph: the host's copy may be gone. */
static void test_put_in_capture(void **state)
{
    NEED_GPU();
    moit_mem m = { .ctx = moit_gpu(), .gpu = true };
    int64_t host[4] = { 1, 2, 3, 4 }, values[3] = { 50, -60, (int64_t)7 << 40 };
    char *p = moit_out(&m, host, sizeof host);
    moit_ok(m.ctx->backend->put(m.ctx, p, values, sizeof values, NULL));
    moit_capture_begin(&m);
    moit_ok(m.ctx->backend->put(m.ctx, p, values, sizeof values, m.stream));
    memset(values, 0, sizeof values);
    moit_capture_end(&m);
    moit_mem_done(&m);
    assert_int_equal(host[0], 50);
    assert_int_equal(host[1], -60);
    assert_int_equal(host[2], (int64_t)7 << 40);
    assert_int_equal(host[3], 4);
}

/* No row that has not run on hardware is chosen unless it is named, and a CPU row is never chosen for a GPU context. */
static void test_choice(void **state)
{
    NEED_GPU();
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    moi_plan *plan;
    d.rowwise = MOI_FORMAT_MXFP8, d.max_rows = 4, d.cols = 64;
    moi_status status = moi_quantize_plan_create(&plan, moit_gpu(), &d);
    if (status) {
        assert_int_equal(status, MOI_ERR_UNSUPPORTED);
        assert_non_null(strstr(moi_last_error(), "never ran on real hardware"));
    } else {
        moi_row_info info = { 0 };
        for (int i = 0; i < moi_row_count() && !moi_row_get(i, &info); i++)
            if (!strcmp(info.name, moi_plan_row(plan))) break;
        assert_int_equal(info.backend, MOI_BACKEND_CUDA);
        assert_false(info.is_unverified);
        moi_plan_free(plan);
    }
    d.row = "quantize_ref";
    moit_refused(moi_quantize_plan_create(&plan, moit_gpu(), &d), MOI_ERR_UNSUPPORTED, "belongs to another back end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context), cmocka_unit_test(test_joins_current), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_put_in_capture), cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
