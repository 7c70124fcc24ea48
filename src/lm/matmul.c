/* SPDX-License-Identifier: Apache-2.0 */
#include "matmul.h"

#include "status.h"

static moi_status plan(moi_plan **out, moi_ctx *ctx, moi_dtype x, const moi_format *w, int64_t m, int64_t n, int64_t k)
{
    moi_gemm_desc d = MOI_GEMM_DESC_INIT;
    d.a = x == MOI_F32 ? MOI_FORMAT_F32 : MOI_FORMAT_BF16;
    d.b = *w;
    d.max_m = m, d.n = n, d.k = k;
    return moi_gemm_plan_create(out, ctx, &d);
}

moi_status moii_matmul_create(moii_matmul *p, moi_ctx *ctx, moi_dtype x, const moi_format *w, int64_t max_m, int64_t n, int64_t k)
{
    MOII_TRY(plan(&p->few, ctx, x, w, moii_min(max_m, MOII_FEW), n, k));
    return max_m > MOII_FEW ? plan(&p->many, ctx, x, w, max_m, n, k) : MOI_OK;
}

void moii_matmul_free(moii_matmul *p) { moi_plan_free(p->few), moi_plan_free(p->many); }

int64_t moii_matmul_workspace(const moii_matmul *p) { return moii_max(moi_plan_workspace_bytes(p->few), moi_plan_workspace_bytes(p->many)); }

moi_status moii_matmul_run(const moii_matmul *p, int64_t m, const void *x, moi_operand w, float *y, int64_t ldy, moii_space space)
{
    moi_gemm_args a = { .size = sizeof a, .m = m, .a = { x, NULL, 0 }, .b = w, .d = y, .ldd = ldy };
    return moi_gemm_run(m > MOII_FEW ? p->many : p->few, &a, space.at, space.bytes, NULL);
}
