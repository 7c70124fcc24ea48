/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_middle.c: products of one matrix of a few hundred rows on Hopper's tensor cores, in tiles of many widths, as the plan must have chosen. */
#include "support_gpu.h"
#include "support_jobs.h"

#include "../src/cuda/gpu.h"

#define BLK { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_COL, 0 }
#define SQUARES { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_SQUARE, MOI_ROUND_RCEIL, MOI_LAYOUT_COL, 0 }

static moit_job planned(int64_t m, int64_t n, int64_t k, int32_t sms, int64_t ldd, moit_rng *rng)
{
    moit_job j = { .gpu = true, .grouping = MOIT_DENSE, .out = MOI_BF16, .m = m, .n = n, .k = k, .sm_limit = sms, .ldd = ldd };
    j.a.format = (moi_format)BLK, j.b.format = (moi_format)SQUARES;
    moit_job_operands(&j, rng);
    moit_job_plan(&j, moit_gpu());
    return j;
}

static void finish(moit_job *j, moit_rng *rng, uint64_t salt)
{
    moit_job_fill(j, rng);
    moit_job_run(j);
    moit_job_check(j, salt);
    moit_job_close(j);
}

/* A second tile that begins within a square of B; D by lines, by boxes of 64 or of 32 columns, by neither (rows that begin anywhere, or end within 16
 * bytes), with and without something behind its rows; one warpgroup alone, which has two stages' products, of as many stages as rounds of four, or more;
 * last rows that are few; more tiles than blocks, or one for each; so many stages that their scales of B are fetched twice, or just not. */
static void test_widths(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { int64_t m, n, k; int32_t sms; const char *tile; bool lone; int64_t ldd; } cases[] = {
        { 200, 192, 1040, 3, "WGS=2 WAVES=1 BN=64", false, 0 },  { 260, 60, 400, 4, "WGS=2 WAVES=1 BN=64", true, 0 },
        { 135, 60, 400, 3, "WGS=1 WAVES=1 BN=64", true, 0 },     { 129, 60, 1040, 4, "WGS=1 WAVES=1 BN=64", true, 0 },
        { 385, 190, 1040, 3, "WGS=2 WAVES=1 BN=96", false, 0 },  { 200, 96, 400, 3, "WGS=2 WAVES=1 BN=96", true, 0 },
        { 150, 152, 400, 3, "WGS=1 WAVES=1 BN=96", false, 0 },   { 135, 70, 1040, 3, "WGS=1 WAVES=1 BN=96", true, 0 },
        { 260, 312, 400, 4, "WGS=1 WAVES=1 BN=128", false, 0 },  { 130, 104, 272, 3, "WGS=1 WAVES=1 BN=128", true, 0 },
        { 385, 288, 400, 4, "WGS=2 WAVES=1 BN=160", false, 0 },  { 200, 160, 400, 3, "WGS=2 WAVES=1 BN=160", true, 0 },
        { 200, 70, 2080, 3, "WGS=2 WAVES=1 BN=80", true, 0 },    { 200, 144, 4160, 3, "WGS=2 WAVES=1 BN=144", true, 0 },
        { 260, 256, 400, 3, "WGS=2 WAVES=1 BN=128", false, 0 },  { 300, 100, 1200, 3, "WGS=2 WAVES=1 BN=128", true, 0 },
        { 200, 95, 400, 3, "WGS=2 WAVES=1 BN=96", true, 97 },    { 150, 149, 400, 3, "WGS=1 WAVES=1 BN=96", false, 151 },
        { 200, 95, 400, 3, "WGS=2 WAVES=1 BN=96", true, 104 },   { 200, 88, 400, 3, "WGS=2 WAVES=1 BN=96", true, 104 },
        { 260, 56, 400, 4, "WGS=2 WAVES=1 BN=64", true, 72 },    { 260, 59, 400, 4, "WGS=2 WAVES=1 BN=64", true, 72 },
        { 385, 184, 1040, 3, "WGS=2 WAVES=1 BN=96", false, 200 }, { 135, 72, 1040, 3, "WGS=1 WAVES=1 BN=96", true, 88 },
        { 135, 56, 8352, 3, "WGS=1 WAVES=1 BN=64", true, 0 },     { 260, 125, 400, 3, "WGS=2 WAVES=1 BN=128", true, 136 },
        { 200, 424, 4160, 3, "WGS=2 WAVES=1 BN=144", false, 0 },  { 260, 56, 8352, 4, "WGS=2 WAVES=1 BN=64", true, 0 },
        { 260, 56, 8192, 4, "WGS=2 WAVES=1 BN=64", true, 0 },     { 200, 424, 8192, 3, "WGS=2 WAVES=1 BN=144", false, 0 },
        { 200, 424, 8352, 3, "WGS=2 WAVES=1 BN=144", false, 0 },
    };
    int parts, part = moit_part(&parts), count = (int)(sizeof cases / sizeof *cases);
    for (int i = part; i < count; i += parts) {
        moit_rng rng = moit_seed("tensor widths", (uint64_t)i);
        moit_job j = planned(cases[i].m, cases[i].n, cases[i].k, cases[i].sms, cases[i].ldd, &rng);
        assert_true(moit_job_chose(&j, cases[i].tile) && !moit_job_chose(&j, "SHORT="));
        assert_int_equal(moit_job_chose(&j, "LONE=1"), cases[i].lone);
        finish(&j, &rng, (uint64_t)i);
    }
}

/* The reduction in two parts, where tiles leave half of the multiprocessors without work: at least eight. */
static void test_parts(void **state)
{
    (void)state;
    if (!moit_hopper() || moii_gpu_of(moit_gpu())->sms < 8) skip();
    static const struct { int64_t m, n, k; } cases[] = { { 129, 40, 2080 }, { 160, 90, 2080 }, { 190, 120, 3120 } };
    int parts, part = moit_part(&parts);
    for (int i = part; i < 3; i += parts) {
        moit_rng rng = moit_seed("tensor middle parts", (uint64_t)i);
        moit_job j = planned(cases[i].m, cases[i].n, cases[i].k, 0, 0, &rng);
        assert_true(moit_job_chose(&j, "SPLIT=2") && moit_job_chose(&j, "WGS=1") && !moit_job_chose(&j, "SHORT="));
        finish(&j, &rng, (uint64_t)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_widths), cmocka_unit_test(test_parts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
