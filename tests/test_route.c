/* SPDX-License-Identifier: Apache-2.0
 * test_route.c: softmax, top-k and the load-balancing loss, against float64 and finite differences of it. */
#include "support_gpu.h"

#include <math.h>
#include <stdlib.h>

typedef struct shape { int64_t t, e, k; int renormalize; float aux; } shape;
static const shape shapes[] = {
    { 0, 4, 2, 0, 0.1f }, { 1, 1, 1, 1, 0.5f }, { 1, 8, 2, 1, 0 }, { 17, 8, 2, 1, 0.01f }, { 33, 8, 8, 0, 0.3f }, { 65, 5, 3, 0, 0 },
    { 130, 64, 6, 1, 1.0f }, { 40, 128, 1, 0, 0.25f }, { 9, 1100, 3, 1, 0.2f },
};

typedef struct routing { /* everything of one run */
    shape s;
    const char *row;
    moi_plan *plan;
    void *ws;
    float *logits, *probs, *weights, *aux, *d_weights, *d_logits;
    int32_t *ids;
} routing;

static routing begin(const char *row, shape s)
{
    routing r = { .s = s, .row = row };
    moi_route_desc d = MOI_ROUTE_DESC_INIT;
    d.row = row, d.max_tokens = s.t + 3, d.experts = s.e, d.top_k = s.k, d.renormalize = s.renormalize, d.aux_coef = s.aux;
    moit_ok(moi_route_plan_create(&r.plan, moit_mem_of(row).ctx, &d));
    assert_string_equal(moi_plan_row(r.plan), row);
    r.ws = moit_workspace(r.plan);
    r.logits = moit_alloc(s.t * s.e * 4), r.probs = moit_alloc(s.t * s.e * 4), r.d_logits = moit_alloc(s.t * s.e * 4);
    r.weights = moit_alloc(s.t * s.k * 4), r.d_weights = moit_alloc(s.t * s.k * 4), r.ids = moit_alloc(s.t * s.k * 4);
    r.aux = moit_alloc(4);
    return r;
}

static moi_route_args args_of(const routing *r)
{
    return (moi_route_args){ .size = sizeof(moi_route_args), .tokens = r->s.t, .logits = r->logits, .probs = r->probs, .ids = r->ids,
                             .weights = r->weights, .aux_loss = r->aux, .d_weights = r->d_weights, .d_logits = r->d_logits };
}

static void run_it(const routing *r, bool backward)
{
    moit_mem m = moit_mem_of(r->row);
    moi_route_args a = args_of(r);
    int64_t p = r->s.t * r->s.e * 4, w = r->s.t * r->s.k * 4, bytes = moi_plan_workspace_bytes(r->plan);
    void *ws = m.gpu ? moit_mem_workspace(&m, r->plan) : r->ws;
    a.logits = moit_in(&m, r->logits, p);
    a.probs = backward ? moit_in(&m, r->probs, p) : moit_out(&m, r->probs, p);
    a.ids = backward ? moit_in(&m, r->ids, w) : moit_out(&m, r->ids, w);
    a.weights = backward ? moit_in(&m, r->weights, w) : moit_out(&m, r->weights, w);
    a.aux_loss = moit_out(&m, r->aux, 4), a.d_weights = moit_in(&m, r->d_weights, w), a.d_logits = moit_out(&m, r->d_logits, p);
    if (backward) moit_mem_run(&m, moi_route_backward_run(r->plan, &a, ws, bytes, m.stream));
    else moit_mem_run(&m, moi_route_run(r->plan, &a, ws, bytes, m.stream));
    moit_mem_done(&m);
}
static void forward(const routing *r) { run_it(r, false); }
static void backward(const routing *r) { run_it(r, true); }

static void end(routing *r)
{
    moit_free(r->logits), moit_free(r->probs), moit_free(r->d_logits), moit_free(r->weights), moit_free(r->d_weights);
    moit_free(r->ids), moit_free(r->aux), moit_free(r->ws);
    moi_plan_free(r->plan);
}

/* Float64 softmax of one token. */
static void softmax(const double *l, double *p, int64_t e)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < e; i++) max = fmax(max, l[i]);
    for (int64_t i = 0; i < e; i++) sum += p[i] = exp(l[i] - max);
    for (int64_t i = 0; i < e; i++) p[i] /= sum;
}

/* sum w d_w + aux in float64 for fixed ids: what d_logits is the gradient of. */
static double objective(const routing *r, const double *logits)
{
    shape s = r->s;
    double total = 0, *p = malloc((size_t)s.e * sizeof *p), *count = calloc((size_t)s.e, sizeof *count);
    for (int64_t i = 0; i < s.t * s.k; i++) count[r->ids[i]] += 1;
    for (int64_t t = 0; t < s.t; t++) {
        double chosen = 0;
        softmax(logits + t * s.e, p, s.e);
        for (int64_t i = t * s.k; i < (t + 1) * s.k; i++) chosen += p[r->ids[i]];
        for (int64_t i = t * s.k; i < (t + 1) * s.k; i++) total += (double)r->d_weights[i] * p[r->ids[i]] / (s.renormalize ? chosen : 1);
        for (int64_t e = 0; e < s.e; e++) total += (double)s.aux * (double)s.e * count[e] / (double)s.t * p[e] / (double)s.t;
    }
    free(p), free(count);
    return total;
}

static void check_forward(const routing *r)
{
    shape s = r->s;
    double aux = 0, *p = malloc((size_t)(s.t * s.e + 1) * sizeof *p), *l = malloc((size_t)s.e * sizeof *l);
    for (int64_t t = 0; t < s.t; t++) {
        const int32_t *ids = r->ids + t * s.k;
        const float *q = r->probs + t * s.e;
        double chosen = 0;
        for (int64_t e = 0; e < s.e; e++) l[e] = (double)r->logits[t * s.e + e];
        softmax(l, p + t * s.e, s.e);
        for (int64_t e = 0; e < s.e; e++) /* two roundings to FP32, and subnormals */
            assert_true(fabs((double)q[e] - p[t * s.e + e]) <= 2.01 * 0x1p-24 * p[t * s.e + e] + 0x1p-148);
        for (int64_t i = 0; i < s.k; i++) {
            chosen += p[t * s.e + ids[i]];
            if (i) assert_true(q[ids[i - 1]] > q[ids[i]] || (q[ids[i - 1]] == q[ids[i]] && ids[i - 1] < ids[i]));
        }
        for (int64_t e = 0; e < s.e; e++) { /* what is not chosen is not better than the worst chosen one */
            int32_t worst = ids[s.k - 1];
            int in = 0;
            for (int64_t i = 0; i < s.k; i++) in |= ids[i] == e;
            if (!in) assert_true(q[e] < q[worst] || (q[e] == q[worst] && e > worst));
        }
        for (int64_t i = 0; i < s.k; i++) {
            double w = p[t * s.e + ids[i]] / (s.renormalize ? chosen : 1);
            assert_true(fabs((double)r->weights[t * s.k + i] - w) <= 8 * 0x1p-24 * w + 0x1p-148);
        }
    }
    for (int64_t e = 0; e < s.e && s.t; e++) {
        double count = 0, mass = 0;
        for (int64_t i = 0; i < s.t * s.k; i++) count += r->ids[i] == e;
        for (int64_t t = 0; t < s.t; t++) mass += p[t * s.e + e];
        aux += (double)s.aux * (double)s.e * count / (double)s.t * mass / (double)s.t;
    }
    assert_true(fabs((double)*r->aux - aux) <= 4 * 0x1p-24 * aux);
    free(p), free(l);
}

static void check_backward(const routing *r, moit_rng *rng)
{
    shape s = r->s;
    double *l = malloc((size_t)(s.t * s.e + 1) * sizeof *l), most = 0;
    for (int64_t i = 0; i < s.t * s.e; i++) l[i] = (double)r->logits[i], most = fmax(most, fabs((double)r->d_logits[i]));
    for (int n = 0; n < 24 && s.t; n++) { /* central differences: error h^2 / 6 * third derivative (< 6 |dw|), and 1e-15 / h */
        int64_t i = moit_below(rng, s.t * s.e);
        double h = 1e-4, x = l[i];
        l[i] = x + h;
        double up = objective(r, l);
        l[i] = x - h;
        double down = objective(r, l);
        l[i] = x;
        if (fabs((up - down) / (2 * h) - (double)r->d_logits[i]) > 1e-7 + 1e-6 * most)
            fail_msg("d_logits[%lld] is %g, differences say %g", (long long)i, (double)r->d_logits[i], (up - down) / (2 * h));
    }
    free(l);
}

/* The same bits from every row; ids, weights and loss as float64 says; gradients as finite differences say. */
static void test_float64(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        routing first = { 0 };
        for (int i = 0; moit_any_row("route", i); i++) {
            moit_rng rng = moit_seed("route", n);
            routing r = begin(moit_any_row("route", i), shapes[n]);
            shape s = r.s;
            moit_fill_normal(&rng, r.logits, s.t * s.e, n % 2 ? 2.0f : 0.5f);
            if (s.t > 2) /* ties, and probabilities that underflow */
                for (int64_t e = 0; e < s.e; e++) r.logits[e] = 0.25f, r.logits[s.e + e] = e % 3 ? -200.0f : 1.0f;
            moit_fill_normal(&rng, r.d_weights, s.t * s.k, 1.0f);
            forward(&r);
            check_forward(&r);
            backward(&r);
            check_backward(&r, &rng);
            if (i == 0) {
                first = r;
                continue;
            }
            assert_memory_equal(first.probs, r.probs, (size_t)(s.t * s.e * 4));
            assert_memory_equal(first.ids, r.ids, (size_t)(s.t * s.k * 4));
            assert_memory_equal(first.weights, r.weights, (size_t)(s.t * s.k * 4));
            assert_memory_equal(first.d_logits, r.d_logits, (size_t)(s.t * s.e * 4));
            assert_memory_equal(first.aux, r.aux, 4);
            end(&r);
        }
        end(&first);
    }
}

/* P:route.ids and P:route.nan: whatever the logits, ids are distinct experts; other tokens keep their bits. */
static void test_nonfinite(void **state)
{
    (void)state;
    static const float wild[] = { NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f };
    for (int i = 0; moit_any_row("route", i); i++) {
        routing good = begin(moit_any_row("route", i), (shape){ 24, 6, 3, 1, 0.1f }), bad = begin(moit_any_row("route", i), good.s);
        moit_rng rng = moit_seed("route wild", 0);
        moit_fill_normal(&rng, good.logits, 24 * 6, 1.0f);
        moit_fill_normal(&rng, good.d_weights, 24 * 3, 1.0f);
        memcpy(bad.d_weights, good.d_weights, 24 * 3 * 4);
        memcpy(bad.logits, good.logits, 24 * 6 * 4);
        for (int64_t e = 0; e < 6; e++) {
            for (int64_t t = 0; t < 24; t += 4) bad.logits[t * 6 + e] = wild[moit_below(&rng, 5)];
            bad.logits[4 * 6 + e] = NAN, bad.logits[8 * 6 + e] = -INFINITY;
        }
        bad.logits[5] = NAN;
        forward(&good), forward(&bad);
        for (int64_t t = 0; t < 24; t++) {
            for (int64_t s = 0; s < 3; s++) {
                int32_t id = bad.ids[t * 3 + s];
                assert_in_range(id, 0, 5);
                for (int64_t o = 0; o < s; o++) assert_int_not_equal(id, bad.ids[t * 3 + o]);
            }
            if (t % 4 == 0) continue;
            assert_memory_equal(good.weights + t * 3, bad.weights + t * 3, 12);
            assert_memory_equal(good.ids + t * 3, bad.ids + t * 3, 12);
        }
        assert_true(isnan(bad.weights[0]));
        assert_true(isnan(*bad.aux));
        backward(&bad); /* counts differ, so the aux part may; but it must be finite */
        for (int64_t t = 0; t < 24; t++)
            for (int64_t e = 0; e < 6; e++)
                if (t % 4) assert_true(isfinite(bad.d_logits[t * 6 + e]));
        assert_true(isnan(bad.d_logits[0]));
        end(&good), end(&bad);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    moi_plan *p;
    moi_route_desc d = MOI_ROUTE_DESC_INIT;
    d.max_tokens = 4, d.experts = 4, d.top_k = 5;
    moit_refused(moi_route_plan_create(NULL, moit_ctx(0), &d), MOI_ERR_ARG, "out is NULL");
    moit_refused(moi_route_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "top_k must be 1..experts (4), got 5");
    assert_null(p);
    d.top_k = 0;
    moit_refused(moi_route_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "top_k");
    d.top_k = 1, d.experts = 0;
    moit_refused(moi_route_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "experts");
    d.experts = 4, d.max_tokens = -1;
    moit_refused(moi_route_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "max_tokens");
    d.max_tokens = 4, d.aux_coef = NAN;
    moit_refused(moi_route_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "aux_coef");
    for (int i = 0; moit_row("route", i); i++) {
        routing r = begin(moit_row("route", i), (shape){ 4, 4, 2, 0, 0 });
        moi_route_args a = args_of(&r);
        int64_t bytes = moi_plan_workspace_bytes(r.plan);
        memset(r.logits, 0, 64), memset(r.d_weights, 0, 32);
        moit_refused(moi_route_run(r.plan, &a, NULL, 0, NULL), MOI_ERR_WORKSPACE, "workspace");
        moit_refused(moi_route_run(r.plan, &a, r.ws, bytes - 1, NULL), MOI_ERR_WORKSPACE, "workspace");
        a.tokens = 8;
        moit_refused(moi_route_run(r.plan, &a, r.ws, bytes, NULL), MOI_ERR_SHAPE, "tokens must be 0..7, got 8");
        a.tokens = 4, a.logits = NULL;
        moit_refused(moi_route_run(r.plan, &a, r.ws, bytes, NULL), MOI_ERR_ARG, "logits: data is NULL");
        a.logits = r.logits + 1;
        moit_refused(moi_route_run(r.plan, &a, r.ws, bytes, NULL), MOI_ERR_ALIGN, "logits");
        a.logits = r.logits, a.weights = NULL;
        moit_refused(moi_route_run(r.plan, &a, r.ws, bytes, NULL), MOI_ERR_ARG, "weights: data is NULL");
        a = args_of(&r);
        forward(&r);
        a.d_weights = NULL;
        moit_refused(moi_route_backward_run(r.plan, &a, r.ws, bytes, NULL), MOI_ERR_ARG, "d_weights: data is NULL");
        a = args_of(&r);
        r.ids[5] = 4;
        moit_refused(moi_route_backward_run(r.plan, &a, r.ws, bytes, NULL), MOI_ERR_ARG, "ids[5] must be 0..3, got 4");
        end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_float64), cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
