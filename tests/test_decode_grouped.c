/* SPDX-License-Identifier: Apache-2.0
 * test_decode_grouped.c: moe_decode by grouped products: P:decode.grouped on every row, from how many tokens, and what is refused. */
#include "support_decode.h"

#include <math.h>
#include <stdlib.h>

enum { FORMATS = 7, CASES = 112 };

static moi_format format_of(int i)
{
    moi_format f = MOI_FORMAT_MXFP8;
    if (i == 1) return MOI_FORMAT_BF16;
    if (i == 2) return MOI_FORMAT_BLK128_WEIGHT;
    if (i == 3) f.elem = MOI_E5M2, f.round = MOI_ROUND_FLOOR;
    if (i == 4) f.elem = MOI_E2M1;
    if (i == 5) f.elem = MOI_INT8;
    return i == 6 ? MOI_FORMAT_F32 : f;
}

/* What x and u become beside weights of this format. */
static moi_format act_of(const moi_format *f)
{
    moi_format act = *f;
    if (f->recipe == MOI_RECIPE_MX32) return MOI_FORMAT_BF16;
    act.block = MOI_BLOCK_VECTOR;
    return act;
}

static problem case_of(int i)
{
    static const int64_t experts[] = { 1, 3, 8, 33, 128 };
    moit_rng rng = moit_seed("decode grouped", (uint64_t)i);
    shape s = { 1 + moit_below(&rng, 40), 32 * (1 + moit_below(&rng, 5)), 32 * (1 + moit_below(&rng, 4)), experts[moit_below(&rng, 5)],
                1 + moit_below(&rng, 4) };
    if (i % 7 == 2) s.h = 128 * (1 + moit_below(&rng, 2)), s.f = 128 * (1 + moit_below(&rng, 2));
    if (i % 14 == 3) s.tokens = 3; /* all to one expert */
    if (i % 16 == 9) s.tokens = 150 + moit_below(&rng, 200), s.h = s.f = 64;
    problem p = problem_make(format_of(i % FORMATS), s, moit_below(&rng, 3) ? MOI_BF16 : MOI_F32, moit_below(&rng, 2) ? MOI_BF16 : MOI_F32);
    p.d.grouped_from = 1;
    return p;
}

/* One quantise or dequantise of host memory, by the reference. */
static void convert(const moi_format *f, moi_dtype x, const void *from, const void *scale, void *to, void *to_scale, int64_t rows, int64_t cols, bool back)
{
    moi_plan *plan;
    moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
    moi_dequantize_desc w = MOI_DEQUANTIZE_DESC_INIT;
    q.in = x, q.rowwise = *f, q.want = MOI_WANT_ROWWISE, q.max_rows = w.max_rows = rows, q.cols = w.cols = cols;
    w.in = *f, w.out = x;
    moit_ok(back ? moi_dequantize_plan_create(&plan, moit_ctx(1), &w) : moi_quantize_plan_create(&plan, moit_ctx(1), &q));
    moi_quantize_args qa = { .size = sizeof qa, .rows = rows, .in = { from, NULL, 0 }, .rowwise = { to, to_scale, 0 } };
    moi_dequantize_args wa = { .size = sizeof wa, .rows = rows, .in = { from, scale, 0 }, .out = { to, NULL, 0 } };
    void *ws = moit_workspace(plan);
    int64_t bytes = moi_plan_workspace_bytes(plan);
    moit_ok(back ? moi_dequantize_run(plan, &wa, ws, bytes, NULL) : moi_quantize_run(plan, &qa, ws, bytes, NULL));
    moit_free(ws);
    moi_plan_free(plan);
}

/* The exact layer of rounded x, and how far a row that rounds u too may be from it. */
static void rounded(const problem *p, double *y, double *bound)
{
    problem q = *p;
    moi_format act = act_of(&p->d.weights);
    int64_t t = p->a.tokens, h = p->d.hidden;
    bool scaled = moi_format_block(&act) > 0;
    void *codes = exact_alloc(t * moi_row_bytes(act.elem, h)), *scales = exact_alloc(moi_scale_bytes(&act, t, h, 0)), *x = exact_alloc(t * h * 4);
    if (scaled || (act.elem == MOI_BF16 && p->d.x == MOI_F32)) {
        convert(&act, p->d.x, p->x, NULL, codes, scaled ? scales : NULL, t, h, false);
        convert(&act, MOI_F32, codes, scaled ? scales : NULL, x, NULL, t, h, true);
        q.x = x;
    }
    /* E4M3: half a step of 2^-3, or where it is subnormal half of 2^-9 scales.  A scale is at most 2^-7 of the largest, or 2^-9 of it and a little. */
    q.more = (coarse){ 0, scaled ? 0x1p-4 : 0x1p-8, scaled ? 0x1p-17 : 0, 0x1p-8 };
    if (scaled) q.more.dot = 0x1p-6; /* P:gemm.bound of tensor cores: 2 * 34 * 2^-13 of the magnitudes' sum */
    else if (act.elem == MOI_BF16) q.more.dot = 0x1p-19;
    if (q.x != p->x) {
        q.d.x = MOI_F32;
        q.more.u += 0x1p-8; /* u by way of x's own type */
    }
    exact(&q, y, bound);
    free(codes), free(scales), free(x);
}

/* The public operations one after the other, on the row's back end. */
typedef struct chain {
    moit_mem m;
    moi_plan *plan[6];
    void *workspace[6];
    int steps;
} chain;

static moi_plan **next(chain *c) { return &c->plan[c->steps]; }

#define STEP(c, op, desc, args)                                                                                                   \
    do {                                                                                                                          \
        moit_ok(moi_##op##_plan_create(next(c), (c)->m.ctx, &(desc)));                                                            \
        (c)->workspace[(c)->steps] = moit_mem_workspace(&(c)->m, *next(c));                                                       \
        moit_ok(moi_##op##_run(*next(c), &(args), (c)->workspace[(c)->steps], moi_plan_workspace_bytes(*next(c)), NULL));         \
        (c)->steps++;                                                                                                             \
    } while (0)

static void chain_done(chain *c)
{
    moit_mem_done(&c->m);
    for (int i = 0; i < c->steps; i++) {
        moi_plan_free(c->plan[i]);
        if (!c->m.gpu) moit_free(c->workspace[i]);
    }
}

static void chain_run(const char *row, const problem *p, void *y)
{
    chain c = { .m = moit_mem_of(row) };
    const moi_moe_decode_desc *d = &p->d;
    moi_format act = act_of(&d->weights);
    bool scaled = moi_format_block(&act) > 0, direct = !scaled && act.elem == d->x;
    int64_t t = p->a.tokens, k = d->top_k, slots = t * k, h = d->hidden, f = d->width, e = d->experts;
    int64_t bytes[] = { (e + 1) * 8, slots * 4, slots * 4, t * moi_row_bytes(act.elem, h), scaled ? moi_scale_bytes(&act, t, h, 0) : 0,
                        slots * moi_row_bytes(act.elem, f), scaled ? moi_scale_bytes(&act, slots, f, 0) : 0, slots * moi_row_bytes(d->out, h) };
    void *host[8], *at[8];
    for (int i = 0; i < 8; i++) host[i] = moit_alloc(bytes[i] + 8), at[i] = moit_out(&c.m, host[i], bytes[i] + 8);
    const void *x = moit_in(&c.m, p->x, t * moi_row_bytes(d->x, h));
    moi_operand weights[2];
    for (int i = 0; i < 2; i++) {
        int64_t rows = i ? h : 2 * f, cols = i ? f : h;
        weights[i] = (moi_operand){ moit_in(&c.m, p->codes[i], e * rows * moi_row_bytes(d->weights.elem, cols)),
                                    moit_in(&c.m, p->scales[i], e * moi_scale_bytes(&d->weights, rows, cols, 0)), 0 };
    }
    moi_permute_desc pd = MOI_PERMUTE_DESC_INIT;
    pd.dtype = d->out, pd.max_tokens = t, pd.hidden = h, pd.experts = e, pd.top_k = k;
    moi_permute_args pa = { .size = sizeof pa, .tokens = t, .ids = moit_in(&c.m, p->ids, slots * 4), .offsets = at[0], .row_of = at[1], .token_of = at[2] };
    STEP(&c, permute, pd, pa);
    moi_operand from = { x, NULL, 0 }, act_x = { at[3], scaled ? at[4] : NULL, 0 }, act_u = { at[5], scaled ? at[6] : NULL, 0 };
    if (!direct && act.elem == MOI_F32) {
        moi_dequantize_desc w = { .size = sizeof w, .in = MOI_FORMAT_BF16, .out = MOI_F32, .max_rows = t, .cols = h };
        moi_dequantize_args a = { .size = sizeof a, .rows = t, .in = from, .out = { at[3], NULL, 0 } };
        STEP(&c, dequantize, w, a);
    } else if (!direct) {
        moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
        q.in = d->x, q.rowwise = act, q.want = MOI_WANT_ROWWISE, q.max_rows = t, q.cols = h;
        moi_quantize_args a = { .size = sizeof a, .rows = t, .in = from, .rowwise = { at[3], scaled ? at[4] : NULL, 0 } };
        STEP(&c, quantize, q, a);
    }
    moi_ggemm_desc g = MOI_GGEMM_DESC_INIT;
    g.a = g.rowwise = act, g.b = d->weights, g.out = d->x, g.groups = e, g.max_rows = slots, g.n = 2 * f, g.k = h, g.gather_rows = t, g.swiglu = true;
    g.expected_rows = slots + (int64_t)(0.75 * sqrt((double)(slots * e))); /* as the layer plans them: other rows may take another kernel */
    moi_ggemm_args up = { .size = sizeof up, .rows = slots, .offsets = at[0], .a = direct ? from : act_x, .b = weights[0], .rows_of_a = at[2], .a_rows = t,
                          .rowwise = { at[5], scaled ? at[6] : NULL, 0 } };
    STEP(&c, ggemm, g, up);
    g.out = d->out, g.n = h, g.k = f, g.gather_rows = 0, g.swiglu = false;
    moi_ggemm_args down = { .size = sizeof down, .rows = slots, .offsets = at[0], .a = act_u, .b = weights[1], .d = at[7] };
    STEP(&c, ggemm, g, down);
    moi_combine_args ca = { .size = sizeof ca, .tokens = t, .row_of = at[1], .weights = moit_in(&c.m, p->weights, slots * 4), .y_sorted = at[7],
                            .y = moit_out(&c.m, y, y_bytes(p)) };
    STEP(&c, combine, pd, ca);
    chain_done(&c);
    for (int i = 0; i < 8; i++) moit_free(host[i]);
}

/* P:decode.grouped: within a bound of the exact layer of rounded activations, and the bits of its parts. */
static void test_sweep(void **state)
{
    (void)state;
    int taken = 0, on_gpu = 0, parts, part = moit_part(&parts);
    for (int i = part; i < CASES; i += parts) {
        if (!moit_picked((uint64_t)i) || (!moit_gpu() && i % 4 != 1)) continue;
        problem p = case_of(i);
        int64_t outputs = p.a.tokens * p.d.hidden;
        double *y = calloc((size_t)(2 * outputs), sizeof *y), *bound = y + outputs;
        char *apart = moit_alloc(y_bytes(&p)), *whole = moit_alloc(y_bytes(&p));
        rounded(&p, y, bound);
        for (int r = 0; moit_any_row("moe_decode", r); r++) {
            const char *row = moit_any_row("moe_decode", r);
            if (!check_row(moit_ctx(0), row, &p, y, bound)) continue;
            run_on(moit_ctx(0), row, &p, whole);
            chain_run(row, &p, apart);
            if (memcmp(apart, whole, (size_t)y_bytes(&p)) != 0) fail_msg("%s, case %d: other bits than its parts", row, i);
            taken++, on_gpu += moit_mem_of(row).gpu;
        }
        moit_free(apart), moit_free(whole), free(y);
        problem_free(&p);
    }
    assert_true(parts > 1 || taken > 0); /* a part may be all others' */
    assert_true(parts > 1 || !moit_hopper() || on_gpu > 0);
}

/* The bits of the row below grouped_from, those of grouped products from there on, whatever the plan's largest run. */
static void test_switch(void **state)
{
    (void)state;
    for (int r = 0; moit_any_row("moe_decode", r); r++) {
        const char *row = moit_any_row("moe_decode", r);
        problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 9, 256, 128, 4, 2 }, MOI_BF16, MOI_BF16);
        char *alone = moit_alloc(y_bytes(&p)), *grouped = moit_alloc(y_bytes(&p)), *got = moit_alloc(y_bytes(&p));
        assert_true(run_on(moit_ctx(0), row, &p, alone));
        p.d.grouped_from = 1;
        assert_true(run_on(moit_ctx(0), row, &p, grouped));
        assert_memory_not_equal(alone, grouped, (size_t)y_bytes(&p));
        for (int64_t from = 8; from <= 11; from++) {
            p.d.grouped_from = from, p.d.max_tokens = 10;
            assert_true(run_on(moit_ctx(0), row, &p, got));
            assert_memory_equal(got, from <= 9 ? grouped : alone, (size_t)y_bytes(&p));
        }
        moit_free(alone), moit_free(grouped), moit_free(got);
        problem_free(&p);
    }
}

/* Products are planned for some numbers of tokens: below, at and above each, a plan for many gives what one for just as many does. */
static void check_size(const char *row, moi_format weights, int64_t tokens)
{
    problem p = problem_make(weights, (shape){ tokens, 128, 128, 2, 2 }, MOI_BF16, MOI_BF16);
    char *alone = moit_alloc(y_bytes(&p)), *among = moit_alloc(y_bytes(&p));
    p.d.grouped_from = 1;
    assert_true(run_on(moit_ctx(0), row, &p, alone));
    p.d.max_tokens = 1700;
    assert_true(run_on(moit_ctx(0), row, &p, among));
    assert_memory_equal(alone, among, (size_t)y_bytes(&p));
    p.d.grouped_from = 1 + tokens / 2; /* smaller sizes are not planned */
    assert_true(run_on(moit_ctx(0), row, &p, among));
    assert_memory_equal(alone, among, (size_t)y_bytes(&p));
    moit_free(alone), moit_free(among);
    problem_free(&p);
}

static void test_sizes(void **state)
{
    (void)state;
    static const int64_t fours_ends[] = { 28, 29 };
    static const int64_t mx[] = { 1, 32, 58, 59, 78, 79, 116, 117, 146, 147, 1669, 1670 }, others[] = { 1, 58, 59, 119, 120, 181, 182, 511, 512, 1100 };
    uint64_t n = 0;
    for (int r = 0; moit_any_row("moe_decode", r); r++) {
        const char *row = moit_any_row("moe_decode", r);
        for (int i = 0; i < (int)(sizeof mx / sizeof *mx); i++)
            for (int fours = 0; fours < 2; fours++)
                if (moit_picked(n++)) check_size(row, fours ? MOI_FORMAT_MXFP4 : MOI_FORMAT_MXFP8, mx[i]);
        for (int i = 0; i < 2; i++)
            if (moit_picked(n++)) check_size(row, MOI_FORMAT_MXFP4, fours_ends[i]);
        for (int i = 0; i < (int)(sizeof others / sizeof *others); i++) {
            if (moit_picked(n++)) check_size(row, MOI_FORMAT_BLK128_WEIGHT, others[i]);
            if (moit_picked(n++)) check_size(row, MOI_FORMAT_BF16, others[i]);
        }
    }
}

/* From logits: the lists of moi_route_run, and the bits of the run with them; a plan without `hidden` still leaves them. */
static void test_logits(void **state)
{
    (void)state;
    static const shape shapes[] = { { 21, 96, 64, 9, 3 }, { 5, 0, 32, 4, 2 } };
    for (int i = 0; i < 2; i++)
        for (int r = 0; moit_any_row("moe_decode", r); r++) {
            const char *row = moit_any_row("moe_decode", r);
            problem p = problem_make(MOI_FORMAT_MXFP8, shapes[i], MOI_BF16, MOI_F32), q = p;
            moit_rng rng = moit_seed("decode grouped logits", (uint64_t)i);
            int64_t slots = p.a.tokens * p.d.top_k;
            float *logits = exact_alloc(p.a.tokens * p.d.experts * 4), *weights = moit_alloc(slots * 4), *same = moit_alloc(slots * 4);
            int32_t *ids = moit_alloc(slots * 4);
            char *one = moit_alloc(y_bytes(&p)), *two = moit_alloc(y_bytes(&p)), *three = moit_alloc(y_bytes(&p));
            for (int64_t n = 0; n < p.a.tokens * p.d.experts; n++) logits[n] = moit_normal(&rng);
            q.d.from_logits = true, q.d.renormalize = true, q.d.grouped_from = p.d.grouped_from = 1;
            q.a.logits = logits, q.a.ids = NULL, q.a.weights = NULL, q.a.ids_out = ids, q.a.weights_out = weights;
            if (run_on(moit_ctx(0), row, &q, one)) {
                p.a.ids = ids, p.a.weights = weights;
                assert_true(run_on(moit_ctx(0), row, &p, two));
                assert_memory_equal(one, two, (size_t)y_bytes(&p));
                q.a.ids_out = NULL, q.a.weights_out = same;
                assert_true(run_on(moit_ctx(0), row, &q, three));
                assert_memory_equal(one, three, (size_t)y_bytes(&p));
                assert_memory_equal(weights, same, (size_t)slots * 4);
                for (int64_t t = 0; t < p.a.tokens; t++) { /* best first */
                    const float *l = logits + t * p.d.experts;
                    for (int64_t e = 0; e < p.d.experts; e++) assert_true(l[e] <= l[ids[t * p.d.top_k]]);
                }
            }
            free(logits), moit_free(weights), moit_free(same), moit_free(ids), moit_free(one), moit_free(two), moit_free(three);
            problem_free(&p);
        }
}

/* NaN in one token's x stays there. */
static void test_nan(void **state)
{
    (void)state;
    for (int r = 0; moit_any_row("moe_decode", r); r++) {
        const char *row = moit_any_row("moe_decode", r);
        problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 7, 128, 128, 2, 2 }, MOI_BF16, MOI_F32);
        float *clean = moit_alloc(y_bytes(&p)), *sick = moit_alloc(y_bytes(&p));
        p.d.grouped_from = 1;
        for (int i = 0; i < 14; i++) p.ids[i] = i & 1;
        assert_true(run_on(moit_ctx(0), row, &p, clean));
        moi_encode(MOI_BF16, p.x, 3 * 128 + 40, NAN);
        assert_true(run_on(moit_ctx(0), row, &p, sick));
        for (int64_t i = 0; i < 7 * 128; i++)
            if (i / 128 == 3) assert_true(isnan(sick[i]));
            else assert_memory_equal(&clean[i], &sick[i], 4);
        moit_free(clean), moit_free(sick);
        problem_free(&p);
    }
}

static int64_t from_of(moi_ctx *ctx, moi_moe_decode_desc d, int64_t from)
{
    moi_plan *plan;
    d.grouped_from = from;
    moit_ok(moi_moe_decode_plan_create(&plan, ctx, &d));
    int64_t got = moi_moe_decode_grouped_from(plan);
    moi_plan_free(plan);
    return got;
}

static int64_t workspace_of(moi_ctx *ctx, moi_moe_decode_desc d, int64_t tokens, int64_t from)
{
    moi_plan *plan;
    d.max_tokens = tokens, d.grouped_from = from;
    moit_ok(moi_moe_decode_plan_create(&plan, ctx, &d));
    int64_t bytes = moi_plan_workspace_bytes(plan);
    moi_plan_free(plan);
    return bytes;
}
/* The decode row's part of the workspace is that of the tokens that are left to it, given or chosen. */
static void check_workspace(moi_ctx *ctx)
{
    problem p = problem_make(MOI_FORMAT_MXFP4, (shape){ 1, 1024, 128, 9, 2 }, MOI_BF16, MOI_BF16);
    const int64_t products = workspace_of(ctx, p.d, 300, 1), eight = workspace_of(ctx, p.d, 8, 0), all = workspace_of(ctx, p.d, 300, 0);
    assert_true(all > eight && all > products);
    assert_int_equal(workspace_of(ctx, p.d, 300, 9), products > eight ? products : eight);
    p.d.max_tokens = 300;
    const int64_t from = from_of(ctx, p.d, MOI_GROUPED_AUTO), some = workspace_of(ctx, p.d, from - 1, 0);
    assert_true(from > 8 && from < 300 && some < all);
    assert_int_equal(workspace_of(ctx, p.d, 300, MOI_GROUPED_AUTO), products > some ? products : some);
    problem_free(&p);
}

static void check_choice(moi_ctx *ctx, bool gpu)
{
    problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 1, 128, 128, 2, 2 }, MOI_BF16, MOI_F32);
    p.d.max_tokens = 4096;
    int64_t from = from_of(ctx, p.d, MOI_GROUPED_AUTO);
    assert_in_range(from, 2, 4096);
    assert_int_equal(from_of(ctx, p.d, 0), 0);
    assert_int_equal(from_of(ctx, p.d, 77), 77);
    assert_int_equal(from_of(ctx, p.d, 4097), 0);
    p.d.max_tokens = from - 1;
    assert_int_equal(from_of(ctx, p.d, MOI_GROUPED_AUTO), 0);
    p.d.max_tokens = 4096; /* weights, and so many rows, that no grouped product takes */
    if (gpu) p.d.max_tokens = INT64_C(1) << 30, p.d.weights = MOI_FORMAT_MXFP4; /* which would turn at 65 */
    else p.d.weights = MOI_FORMAT_F16;
    assert_int_equal(from_of(ctx, p.d, MOI_GROUPED_AUTO), 0);
    assert_int_equal(workspace_of(ctx, p.d, p.d.max_tokens, MOI_GROUPED_AUTO), workspace_of(ctx, p.d, p.d.max_tokens, 0));
    moi_plan *plan;
    p.d.grouped_from = 3;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &p.d), MOI_ERR_UNSUPPORTED, gpu ? "grouped_from: ggemm plan" : "grouped_from: f16 weights");
    assert_null(plan);
    problem_free(&p);
}

static void test_choice(void **state)
{
    (void)state;
    check_choice(moit_ctx(0), false);
    if (moit_hopper()) check_choice(moit_hopper(), true), check_workspace(moit_hopper());
    assert_int_equal(moi_moe_decode_grouped_from(NULL), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    moi_plan *plan;
    problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 3, 64, 32, 4, 2 }, MOI_BF16, MOI_F32);
    p.d.grouped_from = -2;
    moit_refused(moi_moe_decode_plan_create(&plan, moit_ctx(0), &p.d), MOI_ERR_ARG, "grouped_from must be a number of tokens, 0 or GROUPED_AUTO (-1), got -2");
    p.d.grouped_from = 1;
    unsigned char *y = moit_alloc(y_bytes(&p));
    memset(y, 0x5A, (size_t)y_bytes(&p));
    p.a.y = y;
    moit_ok(moi_moe_decode_plan_create(&plan, moit_ctx(0), &p.d));
    void *ws = moit_workspace(plan);
    int64_t bytes = moi_plan_workspace_bytes(plan);
    p.ids[1] = 4;
    moit_refused(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL), MOI_ERR_ARG, "ids must be -1..3, got 4");
    p.ids[1] = 0;
    moit_refused(moi_moe_decode_run(plan, &p.a, ws, bytes - 1, NULL), MOI_ERR_WORKSPACE, "workspace must hold");
    for (int64_t i = 0; i < y_bytes(&p); i++) assert_int_equal(y[i], 0x5A);
    moit_ok(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL));
    moit_free(ws), moit_free(y);
    moi_plan_free(plan);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep), cmocka_unit_test(test_switch), cmocka_unit_test(test_sizes), cmocka_unit_test(test_logits),
        cmocka_unit_test(test_nan), cmocka_unit_test(test_choice), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("decode_grouped", tests, NULL, NULL);
}
