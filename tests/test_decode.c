/* SPDX-License-Identifier: Apache-2.0
 * test_decode.c: moe_decode against double precision, for every row, format, scale layout and instruction set. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

typedef struct shape { int64_t tokens, h, f, experts, top_k; } shape;

static const shape shapes[] = {
    { 1, 64, 32, 4, 2 },   { 3, 33, 17, 3, 2 },  { 17, 96, 41, 5, 3 }, { 1, 1, 1, 1, 1 },  { 2, 160, 130, 2, 4 },
    { 1, 257, 129, 2, 1 }, { 2, 128, 256, 2, 2 }, { 0, 64, 64, 2, 2 },  { 3, 40, 0, 2, 2 }, { 2, 0, 40, 2, 2 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* every recipe, element, block and layout that weights may have */
static int formats(moi_format *out)
{
    static const moi_dtype mx[] = { MOI_E4M3, MOI_E5M2, MOI_E3M2, MOI_E2M3, MOI_E2M1, MOI_INT8 };
    int n = 0;
    out[n++] = MOI_FORMAT_F32;
    out[n++] = MOI_FORMAT_BF16;
    out[n++] = MOI_FORMAT_F16;
    for (int i = 0; i < 6; i++)
        for (int layout = 0; layout < 3; layout++)
            out[n++] = (moi_format){ .recipe = MOI_RECIPE_MX32, .elem = mx[i], .layout = (moi_layout)layout };
    for (int i = 0; i < 8; i++)
        out[n++] = (moi_format){ .recipe = MOI_RECIPE_BLK128, .elem = mx[i & 1], .block = i & 2 ? MOI_BLOCK_SQUARE : MOI_BLOCK_VECTOR,
                                 .layout = i & 4 ? MOI_LAYOUT_COL : MOI_LAYOUT_ROW };
    return n;
}
enum { MAX_FORMATS = 32 };
static const double max_f32 = 0x1.fffffep127;

/* Exactly `bytes` bytes, so that the address sanitizer sees a read behind them. */
static void *exact_alloc(int64_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 16, bytes ? (size_t)bytes : 1), 0);
    memset(p, 0, bytes ? (size_t)bytes : 1);
    return p;
}

typedef struct problem {
    moi_moe_decode_desc d;
    moi_moe_decode_args a;
    void *x, *codes[2], *scales[2]; /* 0: gate_up, 1: down */
    int32_t *ids;
    float *weights;
} problem;

static moi_dtype scale_type(const moi_format *f) { return f->recipe == MOI_RECIPE_MX32 ? MOI_E8M0 : MOI_F32; }

/* Random finite codes, with rubbish in the unused bits at the end of a row; scales around 2^-4. */
static void make_weights(moit_rng *rng, const moi_format *f, int64_t experts, int64_t rows, int64_t cols, void **codes, void **scales)
{
    int64_t row_bytes = moi_row_bytes(f->elem, cols), bytes = experts * rows * row_bytes, scale_bytes = experts * moi_scale_bytes(f, rows, cols, 0);
    unsigned char *c = *codes = exact_alloc(bytes);
    unsigned char *s = *scales = scale_bytes ? exact_alloc(scale_bytes) : NULL;
    for (int64_t i = 0; i < bytes; i++) {
        c[i] = (unsigned char)moit_next(rng);
        if (f->elem == MOI_E4M3 && (c[i] & 0x7F) == 0x7F) c[i] ^= 1;
        if (f->elem == MOI_E5M2 && (c[i] & 0x7F) >= 0x7C) c[i] ^= 0x40;
    }
    if (f->elem == MOI_F32 || f->elem == MOI_BF16 || f->elem == MOI_F16)
        for (int64_t i = 0; i < experts * rows * cols; i++) moi_encode(f->elem, c, i, 0.3f * moit_normal(rng));
    for (int64_t i = 0; f->recipe == MOI_RECIPE_MX32 && i < scale_bytes; i++) s[i] = (unsigned char)(119 + moit_below(rng, 6));
    for (int64_t i = 0; f->recipe == MOI_RECIPE_BLK128 && i < scale_bytes / 4; i++) ((float *)*scales)[i] = 0.02f + 0.05f * (float)moit_uniform(rng);
}

static problem problem_make(moi_format f, shape s, moi_dtype x, moi_dtype out)
{
    problem p = { .d = MOI_MOE_DECODE_DESC_INIT };
    moit_rng rng = moit_seed("decode", (uint64_t)(f.elem + 100 * f.layout + s.h * 1000 + s.tokens));
    p.d.weights = f, p.d.x = x, p.d.out = out;
    p.d.max_tokens = s.tokens, p.d.hidden = s.h, p.d.width = s.f, p.d.experts = s.experts, p.d.top_k = s.top_k;
    make_weights(&rng, &f, s.experts, 2 * s.f, s.h, &p.codes[0], &p.scales[0]);
    make_weights(&rng, &f, s.experts, s.h, s.f, &p.codes[1], &p.scales[1]);
    p.x = exact_alloc(s.tokens * moi_row_bytes(x, s.h));
    p.ids = exact_alloc(s.tokens * s.top_k * 4);
    p.weights = exact_alloc(s.tokens * s.top_k * 4);
    for (int64_t i = 0; i < s.tokens * s.h; i++) moi_encode(x, p.x, i, 0.5f * moit_normal(&rng));
    for (int64_t i = 0; i < s.tokens * s.top_k; i++) {
        p.ids[i] = (int32_t)(s.tokens == 3 ? 0 : moit_below(&rng, s.experts + 1) - (s.tokens > 1)); /* 3: all to one; > 1: some skipped */
        if (p.ids[i] >= s.experts) p.ids[i] = 0;
        p.weights[i] = (float)moit_uniform(&rng) - 0.25f;
    }
    p.a = (moi_moe_decode_args){ .size = sizeof p.a, .tokens = s.tokens, .x = p.x, .ids = p.ids, .weights = p.weights,
                                 .gate_up = { p.codes[0], p.scales[0], 0 }, .down = { p.codes[1], p.scales[1], 0 } };
    return p;
}

static void problem_free(problem *p)
{
    free(p->x), free(p->ids), free(p->weights);
    for (int i = 0; i < 2; i++) free(p->codes[i]), free(p->scales[i]);
}

/* The weight as moi_dequantize_run would give it. */
static double weight(const problem *p, int which, int64_t e, int64_t r, int64_t c)
{
    const moi_format *f = &p->d.weights;
    int64_t rows = which ? p->d.hidden : 2 * p->d.width, cols = which ? p->d.width : p->d.hidden, block = moi_format_block(f);
    float v = moi_decode(f->elem, (char *)p->codes[which] + (e * rows + r) * moi_row_bytes(f->elem, cols), c);
    if (!block) return (double)v;
    int64_t div = f->block == MOI_BLOCK_SQUARE ? 128 : 1;
    int64_t i = moi_scale_index(f->layout, scale_type(f), r / div, c / block, (rows + div - 1) / div, moi_scale_blocks(f, cols, 0));
    return (double)(v * moi_decode(scale_type(f), (char *)p->scales[which] + e * moi_scale_bytes(f, rows, cols, 0), i));
}

/* All weights of one matrix, dequantised: [e, rows, cols]. */
static double *dequantised(const problem *p, int which)
{
    int64_t rows = which ? p->d.hidden : 2 * p->d.width, cols = which ? p->d.width : p->d.hidden, i = 0;
    double *w = calloc((size_t)(p->d.experts * rows * cols + 1), sizeof *w);
    for (int64_t e = 0; e < p->d.experts; e++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) w[i++] = weight(p, which, e, r, c);
    return w;
}

/* y in double, without any rounding, and how far FP32 dot products of any order may be from it:
 * each dot product by (k + 4) eps sum |.| + 2^-100, silu (slope <= 1.1) and its product by 8 eps, u by its rounding to x's type. */
static void exact(const problem *p, double *y, double *bound)
{
    const moi_moe_decode_desc *d = &p->d;
    int64_t h = d->hidden, f = d->width;
    const double eps = 0x1p-24, end = 0x1p-100, round_u = d->x == MOI_BF16 ? 0x1p-8 : 0x1p-24, round_y = d->out == MOI_BF16 ? 0x1p-8 : 0x1p-24;
    double *u = calloc((size_t)(2 * f + h + 1), sizeof *u), *du = u + f, *x = du + f;
    double *gate_up = dequantised(p, 0), *down = dequantised(p, 1);
    memset(y, 0, (size_t)(p->a.tokens * h) * sizeof *y);
    memset(bound, 0, (size_t)(p->a.tokens * h) * sizeof *y);
    for (int64_t ts = 0; ts < p->a.tokens * d->top_k; ts++) {
        int64_t t = ts / d->top_k, e = p->ids[ts];
        double w = (double)p->weights[ts];
        if (e < 0) continue;
        for (int64_t l = 0; l < h; l++) x[l] = (double)moi_decode(d->x, (char *)p->x + t * moi_row_bytes(d->x, h), l);
        for (int64_t i = 0; i < f; i++) {
            double dot[2] = { 0, 0 }, mag[2] = { 0, 0 };
            for (int64_t l = 0; l < h; l++)
                for (int g = 0; g < 2; g++) {
                    double v = gate_up[((2 * e + g) * f + i) * h + l] * x[l];
                    dot[g] += v, mag[g] += fabs(v);
                }
            double silu = dot[0] / (1 + exp(-dot[0])), dg = (double)(h + 4) * eps * mag[0] + end, dup = (double)(h + 4) * eps * mag[1] + end;
            double most = (fabs(silu) + 1.1 * dg) * (fabs(dot[1]) + dup);
            u[i] = silu * dot[1];
            if (isfinite(u[i]) && !(most <= max_f32)) most = INFINITY; /* u may leave FP32: nothing is known of y */
            du[i] = 1.1 * dg * (fabs(dot[1]) + dup) + fabs(silu) * dup + (8 * eps + round_u) * most;
        }
        for (int64_t j = 0; j < h; j++) {
            double dot = 0, mag = 0, moved = 0;
            for (int64_t i = 0; i < f; i++) {
                double v = down[(e * h + j) * f + i];
                dot += v * u[i], mag += fabs(v) * (fabs(u[i]) + du[i]), moved += fabs(v) * du[i];
            }
            y[t * h + j] += w * dot;
            bound[t * h + j] += fabs(w) * (moved + (double)(f + 4 + d->top_k + 1) * eps * mag + end);
        }
    }
    for (int64_t i = 0; i < p->a.tokens * h; i++) bound[i] += round_y * (fabs(y[i]) + bound[i]);
    free(u), free(gate_up), free(down);
}

static void run_on(moi_ctx *ctx, const char *row, problem *p, void *y)
{
    moi_plan *plan;
    p->d.row = row;
    p->a.y = y;
    moit_ok(moi_moe_decode_plan_create(&plan, ctx, &p->d));
    assert_string_equal(moi_plan_row(plan), row);
    void *ws = moit_workspace(plan);
    moit_ok(moi_moe_decode_run(plan, &p->a, ws, moi_plan_workspace_bytes(plan), NULL));
    moit_free(ws);
    moi_plan_free(plan);
}

static int64_t y_bytes(const problem *p) { return p->a.tokens * moi_row_bytes(p->d.out, p->d.hidden); }

/* Runs one row and holds every output to the exact one: within its bound, or the same NaN or Inf. */
static void check_row(moi_ctx *ctx, const char *row, problem *p, const double *y, const double *bound)
{
    void *got = moit_alloc(y_bytes(p));
    run_on(ctx, row, p, got);
    for (int64_t i = 0; i < p->a.tokens * p->d.hidden; i++) {
        double v = (double)moi_decode(p->d.out, got, i), want = fabs(y[i]) > max_f32 ? copysign(INFINITY, y[i]) : y[i];
        bool good = isnan(want) ? isnan(v) : isinf(want) ? v == want : fabs(v - want) <= bound[i];
        if (isfinite(y[i]) && !(bound[i] <= max_f32)) continue; /* FP32 may have been left on the way */
        if (!good)
            fail_msg("%s on %s, weights %s %s block %d layout %d, x %s, out %s, t %lld h %lld f %lld: y[%lld][%lld] = %.9g, exact %.9g, bound %.3g",
                     row, moi_ctx_describe(ctx), moi_recipe_name(p->d.weights.recipe), moi_dtype_name(p->d.weights.elem), (int)p->d.weights.block,
                     (int)p->d.weights.layout, moi_dtype_name(p->d.x), moi_dtype_name(p->d.out), (long long)p->a.tokens,
                     (long long)p->d.hidden, (long long)p->d.width, (long long)(i / p->d.hidden), (long long)(i % p->d.hidden), v, y[i], bound[i]);
    }
    moit_free(got);
}

/* Contexts beside the default one: other thread counts, and plain C bodies. */
static moi_ctx *contexts[4];
enum { CONTEXTS = 4 };

/* Every row, with the machine's best bodies and with plain C ones. */
static void check(problem *p)
{
    int64_t n = p->a.tokens * p->d.hidden;
    double *y = calloc((size_t)n + 1, sizeof *y), *bound = calloc((size_t)n + 1, sizeof *bound);
    exact(p, y, bound);
    for (int r = 0; moit_row("moe_decode", r); r++) {
        check_row(contexts[0], moit_row("moe_decode", r), p, y, bound);
        if (strcmp(moit_row("moe_decode", r), "moe_decode_ref") != 0) check_row(contexts[3], moit_row("moe_decode", r), p, y, bound);
    }
    free(y), free(bound);
}

static int open_contexts(void **state)
{
    (void)state;
    for (int i = 0; i < CONTEXTS; i++) {
        moi_ctx_config c = MOI_CTX_CONFIG_INIT;
        c.threads = i < 3 ? i + 1 : 1;
        c.backend = MOI_BACKEND_CPU;
        if (i == 3) setenv("MOI_CPU_ISA", "generic", 1);
        moit_ok(moi_ctx_create(&contexts[i], &c));
    }
    unsetenv("MOI_CPU_ISA");
    return 0;
}
static int close_contexts(void **state)
{
    (void)state;
    for (int i = 0; i < CONTEXTS; i++) moi_ctx_free(contexts[i]);
    return 0;
}

/* P:decode.bound, P:guard, P:empty */
static void test_bound(void **state)
{
    (void)state;
    moi_format f[MAX_FORMATS];
    int n = formats(f);
    for (int i = 0; i < n; i++)
        for (int s = 0; s < SHAPES; s++) {
            problem p = problem_make(f[i], shapes[s], (i + s) & 1 ? MOI_BF16 : MOI_F32, (i + s) & 2 ? MOI_BF16 : MOI_F32);
            check(&p);
            problem_free(&p);
        }
}

/* P:det: the same bits for 1, 2, 3 threads.   P:decode.batch: a token alone gets the bits that it gets in a batch. */
static void test_batch_and_threads(void **state)
{
    (void)state;
    moi_format f[MAX_FORMATS];
    int n = formats(f);
    for (int r = 0; moit_row("moe_decode", r); r++)
        for (int i = 0; i < n; i++) {
            const char *row = moit_row("moe_decode", r);
            problem p = problem_make(f[i], (shape){ 6, 100, 37, 3, 3 }, i & 1 ? MOI_BF16 : MOI_F32, MOI_F32);
            char *first = moit_alloc(y_bytes(&p)), *again = moit_alloc(y_bytes(&p));
            run_on(contexts[0], row, &p, first);
            for (int c = 1; c < (i % 5 ? 2 : 3); c++) {
                run_on(contexts[c], row, &p, again);
                assert_memory_equal(first, again, (size_t)y_bytes(&p));
            }
            problem one = p;
            one.a.tokens = 1;
            for (int64_t t = 0; t < 6; t++) { /* args must be aligned to 16 bytes, a token's part is not */
                int32_t ids[4] __attribute__((aligned(16)));
                float weights[4] __attribute__((aligned(16))), x[100] __attribute__((aligned(16)));
                memcpy(ids, p.ids + 3 * t, sizeof(int32_t) * 3);
                memcpy(weights, p.weights + 3 * t, sizeof(float) * 3);
                memcpy(x, (char *)p.x + t * moi_row_bytes(p.d.x, 100), (size_t)moi_row_bytes(p.d.x, 100));
                one.a.ids = ids, one.a.weights = weights, one.a.x = x;
                run_on(contexts[1], row, &one, again);
                assert_memory_equal(first + 400 * t, again, 400);
            }
            moit_free(first), moit_free(again);
            problem_free(&p);
        }
}

/* NaN in one token's x reaches all of its outputs and no other token's bits. */
static void test_nan_token(void **state)
{
    (void)state;
    for (int r = 0; moit_row("moe_decode", r); r++)
        for (int c = 1; c < CONTEXTS; c += 2) { /* two threads; plain C */
            problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 3, 96, 32, 4, 2 }, MOI_F32, MOI_F32);
            float *clean = moit_alloc(y_bytes(&p)), *y = moit_alloc(y_bytes(&p));
            run_on(contexts[c], moit_row("moe_decode", r), &p, clean);
            ((float *)p.x)[96 + 40] = NAN;
            run_on(contexts[c], moit_row("moe_decode", r), &p, y);
            for (int j = 0; j < 96; j++) assert_true(isnan(y[96 + j]));
            assert_memory_equal(y, clean, 96 * 4);
            assert_memory_equal(y + 192, clean + 192, 96 * 4);
            moit_free(clean), moit_free(y);
            problem_free(&p);
        }
}

/* NaN and Inf codes, NaN and huge scales, and weights of 2^128 and more: what dequantised weights would give. */
static void test_special_weights(void **state)
{
    (void)state;
    moi_format f[MAX_FORMATS];
    int n = formats(f);
    static const unsigned char specials[] = { 0x7F, 0xFF, 0x7C, 0xFC, 0x7E, 0x80 }, e8m0[] = { 255, 254, 240, 0 };
    static const float f32[] = { NAN, INFINITY, 0x1p110f, 0.0f };
    for (int i = 0; i < 2 * n; i++)
        for (int kind = 0; kind < 10; kind++) {
            const moi_format *q = &f[i % n];
            int which = i / n;
            problem p = problem_make(*q, (shape){ 3, 70, 45, 2, 1 }, MOI_F32, MOI_F32);
            for (int l = 0; l < 3 * 70; l++) ((float *)p.x)[l] *= q->elem == MOI_E5M2 ? 0x1p-9f : 1.0f; /* no u that is almost 0: Inf * 0 */
            p.ids[0] = 1; /* token 0: expert 1, others: 0, which gets the special weight in a full block or in the tail */
            unsigned char *code = (unsigned char *)p.codes[which] + moi_row_bytes(q->elem, (which ? 45 : 70) * (kind & 1 ? 33 : 1)) / 2;
            if (kind < 6) *code = specials[kind];
            else if (!p.scales[which]) *(unsigned short *)p.codes[which] = (unsigned short)(kind & 1 ? 0x7F80 : 0xFFC0);
            else if (q->recipe == MOI_RECIPE_MX32) *(unsigned char *)p.scales[which] = e8m0[kind - 6];
            else *(float *)p.scales[which] = f32[kind - 6];
            check(&p);
            problem_free(&p);
        }
}

/* x so large that sums of codes leave FP32 although the dequantised products do not. */
static void test_large_x(void **state)
{
    (void)state;
    moi_format f = MOI_FORMAT_MXFP8;
    problem p = problem_make(f, (shape){ 1, 64, 3, 1, 1 }, MOI_F32, MOI_F32);
    memset(p.codes[0], 0x7E, 6 * 64);
    memset(p.scales[0], 7, 6 * 2);
    for (int l = 0; l < 64; l++) ((float *)p.x)[l] = l % 2 ? -1.25e38f : 1.5e38f;
    check(&p);
    problem_free(&p);
}

/* x of any range inside one block of 32: what small and large elements add must both arrive. */
static void test_wide_x(void **state)
{
    (void)state;
    static const struct { int spread, middle; } ranges[] = { { 8, 0 }, { 16, 3 }, { 20, -5 }, { 40, 0 }, { 10, 70 }, { 10, -70 }, { 0, 0 } };
    static const moi_dtype elem[] = { MOI_E2M1, MOI_E4M3, MOI_INT8 };
    for (int i = 0; i < 3 * 7 * 3 * 2; i++) {
        int range = i % 7, which = i / 7 % 3, kind = i / 21 % 3;
        moi_format f = { .recipe = MOI_RECIPE_MX32, .elem = elem[which] };
        problem p = problem_make(f, (shape){ 2, 130 + 64 * kind, 70, 3, 2 }, i / 63 ? MOI_F32 : MOI_BF16, MOI_F32);
        moit_rng rng = moit_seed("wide x", (uint64_t)i);
        for (int64_t l = 0; l < 2 * p.d.hidden; l++) {
            float v = ldexpf(moit_normal(&rng), ranges[range].middle - (int)moit_below(&rng, ranges[range].spread + 1));
            if (kind == 1 && l % 32 == 7) v = 0.0f;
            if (kind == 2 && l / 32 % 2) v = 0.0f; /* whole blocks */
            moi_encode(p.d.x, p.x, l, v);
        }
        check(&p);
        problem_free(&p);
    }
}

/* Experts that lie apart, at any address, give the bits of experts in one array. */
static void test_apart(void **state)
{
    (void)state;
    moi_format f[MAX_FORMATS];
    int n = formats(f);
    for (int i = 0; i < n; i++)
        for (int r = 0; moit_row("moe_decode", r); r++) {
            if (f[i].layout != MOI_LAYOUT_ROW) continue; /* in the others, gate's scales are no run of their own */
            problem p = problem_make(f[i], (shape){ 2, 130, 128, 3, 2 }, i & 1 ? MOI_BF16 : MOI_F32, MOI_F32);
            void *first = moit_alloc(y_bytes(&p)), *again = moit_alloc(y_bytes(&p)), *owned[3][3][2];
            run_on(contexts[1], moit_row("moe_decode", r), &p, first);
            moi_expert_operands apart[3] = { { .gate = { 0 } } };
            int64_t data_step = moi_dtype_bits(f[i].elem) < 16 ? 1 : moi_dtype_bits(f[i].elem) / 8, scale_step = f[i].recipe == MOI_RECIPE_BLK128 ? 4 : 1;
            for (int e = 0; e < 3; e++)
                for (int part = 0; part < 3; part++) {
                    int which = part == 2;
                    int64_t rows = which ? 130 : 128, cols = which ? 128 : 130, at = which ? e : 2 * e + part;
                    int64_t bytes = rows * moi_row_bytes(f[i].elem, cols), scale_bytes = moi_scale_bytes(&f[i], rows, cols, 0);
                    char *data = owned[e][part][0] = exact_alloc(bytes + data_step), *scale = owned[e][part][1] = exact_alloc(scale_bytes + scale_step);
                    memcpy(data + data_step, (char *)p.codes[which] + at * bytes, (size_t)bytes);
                    if (scale_bytes) memcpy(scale + scale_step, (char *)p.scales[which] + at * scale_bytes, (size_t)scale_bytes);
                    moi_operand *o = part == 0 ? &apart[e].gate : part == 1 ? &apart[e].up : &apart[e].down;
                    *o = (moi_operand){ data + data_step, scale + scale_step, 0 };
                }
            problem q = p;
            q.a.apart = apart;
            q.a.gate_up = q.a.down = (moi_operand){ NULL, NULL, 0 };
            run_on(contexts[1], moit_row("moe_decode", r), &q, again);
            assert_memory_equal(first, again, (size_t)y_bytes(&p));
            for (int o = 0; o < 18; o++) free(owned[o / 6][o / 2 % 3][o % 2]);
            moit_free(first), moit_free(again);
            problem_free(&p);
        }
}

static void test_refusals(void **state)
{
    (void)state;
    moi_plan *plan;
    moi_ctx *ctx = moit_ctx(0);
    problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 2, 64, 32, 4, 2 }, MOI_BF16, MOI_F32), bad = p;
    moit_refused(moi_moe_decode_plan_create(NULL, ctx, &p.d), MOI_ERR_ARG, "out is NULL");
    bad.d.x = MOI_F16;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_ARG, "x must be f32 or bf16, got f16");
    bad = p, bad.d.out = MOI_E4M3;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_ARG, "out must be f32 or bf16, got e4m3");
    bad = p, bad.d.width = -1;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_SHAPE, "got 64 and -1");
    bad = p, bad.d.top_k = 0;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_SHAPE, "top_k must be 1");
    bad = p, bad.d.experts = INT32_MAX, bad.d.hidden = INT32_MAX, bad.d.width = INT32_MAX;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_SHAPE, "too large");
    bad = p, bad.d.max_tokens = INT64_MAX / 2;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_SHAPE, "too large");
    bad = p, bad.d.weights.elem = MOI_F32;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_ARG, "weights: recipe mx32 needs an MX element");

    moit_ok(moi_moe_decode_plan_create(&plan, ctx, &p.d));
    int64_t bytes = moi_plan_workspace_bytes(plan);
    void *ws = moit_workspace(plan);
    unsigned char *y = moit_alloc(y_bytes(&p));
    p.a.y = y;
    memset(y, 0x5A, (size_t)y_bytes(&p));
    moit_refused(moi_moe_decode_run(plan, &p.a, ws, bytes - 1, NULL), MOI_ERR_WORKSPACE, "workspace must hold");
    moi_moe_decode_args a = p.a;
    a.tokens = 3;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_SHAPE, "tokens must be 0..2, got 3");
    a = p.a, a.x = (char *)p.x + 4;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_ALIGN, "x: data must be aligned");
    a = p.a, a.ids = NULL;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_ARG, "ids: data is NULL");
    a = p.a, a.down.scale = NULL;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_ARG, "down: scale is NULL");
    a = p.a, a.gate_up.ld = 128;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_SHAPE, "must be dense, ld 0 or 64, got 128");
    moi_expert_operands apart[4] = { { p.a.gate_up, p.a.gate_up, p.a.down }, { p.a.gate_up, p.a.gate_up, p.a.down },
                                     { p.a.gate_up, p.a.gate_up, p.a.down }, { p.a.gate_up, p.a.gate_up, { NULL, NULL, 0 } } };
    a = p.a, a.apart = apart;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_ARG, "apart[3].down: data is NULL");
    apart[1].up.ld = 65;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_SHAPE, "apart[1].up: must be dense, ld 0 or 64, got 65");
    p.ids[3] = 4;
    moit_refused(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL), MOI_ERR_ARG, "ids must be -1..3, got 4 for token 1, slot 1");
    p.ids[3] = -2;
    moit_refused(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL), MOI_ERR_ARG, "got -2");
    for (int64_t i = 0; i < y_bytes(&p); i++) assert_int_equal(y[i], 0x5A);
    p.ids[3] = -1;
    moit_ok(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL));
    moit_free(ws), moit_free(y);
    moi_plan_free(plan);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound), cmocka_unit_test(test_batch_and_threads), cmocka_unit_test(test_nan_token),
        cmocka_unit_test(test_special_weights), cmocka_unit_test(test_large_x), cmocka_unit_test(test_wide_x), cmocka_unit_test(test_apart),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
