/* SPDX-License-Identifier: Apache-2.0
 * test_dequantize.c: dequantise and rebase, over all codes and all kinds of scales. */
#include "support_gpu.h"

#include <math.h>
#include <stdlib.h>

#include "dtype.h"
#include "format.h"

static unsigned int bits_of(float x) { return moii_bits_of(x); }

/* Random codes and scales, NaN and both ends of the range among them. */
static void fill_bytes(moit_rng *rng, unsigned char *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) p[i] = (unsigned char)moit_next(rng);
}

static void fill_scales(moit_rng *rng, const moi_format *f, void *scale, int64_t bytes)
{
    if (f->recipe == MOI_RECIPE_MX32) {
        for (int64_t i = 0; i < bytes; i++)
            ((unsigned char *)scale)[i] = (unsigned char)(moit_below(rng, 4) ? 100 + moit_below(rng, 50) : moit_below(rng, 256));
        return;
    }
    for (int64_t i = 0; i < bytes / 4; i++)
        ((float *)scale)[i] = moit_below(rng, 20) ? ldexpf(moit_normal(rng), (int)moit_below(rng, 200) - 100) : NAN;
}

typedef struct shape { int64_t rows, cols, pad; } shape;

static void check_dequantize(const moi_format *f, shape s, moi_dtype out, uint64_t salt)
{
    moit_rng rng = moit_seed("dequantize", salt);
    int64_t ld = s.pad ? moii_round_up(s.cols + s.pad, 4) : s.cols, stride = moi_row_bytes(f->elem, ld), out_ld = s.cols + s.pad;
    int64_t blocks = moi_scale_blocks(f, s.cols, 0), srows = moii_scale_rows(f, s.rows), bytes = moi_scale_bytes(f, s.rows, s.cols, 0);
    unsigned char *data = moit_alloc(s.rows * stride), *scale = moit_alloc(bytes);
    fill_bytes(&rng, data, s.rows * stride);
    fill_scales(&rng, f, scale, bytes);
    for (int i = 0; moit_any_row("dequantize", i); i++) {
        moi_dequantize_desc d = MOI_DEQUANTIZE_DESC_INIT;
        d.row = moit_any_row("dequantize", i), d.in = *f, d.out = out, d.max_rows = s.rows, d.cols = s.cols;
        moi_plan *plan;
        moit_mem m = moit_mem_of(d.row);
        moi_status status = moi_dequantize_plan_create(&plan, m.ctx, &d);
        if (status == MOI_ERR_UNSUPPORTED && m.gpu) continue;
        moit_ok(status);
        unsigned char *v = moit_alloc(moi_row_bytes(out, s.rows * out_ld));
        memset(v, 0x5A, (size_t)moi_row_bytes(out, s.rows * out_ld));
        moi_dequantize_args a = { .size = sizeof a, .rows = s.rows, .in = { moit_in(&m, data, moit_size(data)), moit_in(&m, scale, bytes), s.pad ? ld : 0 },
                                  .out = { moit_out(&m, v, moit_size(v)), NULL, s.pad ? out_ld : 0 } };
        moit_mem_run(&m, moi_dequantize_run(plan, &a, NULL, 0, m.stream));
        moit_mem_done(&m);
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t c = 0; c < out_ld; c++) {
                unsigned int got = moii_code_load(moi_dtype_bits(out), v, r * out_ld + c), want = out == MOI_F32 ? 0x5A5A5A5Au : 0x5A5Au;
                if (c < s.cols) {
                    double x = (double)moi_decode(f->elem, data + r * stride, c); /* times a scale: exact in double, rounded once */
                    moi_dtype st = f->recipe == MOI_RECIPE_MX32 ? MOI_E8M0 : MOI_F32;
                    int64_t w = moi_format_block(f), sr = f->block == MOI_BLOCK_SQUARE ? r / 128 : r;
                    if (w) x *= (double)moi_decode(st, scale, moi_scale_index(f->layout, st, sr, c / w, srows, blocks));
                    want = isnan(x) ? 0x7FC00000u : bits_of((float)x);
                    if (out == MOI_BF16) want = moii_bf16_encode(moii_float_of(want));
                }
                if (got != want)
                    fail_msg("%s, %s %s -> %s, %lld x %lld at (%lld, %lld): got 0x%x, want 0x%x", d.row, moi_recipe_name(f->recipe),
                             moi_dtype_name(f->elem), moi_dtype_name(out), (long long)s.rows, (long long)s.cols, (long long)r, (long long)c, got, want);
            }
        moit_free(v);
        moi_plan_free(plan);
    }
    moit_free(data), moit_free(scale);
}

/* P:dequantize.bits */
static void test_dequantize(void **state)
{
    (void)state;
    static const moi_dtype elements[] = { MOI_E4M3, MOI_E5M2, MOI_E3M2, MOI_E2M3, MOI_E2M1, MOI_INT8 };
    static const shape shapes[] = { { 3, 256, 0 }, { 1, 1, 0 }, { 0, 9, 0 }, { 5, 33, 3 }, { 4, 0, 0 }, { 131, 131, 1 }, { 9, 1061, 0 }, { 16, 1100, 4 } };
    uint64_t salt = 0;
    for (int e = 0; e < 6; e++)
        for (int layout = 0; layout < 3; layout++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++, salt++) {
                moi_format f = { MOI_RECIPE_MX32, elements[e], MOI_BLOCK_VECTOR, MOI_ROUND_RCEIL, (moi_layout)layout, 0 };
                check_dequantize(&f, shapes[s], salt % 2 ? MOI_F32 : MOI_BF16, salt);
                if (e > 1 || layout == MOI_LAYOUT_TILED) continue;
                f.recipe = MOI_RECIPE_BLK128, f.block = salt % 3 ? MOI_BLOCK_VECTOR : MOI_BLOCK_SQUARE;
                check_dequantize(&f, shapes[s], salt % 2 ? MOI_BF16 : MOI_F32, salt);
                f = e ? MOI_FORMAT_BF16 : MOI_FORMAT_F32;
                check_dequantize(&f, shapes[s], salt % 2 ? MOI_F32 : MOI_BF16, salt);
            }
}

/* ---- rebase ---- */

typedef struct rebased { unsigned char *data, *scale; float *bound; int32_t shift; } rebased;

/* False where a row of the GPU declines. */
static bool rebase(const char *row, const moi_format *f, int64_t group, shape s, const unsigned char *in, const unsigned char *scale, rebased *out,
                   bool in_place)
{
    int64_t ld = s.cols + s.pad, bytes = moi_scale_bytes(f, s.rows, s.cols, 0), groups = group ? moii_ceil_div(s.cols, group) : s.cols > 0;
    out->data = moit_alloc(s.rows * ld), out->scale = moit_alloc(bytes), out->bound = moit_alloc(s.rows * groups * 4);
    memset(out->data, 0x5A, (size_t)(s.rows * ld));
    memset(out->scale, 0x5A, (size_t)bytes);
    for (int64_t r = 0; r < s.rows && in_place; r++) memcpy(out->data + r * ld, in + r * ld, (size_t)s.cols);
    if (in_place) memcpy(out->scale, scale, (size_t)bytes);
    moi_rebase_desc d = MOI_REBASE_DESC_INIT;
    d.row = row, d.format = *f, d.group = group, d.max_rows = s.rows + 1, d.cols = s.cols;
    moi_plan *plan;
    moit_mem m = moit_mem_of(row);
    moi_status status = moi_rebase_plan_create(&plan, m.ctx, &d);
    if (status == MOI_ERR_UNSUPPORTED && m.gpu) return false;
    moit_ok(status);
    void *ws = moit_mem_workspace(&m, plan);
    moi_result to = { moit_out(&m, out->data, s.rows * ld), moit_out(&m, out->scale, bytes), s.pad ? ld : 0 };
    moi_operand from = { in_place ? to.data : moit_in(&m, in, s.rows * ld), in_place ? to.scale : moit_in(&m, scale, bytes), s.pad ? ld : 0 };
    moi_rebase_args a = { .size = sizeof a, .rows = s.rows, .in = from, .out = to, .max_shift = moit_out(&m, &out->shift, 4),
                          .bound = moit_out(&m, out->bound, s.rows * groups * 4) };
    moit_mem_run(&m, moi_rebase_run(plan, &a, ws, moi_plan_workspace_bytes(plan), m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(ws);
    moi_plan_free(plan);
    return true;
}

static void free_rebased(rebased *r) { moit_free(r->data), moit_free(r->scale), moit_free(r->bound); }

/* Each element moved by at most the bound, and exactly where it should have gone; scales of a group are equal. */
static void check_rebase(const moi_format *f, int64_t group, shape s, const unsigned char *in, const unsigned char *scale, const rebased *out)
{
    int64_t ld = s.cols + s.pad, blocks = moi_scale_blocks(f, s.cols, 0), width = group ? group : moii_max(s.cols, 1);
    int64_t groups = s.cols ? moii_ceil_div(s.cols, width) : 0;
    int worst = 0;
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            int top = -1, nan = 0, shifted = 0;
            for (int64_t c = g * width; c < moii_min((g + 1) * width, s.cols); c++) {
                int e = scale[moi_scale_index(f->layout, MOI_E8M0, r, c / 32, s.rows, blocks)];
                nan |= e == 255;
                if (in[r * ld + c] & 0x7F && e > top) top = e;
            }
            if (top < 0) top = 0;
            for (int64_t c = g * width; c < moii_min((g + 1) * width, s.cols); c++) {
                int64_t at = moi_scale_index(f->layout, MOI_E8M0, r, c / 32, s.rows, blocks);
                unsigned char q = out->data[r * ld + c];
                assert_int_equal(out->scale[at], nan ? 255 : top);
                if (nan) {
                    assert_int_equal(q, 0x7F);
                    continue;
                }
                if (in[r * ld + c] & 0x7F && scale[at] < top) shifted = 1, worst = worst > top - scale[at] ? worst : top - scale[at];
                double old = ldexp((double)moii_e4m3_decode(in[r * ld + c]), scale[at] - 127), now = ldexp((double)moii_e4m3_decode(q), top - 127);
                if (isnan(old)) {
                    assert_true(isnan(now));
                    continue;
                }
                if (!(fabs(now - old) <= (double)out->bound[r * groups + g]))
                    fail_msg("moved by %a, bound %a", now - old, (double)out->bound[r * groups + g]);
                double u = ldexp(old, 127 - top); /* in units of the common scale: nearest code, ties to even */
                if (q != moii_e4m3_encode((float)u) && (in[r * ld + c] & 0x7F)) fail_msg("rebased %a: code 0x%x", u, q);
                if (!(in[r * ld + c] & 0x7F)) assert_int_equal(q, in[r * ld + c]);
            }
            double bound = nan ? (double)NAN : shifted ? ldexp(1.0, -10 + top - 127) : 0;
            if (nan ? !isnan(out->bound[r * groups + g]) : (double)out->bound[r * groups + g] != bound)
                fail_msg("bound %a, want %a", (double)out->bound[r * groups + g], bound);
        }
    assert_int_equal(out->shift, worst); /* blocks of zeros and groups with a NaN scale have none */
}

/* P:rebase.bound, P:rebase.bits */
static void test_rebase(void **state)
{
    (void)state;
    static const shape shapes[] = { { 3, 256, 0 }, { 1, 1, 0 }, { 0, 9, 0 }, { 5, 130, 3 }, { 4, 0, 0 }, { 140, 161, 0 }, { 6, 1061, 0 } };
    for (int k = 0; k < 7 * 3 * 2 * 2; k++) {
        shape s = shapes[k % 7];
        int64_t group = k / 7 % 2 ? 128 : 0;
        int wild = k / 14 % 2;
        moi_format f = MOI_FORMAT_MXFP8;
        f.layout = (moi_layout)(k / 28);
        moit_rng rng = moit_seed("rebase", (uint64_t)k);
        int64_t n = s.rows * (s.cols + s.pad), bytes = moi_scale_bytes(&f, s.rows, s.cols, 0);
        unsigned char *in = moit_alloc(n), *scale = moit_alloc(bytes);
        fill_bytes(&rng, in, n);
        for (int64_t i = 0; i < bytes; i++) scale[i] = (unsigned char)(wild ? moit_below(&rng, 256) : 110 + moit_below(&rng, 20));
        for (int64_t i = 0; i < n; i++)
            if (moit_below(&rng, 3) == 0 || (i / 64 % 5 == 0)) in[i] &= 0x80; /* zeros, and blocks of them */
        for (int i = 0; moit_any_row("rebase", i); i++)
            for (int in_place = 0; in_place < 2; in_place++) {
                rebased out, ref;
                if (!rebase(moit_any_row("rebase", i), &f, group, s, in, scale, &out, in_place)) {
                    free_rebased(&out);
                    continue;
                }
                rebase("rebase_ref", &f, group, s, in, scale, &ref, false);
                check_rebase(&f, group, s, in, scale, &out);
                assert_int_equal(out.shift, ref.shift);
                for (int64_t j = 0; j < n; j++)
                    if (j % (s.cols + s.pad) < s.cols) assert_int_equal(out.data[j], ref.data[j]);
                    else assert_int_equal(out.data[j], 0x5A);
                if (bytes) assert_memory_equal(out.scale, ref.scale, (size_t)bytes);
                free_rebased(&out), free_rebased(&ref);
            }
        moit_free(in), moit_free(scale);
    }
}

/* Two blocks of one group, by hand: 1.0 at 2^0 and codes at 2^-12. */
static void test_rebase_golden(void **state)
{
    (void)state;
    moi_format f = MOI_FORMAT_MXFP8;
    unsigned char *in = moit_alloc(64), *scale = moit_alloc(2);
    memset(in, 0, 64);
    in[0] = 0x38;                                 /* 1.0 */
    in[32] = 0x7E, in[33] = 0xF0, in[34] = 0x40; /* 448, -128, 2: times 2^-12 they are 0.109, -0.03125, 2^-11 */
    scale[0] = 127, scale[1] = 115;
    rebased out;
    rebase("rebase_ref", &f, 128, (shape){ 1, 64, 0 }, in, scale, &out, false);
    assert_int_equal(out.shift, 12);
    assert_true(out.bound[0] == 0x1p-10f);
    assert_int_equal(out.scale[0], 127);
    assert_int_equal(out.scale[1], 127);
    assert_int_equal(out.data[0], 0x38);
    assert_int_equal(out.data[32], 0x1E); /* 0.109375 */
    assert_int_equal(out.data[33], 0x90); /* -2^-5 */
    assert_int_equal(out.data[34], 0);
    free_rebased(&out);
    moit_free(in), moit_free(scale);
}

static void test_errors(void **state)
{
    (void)state;
    moi_plan *plan;
    moi_ctx *ctx = moit_ctx(0);
    moi_rebase_desc d = MOI_REBASE_DESC_INIT;
    d.format = MOI_FORMAT_MXFP8, d.max_rows = 4, d.cols = 64;
    moi_rebase_desc bad = d;
    bad.format.elem = MOI_E5M2;
    moit_refused(moi_rebase_plan_create(&plan, ctx, &bad), MOI_ERR_ARG, "format must be mx32 with e4m3, got mx32 with e5m2");
    bad = d, bad.group = 64;
    moit_refused(moi_rebase_plan_create(&plan, ctx, &bad), MOI_ERR_ARG, "group must be 128, or 0 for the whole row, got 64");
    bad = d, bad.cols = -1;
    moit_refused(moi_rebase_plan_create(&plan, ctx, &bad), MOI_ERR_SHAPE, "got 4 and -1");
    moit_ok(moi_rebase_plan_create(&plan, ctx, &d));
    unsigned char *data = moit_alloc(256), *scale = moit_alloc(8);
    moi_rebase_args a = { .size = sizeof a, .rows = 5, .in = { data, scale, 0 }, .out = { data, scale, 0 } };
    moit_refused(moi_rebase_run(plan, &a, NULL, 0, NULL), MOI_ERR_SHAPE, "rows must be 0..4, got 5");
    a.rows = 4, a.out.scale = NULL;
    moit_refused(moi_rebase_run(plan, &a, NULL, 0, NULL), MOI_ERR_ARG, "out: scale is NULL");
    moi_plan_free(plan);
    moi_dequantize_desc q = MOI_DEQUANTIZE_DESC_INIT;
    q.in = MOI_FORMAT_MXFP8, q.out = MOI_F16;
    moit_refused(moi_dequantize_plan_create(&plan, ctx, &q), MOI_ERR_ARG, "out must be f32 or bf16, got f16");
    moit_free(data), moit_free(scale);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantize), cmocka_unit_test(test_rebase), cmocka_unit_test(test_rebase_golden), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
