/* SPDX-License-Identifier: Apache-2.0
 * test_decode_slots.c: moe_decode against double precision where moe_decode_f16_sm90 and moe_decode_many_sm90 cut rows and lists in ways of their own: boxes of
 * scales, whole and longer slots, teams, items, sums (test_decode_layout.c has how). */
#include "support_decode.h"

/* Items whose scales come by boxes of 16 to 128 bytes of a row, one or several (test_decode_layout.c: test_boxes), and of more items than have room; last a
 * plan that has boxes for some batches and not for others. */
static void test_scale_boxes(void **state)
{
    (void)state;
    const moi_format formats[] = { MOI_FORMAT_MXFP8, { .recipe = MOI_RECIPE_MX32, .elem = MOI_E5M2 } };
    static const struct { int64_t tokens, hidden, width, experts, top_k; bool always; } cases[] = {
        { 9, 1024, 640, 2, 2, 0 },  { 70, 1024, 2048, 2, 2, 0 }, { 9, 1536, 64, 2, 2, 1 },   { 70, 1536, 64, 2, 2, 0 },
        { 9, 2048, 160, 2, 2, 0 },  { 70, 2048, 160, 2, 2, 0 },  { 9, 3072, 96, 2, 2, 1 },   { 9, 4096, 32, 2, 2, 1 },
        { 70, 4096, 96, 2, 2, 0 },  { 8, 6144, 32, 2, 2, 0 },    { 70, 8192, 64, 2, 2, 0 },  { 70, 3072, 32, 160, 8, 0 },
        { 128, 3072, 32, 255, 8, 0 },
    };
    enum { CASES = sizeof cases / sizeof *cases };
    for (int i = 0; i < 2 * CASES; i++) { /* those of `always` are in one format */
        const int c = i % CASES;
        const bool always = cases[c].always && c % 2 == i / CASES;
        const shape size = { cases[c].tokens, cases[c].hidden, cases[c].width, cases[c].experts, cases[c].top_k };
        decode_check_case((size_t)i, &formats[i / CASES], size, always);
    }
}

/* MXFP4 in slots that are whole: of pass 1 alone, of pass 2 alone, and of both; with few tokens, with jobs of 8 and of 16 columns, and with more slots than
 * maxima route.  Most are for a device alone. */
static void test_whole_fours(void **state)
{
    (void)state;
    const moi_format fours = MOI_FORMAT_MXFP4;
    static const struct { shape size; bool always; } cases[] = {
        { { 2, 2048, 32, 2, 1 }, true },      { { 9, 2048, 768, 2, 1 }, true },    { { 9, 96, 3840, 2, 2 }, false },    { { 70, 2048, 768, 3, 2 }, false },
        { { 70, 2048, 160, 2, 1 }, false },   { { 70, 64, 1536, 2, 1 }, false },   { { 8, 3584, 160, 3, 2 }, false },   { { 9, 2048, 96, 9, 9 }, false },
        { { 40, 4096, 1536, 3, 2 }, false },  { { 128, 2048, 768, 9, 9 }, false }, { { 9, 2048, 64, 200, 8 }, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) decode_check_case(i, &fours, cases[i].size, cases[i].always);
}

/* MXFP4, pass 2 in slots of up to six lines that are not whole: the last of three lines, of one and of two, lines that are no whole ones, and jobs of 16
 * columns. */
static void test_longer_slots(void **state)
{
    (void)state;
    const moi_format fours = MOI_FORMAT_MXFP4;
    static const struct { shape size; bool always; } cases[] = {
        { { 9, 64, 1152, 2, 1 }, true },  { { 10, 96, 832, 2, 2 }, true },   { { 70, 96, 1024, 2, 1 }, true },
        { { 9, 160, 544, 3, 2 }, false }, { { 70, 64, 2080, 3, 2 }, false }, { { 12, 2048, 2048, 3, 2 }, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) decode_check_case(i, &fours, cases[i].size, cases[i].always);
}

/* What the third of some parts of gate's and up's rows adds is the opposite of the first one's, and so large that sums show the order of the parts. */
static void set_against(problem *p, int64_t values)
{
    const moi_format *q = &p->d.weights;
    const int64_t h = p->d.hidden, rows = p->d.experts * 2 * p->d.width, bytes = moi_row_bytes(q->elem, h), part = moi_row_bytes(q->elem, values);
    const int64_t scales = moi_scale_bytes(q, 1, h, 0), of_part = moi_scale_bytes(q, 1, values, 0);
    const int64_t scale_rows = q->recipe == MOI_RECIPE_BLK128 ? rows / 128 : rows;
    for (int64_t r = 0; r < rows; r++) memcpy((char *)p->codes[0] + r * bytes + 2 * part, (char *)p->codes[0] + r * bytes, (size_t)part);
    for (int64_t r = 0; scales && r < scale_rows; r++)
        memcpy((char *)p->scales[0] + r * scales + 2 * of_part, (char *)p->scales[0] + r * scales, (size_t)of_part);
    for (int64_t i = 0; i < p->a.tokens * h; i++) {
        if (i % h >= values) continue;
        const float x = 0x1p14f * (float)moi_decode(MOI_BF16, p->x, i);
        moi_encode(MOI_BF16, p->x, i, x), moi_encode(MOI_BF16, p->x, i + 2 * values, -x);
    }
}

/* Rows whose slots a team's four warps share unevenly, so that they change places from item to item: by number, by a last one of fewer lines, by lines that are
 * no whole ones.  Sums must not depend on who has which: the last token's items fall to others when it is alone.  The latter cases have several
 * items for each team of a device; the last but one has more slots than maxima route, the last one's pass 1 two teams. */
static void test_shifts(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const struct { const moi_format *weights; shape size; int64_t slot; bool always; } cases[] = {
        { &mx, { 9, 1152, 160, 3, 2 }, 256, true },       { &fours, { 4, 2560, 96, 3, 1 }, 512, true },
        { &bf16, { 10, 576, 160, 2, 2 }, 128, true },     { &fours, { 4, 2560, 2560, 3, 1 }, 512, false },
        { &fours, { 9, 2304, 2560, 4, 2 }, 512, false },  { &blk, { 70, 1152, 2560, 4, 2 }, 256, false },
        { &mx, { 70, 1056, 2560, 4, 2 }, 256, false },    { &fours, { 12, 2880, 2560, 4, 2 }, 512, false },
        { &fours, { 70, 5120, 1280, 2, 1 }, 512, false }, { &bf16, { 40, 2880, 1280, 3, 2 }, 128, false },
        { &fours, { 70, 2336, 256, 9, 9 }, 512, false },  { &mx, { 70, 3584, 1280, 3, 2 }, 256, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!decode_picked(i, cases[i].always)) continue;
        problem p = problem_make(*cases[i].weights, cases[i].size, MOI_BF16, MOI_F32);
        set_against(&p, cases[i].slot);
        decode_check_tokens(&p);
        problem_free(&p);
    }
}

/* Rows so long that pass 1 has two teams (test_decode_layout.c: test_teams), with jobs of 8 and of 16 columns, three slots of a worker, two, and one.  Those of
 * more items than teams, and the last, whose tokens have more slots than maxima route, are for a device alone. */
static void test_two_teams(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16;
    const decode_case cases[] = {
        { &blk, { 9, 7168, 128, 2, 2 }, true },    { &blk, { 70, 5120, 128, 2, 1 }, true },  { &bf16, { 70, 4096, 64, 2, 1 }, true },
        { &mx, { 9, 7168, 32, 2, 1 }, true },      { &mx, { 70, 5120, 160, 4, 2 }, false },  { &blk, { 70, 4096, 640, 3, 2 }, false },
        { &blk, { 128, 5120, 384, 5, 3 }, false }, { &bf16, { 11, 7680, 320, 3, 2 }, false }, { &mx, { 12, 7168, 320, 3, 2 }, false },
        { &mx, { 90, 4096, 640, 3, 2 }, false },   { &blk, { 9, 7168, 128, 9, 9 }, false },  { &bf16, { 9, 7168, 64, 9, 9 }, false },
    };
    decode_check_cases(cases, sizeof cases / sizeof *cases);
}

/* Sums of so many bytes that they are discarded when they are read (test_decode_layout.c: test_discards; an emulated device writes NaN there), of rows that are
 * no whole pieces, with more slots than are added up at once; the second launch's, which discards nothing, lie where the first one's were.  The others are for
 * a device alone. */
static void test_discarded_sums(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16;
    const decode_case cases[] = {
        { &mx, { 258, 416, 32, 16, 16 }, true }, { &blk, { 128, 2048, 256, 16, 8 }, false }, { &bf16, { 96, 4096, 64, 8, 8 }, false },
    };
    decode_check_cases(cases, sizeof cases / sizeof *cases);
}

/* More than 128 tokens: experts with many jobs, as many pairs as there can be, two teams, more experts than lanes look at together; the last with a second
 * launch, for its pairs. */
static void test_many_tokens(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const decode_case cases[] = {
        { &mx, { 200, 128, 32, 5, 2 }, true },     { &fours, { 161, 512, 96, 20, 4 }, false }, { &bf16, { 256, 64, 64, 16, 16 }, true },
        { &blk, { 160, 4096, 128, 9, 8 }, false }, { &mx, { 256, 2048, 64, 300, 10 }, false }, { &mx, { 256, 7168, 32, 40, 8 }, false },
        { &mx, { 129, 640, 2048, 9, 1 }, false },  { &blk, { 384, 128, 128, 9, 2 }, true },
        { &mx, { 384, 256, 64, 256, 8 }, false },  { &blk, { 300, 128, 128, 20, 14 }, false },
    };
    decode_check_cases(cases, sizeof cases / sizeof *cases);
}

/* Jobs of 24 columns, and of BF16 of 32 (test_decode_layout.c: test_broad), full ones, of one group, of two, and of all; slots that are whole in one pass, in
 * both, and in neither; one room in pass 2; two teams. */
static void test_broad_jobs(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, e5m2 = { .recipe = MOI_RECIPE_MX32, .elem = MOI_E5M2 }, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16;
    const decode_case cases[] = {
        { &blk, { 70, 256, 256, 2, 1 }, true },    { &mx, { 90, 1024, 128, 7, 2 }, true },      { &bf16, { 100, 128, 64, 20, 3 }, true },
        { &mx, { 65, 384, 384, 2, 2 }, true },     { &blk, { 80, 384, 128, 9, 9 }, true },      { &bf16, { 70, 128, 64, 2, 1 }, true },
        { &blk, { 66, 128, 768, 2, 1 }, true },    { &mx, { 66, 128, 768, 2, 1 }, true },       { &blk, { 70, 256, 1536, 2, 1 }, false },
        { &bf16, { 80, 64, 128, 9, 9 }, false },   { &mx, { 80, 1024, 768, 9, 9 }, false },     { &blk, { 192, 2048, 384, 32, 4 }, false },
        { &mx, { 160, 2048, 384, 24, 4 }, false }, { &mx, { 256, 2048, 128, 128, 8 }, false },  { &bf16, { 96, 2560, 128, 24, 4 }, false },
        { &bf16, { 320, 2048, 192, 64, 4 }, false }, { &bf16, { 384, 2048, 64, 120, 6 }, false }, { &e5m2, { 90, 1024, 768, 9, 2 }, false },
        { &e5m2, { 70, 1152, 640, 4, 2 }, false }, { &blk, { 129, 1152, 640, 12, 2 }, false },  { &mx, { 384, 256, 128, 200, 8 }, false },
        { &blk, { 384, 256, 128, 140, 8 }, false }, { &bf16, { 384, 256, 64, 200, 8 }, false }, { &bf16, { 384, 256, 64, 140, 8 }, false },
        { &bf16, { 70, 2560, 128, 70, 12 }, false },
    };
    decode_check_cases(cases, sizeof cases / sizeof *cases);
}

/* Jobs of 16 columns of up to 64 tokens (test_decode_layout.c: test_groups), and more slots or experts than pass 1 routes for so many: the first ones with the
 * four multiprocessors of an emulated device, the last with an H200's. */
static void test_few_experts(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const decode_case cases[] = {
        { &mx, { 33, 128, 128, 8, 2 }, true },   { &fours, { 50, 512, 96, 9, 2 }, true },  { &blk, { 64, 256, 128, 8, 4 }, false },
        { &mx, { 20, 256, 64, 16, 9 }, true },   { &bf16, { 40, 128, 64, 16, 9 }, true },  { &blk, { 17, 128, 128, 17, 10 }, true },
        { &mx, { 33, 128, 32, 300, 10 }, true }, { &fours, { 34, 128, 32, 260, 3 }, true }, { &blk, { 64, 128, 1664, 16, 2 }, true },
        { &mx, { 64, 1024, 800, 32, 8 }, false }, { &fours, { 48, 256, 1600, 16, 8 }, true },
    };
    decode_check_cases(cases, sizeof cases / sizeof *cases);
}

/* Blocks of pass 2 of up to 8 tokens that lack a tile which would always be the same workers': the first ones with the four multiprocessors of an emulated
 * device, the last with an H200's. */
static void test_missing_tiles(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const decode_case cases[] = {
        { &mx, { 2, 224, 32, 2, 2 }, true },
        { &bf16, { 1, 224, 64, 2, 2 }, true },
        { &fours, { 3, 224, 160, 2, 1 }, true },
        { &mx, { 2, 6368, 160, 2, 2 }, false },
    };
    decode_check_cases(cases, sizeof cases / sizeof *cases);
}

/* Up to 8 tokens whose sums of pass 2 have room by whole items alone (test_decode_layout.c: test_items), slots of three lines and of two, and blocks that lack
 * a tile: the first ones with the four multiprocessors of an emulated device, the last eight with an H200's.  BF16 with two tokens would be faster by three
 * launches, and has them but where pass 2 would be several. */
static void test_items(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16, fours = MOI_FORMAT_MXFP4;
    const decode_case cases[] = {
        { &mx, { 8, 512, 640, 3, 2 }, true },     { &mx, { 7, 480, 640, 2, 2 }, true },      { &blk, { 8, 512, 512, 4, 3 }, true },
        { &bf16, { 1, 512, 1536, 8, 8 }, true },  { &bf16, { 2, 512, 1536, 4, 4 }, true },   { &bf16, { 2, 256, 10240, 2, 2 }, true },
        { &fours, { 8, 512, 1536, 4, 4 }, true }, { &blk, { 2, 7168, 2048, 9, 8 }, false },  { &mx, { 4, 4096, 1536, 9, 8 }, false },
        { &mx, { 2, 6144, 2048, 9, 8 }, false },  { &mx, { 8, 2048, 1408, 64, 6 }, false },  { &mx, { 2, 6368, 768, 4, 16 }, false },
        { &mx, { 4, 6144, 512, 4, 16 }, false },  { &fours, { 4, 6144, 1536, 4, 16 }, false }, { &bf16, { 1, 8192, 1536, 4, 16 }, false },
    };
    decode_check_cases(cases, sizeof cases / sizeof *cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale_boxes), cmocka_unit_test(test_whole_fours), cmocka_unit_test(test_longer_slots), cmocka_unit_test(test_shifts),
        cmocka_unit_test(test_two_teams), cmocka_unit_test(test_discarded_sums), cmocka_unit_test(test_many_tokens), cmocka_unit_test(test_broad_jobs),
        cmocka_unit_test(test_few_experts), cmocka_unit_test(test_missing_tiles), cmocka_unit_test(test_items),
    };
    return cmocka_run_group_tests(tests, decode_open_contexts, decode_close_contexts);
}
