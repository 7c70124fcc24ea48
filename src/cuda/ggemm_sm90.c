/* SPDX-License-Identifier: Apache-2.0
 * ggemm_sm90.c: launches ggemm_sm90.cu: grouped products of BF16 and 8-bit operands on Hopper's tensor cores. */
#include "format.h"
#include "tensor_product.h"

static moii_tensor_product product_of(const moi_ggemm_desc *d)
{
    static const int groupings[] = { [MOI_GROUP_M] = PRODUCT_ROWS, [MOI_GROUP_K] = PRODUCT_DEPTH, [MOI_GROUP_MASKED] = PRODUCT_MASKED };
    bool rows = d->grouping != MOI_GROUP_K;
    return (moii_tensor_product){ .grouping = groupings[d->grouping], .a = &d->a, .b = &d->b, .a_turned = d->a_order == MOI_MN_MAJOR,
                           .b_turned = d->b_order == MOI_MN_MAJOR, .accumulate = d->accumulate, .mx = d->mx, .groups = d->groups,
                           .m = rows ? d->max_rows : d->m, .n = d->n, .k = rows ? d->k : d->max_rows,
                           .expected = d->expected_rows, .sm_limit = d->sm_limit, .overlap = d->overlap,
                           .gather_rows = d->gather_rows,
                           .scatter_rows = d->scatter_rows, .weighted = d->weighted };
}

static const moi_format vectors = MOII_TENSOR_ACT, blocks = MOII_TENSOR_MXFP8, plain = MOII_TENSOR_BF16;

/* rows of all of 8 groups, or of each for GROUP_MASKED */
static const struct { moi_grouping grouping; moi_format a, b; moi_dtype out; int64_t rows, m, n, k, gather, scatter; const moi_format *act;
                      moi_mx_scales mx; } ahead[] = {
    { MOI_GROUP_M, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 32768, 0, 4096, 7168, 0, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 256, 0, 4096, 7168, 0, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_BF16, MOII_TENSOR_BF16, MOI_BF16, 32768, 0, 4096, 7168, 0, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 32768, 0, 4096, 7168, 8192, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 32768, 0, 7168, 2048, 0, 32768, NULL, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_BF16, MOII_TENSOR_BF16, MOI_F32, 256, 0, 7168, 2048, 0, 256, NULL, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 32768, 0, 4096, 7168, 8192, 0, &vectors, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 256, 0, 4096, 7168, 0, 0, &blocks, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_BF16, MOII_TENSOR_BF16, MOI_BF16, 32768, 0, 4096, 7168, 0, 0, &blocks, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_BF16, MOII_TENSOR_BF16, MOI_BF16, 32768, 0, 4096, 7168, 8192, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_BF16, MOII_TENSOR_BF16, MOI_BF16, 32768, 0, 4096, 7168, 8192, 0, &plain, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_BF16, MOII_TENSOR_BF16, MOI_BF16, 256, 0, 4096, 7168, 8192, 0, &plain, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 32768, 0, 4096, 7168, 8192, 0, &plain, MOI_MX_FREE },
    { MOI_GROUP_MASKED, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 4096, 0, 4096, 7168, 0, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_MASKED, MOII_TENSOR_ACT, MOII_TENSOR_WEIGHT, MOI_BF16, 256, 0, 4096, 7168, 0, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_K, MOII_TENSOR_ACT, MOII_TENSOR_ACT, MOI_F32, 32768, 4096, 7168, 0, 0, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_K, MOII_TENSOR_BF16, MOII_TENSOR_BF16, MOI_F32, 32768, 4096, 7168, 0, 0, 0, NULL, MOI_MX_FREE },
    { MOI_GROUP_M, MOII_TENSOR_MXFP8, MOII_TENSOR_MXFP8, MOI_BF16, 32768, 0, 4096, 7168, 0, 0, NULL, MOI_MX_PER_ROW },
    { MOI_GROUP_K, MOII_TENSOR_MXFP8, MOII_TENSOR_MXFP8, MOI_F32, 32768, 4096, 7168, 0, 0, 0, NULL, MOI_MX_PER_ROW },
    { MOI_GROUP_K, MOII_TENSOR_MXFP8_COLS, MOII_TENSOR_MXFP8_COLS, MOI_F32, 32768, 4096, 7168, 0, 0, 0, NULL, MOI_MX_PER_128 },
    { MOI_GROUP_K, MOII_TENSOR_MXFP8, MOII_TENSOR_MXFP8, MOI_F32, 8192, 4096, 7168, 0, 0, 0, NULL, MOI_MX_PER_ROW },
};
enum { AHEAD = sizeof ahead / sizeof *ahead };

static void variant(int i, char defines[MOII_DEFINES])
{
    moi_ggemm_desc d = { .grouping = ahead[i].grouping, .a = ahead[i].a, .b = ahead[i].b, .out = ahead[i].out, .groups = 8, .max_rows = ahead[i].rows,
                         .m = ahead[i].m, .n = ahead[i].n, .k = ahead[i].k, .accumulate = ahead[i].grouping == MOI_GROUP_K, .gather_rows = ahead[i].gather,
                         .scatter_rows = ahead[i].scatter, .weighted = ahead[i].scatter > 0, .mx = ahead[i].mx };
    if (d.grouping == MOI_GROUP_K && d.a.recipe == MOI_RECIPE_BF16) d.a_order = d.b_order = MOI_MN_MAJOR;
    moii_tensor_product p = product_of(&d);
    p.act = ahead[i].act, p.swiglu = p.act != NULL;
    moii_tensor_variant(&p, d.out, defines);
}

static const moii_kernel kernel = { .stem = "ggemm_sm90", .archs = "sm_90a", .registers = 255, .variants = AHEAD, .variant = variant };

/* False, and why, if it does not fit. */
static bool describe(const moi_ctx *ctx, const moi_ggemm_desc *d, moii_tensor_product *p, const char **why)
{
    *p = product_of(d);
    if (!moii_tensor_fits(p, d->out, why)) return false;
    p->sms = moii_tensor_sms(p, moii_gpu_of(ctx)->sms);
    if (d->swiglu && !d->rowwise_mx && moii_tensor_activates(p, &d->rowwise)) p->swiglu = true, p->act = &d->rowwise;
    return true;
}

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_ggemm_desc *d = desc;
    moii_tensor_product p;
    return describe(ctx, d, &p, why) && moii_gpu_fits(ctx, &kernel, why);
}

static moi_status plan_it(moi_plan *plan)
{
    const char *why;
    moii_tensor_product p;
    describe(plan->ctx, &plan->desc.ggemm, &p, &why);
    MOII_TRY(moii_tensor_plan_make(plan, &kernel, &p));
    moii_tensor_plan *s = plan->state;
    return plan->desc.ggemm.swiglu && !p.swiglu ? moii_then_swiglu_plan(&s->then, plan) : MOI_OK;
}

static moi_status multiply(const moi_plan *plan, const moi_ggemm_args *in, void *workspace, moi_stream stream)
{
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    bool rows = d->grouping != MOI_GROUP_K;
    moii_tensor_run r = { .a = &in->a, .b = &in->b, .d = in->d, .ldd = in->ldd, .m = rows ? in->rows : d->m, .k = rows ? d->k : in->rows,
                           .offsets = d->grouping == MOI_GROUP_MASKED ? in->counts : in->offsets,
                           .rows_of_a = in->rows_of_a, .a_rows = in->a_rows, .rows_of_d = in->rows_of_d, .d_rows = in->d_rows,
                           .row_weight = in->row_weight, .act = { in->rowwise.data, in->rowwise.scale, in->rowwise.ld } };
    return moii_tensor_launch(plan, "ggemm run", &r, workspace, stream);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moii_tensor_plan *s = plan->state;
    if (!s->then.plan) return multiply(plan, args, workspace, stream);
    moi_ggemm_args product = moii_then_swiglu_product(&s->then, plan, args, workspace);
    MOII_TRY(multiply(plan, &product, workspace, stream));
    return moii_then_swiglu_run(&s->then, args, workspace, stream);
}

static void explain(const moi_ctx *ctx, const void *desc, const moi_explain_config *to)
{
    const moi_ggemm_desc *d = desc;
    const char *why;
    moii_tensor_product p;
    describe(ctx, d, &p, &why);
    moii_tensor_explain(ctx, &p, to);
}

static const moii_kernel *const kernels[] = {
    &kernel, &moii_thin_kernel, &moii_mixed_kernel, &moii_halves_kernel, &moii_gather_kernel, &moii_half_rows_kernel, &moii_unpack_kernel, NULL,
};

const moii_impl moii_impl_ggemm_sm90 = {
    .name = "ggemm_sm90", .op = MOII_OP_GGEMM, .backend = MOI_BACKEND_CUDA,
    .recipes = MOII_RECIPE_BIT(MOI_RECIPE_BF16) | MOII_RECIPE_BIT(MOI_RECIPE_MX32) | MOII_RECIPE_BIT(MOI_RECIPE_BLK128),
    .supports = supports, .plan = plan_it, .run = run, .explain = explain, .kernels = kernels,
};
