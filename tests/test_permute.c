/* SPDX-License-Identifier: Apache-2.0
 * test_permute.c: the map, the copies, the weighted sums and their gradients. */
#include "support_gpu.h"

#include <math.h>
#include <stdlib.h>

typedef struct shape { int64_t t, h, e, k; int mode; } shape; /* mode 0: random experts, 1: all to the last, 2: only even ones */
static const shape shapes[] = {
    { 0, 8, 4, 2, 0 }, { 1, 1, 1, 1, 0 }, { 3, 0, 4, 2, 0 }, { 37, 130, 8, 2, 0 }, { 64, 64, 5, 3, 1 }, { 33, 65, 16, 4, 2 }, { 200, 7, 64, 1, 0 },
    { 19, 768, 16, 8, 0 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void fill_ids(moit_rng *rng, shape s, int32_t *ids)
{
    for (int64_t i = 0; i < s.t * s.k; i++) {
        int64_t e = s.mode == 1 ? s.e - 1 : moit_below(rng, s.e);
        ids[i] = (int32_t)(s.mode == 2 ? e / 2 * 2 : e);
    }
}

static moi_permute_desc desc_of(const char *row, shape s, moi_dtype dtype)
{
    moi_permute_desc d = MOI_PERMUTE_DESC_INIT;
    d.row = row, d.dtype = dtype, d.max_tokens = s.t + 5, d.hidden = s.h, d.experts = s.e, d.top_k = s.k;
    return d;
}

static void fill(moit_rng *rng, moi_dtype dtype, void *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) moi_encode(dtype, x, i, moit_normal(rng));
}

/* P:permute.map: inverse maps, rows in order of expert, then token and slot; x_sorted holds the copies. */
static void permute_case(const char *row, shape s, moi_dtype dtype)
{
    moit_rng rng = moit_seed("permute", (uint64_t)(s.t * 1000 + s.h));
    int64_t rows = s.t * s.k, bytes = moi_row_bytes(dtype, s.h);
    moi_permute_desc d = desc_of(row, s, dtype);
    moi_plan *p;
    moit_ok(moi_permute_plan_create(&p, moit_ctx(0), &d));
    int32_t *ids = moit_alloc(rows * 4), *row_of = moit_alloc(rows * 4), *token_of = moit_alloc(rows * 4);
    int64_t *offsets = moit_alloc((s.e + 1) * 8), next = 0;
    char *x = moit_alloc(s.t * bytes), *sorted = moit_alloc(rows * bytes);
    void *ws = moit_workspace(p);
    fill_ids(&rng, s, ids);
    fill(&rng, dtype, x, s.t * s.h);
    moi_permute_args a = { .size = sizeof a, .tokens = s.t, .ids = ids, .x = x, .x_sorted = sorted, .offsets = offsets,
                           .row_of = row_of, .token_of = token_of };
    for (int with_x = 1; with_x >= 0; with_x--) { /* the second time only the map is wanted */
        if (!with_x) a.x = NULL, a.x_sorted = NULL;
        moit_ok(moi_permute_run(p, &a, ws, moi_plan_workspace_bytes(p), NULL));
        assert_int_equal(offsets[0], 0);
        next = 0;
        for (int64_t e = 0; e < s.e; e++) {
            for (int64_t i = 0; i < rows; i++) {
                if (ids[i] != e) continue;
                assert_int_equal(row_of[i], next);
                assert_int_equal(token_of[next], i / s.k);
                if (bytes) assert_memory_equal(sorted + next * bytes, x + i / s.k * bytes, (size_t)bytes);
                next++;
            }
            assert_int_equal(offsets[e + 1], next);
        }
    }
    if (rows) { /* refused before anything is written */
        memset(row_of, 0x11, (size_t)rows * 4);
        ids[rows - 1] = (int32_t)s.e;
        moit_refused(moi_permute_run(p, &a, ws, moi_plan_workspace_bytes(p), NULL), MOI_ERR_ARG, "must be 0..");
        ids[rows - 1] = -1;
        moit_refused(moi_permute_run(p, &a, ws, moi_plan_workspace_bytes(p), NULL), MOI_ERR_ARG, "got -1");
        for (int64_t i = 0; i < rows; i++) assert_int_equal(row_of[i], 0x11111111);
    }
    moit_free(ids), moit_free(row_of), moit_free(token_of), moit_free(offsets), moit_free(x), moit_free(sorted), moit_free(ws);
    moi_plan_free(p);
}

static void test_permute(void **state)
{
    (void)state;
    for (int i = 0; moit_row("permute", i); i++)
        for (int n = 0; n < SHAPES; n++) {
            permute_case(moit_row("permute", i), shapes[n], MOI_F32);
            permute_case(moit_row("permute", i), shapes[n], MOI_BF16);
        }
}

typedef struct sums { /* one combination, forward and backward */
    moi_plan *p;
    int32_t *row_of;
    float *weights, *d_weights;
    char *y_sorted, *y, *d_y, *d_y_sorted;
    shape s;
    moi_dtype dtype;
} sums;

static moi_status forward_and_back(const moi_plan *p, const moi_combine_args *a, void *ws, moi_stream stream)
{
    int64_t bytes = moi_plan_workspace_bytes(p);
    moi_status status = moi_combine_run(p, a, ws, bytes, stream);
    return status ? status : moi_combine_backward_run(p, a, ws, bytes, stream);
}

/* Forward and backward.  map: as row_of says, else as the rows lie. */
static void combine_both(sums *c, const char *row, bool map, bool weighted)
{
    int64_t rows = c->s.t * c->s.k, bytes = moi_row_bytes(c->dtype, c->s.h);
    moit_mem m = moit_mem_of(row);
    moi_combine_args a = { .size = sizeof a, .tokens = c->s.t, .row_of = map ? moit_in(&m, c->row_of, rows * 4) : NULL,
                           .weights = weighted ? moit_in(&m, c->weights, rows * 4) : NULL, .y_sorted = moit_in(&m, c->y_sorted, rows * bytes),
                           .y = moit_out(&m, c->y, c->s.t * bytes), .d_y = moit_in(&m, c->d_y, c->s.t * bytes),
                           .d_y_sorted = moit_out(&m, c->d_y_sorted, rows * bytes), .d_weights = weighted ? moit_out(&m, c->d_weights, rows * 4) : NULL };
    void *ws = moit_mem_workspace(&m, c->p);
    moit_mem_run(&m, forward_and_back(c->p, &a, ws, m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(ws);
}

static sums combine(const char *row, shape s, moi_dtype dtype, int weighted, int nan)
{
    moit_rng rng = moit_seed("combine", (uint64_t)(s.t * 1000 + s.h));
    int64_t rows = s.t * s.k, bytes = moi_row_bytes(dtype, s.h);
    moi_permute_desc d = desc_of(row, s, dtype);
    sums c = { .s = s, .dtype = dtype };
    moit_mem m = moit_mem_of(row);
    moit_ok(moi_combine_plan_create(&c.p, m.ctx, &d));
    c.row_of = moit_alloc(rows * 4), c.weights = moit_alloc(rows * 4), c.d_weights = moit_alloc(rows * 4);
    c.y_sorted = moit_alloc(rows * bytes), c.y = moit_alloc(s.t * bytes), c.d_y = moit_alloc(s.t * bytes), c.d_y_sorted = moit_alloc(rows * bytes);
    for (int64_t i = 0; i < rows; i++) c.row_of[i] = (int32_t)(rows - 1 - i); /* any permutation will do: reversed, then shuffled */
    for (int64_t i = rows - 1; i > 0; i--) {
        int64_t j = moit_below(&rng, i + 1);
        int32_t t = c.row_of[i];
        c.row_of[i] = c.row_of[j], c.row_of[j] = t;
    }
    fill(&rng, dtype, c.y_sorted, rows * s.h);
    fill(&rng, dtype, c.d_y, s.t * s.h);
    moit_fill_normal(&rng, c.weights, rows, 1.0f);
    if (nan) c.weights[nan * s.k] = NAN;
    combine_both(&c, row, true, weighted);
    return c;
}

static void done(sums *c)
{
    moit_free(c->row_of), moit_free(c->weights), moit_free(c->d_weights), moit_free(c->y_sorted), moit_free(c->y);
    moit_free(c->d_y), moit_free(c->d_y_sorted);
    moi_plan_free(c->p);
}

/* The sum over slots has one order, so it and d_y_sorted are exact to the bit; a dot product of h terms, in any order,
 * is within h * 2^-24 of sum |terms|, and one more rounding. */
static void check_sums(const sums *c, int weighted)
{
    shape s = c->s;
    for (int64_t t = 0; t < s.t; t++) {
        for (int64_t j = 0; j < s.h; j++) {
            float sum = 0, want;
            for (int64_t i = t * s.k; i < (t + 1) * s.k; i++)
                sum += (weighted ? c->weights[i] : 1.0f) * moi_decode(c->dtype, c->y_sorted, c->row_of[i] * s.h + j);
            moi_encode(c->dtype, &want, 0, sum);
            assert_true(moi_decode(c->dtype, c->y, t * s.h + j) == moi_decode(c->dtype, &want, 0));
        }
        for (int64_t i = t * s.k; i < (t + 1) * s.k; i++) {
            double dot = 0, size = 0;
            for (int64_t j = 0; j < s.h; j++) {
                float dy = moi_decode(c->dtype, c->d_y, t * s.h + j), want;
                int64_t at = c->row_of[i] * s.h + j;
                moi_encode(c->dtype, &want, 0, (weighted ? c->weights[i] : 1.0f) * dy);
                assert_true(moi_decode(c->dtype, c->d_y_sorted, at) == moi_decode(c->dtype, &want, 0));
                double term = (double)dy * (double)moi_decode(c->dtype, c->y_sorted, at);
                dot += term, size += fabs(term);
            }
            if (weighted) assert_true(fabs((double)c->d_weights[i] - dot) <= (double)(s.h + 1) * 0x1p-24 * size);
        }
    }
}

static void test_combine(void **state)
{
    (void)state;
    for (int i = 0; moit_any_row("combine", i); i++)
        for (int n = 0; n < SHAPES * 4; n++) {
            sums c = combine(moit_any_row("combine", i), shapes[n / 4], n & 1 ? MOI_BF16 : MOI_F32, n & 2, 0);
            check_sums(&c, n & 2);
            done(&c);
        }
}

/* Without a map, the rows lie as an identical one says. */
static void test_in_order(void **state)
{
    (void)state;
    for (int i = 0; moit_any_row("combine", i); i++) {
        sums c = combine(moit_any_row("combine", i), shapes[3], MOI_BF16, 1, 0);
        int64_t rows = c.s.t * c.s.k;
        for (int64_t r = 0; r < rows; r++) c.row_of[r] = (int32_t)r;
        combine_both(&c, moi_plan_row(c.p), false, true);
        check_sums(&c, 1);
        done(&c);
    }
}

/* A NaN weight reaches its own token only. */
static void test_nan_weight(void **state)
{
    (void)state;
    for (int i = 0; moit_any_row("combine", i); i++) {
        sums c = combine(moit_any_row("combine", i), shapes[3], MOI_F32, 1, 4);
        for (int64_t t = 0; t < c.s.t; t++)
            for (int64_t j = 0; j < c.s.h; j++) assert_int_equal(isnan(((float *)c.y)[t * c.s.h + j]) != 0, t == 4);
        done(&c);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    moi_plan *p;
    moi_permute_desc d = desc_of(NULL, (shape){ 4, 8, 4, 2, 0 }, MOI_F16);
    moit_refused(moi_permute_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "permute plan: dtype must be f32 or bf16, got f16");
    moit_refused(moi_combine_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "combine plan: dtype");
    d.dtype = MOI_F32, d.experts = 0;
    moit_refused(moi_permute_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "experts");
    d.experts = 4, d.max_tokens = INT32_MAX;
    moit_refused(moi_permute_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "max_tokens * top_k must be < 2^31");
    d.max_tokens = 4, d.top_k = 0;
    moit_refused(moi_combine_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "top_k");
    for (int i = 0; moit_row("combine", i); i++) {
        sums c = combine(moit_row("combine", i), (shape){ 4, 8, 4, 2, 0 }, MOI_F32, 1, 0);
        moi_combine_args a = { .size = sizeof a, .tokens = 4, .row_of = c.row_of, .y_sorted = c.y_sorted, .y = c.y };
        c.row_of[3] = 8;
        moit_refused(moi_combine_run(c.p, &a, NULL, 0, NULL), MOI_ERR_ARG, "row_of[3] must be 0..7, got 8");
        c.row_of[3] = 0, a.y = NULL;
        moit_refused(moi_combine_run(c.p, &a, NULL, 0, NULL), MOI_ERR_ARG, "y: data is NULL");
        a.y = c.y, a.tokens = 10;
        moit_refused(moi_combine_run(c.p, &a, NULL, 0, NULL), MOI_ERR_SHAPE, "tokens must be 0..9, got 10");
        a.tokens = 4, a.weights = c.weights + 1;
        moit_refused(moi_combine_run(c.p, &a, NULL, 0, NULL), MOI_ERR_ALIGN, "weights");
        moit_refused(moi_permute_run(c.p, NULL, NULL, 0, NULL), MOI_ERR_ARG, "the plan is for combine");
        done(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_permute), cmocka_unit_test(test_combine), cmocka_unit_test(test_in_order),
                                        cmocka_unit_test(test_nan_weight),
                                        cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
