/* SPDX-License-Identifier: Apache-2.0
 * test_quantize_rows.c: results along rows alone, from BF16: every scale layout of each format, in few shapes, so that the emulated device makes all. */
#include "support_quantize.h"

#include <string.h>

static const struct { moi_format format; moi_mx_scales mx; } kinds[] = {
    { { MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_TILED, 0 }, MOI_MX_FREE },
    { { MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_TILED, 0 }, MOI_MX_PER_128 },
    { { MOI_RECIPE_MX32, MOI_E5M2, MOI_BLOCK_VECTOR, MOI_ROUND_FLOOR, MOI_LAYOUT_ROW, 0 }, MOI_MX_FREE },
    { { MOI_RECIPE_MX32, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_EVEN, MOI_LAYOUT_COL, 0 }, MOI_MX_FREE },
    { { MOI_RECIPE_BLK128, MOI_E4M3, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_COL, 0 }, MOI_MX_FREE },
    { { MOI_RECIPE_BLK128, MOI_E5M2, MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, MOI_LAYOUT_ROW, 0 }, MOI_MX_FREE },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Whole packets and pieces, more than one span of 256 columns and less, rows that fill no octet and no 128; every second case with NaN and Inf. */
static void test_layouts(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 130, 520 }, { 37, 130 }, { 128, 256 }, { 3, 72 } };
    enum { SIZES = sizeof sizes / sizeof *sizes };
    int ran[16] = { 0 };
    for (int k = 0; k < KINDS * SIZES; k++) {
        moit_quant t = { .in = MOI_BF16, .f = { kinds[k % KINDS].format, kinds[k % KINDS].format }, .want = 1, .rows = sizes[k / KINDS][0],
                         .cols = sizes[k / KINDS][1], .batch = 1 + k % 5 / 4 };
        t.mx[0] = kinds[k % KINDS].mx;
        moit_quant_input(&t, (uint64_t)k + 400, k / KINDS % 2 == k % 2);
        moit_quant_all_agree(&t, ran);
    }
    const char *row;
    for (int r = 0; r < 16 && (row = moit_any_row("quantize", r)); r++)
        if (ran[r] == 0 && !strcmp(row, "quantize_octets_sm90")) fail_msg("%s takes none of the cases", row);
}

/* More matrices than a launch counts in one direction. */
static void test_many_matrices(void **state)
{
    (void)state;
    moit_quant t = { .in = MOI_BF16, .f = { MOI_FORMAT_MXFP8, MOI_FORMAT_MXFP8 }, .want = 1, .rows = 1, .cols = 40, .batch = 65540 };
    int ran[16] = { 0 };
    if (!moit_picked(3)) return;
    moit_quant_input(&t, 77, 0);
    moit_quant_all_agree(&t, ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_layouts), cmocka_unit_test(test_many_matrices) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
