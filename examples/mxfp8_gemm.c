/* SPDX-License-Identifier: Apache-2.0
 * mxfp8_gemm.c: quantise two matrices to MXFP8, multiply them, and compare with the FP32 product.
 * Build: cc examples/mxfp8_gemm.c $(pkg-config --cflags --libs moiety) -lm */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "moiety.h"

enum { M = 256, N = 192, K = 1024 };

static void check(moi_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", moi_status_name(status), moi_last_error());
    exit(1);
}

static void *buffer(moi_ctx *ctx, int64_t bytes)
{
    void *p;
    check(moi_buf_alloc(ctx, bytes, &p));
    return p;
}

/* Uniform numbers in [-1, 1). */
static void fill(float *x, int n)
{
    static uint32_t state = 1;
    for (int i = 0; i < n; i++) x[i] = (float)(int32_t)(state = state * 1664525u + 1013904223u) * 0x1p-31f;
}

/* x [rows, K] FP32 -> E4M3 codes and one E8M0 scale per 32 of a row */
static moi_operand quantize(moi_ctx *ctx, const float *x, int64_t rows)
{
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.rowwise = MOI_FORMAT_MXFP8;
    d.max_rows = rows;
    d.cols = K;
    moi_plan *plan;
    check(moi_quantize_plan_create(&plan, ctx, &d));
    moi_quantize_args a = { .size = sizeof a, .rows = rows, .in = { x, NULL, 0 } };
    a.rowwise.data = buffer(ctx, rows * moi_row_bytes(MOI_E4M3, K));
    a.rowwise.scale = buffer(ctx, moi_scale_bytes(&d.rowwise, rows, K, 0));
    void *workspace = buffer(ctx, moi_plan_workspace_bytes(plan));
    check(moi_quantize_run(plan, &a, workspace, moi_plan_workspace_bytes(plan), NULL));
    moi_buf_free(ctx, workspace);
    moi_plan_free(plan);
    return (moi_operand){ a.rowwise.data, a.rowwise.scale, 0 };
}

static void multiply(moi_ctx *ctx, moi_format format, moi_operand x, moi_operand y, float *out)
{
    moi_gemm_desc d = MOI_GEMM_DESC_INIT;
    d.a = d.b = format;
    d.max_m = M;
    d.n = N;
    d.k = K;
    moi_plan *plan;
    check(moi_gemm_plan_create(&plan, ctx, &d));
    moi_gemm_args a = { .size = sizeof a, .m = M, .a = x, .b = y, .d = out };
    void *workspace = buffer(ctx, moi_plan_workspace_bytes(plan));
    check(moi_gemm_run(plan, &a, workspace, moi_plan_workspace_bytes(plan), NULL));
    printf("%-5s product by row %s\n", moi_recipe_name(format.recipe), moi_plan_row(plan));
    moi_buf_free(ctx, workspace);
    moi_plan_free(plan);
}

int main(void)
{
    moi_ctx *ctx;
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    config.backend = MOI_BACKEND_CPU; /* the buffers below are in host memory */
    check(moi_ctx_create(&ctx, &config));
    float *x = buffer(ctx, M * K * 4), *y = buffer(ctx, N * K * 4), *exact = buffer(ctx, M * N * 4), *got = buffer(ctx, M * N * 4);
    fill(x, M * K);
    fill(y, N * K);
    multiply(ctx, MOI_FORMAT_F32, (moi_operand){ x, NULL, 0 }, (moi_operand){ y, NULL, 0 }, exact);
    moi_operand qx = quantize(ctx, x, M), qy = quantize(ctx, y, N);
    multiply(ctx, MOI_FORMAT_MXFP8, qx, qy, got);
    double error = 0, norm = 0;
    for (int i = 0; i < M * N; i++) {
        error += ((double)got[i] - exact[i]) * ((double)got[i] - exact[i]);
        norm += (double)exact[i] * exact[i];
    }
    printf("relative error of the MXFP8 product: %.2f %%\n", 100 * sqrt(error / norm));
    return sqrt(error / norm) < 0.1 ? 0 : 1;
}
