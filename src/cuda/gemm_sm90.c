/* SPDX-License-Identifier: Apache-2.0
 * gemm_sm90.c: launches gemm_sm90.cu: dense products of BF16 and 8-bit operands on Hopper's tensor cores. */
#include "format.h"
#include "tensor_product.h"

static moii_tensor_product product_of(const moi_gemm_desc *d)
{
    return (moii_tensor_product){ .grouping = PRODUCT_DENSE, .a = &d->a, .b = &d->b, .a_turned = d->a_order == MOI_MN_MAJOR,
                           .b_turned = d->b_order == MOI_MN_MAJOR, .accumulate = d->accumulate, .mx = d->mx, .groups = 1, .m = d->max_m, .n = d->n, .k = d->k,
                           .sm_limit = d->sm_limit, .overlap = d->overlap };
}

/* ---- what is compiled ahead ---- */

/* The formats and sizes of models; others are compiled when first planned. */
static const struct { moi_format a, b; moi_dtype out; bool turned; moi_mx_scales mx; int64_t m, n, k; } ahead[] = {
    { MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, false, MOI_MX_FREE, 4096, 4096, 7168 },
    { MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, false, MOI_MX_FREE, 4096, 2112, 7168 },
    { MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_F32, false, MOI_MX_FREE, 64, 2112, 7168 },
    { MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, false, MOI_MX_FREE, 64, 24576, 1536 },
    { MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, false, MOI_MX_FREE, 128, 7168, 16384 },
    { MOII_TENSOR_ACT, MOII_TENSOR_ACT, MOI_F32, false, MOI_MX_FREE, 4096, 7168, 8192 },
    { MOII_TENSOR_MXFP8, MOII_TENSOR_MXFP8, MOI_BF16, false, MOI_MX_FREE, 64, 4096, 7168 },
    { MOII_TENSOR_MXFP8, MOII_TENSOR_MXFP8, MOI_BF16, false, MOI_MX_FREE, 8192, 8192, 8192 },
    { MOII_TENSOR_MXFP8, MOII_TENSOR_MXFP8, MOI_BF16, false, MOI_MX_FREE, 131072, 2048, 7168 },
    { MOII_TENSOR_MXFP8, MOII_TENSOR_MXFP8, MOI_BF16, false, MOI_MX_PER_128, 8192, 8192, 8192 },
    { MOII_TENSOR_MXFP8, MOII_TENSOR_MXFP8, MOI_BF16, false, MOI_MX_PER_ROW, 8192, 8192, 8192 },
    { MOII_TENSOR_BF16, MOII_TENSOR_BF16, MOI_F32, true, MOI_MX_FREE, 4096, 4096, 4096 },
};
enum { AHEAD = sizeof ahead / sizeof *ahead };

static void variant(int i, char defines[MOII_DEFINES])
{
    moi_gemm_desc d = { .a = ahead[i].a, .b = ahead[i].b, .out = ahead[i].out, .mx = ahead[i].mx, .max_m = ahead[i].m, .n = ahead[i].n, .k = ahead[i].k };
    if (ahead[i].turned) d.a_order = d.b_order = MOI_MN_MAJOR;
    moii_tensor_product p = product_of(&d);
    moii_tensor_variant(&p, d.out, defines);
}

static const moii_kernel kernel = { .stem = "gemm_sm90", .archs = "sm_90a", .registers = 255, .variants = AHEAD, .variant = variant };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_gemm_desc *d = desc;
    moii_tensor_product p = product_of(d);
    return moii_tensor_fits(&p, d->out, why) && moii_gpu_fits(ctx, &kernel, why);
}

static moi_status plan_it(moi_plan *plan)
{
    const char *why;
    moii_tensor_product p = product_of(&plan->desc.gemm);
    moii_tensor_fits(&p, plan->desc.gemm.out, &why);
    return moii_tensor_plan_make(plan, &kernel, &p);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_gemm_args *in = args;
    moii_tensor_run r = { .a = &in->a, .b = &in->b, .d = in->d, .ldd = in->ldd, .m = in->m, .k = plan->desc.gemm.k };
    return moii_tensor_launch(plan, "gemm run", &r, workspace, stream);
}

static void explain(const moi_ctx *ctx, const void *desc, const moi_explain_config *to)
{
    const moi_gemm_desc *d = desc;
    const char *why;
    moii_tensor_product p = product_of(d);
    moii_tensor_fits(&p, d->out, &why);
    moii_tensor_explain(ctx, &p, to);
}

static const moii_kernel *const kernels[] = { &kernel, &moii_widen_kernel, NULL };

const moii_impl moii_impl_gemm_sm90 = {
    .name = "gemm_sm90", .op = MOII_OP_GEMM, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_BF16) | MOII_RECIPE_BIT(MOI_RECIPE_MX32) | MOII_RECIPE_BIT(MOI_RECIPE_BLK128),
    .supports = supports, .plan = plan_it, .run = run, .explain = explain, .kernels = kernels,
};
