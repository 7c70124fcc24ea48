/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_mixed.c: of products with 1x32 scales, whose weights become FP16 where they are multiplied: who does them, and rows of A in a tile. */
#include "support.h"

#include <math.h>

#include "../src/cuda/tensor_product.h"

static const moi_format mxfp8 = MOII_TENSOR_MXFP8, cols = MOII_TENSOR_MXFP8_COLS, mxfp4 = MOII_TENSOR_MXFP4, plain = MOII_TENSOR_BF16;

typedef enum done_by { OTHERS, MIXED, HALVES } done_by;
typedef struct tile_case {
    int grouping;
    const moi_format *a, *b;
    int64_t groups, rows, n, k; /* rows of a group */
    done_by by;
    int tile;
} tile_case;

static void check_case(const tile_case *c, size_t i)
{
    const char *why;
    const bool ragged = c->grouping == PRODUCT_ROWS;
    moii_tensor_product p = { .grouping = c->grouping, .a = c->a, .b = c->b, .groups = c->groups, .m = ragged ? c->groups * c->rows : c->rows, .n = c->n,
                              .k = c->k, .sms = 132 };
    if (!moii_tensor_fits(&p, MOI_BF16, &why)) fail_msg("case %zu: %s", i, why);
    moii_tensor_settle(&p, 132);
    const moii_tensor_tile t = moii_tensor_choose(&p);
    const done_by by = p.halves ? HALVES : p.mixed ? MIXED : OTHERS;
    if (by != c->by || (by != OTHERS && t.bn != c->tile)) fail_msg("case %zu: %d, tiles of %d rows", i, (int)by, t.bn);
    if (by != OTHERS) assert_true(!p.unpacked && p.b->elem == c->b->elem);
}

static void check(const tile_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) check_case(&cases[i], i);
}

/* One tile for as many rows as mostly fit it; 144 not where it would leave multiprocessors idle, nor 96 where one round takes all tiles and there are nearly as
 * many rows. */
static void test_tiles(void **state)
{
    (void)state;
    static const tile_case cases[] = {
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 128, 64, 1536, 2048, MIXED, 64 },   { PRODUCT_ROWS, &mxfp8, &mxfp8, 128, 65, 1536, 2048, MIXED, 96 },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 128, 85, 1536, 2048, MIXED, 96 },   { PRODUCT_ROWS, &mxfp8, &mxfp8, 128, 86, 1536, 2048, MIXED, 128 },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 128, 128, 1536, 2048, MIXED, 128 }, { PRODUCT_ROWS, &mxfp8, &mxfp8, 128, 129, 1536, 2048, MIXED, 144 },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 128, 156, 1536, 2048, MIXED, 144 }, { PRODUCT_ROWS, &mxfp8, &mxfp8, 128, 157, 1536, 2048, MIXED, 128 },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 8, 71, 4096, 7168, MIXED, 96 },     { PRODUCT_ROWS, &mxfp8, &mxfp8, 8, 73, 4096, 7168, MIXED, 128 },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 8, 136, 4096, 7168, MIXED, 144 },   { PRODUCT_ROWS, &mxfp8, &mxfp8, 8, 136, 2048, 7168, MIXED, 128 },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 16, 136, 1024, 2048, MIXED, 128 },  { PRODUCT_MASKED, &mxfp8, &mxfp8, 64, 144, 2048, 2048, MIXED, 144 },
        { PRODUCT_DENSE, &plain, &mxfp8, 1, 136, 16896, 7168, MIXED, 128 }, { PRODUCT_DENSE, &mxfp8, &mxfp8, 1, 512, 7168, 16384, MIXED, 128 },
    };
    check(cases, sizeof cases / sizeof *cases);
}

/* Experts' weights alone, in E4M3 or E2M1: reductions of any number of whole blocks, scales anyhow; of one matrix scales in words, and E2M1 from 257 rows
 * on. */
static void test_alone(void **state)
{
    (void)state;
    static const tile_case cases[] = {
        { PRODUCT_ROWS, &plain, &mxfp8, 128, 64, 1536, 2048, HALVES, 64 },   { PRODUCT_ROWS, &plain, &mxfp8, 128, 65, 1536, 2048, MIXED, 96 },
        { PRODUCT_ROWS, &plain, &mxfp4, 128, 32, 5760, 2880, HALVES, 64 },   { PRODUCT_ROWS, &plain, &mxfp4, 128, 33, 5760, 2880, MIXED, 64 },
        { PRODUCT_ROWS, &plain, &mxfp4, 128, 64, 5760, 2880, MIXED, 64 },    { PRODUCT_ROWS, &plain, &mxfp4, 128, 65, 5760, 2880, MIXED, 96 },
        { PRODUCT_ROWS, &plain, &mxfp4, 128, 156, 5760, 2880, MIXED, 144 },  { PRODUCT_ROWS, &plain, &mxfp4, 128, 1700, 5760, 2880, MIXED, 128 },
        { PRODUCT_ROWS, &plain, &mxfp4, 128, 1701, 5760, 2880, OTHERS, 0 },  { PRODUCT_ROWS, &plain, &cols, 8, 100, 4096, 7168, MIXED, 128 },
        { PRODUCT_MASKED, &plain, &mxfp4, 8, 100, 4096, 96, MIXED, 128 },    { PRODUCT_DENSE, &plain, &mxfp4, 1, 256, 24576, 1536, HALVES, 64 },
        { PRODUCT_DENSE, &plain, &mxfp4, 1, 257, 22528, 1536, MIXED, 128 },  { PRODUCT_DENSE, &plain, &mxfp4, 1, 257, 22528, 1568, OTHERS, 0 },
        { PRODUCT_ROWS, &plain, &mxfp8, 128, 1700, 1536, 2048, MIXED, 128 }, { PRODUCT_ROWS, &plain, &mxfp8, 128, 1701, 1536, 2048, OTHERS, 0 },
        { PRODUCT_DENSE, &plain, &cols, 1, 100, 24576, 1536, HALVES, 64 },   { PRODUCT_DENSE, &plain, &mxfp8, 1, 100, 33792, 1536, MIXED, 128 },
    };
    check(cases, sizeof cases / sizeof *cases);
}

/* Products that MoE decode plans for so many rows in the mean (decode_grouped.c) have these tiles for any number of experts. */
static void test_means(void **state)
{
    (void)state;
    static const struct { int64_t mean; int tile; const moi_format *b; bool halves; } means[] = {
        { 58, 64, &mxfp8, true }, { 78, 96, &mxfp8, false }, { 116, 128, &mxfp8, false }, { 146, 144, &mxfp8, false }, { 1669, 128, &mxfp8, false },
        { 28, 64, &mxfp4, true }, { 58, 64, &mxfp4, false }, { 78, 96, &mxfp4, false },   { 146, 144, &mxfp4, false }, { 1669, 128, &mxfp4, false },
    };
    for (int64_t experts = 8; experts <= 512; experts *= 2)
        for (size_t i = 0; i < sizeof means / sizeof *means && means[i].mean * experts < 1 << 19; i++) {
            const double slots = (double)(means[i].mean * experts);
            const int64_t planned = (int64_t)(slots + 0.75 * sqrt(slots * (double)experts)), rows = (planned + experts - 1) / experts;
            const tile_case c = { PRODUCT_ROWS, &plain, means[i].b, experts, rows, 8192, 2048, means[i].halves ? HALVES : MIXED, means[i].tile };
            check_case(&c, i);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_tiles), cmocka_unit_test(test_alone), cmocka_unit_test(test_means) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
