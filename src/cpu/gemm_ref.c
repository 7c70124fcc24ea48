/* SPDX-License-Identifier: Apache-2.0
 * gemm_ref.c: D = A B^T, strict. */
#include "product.h"

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_gemm_desc *d = &plan->desc.gemm;
    const moi_gemm_args *args = args_;
    (void)workspace, (void)stream;
    moii_view a = moii_view_of(&d->a, d->a_order, &args->a, args->m, d->k, 0);
    moii_view b = moii_view_of(&d->b, d->b_order, &args->b, d->n, d->k, 0);
    moii_range all = { 0, args->m, 0, d->n, 0, d->k };
    moii_product_strict(&a, &b, all, d->out, d->accumulate, args->d, args->ldd ? args->ldd : d->n);
    return MOI_OK;
}

const moii_impl moii_impl_gemm_ref = {
    .name = "gemm_ref", .op = MOII_OP_GEMM, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .is_reference = true, .run = run,
};
