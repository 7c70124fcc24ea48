/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_tickets.c: products on Hopper's tensor cores whose clusters draw their tiles from a counter, as the plan must have chosen. */
#include "support_gpu.h"
#include "support_jobs.h"

#include <stdlib.h>

#include "../src/cuda/gpu.h"

enum { FEW = 4, ENOUGH = 132 }; /* multiprocessors: for tiles to be drawn, and for each to have but a few, in turn; on smaller devices drawn, too */

/* The job's plan runs on D as rng makes it, which is given, and is freed. */
static void *leaves(moit_job *j, moit_rng rng, bool checked)
{
    moit_job_fill(j, &rng);
    moit_job_run(j);
    if (checked) moit_job_check(j, 0);
    void *d = j->d;
    free(j->before);
    moi_plan_free(j->plan);
    return d;
}

/* Another plan, which the job has, leaves the same bits; all is closed. */
static void leaves_too(moit_job *j, moit_rng *rng, void *first)
{
    moit_job_fill(j, rng);
    moit_job_run(j);
    assert_memory_equal(first, j->d, (size_t)(j->lines * moit_job_line(j)));
    moit_free(first);
    moit_job_close(j);
}

enum { IS_BROAD = 1, UNCHECKED = 2, ALWAYS_DRAWN = 4 }; /* has broad tiles; bits alone are compared; however many clusters there are */

/* mixed_sm90 and halves_sm90 always draw. */
static bool draws(const moit_job *j) { return moit_job_chose(j, "DEAL=1") || moit_job_chose(j, "mixed_sm90") || moit_job_chose(j, "halves_sm90"); }

/* Tiles are drawn from a counter by few clusters, or dealt to many one after the other: the same bits, and right. */
static void both_orders(moit_job *j, moit_rng *rng, int flags)
{
    moit_job_operands(j, rng);
    moit_job_plan(j, moit_gpu());
    assert_true(draws(j));
    assert_true(!(flags & IS_BROAD) || moit_job_chose(j, "BROAD=1"));
    void *first = leaves(j, *rng, !(flags & UNCHECKED));
    j->sm_limit = ENOUGH;
    moit_job_plan(j, moit_gpu());
    bool drawn = moit_job_chose(j, "DEAL=1") || moit_job_chose(j, "BROAD=1");
    assert_false(drawn && !(flags & ALWAYS_DRAWN) && moii_gpu_of(moit_gpu())->sms >= ENOUGH);
    leaves_too(j, rng, first);
}

static void test_tickets(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const int64_t cuts[] = { 0, 700, 740, 740, 1260, 1390 };
    int parts, part = moit_part(&parts);
    for (int i = part; i < MOIT_PAIRS; i += parts) {
        moit_rng rng = moit_seed("tensor tickets", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = i % 2 ? MOI_F32 : MOI_BF16, .n = 520, .k = 256, .groups = 5, .rows = 1391, .sm_limit = FEW,
                       .overlap = i % 2 };
        j.a.format = moit_pairs[i].a, j.b.format = moit_pairs[i].b;
        if (j.b.format.recipe == MOI_RECIPE_MX32) j.b.format.layout = MOI_LAYOUT_COL; /* not in words: mixed_sm90 would do those */
        memcpy(j.offsets, cuts, sizeof cuts);
        both_orders(&j, &rng, i == 0 ? 0 : UNCHECKED);
    }
}

/* What is left of a group, if it is at most half a tile's rows, in tiles of twice the columns: one and two blocks of 64 rows, whole and not, behind
 * full tiles and alone, columns that end in either half, more stages than scales are fetched for at once. */
static void test_broad(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const int64_t cuts[][MOIT_GROUPS + 1] = { { 0, 100, 164, 292, 421, 421, 805, 806, 1190, 1253 }, { 0, 65, 192, 200, 264, 392, 392, 393, 500, 530 } };
    static const struct {
        int pair, cuts;
        int64_t n, k;
        moi_dtype out;
        moi_layout layout;
        moi_mx_scales mx;
        moi_order order;
        bool gathers, placed, accumulates;
    } cases[] = {
        { .pair = 0, .n = 1200, .k = 416, .out = MOI_BF16, .layout = MOI_LAYOUT_COL },
        { .pair = 0, .n = 776, .k = 1424, .out = MOI_F32, .layout = MOI_LAYOUT_COL, .accumulates = true },
        { .pair = 0, .cuts = 1, .n = 300, .k = 8336, .out = MOI_BF16, .layout = MOI_LAYOUT_COL },
        { .pair = 0, .n = 1032, .k = 640, .out = MOI_BF16, .layout = MOI_LAYOUT_COL, .placed = true },
        { .pair = 5, .n = 650, .k = 272, .out = MOI_BF16, .layout = MOI_LAYOUT_ROW, .gathers = true },
        { .pair = 0, .n = 1280, .k = 640, .out = MOI_F32, .layout = MOI_LAYOUT_COL, .gathers = true, .placed = true },
        { .pair = 4, .n = 1024, .k = 336, .out = MOI_BF16 },
        { .pair = 4, .n = 1032, .k = 208, .out = MOI_F32, .order = MOI_MN_MAJOR, .placed = true },
        { .pair = 4, .n = 640, .k = 80, .out = MOI_BF16, .gathers = true },
        { .pair = 2, .n = 1288, .k = 544, .out = MOI_BF16, .layout = MOI_LAYOUT_TILED, .mx = MOI_MX_PER_ROW },
    };
    int parts, part = moit_part(&parts), count = (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor broad", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = cases[i].out, .n = cases[i].n, .k = cases[i].k, .groups = MOIT_GROUPS, .mx = cases[i].mx,
                  .accumulate = cases[i].accumulates, .expected = 600 * MOIT_GROUPS, .sm_limit = FEW };
        j.a.format = moit_pairs[cases[i].pair].a, j.b.format = moit_pairs[cases[i].pair].b, j.b.order = cases[i].order;
        j.a.format.layout = j.b.format.layout = cases[i].layout;
        memcpy(j.offsets, cuts[cases[i].cuts], sizeof cuts[0]);
        j.rows = j.offsets[MOIT_GROUPS] + 2;
        if (cases[i].gathers) moit_job_gather(&j, &rng, 300);
        if (cases[i].placed) moit_job_weigh(&j, &rng), moit_job_scatter(&j, &rng);
        both_orders(&j, &rng, IS_BROAD);
    }
}

/* More groups than are looked at at a time: of few rows, of many, both among each other, none in the first or in the last 32, tiles of many bands,
 * a last one that is cut, tiles one below the other in a band. */
static void test_many_groups(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct {
        int pair;
        moi_mx_scales mx;
        int groups, every, from, upto, rows; /* groups that have many rows: each every-th of from ... upto; the others have few, or, every -1, none */
        int64_t n;
        moi_dtype out;
        bool accumulates, tall, drawn; /* tall: tiles of 256 rows, which can be broad and cut; drawn: however many clusters there are */
        int64_t k;              /* 0: 144 */
    } cases[] = {
        { .groups = 80, .every = 0, .n = 520, .out = MOI_BF16 },
        { .groups = 70, .every = 1, .upto = 70, .rows = 150, .n = 264, .out = MOI_BF16 },
        { .groups = 80, .every = 5, .upto = 80, .rows = 300, .n = 392, .out = MOI_BF16 },
        { .groups = 75, .every = -1, .from = 40, .upto = 70, .rows = 200, .n = 520, .out = MOI_BF16 },
        { .groups = 80, .every = -1, .from = 3, .upto = 20, .rows = 257, .n = 264, .out = MOI_F32, .accumulates = true },
        { .groups = 33, .every = 32, .upto = 33, .rows = 5000, .n = 136, .out = MOI_BF16 },
        { .pair = 4, .groups = 66, .every = 3, .from = 30, .upto = 66, .rows = 200, .n = 520, .out = MOI_BF16 },
        { .pair = 2, .mx = MOI_MX_PER_ROW, .groups = 40, .every = 13, .upto = 40, .rows = 300, .n = 264, .out = MOI_F32, .accumulates = true, .k = 1040 },
        { .pair = 2, .mx = MOI_MX_PER_128, .groups = 66, .every = 3, .upto = 66, .rows = 300, .n = 264, .out = MOI_BF16 },
        { .groups = 33, .every = 1, .upto = 33, .rows = 150, .n = 256, .out = MOI_BF16, .tall = true }, /* the last tile in two */
        { .groups = 34, .every = -1, .from = 33, .upto = 34, .rows = 600, .n = 2824, .out = MOI_BF16, .tall = true, .drawn = true }, /* two, a broad one */
    };
    int parts, part = moit_part(&parts), count = (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor many groups", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = cases[i].out, .n = cases[i].n, .k = cases[i].k ? cases[i].k : 144,
                       .groups = cases[i].groups, .mx = cases[i].mx, .accumulate = cases[i].accumulates, .sm_limit = FEW };
        j.a.format = moit_pairs[cases[i].pair].a, j.b.format = moit_pairs[cases[i].pair].b;
        if (cases[i].tall) j.expected = 600 * j.groups;
        if (cases[i].mx == MOI_MX_PER_128) j.a.format.layout = j.b.format.layout = MOI_LAYOUT_COL;
        for (int g = 0; g < j.groups; g++) {
            int every = abs(cases[i].every);
            bool many = every > 0 && g >= cases[i].from && g < cases[i].upto && (g - cases[i].from) % every == 0;
            int64_t few = cases[i].every < 0 ? 0 : moit_under(&rng, 60);
            j.offsets[g + 1] = j.offsets[g] + (many ? cases[i].rows - moit_under(&rng, 20) : few);
        }
        j.rows = j.offsets[j.groups] + 3;
        both_orders(&j, &rng, (cases[i].tall ? IS_BROAD : 0) | (cases[i].drawn ? ALWAYS_DRAWN : 0));
    }
}

/* One matrix, and reductions of groups: whole tiles and the last ones cut, a strip, clusters, scales that come by copies and by threads, that the tensor cores
 * multiply, of codes that become BF16; a group without values, chains of a few stages and of many. */
static void test_others(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct {
        int pair, grouping;
        int64_t m, n, k; /* k: of groups, in all */
        moi_dtype out;
        bool accumulates;
        moi_layout layout;
        moi_mx_scales mx;
        moi_order order; /* of both operands */
        int32_t sms;     /* 0: FEW */
    } cases[] = {
        { .pair = 0, .grouping = MOIT_DENSE, .m = 2500, .n = 1032, .k = 272, .out = MOI_BF16, .layout = MOI_LAYOUT_COL },
        { .pair = 0, .grouping = MOIT_DENSE, .m = 2400, .n = 776, .k = 400, .out = MOI_F32, .accumulates = true, .layout = MOI_LAYOUT_ROW },
        { .pair = 0, .grouping = MOIT_DENSE, .m = 520, .n = 392, .k = 8336, .out = MOI_BF16, .layout = MOI_LAYOUT_COL, .sms = 2 },
        { .pair = 4, .grouping = MOIT_DENSE, .m = 1800, .n = 1320, .k = 400, .out = MOI_BF16 },
        { .pair = 1, .grouping = MOIT_DENSE, .m = 1700, .n = 904, .k = 400, .out = MOI_F32, .accumulates = true, .layout = MOI_LAYOUT_COL },
        { .pair = 2, .grouping = MOIT_DENSE, .m = 2500, .n = 1032, .k = 640, .out = MOI_BF16, .layout = MOI_LAYOUT_COL, .mx = MOI_MX_PER_128 },
        { .pair = 2, .grouping = MOIT_DENSE, .m = 2500, .n = 1032, .k = 1312, .out = MOI_BF16, .layout = MOI_LAYOUT_TILED, .mx = MOI_MX_PER_ROW },
        { .pair = 2, .grouping = MOIT_DENSE, .m = 2500, .n = 1160, .k = 320, .out = MOI_BF16, .layout = MOI_LAYOUT_ROW },
        { .pair = 1, .grouping = MOI_GROUP_K, .m = 700, .n = 520, .k = 1700, .out = MOI_F32, .accumulates = true, .layout = MOI_LAYOUT_COL },
        { .pair = 4, .grouping = MOI_GROUP_K, .m = 600, .n = 776, .k = 2200, .out = MOI_F32, .order = MOI_MN_MAJOR },
        { .pair = 2, .grouping = MOI_GROUP_K, .m = 1200, .n = 392, .k = 1500, .out = MOI_F32, .accumulates = true, .layout = MOI_LAYOUT_COL,
          .mx = MOI_MX_PER_ROW },
        { .pair = 3, .grouping = MOI_GROUP_K, .m = 700, .n = 520, .k = 1700, .out = MOI_BF16, .layout = MOI_LAYOUT_COL, .mx = MOI_MX_PER_128 },
    };
    int parts, part = moit_part(&parts), count = (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor tickets of others", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = cases[i].grouping, .out = cases[i].out, .m = cases[i].m, .n = cases[i].n, .k = cases[i].k, .mx = cases[i].mx,
                       .accumulate = cases[i].accumulates, .sm_limit = cases[i].sms ? cases[i].sms : FEW,
                       .overlap = i % 3 == 1 };
        j.a.format = moit_pairs[cases[i].pair].a, j.b.format = moit_pairs[cases[i].pair].b;
        j.a.format.layout = j.b.format.layout = cases[i].layout, j.a.order = j.b.order = cases[i].order;
        if (j.grouping == MOI_GROUP_K) {
            const int64_t k = cases[i].k, cuts[] = { 0, k / 7, k / 7, k / 2, k };
            j.groups = 4, j.rows = k;
            memcpy(j.offsets, cuts, sizeof cuts);
        }
        both_orders(&j, &rng, 0);
    }
}

/* Matrices of which so many rows are there as the device knows: none, all, few of them and many, in more groups than are looked at at a time. */
static void test_masked(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    /* rows that are there: none, all, few and many; few; none at all; of one group many; all, so that the last tiles are cut */
    enum { MIXED, FEW_ROWS, NO_ROWS, ONE_GROUP, ALL_ROWS, MANNERS };
    static const struct {
        int pair, groups;
        int64_t rows, n, k;
        moi_dtype out;
        bool accumulates;
        moi_layout layout;
        moi_mx_scales mx;
        int manner;
    } cases[] = {
        { .pair = 0, .groups = 7, .rows = 520, .n = 776, .k = 272, .out = MOI_BF16, .layout = MOI_LAYOUT_COL },
        { .pair = 0, .groups = 40, .rows = 280, .n = 520, .k = 144, .out = MOI_F32, .accumulates = true, .layout = MOI_LAYOUT_ROW },
        { .pair = 4, .groups = 5, .rows = 700, .n = 904, .k = 208, .out = MOI_BF16 },
        { .pair = 1, .groups = 9, .rows = 500, .n = 650, .k = 400, .out = MOI_BF16, .layout = MOI_LAYOUT_COL },
        { .pair = 2, .groups = 36, .rows = 300, .n = 392, .k = 640, .out = MOI_BF16, .layout = MOI_LAYOUT_TILED, .mx = MOI_MX_PER_ROW },
        { .pair = 2, .groups = 6, .rows = 400, .n = 904, .k = 384, .out = MOI_F32, .layout = MOI_LAYOUT_COL, .mx = MOI_MX_PER_128 },
        { .pair = 0, .groups = 34, .rows = 260, .n = 520, .k = 144, .out = MOI_BF16, .layout = MOI_LAYOUT_COL, .manner = FEW_ROWS },
        { .pair = 0, .groups = 6, .rows = 260, .n = 520, .k = 144, .out = MOI_F32, .accumulates = true, .layout = MOI_LAYOUT_COL, .manner = NO_ROWS },
        { .pair = 0, .groups = 34, .rows = 100, .n = 136, .k = 272, .out = MOI_BF16, .layout = MOI_LAYOUT_COL, .manner = ONE_GROUP },
        { .pair = 4, .groups = 5, .rows = 512, .n = 640, .k = 208, .out = MOI_BF16, .manner = ALL_ROWS },
    };
    int parts, part = moit_part(&parts), count = (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor masked tickets", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_MASKED, .out = cases[i].out, .n = cases[i].n, .k = cases[i].k, .mx = cases[i].mx,
                       .groups = cases[i].groups, .rows = cases[i].rows, .accumulate = cases[i].accumulates, .sm_limit = FEW, .overlap = i % 2 };
        j.a.format = moit_pairs[cases[i].pair].a, j.b.format = moit_pairs[cases[i].pair].b;
        j.a.format.layout = j.b.format.layout = cases[i].layout;
        for (int g = 0; g < j.groups; g++) {
            int64_t few = moit_under(&rng, 60), mixed = g % 5 == 1 ? 0 : g % 5 == 2 ? j.rows : moit_under(&rng, g % 2 ? j.rows + 1 : 130);
            const int64_t counts[MANNERS] = { mixed, few, 0, g == 2 ? j.rows : few, j.rows };
            j.counts[g] = counts[cases[i].manner];
        }
        both_orders(&j, &rng, 0);
    }
}

static const void *owners[MOII_COUNTERS];

/* Others have all counters of the context, if they are to, until they are shown. */
static void hide_counters(bool hidden)
{
    moii_counters *c = &moii_gpu_of(moit_gpu())->counters;
    memcpy(owners, c->owners, sizeof owners);
    for (int slot = 0; slot < MOII_COUNTERS && hidden; slot++) c->owners[slot] = c;
}
static void show_counters(void) { memcpy(moii_gpu_of(moit_gpu())->counters.owners, owners, sizeof owners); }

/* Where others have all counters of the context a run clears its own, in front of copies of rows that a list names, too.  The first one's scales come by
 * threads, so that a counter which is not cleared leaves out a tile.  That counters of the context are 0 again is seen when it is closed. */
static void test_counters(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    int parts, part = moit_part(&parts);
    for (int i = part; i < 2; i += parts) {
        moit_rng rng = moit_seed("tensor counters", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = i ? MOI_GROUP_M : MOIT_DENSE, .out = MOI_BF16, .m = i ? 0 : 2500, .n = 1032, .k = 272, .sm_limit = FEW };
        j.a.format = moit_pairs[0].a, j.b.format = moit_pairs[0].b;
        if (i) j.groups = 2, j.rows = j.offsets[2] = 900, j.offsets[1] = 300, moit_job_gather(&j, &rng, 70);
        hide_counters(true);
        both_orders(&j, &rng, 0);
        show_counters();
    }
}

/* Weights that become FP16 where they are multiplied: groups without rows, and all of them so, of few and of many, reductions of less than a stage, of too few
 * to wait for tiles before others are drawn, of many, and of none; rows of D that are no whole runs; no counter of the context. */
static void test_weights_alone(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const int64_t depths[] = { 32, 160, 640, 1056, 0 }, widths[] = { 520, 1032, 261, 776 };
    enum { ALL = 20 };
    int parts, part = moit_part(&parts);
    for (int i = part; i < ALL; i += parts) {
        moit_rng rng = moit_seed("tensor tickets of weights alone", (uint64_t)i);
        const bool few = i % 4 == 3, masked = i % 3 == 2, taken = i % 6 == 5; /* no counter is left: one that is not cleared leaves out tiles */
        moit_job j = { .gpu = true, .grouping = masked ? MOI_GROUP_MASKED : MOI_GROUP_M, .out = i % 7 == 6 ? MOI_F32 : MOI_BF16, .n = widths[i / 2 % 4],
                       .k = depths[i % 5], .groups = 7, .sm_limit = taken ? 1 : FEW, .overlap = i % 2 };
        j.a.format = MOI_FORMAT_BF16, j.b.format = i % 8 < 4 ? MOI_FORMAT_MXFP8 : MOI_FORMAT_MXFP4;
        const int64_t most = few ? 20 : 150 + 60 * (i % 3);
        for (int g = 0; g < j.groups; g++) j.counts[g] = g % 3 == 1 || i == 8 ? 0 : moit_under(&rng, most + 1), j.offsets[g + 1] = j.offsets[g] + j.counts[g];
        j.rows = masked ? most : j.offsets[j.groups] + 2;
        j.expected = (few ? 10 : 100) * j.groups;
        hide_counters(taken);
        both_orders(&j, &rng, ALWAYS_DRAWN);
        show_counters();
    }
}

/* Runs of one plan and one workspace that begin beside each other: all that a run draws is behind the one before, whose sums it adds to. */
static void test_beside(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const int groupings[] = { MOIT_DENSE, MOI_GROUP_M, MOI_GROUP_MASKED, MOI_GROUP_K };
    int parts, part = moit_part(&parts);
    for (int i = part; i < 5; i += parts) {
        moit_rng rng = moit_seed("tensor tickets beside", (uint64_t)i);
        bool groups = i % 4 > 0, taken = i == 4; /* no counter is left in the context */
        moit_job j = { .gpu = true, .grouping = groupings[i % 4], .out = MOI_F32, .accumulate = true, .m = 2500, .n = 776, .k = 272, .sm_limit = FEW, .runs = 3,
                       .overlap = true };
        j.a.format = moit_pairs[0].a, j.b.format = moit_pairs[0].b;
        if (j.grouping == MOI_GROUP_K) j.b.format = moit_pairs[1].b, j.m = 1200, j.k = 900;
        j.a.format.layout = j.b.format.layout = MOI_LAYOUT_COL;
        if (groups) j.groups = 3, j.rows = j.grouping == MOI_GROUP_M ? 1700 : j.grouping == MOI_GROUP_K ? j.k : 600;
        for (int g = 0; g < 3 && groups; g++) j.counts[g] = 600 - 250 * g, j.offsets[g + 1] = j.rows * (g + 1) / 3;
        hide_counters(taken);
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        assert_true(moit_job_chose(&j, "DEAL=1"));
        void *beside = leaves(&j, rng, false);
        j.overlap = false;
        moit_job_plan(&j, moit_gpu());
        leaves_too(&j, &rng, beside);
        show_counters();
    }
}

/* A plan runs with fewer rows than it is made for: fewer tiles than clusters, one, none; then with all. */
static void test_fewer(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    enum { RUNS = 4, MOST = 2500, MOST_OF_EACH = 900 };
    static const int groupings[] = { MOIT_DENSE, MOI_GROUP_M, MOI_GROUP_MASKED };
    static const int64_t rows[RUNS] = { 300, 1, 0, MOST };
    int parts, part = moit_part(&parts);
    for (int i = part; i < 6; i += parts) {
        moit_rng rng = moit_seed("tensor tickets of fewer", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = groupings[i % 3], .out = MOI_BF16, .n = 776, .k = 272, .sm_limit = FEW };
        bool ragged = j.grouping == MOI_GROUP_M, dense = j.grouping == MOIT_DENSE;
        const int64_t most = dense || ragged ? MOST : MOST_OF_EACH;
        j.a.format = moit_pairs[0].a, j.b.format = moit_pairs[0].b;
        j.a.format.layout = i < 3 ? MOI_LAYOUT_COL : MOI_LAYOUT_ROW; /* by copies; by threads */
        if (dense) j.m = MOST;
        else j.groups = 3, j.rows = j.offsets[3] = most;
        if (ragged) j.offsets[1] = 10, j.offsets[2] = 700;
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        assert_true(moit_job_chose(&j, "DEAL=1"));
        for (int run = 0; run < RUNS; run++) {
            const int64_t here = rows[run] < most ? rows[run] : most;
            if (dense) j.m = here;
            else j.rows = here;
            for (int g = 0; g < 3 && !dense; g++) j.offsets[g + 1] = here * (g + 1) / 3, j.counts[g] = here / (g + 1);
            moit_matrix_free(&j.a), moit_matrix_free(&j.b);
            moit_job_operands(&j, &rng);
            memset(j.d, 0xFF, (size_t)(j.lines * moit_job_line(&j)));
            moit_job_fill(&j, &rng);
            moit_job_run(&j);
            moit_job_check(&j, (uint64_t)(10 * i + run));
        }
        moit_job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_tickets), cmocka_unit_test(test_broad), cmocka_unit_test(test_many_groups),
                                        cmocka_unit_test(test_others), cmocka_unit_test(test_masked), cmocka_unit_test(test_counters),
                                        cmocka_unit_test(test_weights_alone),
                                        cmocka_unit_test(test_beside), cmocka_unit_test(test_fewer) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
