/* SPDX-License-Identifier: Apache-2.0
 * gemm_few.c: products of a few plain rows of A with B in any format: each row of B is read once, converted on the fly and
 * multiplied with all rows of A.  What decoding spends its time on; bound by reading B. */
#include <omp.h>

#include "dots.h"

enum { FEW = 8, ROWS = 16 };

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_gemm_desc *d = desc;
    (void)ctx;
    *why = "a must be plain, b K-major, max_m at most 8";
    return moii_format_plain(&d->a) && d->b_order == MOI_K_MAJOR && d->max_m <= FEW;
}

typedef struct space { moii_vectors a; float *scales; int64_t scales_room, bytes; } space;

static space lay_out(const moi_plan *plan, char *base)
{
    const moi_gemm_desc *d = &plan->desc.gemm;
    space s = { .scales_room = moii_dots_scales(d->k) };
    s.a = moii_vectors_carve(base, &s.bytes, &moii_cpu_isa(plan->ctx)->dot[d->b.elem], d->max_m, d->k);
    s.scales = moii_carve(base, &s.bytes, plan->ctx->threads * s.scales_room * 4);
    return s;
}

static moi_status plan_(moi_plan *plan)
{
    plan->workspace_bytes = lay_out(plan, NULL).bytes;
    return MOI_OK;
}

static void widen(const moi_gemm_desc *d, const moi_operand *a, int64_t m, int64_t i, const moii_vectors *v)
{
    bool turned = d->a_order == MOI_MN_MAJOR;
    int64_t ld = moii_ld_bytes(&d->a, a->ld, turned ? m : d->k);
    float *out = moii_vectors_plain(v, i);
    for (int64_t l = 0; l < d->k; l++) out[l] = moi_decode(d->a.elem, (const char *)a->data + (turned ? l : i) * ld, turned ? i : l);
    moii_vectors_place(v, i);
}

static void put(const moi_gemm_desc *d, void *out, int64_t at, double sum)
{
    float *f = (float *)out + at;
    if (d->out == MOI_F32) *f = (float)(d->accumulate ? (double)*f + sum : sum);
    else ((uint16_t *)out)[at] = (uint16_t)moii_bf16_encode((float)sum);
}

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_gemm_desc *d = &plan->desc.gemm;
    const moi_gemm_args *args = args_;
    const moii_isa *isa = moii_cpu_isa(plan->ctx);
    (void)stream;
    space s = lay_out(plan, workspace);
    moii_experts b = moii_experts_of(&d->b, &args->b, d->n, d->k);
    int64_t m = args->m, ldd = args->ldd ? args->ldd : d->n, parts = moii_ceil_div(d->n, ROWS);
    int threads = moii_dots_threads(plan->ctx, d->n * d->k);
    int64_t share = moii_dots_share(parts, threads);
#pragma omp parallel num_threads(threads)
    {
        float *scales = s.scales + omp_get_thread_num() * s.scales_room;
        double sums[ROWS * FEW];
#pragma omp for schedule(static)
        for (int64_t i = 0; i < m; i++) widen(d, &args->a, m, i, &s.a);
#pragma omp for schedule(dynamic, share)
        for (int64_t part = 0; part < parts; part++) {
            int64_t first = part * ROWS, rows = moii_min(ROWS, d->n - first);
            moii_dots(isa, &b, (moii_rows){ 0, first, rows }, &s.a, 0, m, scales, sums);
            for (int64_t i = 0; i < m; i++)
                for (int64_t r = 0; r < rows; r++) put(d, args->d, i * ldd + first + r, sums[r * m + i]);
        }
    }
    return MOI_OK;
}

const moii_impl moii_impl_gemm_few = {
    .name = "gemm_few", .op = MOII_OP_GEMM, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_, .run = run,
};
