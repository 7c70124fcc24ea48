/* SPDX-License-Identifier: Apache-2.0
 * test_permute.c: the map, the copies, the weighted sums and their gradients. */
#include "support_gpu.h"

#include <math.h>
#include <stdlib.h>

/* mode 0: random experts, 1: all to the last, 2: only even ones, 3: a quarter of the slots skipped, 4: all of them */
typedef struct shape { int64_t t, h, e, k; int mode; } shape;
static const shape shapes[] = {
    { 0, 8, 4, 2, 0 }, { 1, 1, 1, 1, 0 }, { 3, 0, 4, 2, 0 }, { 37, 130, 8, 2, 0 }, { 64, 64, 5, 3, 1 }, { 33, 65, 16, 4, 2 }, { 200, 7, 64, 1, 0 },
    { 19, 768, 16, 8, 0 }, { 40, 24, 12, 5, 3 }, { 5, 16, 3, 2, 4 }, { 2600, 8, 300, 8, 3 }, { 9000, 5, 3, 1, 0 }, { 700, 2, 4096, 13, 3 },
    { 500, 4, 128, 8, 3 }, { 1500, 4, 128, 8, 0 }, { 250, 4, 1000, 8, 3 },
    { 60, 4, 4096, 10, 3 }, { 512, 3, 682, 8, 0 }, { 513, 3, 683, 8, 3 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void fill_ids(moit_rng *rng, shape s, int32_t *ids)
{
    for (int64_t i = 0; i < s.t * s.k; i++) {
        int64_t e = s.mode == 1 ? s.e - 1 : moit_below(rng, s.e);
        bool skipped = s.mode == 4 || (s.mode == 3 && moit_below(rng, 4) == 0);
        ids[i] = skipped ? -1 : (int32_t)(s.mode == 2 ? e / 2 * 2 : e);
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

typedef struct map { /* one permutation */
    shape s;
    moi_dtype dtype;
    int32_t *ids, *row_of, *token_of;
    int64_t *offsets;
    char *x, *sorted;
} map;

static void run_map(const char *row, map *p, bool with_x)
{
    int64_t rows = p->s.t * p->s.k, bytes = moi_row_bytes(p->dtype, p->s.h);
    moi_permute_desc d = desc_of(row, p->s, p->dtype);
    moi_plan *plan;
    moit_mem m = moit_mem_of(row);
    moit_ok(moi_permute_plan_create(&plan, m.ctx, &d));
    moi_permute_args a = { .size = sizeof a, .tokens = p->s.t, .ids = moit_in(&m, p->ids, rows * 4), .x = with_x ? moit_in(&m, p->x, p->s.t * bytes) : NULL,
                           .x_sorted = with_x ? moit_out(&m, p->sorted, rows * bytes) : NULL, .offsets = moit_out(&m, p->offsets, (p->s.e + 1) * 8),
                           .row_of = moit_out(&m, p->row_of, rows * 4), .token_of = moit_out(&m, p->token_of, rows * 4) };
    void *ws = moit_mem_workspace(&m, plan);
    moit_mem_run(&m, moi_permute_run(plan, &a, ws, moi_plan_workspace_bytes(plan), m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(ws);
    moi_plan_free(plan);
}

/* P:permute.map: inverse maps, rows in order of expert, then token and slot; x_sorted holds the copies; nothing behind the last offset changes. */
static void check_map(const map *p, bool with_x)
{
    int64_t rows = p->s.t * p->s.k, bytes = moi_row_bytes(p->dtype, p->s.h), *next = calloc((size_t)p->s.e + 1, sizeof *next), row = 0;
    for (int64_t i = 0; i < rows; i++) next[p->ids[i] + 1]++;
    next[0] = 0; /* of skipped slots */
    for (int64_t e = 0; e < p->s.e; e++) next[e + 1] += next[e];
    for (int64_t e = 0; e <= p->s.e; e++) assert_int_equal(p->offsets[e], next[e]);
    row = next[p->s.e];
    for (int64_t i = 0; i < rows; i++) {
        if (p->ids[i] < 0) {
            assert_int_equal(p->row_of[i], -1);
            continue;
        }
        int64_t at = next[p->ids[i]]++;
        assert_int_equal(p->row_of[i], at);
        assert_int_equal(p->token_of[at], i / p->s.k);
        if (with_x && bytes) assert_memory_equal(p->sorted + at * bytes, p->x + i / p->s.k * bytes, (size_t)bytes);
    }
    for (; row < rows; row++) {
        assert_int_equal(p->token_of[row], 0x22222222);
        for (int64_t b = 0; with_x && b < bytes; b++) assert_int_equal(p->sorted[row * bytes + b], 0x22);
    }
    free(next);
}

/* What the CPU back end refuses, before anything is written. */
static void refuse_ids(const char *row, map *p)
{
    int64_t rows = p->s.t * p->s.k;
    moi_permute_desc d = desc_of(row, p->s, p->dtype);
    moi_plan *plan;
    moit_ok(moi_permute_plan_create(&plan, moit_ctx(0), &d));
    void *ws = moit_workspace(plan);
    moi_permute_args a = { .size = sizeof a, .tokens = p->s.t, .ids = p->ids, .offsets = p->offsets, .row_of = p->row_of, .token_of = p->token_of };
    memset(p->row_of, 0x11, (size_t)rows * 4);
    p->ids[rows - 1] = (int32_t)p->s.e;
    moit_refused(moi_permute_run(plan, &a, ws, moi_plan_workspace_bytes(plan), NULL), MOI_ERR_ARG, "must be -1..");
    p->ids[rows - 1] = -2;
    moit_refused(moi_permute_run(plan, &a, ws, moi_plan_workspace_bytes(plan), NULL), MOI_ERR_ARG, "got -2");
    for (int64_t i = 0; i < rows; i++) assert_int_equal(p->row_of[i], 0x11111111);
    moit_free(ws);
    moi_plan_free(plan);
}

/* Elsewhere such ids skip their slots. */
static void skip_ids(const char *row, map *p)
{
    int64_t rows = p->s.t * p->s.k;
    memset(p->token_of, 0x22, (size_t)rows * 4);
    p->ids[0] = -7, p->ids[rows - 1] = (int32_t)p->s.e;
    run_map(row, p, false);
    p->ids[0] = p->ids[rows - 1] = -1;
    check_map(p, false);
}

static void permute_case(const char *row, shape s, moi_dtype dtype)
{
    moit_rng rng = moit_seed("permute", (uint64_t)(s.t * 1000 + s.h));
    int64_t rows = s.t * s.k, bytes = moi_row_bytes(dtype, s.h);
    map p = { s, dtype, moit_alloc(rows * 4), moit_alloc(rows * 4), moit_alloc(rows * 4), moit_alloc((s.e + 1) * 8), moit_alloc(s.t * bytes),
              moit_alloc(rows * bytes) };
    fill_ids(&rng, s, p.ids);
    fill(&rng, dtype, p.x, s.t * s.h);
    for (int with_x = 1; with_x >= 0; with_x--) { /* the second time only the map is wanted */
        memset(p.token_of, 0x22, (size_t)rows * 4), memset(p.sorted, 0x22, (size_t)(rows * bytes));
        run_map(row, &p, with_x);
        check_map(&p, with_x);
    }
    if (rows && moit_mem_of(row).gpu) skip_ids(row, &p);
    else if (rows) refuse_ids(row, &p);
    moit_free(p.ids), moit_free(p.row_of), moit_free(p.token_of), moit_free(p.offsets), moit_free(p.x), moit_free(p.sorted);
}

static void test_permute(void **state)
{
    (void)state;
    for (int i = 0; moit_any_row("permute", i); i++)
        for (int n = 0; n < SHAPES; n++) {
            permute_case(moit_any_row("permute", i), shapes[n], MOI_F32);
            permute_case(moit_any_row("permute", i), shapes[n], MOI_BF16);
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

/* Forward and backward.  mapped: as row_of says, else as the rows lie. */
static void combine_both(sums *c, const char *row, bool mapped, bool weighted)
{
    int64_t rows = c->s.t * c->s.k, bytes = moi_row_bytes(c->dtype, c->s.h);
    moit_mem m = moit_mem_of(row);
    moi_combine_args a = { .size = sizeof a, .tokens = c->s.t, .row_of = mapped ? moit_in(&m, c->row_of, rows * 4) : NULL,
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
    for (int64_t i = 0; i < rows && s.mode >= 3; i++)
        if (s.mode == 4 || i % 4 == 1) c.row_of[i] = -1;
    fill(&rng, dtype, c.y_sorted, rows * s.h);
    fill(&rng, dtype, c.d_y, s.t * s.h);
    memset(c.d_y_sorted, 0x22, (size_t)(rows * bytes));
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

/* Rows of d_y_sorted that are no slot's. */
static void check_unwritten(const sums *c)
{
    int64_t rows = c->s.t * c->s.k, bytes = moi_row_bytes(c->dtype, c->s.h);
    bool *written = calloc((size_t)rows + 1, sizeof *written);
    for (int64_t i = 0; i < rows; i++)
        if (c->row_of[i] >= 0) written[c->row_of[i]] = true;
    for (int64_t b = 0; b < rows * bytes; b++) assert_true(written[b / bytes] || c->d_y_sorted[b] == 0x22);
    free(written);
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
                if (c->row_of[i] >= 0) sum += (weighted ? c->weights[i] : 1.0f) * moi_decode(c->dtype, c->y_sorted, c->row_of[i] * s.h + j);
            moi_encode(c->dtype, &want, 0, sum);
            assert_true(moi_decode(c->dtype, c->y, t * s.h + j) == moi_decode(c->dtype, &want, 0));
        }
        for (int64_t i = t * s.k; i < (t + 1) * s.k; i++) {
            double dot = 0, size = 0;
            for (int64_t j = 0; j < s.h && c->row_of[i] >= 0; j++) {
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
    check_unwritten(c);
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
        moit_refused(moi_combine_run(c.p, &a, NULL, 0, NULL), MOI_ERR_ARG, "row_of[3] must be -1..7, got 8");
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
