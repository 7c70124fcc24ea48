/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_unpack.c: weights in E2M1 beside BF16 on Hopper's tensor cores: the bits of the same values in E4M3. */
#include "support_gpu.h"
#include "support_jobs.h"

#include <stdlib.h>

/* The same matrix in E4M3; it owns what it has. */
static moit_matrix in_e4m3(const moit_matrix *m)
{
    moit_matrix to = *m;
    to.format.elem = MOI_E4M3, to.pad = 0, to.ld = m->depth;
    to.data_bytes = m->batch * m->rows * m->depth;
    to.data = moit_alloc(to.data_bytes), to.scale = moit_alloc(to.scale_bytes);
    memcpy(to.scale, m->scale, (size_t)m->scale_bytes);
    to.values = malloc((size_t)(m->batch * m->rows * m->depth) * sizeof(double) + 1);
    for (int64_t r = 0; r < m->batch * m->rows; r++)
        for (int64_t l = 0; l < m->depth; l++) {
            const char *line = (const char *)m->data + r * moi_row_bytes(m->format.elem, m->ld);
            moi_encode(MOI_E4M3, (char *)to.data + r * to.ld, l, moi_decode(m->format.elem, line, l));
        }
    moit_matrix_read(&to);
    for (int64_t i = 0; i < m->batch * m->rows * m->depth; i++) assert_true(to.values[i] == m->values[i]);
    return to;
}

/* D of a plan of its own, whose kernel's defines have this one and its tile or, NULL, whatever. */
static void *result(moit_job *j, moit_rng rng, const char *define, const char *tile)
{
    moit_job_plan(j, moit_gpu());
    assert_true((!define || moit_job_chose(j, define)) && (!tile || moit_job_chose(j, tile)));
    moit_job_fill(j, &rng);
    moit_job_run(j);
    moit_job_check(j, 0);
    void *d = j->d;
    free(j->before);
    moi_plan_free(j->plan);
    return d;
}

/* Few rows of each group, in whose products codes become FP16 as they lie, and more, groups without any, of which nothing is unpacked,
 * copies of B in BF16, lists of rows, scales in all layouts, rows apart. */
static void test_same_bits(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    static const struct {
        int grouping;
        moi_layout layout;
        int64_t cuts[5], m, n, k, pad, gather;
        int32_t sm_limit;
        bool as_they_lie, unpacked, adds, overlap; /* the first: codes of E2M1 become FP16 in the product; the second: E4M3 in front of it */
        const char *tile;                /* that only mixed_sm90 has */
    } cases[] = {
        { .grouping = MOI_GROUP_M, .cuts = { 0, 3, 3, 90, 91 }, .n = 136, .k = 256, .as_they_lie = true },
        { .grouping = MOI_GROUP_M, .cuts = { 0, 3, 3, 90, 91 }, .as_they_lie = true, .n = 136, .k = 256, .pad = 64, .gather = 40, .overlap = true,
          .adds = true },
        { .grouping = MOI_GROUP_M, .layout = MOI_LAYOUT_TILED, .cuts = { 0, 400, 1000, 1000, 1440 }, .n = 264, .k = 384, .sm_limit = 4 },
        { .grouping = MOI_GROUP_M, .layout = MOI_LAYOUT_COL, .cuts = { 0, 0, 70, 75, 75 }, .as_they_lie = true, .n = 80, .k = 96, .overlap = true },
        { .grouping = MOI_GROUP_M, .cuts = { 0, 100, 1700, 1701, 3200 }, .n = 24, .k = 160, .gather = 300 },
        { .grouping = MOI_GROUP_MASKED, .cuts = { 5, 0, 32, 20 }, .m = 32, .as_they_lie = true, .n = 200, .k = 128, .pad = 32 },
        { .grouping = MOIT_DENSE, .layout = MOI_LAYOUT_TILED, .as_they_lie = true, .m = 33, .n = 300, .k = 512, .sm_limit = 8, .overlap = true },
        { .grouping = MOI_GROUP_M, .cuts = { 0, 100, 180, 330, 560 }, .n = 264, .k = 416, .as_they_lie = true, .overlap = true, .tile = "BN=144" },
        { .grouping = MOI_GROUP_M, .layout = MOI_LAYOUT_COL, .cuts = { 0, 80, 160, 161, 280 }, .n = 136, .k = 96, .as_they_lie = true, .adds = true,
          .tile = "BN=96" },
        { .grouping = MOI_GROUP_M, .layout = MOI_LAYOUT_TILED, .cuts = { 0, 200, 300, 301, 700 }, .n = 72, .k = 544, .as_they_lie = true, .gather = 90,
          .tile = "BN=128" },
        { .grouping = MOI_GROUP_MASKED, .cuts = { 100, 0, 120, 64 }, .m = 120, .as_they_lie = true, .n = 300, .k = 288, .pad = 32, .tile = "BN=128" },
        { .grouping = MOIT_DENSE, .as_they_lie = true, .m = 300, .n = 1000, .k = 256, .sm_limit = 4, .tile = "BN=128" },
        { .grouping = MOI_GROUP_M, .cuts = { 0, 0, 3500, 3500, 7000 }, .n = 24, .k = 64, .unpacked = true },
        { .grouping = MOI_GROUP_MASKED, .cuts = { 5, 0, 1590, 20 }, .m = 1616, .n = 24, .k = 64, .unpacked = true },
        { .grouping = MOIT_DENSE, .m = 400, .n = 72, .k = 224, .pad = 32, .adds = true },
    };
    int parts, part = moit_part(&parts);
    for (int i = part; i < (int)(sizeof cases / sizeof *cases); i += parts) {
        moit_rng rng = moit_seed("tensor unpack", (uint64_t)i);
        moit_job j = { .gpu = true, .grouping = cases[i].grouping, .out = cases[i].adds ? MOI_F32 : MOI_BF16, .accumulate = cases[i].adds, .m = cases[i].m,
                       .n = cases[i].n, .k = cases[i].k, .sm_limit = cases[i].sm_limit, .overlap = cases[i].overlap };
        j.a.format = MOI_FORMAT_BF16, j.b.format = MOI_FORMAT_MXFP4, j.b.format.layout = cases[i].layout, j.b.pad = cases[i].pad;
        if (j.grouping != MOIT_DENSE) j.groups = 4, j.rows = j.grouping == MOI_GROUP_M ? cases[i].cuts[4] : cases[i].m;
        if (j.grouping == MOI_GROUP_M) memcpy(j.offsets, cases[i].cuts, sizeof cases[i].cuts);
        else if (j.grouping == MOI_GROUP_MASKED) memcpy(j.counts, cases[i].cuts, 4 * sizeof *j.counts);
        if (cases[i].gather) moit_job_gather(&j, &rng, cases[i].gather);
        moit_job_operands(&j, &rng);
        const char *copied = cases[i].unpacked ? "SCALING=0" : NULL; /* in BF16, of what was unpacked */
        void *first = result(&j, rng, cases[i].as_they_lie ? "ELEM_B=8" : copied, cases[i].tile);
        moit_matrix narrow = j.b;
        j.b = in_e4m3(&narrow);
        void *second = result(&j, rng, cases[i].as_they_lie ? "ELEM_B=4" : copied, cases[i].tile);
        assert_memory_equal(first, second, (size_t)(j.lines * moit_job_line(&j)));
        moit_free(first), moit_free(second);
        moit_matrix_free(&narrow), moit_matrix_free(&j.a), moit_matrix_free(&j.b);
        moit_job_free_lists(&j);
    }
}

/* Of rows that are no whole blocks, and beside another format: another row's. */
static void test_refused(void **state)
{
    (void)state;
    if (!moit_hopper()) skip();
    moi_gemm_desc d = { .size = sizeof d, .row = "gemm_sm90", .a = MOI_FORMAT_BF16, .b = MOI_FORMAT_MXFP4, .out = MOI_BF16, .max_m = 4, .n = 16, .k = 48 };
    moi_plan *plan;
    moit_refused(moi_gemm_plan_create(&plan, moit_gpu(), &d), MOI_ERR_UNSUPPORTED, "E2M1 in rows of whole blocks, beside a in BF16");
    d.k = 64, d.a = MOI_FORMAT_MXFP8;
    moit_refused(moi_gemm_plan_create(&plan, moit_gpu(), &d), MOI_ERR_UNSUPPORTED, "E2M1 in rows of whole blocks, beside a in BF16");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_bits), cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
