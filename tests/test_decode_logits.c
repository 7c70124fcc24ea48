/* SPDX-License-Identifier: Apache-2.0
 * test_decode_logits.c: moe_decode from router logits: the bits of moi_route_run and moe_decode with its ids and weights. */
#include "support_decode.h"

#include <math.h>
#include <stdlib.h>

/* What a way to the layer's output leaves. */
typedef struct outcome { int32_t *ids; float *weights; char *y; } outcome;

static outcome outcome_make(const problem *p)
{
    int64_t slots = p->a.tokens * p->d.top_k * 4;
    return (outcome){ moit_alloc(slots), moit_alloc(slots), moit_alloc(y_bytes(p)) };
}
static void outcome_free(outcome *o) { moit_free(o->ids), moit_free(o->weights), moit_free(o->y); }

static void check_same(const char *row, const problem *p, const outcome *a, const outcome *b, bool lists)
{
    size_t slots = (size_t)(p->a.tokens * p->d.top_k) * 4;
    if ((lists && (memcmp(a->ids, b->ids, slots) != 0 || memcmp(a->weights, b->weights, slots) != 0)) || memcmp(a->y, b->y, (size_t)y_bytes(p)) != 0)
        fail_msg("%s: t %lld h %lld f %lld e %lld k %lld: other bits than route and moe_decode", row, (long long)p->a.tokens, (long long)p->d.hidden,
                 (long long)p->d.width, (long long)p->d.experts, (long long)p->d.top_k);
}

/* moi_route_run on the row's back end. */
static void route(const char *route_row, const problem *p, const float *logits, bool renormalize, outcome *o)
{
    moit_mem m = moit_mem_of(route_row);
    moi_plan *plan;
    moi_route_desc d = MOI_ROUTE_DESC_INIT;
    int64_t t = p->a.tokens, slots = t * p->d.top_k * 4;
    float *probs = moit_alloc(t * p->d.experts * 4);
    d.row = route_row, d.max_tokens = t, d.experts = p->d.experts, d.top_k = p->d.top_k, d.renormalize = renormalize;
    moit_ok(moi_route_plan_create(&plan, m.ctx, &d));
    void *ws = moit_mem_workspace(&m, plan);
    moi_route_args a = { .size = sizeof a, .tokens = t, .logits = moit_in(&m, logits, t * p->d.experts * 4), .probs = moit_out(&m, probs, t * p->d.experts * 4),
                         .ids = moit_out(&m, o->ids, slots), .weights = moit_out(&m, o->weights, slots) };
    moit_mem_run(&m, moi_route_run(plan, &a, ws, moi_plan_workspace_bytes(plan), m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(ws);
    moit_free(probs);
    moi_plan_free(plan);
}

/* moe_decode with these ids and weights; false where the row does not take the problem. */
static bool decode_ids(const char *row, const problem *p, outcome *o)
{
    problem q = *p;
    q.a.ids = o->ids, q.a.weights = o->weights;
    return run_on(moit_ctx(0), row, &q, o->y);
}

/* moe_decode from logits; with lists also ids_out and weights_out. */
static bool decode_logits(const char *row, const problem *p, const float *logits, bool renormalize, outcome *o, bool lists)
{
    problem q = *p;
    q.d.from_logits = true, q.d.renormalize = renormalize;
    q.a.ids = NULL, q.a.weights = NULL;
    q.a.logits = logits, q.a.ids_out = lists ? o->ids : NULL, q.a.weights_out = lists ? o->weights : NULL;
    return run_on(moit_ctx(0), row, &q, o->y);
}

typedef enum kind { PLAIN, TIES, NEAR, EQUAL, UNDERFLOW, WILD, ALL_NAN, KINDS } kind;

static float *make_logits(moit_rng *rng, const problem *p, kind k)
{
    static const float wild[] = { NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, -0.0f };
    int64_t t = p->a.tokens, e = p->d.experts, sick = moit_below(rng, t);
    float *l = exact_alloc(t * e * 4);
    for (int64_t i = 0; i < t * e; i++) {
        bool here = i / e == sick || i / e == 0;
        l[i] = 2.0f * moit_normal(rng);
        if (k == TIES) l[i] = 0.25f * (float)moit_below(rng, 4);
        if (k == NEAR) l[i] = 0.25f * (float)moit_below(rng, 4) + ldexpf(1.0f, -16 - (int)moit_below(rng, 9)); /* some p are equal, some just not */
        if (k == EQUAL) l[i] = -3.0f;
        if (k == UNDERFLOW) l[i] = -(float)moit_below(rng, 250);
        if (k == WILD && here && moit_below(rng, 2)) l[i] = wild[moit_below(rng, 6)];
        if (k == ALL_NAN && here) l[i] = NAN;
    }
    return l;
}

static moi_format format_of(int64_t i)
{
    switch (i) {
    case 0: return MOI_FORMAT_MXFP4;
    case 1: return MOI_FORMAT_BF16;
    case 2: return MOI_FORMAT_BLK128_WEIGHT;
    default: return MOI_FORMAT_MXFP8;
    }
}

static problem case_of(moit_rng *rng, int i)
{
    static const int64_t experts[] = { 1, 2, 7, 32, 33, 60, 64, 127, 128, 129, 255, 256, 257, 512 };
    shape s = { 1 + moit_below(rng, 9), 32 * (1 + moit_below(rng, 4)), 32 * (1 + moit_below(rng, 4)), experts[moit_below(rng, 14)], 1 };
    if (s.experts > 64) s.h = 32 * (1 + moit_below(rng, 2)), s.f = 32;
    if (i % 12 == 5) s.tokens = 20 + moit_below(rng, 150), s.h = s.f = 32; /* more than one launch's */
    if (i % 40 == 21) s.experts = 2048, s.h = s.f = 32;
    if (i % 8 == 3) s.h = 128 * (1 + moit_below(rng, 3)), s.f = 128 * (1 + moit_below(rng, 2));
    if (i % 48 == 27) s.tokens = 33 + moit_below(rng, 100), s.h = s.f = 128;
    s.top_k = 1 + moit_below(rng, s.experts < 16 ? s.experts : 16);
    return problem_make(format_of(moit_below(rng, 6)), s, MOI_BF16, moit_below(rng, 2) ? MOI_BF16 : MOI_F32);
}

enum { CASES = 160 };
static bool picked(int i)
{
    int parts, part = moit_part(&parts);
    return moit_picked((uint64_t)i) && i % parts == part && (moit_gpu() || i % 4 == 1);
}

/* One row, all ways. */
static bool check_case(const char *row, const char *route_row, const problem *p, const float *logits, bool renormalize)
{
    outcome two = outcome_make(p), one = outcome_make(p), bare = outcome_make(p);
    route(route_row, p, logits, renormalize, &two);
    bool takes = decode_ids(row, p, &two) && decode_logits(row, p, logits, renormalize, &one, true);
    if (takes) {
        check_same(row, p, &two, &one, true);
        decode_logits(row, p, logits, renormalize, &bare, false);
        check_same(row, p, &two, &bare, false);
    }
    outcome_free(&two), outcome_free(&one), outcome_free(&bare);
    return takes;
}

/* Every row: how many take the problem. */
static int check_rows(const problem *p, const float *logits, bool renormalize)
{
    int taken = 0;
    for (int r = 0; moit_row("moe_decode", r); r++) taken += check_case(moit_row("moe_decode", r), moit_row("route", r % 2), p, logits, renormalize);
    for (int r = 0; gpu_row("moe_decode", r); r++) taken += check_case(gpu_row("moe_decode", r), gpu_row("route", 0), p, logits, renormalize);
    return taken;
}

/* P:decode.logits, with ties, NaN, infinities and underflow among the logits */
static void test_sweep(void **state)
{
    (void)state;
    int taken = 0;
    for (int i = 0; i < CASES; i++) {
        if (!picked(i)) continue;
        moit_rng rng = moit_seed("decode logits", (uint64_t)i);
        problem p = case_of(&rng, i);
        bool renormalize = moit_below(&rng, 2);
        float *logits = make_logits(&rng, &p, (kind)moit_below(&rng, KINDS));
        taken += check_rows(&p, logits, renormalize);
        free(logits);
        problem_free(&p);
    }
    assert_true(taken > 0);
}

/* One token's, of kinds in turn: of few values, many of them equal; such as only their last bits tell apart, 2^-20, which is enough; such as are 2^-24
 * apart, which is not always, for their p may be equal; all apart but the last that is chosen and the first that is not.  Some underflow, some are not
 * finite, some are zeros of both signs. */
static void close_logits(moit_rng *rng, float *l, int token, const shape *s)
{
    int fine = token % 7, rank[512];
    for (int e = 0; e < s->experts; e++) {
        int at = (int)moit_below(rng, e + 1);
        rank[e] = rank[at], rank[at] = e;
    }
    for (int e = 0; e < s->experts; e++) {
        float grid = ldexpf(roundf(ldexpf(moit_normal(rng), 1 + fine)), -fine), last = ldexpf((float)moit_below(rng, 96), -20);
        const float kinds[] = { grid, 8.0f + last, ldexpf(last, -4), -0.125f * (float)(rank[e] - (rank[e] >= s->top_k)) };
        l[e] = kinds[token % 4];
        if (token == 4 && e > 3) l[e] -= 103;
        if (token == 7) l[e] = e / 4 % 2 ? 0.0f : -0.0f;
        if (token == 6 && e % 9 == 4) l[e] = e % 2 ? NAN : INFINITY;
    }
}

/* P:decode.logits: close ones, of as many experts as a lane has room for and of fewer. */
static void test_close(void **state)
{
    (void)state;
    static const int64_t experts[] = { 128, 256, 96, 200, 512, 330 }, top_ks[] = { 8, 16, 6, 1 };
    for (int i = 0; i < 48; i++) {
        if (!picked(151 + i / 2)) continue; /* some are in the selections that run without a GPU */
        moit_rng rng = moit_seed("decode logits close", (uint64_t)i);
        const bool more = i >= 32; /* experts than 256 */
        const int64_t n = more ? experts[4 + i / 2 % 2] : experts[(i / 2 + i % 2 * 2) % 4];
        shape s = { !(i % 2) ? 8 : more ? 20 : 40, 128, 128, n, top_ks[more ? (i - 32) / 4 : i / 8] };
        problem p = problem_make(i / 2 % 5 == 4 ? MOI_FORMAT_MXFP4 : MOI_FORMAT_MXFP8, s, MOI_BF16, MOI_F32);
        float *logits = exact_alloc(s.tokens * s.experts * 4);
        for (int t = 0; t < s.tokens; t++) close_logits(&rng, logits + t * s.experts, t, &s);
        assert_true(check_rows(&p, logits, true) > 0);
        free(logits);
        problem_free(&p);
    }
}

/* P:decode.logits: the last expert that is chosen has a zero, as the first one, but of the other sign: -0 and 0, or what is nearly 0. */
static void test_zeros(void **state)
{
    (void)state;
    static const int64_t experts[] = { 128, 256, 96, 200, 512, 330 };
    static const float first[] = { -0.0f, -1e-45f, -0x1p-145f, 0.0f }, last[] = { 0.0f, 0.0f, 1e-45f, -0.0f };
    for (int i = 0; i < 24; i++) {
        if (!picked(151 + i / 4)) continue; /* some are in the selections that run without a GPU */
        shape s = { 8, 128, 128, i < 16 ? experts[i % 4] : experts[4 + i % 2], 8 };
        problem p = problem_make(MOI_FORMAT_MXFP8, s, MOI_BF16, MOI_F32);
        int64_t per = (s.experts + 31) / 32, behind = (s.experts - 1) / per * per;
        float *logits = exact_alloc(s.tokens * s.experts * 4);
        for (int64_t t = 0; t < s.tokens; t++)
            for (int64_t e = 0; e < s.experts; e++) {
                const int pair = (int)(t + (i < 16 ? i / 4 : i / 2)) % 4;
                float *l = &logits[t * s.experts + e];
                *l = e % 15 == 7 && e < 90 ? 1.0f + 0.01f * (float)e : -1.0f - 0.01f * (float)e; /* six are greater than 0 */
                if (e == 0) *l = first[pair];
                if (e == behind) *l = last[pair];
            }
        assert_true(check_rows(&p, logits, true) > 0);
        free(logits);
        problem_free(&p);
    }
}

/* P:decode.logits: more than 8 tokens of 8-bit weights, which warps route some at a time (route_groups.cuh): experts that fill its lanes and that do not,
 * all numbers of slots, launches that are whole and not, logits of all kinds. */
static void test_many_tokens(void **state)
{
    (void)state;
    enum { MANY_CASES = 84 };
    static const int64_t tokens[] = { 9, 12, 16, 17, 31, 33, 63, 64, 65, 97, 128, 130 }, experts[] = { 1, 2, 7, 33, 60, 64, 127, 128, 129, 200, 512, 256, 257 };
    if (!moit_hopper()) skip();
    for (int i = 0; i < MANY_CASES; i++) {
        if (!picked(118 + i)) continue; /* some are in the selections that run without a GPU, and with the search for races */
        moit_rng rng = moit_seed("decode logits many", (uint64_t)i);
        shape s = { tokens[i % 12], 128, 128, experts[i % 13], 0 };
        int64_t most = i % 4 == 3 ? 16 : 8;
        s.top_k = 1 + moit_below(&rng, s.experts < most ? s.experts : most);
        moi_format f = i % 5 == 4 ? MOI_FORMAT_BLK128_WEIGHT : MOI_FORMAT_MXFP8;
        problem p = problem_make(f, s, MOI_BF16, i % 2 ? MOI_BF16 : MOI_F32);
        float *logits = make_logits(&rng, &p, (kind)(i % KINDS));
        assert_true(check_case("moe_decode_f16_sm90", gpu_row("route", 0), &p, logits, i % 3 > 0));
        free(logits);
        problem_free(&p);
    }
}

/* P:decode.logits: more than 128 tokens of a launch, which pass 1 routes where experts are no more than 128; of more experts a launch does, from 97 tokens on,
 * and of more than 256, or slots than 8, from 65 on; the last two with a second launch, of few tokens, which nothing routes but what routes the first's. */
static void test_more_tokens(void **state)
{
    (void)state;
    static const struct { shape size; int number; } cases[] = { /* 147 * 4 and 147 * 6 also run without a GPU, with the search for races */
        { { 200, 64, 32, 128, 8 }, 147 * 4 }, { { 384, 128, 128, 127, 8 }, 461 }, { { 97, 128, 64, 129, 8 }, 462 }, { { 256, 128, 128, 200, 8 }, 463 },
        { { 384, 64, 64, 66, 3 }, 464 },      { { 130, 128, 128, 65, 12 }, 465 }, { { 390, 64, 64, 100, 8 }, 466 },
        { { 390, 64, 64, 140, 8 }, 147 * 6 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!picked(cases[i].number)) continue;
        moit_rng rng = moit_seed("decode logits more", i);
        problem p = problem_make(i % 2 ? MOI_FORMAT_BF16 : MOI_FORMAT_MXFP8, cases[i].size, MOI_BF16, MOI_F32);
        float *logits = make_logits(&rng, &p, i % 3 ? PLAIN : (kind)(i % KINDS));
        assert_true(check_case(moit_row("moe_decode", 0), moit_row("route", 0), &p, logits, true));
        for (int r = 0; gpu_row("moe_decode", r); r++) check_case(gpu_row("moe_decode", r), gpu_row("route", 0), &p, logits, true);
        free(logits);
        problem_free(&p);
    }
}

/* P:decode.logits: of so long rows that a block has room for one job's columns: workers bring the next job's while another warp finds weights.  All but the
 * first have two teams (test_decode_layout.c: test_teams), which route by maxima of up to 128 experts, of up to 256, and by p. */
static void test_long_rows(void **state)
{
    (void)state;
    const moi_format mx = MOI_FORMAT_MXFP8, blk = MOI_FORMAT_BLK128_WEIGHT, bf16 = MOI_FORMAT_BF16;
    const struct { const moi_format *weights; shape size; int number; } cases[] = { /* 147 * 3 and 97 * 5 also run without a GPU, with the search for races */
        { &mx, { 10, 4096, 128, 3, 2 }, 147 * 3 }, { &blk, { 9, 7168, 128, 3, 2 }, 97 * 5 },  { &mx, { 9, 7168, 32, 130, 2 }, 445 },
        { &blk, { 9, 7168, 128, 9, 9 }, 446 },     { &bf16, { 70, 4096, 64, 3, 2 }, 447 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!picked(cases[i].number)) continue;
        moit_rng rng = moit_seed("decode logits long", i);
        problem p = problem_make(*cases[i].weights, cases[i].size, MOI_BF16, MOI_F32);
        float *logits = make_logits(&rng, &p, PLAIN);
        assert_true(check_case(moit_row("moe_decode", 0), moit_row("route", 0), &p, logits, true));
        for (int r = 0; gpu_row("moe_decode", r); r++) check_case(gpu_row("moe_decode", r), gpu_row("route", 0), &p, logits, true);
        free(logits);
        problem_free(&p);
    }
}

/* On the CPU any hidden and width will do; ids are written where there is no output to compute. */
static void test_odd_shapes(void **state)
{
    (void)state;
    static const shape shapes[] = { { 3, 33, 17, 3, 2 }, { 2, 0, 40, 5, 2 }, { 3, 40, 0, 2, 2 }, { 1, 1, 1, 1, 1 }, { 0, 64, 64, 2, 2 } };
    for (int i = 0; i < 5; i++)
        for (int r = 0; moit_row("moe_decode", r); r++) {
            moit_rng rng = moit_seed("decode logits odd", (uint64_t)i);
            problem p = problem_make(MOI_FORMAT_MXFP8, shapes[i], i & 1 ? MOI_BF16 : MOI_F32, MOI_F32);
            float *logits = p.a.tokens ? make_logits(&rng, &p, PLAIN) : exact_alloc(0);
            assert_true(check_case(moit_row("moe_decode", r), moit_row("route", 0), &p, logits, true));
            free(logits);
            problem_free(&p);
        }
}

static void test_refusals(void **state)
{
    (void)state;
    moi_plan *plan;
    moi_ctx *ctx = moit_ctx(0);
    problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 2, 64, 32, 4, 2 }, MOI_BF16, MOI_F32), bad = p;
    float *logits = exact_alloc(2 * 4 * 4 + 16);
    unsigned char *y = moit_alloc(y_bytes(&p));
    memset(y, 0x5A, (size_t)y_bytes(&p));
    p.a.y = y;
    bad.d.renormalize = true;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_ARG, "renormalize is for plans from logits");
    bad = p, bad.d.from_logits = true, bad.d.top_k = 5;
    moit_refused(moi_moe_decode_plan_create(&plan, ctx, &bad.d), MOI_ERR_SHAPE, "from logits, top_k must be 1..experts (4), got 5");
    moit_ok(moi_moe_decode_plan_create(&plan, ctx, &p.d));
    void *ws = moit_workspace(plan);
    moi_moe_decode_args a = p.a;
    a.logits = logits;
    moit_refused(moi_moe_decode_run(plan, &a, ws, moi_plan_workspace_bytes(plan), NULL), MOI_ERR_ARG, "logits must be NULL, the plan is not from logits");
    a = p.a, a.weights_out = logits;
    moit_refused(moi_moe_decode_run(plan, &a, ws, moi_plan_workspace_bytes(plan), NULL), MOI_ERR_ARG, "weights_out must be NULL");
    moit_free(ws);
    moi_plan_free(plan);
    p.d.from_logits = true;
    moit_ok(moi_moe_decode_plan_create(&plan, ctx, &p.d));
    ws = moit_workspace(plan);
    int64_t bytes = moi_plan_workspace_bytes(plan);
    moit_refused(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL), MOI_ERR_ARG, "ids must be NULL, the plan is from logits");
    p.a.ids = NULL;
    moit_refused(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL), MOI_ERR_ARG, "weights must be NULL, the plan is from logits");
    p.a.weights = NULL;
    moit_refused(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL), MOI_ERR_ARG, "logits: data is NULL");
    a = p.a, a.logits = logits + 1;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_ALIGN, "logits");
    a = p.a, a.logits = logits, a.ids_out = (int32_t *)(void *)logits + 1;
    moit_refused(moi_moe_decode_run(plan, &a, ws, bytes, NULL), MOI_ERR_ALIGN, "ids_out");
    for (int64_t i = 0; i < y_bytes(&p); i++) assert_int_equal(y[i], 0x5A);
    p.a.logits = logits;
    moit_ok(moi_moe_decode_run(plan, &p.a, ws, bytes, NULL));
    moit_free(ws), moit_free(y), free(logits);
    moi_plan_free(plan);
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep), cmocka_unit_test(test_close), cmocka_unit_test(test_zeros), cmocka_unit_test(test_many_tokens),
        cmocka_unit_test(test_more_tokens), cmocka_unit_test(test_long_rows), cmocka_unit_test(test_odd_shapes), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
