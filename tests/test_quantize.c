/* SPDX-License-Identifier: Apache-2.0
 * test_quantize.c: the quantiser.  The reference is compared with the definition, value by value; every other row with
 * the reference, byte by byte. */
#include "support_quantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dtype.h"
#include "format.h"

/* ---- the definition, element by element ---- */

static float input_at(const moit_quant *t, int64_t batch, int64_t r, int64_t c)
{
    int64_t ld = t->pad ? t->cols + 4 * t->pad : t->cols;
    return moi_decode(t->in, t->x, (batch * t->rows + r) * ld + c);
}

/* Value (r, c) of a side as stored. */
static float value_at(const moit_quant *t, int side, int64_t batch, int64_t r, int64_t c)
{
    return side ? input_at(t, batch, c, r) : input_at(t, batch, r, c);
}

typedef struct box { int64_t r0, r1, c0, c1, srow, sblock; } box; /* a block and its scale's place */

static int box_of(const moit_quant *t, int side, int64_t r, int64_t c, box *b)
{
    int64_t w = moi_format_block(&t->f[side]), g = 0, start = 0, end = moit_quant_cols(t, side);
    if (side && t->groups) {
        while (g < t->groups && c >= t->offsets[g + 1]) g++;
        if (g == t->groups) return 0;
        start = t->offsets[g], end = t->offsets[g + 1];
    }
    int64_t k = (c - start) / w;
    *b = (box){ r, r + 1, start + k * w, start + k * w + w, r, start / w + g + k };
    if (t->f[side].block == MOI_BLOCK_SQUARE && t->f[side].recipe == MOI_RECIPE_BLK128)
        b->r0 = r / 128 * 128, b->r1 = b->r0 + 128, b->srow = r / 128;
    if (b->r1 > moit_quant_rows(t, side)) b->r1 = moit_quant_rows(t, side);
    if (b->c1 > end) b->c1 = end;
    return 1;
}

/* The scale (as a value, NAN if poisoned) of a block, in real arithmetic. */
static double expected_scale(const moit_quant *t, int side, int64_t batch, const box *b)
{
    const moi_format *f = &t->f[side];
    int lenient = (f->flags & MOI_NONFINITE_LENIENT) != 0, mx = f->recipe == MOI_RECIPE_MX32;
    double a = 0, top = moi_dtype_max(f->elem);
    for (int64_t r = b->r0; r < b->r1; r++)
        for (int64_t c = b->c0; c < b->c1; c++) {
            double v = fabs((double)value_at(t, side, batch, r, c));
            if (!isfinite(v) && !lenient) return (double)NAN;
            if (v > a) a = v;
        }
    if (isinf(a) && mx) return 0x1p127;
    if (isinf(a)) a = 0x1.fffffep127;
    if (mx) return ldexp(1.0, (int)moii_e8m0_from_amax((float)a, moii_dtype(f->elem)->rule, (int)f->round) - 127); /* test_num's business */
    if (a == 0) return 1;
    if (!(f->flags & MOI_SCALE_POW2)) return (double)fmaxf((float)a / (float)top, 0x1p-126f);
    int e = -126;
    while (ldexp(top, e) < a) e++;
    return ldexp(1.0, e);
}

static unsigned int expected_code(const moi_format *f, double scale, float v)
{
    if (isnan(scale)) return f->elem == MOI_E4M3 || f->elem == MOI_E5M2 ? 0x7F : 0;
    if (f->recipe == MOI_RECIPE_BLK128) return moii_code_encode(f->elem, v * (1.0f / (float)scale));
    return moii_code_encode(f->elem, (float)((double)v / scale)); /* exact, but for what rounds to zero anyway */
}

static void check_definition(const moit_quant *t, int side)
{
    const moi_format *f = &t->f[side];
    int64_t rows = moit_quant_rows(t, side), cols = moit_quant_cols(t, side), srows = moii_scale_rows(f, rows);
    int64_t blocks = moi_scale_blocks(f, cols, side ? t->groups : 0), bits = moi_dtype_bits(f->elem);
    struct { int64_t batch; box b; double scale; } known[32] = { { 0 } }; /* by block: the last one computed */
    for (int64_t i = 0; i < t->batch; i++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                char *row = (char *)t->data[side] + (i * rows + r) * moit_quant_row_bytes(t, side);
                box b;
                if (!moi_format_block(f)) {
                    assert_int_equal(moii_code_load((int)bits, row, c), moii_code_encode(f->elem, value_at(t, side, i, r, c)));
                    continue;
                }
                if (!box_of(t, side, r, c, &b)) continue; /* check_unowned */
                unsigned int code = moii_code_load((int)bits, row, b.sblock * moi_format_block(f) + c - b.c0);
                char *scales = (char *)t->scale[side] + i * t->scale_bytes[side] / t->batch;
                moi_dtype st = f->recipe == MOI_RECIPE_MX32 ? MOI_E8M0 : MOI_F32;
                float got = moi_decode(st, scales, moi_scale_index(f->layout, st, b.srow, b.sblock, srows, blocks));
                int slot = (int)(b.sblock % 32);
                if (known[slot].batch != i + 1 || memcmp(&known[slot].b, &b, sizeof b) != 0)
                    known[slot].batch = i + 1, known[slot].b = b, known[slot].scale = expected_scale(t, side, i, &b);
                double want = known[slot].scale;
                if (isnan(want) ? !isnan(got) : (double)got != want)
                    fail_msg("%s scale of (%lld, %lld): got %a, want %a", moi_dtype_name(f->elem), (long long)r, (long long)c, (double)got, want);
                unsigned int expect = expected_code(f, want, value_at(t, side, i, r, c));
                if (code != expect)
                    fail_msg("%s code of %a: got 0x%x, want 0x%x", moi_dtype_name(f->elem), (double)value_at(t, side, i, r, c), code, expect);
            }
}

/* Codes that no group owns, of a group's last block or of blocks between and behind the groups, are 0. */
static void check_unowned(const moit_quant *t)
{
    int64_t width = moi_format_block(&t->f[1]), stored = moit_quant_stored(t, 1);
    for (int64_t r = 0; r < t->cols; r++) {
        const unsigned char *row = (const unsigned char *)t->data[1] + r * moit_quant_row_bytes(t, 1);
        for (int64_t c = 0, g = -1; c < stored; c++) {
            while (g + 1 < t->groups && c >= width * (t->offsets[g + 1] / width + g + 1)) g++;
            if (g < 0 || c >= width * (t->offsets[g] / width + g) + t->offsets[g + 1] - t->offsets[g]) assert_int_equal(row[c], 0);
        }
    }
}

/* ---- tables ---- */

static int make_formats(moi_format *out)
{
    static const moi_dtype elements[] = { MOI_E4M3, MOI_E5M2, MOI_E3M2, MOI_E2M3, MOI_E2M1, MOI_INT8 };
    int n = 0;
    for (int e = 0; e < 6; e++)
        for (int round = 0; round < 4; round++)
            for (int layout = 0; layout < 3; layout++)
                out[n++] = (moi_format){ MOI_RECIPE_MX32, elements[e], MOI_BLOCK_VECTOR, (moi_round)round, (moi_layout)layout,
                                         (e + round + layout) % 2 ? MOI_NONFINITE_LENIENT : 0 };
    for (int e = 0; e < 2; e++)
        for (int block = 0; block < 2; block++)
            for (uint32_t flags = 0; flags < 4; flags++)
                out[n++] = (moi_format){ MOI_RECIPE_BLK128, elements[e], (moi_block)block, MOI_ROUND_RCEIL,
                                         (e + block + (int)flags) % 2 ? MOI_LAYOUT_COL : MOI_LAYOUT_ROW, flags };
    out[n++] = MOI_FORMAT_F32;
    out[n++] = MOI_FORMAT_BF16;
    return n;
}

static const moi_dtype inputs[] = { MOI_F32, MOI_BF16, MOI_F16 };
static const int64_t shapes[][2] = { { 1, 1 }, { 33, 31 }, { 0, 7 }, { 5, 160 }, { 7, 0 }, { 130, 65 }, { 32, 33 }, { 64, 96 }, { 129, 257 }, { 20, 545 } };
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* P:quantize.bits, P:det: the reference against the definition, the other rows against the reference; every format in
 * either direction, three shapes each.  P:guard by the guarded buffers and the filled gaps between rows. */
static void test_formats(void **state)
{
    (void)state;
    moi_format formats[128];
    int n = make_formats(formats);
    uint64_t salt = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 3; i++, salt++) {
            if (!moit_picked(salt)) continue;
            const int64_t *shape = shapes[salt % SHAPES];
            moit_quant ref = { .in = inputs[i], .f = { formats[k], formats[(k + 7 * i + 3) % n] }, .want = 3, .rows = shape[0],
                            .cols = shape[1], .batch = 1 + (int64_t)(salt % 2), .pad = (int64_t)(salt % 3) };
            moit_quant_input(&ref, salt, salt % 4 == 1);
            moit_quant_outputs(&ref);
            moit_quant_run(&ref, "quantize_ref");
            for (int side = 0; side < 2; side++) check_definition(&ref, side);
            moit_quant_rows_agree(&ref, NULL);
        }
}

/* P:quantize.once: both results of one call are those of two calls, and the column-wise one is that of the transpose. */
static void test_directions(void **state)
{
    (void)state;
    moi_format formats[128];
    int n = make_formats(formats);
    for (int r = 0; moit_any_row("quantize", r); r++)
        for (int k = 0; k < n; k += 3) {
            if (!moit_picked((uint64_t)k / 3)) continue;
            const int64_t *shape = shapes[(k + r) % SHAPES];
            moit_quant both = { .in = inputs[k % 3], .f = { formats[k], formats[k] }, .want = 3, .rows = shape[0], .cols = shape[1], .batch = 1 };
            moit_quant_input(&both, (uint64_t)k, 1);
            moit_quant_outputs(&both);
            bool takes = moit_quant_run(&both, moit_any_row("quantize", r));
            for (int side = 0; takes && side < 2; side++) {
                moit_quant one = both;
                one.want = 1u << side;
                moit_quant_outputs(&one);
                if (moit_quant_run(&one, moit_any_row("quantize", r))) moit_quant_same(&both, &one, side, "one direction");
                moit_quant_free(&one);
            }
            moit_quant turned = both;
            turned.rows = both.cols, turned.cols = both.rows, turned.want = 1;
            turned.x = moit_alloc(moi_row_bytes(both.in, both.rows * both.cols));
            for (int64_t i = 0; i < both.rows; i++)
                for (int64_t c = 0; c < both.cols; c++)
                    moii_code_store(moi_dtype_bits(both.in), turned.x, c * both.rows + i,
                                    moii_code_load(moi_dtype_bits(both.in), both.x, i * both.cols + c));
            moit_quant_outputs(&turned);
            takes = takes && moit_quant_run(&turned, moit_any_row("quantize", r));
            assert_int_equal(turned.data_bytes[0], both.data_bytes[1]);
            if (takes && turned.data_bytes[0]) assert_memory_equal(turned.data[0], both.data[1], (size_t)turned.data_bytes[0]);
            if (takes && turned.scale_bytes[0]) assert_memory_equal(turned.scale[0], both.scale[1], (size_t)turned.scale_bytes[0]);
            moit_quant_free(&turned), moit_quant_free(&both);
            moit_free(turned.x), moit_free(both.x);
        }
}

/* Ragged groups: no block crosses a border, what nobody owns is 0. */
static void test_groups(void **state)
{
    (void)state;
    static const int64_t cuts[][9] = { { 0, 0, 5, 37, 37, 101, 101, 165, 300 }, { 0, 0, 0, 0, 0, 300, 300, 300, 300 },
                                       { 0, 1, 2, 3, 4, 5, 6, 7, 8 }, { 0, 128, 256, 256, 257, 257, 257, 289, 290 }, { 0, 0, 0, 0, 0, 0, 0, 0, 0 } };
    static const moi_dtype elements[] = { MOI_E4M3, MOI_INT8, MOI_E5M2 };
    for (int k = 0; k < 5 * 3 * 5; k++) {
        if (!moit_picked((uint64_t)k)) continue;
        moi_format f[5] = { MOI_FORMAT_MXFP8, MOI_FORMAT_MXFP8, MOI_FORMAT_BLK128_ACT, MOI_FORMAT_BLK128_ACT, MOI_FORMAT_BF16 };
        int which = k % 5;
        f[which].layout = which % 2 ? MOI_LAYOUT_COL : MOI_LAYOUT_ROW;
        if (which < 2) f[which].elem = elements[k / 5 % 3];
        moit_quant ref = { .in = inputs[k / 5 % 3], .f = { k % 2 ? MOI_FORMAT_BLK128_WEIGHT : MOI_FORMAT_MXFP4, f[which] }, .want = k % 4 ? 3 : 2,
                        .rows = cuts[k / 15][8] ? 300 : k % 2, .cols = 70, .batch = 1, .groups = 8, .offsets = cuts[k / 15], .pad = k % 2 };
        moit_quant_input(&ref, (uint64_t)k, k % 3 == 0);
        moit_quant_outputs(&ref);
        moit_quant_run(&ref, "quantize_ref");
        if (which < 4) check_definition(&ref, 1), check_unowned(&ref);
        if (ref.want & 1) check_definition(&ref, 0);
        moit_quant_rows_agree(&ref, NULL);
    }
}

static const char only_equal[] = "quantize_rows_sm90 quantize_columns_sm90"; /* rows with no other results: test_quantize_equal */

/* What training and inference use most, and fast rows specialise in: 8-bit floats from F32 and BF16, either direction or both, whole
 * and in groups, in shapes around the sizes that tiles have. */
static void test_eight_bits(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 1, 7168 }, { 128, 128 }, { 129, 127 }, { 300, 260 }, { 31, 33 }, { 257, 416 }, { 64, 1 }, { 1, 1 },
                                        { 130, 1088 } };
    static const int64_t cuts[][6] = { { 0, 0, 1, 1, 1, 1 }, { 0, 30, 30, 95, 128, 128 }, { 0, 128, 128, 128, 129, 129 }, { 0, 1, 2, 131, 290, 299 } };
    moi_format formats[128];
    int n = make_formats(formats), ran[16] = { 0 }, kept = 0;
    for (int k = 0; k < n; k++)
        if ((formats[k].elem == MOI_E4M3 || formats[k].elem == MOI_E5M2) && !(formats[k].flags & MOI_NONFINITE_LENIENT)) formats[kept++] = formats[k];
    for (int k = 0; k < 4 * kept; k++) {
        if (!moit_picked((uint64_t)k)) continue;
        const int64_t *size = sizes[k % 9];
        moit_quant ref = { .in = k % 2 ? MOI_F32 : MOI_BF16, .f = { formats[k % kept], formats[(3 * k + k / kept) % kept] }, .want = 1 + (uint32_t)(k / 2 % 3),
                        .rows = size[0], .cols = size[1], .batch = k % 5 == 4 ? 2 : 1, .pad = k % 7 == 6 };
        bool cut = ref.f[1].block == MOI_BLOCK_VECTOR && ref.f[1].layout != MOI_LAYOUT_TILED && k % 9 < 4 && k % 3;
        if (cut) ref.batch = 1, ref.groups = 5, ref.offsets = cuts[k % 9];
        moit_quant_input(&ref, (uint64_t)k + 1000, k % 4 >= 2);
        moit_quant_all_agree(&ref, ran);
    }
    const char *row;
    for (int r = 0; r < 16 && moit_picked(1) && (row = moit_any_row("quantize", r)); r++)
        if (ran[r] == 0 && !strstr(only_equal, row)) fail_msg("%s takes none of the cases that matter", row);
}

/* Groups long and wide enough that rows of the GPU make more than one strip of 128 rows after another, whose columns are cut anywhere. */
static void test_long_groups(void **state)
{
    (void)state;
    static const int64_t cuts[][6] = { { 0, 70, 70, 333, 1001, 1600 }, { 0, 5, 12, 40, 1500, 1560 }, { 0, 129, 257, 600, 611, 1616 } };
    const moi_format formats[] = { MOI_FORMAT_MXFP8, MOI_FORMAT_BLK128_ACT };
    for (int k = 0; k < 6; k++) {
        if (!moit_picked((uint64_t)k)) continue;
        moi_format f = formats[k / 3];
        f.layout = k % 2 ? MOI_LAYOUT_COL : MOI_LAYOUT_ROW;
        moit_quant ref = { .in = MOI_BF16, .f = { f, f }, .want = k % 3 ? 3 : 2, .rows = k % 3 == 2 ? 1616 : 1600, .cols = 3584, .batch = 1, .groups = 5,
                        .offsets = cuts[k % 3] };
        moit_quant_input(&ref, (uint64_t)k + 2000, k % 2);
        moit_quant_all_agree(&ref, NULL);
    }
}

/* Whole matrices wide enough that rows of the GPU put several tiles side by side into clusters and bands, with a last strip of few rows or none. */
static void test_wide(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = { { 700, 1024 }, { 513, 512 }, { 256, 384 }, { 1000, 256 } }, ends[] = { 1, 3, 127, 128, 129, 255, 256, 257, 383, 600 };
    const moi_format formats[] = { MOI_FORMAT_MXFP8, MOI_FORMAT_BLK128_ACT };
    static const moi_layout layouts[] = { MOI_LAYOUT_TILED, MOI_LAYOUT_COL, MOI_LAYOUT_ROW };
    for (int k = 0; k < 64; k++) {
        if (!moit_picked((uint64_t)k)) continue;
        moi_format f = formats[k >= 12];
        f.layout = layouts[k / 12 ? 1 + k % 2 : k % 3];
        if (k % 8 == 7) f.elem = MOI_E5M2;
        moit_quant ref = { .in = MOI_BF16, .f = { f, f }, .want = k / 4 % 3 ? 3 : 2, .rows = sizes[k % 4][0], .cols = sizes[k % 4][1], .batch = 1,
                        .pad = k % 5 == 4 };
        for (int side = 0; side < 2 && k >= 24; side++) { /* blocks of 128 both ways: a last strip of any length, sides that differ */
            const uint32_t mixed = (uint32_t)k * 2654435761u >> (20 + side);
            ref.want = 3, ref.rows = ends[k / 3 % 10], ref.f[side].flags = mixed & 16 ? MOI_SCALE_POW2 : 0;
            ref.f[side].elem = mixed & 1 ? MOI_E5M2 : MOI_E4M3, ref.f[side].layout = mixed & 4 ? MOI_LAYOUT_COL : MOI_LAYOUT_ROW;
        }
        moit_quant_input(&ref, (uint64_t)k + 3000, k % 2);
        moit_quant_all_agree(&ref, NULL);
    }
}

/* Codes and scales between the groups and behind the last are 0, so that the bytes are the same each time. */
static void test_unowned(void **state)
{
    (void)state;
    static const int64_t offsets[] = { 0, 1, 1, 40 };
    for (int r = 0; moit_any_row("quantize", r); r++) {
        moit_quant t = { .in = MOI_F32, .f = { MOI_FORMAT_MXFP8, MOI_FORMAT_MXFP8 }, .want = 2, .rows = 100, .cols = 2, .batch = 1,
                      .groups = 3, .offsets = offsets };
        moit_quant_input(&t, 1, 0);
        for (int64_t i = 0; i < 200; i++) ((float *)t.x)[i] = 1.0f;
        moit_quant_outputs(&t);
        if (!moit_quant_run(&t, moit_any_row("quantize", r))) {
            moit_quant_free(&t), moit_free(t.x);
            continue;
        }
        static const unsigned char want[] = { 119, 0, 119, 119, 0, 0, 119, 0, 119, 119, 0, 0 }; /* groups own blocks 0; 1..; 2 and 3 */
        assert_int_equal(t.scale_bytes[1], sizeof want);
        assert_memory_equal(t.scale[1], want, sizeof want);
        assert_int_equal(t.data_bytes[1], 2 * 6 * 32);
        for (int i = 0; i < 2 * 6 * 32; i++) { /* 1 row in block 0, none in 1, 32 and 7 in 2 and 3 */
            int at = i % (6 * 32), owned = at == 0 || (at >= 64 && at < 64 + 39);
            assert_int_equal(((unsigned char *)t.data[1])[i], owned ? 0x78 : 0);
        }
        moit_quant_free(&t);
        moit_free(t.x);
    }
}

/* One block of 32 whose last value is `last`, everything else 0. */
static void golden(const char *row, uint32_t flags, moi_dtype elem, float last, unsigned int scale, unsigned int code, unsigned int rest)
{
    moit_quant t = { .in = MOI_F32, .f = { MOI_FORMAT_MXFP8, MOI_FORMAT_MXFP8 }, .want = 1, .rows = 1, .cols = 32, .batch = 1 };
    t.f[0].flags = flags, t.f[0].elem = elem;
    moit_quant_input(&t, 0, 0);
    memset(t.x, 0, 32 * 4);
    ((float *)t.x)[31] = last;
    moit_quant_outputs(&t);
    if (!moit_quant_run(&t, row)) {
        moit_quant_free(&t), moit_free(t.x);
        return;
    }
    int bits = moi_dtype_bits(elem);
    assert_int_equal(*(unsigned char *)t.scale[0], scale);
    assert_int_equal(moii_code_load(bits, t.data[0], 31), code);
    for (int i = 0; i < 31; i++) assert_int_equal(moii_code_load(bits, t.data[0], i), rest);
    moit_quant_free(&t);
    moit_free(t.x);
}

static void test_golden(void **state)
{
    (void)state;
    for (int i = 0; moit_any_row("quantize", i); i++) {
        const char *row = moit_any_row("quantize", i);
        golden(row, 0, MOI_E4M3, 448.0f, 127, 0x7E, 0);
        golden(row, 0, MOI_E4M3, 0x1.c00006p8f, 128, 0x76, 0);
        golden(row, 0, MOI_E4M3, 1.0f, 119, 0x78, 0);
        golden(row, 0, MOI_E4M3, 1.75f, 119, 0x7E, 0);
        golden(row, 0, MOI_E4M3, 0x1.c00002p0f, 120, 0x76, 0);
        golden(row, 0, MOI_E4M3, -0.0007f, 108, 0xFB, 0);
        golden(row, 0, MOI_E4M3, 0.0f, 0, 0, 0);
        golden(row, 0, MOI_E4M3, 0x1p-127f, 0, 0x38, 0);
        golden(row, 0, MOI_E4M3, 3.4028235e38f, 247, 0x78, 0);
        golden(row, 0, MOI_E4M3, INFINITY, 255, 0x7F, 0x7F);
        golden(row, 0, MOI_E4M3, NAN, 255, 0x7F, 0x7F);
        golden(row, 0, MOI_E5M2, -NAN, 255, 0x7F, 0x7F);
        golden(row, 0, MOI_E2M1, NAN, 255, 0, 0);
        golden(row, 0, MOI_INT8, -INFINITY, 255, 0, 0);
        golden(row, MOI_NONFINITE_LENIENT, MOI_E4M3, INFINITY, 254, 0x7E, 0);
        golden(row, MOI_NONFINITE_LENIENT, MOI_E4M3, -INFINITY, 254, 0xFE, 0);
        golden(row, MOI_NONFINITE_LENIENT, MOI_E4M3, NAN, 0, 0x7F, 0);
        golden(row, MOI_NONFINITE_LENIENT, MOI_E2M1, NAN, 0, 0x7, 0);
        golden(row, MOI_NONFINITE_LENIENT, MOI_INT8, -INFINITY, 254, 0x81, 0);
    }
}

static void test_errors(void **state)
{
    (void)state;
    moi_quantize_desc good = MOI_QUANTIZE_DESC_INIT, d;
    moi_plan *plan;
    moi_ctx *ctx = moit_ctx(0);
    good.rowwise = good.colwise = MOI_FORMAT_MXFP8, good.want = 3, good.max_rows = 64, good.cols = 32;
    struct { moi_status status; const char *text; moi_quantize_desc d; } bad[19];
    int n = 0;
#define BAD(s, t, ...) do { d = good; __VA_ARGS__; bad[n].status = s, bad[n].text = t, bad[n++].d = d; } while (0)
    BAD(MOI_ERR_ARG, "in must be f32, bf16 or f16, got e4m3", d.in = MOI_E4M3);
    BAD(MOI_ERR_ARG, "got 4", d.want = 4);
    BAD(MOI_ERR_ARG, "got 0", d.want = 0);
    BAD(MOI_ERR_SHAPE, "got -1 and 32", d.max_rows = -1);
    BAD(MOI_ERR_SHAPE, "batch must be >= 0, got -2", d.batch = -2);
    BAD(MOI_ERR_SHAPE, "address space", d.max_rows = INT64_MAX / 8);
    BAD(MOI_ERR_ARG, "rowwise: recipe mx32 needs an MX element", d.rowwise.elem = MOI_F16);
    BAD(MOI_ERR_ARG, "colwise: layout must be 0..2, got 9", d.colwise.layout = (moi_layout)9);
    BAD(MOI_ERR_SHAPE, "groups must be >= 0, got -1", d.groups = -1);
    BAD(MOI_ERR_ARG, "groups need batch 1, got 2", d.groups = 1, d.batch = 2);
    BAD(MOI_ERR_ARG, "groups need elements of 8 bits, got e2m1", d.groups = 1, d.colwise.elem = MOI_E2M1);
    BAD(MOI_ERR_ARG, "groups need layout row or col, got tiled", d.groups = 1, d.colwise.layout = MOI_LAYOUT_TILED);
    BAD(MOI_ERR_ARG, "groups need vector blocks", d.groups = 1, d.colwise = MOI_FORMAT_BLK128_WEIGHT);
    BAD(MOI_ERR_ARG, "rowwise_mx must be 0 (free)", d.rowwise_mx = (moi_mx_scales)3);
    BAD(MOI_ERR_ARG, "rowwise_mx must be 0 (free) where that result is not wanted, got 2", d.rowwise_mx = MOI_MX_PER_ROW, d.want = 2);
    BAD(MOI_ERR_ARG, "colwise_mx must be 0 (free), 1 (per 128) or 2 (per row), got 3", d.colwise_mx = (moi_mx_scales)3);
    BAD(MOI_ERR_ARG, "colwise_mx needs mx32 with e4m3 and not lenient, got mx32 with e4m3 and flags 2", d.colwise_mx = MOI_MX_PER_128,
        d.colwise.flags = MOI_NONFINITE_LENIENT);
    BAD(MOI_ERR_ARG, "got mx32 with e5m2 and flags 0", d.rowwise_mx = MOI_MX_PER_128, d.rowwise.elem = MOI_E5M2);
    for (int i = 0; i < n; i++) moit_refused(moi_quantize_plan_create(&plan, ctx, &bad[i].d), bad[i].status, bad[i].text);
    moit_refused(moi_quantize_plan_create(NULL, ctx, &good), MOI_ERR_ARG, "out is NULL");

    static const int64_t late[] = { 1, 2, 3 }, down[] = { 0, 9, 8 }, beyond[] = { 0, 9, 65 }, fine[] = { 0, 9, 64 };
    float *x = moit_alloc(64 * 32 * 4);
    unsigned char *q = moit_alloc(64 * 32), *s = moit_alloc(64 * 32), *qt = moit_alloc(128 * 32), *st = moit_alloc(64 * 32);
    moi_quantize_args ok = { .size = sizeof ok, .rows = 64, .in = { x, NULL, 0 }, .rowwise = { q, s, 0 }, .colwise = { qt, st, 0 }, .offsets = fine }, a;
    for (int64_t i = 0; i < 64 * 32; i++) x[i] = 1;
    memset(q, 0x5A, 64 * 32);
    d = good, d.groups = 2;
    moit_ok(moi_quantize_plan_create(&plan, ctx, &d));
#define RUN(status, text, ...) do { a = ok; __VA_ARGS__; moit_refused(moi_quantize_run(plan, &a, NULL, 0, NULL), status, text); } while (0)
    RUN(MOI_ERR_SHAPE, "rows must be 0..64, got 65", a.rows = 65);
    RUN(MOI_ERR_ARG, "offsets is NULL", a.offsets = NULL);
    RUN(MOI_ERR_ARG, "offsets[0] must be 0, got 1", a.offsets = late);
    RUN(MOI_ERR_ARG, "offsets must ascend, got 9 before 8", a.offsets = down);
    RUN(MOI_ERR_ARG, "offsets[2] must be <= rows = 64, got 65", a.offsets = beyond);
    RUN(MOI_ERR_ARG, "in: data is NULL", a.in.data = NULL);
    RUN(MOI_ERR_ALIGN, "in: data must be aligned", a.in.data = x + 1);
    RUN(MOI_ERR_ARG, "rowwise: scale is NULL", a.rowwise.scale = NULL);
    RUN(MOI_ERR_SHAPE, "colwise: ld must be 0 or >= 128, got 64", a.colwise.ld = 64);
    for (int i = 0; i < 64 * 32; i++) assert_int_equal(q[i], 0x5A); /* refused calls wrote nothing */
    moit_ok(moi_quantize_run(plan, &ok, NULL, 0, NULL));
    moi_plan_free(plan);
    moit_free(x), moit_free(q), moit_free(s), moit_free(qt), moit_free(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_formats), cmocka_unit_test(test_directions),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_eight_bits), cmocka_unit_test(test_long_groups), cmocka_unit_test(test_wide),
        cmocka_unit_test(test_unowned), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
