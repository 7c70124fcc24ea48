/* SPDX-License-Identifier: Apache-2.0
 * matmul.c: converts W to FP32 before the product. */
#include "matmul.h"

#include "num.h"
#include "status.h"

moi_status moii_matmul_create(moii_matmul *p, moi_ctx *ctx, moi_dtype x, const moi_format *w, int64_t max_m, int64_t n, int64_t k)
{
    moi_gemm_desc d = MOI_GEMM_DESC_INIT;
    d.a = d.b = MOI_FORMAT_F32;
    d.max_m = max_m, d.n = n, d.k = k;
    p->x = x, p->w = *w, p->max_m = max_m, p->n = n, p->k = k;
    return moi_gemm_plan_create(&p->many, ctx, &d);
}

void moii_matmul_free(moii_matmul *p) { moi_plan_free(p->few), moi_plan_free(p->many); }

int64_t moii_matmul_workspace(const moii_matmul *p)
{
    return moi_plan_workspace_bytes(p->many) + moii_round_up(p->n * p->k * 4, 128) + moii_round_up(p->max_m * p->k * 4, 128);
}

static float scale_of(const moii_matmul *p, const moi_operand *w, int64_t r, int64_t c)
{
    const int64_t block = moi_format_block(&p->w), blocks = moii_ceil_div(p->k, block ? block : 1);
    if (!block) return 1.0f;
    if (p->w.recipe == MOI_RECIPE_MX32) return moii_e8m0_decode(((const uint8_t *)w->scale)[r * blocks + c / block]);
    return ((const float *)w->scale)[(p->w.block == MOI_BLOCK_SQUARE ? r / 128 : r) * blocks + c / block];
}

moi_status moii_matmul_run(const moii_matmul *p, int64_t m, const void *x, moi_operand w, float *y, int64_t ldy, moii_space space)
{
    if (p->x == MOI_F32 && p->w.recipe == MOI_RECIPE_F32 && moii_aligned(w.data, MOII_ALIGN)) {
        moi_gemm_args direct = { .size = sizeof direct, .m = m, .a = { x, NULL, 0 }, .b = w, .d = y, .ldd = ldy };
        return moi_gemm_run(p->many, &direct, space.at, space.bytes, NULL);
    }
    float *b = (float *)(void *)space.at, *a = b + moii_round_up(p->n * p->k, 32);
    const int64_t used = (char *)(a + moii_round_up(p->max_m * p->k, 32)) - space.at;
    for (int64_t r = 0; r < p->n; r++) {
        const char *row = (const char *)w.data + r * moi_row_bytes(p->w.elem, p->k);
        for (int64_t c = 0; c < p->k; c++) b[r * p->k + c] = moi_decode(p->w.elem, row, c) * scale_of(p, &w, r, c);
    }
    for (int64_t i = 0; i < m * p->k; i++) a[i] = p->x == MOI_F32 ? ((const float *)x)[i] : moii_bf16_decode(((const uint16_t *)x)[i]);
    moi_gemm_args g = { .size = sizeof g, .m = m, .a = { a, NULL, 0 }, .b = { b, NULL, 0 }, .d = y, .ldd = ldy };
    return moi_gemm_run(p->many, &g, space.at + used, space.bytes - used, NULL);
}
