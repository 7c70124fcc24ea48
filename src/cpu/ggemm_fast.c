/* SPDX-License-Identifier: Apache-2.0
 * ggemm_fast.c: the tiles of all groups form one list that the threads share, so many small groups and few large ones
 * keep them equally busy. */
#include <omp.h>
#include <stdlib.h>

#include "product_fast.h"
#include "then_swiglu.h"

static bool supports(const moi_ctx *ctx, const void *desc, const char **why)
{
    const moi_ggemm_desc *d = desc;
    (void)ctx;
    *why = "FP32 rows are read where they lie, so they must lie in order";
    if (d->gather_rows && d->a.recipe == MOI_RECIPE_F32) return false;
    *why = "max_rows, m, n, k and groups must be below 2^31";
    return d->max_rows <= INT32_MAX && d->m <= INT32_MAX && d->n <= INT32_MAX && d->k <= INT32_MAX && d->groups <= INT32_MAX;
}

static bool by_rows(const moi_ggemm_desc *d) { return d->grouping != MOI_GROUP_K; }

/* Where a group begins and ends in the ragged dimension; masked ones have a matrix each. */
static int64_t begin_of(const moi_ggemm_args *a, int64_t g) { return a->counts ? 0 : a->offsets[g]; }
static int64_t end_of(const moi_ggemm_args *a, int64_t g) { return a->counts ? a->counts[g] : a->offsets[g + 1]; }

/* Rows that go elsewhere, or times a weight, are made in scratch, where BF16 ones are made anyway. */
static bool placed(const moi_ggemm_desc *d) { return d->scatter_rows || d->weighted; }

static moii_tiling tiling_of(const moi_ggemm_desc *d)
{
    return moii_tiling_of(&d->a, &d->b, placed(d) ? MOI_BF16 : d->out, by_rows(d) ? d->max_rows : d->m, d->n, by_rows(d) ? d->k : d->max_rows);
}

/* The workspace begins with the number of tiles before each group. */
static int64_t list_bytes(const moi_ggemm_desc *d) { return moii_round_up((d->groups + 1) * 8, MOII_WORKSPACE_ALIGN); }

static void unplan(moi_plan *plan)
{
    moii_then_swiglu *then = plan->state;
    moi_plan_free(then->plan);
    free(then);
}

static moi_status plan_(moi_plan *plan)
{
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    plan->workspace_bytes = list_bytes(d) + tiling_of(d).scratch_bytes * plan->ctx->threads;
    if (!d->swiglu) return MOI_OK;
    moii_then_swiglu *then = calloc(1, sizeof *then);
    MOII_REQUIRE(then, MOI_ERR_NOMEM, "ggemm plan: no memory");
    plan->state = then, plan->unplan = unplan;
    return moii_then_swiglu_plan(then, plan);
}

typedef struct job {
    const moi_plan *plan;
    const moi_ggemm_desc *desc;
    const moi_ggemm_args *args;
    moii_tiling tiling;
    moii_view a, b;
    int64_t share; /* for how many threads each group is cut */
    int64_t *before;
} job;

static moii_cut group_cut(const job *j, int64_t g)
{
    int64_t size = end_of(j->args, g) - begin_of(j->args, g);
    return moii_cut_of(&j->tiling, by_rows(j->desc) ? size : j->desc->m, j->desc->n, j->share);
}

static int64_t group_of(const job *j, int64_t tile)
{
    int64_t lo = 0, hi = j->desc->groups; /* before[lo] <= tile < before[hi] */
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (j->before[mid] <= tile) lo = mid;
        else hi = mid;
    }
    return lo;
}

/* The range's sums, dense, go where they belong. */
static void place(const job *j, moii_range r, const float *sum, int64_t ldd)
{
    const moi_ggemm_desc *d = j->desc;
    int64_t n = r.j1 - r.j0;
    for (int64_t i = r.i0; i < r.i1; i++, sum += n) {
        int64_t line = d->scatter_rows ? j->args->rows_of_d[i] : i;
        if (line < 0) continue;
        float w = d->weighted ? j->args->row_weight[i] : 1.0f;
        char *at = (char *)j->args->d + moi_row_bytes(d->out, line * ldd + r.j0);
        for (int64_t c = 0; c < n; c++) {
            float v = w * sum[c];
            if (d->out == MOI_BF16) ((uint16_t *)(void *)at)[c] = (uint16_t)moii_bf16_encode(v);
            else ((float *)(void *)at)[c] = d->accumulate ? ((float *)(void *)at)[c] + v : v;
        }
    }
}

static void do_tile(const job *j, int64_t tile, void *scratch)
{
    const moi_ggemm_desc *d = j->desc;
    int64_t g = group_of(j, tile), from = begin_of(j->args, g), to = end_of(j->args, g);
    bool rows = by_rows(d);
    moii_cut cut = group_cut(j, g);
    int64_t p = (tile - j->before[g]) / cut.n_parts, q = (tile - j->before[g]) % cut.n_parts;
    int64_t m = rows ? to - from : d->m, ldd = j->args->ldd ? j->args->ldd : d->n;
    int64_t i0 = moii_part(m, cut.m_parts, p), i1 = moii_part(m, cut.m_parts, p + 1);
    moii_range r = { i0, i1, moii_part(d->n, cut.n_parts, q), moii_part(d->n, cut.n_parts, q + 1), rows ? 0 : from, rows ? d->k : to };
    moii_view a = j->a, b = j->b;
    if (rows) {
        r.i0 += from, r.i1 += from;
        b = moii_view_at(b, g, d->n, d->k);
        if (j->args->counts) a = moii_view_at(a, g, j->args->rows, d->k);
    } else {
        a = moii_view_group(a, g, from);
        b = moii_view_group(b, g, from);
    }
    if (placed(d)) {
        float *sum = (float *)(void *)((char *)scratch + j->tiling.scratch_bytes - j->tiling.d_bytes);
        moii_product_tile(j->plan->ctx, &j->tiling, &a, &b, r, MOI_F32, false, sum, r.j1 - r.j0, scratch);
        place(j, r, sum, ldd);
        return;
    }
    int64_t line = !rows ? g * d->m + r.i0 : j->args->counts ? g * j->args->rows + r.i0 : r.i0; /* of all rows of D */
    char *at = (char *)j->args->d + moi_row_bytes(d->out, line * ldd + r.j0);
    moii_product_tile(j->plan->ctx, &j->tiling, &a, &b, r, d->out, d->accumulate, at, ldd, scratch);
}

static void multiply(const moi_plan *plan, const moi_ggemm_args *args, void *workspace)
{
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    int64_t m = by_rows(d) ? args->rows : d->m, k = by_rows(d) ? d->k : args->rows, cuts = by_rows(d) ? 0 : d->groups, used = 0;
    job j = { .plan = plan, .desc = d, .args = args, .tiling = tiling_of(d), .before = workspace };
    j.a = moii_view_of(&d->a, d->a_order, &args->a, m, k, cuts);
    if (d->gather_rows) j.a = moii_view_of(&d->a, d->a_order, &args->a, args->a_rows, k, 0), j.a.rows_of = args->rows_of_a;
    j.b = moii_view_of(&d->b, d->b_order, &args->b, d->n, k, cuts);
    for (int64_t g = 0; g < d->groups; g++) used += end_of(args, g) > begin_of(args, g);
    j.share = used ? moii_ceil_div(plan->ctx->threads, used) : 1;
    j.before[0] = 0;
    for (int64_t g = 0; g < d->groups; g++) {
        moii_cut c = group_cut(&j, g);
        j.before[g + 1] = j.before[g] + c.m_parts * c.n_parts;
    }
    int64_t tiles = j.before[d->groups];
#pragma omp parallel num_threads(plan->ctx->threads)
    {
        moii_blas_alone();
        char *scratch = (char *)workspace + list_bytes(d) + omp_get_thread_num() * j.tiling.scratch_bytes;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tiles; i++) do_tile(&j, i, scratch);
    }
}

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_ggemm_args *args = args_;
    const moii_then_swiglu *then = plan->state;
    MOII_TRY(moii_product_fits("ggemm run", &args->a, &args->b, args->ldd));
    if (!then) {
        multiply(plan, args, workspace);
        return MOI_OK;
    }
    moi_ggemm_args product = moii_then_swiglu_product(then, plan, args, workspace);
    multiply(plan, &product, workspace);
    return moii_then_swiglu_run(then, args, workspace, stream);
}

const moii_impl moii_impl_ggemm_fast = {
    .name = "ggemm_fast", .op = MOII_OP_GGEMM, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .supports = supports, .plan = plan_, .run = run,
};
