/* SPDX-License-Identifier: Apache-2.0
 * test_convert.c: moi_checkpoint_quantize: the numbers are those of moi_quantize, the rest is untouched, and the output is
 * complete or absent. */
#include "support.h"
#include "support_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "moiety_lm.h"

typedef struct tensor { const char *name; moi_dtype dtype; int32_t rank; int64_t shape[4]; int linear; } tensor;

static const tensor model[] = {
    { "model.embed_tokens.weight", MOI_BF16, 2, { 10, 64 }, 0 },
    { "model.layers.0.self_attn.q_proj.weight", MOI_BF16, 2, { 5, 64 }, 1 },
    { "model.layers.0.self_attn.q_norm.weight", MOI_F32, 1, { 33 }, 0 },
    { "odd", MOI_U8, 1, { 3 }, 0 }, /* what follows is aligned to nothing */
    { "model.layers.0.self_attn.o_proj.weight", MOI_F32, 2, { 130, 96 }, 1 },
    { "model.layers.0.self_attn.o_proj.bias", MOI_F32, 1, { 130 }, 0 },
    { "model.layers.0.mlp.gate.weight", MOI_F32, 2, { 8, 64 }, 0 },
    { "model.layers.0.mlp.experts.0.up_proj.weight", MOI_F16, 2, { 257, 160 }, 1 },
    { "model.layers.0.mlp.experts.1.up_proj.weight", MOI_BF16, 2, { 0, 32 }, 1 },
    { "model.layers.0.mlp.experts.2.up_proj.weight", MOI_F32, 2, { 4, 0 }, 1 },
    { "model.layers.1.mlp.experts.gate_up_proj", MOI_BF16, 3, { 3, 129, 160 }, 1 },
    { "model.layers.1.mlp.experts.down_proj", MOI_F32, 4, { 2, 2, 40, 288 }, 1 },
    { "step", MOI_I64, 0, { 0 }, 0 },
    { "model.layers.1.self_attn.k_proj.weight", MOI_BF16, 2, { 131, 8224 }, 1 }, /* wider and longer than a piece */
    { "model.layers.1.mlp.gate_proj.weight", MOI_I32, 2, { 2, 2 }, 0 },
};
enum { MODEL = sizeof model / sizeof *model };

static const struct { moi_file_format file; const char *name, *suffix, *scale; moi_format format; int mantissa; double half_step; } formats[] = {
    { MOI_FILE_MXFP8, "mxfp8", "", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E4M3 }, 3, 0x1p-10 },
    { MOI_FILE_MXFP4, "mxfp4", "_packed", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M1 }, 1, 0.25 },
    { MOI_FILE_MXFP6, "mxfp6", "_packed", "_scale", { .recipe = MOI_RECIPE_MX32, .elem = MOI_E2M3 }, 3, 0x1p-4 },
    { MOI_FILE_FP8_BLOCK, "fp8-block", "", "_scale_inv", { .recipe = MOI_RECIPE_BLK128, .elem = MOI_E4M3, .block = MOI_BLOCK_SQUARE }, 3, 0x1p-10 },
};
enum { FORMATS = sizeof formats / sizeof *formats };

static int64_t count_of(const tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

static void write_tensors(const char *path, const tensor *list, int count)
{
    moi_st_writer *w;
    moit_rng rng = moit_seed("convert", 1);
    moit_ok(moi_st_writer_create(&w, path));
    moit_ok(moi_st_writer_metadata(w, "format", "pt"));
    for (int i = 0; i < count; i++) moit_ok(moi_st_writer_declare(w, list[i].name, list[i].dtype, list[i].rank, list[i].shape));
    for (int i = 0; i < count; i++) {
        int64_t n = count_of(&list[i]), bytes = n * moi_dtype_bits(list[i].dtype) / 8;
        unsigned char *data = calloc((size_t)bytes + 1, 1);
        for (int64_t j = 0; j < n; j++)
            if (list[i].dtype <= MOI_BF16) moi_encode(list[i].dtype, data, j, ldexpf(moit_normal(&rng), (int)moit_below(&rng, 8) - 8));
            else data[j] = (unsigned char)moit_next(&rng);
        moit_ok(moi_st_writer_write(w, data, bytes));
        free(data);
    }
    moit_ok(moi_st_writer_commit(w));
}

static moi_tensor find(const moi_st *f, const char *name, const char *suffix)
{
    char full[256];
    moi_tensor t;
    snprintf(full, sizeof full, "%s%s", name, suffix);
    moit_ok(moi_st_find(f, full, &t));
    return t;
}

/* A copy of a tensor's bytes that starts where buffers must. */
static void *aligned_copy(const void *data, int64_t bytes)
{
    void *p = moit_alloc(bytes);
    if (bytes) memcpy(p, data, (size_t)bytes);
    return p;
}

/* One matrix: the file's codes and scales are moi_quantize's, and no element is further off than its format allows. */
static void check_matrix(int f, moi_round round, const moi_tensor *in, const moi_tensor *codes, const moi_tensor *scales, int64_t m,
                         int64_t rows, int64_t cols)
{
    moi_format format = formats[f].format;
    format.round = round;
    int64_t n = rows * cols, size = moi_dtype_bits(in->dtype) / 8, code_bytes = rows * moi_row_bytes(format.elem, cols);
    int64_t scale_bytes = moi_scale_bytes(&format, rows, cols, 0);
    moi_quantize_desc d = MOI_QUANTIZE_DESC_INIT;
    d.in = in->dtype, d.rowwise = format, d.max_rows = rows, d.cols = cols;
    moi_plan *plan;
    moit_ok(moi_quantize_plan_create(&plan, moit_ctx(0), &d));
    void *x = aligned_copy((const char *)in->data + m * n * size, n * size), *q = moit_alloc(code_bytes), *s = moit_alloc(scale_bytes);
    void *work = moit_workspace(plan);
    moi_quantize_args a = { .size = sizeof a, .rows = rows, .in = { x, NULL, 0 }, .rowwise = { q, s, 0 } };
    moit_ok(moi_quantize_run(plan, &a, work, moi_plan_workspace_bytes(plan), NULL));
    assert_memory_equal(q, (const char *)codes->data + m * code_bytes, (size_t)code_bytes);
    assert_memory_equal(s, (const char *)scales->data + m * scale_bytes, (size_t)scale_bytes);
    int64_t blocks = moi_scale_blocks(&format, cols, 0);
    for (int64_t i = 0; i < n && round == MOI_ROUND_RCEIL; i++) {
        int64_t r = i / cols, c = i % cols;
        double v = moi_decode(in->dtype, x, i), scale, unit = ldexp(1.0, -formats[f].mantissa - 1);
        if (format.recipe == MOI_RECIPE_MX32) scale = moi_decode(MOI_E8M0, s, r * blocks + c / 32);
        else scale = ((float *)s)[r / 128 * blocks + c / 128], unit += 0x1p-22; /* 1 / s and v * (1 / s) are rounded */
        double got = scale * (double)moi_decode(format.elem, (char *)q + r * moi_row_bytes(format.elem, cols), c);
        double bound = fmax(fabs(v) * unit, scale * formats[f].half_step * (1 + 0x1p-20));
        if (!(fabs(got - v) <= bound)) fail_msg("%s: element %lld: %g became %g, allowed is %g", in->name, (long long)i, v, got, bound);
    }
    moit_free(x), moit_free(q), moit_free(s), moit_free(work);
    moi_plan_free(plan);
}

static void check_linear(int f, moi_round round, const moi_st *in, const moi_st *out, const tensor *t)
{
    moi_tensor source = find(in, t->name, ""), codes = find(out, t->name, formats[f].suffix), scales = find(out, t->name, formats[f].scale);
    int64_t rows = t->shape[t->rank - 2], cols = t->shape[t->rank - 1], matrices = 1;
    int mx = formats[f].format.recipe == MOI_RECIPE_MX32;
    for (int i = 0; i < t->rank - 2; i++) {
        matrices *= t->shape[i];
        assert_int_equal(codes.shape[i], t->shape[i]);
        assert_int_equal(scales.shape[i], t->shape[i]);
    }
    assert_int_equal(codes.rank, t->rank);
    assert_int_equal(codes.dtype, *formats[f].suffix ? MOI_U8 : MOI_E4M3);
    assert_int_equal(codes.shape[t->rank - 2], rows);
    assert_int_equal(codes.shape[t->rank - 1], moi_row_bytes(formats[f].format.elem, cols));
    assert_int_equal(scales.rank, t->rank);
    assert_int_equal(scales.dtype, mx ? MOI_U8 : MOI_F32);
    assert_int_equal(scales.shape[t->rank - 2], mx ? rows : (rows + 127) / 128);
    assert_int_equal(scales.shape[t->rank - 1], mx ? cols / 32 : (cols + 127) / 128);
    for (int64_t m = 0; m < matrices; m++) check_matrix(f, round, &source, &codes, &scales, m, rows, cols);
}

static void check_file(int f, moi_round round, const char *in_path, const char *out_path)
{
    moi_st *in, *out;
    int linear = 0;
    moit_ok(moi_st_open(&in, in_path));
    moit_ok(moi_st_open(&out, out_path));
    assert_string_equal(moi_st_metadata(out, "format"), "pt");
    assert_string_equal(moi_st_metadata(out, "moiety.format"), formats[f].name);
    if (f < 3) assert_string_equal(moi_st_metadata(out, "moiety.round"), moi_round_name(round));
    for (int i = 0; i < MODEL; i++) {
        linear += model[i].linear;
        if (model[i].linear) {
            check_linear(f, round, in, out, &model[i]);
            continue;
        }
        moi_tensor a = find(in, model[i].name, ""), b = find(out, model[i].name, "");
        assert_int_equal(a.dtype, b.dtype);
        assert_int_equal(a.rank, b.rank);
        assert_memory_equal(a.shape, b.shape, sizeof a.shape);
        assert_memory_equal(a.data, b.data, (size_t)a.bytes);
    }
    assert_int_equal(moi_st_count(out), MODEL + linear);
    moi_st_close(in);
    moi_st_close(out);
}

static moi_status convert(const char *in, const char *out, moi_file_format format)
{
    moi_convert_options o = MOI_CONVERT_OPTIONS_INIT;
    o.format = format;
    return moi_checkpoint_quantize(moit_ctx(0), in, out, &o);
}

static void test_formats(void **state)
{
    (void)state;
    const char *in = moit_path("in"), *out = moit_path("out");
    write_tensors(in, model, MODEL);
    for (int f = 0; f < FORMATS; f++) {
        moit_ok(convert(in, out, formats[f].file));
        check_file(f, MOI_ROUND_RCEIL, in, out);
    }
    moi_convert_options o = MOI_CONVERT_OPTIONS_INIT;
    o.format = MOI_FILE_MXFP4;
    o.round = MOI_ROUND_FLOOR;
    moit_ok(moi_checkpoint_quantize(moit_ctx(0), in, out, &o));
    check_file(1, MOI_ROUND_FLOOR, in, out);
    assert_int_equal(moit_entries(), 2);
    unlink(in), unlink(out);
}

typedef struct watch { int calls, stop_at; int64_t done, total; const char *shorten; } watch;

static bool on_progress(void *user, const char *name, int64_t done, int64_t total)
{
    watch *w = user;
    assert_non_null(name);
    assert_true(done > w->done && done <= total && (!w->total || w->total == total));
    w->done = done;
    w->total = total;
    if (w->shorten && truncate(w->shorten, 4096)) fail_msg("truncate");
    return ++w->calls != w->stop_at;
}

static moi_status watched(const char *in, const char *out, watch *w)
{
    moi_convert_options o = MOI_CONVERT_OPTIONS_INIT;
    o.progress = on_progress;
    o.user = w;
    return moi_checkpoint_quantize(moit_ctx(0), in, out, &o);
}

static void test_progress_and_cancel(void **state)
{
    (void)state;
    const char *in = moit_path("in"), *out = moit_path("out");
    write_tensors(in, model, MODEL);
    watch whole = { .stop_at = -1 };
    moit_ok(watched(in, out, &whole));
    assert_int_equal(whole.done, whole.total);
    assert_true(whole.calls > 10);
    unlink(out);
    for (int k = 1; k <= whole.calls; k++) { /* nothing is left, whenever it is stopped */
        watch w = { .stop_at = k };
        moit_refused(watched(in, out, &w), MOI_ERR_CANCELLED, "stopped at tensor");
        assert_int_equal(moit_entries(), 1);
    }
    moit_write_file(out, "old", 3);
    watch w = { .stop_at = 2 };
    moit_refused(watched(in, out, &w), MOI_ERR_CANCELLED, "stopped");
    int64_t n;
    unsigned char *old = moit_read_file(out, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(old, "old", 3);
    free(old);
    w = (watch){ .stop_at = -1, .shorten = in }; /* somebody cuts the input off: an error, no signal */
    moit_refused(watched(in, out, &w), MOI_ERR_IO, "it became shorter");
    assert_int_equal(moit_entries(), 2);
    unlink(in), unlink(out);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *in = moit_path("in"), *out = moit_path("out"), *link = moit_path("link");
    static const tensor odd[] = { { "a.q_proj.weight", MOI_F32, 2, { 4, 40 }, 1 }, { "b.q_proj.weight", MOI_F32, 2, { 4, 64 }, 1 } };
    static const tensor twice[] = { { "a.q_proj.weight", MOI_F32, 2, { 4, 64 }, 1 }, { "a.q_proj.weight_scale", MOI_F32, 1, { 1 }, 0 } };
    write_tensors(in, odd, 2);
    moit_refused(convert(in, out, MOI_FILE_MXFP8), MOI_ERR_SHAPE, "'a.q_proj.weight': mxfp8 needs a last dimension that is a multiple of 32, got 40");
    assert_int_equal(moit_entries(), 1);
    moit_ok(convert(in, out, MOI_FILE_FP8_BLOCK));
    moit_refused(convert(out, link, MOI_FILE_MXFP8), MOI_ERR_FORMAT, "got a file quantised to fp8-block");
    moi_convert_options o = MOI_CONVERT_OPTIONS_INIT;
    o.keep = ",nothing,,a.q_";
    moit_ok(moi_checkpoint_quantize(moit_ctx(0), in, out, &o));
    moi_st *f;
    moi_tensor t;
    moit_ok(moi_st_open(&f, out));
    assert_int_equal(moi_st_count(f), 3);
    moit_ok(moi_st_find(f, "a.q_proj.weight", &t));
    assert_int_equal(t.dtype, MOI_F32);
    moi_st_close(f);
    moit_refused(convert(in, in, MOI_FILE_FP8_BLOCK), MOI_ERR_ARG, "the same file");
    assert_int_equal(symlink(in, link), 0);
    moit_refused(convert(in, link, MOI_FILE_FP8_BLOCK), MOI_ERR_ARG, "the same file");
    unlink(link);
    moit_refused(convert(moit_path("none"), out, MOI_FILE_FP8_BLOCK), MOI_ERR_IO, "none: No such file");
    moit_refused(convert(in, moit_path("none/out"), MOI_FILE_FP8_BLOCK), MOI_ERR_IO, "No such file");
    moit_refused(convert(in, out, (moi_file_format)0), MOI_ERR_ARG, "format must be 1..4, got 0");
    moit_refused(convert(NULL, out, MOI_FILE_MXFP4), MOI_ERR_ARG, "in is NULL");
    moit_refused(moi_checkpoint_quantize(moit_ctx(0), in, out, NULL), MOI_ERR_ARG, "options");
    write_tensors(in, twice, 2);
    moit_refused(convert(in, out, MOI_FILE_MXFP8), MOI_ERR_ARG, "'a.q_proj.weight_scale'");
    unlink(in), unlink(out);
}

/* A pass over a file far larger than what it may cost: converting it, and reading it through the mapping. */
static void test_memory_is_bounded(void **state)
{
    (void)state;
    if (moit_shadowed()) skip();
    enum { ALLOWED = 32 << 20, LARGE = 192 << 20, LINEAR = 48 << 20 };
    static const char header[] = "{\"embed\":{\"dtype\":\"BF16\",\"shape\":[98304,1024],\"data_offsets\":[0,201326592]},"
                                 "\"a.q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[12288,1024],\"data_offsets\":[201326592,251658240]}}";
    const char *in = moit_path("in"), *out = moit_path("out");
    unsigned char head[8 + sizeof header] = { (unsigned char)strlen(header) };
    memcpy(head + 8, header, sizeof header);
    moit_write_file(in, head, 8 + (int64_t)strlen(header));
    assert_int_equal(truncate(in, 8 + (off_t)strlen(header) + LARGE + LINEAR), 0);
    moit_ctx(0);
    int64_t before = moit_peak_bytes();
    moit_ok(convert(in, out, MOI_FILE_MXFP4));
    assert_in_range(moit_peak_bytes() - before, 0, ALLOWED);
    moi_st *f;
    moi_tensor t;
    unsigned int sum = 0;
    before = moit_peak_bytes();
    moit_ok(moi_st_open(&f, in));
    moit_ok(moi_st_get(f, 0, &t));
    for (int64_t at = 0; at < LARGE; at += 1 << 20) {
        moi_tensor part = t;
        part.data = (const char *)t.data + at;
        part.bytes = 1 << 20;
        for (int64_t i = 0; i < part.bytes; i += 512) sum += ((const unsigned char *)part.data)[i];
        moi_st_forget(f, &part);
    }
    assert_int_equal(sum, 0);
    assert_in_range(moit_peak_bytes() - before, 0, ALLOWED);
    moi_st_close(f);
    unlink(in), unlink(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_bounded), cmocka_unit_test(test_formats), cmocka_unit_test(test_progress_and_cancel), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
