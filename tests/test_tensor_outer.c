/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_outer.c: products whose scales of 1x128 by 1x128 the tensor cores multiply with each other (product_outer.cuh). */
#include "support_gpu.h"
#include "support_jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VECTOR(recipe, layout) { (recipe), MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_##layout, 0 }
static const moi_format blk = VECTOR(MOI_RECIPE_BLK128, COL), mx = VECTOR(MOI_RECIPE_MX32, COL);

/* Of a row (or column) and a block of 128 of a group's, or of one of several matrices. */
typedef float scale_rule(bool of_b, int64_t row, int64_t block, int64_t group);

/* All within what the tensor cores take, with all bits of their significands, of either sign where FP32. */
static float near_scale(bool of_b, int64_t row, int64_t block, int64_t group)
{
    const float x = 1.0f + 0x1p-9f * (float)(row % 511) + 0x1p-23f * (float)(of_b ? 5 : 3);
    return ldexpf((row + block) % 5 ? x : -x, (int)((row * 7 + (block + group) * 3) % 100) - 50);
}

/* 0 in BF16: A's in every other group, B's in the others, and nothing else is larger; E8M0 has 2^-127. */
static float small_scale(bool of_b, int64_t row, int64_t block, int64_t group)
{
    const float x = 1.0f + 0x1p-9f * (float)(row % 511);
    return ldexpf(x, of_b == (group % 2 == 0) ? 59 : -140 + 3 * (int)(block % 2));
}

/* E8M0's of blocks of zeros, whose products with others are as small as they may be where the tensor cores make them (2^-149), and smaller. */
static float least_scale(bool of_b, int64_t row, int64_t block, int64_t group)
{
    if (of_b == (group % 2 == 0)) return ldexpf(1.0f, (int)((block + row) % 7) - (block % 4 == 3 ? 23 : 22));
    return (row + block) % 9 ? 0x1p-127f : 0x1p-120f;
}

/* The same, and of blocks of zeros whose products with each other are too large. */
static float edge_scale(bool of_b, int64_t row, int64_t block, int64_t group) { return block == 4 ? 0x1p70f : least_scale(of_b, row, block, group); }

/* Inf in BF16, and times a product of values; in every other stage. */
static float large_scale(bool of_b, int64_t row, int64_t block, int64_t group)
{
    const float x = 1.0f + 0x1p-9f * (float)(row % 511);
    return of_b == (group % 2 == 0) ? ldexpf(x, -59) : block % 2 == 0 && row % 3 ? 0x1.ffp127f : ldexpf(x, 59);
}

/* Very large ones beside small ones, and very small ones beside large ones: A's in one of two groups, B's in the other. */
static float large_apart(bool of_b, int64_t row, int64_t block, int64_t group)
{
    return of_b == (group % 2 == 1) ? ldexpf(1.5f, (int)(120 + (row + block) % 8)) : ldexpf(1.0f + 0x1p-9f * (float)(row % 511), -40 - (int)(row % 5));
}
static float small_apart(bool of_b, int64_t row, int64_t block, int64_t group)
{
    return of_b == (group % 2 == 1) ? ldexpf(1.0f, -149 + (int)((row + block) % 30)) : ldexpf(1.0f + 0x1p-9f * (float)(row % 511), 61 + (int)(row % 5));
}

/* 0, and what is no number. */
static float odd_scale(bool of_b, int64_t row, int64_t block, int64_t group)
{
    if (block + group == 1 && row == 40 && !of_b) return 0.0f;
    if (block + group == 2 && row == (of_b ? 90 : 130)) return NAN;
    return ldexpf(1.0f + 0x1p-12f * (float)row, (int)(block % 4));
}

/* What takes the most of BF16's two halves. */
static float worst_scale(bool of_b, int64_t row, int64_t block, int64_t group)
{
    static const float most[] = { 0x1.00fe8p0f, 0x1.01p0f, 0x1.00fffep0f, 0x1.fefffep0f, 0x1.7f7f7ep0f, -0x1.00fe8p0f, 0x1.00fdp0f };
    return ldexpf(most[(row + block * (of_b ? 3 : 2)) % 7], (int)((row + group) % 90) - 45);
}

/* Powers of two for E8M0. */
static float power(float s) { return isnan(s) ? s : s == 0.0f || ilogbf(s) < -127 ? 0x1p-127f : ldexpf(1.0f, ilogbf(s)); }

static void set_scales(moit_matrix *x, bool of_b, scale_rule *rule)
{
    const int64_t whole[] = { 0, x->depth }, *cuts = x->offsets ? x->offsets : whole, count = x->offsets ? x->groups : 1;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t r = 0; r < x->rows; r++)
            for (int64_t g = 0; g < count; g++)
                for (int64_t first = cuts[g], l = first; l < cuts[g + 1]; l += 32) {
                    const float s = rule(of_b, r, (l - first) / 128, b + g);
                    moit_matrix_set_scale(x, b, r, l, x->format.recipe == MOI_RECIPE_MX32 ? power(s) : s);
                }
    moit_matrix_read(x);
}

/* Scales of rows that do not count. */
static void set_behind(moit_job *j, float scale)
{
    for (int64_t g = 0; g < j->groups; g++)
        for (int64_t r = j->counts[g]; r < j->rows; r++)
            for (int64_t l = 0; l < j->k; l += 32)
                moit_matrix_set_scale(&j->a, g, r, l, j->a.format.recipe == MOI_RECIPE_MX32 ? power(scale) : scale);
}

static void run(moit_job *j, const moit_rng *rng, const char *define, scale_rule *rule, float behind)
{
    moit_rng own = *rng;
    if (j->a.format.recipe == MOI_RECIPE_MX32) j->mx = MOI_MX_PER_128;
    moit_job_operands(j, &own);
    if (rule) set_scales(&j->a, false, rule), set_scales(&j->b, true, rule);
    if (j->grouping == MOI_GROUP_MASKED) set_behind(j, behind);
    moit_job_plan(j, moit_gpu());
    assert_true(moit_job_chose(j, "OUTER=1") && moit_job_chose(j, define));
    moit_job_fill(j, &own);
    moit_job_run(j);
}

/* P:gemm.bound: reductions in groups of none, one and many blocks, one matrix, masked groups of all, no and few rows; tiles and clusters that are not
 * full, columns in order and woven, BF16 and FP32, stored and added to; scales near, far, and none. */
static void test_outer(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    enum { CASES = 8, K = MOI_GROUP_K, DENSE = MOIT_DENSE, MASKED = MOI_GROUP_MASKED };
    static const struct { int grouping; moi_dtype out; int64_t m, n; const char *define; } cases[CASES] = {
        { K, MOI_F32, 300, 272, "WOVEN=1" },     { K, MOI_F32, 260, 509, "CLUSTER=2" },  { K, MOI_BF16, 390, 140, "OUT_F32=0" },
        { K, MOI_F32, 385, 96, "WOVEN=1" },      { DENSE, MOI_F32, 300, 272, "WOVEN=1" }, { DENSE, MOI_BF16, 390, 421, "OUT_F32=0" },
        { MASKED, MOI_F32, 0, 272, "OUT_F32=1" }, { MASKED, MOI_BF16, 0, 140, "OUT_F32=0" },
    };
    static scale_rule *const rules[] = { NULL, near_scale, small_scale, large_scale, odd_scale, least_scale, large_apart, small_apart };
    static const float behind[] = { NAN, 0.0f, 1.0f };
    static const int64_t cuts[] = { 0, 400, 400, 401, 1210 }, counts[] = { 300, 0, 131, 6 };
    int parts, part = moit_part(&parts);
    for (int i = part; i < CASES * 32; i += parts) {
        const int c = i % CASES, accumulates = i / CASES % 2;
        if (accumulates && cases[c].out != MOI_F32) continue;
        moit_rng rng = moit_seed("tensor outer", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = cases[c].grouping, .out = cases[c].out, .m = cases[c].m, .n = cases[c].n, .k = 1184,
                       .accumulate = accumulates, .sm_limit = 4 };
        if (j.grouping == K) j.groups = 4, j.rows = 1210, j.k = 0;
        if (j.grouping == MASKED) j.groups = 4, j.rows = 300;
        memcpy(j.offsets, cuts, sizeof cuts);
        memcpy(j.counts, counts, sizeof counts);
        j.a.format = j.b.format = i / (2 * CASES) % 2 ? mx : blk;
        if (i % 7 == 3) j.b.format.elem = MOI_E5M2;
        if (i % 7 == 5) j.a.format.elem = MOI_E5M2;
        run(&j, &rng, cases[c].define, rules[i / (4 * CASES)], behind[i % 3]);
        moit_job_check(&j, (uint64_t)i);
        moit_job_close(&j);
    }
}

/* One value of each 128 or none, so that the tensor cores' sums of values are exact: what is left is the error of scales' products, and the roundings. */
static void test_precision(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    enum { BLOCKS = 9, CASES = 3 };
    static scale_rule *const rules[CASES] = { worst_scale, near_scale, edge_scale };
    int parts, part = moit_part(&parts);
    for (int i = part; i < CASES; i += parts) {
        moit_rng rng = moit_seed("tensor outer precision", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_K, .groups = 1, .rows = BLOCKS * 128, .out = MOI_F32, .m = 300, .n = 272, .sm_limit = 4 };
        j.offsets[1] = j.rows;
        j.a.format = j.b.format = i == 2 ? mx : blk;
        if (i == 2) j.mx = MOI_MX_PER_128;
        moit_job_operands(&j, &rng);
        for (int side = 0; side < 2; side++) {
            moit_matrix *x = side ? &j.b : &j.a;
            for (int64_t r = 0; r < x->rows; r++)
                for (int64_t l = 0; l < x->depth; l++)
                    if (l % 128 != l / 128 * 13 || (i == 2 && l / 128 == 4)) ((unsigned char *)x->data)[r * x->ld + l] = 0;
            set_scales(x, side, rules[i]);
        }
        moit_job_plan(&j, moit_gpu());
        assert_true(moit_job_chose(&j, "OUTER=1"));
        moit_job_run(&j);
        double worst = 0.0;
        for (int64_t r = 0; r < j.m; r++)
            for (int64_t c = 0; c < j.n; c++) {
                double sum = 0.0, magnitude = 0.0;
                for (int64_t l = 0; l < j.rows; l++) {
                    const double product = j.a.values[r * j.rows + l] * j.b.values[c * j.rows + l];
                    sum += product, magnitude += fabs(product);
                }
                const double error = fabs((double)((float *)j.d)[r * j.n + c] - sum);
                const double bound = 17 * 0x1p-20 * magnitude + (BLOCKS + 1) * (0x1p-24 * magnitude + 0x1p-150);
                if (!(error <= bound)) fail_msg("%d: D[%lld][%lld] is %g of the bound off", i, (long long)r, (long long)c, error / bound);
                if (magnitude > 0.0) worst = fmax(worst, error / magnitude);
            }
        if (!i) assert_true(worst > 4 * 0x1p-20); /* scales of that kind are near the bound */
        moit_job_close(&j);
    }
}

static moit_job masked_job(int sm_limit)
{
    return (moit_job){ .gpu = true, .grouping = MOI_GROUP_MASKED, .groups = 3, .rows = 300, .out = MOI_F32, .n = 272, .k = 1040, .accumulate = true,
                       .sm_limit = sm_limit, .counts = { 257, 6, 131 } };
}

/* Bits do not depend on the block that a tile falls to, nor on what it had before, nor on scales of rows that do not count. */
static void test_same_bits(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    int parts, part = moit_part(&parts);
    for (int i = part; i < 8; i += parts) {
        moit_rng rng = moit_seed("tensor outer bits", (uint64_t)i);
        void *kept = NULL;
        for (int limit = 2; limit <= 6; limit += 4) {
            moit_job j = { .gpu = true, .grouping = MOI_GROUP_K, .groups = 3, .rows = 1600, .out = MOI_F32, .m = 520, .n = 528, .accumulate = true,
                           .sm_limit = limit };
            j.offsets[1] = 640, j.offsets[2] = 700, j.offsets[3] = 1600;
            if (i >= 4) j = masked_job(limit);
            j.a.format = j.b.format = i % 2 ? mx : blk;
            run(&j, &rng, i < 4 ? "WOVEN=1" : "OUT_F32=1", i / 2 % 2 ? large_scale : near_scale, limit == 2 ? NAN : 1.0f);
            if (kept) assert_memory_equal(kept, j.d, (size_t)(j.lines * moi_row_bytes(j.out, j.n)));
            else moit_job_check(&j, (uint64_t)i);
            moit_free(kept);
            kept = j.d, j.d = NULL;
            moit_job_close(&j);
        }
        moit_free(kept);
    }
}

/* P:gemm.bound: tiles of 192 rows, whose scales threads multiply, where they are faster: two of 128 rows would be half empty. */
static void test_tall(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    enum { CASES = 8 };
    static const struct { int grouping; moi_dtype out; int64_t n; } cases[CASES / 2] = {
        { MOI_GROUP_MASKED, MOI_BF16, 400 }, { MOI_GROUP_MASKED, MOI_F32, 389 }, { MOI_GROUP_K, MOI_F32, 400 }, { MOIT_DENSE, MOI_BF16, 2000 },
    };
    static const int64_t cuts[] = { 0, 4000, 4000, 4001, 7900 }, counts[] = { 190, 0, 131, 6 };
    int parts, part = moit_part(&parts);
    for (int i = part; i < CASES; i += parts) {
        moit_rng rng = moit_seed("tensor outer tall", (uint64_t)i);
        const int c = i / 2;
        moit_job j = { .gpu = true, .grouping = cases[c].grouping, .out = cases[c].out, .m = 190, .n = cases[c].n, .k = 3120,
                       .accumulate = cases[c].out == MOI_F32, .sm_limit = 4 };
        if (j.grouping == MOI_GROUP_K) j.groups = 4, j.rows = 7900, j.k = 0;
        if (j.grouping == MOI_GROUP_MASKED) j.groups = 4, j.rows = 190;
        memcpy(j.offsets, cuts, sizeof cuts);
        memcpy(j.counts, counts, sizeof counts);
        j.a.format = j.b.format = i % 2 ? mx : blk;
        if (i % 2) j.mx = MOI_MX_PER_128;
        moit_job_operands(&j, &rng);
        moit_job_plan(&j, moit_gpu());
        if (!moit_job_chose(&j, "WGS=3") || !moit_job_chose(&j, i % 2 ? "QUADS=1" : "SCALES_BULK=1")) fail_msg("%d: %s", i, j.kernel);
        moit_job_fill(&j, &rng);
        moit_job_run(&j);
        moit_job_check(&j, (uint64_t)i);
        moit_job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_outer), cmocka_unit_test(test_precision), cmocka_unit_test(test_same_bits),
                                        cmocka_unit_test(test_tall) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
