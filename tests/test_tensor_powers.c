/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_powers.c: operands of mixed_sm90 whose scales lie far apart along a row: what FP16 has of weights moves, and sums with it. */
#include "support_gpu.h"
#include "support_jobs.h"

#include <math.h>

typedef enum pattern { RISING, FALLING, JUMPS, APART, LOWEST, HIGHEST, ZEROS, ENDS, LARGE_ROWS, NANS, PATTERNS } pattern;

/* The power of two of a block's scale, of so many of a row. */
static int power_at(pattern p, int64_t row, int64_t block, int64_t blocks)
{
    switch (p) {
    case RISING: return -100 + 7 * (int)block + (int)(row % 5);
    case FALLING: return 60 - 7 * (int)block - (int)(row % 3);
    case JUMPS: return block % 7 == 3 ? 90 : -30 + (int)(row % 3);
    case APART: return 12 * (int)(block % 4) - 20 + (int)(row % 2);
    case LOWEST: return block % 6 ? -127 + (int)(row % 9) : -90;
    case HIGHEST: return 118 + (int)(row % 2);
    case ZEROS: return block == 1 ? 44 : block < 4 ? 28 : -9 - (int)(block % 3);
    case ENDS: return block < blocks - 4 ? -7 : -127;
    case LARGE_ROWS: return -20;
    default: return -12 + (int)(block % 9) * (row % 2 ? 3 : 1);
    }
}

/* ZEROS: the highest scales are of zeros alone in every other row, and what lies 37 to 55 powers below them is all that there is.  ENDS: a row ends
 * with zeros of the lowest scale.  NANS: some scales are NaN, some codes. */
static void set_scales(moit_matrix *b, pattern p)
{
    for (int64_t g = 0; g < b->batch; g++)
        for (int64_t r = 0; r < b->rows; r++)
            for (int64_t l = 0; l < b->depth; l += 32) {
                const bool nan = p == NANS && r % 11 == 3 && l / 32 % 5 == r % 5;
                moit_matrix_set_scale(b, g, r, l, nan ? NAN : ldexpf(1.0f, power_at(p, r, l / 32, b->depth / 32)));
            }
    for (int64_t r = 0; p == ZEROS && r < b->rows; r++)
        for (int64_t l = r % 2 ? 0 : 32; l < (r % 2 ? 128 : 64) && l < b->depth; l++) moit_matrix_set(b, r, l, 0.0f);
    for (int64_t r = 0; p == ENDS && r < b->rows; r++)
        for (int64_t l = b->depth > 128 ? b->depth - 128 : 0; l < b->depth; l++) moit_matrix_set(b, r, l, 0.0f);
    for (int64_t r = 5; p == NANS && b->format.elem == MOI_E4M3 && r < b->rows; r += 17) moit_matrix_set(b, r, r % b->depth, NAN);
    moit_matrix_read(b);
}

/* Rows of A whose factors are as far on the other side; one that is nowhere negative, beside codes of 1 with a scale that is NaN. */
static void set_rows(moit_matrix *a, moit_matrix *b, pattern p)
{
    const int power = p == LOWEST || p == LARGE_ROWS ? 112 : p == ENDS ? 90 : p == HIGHEST ? -105 : 0;
    for (int64_t r = 0; power && r < a->rows; r += power < 0 ? 1 : 2)
        for (int64_t l = 0; l < a->depth; l++) moit_matrix_set(a, r, l, ldexpf((float)a->values[r * a->depth + l], power));
    for (int64_t l = 0; p == NANS && l < a->depth; l++) {
        moit_matrix_set(a, 0, l, fabsf((float)a->values[l]));
        for (int64_t r = 3; r < b->rows; r += 11) moit_matrix_set(b, r, l, 1.0f);
    }
    moit_matrix_read(a), moit_matrix_read(b);
}

/* Groups of few and many rows, for which tiles are cut, reductions that end within a stage and scales that lie in words, in halves of them, and anyhow. */
static void test_far_scales(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct { int64_t k; moi_layout layout; } cases[] = {
        { 640, MOI_LAYOUT_ROW }, { 448, MOI_LAYOUT_ROW }, { 160, MOI_LAYOUT_ROW }, { 512, MOI_LAYOUT_TILED }, { 352, MOI_LAYOUT_COL },
    };
    enum { CASES = sizeof cases / sizeof *cases, ALL = 2 * PATTERNS * CASES };
    int parts, part = moit_part(&parts);
    for (int i = part; i < ALL; i += parts) {
        const pattern p = (pattern)(i / 2 % PATTERNS);
        const int c = i / (2 * PATTERNS);
        moit_rng rng = moit_seed("far scales", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = i % 3 ? MOI_BF16 : MOI_F32, .n = 136, .k = cases[c].k, .groups = 1, .sm_limit = 2 };
        j.a.format = MOI_FORMAT_BF16, j.b.format = i % 2 ? MOI_FORMAT_MXFP4 : MOI_FORMAT_MXFP8, j.b.format.layout = cases[c].layout;
        j.rows = 66 + 30 * (i % 4), j.offsets[1] = j.rows;
        moit_job_operands(&j, &rng);
        set_scales(&j.b, p);
        set_rows(&j.a, &j.b, p);
        moit_job_prove(&j, "mixed_sm90", &rng, (uint64_t)i);
    }
}

/* Rows of A in codes that become FP16, too: their largest values are not where their largest scales are. */
static void test_far_rows(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    enum { ALL = 8 };
    int parts, part = moit_part(&parts);
    for (int i = part; i < ALL; i += parts) {
        moit_rng rng = moit_seed("far rows", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = MOI_F32, .n = 72, .k = i % 4 < 2 ? 512 : 128, .groups = 1, .sm_limit = 1 };
        j.a.format = j.b.format = MOI_FORMAT_MXFP8;
        if (i % 2) j.a.format.elem = MOI_E5M2;
        j.rows = j.offsets[1] = 66;
        moit_job_operands(&j, &rng);
        for (int64_t r = 0; r < j.a.rows; r++)
            for (int64_t l = 0; l < j.k; l++) { /* zeros with a scale of 1, others far below; small values with it, larger ones behind */
                const bool first = l / 32 % 4 == 0;
                moit_matrix_set(&j.a, r, l, first ? (i < 4 ? 0.0f : 0x1p-6f) : ldexpf((float)(1 + (r + l) % 7), i < 4 ? 0 : -3));
                if (l % 32 == 0) moit_matrix_set_scale(&j.a, 0, r, l, first ? (i == 2 || i == 3 ? 0x1p70f : 1.0f) : i < 4 ? 0x1p-45f : 0x1p-20f);
            }
        moit_matrix_read(&j.a);
        moit_job_prove(&j, "mixed_sm90", &rng, (uint64_t)i);
    }
}

/* Tiles with far powers and with near ones by turns, of one block: sums leave them by different ways through the same memory. */
static void test_far_and_near(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    enum { ALL = 4, HALF = 128 }; /* rows of B of a tile, that go one way */
    int parts, part = moit_part(&parts);
    for (int i = part; i < ALL; i += parts) {
        moit_rng rng = moit_seed("far and near", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = MOI_GROUP_M, .out = MOI_BF16, .n = 10 * HALF - 40, .k = i % 2 ? 96 : 256, .groups = 1, .sm_limit = 1 };
        j.a.format = MOI_FORMAT_BF16, j.b.format = i / 2 ? MOI_FORMAT_MXFP4 : MOI_FORMAT_MXFP8;
        j.rows = j.offsets[1] = 70 + 60 * (i % 2);
        moit_job_operands(&j, &rng);
        for (int64_t r = 0; r < j.n; r++)
            for (int64_t l = 0; l < j.k && r / HALF % 5 < 3; l += 32) moit_matrix_set_scale(&j.b, 0, r, l, r % 3 ? 0x1p-45f : 0x1p45f);
        moit_matrix_read(&j.b);
        moit_job_prove(&j, "mixed_sm90", &rng, (uint64_t)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_far_scales), cmocka_unit_test(test_far_rows), cmocka_unit_test(test_far_and_near) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
