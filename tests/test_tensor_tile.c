/* SPDX-License-Identifier: Apache-2.0
 * test_tensor_tile.c: what the product rows of the cuda back end decide without a device: which products they take, how they cut them. */
#include "support.h"

#include <stdio.h>

#include "../src/cuda/tensor_product.h"

static const moi_format act = MOII_TENSOR_ACT, weight = MOII_TENSOR_WEIGHT, mxfp8 = MOII_TENSOR_MXFP8, cols = MOII_TENSOR_MXFP8_COLS, plain = MOII_TENSOR_BF16;
static const moi_format f32 = { .recipe = MOI_RECIPE_F32, .elem = MOI_F32 };

static moii_tensor_product product(int grouping, const moi_format *a, const moi_format *b, int64_t m, int64_t n, int64_t k)
{
    return (moii_tensor_product){ .grouping = grouping, .a = a, .b = b, .groups = grouping == PRODUCT_DENSE ? 1 : 8, .m = m, .n = n, .k = k, .sms = 132 };
}

static void declined(moii_tensor_product p, const char *reason)
{
    const char *why = "";
    assert_false(moii_tensor_fits(&p, MOI_BF16, &why));
    if (!strstr(why, reason)) fail_msg("declined because '%s', not because of '%s'", why, reason);
}

static void test_fits(void **state)
{
    (void)state;
    const char *why;
    moii_tensor_product p = product(PRODUCT_DENSE, &act, &weight, 64, 2112, 7168);
    assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
    assert_int_equal(p.scaling, SCALING_SQUARE);
    declined(product(PRODUCT_DENSE, &f32, &f32, 64, 64, 64), "operands must be");
    declined(product(PRODUCT_DENSE, &act, &mxfp8, 64, 64, 64), "operands must be");
    declined(product(PRODUCT_DENSE, &act, &weight, 64, 64, 72), "multiple of 16 bytes");
    declined(product(PRODUCT_DENSE, &plain, &plain, 64, 64, 12), "multiple of 16 bytes");
    declined(product(PRODUCT_DENSE, &act, &weight, 64, (int64_t)1 << 31, 64), "below 2^31");
    declined(product(PRODUCT_DENSE, &act, &weight, 2000000000, 2000000000, 128), "below 2^31");   /* tiles */
    declined(product(PRODUCT_DENSE, &mxfp8, &mxfp8, 1000000000, 16, 16384), "below 2^31");        /* scales of A */
    p = product(PRODUCT_ROWS, &act, &weight, 100000, 100000000, 1000000);                         /* squares of all groups */
    p.groups = 100000;
    declined(p, "below 2^31");
    declined(product(PRODUCT_DEPTH, &plain, &plain, 64, 64, 1000), "MN-major");
    p = product(PRODUCT_ROWS, &mxfp8, &mxfp8, 64, 16, 16384);                                     /* scales of A as it lies, and in order */
    p.gather_rows = 1000000000;
    declined(p, "below 2^31");
    p.gather_rows = 64, p.m = 1000000000;
    declined(p, "below 2^31");
    p = product(PRODUCT_DENSE, &plain, &plain, 60, 64, 64);
    p.a_turned = true;
    declined(p, "MN-major operands must be");
}

/* Equal scales spare the scales' work; few rows for each expert spare the BF16 copies. */
static void test_paths(void **state)
{
    (void)state;
    static const struct { int grouping; moi_mx_scales mx; int64_t m; int scaling; bool widened; } cases[] = {
        { PRODUCT_DENSE, MOI_MX_FREE, 64, SCALING_MX, false },      { PRODUCT_DENSE, MOI_MX_FREE, 4096, SCALING_MX, true },
        { PRODUCT_DENSE, MOI_MX_PER_128, 4096, SCALING_VECTOR, false }, { PRODUCT_DENSE, MOI_MX_PER_ROW, 4096, SCALING_ROWS, false },
        { PRODUCT_ROWS, MOI_MX_FREE, 800, SCALING_MX, false },      { PRODUCT_ROWS, MOI_MX_FREE, 8000, SCALING_MX, true },
        { PRODUCT_DEPTH, MOI_MX_PER_ROW, 512, SCALING_ROWS, false }, { PRODUCT_DEPTH, MOI_MX_FREE, 64, SCALING_MX, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why;
        moii_tensor_product p = product(cases[i].grouping, &mxfp8, &mxfp8, cases[i].m, 4096, 4096);
        p.mx = cases[i].mx;
        assert_true(moii_tensor_fits(&p, MOI_F32, &why));
        assert_int_equal(p.scaling, cases[i].scaling);
        assert_int_equal(p.widened, cases[i].widened);
    }
}

/* Of thin_sm90, mixed_sm90 and halves_sm90: what their texts say of themselves. */
static void check_thin(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    char defines[MOII_DEFINES], whole[MOII_DEFINES];
    assert_true(t->wgs == 2 && t->cluster == 1 && t->split == 1 && moii_tensor_dealt(p, t) == p->mixed);
    if (p->mixed) assert_true(t->waves == 2 && (t->bn == 64 || t->bn == 96 || t->bn == 128 || t->bn == 144) && t->stages >= 3);
    else assert_true(moii_thin_fits(p) && t->waves == 1 && t->bn == 64 && t->stages >= 4);
    assert_in_range(moii_tensor_shared(p, t), 1024, 232448);
    moii_tensor_defines(p, t, defines);
    snprintf(whole, sizeof whole, " STAGES=%d SHARED_BYTES=%d", t->stages, moii_tensor_shared(p, t));
    assert_string_equal(defines + strlen(defines) - strlen(whole), whole);
}

static void check_tile(const moii_tensor_product *p, const moii_tensor_tile *t)
{
    if (t->thin) {
        check_thin(p, t);
        return;
    }
    char defines[MOII_DEFINES], whole[2 * MOII_DEFINES];
    int blocks = t->cluster * t->split, threads = 128 + 128 * t->wgs * t->turns;
    assert_in_range(moii_tensor_shared(p, t), 1024, 232448);
    assert_in_range(t->bn, 16, 256);
    assert_int_equal(t->bn % 16, 0);
    assert_int_equal(t->stages % t->turns, 0); /* product_sm90.cuh says why */
    assert_true(t->stages >= 2 && threads <= 512 && blocks <= 8 && (t->cluster == 1 || t->split == 1));
    if (p->swiglu) assert_true(t->wgs == 2 && t->bn == 128 && blocks == 1 && t->turns == 1);
    assert_true(64 * t->wgs * t->waves <= 256);                             /* rows of a box */
    assert_true(p->grouping == PRODUCT_DENSE || t->split == 1);             /* a cluster with a split has one unit */
    if (t->wide) assert_true(t->wgs == 2 && moii_tile_lines(p, t) <= 256 && p->scaling == SCALING_SQUARE); /* rows of a box */
    assert_true(t->few ? p->grouping == PRODUCT_DENSE && p->scaling == SCALING_SQUARE && t->cluster == 1 && t->turns == 1 : !t->wide);
    if (t->few == 2) assert_true(t->bn <= 128 && t->waves == 1); /* two accumulators */
    if (p->a_turned || p->b_turned) assert_int_equal(t->bn % 64, 0);
    moii_tensor_product dealt = *p;
    dealt.dealt = moii_tensor_dealt(p, t);
    moii_tensor_defines(&dealt, t, defines);
    int64_t wide = t->bn * (t->wide ? t->wgs : 1), down = 64 * t->waves * (t->wide ? 1 : t->wgs);
    /* a tile for each block, or none */
    bool small = p->grouping == PRODUCT_DENSE && p->scaling == SCALING_SQUARE && !p->out_f32 && t->waves == 1;
    bool lone = small && (p->n + wide - 1) / wide * ((p->m + down - 1) / down) * t->cluster * t->split <= p->sms;
    int box = t->bn % 64 == 32 && !(lone && t->few) ? 32 : 64, columns = p->swiglu ? t->bn / 2 : t->bn;
    int boxes = moii_tile_carries(p, t) ? t->bn / 32 : t->waves * ((columns + box - 1) / box);
    bool woven = moii_tile_carries(p, t) && p->scaling == SCALING_VECTOR && !moii_tensor_experts(p) && p->n % 16 == 0;
    int few = p->swiglu ? 1 : 2;
    assert_true(t->boxes == boxes || (t->boxes == few && boxes > few && t->stages >= 3)); /* all of a warpgroup's at once, or two, of SwiGLU one */
    const char *dealing = !dealt.dealt ? "" : moii_tile_broad(p, t) ? " DEAL=1 BROAD=1" : " DEAL=1";
    bool outer = t->wgs == 2 && t->waves == 1 && t->bn == 128 && t->turns == 1 && t->split == 1 && p->scaling == SCALING_VECTOR &&
                 (p->scales_bulk || p->scale_quads) && p->grouping != PRODUCT_ROWS;
    snprintf(whole, sizeof whole, " TURNS=%d BOXES=%d SHARED_BYTES=%d%s%s%s%s%s%s%s%s%s%s%s%s", t->turns, t->boxes, moii_tensor_shared(p, t),
             p->scale_quads ? " QUADS=1" : "", t->wide ? " WIDE=1" : "", woven ? " WOVEN=1" : "", outer ? " OUTER=1" : "",
             moii_tile_strip(p, t) ? " STRIP=1" : "",
             t->few == 2 ? " SHORT=2" : t->few ? " SHORT=1" : "", lone ? " LONE=1" : "", dealing,
             moii_tensor_follows(p) ? " FOLLOWS=1" : "", p->scatter_rows ? " SCATTER=1" : "", p->weighted ? " WEIGHTED=1" : "",
             !p->swiglu ? "" : p->act == &plain ? " SWIGLU=1 ACT_ELEM=3" : " SWIGLU=1 ACT_ELEM=4 ACT_MX=1");
    assert_string_equal(defines + strlen(defines) - strlen(whole), whole);  /* nothing was cut off */
}

static void check_ahead(const moii_kernel *kernel)
{
    assert_true(kernel->variants > 0);
    for (int i = 0; i < kernel->variants; i++) {
        char defines[MOII_DEFINES];
        kernel->variant(i, defines);
        assert_null(strstr(defines, "A_TURNED"));
        assert_int_equal(strstr(defines, "ELEM_A") == NULL, kernel != &moii_thin_kernel);
        assert_non_null(strstr(defines, "ELEM_B="));
    }
}

/* What is compiled ahead for thin_sm90 is for plans that choose it.  Few rows with 1x32 scales have the weights as the tensor cores' rows, but where those
 * are too few, or their scales do not lie in words. */
static void test_thin(void **state)
{
    (void)state;
    check_ahead(&moii_thin_kernel);
    static const struct { int grouping; bool cols; int64_t m, n, k; bool thin; } cases[] = {
        { PRODUCT_ROWS, false, 8 * 32, 4096, 7168, true },     { PRODUCT_ROWS, false, 8 * 65, 4096, 7168, false },
        { PRODUCT_ROWS, true, 8 * 32, 4096, 7168, false },     { PRODUCT_ROWS, false, 8 * 32, 4096, 7200, false },
        { PRODUCT_MASKED, false, 32, 512, 2048, true },        { PRODUCT_DEPTH, false, 8, 4096, 4096, false },
        { PRODUCT_DENSE, false, 32, 12288, 4096, true },       { PRODUCT_DENSE, false, 33, 12288, 4096, false },
        { PRODUCT_DENSE, false, 16, 7168, 2048, true },        { PRODUCT_DENSE, false, 17, 7168, 2048, false },
        { PRODUCT_DENSE, false, 1, 4096, 2048, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why;
        const moi_format *f = cases[i].cols ? &cols : &mxfp8;
        moii_tensor_product p = product(cases[i].grouping, f, f, cases[i].m, cases[i].n, cases[i].k);
        assert_true(moii_tensor_fits(&p, MOI_F32, &why));
        moii_tensor_settle(&p, 132);
        moii_tensor_tile t = moii_tensor_choose(&p);
        assert_int_equal(t.thin && !p.mixed, cases[i].thin);
    }
}

/* More rows, if there are tiles for all multiprocessors, not so many that a copy of the weights pays, and none of A that is larger than that. */
static void test_mixed(void **state)
{
    (void)state;
    check_ahead(&moii_mixed_kernel);
    check_ahead(&moii_halves_kernel);
    moi_format wide = mxfp8;
    wide.elem = MOI_E5M2;
    const struct { int grouping; const moi_format *a, *b; int64_t m, n, k; bool mixed, widened, halves; } cases[] = {
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 32, 4096, 7168, false, false, false },  { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 33, 4096, 7168, true, false, false },
        { PRODUCT_ROWS, &cols, &mxfp8, 8 * 65, 4096, 7168, true, false, false },    { PRODUCT_ROWS, &wide, &mxfp8, 8 * 65, 4096, 7168, true, false, false },
        { PRODUCT_ROWS, &mxfp8, &cols, 8 * 65, 4096, 7168, false, false, false },   { PRODUCT_ROWS, &mxfp8, &wide, 8 * 65, 4096, 7168, false, false, false },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 65, 4096, 7200, false, false, false },  { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 65, 2048, 7168, false, false, false },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 1023, 4096, 7168, true, false, false }, { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 1024, 4096, 7168, false, true, false },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 65, 3072, 7168, false, false, false },  { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 65, 3328, 7168, true, false, false },
        { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 64, 3328, 7168, false, false, false },  { PRODUCT_ROWS, &mxfp8, &mxfp8, 8 * 64, 3584, 7168, true, false, false },
        { PRODUCT_MASKED, &mxfp8, &mxfp8, 64, 4096, 7168, true, false, false },     { PRODUCT_MASKED, &mxfp8, &mxfp8, 4096, 4096, 7168, true, false, false },
        { PRODUCT_MASKED, &mxfp8, &mxfp8, 4097, 4096, 7168, false, false, false },  { PRODUCT_DEPTH, &mxfp8, &mxfp8, 512, 4096, 7168, false, true, false },
        { PRODUCT_DENSE, &mxfp8, &mxfp8, 383, 7168, 16384, false, false, false },   { PRODUCT_DENSE, &mxfp8, &mxfp8, 512, 7168, 16384, true, false, false },
        { PRODUCT_DENSE, &mxfp8, &mxfp8, 512, 4096, 7168, false, true, false },     { PRODUCT_DENSE, &mxfp8, &mxfp8, 768, 16896, 7168, false, true, false },
        /* weights alone */
        { PRODUCT_ROWS, &plain, &mxfp8, 8, 4096, 7168, true, false, true },          { PRODUCT_ROWS, &plain, &mxfp8, 8 * 64, 2048, 7168, true, false, true },
        { PRODUCT_ROWS, &plain, &mxfp8, 8 * 65, 2048, 7168, true, false, false },    { PRODUCT_ROWS, &plain, &mxfp8, 8 * 1700, 4096, 7168, true, false, false },
        { PRODUCT_ROWS, &plain, &mxfp8, 8 * 1701, 4096, 7168, false, true, false },  { PRODUCT_ROWS, &plain, &wide, 8 * 256, 4096, 7168, true, false, true },
        { PRODUCT_ROWS, &plain, &wide, 8 * 257, 4096, 7168, false, true, false },    { PRODUCT_ROWS, &plain, &cols, 8 * 200, 4096, 7168, true, false, false },
        { PRODUCT_ROWS, &plain, &mxfp8, 8 * 256, 4096, 7200, true, false, false },   { PRODUCT_ROWS, &plain, &mxfp8, 8 * 1701, 4096, 7200, false, true, false },
        { PRODUCT_ROWS, &plain, &mxfp8, 8, 4096, 7184, false, true, false },         { PRODUCT_MASKED, &plain, &mxfp8, 64, 4096, 7168, true, false, true },
        { PRODUCT_MASKED, &plain, &mxfp8, 4096, 4096, 7168, true, false, false },    { PRODUCT_MASKED, &plain, &mxfp8, 4097, 4096, 7168, false, true, false },
        { PRODUCT_DENSE, &plain, &mxfp8, 16, 7168, 2048, true, false, true },        { PRODUCT_DENSE, &plain, &mxfp8, 16, 2112, 7168, false, true, false },
        { PRODUCT_DENSE, &plain, &mxfp8, 128, 7168, 2048, false, true, false },      { PRODUCT_DENSE, &plain, &mxfp8, 128, 25600, 1536, true, false, false },
        { PRODUCT_DENSE, &plain, &mxfp8, 768, 24576, 1536, false, true, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why;
        moii_tensor_product p = product(cases[i].grouping, cases[i].a, cases[i].b, cases[i].m, cases[i].n, cases[i].k);
        assert_true(moii_tensor_fits(&p, MOI_F32, &why));
        moii_tensor_settle(&p, 132);
        assert_int_equal(p.mixed, cases[i].mixed);
        assert_int_equal(p.widened, cases[i].widened);
        assert_int_equal(p.halves, cases[i].halves);
        moii_tensor_tile t = moii_tensor_choose(&p);
        const moii_kernel *kernel = p.halves ? &moii_halves_kernel : p.mixed ? &moii_mixed_kernel : t.thin ? &moii_thin_kernel : NULL;
        assert_true(moii_thin_kernel_of(&p, &t) == kernel);
        check_tile(&p, &t);
    }
}

/* The fastest of five tiles on an H100 (512 x 9216 x 4096 and the last of groups' rows: of an H200), two blocks sharing A or none; of BF16 the last columns
 * may be a strip where two do. */
static void test_paces(void **state)
{
    (void)state;
    static const struct { const moi_format *a, *b; int grouping; int64_t groups, m, n, k; int rows, lines, cluster, band; } best[] = {
        { &act, &weight, PRODUCT_DENSE, 1, 4096, 2112, 7168, 128, 192, 1, 6 },   { &act, &weight, PRODUCT_DENSE, 1, 3000, 2112, 7168, 128, 192, 1, 6 },
        { &act, &weight, PRODUCT_DENSE, 1, 4096, 4096, 7168, 256, 128, 1, 8 },   { &act, &weight, PRODUCT_DENSE, 1, 4096, 7168, 2048, 256, 128, 1, 8 },
        { &act, &weight, PRODUCT_DENSE, 1, 4096, 32768, 512, 256, 128, 1, 16 },  { &act, &weight, PRODUCT_DENSE, 1, 4096, 24576, 1536, 256, 128, 2, 16 },
        { &act, &weight, PRODUCT_DENSE, 1, 4096, 7168, 16384, 256, 128, 2, 8 },  { &act, &weight, PRODUCT_DENSE, 1, 640, 6144, 4096, 128, 128, 1, 16 },
        { &act, &weight, PRODUCT_DENSE, 1, 512, 9216, 4096, 128, 160, 1, 16 },   { &act, &weight, PRODUCT_ROWS, 4, 32768, 4096, 7168, 256, 128, 2, 8 },
        { &act, &weight, PRODUCT_ROWS, 32, 32768, 4096, 7168, 256, 128, 2, 8 },  { &act, &weight, PRODUCT_ROWS, 8, 4096, 4096, 7168, 256, 128, 1, 8 },
        { &act, &weight, PRODUCT_ROWS, 4, 2800, 2112, 7168, 128, 192, 1, 1 },    { &act, &weight, PRODUCT_MASKED, 1, 1024, 4096, 7168, 256, 128, 1, 8 },
        { &act, &weight, PRODUCT_ROWS, 128, 32768, 1536, 2048, 256, 128, 1, 1 }, { &act, &weight, PRODUCT_ROWS, 128, 65536, 2048, 768, 256, 128, 1, 1 },
        { &act, &weight, PRODUCT_ROWS, 64, 16384, 2048, 1024, 256, 128, 1, 1 },  { &act, &weight, PRODUCT_ROWS, 128, 65536, 4096, 1536, 256, 128, 2, 16 },
        { &plain, &plain, PRODUCT_DENSE, 1, 4096, 2112, 7168, 256, 128, 2, 1 },  { &plain, &plain, PRODUCT_DENSE, 1, 2048, 2112, 7168, 256, 128, 2, 1 },
        { &plain, &plain, PRODUCT_DENSE, 1, 4096, 4160, 2048, 256, 128, 1, 8 },  { &plain, &plain, PRODUCT_DENSE, 1, 6144, 1088, 2048, 256, 128, 1, 1 },
    };
    for (size_t i = 0; i < sizeof best / sizeof *best; i++) {
        const char *why;
        moii_tensor_product p = product(best[i].grouping, best[i].a, best[i].b, best[i].m, best[i].n, best[i].k);
        p.groups = best[i].groups;
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        moii_tensor_settle(&p, 132);
        moii_tensor_tile t = moii_tensor_choose(&p);
        int rows = moii_tile_rows(&p, &t), lines = moii_tile_lines(&p, &t), band = moii_tensor_band(&p, &t);
        if (rows != best[i].rows || lines != best[i].lines || t.cluster != best[i].cluster || band != best[i].band)
            fail_msg("%lld x %lld x %lld: %d x %d by %d, bands of %d", (long long)best[i].m, (long long)best[i].n, (long long)best[i].k, rows, lines,
                     t.cluster, band);
    }
}

/* Bands: 2048 rows, 4096 of short reductions, one row of tiles where there are few columns. */
static void test_bands(void **state)
{
    (void)state;
    static const struct { const moi_format *a, *b; int grouping; int64_t n, k; int rows, tiles; } cases[] = {
        { &act, &weight, PRODUCT_DENSE, 4096, 7168, 2048, 0 },  { &act, &weight, PRODUCT_DENSE, 4096, 2304, 4096, 0 },
        { &act, &weight, PRODUCT_DENSE, 4096, 2432, 2048, 0 },  { &act, &weight, PRODUCT_ROWS, 4096, 1024, 4096, 0 },
        { &act, &weight, PRODUCT_ROWS, 2816, 7168, 0, 1 },      { &plain, &plain, PRODUCT_DENSE, 4096, 1152, 4096, 0 },
        { &plain, &plain, PRODUCT_DENSE, 4096, 1216, 2048, 0 }, { &act, &act, PRODUCT_DEPTH, 2048, 16384, 2048, 0 },
        { &act, &act, PRODUCT_DEPTH, 2048, 8192, 0, 8 },        { &act, &act, PRODUCT_DEPTH, 4096, 8192, 0, 4 },
        { &act, &act, PRODUCT_DEPTH, 7168, 8192, 0, 2 },        { &act, &act, PRODUCT_DEPTH, 512, 8192, 2048, 0 },
        { &act, &weight, PRODUCT_DENSE, 2816, 7168, 0, 2 },     { &act, &weight, PRODUCT_DENSE, 2817, 7168, 2048, 0 },
        { &plain, &plain, PRODUCT_DENSE, 2112, 7168, 0, 1 },    { &mxfp8, &mxfp8, PRODUCT_DENSE, 2048, 7168, 0, 1 },
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const char *why;
        moii_tensor_product p = product(cases[i].grouping, cases[i].a, cases[i].b, 32768, cases[i].n, cases[i].k);
        assert_true(moii_tensor_fits(&p, cases[i].grouping == PRODUCT_DEPTH ? MOI_F32 : MOI_BF16, &why));
        moii_tensor_settle(&p, 132);
        moii_tensor_tile t = moii_tensor_choose(&p);
        assert_int_equal(moii_tensor_band(&p, &t), cases[i].rows ? cases[i].rows / moii_tile_rows(&p, &t) : cases[i].tiles);
    }
}

/* Tickets: many tiles of ragged rows, or as many masked ones as there mostly are; with them what is left of a group has broad tiles, where there are columns
 * for them. */
static void test_tickets(void **state)
{
    (void)state;
    const char *why;
    moii_tensor_product p = product(PRODUCT_ROWS, &act, &weight, 32768, 4096, 7168);
    p.groups = 32;
    assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
    moii_tensor_settle(&p, 132);
    moii_tensor_tile t = moii_tensor_choose(&p);
    assert_true(moii_tensor_dealt(&p, &t) && moii_tile_broad(&p, &t));
    p.n = 256;
    assert_false(moii_tile_broad(&p, &t));
    p.n = 4096, p.overlap = true;
    assert_true(moii_tensor_dealt(&p, &t) && moii_tile_broad(&p, &t));
    p.overlap = false, p.groups = 16, p.m = 64;
    assert_true(moii_tensor_dealt(&p, &t)); /* few, but long */
    p.k = 31 * 128;
    assert_false(moii_tensor_dealt(&p, &t));
    p.grouping = PRODUCT_MASKED, p.m = 1024;
    assert_true(moii_tensor_dealt(&p, &t) && !moii_tile_broad(&p, &t));
    p.groups = 2;
    assert_false(moii_tensor_dealt(&p, &t));
    p.groups = 16, p.expected = 16 * 64;
    assert_false(moii_tensor_dealt(&p, &t));
    p.k = 32 * 128;
    assert_true(moii_tensor_dealt(&p, &t));
    const moii_tensor_tile one = { 2, 2, 128, 3, 1, 1, 1, 4, 0, 0, 0 }, parts = { 2, 1, 128, 4, 1, 2, 1, 2, 0, 0, 0 };
    static const struct { int64_t n, k; bool dealt; } dense[] = {
        { 4096, 7168, false }, { 7168, 2048, false }, { 7168, 16384, true }, { 32768, 512, true }, { 16384, 512, false },
        { 128, 65536, false },
    };
    for (int i = 0; i < 6; i++) {
        p = product(PRODUCT_DENSE, &act, &weight, 4096, dense[i].n, dense[i].k), p.sms = 132;
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        assert_int_equal(moii_tensor_dealt(&p, &one), dense[i].dealt);
        assert_false(moii_tensor_dealt(&p, &parts) || moii_tile_broad(&p, &one));
    }
}

/* Each workspace has its own counter, always the same one, or none when others have all that it might have: not among the first hundreds. */
static void test_counters(void **state)
{
    (void)state;
    enum { FIRST = MOII_COUNTERS / 2, MANY = 4 * MOII_COUNTERS, MEMORY = 4096 };
    static moii_counters c = { .memory = MEMORY, .lock = PTHREAD_MUTEX_INITIALIZER };
    static char workspaces[MANY][256];
    static int owner[MOII_COUNTERS], of[MANY]; /* and 1 */
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < MANY; i++) {
            unsigned int *counter = moii_counter_of(&c, workspaces[i]);
            uintptr_t bytes = counter ? (uintptr_t)counter - MEMORY : 0;
            int at = counter ? (int)(bytes / MOII_COUNTERS_APART) + 1 : 0;
            assert_true(bytes % MOII_COUNTERS_APART == 0 && at <= MOII_COUNTERS && (counter || i >= FIRST));
            if (again) assert_int_equal(at, of[i]);
            else if (counter) assert_int_equal(owner[at - 1], 0), owner[at - 1] = i + 1;
            of[i] = at;
        }
    int taken = 0;
    for (int i = 0; i < MOII_COUNTERS; i++) taken += owner[i] > 0;
    assert_true(taken > 9 * MOII_COUNTERS / 10);
}

static void test_choice(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 16, 64, 65, 128, 129, 256, 257, 512, 4096, 131072 };
    const struct { const moi_format *a, *b; bool turned; } pairs[] = {
        { &act, &weight, false }, { &act, &act, false }, { &mxfp8, &mxfp8, false }, { &plain, &plain, false }, { &plain, &plain, true },
        { &cols, &cols, false },
    };
    int count = 0, outer = 0, made_of[2] = { 0, 0 };
    for (size_t c = 0; c < 6 * 4 * 11 * 11 * 2; c++) {
        const char *why;
        size_t pair = c % 6, m = c / 24 % 11, n = c / 264 % 11;
        int64_t k = c / 2904 % 2 ? 512 : 16384;
        bool turned = pairs[pair].turned || (c / 6 % 4 == PRODUCT_DEPTH && pair == 3);
        moii_tensor_product p = product((int)(c / 6 % 4), pairs[pair].a, pairs[pair].b, sizes[m], sizes[n], k);
        if (turned) p.m = (p.m + 7) / 8 * 8, p.n = (p.n + 7) / 8 * 8;
        p.a_turned = turned && !moii_tensor_experts(&p), p.b_turned = turned;
        p.mx = pair == 2 || pair == 5 ? (moi_mx_scales)(m % 3) : MOI_MX_FREE;
        p.accumulate = n % 2;
        if (c % 7 == 0) p.sms = p.sm_limit = 20;
        if (c % 3 == 0) p.expected = 100;
        if (p.grouping == PRODUCT_ROWS && c % 2) p.gather_rows = 300;
        if (p.grouping == PRODUCT_ROWS && c % 3) p.scatter_rows = 300, p.weighted = c % 3 == 1;
        if (!moii_tensor_fits(&p, n % 2 ? MOI_F32 : MOI_BF16, &why)) fail_msg("case %d: %s", (int)c, why);
        if (p.widened) p.a = p.b = &plain, p.scaling = SCALING_NONE;
        const moi_format *made = c % 5 ? &mxfp8 : &plain;
        if (p.grouping == PRODUCT_ROWS && !p.scatter_rows && moii_tensor_activates(&p, made)) p.swiglu = true, p.act = made, made_of[c % 5 == 0]++;
        moii_tensor_tile t = moii_tensor_choose(&p);
        check_tile(&p, &t);
        if (p.sm_limit) assert_int_equal(t.split, 1);
        count++, outer += moii_tile_outer(&p, &t);
    }
    assert_int_equal(count, 5808);
    assert_true(made_of[0] > 0 && made_of[1] > 0);
    assert_in_range(outer, 300, 700); /* of two of the pairs, where rows are not in groups, and more than 64 */
    const char *why;
    for (int grouping = PRODUCT_DENSE; grouping <= PRODUCT_MASKED; grouping++) {
        moii_tensor_product p = product(grouping, &act, &act, 4096, 7168, 65536);
        assert_true(moii_tensor_fits(&p, MOI_F32, &why));
        moii_tensor_tile t = moii_tensor_choose(&p);
        if (grouping == PRODUCT_ROWS) assert_false(moii_tile_outer(&p, &t));
        else assert_true(moii_tile_outer(&p, &t) && t.cluster == 2 && moii_tile_carries(&p, &t));
    }
}

/* Columns of the tile of 64 rows for few rows of each expert: 128, but where the reduction is so short that stores count. */
static void test_few_of_groups(void **state)
{
    (void)state;
    static const struct { const moi_format *a, *b; int64_t groups, n, k; int columns; } cases[] = {
        { &act, &weight, 128, 2048, 768, 128 }, { &act, &weight, 128, 4096, 1536, 128 }, { &act, &weight, 256, 2048, 512, 192 },
        { &act, &weight, 64, 2048, 1408, 128 }, { &act, &weight, 8, 4096, 14336, 128 },  { &plain, &plain, 128, 1536, 2048, 128 },
        { &plain, &plain, 128, 7168, 2048, 128 }, { &plain, &plain, 256, 2048, 512, 128 },
    };
    for (size_t i = 0; i < 3 * (sizeof cases / sizeof *cases); i++) {
        const char *why;
        int64_t groups = cases[i / 3].groups, rows = (i % 3 == 0 ? 4 : i % 3 == 1 ? 16 : 48) * groups;
        moii_tensor_product p = product(PRODUCT_ROWS, cases[i / 3].a, cases[i / 3].b, rows, cases[i / 3].n, cases[i / 3].k);
        p.groups = groups;
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        moii_tensor_settle(&p, 132);
        moii_tensor_tile t = moii_tensor_choose(&p);
        assert_true(t.wgs == 1 && t.waves == 1 && !t.thin && t.bn == cases[i / 3].columns);
    }
}

/* What of a product with SwiGLU its store can make. */
static void test_activates(void **state)
{
    (void)state;
    const char *why;
    moi_format lenient = mxfp8, square = weight;
    moii_tensor_product p = product(PRODUCT_ROWS, &act, &weight, 4096, 512, 7168);
    lenient.flags = MOI_NONFINITE_LENIENT;
    assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
    assert_true(moii_tensor_activates(&p, &mxfp8) && moii_tensor_activates(&p, &act) && moii_tensor_activates(&p, &plain));
    assert_false(moii_tensor_activates(&p, &lenient) || moii_tensor_activates(&p, &square) || moii_tensor_activates(&p, &f32));
    p.n = 384;
    assert_false(moii_tensor_activates(&p, &mxfp8));
    p = product(PRODUCT_ROWS, &act, &act, 4096, 512, 7168);
    assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
    assert_false(moii_tensor_activates(&p, &mxfp8)); /* scales of columns */
    p = product(PRODUCT_ROWS, &plain, &plain, 4096, 512, 7168);
    assert_true(moii_tensor_fits(&p, MOI_F32, &why));
    assert_false(moii_tensor_activates(&p, &mxfp8) || moii_tensor_activates(&p, &plain)); /* gate and up not rounded to BF16 */
    for (int64_t m = 1600; m <= 16000; m *= 10) { /* of few rows for an expert, scales are applied in the loop */
        p = product(PRODUCT_ROWS, &mxfp8, &mxfp8, m, 512, 7168);
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        assert_int_equal(moii_tensor_activates(&p, &mxfp8), m == 16000);
    }
    for (int64_t m = 8 * 1000; m <= 8 * 1024; m += 8 * 24) { /* with weights as BF16 in registers it is faster behind the product */
        p = product(PRODUCT_ROWS, &mxfp8, &mxfp8, m, 4096, 7168);
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        assert_int_equal(moii_tensor_activates(&p, &mxfp8), m == 8 * 1024);
    }
}

/* As measured: where tiles of 192 rows are faster than those whose scales the tensor cores multiply (docs/notes/gemm-hopper.md). */
static void test_tall(void **state)
{
    (void)state;
    static const struct { int grouping; int64_t groups, rows, n, k; bool tall; } cases[] = {
        { PRODUCT_MASKED, 32, 192, 4096, 7168, true },  { PRODUCT_MASKED, 32, 129, 4096, 7168, true },  { PRODUCT_MASKED, 32, 192, 7168, 2048, true },
        { PRODUCT_MASKED, 8, 160, 24576, 1536, true },  { PRODUCT_MASKED, 8, 128, 4096, 7168, false },  { PRODUCT_MASKED, 8, 512, 4096, 7168, false },
        { PRODUCT_MASKED, 8, 1024, 7168, 2048, false }, { PRODUCT_DENSE, 1, 768, 4096, 7168, true },    { PRODUCT_DENSE, 1, 1024, 2112, 7168, true },
        { PRODUCT_DENSE, 1, 384, 7168, 2048, true },    { PRODUCT_DENSE, 1, 4096, 2112, 7168, false },  { PRODUCT_DENSE, 1, 4096, 7168, 16384, false },
        { PRODUCT_DEPTH, 32, 192, 4096, 4096, true },   { PRODUCT_DEPTH, 128, 576, 1536, 1024, false }, { PRODUCT_DEPTH, 128, 3072, 4096, 1024, false },
        { PRODUCT_MASKED, 32, 576, 1536, 1024, false },  { PRODUCT_MASKED, 8, 576, 32768, 512, true },  { PRODUCT_DENSE, 1, 576, 4096, 7168, true },
        { PRODUCT_DEPTH, 8, 4096, 7168, 4096, false },  { PRODUCT_DEPTH, 4, 7168, 2048, 8192, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *why;
        const bool depth = cases[i].grouping == PRODUCT_DEPTH, masked = cases[i].grouping == PRODUCT_MASKED;
        moii_tensor_product p = product(cases[i].grouping, &act, &act, masked ? 4096 : cases[i].rows, cases[i].n, cases[i].k * (depth ? cases[i].groups : 1));
        p.groups = cases[i].groups, p.accumulate = !masked;
        if (masked) p.expected = cases[i].groups * cases[i].rows;
        assert_true(moii_tensor_fits(&p, masked ? MOI_BF16 : MOI_F32, &why));
        moii_tensor_tile t = moii_tensor_choose(&p);
        if (cases[i].tall ? t.wgs != 3 : !moii_tile_outer(&p, &t)) fail_msg("case %d: %d x %d rows", (int)i, t.wgs, t.waves);
    }
}

/* As measured on an H200: tiles of other widths for a few hundred rows, and for few rows of shapes that are no round number of tiles. */
static void test_middle(void **state)
{
    (void)state;
    static const struct { int64_t m, n, k; int rows, lines, split; } best[] = {
        { 16, 9216, 4096, 64, 80, 1 },      { 64, 9216, 4096, 64, 80, 1 },      { 16, 5120, 5120, 64, 80, 2 },     { 192, 4096, 14336, 64, 96, 1 },
        { 256, 2112, 7168, 128, 64, 2 },    { 256, 4096, 14336, 128, 128, 2 },  { 512, 2112, 7168, 128, 64, 1 },   { 512, 2048, 4096, 64, 128, 1 },
        { 512, 9216, 4096, 128, 160, 1 },   { 768, 4096, 7168, 192, 128, 1 },   { 1024, 7168, 16384, 256, 128, 1 }, { 2048, 2112, 7168, 128, 144, 1 },
        { 2048, 4096, 7168, 256, 128, 1 },  { 640, 6144, 4096, 128, 128, 1 },   { 384, 28672, 4096, 192, 128, 1 },  { 512, 1536, 2048, 64, 96, 1 },
        { 1024, 1536, 2048, 128, 96, 1 },   { 320, 2112, 7168, 64, 96, 1 },     { 256, 768, 4096, 64, 64, 2 },     { 384, 768, 4096, 64, 96, 2 },
        { 512, 4096, 2048, 128, 128, 1 },
    };
    for (size_t i = 0; i < sizeof best / sizeof *best; i++) {
        const char *why;
        moii_tensor_product p = product(PRODUCT_DENSE, &act, &weight, best[i].m, best[i].n, best[i].k);
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        moii_tensor_tile t = moii_tensor_choose(&p);
        int rows = moii_tile_rows(&p, &t), lines = moii_tile_lines(&p, &t);
        if (rows != best[i].rows || lines != best[i].lines || t.split != best[i].split)
            fail_msg("%lld x %lld x %lld: %d x %d in %d parts", (long long)best[i].m, (long long)best[i].n, (long long)best[i].k, rows, lines, t.split);
        p.sm_limit = p.sms = 100; /* a cluster with parts has one unit: none with a limit */
        t = moii_tensor_choose(&p);
        assert_int_equal(t.split, 1);
    }
}

/* As measured: the best of 15 tiles for few rows, 128 x 2112 x 7168 as good as the best (docs/notes/gemm-hopper.md). */
static void test_measured(void **state)
{
    (void)state;
    static const struct { int64_t m, n, k; int bn, split; } best[] = {
        { 64, 2112, 7168, 32, 2 },    { 64, 24576, 1536, 192, 1 }, { 64, 32768, 512, 256, 1 },   { 64, 7168, 16384, 112, 2 },
        { 64, 4096, 7168, 64, 2 },    { 64, 7168, 2048, 64, 1 },   { 128, 2112, 7168, 96, 4 },   { 128, 24576, 1536, 96, 1 },
        { 128, 32768, 512, 128, 1 },  { 128, 7168, 16384, 112, 2 }, { 128, 4096, 7168, 64, 2 },  { 128, 7168, 2048, 64, 1 },
    };
    for (size_t i = 0; i < sizeof best / sizeof *best; i++) {
        const char *why;
        moii_tensor_product p = product(PRODUCT_DENSE, &act, &weight, best[i].m, best[i].n, best[i].k);
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        moii_tensor_tile t = moii_tensor_choose(&p);
        int lines = moii_tile_lines(&p, &t);
        if (lines != best[i].bn || t.split != best[i].split)
            fail_msg("%lld x %lld x %lld: %d columns in %d parts, not %d in %d", (long long)best[i].m, (long long)best[i].n, (long long)best[i].k, lines,
                     t.split, best[i].bn, best[i].split);
    }
}

/* Reductions in groups with one scale a row that FP32 sums are added to: what was the fastest tile on an H200, however short they are. */
static void test_sums(void **state)
{
    (void)state;
    static const struct { int64_t groups, m, n, k; int band; } best[] = {
        { 128, 4096, 1536, 1024, 5 }, { 128, 3072, 4096, 1024, 2 }, { 64, 4096, 2048, 2048, 8 }, { 8, 7168, 2048, 4096, 8 },
    };
    for (size_t i = 0; i < sizeof best / sizeof *best; i++) {
        const char *why;
        moii_tensor_product p = product(PRODUCT_DEPTH, &mxfp8, &mxfp8, best[i].m, best[i].n, best[i].groups * best[i].k);
        p.groups = best[i].groups, p.mx = MOI_MX_PER_ROW, p.accumulate = true;
        assert_true(moii_tensor_fits(&p, MOI_F32, &why));
        moii_tensor_tile t = moii_tensor_choose(&p);
        assert_true(moii_tile_rows(&p, &t) == 256 && t.cluster == 2 && moii_tensor_dealt(&p, &t));
        assert_int_equal(moii_tensor_band(&p, &t), best[i].band);
        p.accumulate = false;
        t = moii_tensor_choose(&p);
        assert_int_equal(moii_tile_rows(&p, &t), 256);
    }
}

/* Ragged groups end anywhere: how many rows they have in the mean decides no more than that mean does; but for few rounds, where whole tiles do: one or
 * two of 256 rows here, for which 192 would be two and three. */
static void test_ragged(void **state)
{
    (void)state;
    for (int groups = 1; groups <= 2; groups++) {
        const char *why;
        moii_tensor_product p = product(PRODUCT_ROWS, &act, &weight, 1024 * groups, 4096, 7168);
        p.groups = groups;
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        moii_tensor_tile t = moii_tensor_choose(&p);
        assert_int_equal(moii_tile_rows(&p, &t), 256);
    }
    for (int64_t rows = 640; rows <= 4096; rows += 64) {
        const char *why;
        moii_tensor_product p = product(PRODUCT_ROWS, &act, &weight, 32 * rows, 4096, 7168);
        p.groups = 32;
        assert_true(moii_tensor_fits(&p, MOI_BF16, &why));
        moii_tensor_tile t = moii_tensor_choose(&p);
        assert_int_equal(moii_tile_rows(&p, &t), 256); /* 832 rows: 1284 us with 192, 1114 so */
    }
}

/* Few rows are expected of many that there is room for: the tile is the one for the few. */
static void test_expected(void **state)
{
    (void)state;
    const char *why;
    moii_tensor_product room = product(PRODUCT_MASKED, &act, &weight, 4096, 4096, 7168), few = product(PRODUCT_MASKED, &act, &weight, 32, 4096, 7168);
    room.expected = 8 * 32;
    assert_true(moii_tensor_fits(&room, MOI_BF16, &why) && moii_tensor_fits(&few, MOI_BF16, &why));
    moii_tensor_tile a = moii_tensor_choose(&room), b = moii_tensor_choose(&few);
    assert_memory_equal(&a, &b, sizeof a);
    room.expected = 0;
    a = moii_tensor_choose(&room);
    assert_true(a.wgs * a.waves * 64 > b.wgs * b.waves * 64);
}

/* Columns that a cluster's second block would not have: all units are there, none of a strip's is one of those that are cut, and it begins a round wherever
 * pieces of the last ones go to its clusters. */
static void test_strips(void **state)
{
    (void)state;
    const char *why;
    const moii_tensor_tile t = { 2, 2, 128, 4, 2, 1, 1, 2, 0, 0, 0 };
    moii_tensor_product p = product(PRODUCT_DENSE, &plain, &plain, 4096, 2112, 7168), q = product(PRODUCT_DENSE, &act, &weight, 4096, 2112, 7168);
    assert_true(moii_tensor_fits(&p, MOI_BF16, &why) && moii_tensor_fits(&q, MOI_BF16, &why));
    assert_true(moii_tile_strip(&p, &t) && !moii_tile_strip(&q, &t));
    product_cutting c;
    int64_t clusters = moii_tensor_clusters(&p, &t, 4096, &c);
    assert_int_equal(moii_tensor_units(&p, &t, 4096), 136);
    assert_true(clusters == 66 && c.cut == 132 && c.pieces == 2 && moii_tensor_strip_at(&p, &t, 4096, clusters, c) == 66);
    for (int64_t n = 257; n < 600; n += 7)
        for (int64_t m = 1; m < 6000; m += 177)
            for (p.sms = 2, p.n = n; p.sms <= 132; p.sms += 26) {
                int64_t tiles = moii_ceil_div(m, 256), strips = moii_tile_strips(&p, &t, m), units = moii_tensor_units(&p, &t, m);
                bool narrow = n % 256 > 0 && n % 256 <= 64;
                assert_int_equal(strips, narrow ? (tiles + 1) / 2 : 0);
                assert_int_equal(units, narrow ? tiles * (n / 256) + strips : tiles * moii_ceil_div(n, 256));
                clusters = moii_tensor_clusters(&p, &t, m, &c);
                int64_t at = moii_tensor_strip_at(&p, &t, m, clusters, c), rest = units % clusters;
                assert_true(at >= 0 && at + strips <= moii_min(units, c.cut));
                if (narrow && c.cut < PRODUCT_UNCUT && strips <= clusters && 2 * rest <= strips) assert_true(c.pieces == 2 && at % clusters == 0);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits), cmocka_unit_test(test_paths), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_thin), cmocka_unit_test(test_mixed), cmocka_unit_test(test_bands),
        cmocka_unit_test(test_tickets), cmocka_unit_test(test_counters),
        cmocka_unit_test(test_few_of_groups), cmocka_unit_test(test_activates), cmocka_unit_test(test_tall), cmocka_unit_test(test_middle),
        cmocka_unit_test(test_measured), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_expected), cmocka_unit_test(test_ragged), cmocka_unit_test(test_strips), cmocka_unit_test(test_paces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
