/* SPDX-License-Identifier: Apache-2.0
 * test_decode.c: moe_decode against double precision, for every row, format, scale layout and instruction set. */
#include "support_decode.h"

#include <math.h>
#include <stdlib.h>

static const shape shapes[] = {
    { 1, 64, 32, 4, 2 },   { 3, 33, 17, 3, 2 },  { 17, 96, 41, 5, 3 }, { 1, 1, 1, 1, 1 },  { 2, 160, 130, 2, 4 },
    { 1, 257, 129, 2, 1 }, { 9, 256, 128, 3, 2 }, { 2, 128, 256, 2, 2 }, { 0, 64, 64, 2, 2 },  { 3, 40, 0, 2, 2 }, { 2, 0, 40, 2, 2 },
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

/* P:decode.bound, P:guard, P:empty */
static void test_bound(void **state)
{
    (void)state;
    moi_format f[MAX_FORMATS];
    int n = formats(f);
    for (int i = 0; i < n; i++)
        for (int s = 0; s < SHAPES; s++) {
            problem p = problem_make(f[i], shapes[s], (i + s) & 1 ? MOI_BF16 : MOI_F32, (i + s) & 2 ? MOI_BF16 : MOI_F32);
            decode_check(&p);
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
            run_on(decode_contexts[0], row, &p, first);
            for (int c = 1; c < (i % 5 ? 2 : 3); c++) {
                run_on(decode_contexts[c], row, &p, again);
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
                run_on(decode_contexts[1], row, &one, again);
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
        for (int c = 1; c < DECODE_CONTEXTS; c += 2) { /* two threads; plain C */
            problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 3, 96, 32, 4, 2 }, MOI_F32, MOI_F32);
            float *clean = moit_alloc(y_bytes(&p)), *y = moit_alloc(y_bytes(&p));
            run_on(decode_contexts[c], moit_row("moe_decode", r), &p, clean);
            ((float *)p.x)[96 + 40] = NAN;
            run_on(decode_contexts[c], moit_row("moe_decode", r), &p, y);
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
            decode_check(&p);
            problem_free(&p);
        }
}

/* The same in shapes of whole lines, with few tokens and many, where rows of the GPU multiply codes before they are scaled.  An Inf scale would be Inf there,
 * where sums of dequantised weights have both signs. */
static void test_special_lines(void **state)
{
    (void)state;
    const moi_format formats[] = { MOI_FORMAT_MXFP8, MOI_FORMAT_BLK128_WEIGHT, MOI_FORMAT_MXFP4, MOI_FORMAT_BF16 };
    static const unsigned char e8m0[] = { 255, 139, 0, 1 };
    static const uint16_t bf16[] = { 0x7FC1, 0x7F80, 0x8000, 0x0001 };
    static const float f32[] = { NAN, 0x1p12f, 0.0f };
    for (int i = 0; i < 4 * 2 * 2 * 4; i++) {
        if (!moit_picked(i % 5 == 3 ? 97 : (uint64_t)i + 1)) continue; /* some are in the selection that runs without a GPU */
        const int kind = i % 4, many = i / 4 % 2, which = i / 8 % 2;
        const moi_format *q = &formats[i / 16];
        problem p = problem_make(*q, (shape){ many ? 9 : 2, 256, 128, 2, 1 }, MOI_BF16, MOI_F32);
        p.ids[0] = 1; /* expert 1: of up 130 rows down, or of the last outputs, in the last block */
        const int64_t code = which ? (256 + 200) * 128 + 127 : (256 + 130) * 256 + 255; /* the last of its row */
        if (q->elem == MOI_BF16) ((uint16_t *)p.codes[which])[code] = bf16[kind];
        else if (kind == 3 && q->elem == MOI_E4M3) ((unsigned char *)p.codes[which])[code] = 0x7F;
        else if (q->recipe == MOI_RECIPE_MX32) ((unsigned char *)p.scales[which])[which ? (256 + 200) * 4 + 3 : (256 + 130) * 8 + 7] = e8m0[kind];
        else ((float *)p.scales[which])[which ? 2 + 1 : 4 + 3] = f32[kind];
        decode_check(&p);
        problem_free(&p);
    }
}

/* Rows that are no whole lines of moe_decode_f16_sm90: neither their neighbours' codes and scales, all NaN, nor what lies behind them comes into their sums.
 * Of three experts the middle one is chosen; of down every second row is NaN, too, and every second token. */
static void test_neighbours(void **state)
{
    (void)state;
    const moi_format formats[] = { MOI_FORMAT_MXFP8, MOI_FORMAT_MXFP4, MOI_FORMAT_BF16, { .recipe = MOI_RECIPE_MX32, .elem = MOI_E5M2 } };
    static const int64_t tokens[] = { 2, 9, 70 }, sides[][2] = { { 160, 96 }, { 96, 352 }, { 288, 32 }, { 608, 224 } };
    for (int i = 0; i < 4 * 4 * 3; i++) {
        if (!moit_picked(i % 11 == 4 ? 97 : (uint64_t)i + 1)) continue; /* some are in the selection that runs without a GPU */
        const moi_format *q = &formats[i % 4];
        const int64_t h = sides[i / 4 % 4][0], f = sides[i / 4 % 4][1], rows[] = { 2 * f, h }, cols[] = { h, f };
        problem p = problem_make(*q, (shape){ tokens[i / 16], h, f, 3, 1 }, MOI_BF16, MOI_F32);
        for (int64_t t = 0; t < p.a.tokens; t++) p.ids[t] = 1;
        for (int64_t t = 1; t < p.a.tokens; t += 2) memset((char *)p.x + t * 2 * h, 0xFF, (size_t)(2 * h));
        for (int which = 0; which < 2; which++) {
            const int64_t bytes = moi_row_bytes(q->elem, cols[which]), scales = moi_scale_bytes(q, 1, cols[which], 0);
            for (int64_t r = 0; r < 3 * rows[which]; r++) {
                if (r / rows[which] == 1 && (!which || r % 2)) continue;
                memset((char *)p.codes[which] + r * bytes, 0xFF, (size_t)bytes);
                if (scales) memset((char *)p.scales[which] + r * scales, 0xFF, (size_t)scales);
            }
        }
        decode_check(&p);
        problem_free(&p);
    }
}

/* Every third row has scales with which sums of codes leave FP32, though x or u, which are as small, bring them back; every fourth token is NaN.  Where
 * down goes in several launches, it is the first one's sums that leave FP32, and the last one adds as much to them: its u are larger, its scales smaller.
 * 7 tokens of 512 x 640 go by items on an emulated device, case ITEMS among them. */
static void test_far_scales(void **state)
{
    (void)state;
    const moi_format formats[] = { MOI_FORMAT_MXFP8, MOI_FORMAT_MXFP4, { .recipe = MOI_RECIPE_MX32, .elem = MOI_E5M2 } };
    static const int least[] = { 242, 248, 234 }; /* and two more: the largest weights are 2^126 */
    static const int64_t tokens[] = { 1, 7, 11, 70, 11 }, sides[][2] = { { 256, 128 }, { 160, 416 }, { 512, 640 }, { 32, 10240 } };
    enum { NARROW = 3 * 2 * 3 * 4, WIDE = 3, ITEMS = 33 };
    enum { LAST = 16, MORE = 40 }; /* of wide cases: blocks of the last launch; by what gate and up are larger there */
    for (int i = 0; i < NARROW + WIDE; i++) {
        if (!moit_picked(i % 7 == 4 || i == ITEMS ? 97 : (uint64_t)i + 1)) continue; /* some are in the selection that runs without a GPU */
        const bool wide = i >= NARROW;
        const int elem = i % 3, which = wide ? 1 : i / 3 % 2, side = wide ? 3 : i / 6 % 3;
        const int64_t h = sides[side][0], f = sides[side][1], rows = 2 * (which ? h : 2 * f);
        problem p = problem_make(formats[elem], (shape){ tokens[i / 18], h, f, 2, 2 }, MOI_BF16, MOI_F32);
        for (int64_t l = 0; l < p.a.tokens * h; l++) {
            const float x = (float)moi_decode(MOI_BF16, p.x, l) * (which ? 0x1p-60f : 0x1p-100f);
            moi_encode(MOI_BF16, p.x, l, l / h % 4 == 3 ? NAN : x);
        }
        for (int64_t r = 0; wide && r < 4 * f; r++) /* h is one block */
            if (r % f >= f - 32 * LAST) ((unsigned char *)p.scales[0])[r] += MORE;
        const int64_t scales = moi_scale_bytes(&formats[elem], 1, which ? f : h, 0);
        for (int64_t l = 0; l < rows * scales; l++) {
            unsigned char *s = (unsigned char *)p.scales[which] + l;
            const int64_t block = l % scales;
            const int others = !wide ? least[elem] - 9 : block < scales - LAST ? 0 : least[elem] - 2 * MORE;
            if (l / scales % 3 == 0) *s = (unsigned char)(block < 4 ? least[elem] + *s % 3 : others);
        }
        decode_check(&p);
        for (int r = 0; gpu_row("moe_decode", r); r++) decode_check_alone(gpu_row("moe_decode", r), &p, 0);
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
    decode_check(&p);
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
        decode_check(&p);
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
            run_on(decode_contexts[1], moit_row("moe_decode", r), &p, first);
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
            run_on(decode_contexts[1], moit_row("moe_decode", r), &q, again);
            assert_memory_equal(first, again, (size_t)y_bytes(&p));
            for (int o = 0; o < 18; o++) free(owned[o / 6][o / 2 % 3][o % 2]);
            moit_free(first), moit_free(again);
            problem_free(&p);
        }
}

/* Layers whose runs follow each other may have one workspace: the bits of each alone. */
static void check_two(const char *row, moi_format f, int64_t tokens, int64_t more_tokens)
{
    problem p[2] = { problem_make(f, (shape){ tokens, 256, 128, 9, 3 }, MOI_BF16, MOI_BF16),
                     problem_make(f, (shape){ more_tokens, 128, 384, 5, 2 }, MOI_BF16, MOI_BF16) };
    void *alone[2], *two[2];
    for (int i = 0; i < 2; i++) alone[i] = moit_alloc(y_bytes(&p[i])), two[i] = moit_alloc(y_bytes(&p[i]));
    if (run_two(decode_contexts[1], row, p, two))
        for (int i = 0; i < 2; i++) {
            assert_true(run_on(decode_contexts[1], row, &p[i], alone[i]));
            assert_memory_equal(alone[i], two[i], (size_t)y_bytes(&p[i]));
        }
    for (int i = 0; i < 2; i++) moit_free(alone[i]), moit_free(two[i]), problem_free(&p[i]);
}
static void test_one_workspace(void **state)
{
    (void)state;
    static const int64_t tokens[][2] = { { 2, 8 }, { 40, 3 }, { 1, 70 } };
    for (int i = 0; i < 3; i++) {
        if (!moit_picked(97u * (uint64_t)i)) continue; /* all or the first are in the selections that run without a GPU */
        moi_format f = i == 1 ? MOI_FORMAT_BLK128_WEIGHT : MOI_FORMAT_MXFP8;
        for (int r = 0; moit_row("moe_decode", r); r++) check_two(moit_row("moe_decode", r), f, tokens[i][0], tokens[i][1]);
        for (int r = 0; gpu_row("moe_decode", r); r++) check_two(gpu_row("moe_decode", r), f, tokens[i][0], tokens[i][1]);
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
        cmocka_unit_test(test_special_weights), cmocka_unit_test(test_special_lines), cmocka_unit_test(test_neighbours), cmocka_unit_test(test_far_scales),
        cmocka_unit_test(test_large_x), cmocka_unit_test(test_wide_x), cmocka_unit_test(test_apart), cmocka_unit_test(test_one_workspace),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, decode_open_contexts, decode_close_contexts);
}
