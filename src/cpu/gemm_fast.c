/* SPDX-License-Identifier: Apache-2.0
 * gemm_fast.c: D = A B^T in tiles, one thread per tile. */
#include <omp.h>

#include "product_fast.h"

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_gemm_desc *d = desc;
    (void)ctx;
    *why = "n, k and max_m must be below 2^31";
    return d->max_m <= INT32_MAX && d->n <= INT32_MAX && d->k <= INT32_MAX;
}

static moi_status plan_(moi_plan *plan)
{
    const moi_gemm_desc *d = &plan->desc.gemm;
    plan->workspace_bytes = moii_tiling_of(&d->a, &d->b, d->out, d->max_m, d->n, d->k).scratch_bytes * plan->ctx->threads;
    return MOI_OK;
}

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_gemm_desc *d = &plan->desc.gemm;
    const moi_gemm_args *args = args_;
    (void)stream;
    MOII_TRY(moii_product_fits("gemm run", &args->a, &args->b, args->ldd));
    int64_t m = args->m, n = d->n, ldd = args->ldd ? args->ldd : n;
    moii_view a = moii_view_of(&d->a, d->a_order, &args->a, m, d->k, 0);
    moii_view b = moii_view_of(&d->b, d->b_order, &args->b, n, d->k, 0);
    moii_tiling t = moii_tiling_of(&d->a, &d->b, d->out, d->max_m, n, d->k);
    moii_cut cut = moii_cut_of(&t, m, n, plan->ctx->threads);
#pragma omp parallel num_threads(plan->ctx->threads)
    {
        moii_blas_alone();
        char *scratch = (char *)workspace + omp_get_thread_num() * t.scratch_bytes;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < cut.m_parts * cut.n_parts; i++) {
            int64_t p = i / cut.n_parts, q = i % cut.n_parts;
            moii_range r = { moii_part(m, cut.m_parts, p), moii_part(m, cut.m_parts, p + 1), moii_part(n, cut.n_parts, q),
                             moii_part(n, cut.n_parts, q + 1), 0, d->k };
            char *tile = (char *)args->d + moi_row_bytes(d->out, r.i0 * ldd + r.j0);
            moii_product_tile(plan->ctx, &t, &a, &b, r, d->out, d->accumulate, tile, ldd, scratch);
        }
    }
    return MOI_OK;
}

const moii_impl moii_impl_gemm_fast = {
    .name = "gemm_fast", .op = MOII_OP_GEMM, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_, .run = run,
};
