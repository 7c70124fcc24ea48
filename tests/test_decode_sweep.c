/* SPDX-License-Identifier: Apache-2.0
 * test_decode_sweep.c: moe_decode over random shapes, batches, formats and routings: bounds, and tokens that do not see each other. */
#include "support_decode.h"

#include <math.h>
#include <stdlib.h>

/* From PLAIN on: weights and shapes of whole lines of moe_decode_f16_sm90, or nearly: MXFP8, from SQUARES on 128x128, from UNSCALED on BF16, from FOURS on
 * MXFP4.  From WIDE on: experts so wide that down goes in several launches, or that scales of a row do not fit shared memory; of all formats. */
enum { PLAIN = 600, SQUARES = 720, WIDE = 840, UNSCALED = 876, FOURS = 996, CASES = 1116 };

static moi_format format_of(int64_t i)
{
    switch (i) {
    case 0: case 1: return MOI_FORMAT_MXFP8;
    case 2: return MOI_FORMAT_MXFP4;
    case 3: return MOI_FORMAT_BF16;
    case 4: return MOI_FORMAT_BLK128_ACT;
    default: return MOI_FORMAT_BLK128_WEIGHT;
    }
}

typedef enum routing { RANDOM, DISTINCT, ONE_EXPERT, REPEATED, SKIPPED, ROUTINGS } routing;

static void set_routing(moit_rng *rng, problem *p, routing kind)
{
    int64_t k = p->d.top_k, e = p->d.experts, one = moit_below(rng, e);
    for (int64_t i = 0; i < p->a.tokens * k; i++) {
        int64_t id = moit_below(rng, e);
        if (kind == DISTINCT) id = (i / k * 7 + i % k) % e;
        if (kind == ONE_EXPERT) id = one;
        if (kind == REPEATED && i % k) id = moit_below(rng, 3) ? p->ids[i - 1] : id;
        if (kind == SKIPPED && moit_below(rng, 3)) id = -1;
        p->ids[i] = (int32_t)id;
    }
}

/* Sizes whose products keep the reference quick; now and then a long row, many tokens, many experts. */
static problem case_of(moit_rng *rng, int i)
{
    static const int64_t long_rows[] = { 1024, 1312, 2048, 2880, 4096, 7168 };
    shape s = { 1 + moit_below(rng, 12), 32 * (1 + moit_below(rng, 5)), 32 * (1 + moit_below(rng, 5)), 1 + moit_below(rng, 12), 1 + moit_below(rng, 8) };
    if (i % 10 == 3) s.h = long_rows[moit_below(rng, 6)], s.f = 32 * (1 + moit_below(rng, 2)), s.experts = 1 + s.experts / 5;
    if (i % 10 == 6) s.f = long_rows[moit_below(rng, 6)], s.h = 32 * (1 + moit_below(rng, 2)), s.experts = 1 + s.experts / 5;
    if (i % 10 == 8) s.tokens = 20 + moit_below(rng, i % 20 == 8 ? 240 : 120), s.h = 32 * (1 + moit_below(rng, 2)), s.f = 32;
    if (i % 10 == 9) s.experts = 40 + moit_below(rng, 300), s.h = 32 * (1 + moit_below(rng, 2)), s.f = 32, s.top_k = 1 + moit_below(rng, 16);
    moi_format f = format_of(moit_below(rng, 6));
    if (i >= WIDE && i < UNSCALED) {
        static const int64_t widths[] = { 7296, 8192, 14336, 7200 };
        const int format = i / 4 % 6;
        f = format_of(format == 0 ? 5 : format > 3 ? 0 : format); /* 8 bits four times, MXFP4 and BF16 */
        if (format == 1) f = (moi_format){ .recipe = MOI_RECIPE_MX32, .elem = MOI_E5M2 };
        const int64_t tokens[] = { 1 + moit_below(rng, 2), 3 + moit_below(rng, 6), 9 + moit_below(rng, 12), 66 + moit_below(rng, 9) };
        s = (shape){ tokens[i / 2 % 4], 128, widths[i % 4], 2 + moit_below(rng, 3), 1 + moit_below(rng, 2) };
    } else if (i >= PLAIN) {
        f = i < SQUARES ? MOI_FORMAT_MXFP8 : i < WIDE ? MOI_FORMAT_BLK128_WEIGHT : i < FOURS ? MOI_FORMAT_BF16 : MOI_FORMAT_MXFP4;
        if (i < SQUARES && i % 4 == 1) f.elem = MOI_E5M2;
        s.h = 128 * (1 + moit_below(rng, 4)), s.f = (i % 3 ? 128 : 64) * (1 + moit_below(rng, 4));
        /* 4096: more tiles of 16 outputs than multiprocessors, which a block goes through together */
        if (i % 5 == 0) s.h = i % 10 == 0 ? 1280 : i % 20 == 5 ? 2048 : 4096, s.f = 128 * (1 + moit_below(rng, 2)), s.experts = 1 + s.experts / 4;
        if (i % 7 == 3) s.f = i % 2 ? 1024 : 1536, s.h = 128, s.experts = 1 + s.experts / 4;
        if (i % 9 == 8) s.tokens = 13 + moit_below(rng, i % 18 == 8 ? 380 : 120), s.h = 128, s.f = 128;
        /* long rows: of more than 8 tokens one job's columns fit, but not two; of up to 8, not a block of either pass beside the other */
        if (i % 27 == 13) {
            s.tokens = (i % 2 ? 3 : 9) + moit_below(rng, 12), s.h = i % 2 ? 7168 : 4096, s.f = 128;
            s.experts = 1 + s.experts / 3, s.top_k = 1 + s.top_k / 2;
        }
        if (i % 27 == 22) s.tokens = 66 + moit_below(rng, 9), s.h = 128, s.f = i % 2 ? 2048 : 1536, s.top_k = 1 + s.top_k / 4;
    }
    problem p = problem_make(f, s, MOI_BF16, moit_below(rng, 2) ? MOI_BF16 : MOI_F32);
    const bool any = i < WIDE || i >= UNSCALED; /* wide ones: several experts, which the launches behind the first must not mix up */
    set_routing(rng, &p, (routing)moit_below(rng, any ? ROUTINGS : ONE_EXPERT));
    return p;
}

/* All cases where there is a device, else a selection. */
static bool picked(int i)
{
    int parts, part = moit_part(&parts);
    return moit_picked((uint64_t)i) && i % parts == part && (moit_gpu() || i % 16 == 3 || i % 16 == 8);
}

static bool sweep_row(const char *row)
{
    for (int r = 0; moit_row("moe_decode", r); r++)
        if (!strcmp(moit_row("moe_decode", r), row)) return strcmp(row, "moe_decode_ref") != 0;
    return true;
}

/* P:decode.bound, over at least 500 cases */
static void test_sweep(void **state)
{
    (void)state;
    int taken = 0;
    for (int i = 0; i < CASES; i++) {
        if (!picked(i)) continue;
        moit_rng rng = moit_seed("decode sweep", (uint64_t)i);
        problem p = case_of(&rng, i);
        int64_t n = p.a.tokens * p.d.hidden;
        double *y = calloc((size_t)n + 1, sizeof *y), *bound = calloc((size_t)n + 1, sizeof *bound);
        exact(&p, y, bound);
        for (int r = 0; moit_any_row("moe_decode", r); r++)
            if (sweep_row(moit_any_row("moe_decode", r))) taken += check_row(moit_ctx(0), moit_any_row("moe_decode", r), &p, y, bound);
        free(y), free(bound);
        problem_free(&p);
    }
    assert_true(taken > 0);
}

/* Many experts of more tokens than go in two launches: always, for most selections above have none. */
static void test_many_experts(void **state)
{
    (void)state;
    moit_rng rng = moit_seed("decode experts", 0);
    problem p = problem_make(MOI_FORMAT_MXFP8, (shape){ 9, 128, 128, 300, 3 }, MOI_BF16, MOI_F32);
    set_routing(&rng, &p, RANDOM);
    double *y = calloc(9 * 128, sizeof *y), *bound = calloc(9 * 128, sizeof *bound);
    exact(&p, y, bound);
    int taken = 0;
    for (int r = 0; moit_any_row("moe_decode", r); r++)
        if (sweep_row(moit_any_row("moe_decode", r))) taken += check_row(moit_ctx(0), moit_any_row("moe_decode", r), &p, y, bound);
    assert_true(taken > 0);
    free(y), free(bound);
    problem_free(&p);
}

/* One token of the problem, by itself. */
static problem alone(const problem *p, int64_t t)
{
    problem one = *p;
    int64_t x_bytes = moi_row_bytes(p->d.x, p->d.hidden), k = p->d.top_k;
    one.a.tokens = 1;
    one.x = exact_alloc(x_bytes), one.ids = exact_alloc(4 * k), one.weights = exact_alloc(4 * k);
    memcpy(one.x, (char *)p->x + t * x_bytes, (size_t)x_bytes);
    memcpy(one.ids, p->ids + t * k, 4 * (size_t)k);
    memcpy(one.weights, p->weights + t * k, 4 * (size_t)k);
    one.a.x = one.x, one.a.ids = one.ids, one.a.weights = one.weights;
    return one;
}

/* P:decode.batch: a token alone gets the bits that it gets in a batch; NaN in another token's x changes nothing but that token. */
static void test_tokens_apart(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        if (!picked(i) || (i >= 150 && i < PLAIN) || (i >= WIDE + 12 && i < UNSCALED)) continue;
        for (int r = 0; moit_any_row("moe_decode", r); r++) {
            moit_rng rng = moit_seed("decode apart", (uint64_t)i);
            problem p = case_of(&rng, i);
            int64_t row_bytes = moi_row_bytes(p.d.out, p.d.hidden), t = moit_below(&rng, p.a.tokens), sick = moit_below(&rng, p.a.tokens);
            char *whole = moit_alloc(y_bytes(&p)), *again = moit_alloc(y_bytes(&p)), *single = moit_alloc(row_bytes);
            if (sweep_row(moit_any_row("moe_decode", r)) && run_on(moit_ctx(0), moit_any_row("moe_decode", r), &p, whole)) {
                problem one = alone(&p, t);
                run_on(moit_ctx(0), moit_any_row("moe_decode", r), &one, single);
                assert_memory_equal(single, whole + t * row_bytes, (size_t)row_bytes);
                free(one.x), free(one.ids), free(one.weights);
                bool chosen = false;
                for (int64_t s = 0; s < p.d.top_k; s++) chosen |= p.ids[sick * p.d.top_k + s] >= 0;
                moi_encode(p.d.x, (char *)p.x + sick * moi_row_bytes(p.d.x, p.d.hidden), moit_below(&rng, p.d.hidden), NAN);
                run_on(moit_ctx(0), moit_any_row("moe_decode", r), &p, again);
                for (int64_t j = 0; j < p.d.hidden && chosen; j++) assert_true(isnan(moi_decode(p.d.out, again + sick * row_bytes, j)));
                memcpy(again + sick * row_bytes, whole + sick * row_bytes, (size_t)row_bytes);
                assert_memory_equal(again, whole, (size_t)y_bytes(&p));
            }
            moit_free(whole), moit_free(again), moit_free(single);
            problem_free(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sweep), cmocka_unit_test(test_many_experts), cmocka_unit_test(test_tokens_apart) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
