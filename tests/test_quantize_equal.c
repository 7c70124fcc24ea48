/* SPDX-License-Identifier: Apache-2.0
 * test_quantize_equal.c: the quantiser's equal scales (rowwise_mx, colwise_mx), which are those of quantising, then rebasing. */
#include "support_quantize.h"

#include <string.h>

#include "format.h"

static const moi_dtype inputs[] = { MOI_F32, MOI_BF16, MOI_F16 };

/* Columns first .. last - 1 of a side's matrix i, which lie from `start` on in its rows, rebased by themselves. */
static void rebase_part(const moit_quant *t, int side, int64_t i, int64_t start, int64_t cols)
{
    const moi_format *f = &t->f[side];
    int64_t rows = moit_quant_rows(t, side), row_bytes = moit_quant_row_bytes(t, side), width = moii_ceil_div(cols, MOII_MX_BLOCK);
    int64_t blocks = moi_scale_blocks(f, moit_quant_cols(t, side), side ? t->groups : 0), first = start / MOII_MX_BLOCK;
    unsigned char *data = (unsigned char *)t->data[side] + i * rows * row_bytes, *scale = (unsigned char *)t->scale[side] + i * t->scale_bytes[side] / t->batch;
    unsigned char *codes = moit_alloc(rows * cols), *scales = moit_alloc(rows * width);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(codes + r * cols, data + r * row_bytes + start, (size_t)cols);
        for (int64_t b = 0; b < width; b++) scales[r * width + b] = scale[moi_scale_index(f->layout, MOI_E8M0, r, first + b, rows, blocks)];
    }
    moi_rebase_desc d = MOI_REBASE_DESC_INIT;
    d.row = "rebase_ref", d.format = *f, d.format.layout = MOI_LAYOUT_ROW, d.group = t->mx[side] == MOI_MX_PER_128 ? 128 : 0;
    d.max_rows = rows, d.cols = cols;
    moi_plan *plan;
    moit_ok(moi_rebase_plan_create(&plan, moit_ctx(0), &d));
    moi_rebase_args a = { .size = sizeof a, .rows = rows, .in = { codes, scales, 0 }, .out = { codes, scales, 0 } };
    moit_ok(moi_rebase_run(plan, &a, NULL, 0, NULL));
    moi_plan_free(plan);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(data + r * row_bytes + start, codes + r * cols, (size_t)cols);
        for (int64_t b = 0; b < width; b++) scale[moi_scale_index(f->layout, MOI_E8M0, r, first + b, rows, blocks)] = scales[r * width + b];
    }
    moit_free(codes), moit_free(scales);
}

/* What the results must be: quantised without equal scales, then rebased, each group's part by itself. */
static void expect(const moit_quant *t, moit_quant *want)
{
    *want = *t;
    want->mx[0] = want->mx[1] = MOI_MX_FREE;
    moit_quant_outputs(want);
    moit_quant_run(want, "quantize_ref");
    want->mx[0] = t->mx[0], want->mx[1] = t->mx[1];
    for (int side = 0; side < 2; side++) {
        if (!t->mx[side] || moit_quant_rows(t, side) == 0) continue;
        const int64_t whole[] = { 0, moit_quant_cols(t, side) };
        const bool cut = side && t->groups;
        const int64_t *offsets = cut ? t->offsets : whole;
        for (int64_t i = 0; i < t->batch; i++)
            for (int64_t g = 0; g < (cut ? t->groups : 1); g++)
                if (offsets[g + 1] > offsets[g])
                    rebase_part(want, side, i, cut ? moii_ragged_start(&t->f[1], offsets[g], g) : 0, offsets[g + 1] - offsets[g]);
    }
}

static void case_of(moit_quant *t, uint64_t salt, int nonfinite, int ran[16])
{
    moit_quant_input(t, salt, nonfinite);
    moit_quant want, out;
    expect(t, &want);
    for (int r = 0; r < 16 && moit_any_row("quantize", r); r++) {
        out = *t;
        moit_quant_outputs(&out);
        bool takes = moit_quant_run(&out, moit_any_row("quantize", r));
        for (int side = 0; takes && side < 2; side++)
            if (t->want & 1u << side) moit_quant_same(&want, &out, side, moit_any_row("quantize", r));
        ran[r] += takes;
        moit_quant_free(&out);
    }
    moit_quant_free(&want), moit_free(t->x);
}

/* P:quantize.rebase along rows */
static void test_rows(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 3, 256 }, { 128, 128 }, { 130, 1088 }, { 1, 1 }, { 260, 256 }, { 16, 7168 }, { 0, 64 }, { 5, 0 }, { 140, 2100 } };
    static const int64_t cuts[] = { 0, 1, 1, 60, 130, 130 };
    int ran[16] = { 0 };
    for (int k = 0; k <= 9 * 2 * 3 * 4; k++) {
        if (!moit_picked((uint64_t)k)) continue;
        moit_quant t = { .in = inputs[(k + k / 54) % 3], .f = { MOI_FORMAT_MXFP8, MOI_FORMAT_MXFP8 }, .want = k % 4 == 3 ? 3 : 1, .rows = sizes[k % 9][0],
                         .cols = sizes[k % 9][1], .batch = k % 5 == 4 && sizes[k % 9][0] % 16 == 0 ? 2 : 1, .pad = k % 7 == 6 ? 3 : 0 };
        t.mx[0] = (moi_mx_scales)(1 + k / 9 % 2);
        t.f[0].layout = (moi_layout)(k / 18 % 3), t.f[0].round = (moi_round)(k / 54 % 4);
        if (k == 9 * 2 * 3 * 4) /* many rounds of blocks; scales that are repeated */
            t.in = MOI_BF16, t.rows = 33000, t.cols = 136, t.mx[0] = MOI_MX_PER_ROW, t.f[0].layout = MOI_LAYOUT_TILED;
        if (t.want == 3 && t.rows >= 130 && t.batch == 1) t.groups = 5, t.offsets = cuts;
        case_of(&t, (uint64_t)k + 3000, k % 4 == 1 || k % 8 == 7, ran);
    }
    for (int r = 0; r < 16 && moit_picked(1) && moit_any_row("quantize", r); r++)
        if (ran[r] == 0 && strcmp(moit_any_row("quantize", r), "quantize_columns_sm90"))
            fail_msg("%s takes none of the cases", moit_any_row("quantize", r));
}

/* P:quantize.rebase down columns: whole and in groups that begin and end anywhere, alone, beside rows, and beside rows with equal scales; tiles and strips
 * that are cut, a poisoned part of one. */
static void test_columns(void **state)
{
    (void)state;
    enum { SIZES = 9, CUTS = 6, GROUPS = 5, TURNS = 9 };
    static const int64_t sizes[SIZES][2] = { { 300, 256 }, { 128, 128 }, { 33, 70 }, { 700, 384 }, { 1, 128 }, { 513, 128 }, { 0, 128 }, { 160, 1 },
                                           { 4300, 40 } };
    static const int64_t cuts[CUTS][GROUPS + 1] = { { 0, 70, 70, 333, 601, 640 },     { 0, 5, 12, 40, 560, 600 }, { 0, 129, 257, 300, 311, 616 },
                                                    { 0, 256, 512, 512, 640, 640 }, { 0, 0, 0, 0, 0, 0 },     { 0, 224, 255, 480, 481, 513 } };
    int ran[16] = { 0 };
    for (int k = 0; k < 2 * TURNS * (SIZES + 2 * CUTS); k++) {
        if (!moit_picked((uint64_t)k)) continue;
        const int which = k % (SIZES + 2 * CUTS), turn = k / (SIZES + 2 * CUTS) % TURNS;
        const bool cut = which >= SIZES;
        moit_quant t = { .in = turn % 3 ? MOI_BF16 : inputs[turn / 3 % 3], .f = { MOI_FORMAT_MXFP8, MOI_FORMAT_MXFP8 }, .want = turn % 3 ? 3 : 2, .batch = 1,
                         .pad = k % 7 == 6 ? 4 : 0 };
        t.mx[0] = turn % 3 == 2 ? MOI_MX_PER_128 : MOI_MX_FREE, t.mx[1] = k < TURNS * (SIZES + 2 * CUTS) ? MOI_MX_PER_128 : MOI_MX_PER_ROW;
        t.f[1].layout = (moi_layout)(cut ? turn / 3 % 2 * 2 : turn / 3 % 3), t.f[0].layout = (moi_layout)(turn % 3);
        t.f[1].round = (moi_round)(turn / 3 % 4), t.f[0].round = (moi_round)(turn % 4);
        if (cut) {
            t.groups = GROUPS, t.offsets = cuts[(which - SIZES) / 2], t.rows = 650 - 10 * (turn % 2), t.cols = which % 2 ? 256 : 128;
        } else {
            t.rows = sizes[which][0], t.cols = sizes[which][1];
            if (k % 5 == 4 && t.rows % 16 == 0) t.batch = 2;
        }
        case_of(&t, (uint64_t)k + 5000, k % 3 == 1, ran);
    }
    static const char only_rows[] = "quantize_rows_sm90 quantize_octets_sm90 quantize_sm90";
    for (int r = 0; r < 16 && moit_picked(1) && moit_any_row("quantize", r); r++)
        if (ran[r] == 0 && !strstr(only_rows, moit_any_row("quantize", r))) fail_msg("%s takes none of the cases", moit_any_row("quantize", r));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rows), cmocka_unit_test(test_columns) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
