/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_cases.c: products on Hopper's tensor cores that need one way of cutting and storing tiles, which the plan must have chosen. */
#include "support_gpu.h"
#include "support_jobs.h"

#include <math.h>
#include <stdlib.h>

#include "../src/cuda/gpu.h"

#define V(r, e) { (r), (e), MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }
#define BLK(layout) { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_##layout, 0 }
#define SQUARES { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_COL, 0 }
#define MX(layout) { MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_##layout, 0 }
#define PLAIN V(MOI_RECIPE_BF16, MOI_BF16)

/* The same numbers with their scales column by column, which do not lie in words, so that 64 rows of A are the tensor cores': the same bits, but where two
 * teams have every second stage.  rng: as it was before the first operands.  Gives whether there was something to compare. */
static int same_otherwise(const moit_job *first, moit_rng rng)
{
    moit_job j = *first;
    j.a.format.layout = j.b.format.layout = MOI_LAYOUT_COL;
    moit_job_operands(&j, &rng);
    moit_job_plan(&j, moit_gpu());
    assert_false(moit_job_chose(&j, "thin_sm90"));
    moit_job_fill(&j, &rng);
    moit_job_run(&j);
    bool comparable = moit_job_chose(&j, "TURNS=1");
    if (comparable) assert_memory_equal(first->d, j.d, (size_t)(j.lines * moit_job_line(&j)));
    j.index = NULL, j.place = NULL, j.weight = NULL; /* the first's */
    moit_job_close(&j);
    return comparable;
}

/* Rows of each group, of one matrix, and those that a group is expected to have; multiprocessors for groups; whether A is BF16. */
typedef struct few_shape { const int64_t *rows; int64_t dense, expected; int32_t sms; bool alone; } few_shape;
enum { FEW_CASES = 76 };

/* Groups or, of the last cases, one matrix, with 1x32 scales that lie in words; columns that end anywhere; every way of storing.  was: rng in front of the
 * operands. */
static moit_job few_rows(int i, moit_rng *rng, const few_shape *s, moit_rng *was)
{
    static const int64_t widths[] = { 8, 71, 128, 136, 264, 521 }, depths[] = { 128, 640, 1152, 0 };
    const int64_t *rows = s->rows;
    bool masked = i < 60 && i % 3 == 2, ragged = i < 60 && !masked;
    moit_job j = { .gpu = true, .grouping = masked ? MOI_GROUP_MASKED : MOI_GROUP_M, .groups = MOIT_GROUPS, .n = widths[i % 6], .k = depths[i / 6 % 4],
                   .expected = s->expected * MOIT_GROUPS, .sm_limit = s->sms, .overlap = i % 4 == 1 };
    if (i >= 60) j.grouping = MOIT_DENSE, j.groups = 1, j.m = s->dense, j.n = i % 2 ? 521 : 264, j.sm_limit = 2, j.expected = 0;
    j.a.format = moit_pairs[2 + i / 2 % 2].a, j.b.format = moit_pairs[2 + i / 4 % 2].b;
    j.a.format.layout = moit_under(rng, 2) ? MOI_LAYOUT_ROW : MOI_LAYOUT_TILED;
    j.b.format.layout = moit_under(rng, 2) ? MOI_LAYOUT_ROW : MOI_LAYOUT_TILED;
    if (s->alone) {
        j.a.format = (moi_format)PLAIN;
        if (i % 6 == 3) j.b.format.elem = MOI_E5M2;
        if (i % 5 == 2) j.k += 32 * (1 + i % 3);
        if (i % 8 == 6) j.b.format.layout = MOI_LAYOUT_COL;
    }
    j.out = moit_under(rng, 3) ? MOI_BF16 : MOI_F32, j.accumulate = j.out == MOI_F32 && moit_under(rng, 2);
    if (i % 3 == 1) j.ldd = (j.n + 15) / 8 * 8; /* rows that begin at multiples of 16 bytes, whatever they end at */
    for (int g = 0; g < MOIT_GROUPS; g++) {
        j.counts[g] = rows[g], j.offsets[g + 1] = j.offsets[g] + rows[g];
        if (masked && rows[g] > j.rows) j.rows = rows[g];
    }
    j.rows = masked ? j.rows + 40 : j.offsets[MOIT_GROUPS] + 2;
    if (ragged && !moit_under(rng, 3)) moit_job_gather(&j, rng, 40);
    if (ragged && moit_under(rng, 2)) moit_job_weigh(&j, rng);
    if (ragged && moit_under(rng, 2)) moit_job_scatter(&j, rng);
    *was = *rng;
    moit_job_operands(&j, rng);
    return j;
}

/* Few rows, or few of each group and now and then many, with 1x32 scales: the weights are the tensor cores' rows.  Groups that end at and beside each width
 * of a product, or have nothing. */
static void test_thin(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const int64_t sizes[][MOIT_GROUPS] = { { 0, 1, 2, 8, 15, 16, 17, 31, 0 }, { 32, 33, 0, 63, 64, 65, 3, 128, 129 }, { 0, 0, 0, 0, 300, 0, 0, 0, 1 },
                                                  { 5, 5, 5, 5, 5, 5, 5, 5, 5 }, { 0, 0, 0, 0, 0, 0, 0, 0, 0 } };
    static const int64_t dense[] = { 1, 8, 16, 17, 31, 32, 0, 5 };
    int parts, part = moit_part(&parts), compared = 0;
    for (int i = part; i < FEW_CASES; i += parts) {
        moit_rng rng = moit_seed("tensor thin", (uint64_t)i), was;
        moit_job j = few_rows(i, &rng, &(few_shape){ sizes[i % 5], dense[i % 8], 20, i % 2 ? 5 : 0, false }, &was);
        moit_job_plan(&j, moit_gpu());
        assert_true(moit_job_chose(&j, "thin_sm90"));
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        if (i % 4 == 3) compared += same_otherwise(&j, was);
        moit_job_close(&j);
    }
    assert_true(parts > 1 || compared > 0);
}

/* NaN of both signs among the codes of the first group's weights, and among another's scales; of one matrix a row whose scales are subnormal in BF16, beside
 * a row of A that makes its sums normal.  Of A in BF16: rows that are 0 and tiny, Inf and NaN in others. */
static void poison_weights(moit_job *j)
{
    int64_t other = j->groups > 1 ? 5 : 0;
    if (j->k == 0) return;
    moit_matrix_set(&j->b, 5, 77, NAN), moit_matrix_set(&j->b, 6, j->k - 1, copysignf(NAN, -1.0f));
    moit_matrix_set_scale(&j->b, other, 3, 64, NAN);
    for (int64_t l = 0; l < j->k && j->groups == 1; l++) {
        if (j->a.format.recipe == MOI_RECIPE_BF16) moit_matrix_set(&j->a, 2, l, ldexpf(1.0f, 90));
        else moit_matrix_set_scale(&j->a, 0, 2, l, ldexpf(1.0f, 90));
        moit_matrix_set_scale(&j->b, 0, 4, l, ldexpf(1.0f, -127));
        moit_matrix_set(&j->b, 4, l, 1.0f + (float)(l % 3));
    }
    for (int64_t l = 0; l < j->k && j->a.format.recipe == MOI_RECIPE_BF16 && j->a.rows > 6; l++) {
        moit_matrix_set(&j->a, 3, l, 0.0f), moit_matrix_set(&j->a, 4, l, ldexpf(1.0f + (float)(l % 5), -122));
        moit_matrix_set_scale(&j->b, 0, 7, l, 0x1p10f);
        if (l % 100 == 50) moit_matrix_set(&j->a, 5, l, INFINITY);
        if (l % 100 == 60) moit_matrix_set(&j->a, 6, l, NAN);
    }
    moit_matrix_read(&j->a), moit_matrix_read(&j->b);
}

static const int64_t mixed_sizes[][MOIT_GROUPS] = { { 0, 1, 31, 32, 33, 63, 64, 65, 0 }, { 127, 128, 0, 129, 193, 3, 256, 1, 300 },
                                                    { 0, 0, 0, 0, 611, 0, 0, 0, 1 }, { 40, 40, 40, 40, 40, 40, 40, 40, 40 }, { 0, 0, 0, 0, 0, 0, 0, 0, 0 } };

static void check_mixed(const few_shape shapes[FEW_CASES], const char *name)
{
    int parts, part = moit_part(&parts);
    for (int i = part; i < FEW_CASES; i += parts) {
        moit_rng rng = moit_seed(name, (uint64_t)i), was;
        moit_job j = few_rows(i, &rng, &shapes[i], &was);
        if (i % 4 == 3) poison_weights(&j);
        if (shapes[i].alone && j.grouping == MOI_GROUP_M && i % 5 == 2 && j.a.rows > 3 && j.k) { /* behind the end of row 1, where a copy of it may go on */
            moit_matrix_set(&j.a, 2, 0, NAN), moit_matrix_set(&j.a, 2, 1, INFINITY);
            moit_matrix_read(&j.a);
        }
        moit_job_plan(&j, moit_gpu());
        int64_t rows = j.grouping == MOIT_DENSE ? j.m : j.grouping == MOI_GROUP_MASKED && j.rows < shapes[i].expected ? j.rows : shapes[i].expected;
        bool anyhow = shapes[i].alone && j.grouping != MOIT_DENSE, words = j.k % 128 == 0 && j.b.format.layout != MOI_LAYOUT_COL;
        bool wide = j.b.format.elem == MOI_E4M3 && (anyhow || words); /* rows of B are mixed_sm90's, too */
        bool halves = shapes[i].alone && rows <= (wide ? 64 : 256), copied = !wide && !halves;
        assert_true(moit_job_chose(&j, copied ? "SCALING=0" : halves ? "halves_sm90" : "mixed_sm90"));
        const char *tile = rows <= 64 ? " BN=64 " : rows <= 85 ? " BN=96 " : rows > 128 && rows <= 156 ? " BN=144 " : " BN=128 ";
        bool other = rows > 72 && rows <= 85 && moit_job_chose(&j, " BN=128 "); /* where one round takes all tiles */
        assert_true(copied || halves || other || moit_job_chose(&j, tile));
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        moit_job_close(&j);
    }
}

/* More rows, or more of each group, for few multiprocessors, that all have tiles: A becomes FP16 first, the weights in registers. */
static void test_mixed(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const int64_t dense[] = { 384, 385, 400, 448, 449, 511, 512, 513 }, expected[] = { 100, 50, 80, 140 }; /* tiles of 128, 64, 96, 144 */
    few_shape shapes[FEW_CASES];
    for (int i = 0; i < FEW_CASES; i++) shapes[i] = (few_shape){ mixed_sizes[i % 5], dense[i % 8], expected[i % 4], 1 + i % 2, false };
    check_mixed(shapes, "tensor mixed");
}

/* The same of A in BF16, of any number of rows: weights alone are scaled. */
static void test_weights_alone(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const int64_t few[][MOIT_GROUPS] = { { 0, 1, 2, 7, 8, 9, 15, 16, 17 }, { 3, 3, 3, 3, 3, 3, 3, 3, 3 } }, dense[] = { 1, 7, 16, 17, 33, 129, 400, 5 };
    static const int64_t expected[] = { 100, 50, 140, 80 };
    few_shape shapes[FEW_CASES];
    for (int i = 0; i < FEW_CASES; i++)
        shapes[i] = (few_shape){ i % 2 ? few[i / 2 % 2] : mixed_sizes[i / 2 % 5], dense[i % 8], i % 2 ? 9 : expected[i / 2 % 4], i % 3, true };
    check_mixed(shapes, "tensor weights alone");
}

/* Rows that a list names: all formats, layouts and promises about scales, rows of more pieces than a warp copies at once and of odd numbers of them,
 * scales of more blocks than that; many rows of MXFP8 become BF16 in the list's order. */
static void test_gather(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { int64_t cuts[4], n, k; moi_layout layout; moi_mx_scales mx; bool adds, overlap; } cases[] = {
        { { 0, 70, 70, 131 }, 72, 2096, MOI_LAYOUT_ROW, MOI_MX_FREE, false, false },
        { { 0, 700, 701, 1567 }, 136, 272, MOI_LAYOUT_COL, MOI_MX_FREE, true, false },
        { { 0, 3, 64, 90 }, 200, 400, MOI_LAYOUT_TILED, MOI_MX_PER_128, false, true },
        { { 0, 0, 1, 129 }, 520, 4640, MOI_LAYOUT_TILED, MOI_MX_FREE, true, true },
        { { 0, 31, 200, 320 }, 264, 656, MOI_LAYOUT_COL, MOI_MX_PER_ROW, false, true },
    };
    int parts, part = moit_part(&parts), count = MOIT_PAIRS * (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor gather", (uint64_t)i);
        int c = i / MOIT_PAIRS;
        moi_format a = moit_pairs[i % MOIT_PAIRS].a, b = moit_pairs[i % MOIT_PAIRS].b;
        if (a.recipe == MOI_RECIPE_MX32 || cases[c].layout != MOI_LAYOUT_TILED) a.layout = cases[c].layout;
        if (b.block != MOI_BLOCK_SQUARE) b.layout = a.layout;
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = cases[c].adds ? MOI_F32 : MOI_BF16, .accumulate = cases[c].adds, .n = cases[c].n,
                       .k = cases[c].k, .groups = 3, .rows = cases[c].cuts[3] + 5, .overlap = cases[c].overlap, .a = { .format = a }, .b = { .format = b } };
        if (a.recipe == MOI_RECIPE_MX32) j.mx = cases[c].mx;
        memcpy(j.offsets, cases[c].cuts, sizeof cases[c].cuts);
        moit_job_gather(&j, &rng, 90);
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        assert_int_equal(moit_job_chose(&j, "FOLLOWS=1"), b.recipe != MOI_RECIPE_MX32 || (a.recipe == MOI_RECIPE_MX32 && j.rows < 1536));
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        moit_job_close(&j);
    }
}

/* Fewer multiprocessors, of which a few would have one tile more than the others: it is cut in two or four.  The same bits as without; FP32 is
 * added to, so that a tile which is done twice is seen. */
static void test_cut(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { int grouping; int32_t sm_limit, other; int64_t n; } cases[] = {
        { MOIT_DENSE, 16, 0, 520 }, { MOIT_DENSE, 8, 14, 520 }, { MOI_GROUP_M, 8, 6, 1200 }, { MOI_GROUP_M, 4, 6, 520 },
        { MOIT_DENSE, 8, 14, 512 }, { MOI_GROUP_M, 8, 6, 512 }, /* BF16 too in clusters: no columns are left over for a pair of tiles */
    };
    static const int64_t cuts[] = { 0, 700, 1200, 2000 };
    int parts, part = moit_part(&parts), count = MOIT_PAIRS * (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor cut", (uint64_t)i);
        int c = i / MOIT_PAIRS;
        moit_job j = { .gpu = true, .grouping = cases[c].grouping, .out = i % 3 ? MOI_BF16 : MOI_F32, .accumulate = i % 3 == 0, .m = 1300 - 37 * (i % 2),
                  .n = cases[c].n, .k = 256, .sm_limit = cases[c].sm_limit };
        if (moit_pairs[i % MOIT_PAIRS].a.recipe == MOI_RECIPE_MX32 && c % 2) j.mx = MOI_MX_PER_ROW, j.k = 640; /* two stages at a time, and one */
        if (j.grouping == MOI_GROUP_M) j.groups = 3, j.rows = 2000, j.m = 0;
        j.a.format = moit_pairs[i % MOIT_PAIRS].a, j.b.format = moit_pairs[i % MOIT_PAIRS].b;
        memcpy(j.offsets, cuts, sizeof cuts);
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        moit_rng was = rng;
        moit_job_fill(&j, &was);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        void *first = j.d;
        free(j.before);
        moi_plan_free(j.plan);
        j.sm_limit = cases[c].other;
        moit_job_plan(&j, moit_gpu());
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        assert_memory_equal(first, j.d, (size_t)(j.lines * moi_row_bytes(j.out, j.n)));
        moit_free(first);
        moit_job_close(&j);
    }
}

/* The last columns, 64 or fewer, in tiles of their own (16 bits): rows of tiles that are even in number, or odd, so that a cluster's second block has
 * none; a last one of one block of 64 rows, of two, three and four; pieces of the last units on the clusters that had a strip's, or elsewhere; B with
 * the reduction outermost; one stage, an odd number. */
static void test_strip(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { bool f32, accumulates, turned, mx; int64_t m, n, k; int sms; } cases[] = {
        { false, false, false, false, 1300, 320, 1104, 2 }, { false, false, false, false, 2150, 809, 272, 2 }, { true, true, false, false, 1300, 521, 1312, 4 },
        { false, false, true, false, 1800, 832, 272, 2 },   { false, false, false, true, 1300, 576, 608, 2 },  { true, false, false, false, 2180, 826, 272, 2 },
        { false, false, false, false, 32768, 320, 64, 2 }, { true, true, true, false, 1500, 576, 608, 2 }, { false, false, false, false, 2300, 832, 272, 2 },
        { true, true, false, false, 2600, 570, 336, 2 },    { false, false, false, false, 1300, 576, 1360, 4 },
    };
    int parts, part = moit_part(&parts), count = (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor strip", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOIT_DENSE, .out = cases[i].f32 ? MOI_F32 : MOI_BF16, .accumulate = cases[i].accumulates, .m = cases[i].m,
                  .n = cases[i].n, .k = cases[i].k, .sm_limit = cases[i].sms };
        j.a.format = j.b.format = cases[i].mx ? (moi_format)MX(ROW) : (moi_format)PLAIN;
        if (cases[i].turned) j.b.order = MOI_MN_MAJOR;
        moit_job_operands(&j, &rng);
        moit_job_prove(&j, "STRIP=1", &rng, (uint64_t)i);
    }
}

/* FP32 that leaves by boxes: columns that are whole sixteens or not, left over for a pair of tiles, or none; rows left over for a warpgroup, or
 * shared by both, or a group's last that fill no box; groups without values; rows of D that no box can name; all scales; BF16 as it lies. */
static void test_boxes(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    enum { PER_ROW = MOI_MX_PER_ROW, PER_128 = MOI_MX_PER_128, DENSE = MOIT_DENSE, M = MOI_GROUP_M, K = MOI_GROUP_K, MASKED = MOI_GROUP_MASKED };
    static const struct { int grouping; moi_format a; int mx; int64_t m, n; const char *define; } cases[] = {
        { K, BLK(COL), 0, 580, 512, "CLUSTER=2" },            { K, BLK(COL), 0, 1100, 368, "WOVEN=1 OUTER=1" },
        { K, BLK(ROW), 0, 1153, 508, "WGS=3" },               { K, BLK(COL), 0, 1150, 509, "OUTER=1" },
        { DENSE, BLK(COL), 0, 1150, 496, "WOVEN=1" },         { K, BLK(COL), 0, 1100, 0, "WOVEN=1" },
        { DENSE, MX(ROW), PER_128, 1089, 512, "WOVEN=1" },    { DENSE, BLK(COL), 0, 1100, 0, "WOVEN=1" },
        { K, PLAIN, 0, 1240, 512, "WAVES=2" },                { K, PLAIN, 0, 1240, 328, "WAVES=2" },
        { DENSE, PLAIN, 0, 1150, 384, "WAVES=2" },            { K, MX(ROW), 0, 1240, 508, "WAVES=2" },
        { DENSE, MX(TILED), PER_ROW, 1240, 512, "WAVES=2" },  { DENSE, MX(TILED), PER_ROW, 1180, 100, "WAVES=2" },
        { DENSE, SQUARES, 0, 1217, 368, "WAVES=2" },          { DENSE, SQUARES, 0, 1240, 480, "WAVES=2" },
        { M, SQUARES, 0, 0, 768, "BROAD=1" },                 { M, PLAIN, 0, 0, 740, "WAVES=2" },
        { MASKED, SQUARES, 0, 0, 368, "WAVES=2" },            { M, MX(TILED), PER_ROW, 0, 384, "BOXES=2" },
        { M, BLK(COL), 0, 0, 384, "WGS=3" },                  { MASKED, BLK(ROW), 0, 0, 372, "WGS=3" },
        { K, MX(COL), PER_128, 1090, 512, "OUTER=1" },        { K, MX(ROW), PER_128, 1153, 500, "WGS=3" },
        { MASKED, MX(COL), PER_128, 0, 368, "QUADS=1" },      { DENSE, MX(COL), PER_128, 1089, 500, "QUADS=1" },
        { K, MX(COL), PER_ROW, 1240, 512, "CLUSTER=2" },      { K, MX(ROW), PER_ROW, 1153, 508, "CLUSTER=2" },
    };
    static const int64_t cuts[] = { 0, 200, 200, 737, 738 }, rows[] = { 0, 600, 600, 1900, 1960 };
    int parts, part = moit_part(&parts), count = 2 * (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor boxes", (uint64_t)i);
        const int c = i / 2;
        moit_job j = { .gpu = true, .grouping = cases[c].grouping, .out = MOI_F32, .accumulate = i % 2, .m = cases[c].m, .n = cases[c].n, .k = 400,
                  .mx = (moi_mx_scales)cases[c].mx, .sm_limit = 4 };
        if (j.grouping == MOI_GROUP_K) j.groups = 4, j.rows = 740, j.k = 0;
        if (moit_job_experts(&j)) j.groups = 4, j.rows = 2000;
        j.a.format = j.b.format = cases[c].a;
        if (c % 2 && j.b.format.elem == MOI_E4M3) j.b.format.elem = MOI_E5M2;
        if (j.a.format.recipe == MOI_RECIPE_BLK128) j.a.format.block = MOI_BLOCK_VECTOR;
        if (j.grouping == MOI_GROUP_K && j.a.format.recipe == MOI_RECIPE_BF16) j.a.order = j.b.order = MOI_MN_MAJOR;
        memcpy(j.offsets, moit_job_experts(&j) ? rows : cuts, sizeof cuts);
        for (int g = 0; g < 4 && moit_job_experts(&j); g++) j.counts[g] = rows[g + 1] - rows[g];
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        assert_true(moit_job_chose(&j, cases[c].define));
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        moit_job_close(&j);
    }
}

/* Few rows whose reduction blocks share: parts that have as many stages as are sent for at once, fewer, and more. */
static void test_split(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { int64_t m, n, k; } cases[] = { { 60, 40, 1424 }, { 30, 96, 4112 }, { 128, 64, 2080 }, { 100, 40, 784 }, { 17, 33, 400 } };
    int parts, part = moit_part(&parts), count = 2 * (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor split", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOIT_DENSE, .out = i % 2 ? MOI_F32 : MOI_BF16, .accumulate = i % 2, .m = cases[i / 2].m, .n = cases[i / 2].n,
                  .k = cases[i / 2].k };
        j.a.format = (moi_format)BLK(COL), j.b.format = (moi_format)SQUARES;
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        assert_true(moit_job_chose(&j, "SHORT=") && (moit_job_chose(&j, "SPLIT=2") || moit_job_chose(&j, "SPLIT=4")));
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        moit_job_close(&j);
    }
}

/* Few rows, and more tiles than blocks or not: warpgroups side by side, which touch one of B's squares or two, below one another, or one alone; results that
 * no box names, and that one could. */
static void test_few_tiles(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { int64_t m, n, k; const char *tile; } cases[] = {
        { 30, 1160, 800, "BN=96" },  { 64, 1000, 512, "BN=64" }, { 50, 2000, 272, "BN=128" },
        { 100, 777, 2080, "BN=112" }, { 64, 700, 1424, "BN=96" }, { 128, 1000, 800, "BN=128" },
        /* one for each block, at most */
        { 128, 256, 800, "BN=64" }, { 50, 232, 272, "BN=64" }, { 100, 199, 1424, "BN=64" }, { 30, 104, 2080, "BN=32" }, { 90, 400, 4096, "BN=112" },
    };
    int parts, part = moit_part(&parts), count = (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor few tiles", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOIT_DENSE, .out = MOI_BF16, .m = cases[i].m, .n = cases[i].n, .k = cases[i].k, .sm_limit = 4 };
        j.a.format = (moi_format)BLK(COL), j.b.format = (moi_format)SQUARES;
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        assert_true(moit_job_chose(&j, "SHORT=") && moit_job_chose(&j, cases[i].tile) && moit_job_chose(&j, "WIDE=1") == (i < 3));
        assert_int_equal(moit_job_chose(&j, "LONE=1"), i >= 6);
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        moit_job_close(&j);
    }
}

/* Scales of 1x32 blocks whose code is 0, 2^-127, among others, in words and in bytes, with and without a last stage of fewer blocks. */
static void test_scale_ends(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { moi_layout layout; int64_t k; } cases[] = {
        { MOI_LAYOUT_ROW, 400 }, { MOI_LAYOUT_TILED, 400 }, { MOI_LAYOUT_ROW, 512 }, { MOI_LAYOUT_COL, 352 },
    };
    int parts, part = moit_part(&parts);
    for (int i = part; i < 8; i += parts) {
        moit_rng rng = moit_seed("tensor scale ends", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOIT_DENSE, .out = MOI_F32, .m = i % 2 ? 70 : 11, .n = 40, .k = cases[i / 2].k };
        j.a.format = j.b.format = (moi_format)V(MOI_RECIPE_MX32, MOI_E4M3);
        j.a.format.layout = j.b.format.layout = cases[i / 2].layout;
        moit_job_operands(&j, &rng);
        for (int64_t l = 0; l < j.k; l += 32) {
            for (int64_t r = 0; r < j.m; r++) moit_matrix_set_scale(&j.a, 0, r, l, ldexpf(1.0f, (int)((r + l / 32) % 3) - 127));
            for (int64_t r = 0; r < j.n; r++) moit_matrix_set_scale(&j.b, 0, r, l, ldexpf(1.0f, 60 + (int)((r + l / 32) % 5)));
        }
        moit_matrix_read(&j.a), moit_matrix_read(&j.b);
        moit_job_prove(&j, "SCALING=3", &rng, (uint64_t)i);
    }
}

/* One scale a row, near 1 and far from it, side by side: BF16 is made before them, or behind. */
static void test_far_rows(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const int16_t powers[] = { 3, -127, -4, -100, 36, 37, -36, -37 };
    int parts, part = moit_part(&parts);
    for (int i = part; i < 4; i += parts) {
        moit_rng rng = moit_seed("tensor far rows", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = i < 2 ? MOIT_DENSE : MOI_GROUP_M, .out = MOI_BF16, .m = 300, .n = 776, .k = 640, .mx = MOI_MX_PER_ROW };
        if (j.grouping == MOI_GROUP_M) j.groups = 2, j.rows = 300, j.m = 0, j.offsets[1] = 130, j.offsets[2] = 300;
        j.a.format = j.b.format = (moi_format)MX(ROW);
        if (i % 2) j.b.format.elem = MOI_E5M2;
        moit_job_operands(&j, &rng);
        for (int64_t l = 0; l < j.k; l += 32) {
            for (int64_t r = 0; r < 300; r++) moit_matrix_set_scale(&j.a, 0, r, l, ldexpf(1.0f, powers[r / 16 % 8]));
            for (int64_t b = 0; b < (j.groups ? j.groups : 1); b++)
                for (int64_t r = 0; r < j.n; r++) moit_matrix_set_scale(&j.b, b, r, l, ldexpf(1.0f, r < 256 ? 17 + (int)(r % 7) : 60 - (int)(r / 32 % 4) * 10));
        }
        moit_matrix_read(&j.a), moit_matrix_read(&j.b);
        moit_job_prove(&j, "SCALING=4", &rng, (uint64_t)i);
    }
}

/* Copies of operands begin at multiples of 16 bytes, too: rows that a list names, and those that become BF16 or FP16; and so do weights alone. */
static void test_rows_apart(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { moi_format a, b; int64_t rows, gather, a_ld, b_ld; const char *said; int64_t b_from; } cases[] = {
        { BLK(ROW), SQUARES, 16, 8, 72, 0, "rows of a must be a multiple of 16 bytes apart for ggemm_sm90, got 72", 0 },
        { PLAIN, PLAIN, 16, 8, 65, 0, "rows of a must be a multiple of 16 bytes apart for ggemm_sm90, got 130", 0 },
        { MX(ROW), MX(ROW), 512, 8, 72, 0, "rows of a must be a multiple of 16 bytes apart for ggemm_sm90, got 72", 0 },
        { MX(ROW), MX(ROW), 512, 0, 72, 0, "rows of a must be a multiple of 16 bytes apart for ggemm_sm90, got 72", 0 },
        { MX(ROW), MX(ROW), 512, 0, 0, 88, "rows of b must be a multiple of 16 bytes apart for ggemm_sm90, got 88", 0 },
        { PLAIN, MX(ROW), 16, 8, 65, 0, "rows of a must be a multiple of 16 bytes apart for ggemm_sm90, got 130", 0 },
        { PLAIN, MX(ROW), 512, 0, 65, 0, "rows of a must be a multiple of 16 bytes apart for ggemm_sm90, got 130", 0 },
        { PLAIN, MX(ROW), 16, 0, 0, 88, "rows of b must be a multiple of 16 bytes apart for ggemm_sm90, got 88", 0 },
        { PLAIN, MX(ROW), 16, 0, 0, 0, "b: data and scales must be aligned to 16 bytes for this row", 8 },
    };
    enum { ROOM = 1 << 20 };
    moit_mem m = moit_mem_of("ggemm_sm90");
    char *left = moit_alloc(ROOM); /* nobody writes it */
    memset(left, 0x5A, ROOM);
    char *there = moit_in(&m, left, 4096), *room = moit_out(&m, left, ROOM);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        moi_ggemm_desc d = { .size = sizeof d, .row = "ggemm_sm90", .grouping = MOI_GROUP_M, .a = cases[i].a, .b = cases[i].b, .out = MOI_BF16, .groups = 1,
                             .max_rows = cases[i].rows, .n = 16, .k = 64, .gather_rows = cases[i].gather };
        moi_plan *plan;
        moit_ok(moi_ggemm_plan_create(&plan, moit_gpu(), &d));
        assert_in_range(moi_plan_workspace_bytes(plan), 0, ROOM);
        moi_ggemm_args x = { .size = sizeof x, .rows = cases[i].rows, .offsets = (const int64_t *)(const void *)there, .a = { there, there, cases[i].a_ld },
                             .b = { there + cases[i].b_from, there, cases[i].b_ld }, .d = there };
        if (cases[i].a.recipe == MOI_RECIPE_BF16) x.a.scale = NULL;
        if (cases[i].b.recipe == MOI_RECIPE_BF16) x.b.scale = NULL;
        if (cases[i].gather) x.rows_of_a = (const int32_t *)(const void *)there, x.a_rows = 8;
        moit_refused(moi_ggemm_run(plan, &x, room, ROOM, m.stream), MOI_ERR_ALIGN, cases[i].said);
        moi_plan_free(plan);
    }
    moit_mem_done(&m);
    for (int i = 0; i < ROOM; i++) assert_int_equal(left[i], 0x5A);
    moit_free(left);
}

/* Room behind rows of D, whose last columns are whole pieces of 16 bytes or are not: nothing is written there (moit_job_check), whichever way D leaves. */
static void test_room(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { int grouping; moi_dtype out; bool accumulate; int64_t n, ldd; } cases[] = {
        { MOIT_DENSE, MOI_BF16, false, 137, 144 }, { MOI_GROUP_M, MOI_BF16, false, 137, 144 },    { MOI_GROUP_MASKED, MOI_BF16, false, 71, 88 },
        { MOIT_DENSE, MOI_BF16, false, 136, 152 }, { MOI_GROUP_M, MOI_BF16, false, 200, 208 },    { MOI_GROUP_MASKED, MOI_BF16, false, 72, 88 },
        { MOIT_DENSE, MOI_F32, true, 137, 144 },   { MOI_GROUP_K, MOI_F32, true, 137, 140 },      { MOI_GROUP_M, MOI_F32, false, 139, 140 },
        { MOIT_DENSE, MOI_F32, true, 140, 148 },   { MOI_GROUP_K, MOI_F32, true, 140, 144 },      { MOI_GROUP_M, MOI_F32, false, 140, 148 },
    };
    static const int64_t cuts[] = { 0, 300, 430 };
    int parts, part = moit_part(&parts), count = 2 * (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor room", (uint64_t)i);
        int c = i / 2;
        bool ragged = cases[c].grouping == MOI_GROUP_M || cases[c].grouping == MOI_GROUP_K, masked = cases[c].grouping == MOI_GROUP_MASKED;
        moit_job j = { .gpu = true, .grouping = cases[c].grouping, .out = cases[c].out, .accumulate = cases[c].accumulate, .m = 300, .n = cases[c].n,
                       .k = 256, .ldd = cases[c].ldd, .sm_limit = 4, .groups = MOIT_GROUPS, .rows = 200 };
        if (ragged) j.groups = 2, j.rows = 430, memcpy(j.offsets, cuts, sizeof cuts);
        for (int g = 0; masked && g < MOIT_GROUPS; g++) j.counts[g] = 17 * g;
        if (!ragged && !masked) j.groups = 1;
        if (cases[c].grouping != MOIT_DENSE && cases[c].grouping != MOI_GROUP_K) j.m = 0;
        if (cases[c].grouping == MOI_GROUP_K) j.a.format = j.b.format = i % 2 ? (moi_format)BLK(COL) : (moi_format)MX(COL);
        else if (i % 2) j.a.format = (moi_format)BLK(COL), j.b.format = (moi_format)SQUARES;
        else j.a.format = j.b.format = (moi_format)PLAIN;
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        moit_job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thin), cmocka_unit_test(test_mixed), cmocka_unit_test(test_weights_alone), cmocka_unit_test(test_gather),
        cmocka_unit_test(test_cut), cmocka_unit_test(test_strip), cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_split), cmocka_unit_test(test_few_tiles), cmocka_unit_test(test_scale_ends),
        cmocka_unit_test(test_far_rows), cmocka_unit_test(test_rows_apart), cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
