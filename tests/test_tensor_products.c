/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_products.c: the products on Hopper's tensor cores, over random shapes, formats and groups, against sums in double; a few of
 * them also on the CPU's rows, so that the test itself is tested where there is no GPU. */
#include "support_gpu.h"
#include "support_jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Small sizes mostly, now and then one that several tiles cover. */
static int64_t size(moit_rng *rng, int64_t step)
{
    static const int64_t most[] = { 3, 20, 70, 140, 300 };
    return (1 + moit_under(rng, most[moit_under(rng, 5)])) * step;
}

static void choose(moit_job *j, int grouping, moit_rng *rng)
{
    *j = (moit_job){ .grouping = grouping };
    int pair = (int)moit_under(rng, grouping == MOI_GROUP_K ? MOIT_SAME_PAIRS : MOIT_ALL_PAIRS);
    j->a.format = moit_pairs[pair].a, j->b.format = moit_pairs[pair].b;
    if (grouping == MOI_GROUP_K && j->b.format.block == MOI_BLOCK_SQUARE) j->b.format.block = MOI_BLOCK_VECTOR;
    bool plain = j->b.format.recipe == MOI_RECIPE_BF16, alone = !plain && j->a.format.recipe == MOI_RECIPE_BF16;
    if (!plain) {
        int layouts = j->b.format.recipe == MOI_RECIPE_MX32 ? 3 : 2;
        static const moi_layout kinds[] = { MOI_LAYOUT_ROW, MOI_LAYOUT_COL, MOI_LAYOUT_TILED };
        j->a.format.layout = kinds[moit_under(rng, layouts)];
        j->b.format.layout = j->b.format.block == MOI_BLOCK_SQUARE ? kinds[moit_under(rng, 2)] : kinds[moit_under(rng, layouts)];
        if (grouping == MOI_GROUP_K && j->a.format.layout == MOI_LAYOUT_TILED) j->a.format.layout = MOI_LAYOUT_ROW;
        if (grouping == MOI_GROUP_K && j->b.format.layout == MOI_LAYOUT_TILED) j->b.format.layout = MOI_LAYOUT_COL;
    }
    j->out = moit_under(rng, 3) ? MOI_F32 : MOI_BF16;
    j->accumulate = j->out == MOI_F32 && moit_under(rng, 2);
    j->m = size(rng, 1), j->n = size(rng, 1), j->k = moit_under(rng, 16) ? size(rng, 16) : 0;
    if (plain) {
        j->a.order = (moi_order)(grouping == MOI_GROUP_K || (grouping == MOIT_DENSE && moit_under(rng, 2)));
        j->b.order = (moi_order)(grouping == MOI_GROUP_K || moit_under(rng, 2));
        if (j->a.order) j->m = (j->m + 7) / 8 * 8;
        if (j->b.order) j->n = (j->n + 7) / 8 * 8;
        j->a.pad = 8 * moit_under(rng, 3), j->b.pad = 8 * moit_under(rng, 3);
    } else j->a.pad = 16 * moit_under(rng, 3), j->b.pad = 16 * moit_under(rng, 3);
    if (alone && moit_under(rng, 2)) j->k = 128 * moit_under(rng, 6); /* as mixed_sm90 takes it */
    if (j->b.format.elem == MOI_E2M1) j->k = (j->k + 31) / 32 * 32, j->b.pad *= 2;
    if (alone && grouping == MOIT_DENSE && moit_under(rng, 2)) j->a.order = MOI_MN_MAJOR, j->m = (j->m + 7) / 8 * 8;
    if (j->a.format.recipe == MOI_RECIPE_MX32) j->mx = (moi_mx_scales)moit_under(rng, 3);
    if (grouping == MOIT_DENSE && j->a.format.recipe == MOI_RECIPE_MX32 && !moit_under(rng, 16)) /* so many rows are widened by the product itself */
        j->mx = MOI_MX_FREE, j->m = 16384 + moit_under(rng, 300), j->n = 1 + moit_under(rng, 20), j->k = 16 * (1 + moit_under(rng, 40));
    if (!moit_under(rng, 3)) j->sm_limit = 1 + (int32_t)moit_under(rng, 40);
    j->overlap = moit_under(rng, 2);
    if (grouping == MOIT_DENSE) return;
    j->groups = 1 + moit_under(rng, MOIT_GROUPS);
    int kind = (int)moit_under(rng, 4); /* uniform, all to one, skewed, many empty */
    for (int g = 0; g < j->groups; g++) {
        if (kind == 3 && !j->k) kind = 4; /* all empty */
        int64_t n = moit_under(rng, 90);
        if (kind == 4 || (kind == 3 && moit_under(rng, 2))) n = 0;
        else if (kind == 1) n = g == j->groups / 2 ? 150 : 0;
        else if (kind == 2) n = 200 / (1 + g * g);
        j->offsets[g + 1] = j->offsets[g] + n;
        j->counts[g] = n;
    }
    j->rows = j->offsets[j->groups] + moit_under(rng, 3);
    if (grouping == MOI_GROUP_M && moit_under(rng, 2)) moit_job_gather(j, rng, 1 + moit_under(rng, 200));
    if (grouping == MOI_GROUP_M && moit_under(rng, 2)) moit_job_weigh(j, rng);
    if (grouping == MOI_GROUP_M && !moit_under(rng, 2)) moit_job_scatter(j, rng);
    if (moit_under(rng, 2)) j->expected = 1 + moit_under(rng, 2000);
    if (grouping == MOI_GROUP_MASKED) j->rows = 1 + moit_under(rng, 3) * 70;
    for (int g = 0; g < j->groups && grouping == MOI_GROUP_MASKED; g++)
        if (j->counts[g] > j->rows) j->counts[g] = j->rows;
}

/* One random product; poison: with a NaN in it, which reaches exactly what it must. */
static double one(bool gpu, int grouping, uint64_t seed, bool poison)
{
    moit_rng rng = moit_seed("tensor products", seed);
    moit_job j;
    choose(&j, grouping, &rng);
    j.gpu = gpu;
    moit_job_operands(&j, &rng);
    moit_job_plan(&j, gpu ? moit_gpu() : moit_ctx(0));
    moit_job_fill(&j, &rng);
    int64_t depth = grouping == MOI_GROUP_K ? j.offsets[j.groups] : j.k;
    if (poison && j.a.rows && depth) { /* masked: of the first group */
        moit_matrix *x = moit_under(&rng, 2) ? &j.a : &j.b;
        moit_matrix_set(x, moit_under(&rng, x->rows), moit_under(&rng, depth), NAN);
        moit_matrix_read(x);
    }
    moit_job_run(&j);
    double worst = moit_job_check(&j, seed);
    moit_job_close(&j);
    return worst;
}

static int sweep_length(void) /* compute-sanitizer is slow: MOIT_GUARDS=0 goes with it */
{
    const char *text = getenv("MOIT_GUARDS");
    return text && !strcmp(text, "0") ? 12 : 700;
}

static void sweep(bool gpu, int grouping, bool poison, int count)
{
    if (gpu && !moit_hopper()) skip();
    double worst = 0.0;
    int parts, part = moit_part(&parts);
    for (int i = part; i < count; i += parts) {
        uint64_t seed = (uint64_t)(i * 4 + (grouping == MOI_GROUP_MASKED ? 3 : grouping + 1) + (poison ? 1 << 20 : 0));
        worst = fmax(worst, one(gpu, grouping, seed, poison));
    }
    printf("%d products: at most %.3f of the bound\n", (count - part + parts - 1) / parts, worst);
}

/* P:gemm.bound, P:ggemm.bound on the tensor cores; captured and replayed runs give the same bits (moit_mem_run). */
static void test_dense(void **state) { (void)state; sweep(true, MOIT_DENSE, false, sweep_length()); }
static void test_rows(void **state) { (void)state; sweep(true, MOI_GROUP_M, false, sweep_length()); }
static void test_masked(void **state) { (void)state; sweep(true, MOI_GROUP_MASKED, false, sweep_length()); }
static void test_depth(void **state) { (void)state; sweep(true, MOI_GROUP_K, false, sweep_length()); }
/* P:gemm.nan, P:ggemm.nan */
static void test_nan(void **state)
{
    (void)state;
    for (int grouping = MOIT_DENSE; grouping <= MOI_GROUP_MASKED; grouping++) sweep(true, grouping, true, sweep_length() / 10);
}

/* Fewer multiprocessors, and a start beside what the stream holds: the same bits, where the tile adds up in the same order (BF16 has one). */
static void test_limit(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    int parts, part = moit_part(&parts);
    for (int i = part; i < 12; i += parts) {
        moit_rng rng = moit_seed("tensor limit", (uint64_t)i);
        int grouping = i % 4 - 1;
        moit_job j = { .gpu = true };
        do moit_job_free_lists(&j), choose(&j, grouping, &rng);
        while (j.b.format.recipe != MOI_RECIPE_BF16 || j.accumulate || (grouping == MOIT_DENSE && j.m <= 256)); /* without parts */
        j.gpu = true, j.sm_limit = 0, j.overlap = false;
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        moit_job_run(&j);
        int64_t bytes = j.lines * moi_row_bytes(j.out, j.n);
        void *first = j.d;
        free(j.before);
        moi_plan_free(j.plan);
        j.sm_limit = 1 + i * 3, j.overlap = true;
        moit_job_plan(&j, moit_gpu());
        moit_job_run(&j);
        assert_memory_equal(first, j.d, (size_t)bytes);
        moit_free(first);
        moit_job_close(&j);
    }
}

/* The CPU's rows keep a tighter bound than the one asked for here. */
static void test_cpu(void **state)
{
    (void)state;
    for (int grouping = MOIT_DENSE; grouping <= MOI_GROUP_MASKED; grouping++) sweep(false, grouping, false, 60), sweep(false, grouping, true, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu), cmocka_unit_test(test_limit), cmocka_unit_test(test_dense), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_depth), cmocka_unit_test(test_masked), cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
