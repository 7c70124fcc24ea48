/* SPDX-License-Identifier: Apache-2.0
 * test_num.c: number formats against independent definitions: nearest value by exhaustive search, scale rules in exact
 * double arithmetic, packed codes against a bit array. */
#include "support.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dtype.h"

static const moi_dtype elements[] = { MOI_E4M3, MOI_E5M2, MOI_E3M2, MOI_E2M3, MOI_E2M1, MOI_INT8 };
enum { ELEMENTS = sizeof elements / sizeof *elements };

/* The tables of the specification, written as numbers: exponent bits, mantissa bits, bias. */
static const struct { int eb, mb, bias; } shape[] = {
    [MOI_F16] = { 5, 10, 15 }, [MOI_E4M3] = { 4, 3, 7 }, [MOI_E5M2] = { 5, 2, 15 },
    [MOI_E3M2] = { 3, 2, 3 }, [MOI_E2M3] = { 2, 3, 1 }, [MOI_E2M1] = { 2, 1, 1 },
};

/* The value of a code by the textbook formula, NAN and INFINITY where the format has them. */
static double value_of(moi_dtype t, unsigned int code)
{
    if (t == MOI_INT8) return (double)(int8_t)code / 64.0;
    if (t == MOI_BF16) {
        unsigned int e = code >> 7 & 0xFF, m = code & 0x7F;
        double v = e == 0xFF ? (m ? (double)NAN : (double)INFINITY) : e ? ldexp(128 + m, (int)e - 127 - 7) : ldexp(m, -126 - 7);
        return code >> 15 ? -v : v;
    }
    int mb = shape[t].mb, eb = shape[t].eb;
    int m = (int)(code & ((1u << mb) - 1)), e = (int)(code >> mb & ((1u << eb) - 1));
    double v = e ? ldexp((1 << mb) + m, e - shape[t].bias - mb) : ldexp(m, 1 - shape[t].bias - mb);
    if (t == MOI_E4M3 && (code & 0x7F) == 0x7F) v = (double)NAN;
    if ((t == MOI_E5M2 || t == MOI_F16) && e == 31) v = m ? (double)NAN : (double)INFINITY;
    return code >> (mb + eb) & 1 ? -v : v;
}

static double magnitudes[ELEMENTS][128];
static int magnitude_count[ELEMENTS];

static void fill_magnitudes(void)
{
    for (int i = 0; i < ELEMENTS; i++) {
        int n = 0;
        while (n < 1 << (moi_dtype_bits(elements[i]) - 1) && isfinite(value_of(elements[i], (unsigned int)n))) {
            magnitudes[i][n] = value_of(elements[i], (unsigned int)n);
            n++;
        }
        magnitude_count[i] = n;
    }
}

/* Nearest by looking at every code; equally near: the even one; beyond the last: the last. */
static unsigned int nearest(int element, float x)
{
    moi_dtype t = elements[element];
    if (isnan(x)) return t == MOI_E4M3 || t == MOI_E5M2 || t == MOI_INT8 ? 0x7F : t == MOI_E2M1 ? 7 : 0x1F;
    double a = fmin(fabs((double)x), 4 * magnitudes[element][magnitude_count[element] - 1]), best = (double)INFINITY;
    unsigned int code = 0;
    for (int i = 0; i < magnitude_count[element]; i++) {
        double d = fabs(a - magnitudes[element][i]);
        if (d < best || (d == best && i % 2 == 0)) best = d, code = (unsigned int)i;
    }
    if (!signbit(x)) return code;
    return t == MOI_INT8 ? (256 - code) & 0xFF : code | 1u << (moi_dtype_bits(t) - 1);
}

static void check_encode(int element, float x)
{
    unsigned int got = moii_code_encode(elements[element], x), want = nearest(element, x);
    if (got != want) fail_msg("%s of %a: got 0x%x, want 0x%x", moi_dtype_name(elements[element]), (double)x, got, want);
}

static void test_decode(void **state)
{
    (void)state;
    static const moi_dtype all[] = { MOI_E4M3, MOI_E5M2, MOI_E3M2, MOI_E2M3, MOI_E2M1, MOI_INT8, MOI_F16, MOI_BF16 };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (unsigned int code = 0; code < 1u << moi_dtype_bits(all[i]); code++) {
            float got = moii_code_decode(all[i], code);
            double want = value_of(all[i], code);
            int same = isnan(want) ? isnan(got) : (double)got == want && !signbit(got) == !signbit(want);
            if (!same) fail_msg("%s code 0x%x: got %a, want %a", moi_dtype_name(all[i]), code, (double)got, want);
            /* encoding gives the code back: except NaN (one canonical), infinities (saturate) and -128 */
            unsigned int back = moii_code_encode(all[i], got);
            if (isfinite(want) && !(all[i] == MOI_INT8 && code == 0x80)) assert_int_equal(back, code);
            if (all[i] == MOI_F16 && isnan(want)) assert_int_equal(back, code | 0x200);
            if (all[i] == MOI_BF16 && isnan(want)) assert_int_equal(back, code | 0x40);
            if (all[i] > MOI_BF16 && isnan(want)) assert_int_equal(back, 0x7F);
            if (all[i] == MOI_E5M2 && isinf(want)) assert_int_equal(back, (code & 0x80) | 0x7B);
            if (all[i] <= MOI_BF16 && isinf(want)) assert_int_equal(back, code);
        }
    assert_int_equal(moii_int8_encode(-2.0f), 0x81);
    for (unsigned int e = 0; e < 255; e++) assert_true((double)moii_e8m0_decode(e) == ldexp(1.0, (int)e - 127));
    for (unsigned int e = 0; e < 255; e++) assert_true((double)moii_e8m0_inverse(e) == ldexp(1.0, 127 - (int)e));
    assert_true(isnan(moii_e8m0_decode(0xFF)));
}

static void test_table(void **state)
{
    (void)state;
    for (int i = 0; i < ELEMENTS; i++) {
        double top = magnitudes[i][magnitude_count[i] - 1];
        assert_true(top == moi_dtype_max(elements[i]));
        const moii_dtype_info *info = moii_dtype(elements[i]);
        assert_true(ldexp(1.0 + info->rule.max_mantissa * 0x1p-23, info->rule.emax) == top);
        assert_int_equal(info->nan_code, elements[i] == MOI_E4M3 || elements[i] == MOI_E5M2 ? 0x7F : 0);
    }
    assert_true(moi_dtype_max(MOI_E4M3) == 448 && moi_dtype_max(MOI_E5M2) == 57344 && moi_dtype_max(MOI_E3M2) == 28);
    assert_true(moi_dtype_max(MOI_E2M3) == 7.5 && moi_dtype_max(MOI_E2M1) == 6 && moi_dtype_max(MOI_INT8) == 1.984375);
    assert_true(moi_dtype_max(MOI_F16) == 65504);
}

static void test_encode_bf16_inputs(void **state)
{
    (void)state;
    for (int i = 0; i < ELEMENTS; i++)
        for (unsigned int u = 0; u < 65536; u++) check_encode(i, moii_bf16_decode(u));
}

/* Every value, every midpoint between neighbours, and the floats beside both; then random bits. */
static void test_encode_edges(void **state)
{
    (void)state;
    moit_rng rng = moit_seed("encode", 0);
    for (int i = 0; i < ELEMENTS; i++) {
        for (int c = 0; c < magnitude_count[i]; c++) {
            double next = c + 1 < magnitude_count[i] ? magnitudes[i][c + 1] : 2 * magnitudes[i][c];
            float at[2] = { (float)magnitudes[i][c], (float)((magnitudes[i][c] + next) / 2) };
            for (int k = 0; k < 6; k++) {
                float x = k % 3 == 0 ? at[k / 3] : nextafterf(at[k / 3], k % 3 == 1 ? INFINITY : -INFINITY);
                check_encode(i, x);
                check_encode(i, -x);
            }
        }
        for (int k = 0; k < 60000; k++) check_encode(i, moii_float_of((unsigned int)moit_next(&rng)));
        for (int k = 0; k < 60000; k++) check_encode(i, ldexpf(moit_normal(&rng), (int)moit_below(&rng, 40) - 20));
    }
}

/* Round-to-nearest-even of a double to `mb` mantissa bits above 2^emin, infinite above `top`. */
static double round_to(double x, int mb, int emin, double top)
{
    int e;
    if (x == 0 || isinf(x)) return x;
    frexp(x, &e);
    e = e - 1 < emin ? emin : e - 1;
    double v = ldexp(nearbyint(ldexp(x, mb - e)), e - mb);
    return fabs(v) > top ? copysign((double)INFINITY, v) : v;
}

static void check_wide(float x)
{
    if (isnan(x)) {
        assert_true(isnan(moii_f16_decode(moii_f16_encode(x))) && isnan(moii_bf16_decode(moii_bf16_encode(x))));
        return;
    }
    double h = round_to((double)x, 10, -14, 65504), b = round_to((double)x, 7, -126, moi_dtype_max(MOI_BF16));
    if (value_of(MOI_F16, moii_f16_encode(x)) != h || moii_f16_encode(x) >> 15 != (signbit(x) != 0)) fail_msg("f16 of %a", (double)x);
    if (value_of(MOI_BF16, moii_bf16_encode(x)) != b || moii_bf16_encode(x) >> 15 != (signbit(x) != 0)) fail_msg("bf16 of %a", (double)x);
}

static void test_f16_bf16(void **state)
{
    (void)state;
    moit_rng rng = moit_seed("wide", 0);
    for (int k = 0; k < 400000; k++) check_wide(moii_float_of((unsigned int)moit_next(&rng)));
    for (int k = 0; k < 400000; k++) check_wide(ldexpf(moit_normal(&rng), (int)moit_below(&rng, 50) - 30));
    for (unsigned int c = 0; c < 0x7C00; c++) { /* midpoints of F16, and beside them */
        float mid = (float)((value_of(MOI_F16, c) + (c < 0x7BFF ? value_of(MOI_F16, c + 1) : 65536.0)) / 2);
        check_wide(mid), check_wide(-nextafterf(mid, INFINITY)), check_wide(nextafterf(mid, 0));
    }
}

/* The scale rules as real numbers: powers of two and products with them are exact in double. */
static int exact_scale(double a, moi_dtype t, int rounding)
{
    double top = moi_dtype_max(t);
    int emax = (int)floor(log2(top)), e, mb = t == MOI_INT8 ? 6 : shape[t].mb;
    if (a == 0) return 0;
    if (rounding == MOI_ROUND_RCEIL) {
        for (e = 0; e < 254 && ldexp(top, e - 127) < a; e++) continue;
        return e;
    }
    double m = frexp(a, &e); /* a = m 2^e, 0.5 <= m < 1 */
    int floor_log = e - 1;
    if (rounding == MOI_ROUND_CEIL) floor_log += m > 0.5;
    if (rounding == MOI_ROUND_EVEN) floor_log += floor(ldexp(m, mb + 1) + 0.5) >= ldexp(1.0, mb + 1);
    e = floor_log - emax + 127;
    return e < 0 ? 0 : e > 254 ? 254 : e;
}

static void check_scale(unsigned int bits)
{
    float a = moii_float_of(bits);
    for (int i = 0; i < ELEMENTS; i++)
        for (int r = 0; r < 4; r++) {
            int got = (int)moii_e8m0_from_amax(a, moii_dtype(elements[i])->rule, r), want = exact_scale((double)a, elements[i], r);
            if (got != want) fail_msg("%s %s of %a: got %d, want %d", moi_dtype_name(elements[i]), moi_round_name((moi_round)r), (double)a, got, want);
        }
}

static void test_scale_rules(void **state)
{
    (void)state;
    static const unsigned int mantissas[] = { 0, 0x400000, 0x600000, 0x700000, 0x780000, 0x7C0000, 0x7E0000, 0x7F0000, 0x740000, 0x7FFFFF };
    moit_rng rng = moit_seed("scale", 0);
    for (unsigned int e = 0; e < 255; e++)
        for (size_t m = 0; m < sizeof mantissas / sizeof *mantissas; m++)
            for (unsigned int d = 0; d < 5; d++) {
                unsigned int u = (e << 23) + mantissas[m] + d - 2;
                if (u < 0x7F800000u) check_scale(u);
            }
    for (unsigned int b = 0; b < 23; b++) /* FP32 subnormals */
        for (unsigned int d = 0; d < 5; d++) check_scale((1u << b) + d - (d && b < 2 ? 1 : 0));
    for (unsigned int d = 0; d < 0x10000; d++) check_scale(0x400000u + (d << 6));
    for (unsigned int u = 0; u < 0x7F80u; u++) check_scale(u << 16);
    for (int k = 0; k < 200000; k++) check_scale((unsigned int)moit_below(&rng, 0x7F800000));
    /* the one input for which a product or quotient in FP32 would differ */
    assert_int_equal(moii_e8m0_from_amax(moii_float_of(0x04600001u), moii_dtype(MOI_E4M3)->rule, MOI_ROUND_RCEIL), 1);
}

/* Golden blocks: the largest magnitude, its scale, one value and its code (E4M3, RCEIL). */
static void test_vectors(void **state)
{
    (void)state;
    static const struct { unsigned int amax; unsigned int scale; float value; unsigned int code; } golden[] = {
        { 0x43E00000u, 127, 448.0f, 0x7E }, { 0x43E00003u, 128, 0x1.c00006p8f, 0x76 }, { 0x3F800000u, 119, 1.0f, 0x78 },
        { 0x3FE00000u, 119, 1.75f, 0x7E }, { 0x3FE00001u, 120, 0x1.c00002p0f, 0x76 }, { 0, 0, 0.0f, 0 }, { 0, 0, -0.0f, 0x80 },
        { 0x00400000u, 0, 0x1p-127f, 0x38 }, { 0x7F7FFFFFu, 247, 0x1.fffffep127f, 0x78 },
        { 0x3A37803Cu, 108, -0.0007f, 0xFB }, { 0x3A37803Cu, 108, 0.0001f, 0x65 }, { 0x3A37803Cu, 108, 0.0005f, 0x78 },
    };
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        unsigned int e = moii_e8m0_from_amax(moii_float_of(golden[i].amax), moii_dtype(MOI_E4M3)->rule, MOI_ROUND_RCEIL);
        assert_int_equal(e, golden[i].scale);
        assert_int_equal(moii_e4m3_encode(golden[i].value * moii_e8m0_inverse(e)), golden[i].code);
    }
    assert_int_equal(moii_e4m3_encode(0x1p-10f), 0);
    assert_int_equal(moii_e4m3_encode(nextafterf(0x1p-10f, 1.0f)), 1);
    assert_int_equal(moii_e4m3_encode(464.0f), 0x7E);
    assert_int_equal(moii_e4m3_encode(-INFINITY), 0xFE);
    assert_int_equal(moii_e4m3_encode(-NAN), 0x7F);
}

static void test_packing(void **state)
{
    (void)state;
    static const int widths[] = { 4, 6, 8, 16, 32 };
    enum { CODES = 37 };
    moit_rng rng = moit_seed("packing", 0);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        int bits = widths[w];
        int64_t bytes = (CODES * bits + 7) / 8;
        unsigned char *row = moit_alloc(bytes), model[CODES * 32] = { 0 }; /* one byte per bit */
        memset(row, 0, (size_t)bytes);
        for (int step = 0; step < 4000; step++) {
            int64_t i = moit_below(&rng, CODES);
            unsigned int code = (unsigned int)moit_next(&rng), read = 0;
            if (bits < 32) code &= (1u << bits) - 1;
            moii_code_store(bits, row, i, code);
            for (int b = 0; b < bits; b++) model[i * bits + b] = code >> b & 1;
            for (int64_t b = 0; b < CODES * bits; b++) assert_int_equal(row[b / 8] >> (b % 8) & 1, model[b]);
            i = moit_below(&rng, CODES);
            for (int b = 0; b < bits; b++) read |= (unsigned int)model[i * bits + b] << b;
            assert_int_equal(moii_code_load(bits, row, i), read);
        }
        moit_free(row);
    }
    float f = 0;
    moi_encode(MOI_F32, &f, 0, -3.5f);
    assert_true(f == -3.5f && isnan(moi_decode(MOI_I32, &f, 0)));
}

/* num.h is also device code.  The few calls of the run-time compiler are declared here, so nothing need be installed. */
typedef struct nvrtc_program *nvrtc_program;
typedef int (*nvrtc_create)(nvrtc_program *, const char *text, const char *name, int headers, const char *const *texts, const char *const *names);
typedef int (*nvrtc_compile)(nvrtc_program, int count, const char *const *options);
typedef int (*nvrtc_log_size)(nvrtc_program, size_t *);
typedef int (*nvrtc_log)(nvrtc_program, char *);
typedef int (*nvrtc_destroy)(nvrtc_program *);

static void *open_nvrtc(void)
{
    static const char *const names[] = { "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so",
                                         "/usr/local/cuda/lib/libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so.13" };
    void *lib = NULL;
    for (size_t i = 0; !lib && i < sizeof names / sizeof *names; i++) lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return lib;
}

static void symbol(void *lib, const char *name, void *fn) /* a function pointer, filled without an object-pointer cast */
{
    void *p = dlsym(lib, name);
    assert_non_null(p);
    memcpy(fn, &p, sizeof p);
}

static void test_compiles_for_the_device(void **state)
{
    (void)state;
    static const char kernel[] =
        "#include \"num.h\"\n"
        "extern \"C\" __global__ void use(float *x, unsigned int *u) {\n"
        "  int i = threadIdx.x; float v = x[i]; moii_scale_rule r = { 8, 0x600000u, 3 };\n"
        "  u[i] = moii_e4m3_encode(v) + moii_e5m2_encode(v) + moii_e3m2_encode(v) + moii_e2m3_encode(v) + moii_e2m1_encode(v)\n"
        "       + moii_int8_encode(v) + moii_f16_encode(v) + moii_bf16_encode(v) + moii_e8m0_from_amax(v, r, i & 3);\n"
        "  x[i] = moii_e4m3_decode(u[i]) + moii_e5m2_decode(u[i]) + moii_e3m2_decode(u[i]) + moii_e2m3_decode(u[i])\n"
        "       + moii_e2m1_decode(u[i]) + moii_int8_decode(u[i]) + moii_f16_decode(u[i]) + moii_bf16_decode(u[i])\n"
        "       + moii_e8m0_inverse(u[i]); }\n";
    const char *name = "num.h", *options[] = { "--gpu-architecture=sm_90", "--std=c++17" };
    static char text[1 << 16], log[1 << 16];
    const char *texts = text;
    void *lib = open_nvrtc();
    if (!lib) skip();
    FILE *f = fopen("src/core/num.h", "rb");
    if (!f) fail_msg("src/core/num.h: run the tests in the repository's root");
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    nvrtc_create create;
    nvrtc_compile compile;
    nvrtc_log_size log_size;
    nvrtc_log get_log;
    nvrtc_destroy destroy;
    symbol(lib, "nvrtcCreateProgram", &create);
    symbol(lib, "nvrtcCompileProgram", &compile);
    symbol(lib, "nvrtcGetProgramLogSize", &log_size);
    symbol(lib, "nvrtcGetProgramLog", &get_log);
    symbol(lib, "nvrtcDestroyProgram", &destroy);
    nvrtc_program program;
    assert_int_equal(create(&program, kernel, "use.cu", 1, &texts, &name), 0);
    int status = compile(program, 2, options);
    size_t size = 0;
    if (log_size(program, &size) == 0 && size < sizeof log) get_log(program, log);
    destroy(&program);
    if (status) fail_msg("num.h does not compile for the device (%d):\n%s", status, log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table), cmocka_unit_test(test_decode), cmocka_unit_test(test_encode_bf16_inputs),
        cmocka_unit_test(test_encode_edges), cmocka_unit_test(test_f16_bf16), cmocka_unit_test(test_scale_rules),
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_packing), cmocka_unit_test(test_compiles_for_the_device),
    };
    fill_magnitudes();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
