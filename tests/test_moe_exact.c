/* SPDX-License-Identifier: Apache-2.0
 * test_moe_exact.c: the whole layer against support_moe.h, which rounds where the layer rounds and bounds what FP32 may add;
 * finite differences; and the layer against itself.  test_moe.c bounds each recipe against no rounding at all. */
#include "support_moe.h"

#include <math.h>
#include <stdlib.h>

enum { PLAIN, ONE_EXPERT, FEW_EXPERTS }; /* how the router is biased */

typedef struct layer { /* a case: the layer's description and what its router does */
    const char *name;
    moi_recipe recipe;
    int64_t tokens, hidden, width, experts, top_k;
    int renormalize, bias;
    float aux;
    moi_dtype io, grad;
    uint32_t flags;
    moi_round round;
} layer;

static const layer layers[] = {
    { "f32", MOI_RECIPE_F32, 50, 72, 40, 5, 2, 1, PLAIN, 0.1f, MOI_F32, MOI_E4M3, 0, 0 },
    { "f32 bf16 io", MOI_RECIPE_F32, 33, 64, 48, 4, 2, 1, PLAIN, 0.1f, MOI_BF16, MOI_E4M3, 0, 0 },
    { "f32 not renormalised", MOI_RECIPE_F32, 41, 33, 17, 6, 3, 0, PLAIN, 0, MOI_F32, MOI_E4M3, 0, 0 },
    { "f32 all experts", MOI_RECIPE_F32, 20, 16, 24, 4, 4, 0, PLAIN, 0.5f, MOI_F32, MOI_E4M3, 0, 0 },
    { "f32 one expert gets all", MOI_RECIPE_F32, 40, 24, 16, 7, 1, 0, ONE_EXPERT, 0.2f, MOI_F32, MOI_E4M3, 0, 0 },
    { "f32 few tokens", MOI_RECIPE_F32, 2, 40, 32, 16, 2, 1, PLAIN, 0.1f, MOI_F32, MOI_E4M3, 0, 0 },
    { "f32 tiny", MOI_RECIPE_F32, 3, 1, 1, 2, 1, 0, PLAIN, 0.1f, MOI_F32, MOI_E4M3, 0, 0 },
    { "f32 mlp", MOI_RECIPE_F32, 37, 48, 40, 1, 1, 1, PLAIN, 0.1f, MOI_F32, MOI_E4M3, 0, 0 },
    { "bf16", MOI_RECIPE_BF16, 50, 72, 40, 5, 2, 1, PLAIN, 0.1f, MOI_F32, MOI_E4M3, 0, 0 },
    { "bf16 bf16 io", MOI_RECIPE_BF16, 45, 40, 33, 8, 2, 0, PLAIN, 0.1f, MOI_BF16, MOI_E4M3, 0, 0 },
    { "bf16 mlp", MOI_RECIPE_BF16, 37, 48, 40, 1, 1, 1, PLAIN, 0, MOI_BF16, MOI_E4M3, 0, 0 },
    { "mx32", MOI_RECIPE_MX32, 110, 96, 64, 4, 2, 1, PLAIN, 0.1f, MOI_F32, MOI_E4M3, 0, 0 },
    { "mx32 ragged", MOI_RECIPE_MX32, 77, 72, 40, 5, 2, 1, FEW_EXPERTS, 0.1f, MOI_F32, MOI_E5M2, 0, MOI_ROUND_FLOOR },
    { "mx32 bf16 io", MOI_RECIPE_MX32, 61, 64, 64, 4, 2, 0, PLAIN, 0, MOI_BF16, MOI_E4M3, 0, 0 },
    { "mx32 one expert gets all", MOI_RECIPE_MX32, 40, 32, 32, 7, 1, 0, ONE_EXPERT, 0.2f, MOI_F32, MOI_E4M3, 0, 0 },
    { "mx32 few tokens", MOI_RECIPE_MX32, 1, 40, 33, 16, 2, 1, PLAIN, 0.1f, MOI_F32, MOI_E4M3, 0, 0 },
    { "mx32 mlp", MOI_RECIPE_MX32, 37, 48, 40, 1, 1, 1, PLAIN, 0, MOI_F32, MOI_E4M3, 0, 0 },
    { "blk128", MOI_RECIPE_BLK128, 70, 160, 144, 4, 2, 1, PLAIN, 0.1f, MOI_F32, MOI_E4M3, 0, 0 },
    { "blk128 ragged", MOI_RECIPE_BLK128, 60, 130, 100, 5, 2, 1, FEW_EXPERTS, 0.1f, MOI_BF16, MOI_E5M2, MOI_SCALE_POW2, 0 },
    { "blk128 mlp", MOI_RECIPE_BLK128, 37, 48, 40, 1, 1, 1, PLAIN, 0, MOI_F32, MOI_E4M3, 0, 0 },
};
enum { LAYERS = sizeof layers / sizeof *layers };

/* ---- inputs, as FP32 for the layer and as float64 for the oracle ---- */

static double *random_values(moit_rng *rng, moi_dtype dtype, int64_t n, float scale)
{
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        float x = scale * moit_normal(rng), r;
        moi_encode(dtype, &r, 0, x);
        v[i] = (double)moi_decode(dtype, &r, 0);
    }
    return v;
}

static moit_moe problem_of(const layer *l)
{
    moit_rng rng = moit_seed(l->name, 1);
    int64_t h = l->hidden, f = l->width, e = l->experts;
    moit_moe m = { .tokens = l->tokens };
    m.d = (moi_moe_desc)MOI_MOE_DESC_INIT;
    m.d.max_tokens = l->tokens + 7, m.d.hidden = h, m.d.width = f, m.d.experts = e, m.d.top_k = l->top_k;
    m.d.renormalize = l->renormalize, m.d.aux_coef = l->aux, m.d.recipe = l->recipe, m.d.io = l->io;
    m.d.elem_gradient = l->grad, m.d.flags = l->flags, m.d.round = l->round;
    m.x = random_values(&rng, l->io, l->tokens * h, 1.0f), m.d_y = random_values(&rng, l->io, l->tokens * h, 1.0f);
    m.router = random_values(&rng, MOI_F32, e * h, 1.0f / sqrtf((float)h));
    m.gate_up = random_values(&rng, MOI_F32, e * 2 * f * h, 1.0f / sqrtf((float)h));
    m.down = random_values(&rng, MOI_F32, e * h * f, 1.0f / sqrtf((float)f));
    for (int64_t t = 0; t < l->tokens && l->bias; t++) m.x[t * h] = 2; /* a constant feature lets the router prefer experts */
    for (int64_t i = 0; i < e && l->bias; i++) m.router[i * h] = i == e - 1 || (l->bias == FEW_EXPERTS && i % 2) ? 2 : -2;
    m.ids = calloc((size_t)(l->tokens * l->top_k + 1), sizeof *m.ids);
    return m;
}

static void free_problem(moit_moe *m)
{
    free(m->x), free(m->d_y), free(m->router), free(m->gate_up), free(m->down), free(m->ids);
    moit_moe_clear(m);
}

static void *encoded(moi_dtype dtype, const double *v, int64_t n)
{
    void *p = moit_alloc(n * moi_dtype_bits(dtype) / 8);
    for (int64_t i = 0; i < n; i++) moi_encode(dtype, p, i, (float)v[i]);
    return p;
}

/* ---- one layer of the library with all its buffers ---- */

static const float START = 0.25f; /* what weight gradients hold before they are added to */

typedef struct net {
    moi_plan *plan;
    const moit_moe *m;
    int64_t dx_n, router_n, up_n, down_n, saved_bytes, prepared_bytes;
    void *x, *d_y, *y, *d_x, *prepared, *saved, *ws;
    float *router, *gate_up, *down, *d_router, *d_gate_up, *d_down, *aux;
} net;

static net net_of(moi_ctx *ctx, const moit_moe *m, bool for_backward)
{
    net n = { .m = m };
    const moi_moe_desc *d = &m->d;
    moit_ok(moi_moe_plan_create(&n.plan, ctx, d));
    n.dx_n = m->tokens * d->hidden, n.router_n = d->experts * d->hidden, n.up_n = 2 * d->width * n.router_n, n.down_n = d->width * n.router_n;
    n.x = encoded(d->io, m->x, n.dx_n), n.d_y = encoded(d->io, m->d_y, n.dx_n);
    n.y = moit_alloc(moi_row_bytes(d->io, n.dx_n)), n.d_x = moit_alloc(moi_row_bytes(d->io, n.dx_n));
    n.router = encoded(MOI_F32, m->router, n.router_n), n.gate_up = encoded(MOI_F32, m->gate_up, n.up_n);
    n.down = encoded(MOI_F32, m->down, n.down_n);
    n.d_router = moit_alloc(n.router_n * 4), n.d_gate_up = moit_alloc(n.up_n * 4), n.d_down = moit_alloc(n.down_n * 4), n.aux = moit_alloc(4);
    n.saved_bytes = moi_moe_saved_bytes(n.plan, m->tokens), n.prepared_bytes = moi_moe_prepared_bytes(n.plan, for_backward);
    n.saved = moit_alloc(n.saved_bytes), n.prepared = moit_alloc(n.prepared_bytes), n.ws = moit_workspace(n.plan);
    moit_ok(moi_moe_prepare(n.plan, n.gate_up, n.down, n.prepared, for_backward, n.ws, moi_plan_workspace_bytes(n.plan), NULL));
    return n;
}

static void free_net(net *n)
{
    moit_free(n->x), moit_free(n->d_y), moit_free(n->y), moit_free(n->d_x), moit_free(n->prepared), moit_free(n->saved), moit_free(n->ws);
    moit_free(n->router), moit_free(n->gate_up), moit_free(n->down), moit_free(n->d_router), moit_free(n->d_gate_up), moit_free(n->d_down);
    moit_free(n->aux);
    moi_plan_free(n->plan);
}

static moi_moe_args forward_args(const net *n, bool training)
{
    return (moi_moe_args){ .size = sizeof(moi_moe_args), .tokens = n->m->tokens, .x = n->x, .router = n->m->d.experts > 1 ? n->router : NULL,
                           .prepared = n->prepared, .saved = training ? n->saved : NULL, .y = n->y, .aux_loss = n->aux };
}

static moi_moe_args backward_args(const net *n)
{
    moi_moe_args a = forward_args(n, true);
    a.y = NULL, a.aux_loss = NULL, a.d_y = n->d_y, a.d_x = n->d_x, a.d_gate_up = n->d_gate_up, a.d_down = n->d_down;
    a.d_router = n->m->d.experts > 1 ? n->d_router : NULL;
    return a;
}

static void forward(const net *n, bool training)
{
    moi_moe_args a = forward_args(n, training);
    moit_ok(moi_moe_forward_run(n->plan, &a, n->ws, moi_plan_workspace_bytes(n->plan), NULL));
}

static void backward(const net *n)
{
    moi_moe_args a = backward_args(n);
    for (int64_t i = 0; i < n->router_n; i++) n->d_router[i] = START;
    for (int64_t i = 0; i < n->up_n; i++) n->d_gate_up[i] = START;
    for (int64_t i = 0; i < n->down_n; i++) n->d_down[i] = START;
    moit_ok(moi_moe_backward_run(n->plan, &a, n->ws, moi_plan_workspace_bytes(n->plan), NULL));
}

/* ---- comparisons ---- */

/* Recipe F32: element by element, within the error that moit_mat carries (1.1: terms of second order; the start value
 * takes part in the sum); and, since that is the worst case, in the norm within 2^-24 for each of the 512 or fewer
 * roundings that a value passes through.  Others: the oracle rounds where the layer does, but where FP32 and float64 sums fall on two
 * sides of a rounding boundary a value moves by one step.  Sums differ by about 2^-20 relative and a BF16 step is 2^-8, so about
 * 2^-12 of the values move; a moved value moves a code of 2^-4 about once in 2^4: in the norm a small part of 2^-8,
 * which is the limit.  Quantisation along a wrong dimension, or none, differs by 2^-5 or more. */
static void compare(const layer *l, const char *what, moi_dtype dtype, const void *got, const moit_mat *want, float start)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < want->rows * want->cols; i++) {
        double g = (double)moi_decode(dtype, got, i), diff = g - (double)start - want->v[i];
        double limit = 1.1 * want->e[i] + 0x1p-24 * ((double)(l->tokens + 8) * (double)start + fabs(want->v[i])) + 1e-37;
        if (l->recipe == MOI_RECIPE_F32 && !(fabs(diff) <= limit))
            fail_msg("%s: %s[%lld] is %g, wanted %g, error %g > %g", l->name, what, (long long)i, g - (double)start, want->v[i], diff, limit);
        error += diff * diff, size += want->v[i] * want->v[i];
    }
    double norm_limit = l->recipe == MOI_RECIPE_F32 && l->io == MOI_F32 ? 0x1p-15 : 0x1p-8;
    if (!(sqrt(error) <= norm_limit * sqrt(size) + 1e-30))
        fail_msg("%s: %s is off by %g of its norm", l->name, what, sqrt(error / size));
    if (getenv("MOIT_VERBOSE")) print_message("%s: %s is off by %.2e of its norm\n", l->name, what, sqrt(error / (size + 1e-300)));
}

static void compare_all(const layer *l, const net *n, const moit_moe *m)
{
    compare(l, "y", m->d.io, n->y, &m->y, 0);
    if (m->d.experts > 1) compare(l, "d_router", MOI_F32, n->d_router, &m->d_router, START);
    compare(l, "d_gate_up", MOI_F32, n->d_gate_up, &m->d_gate_up, START);
    compare(l, "d_down", MOI_F32, n->d_down, &m->d_down, START);
    compare(l, "d_x", m->d.io, n->d_x, &m->d_x, 0);
    assert_true(fabs((double)*n->aux - m->aux) <= 1.1 * m->aux_error);
}

/* P:moe.grad: both contexts, every recipe, against float64. */
static void test_float64(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++) {
        moit_moe m = problem_of(&layers[i]);
        moit_moe_run(&m, true);
        for (int reference = 0; reference < 2; reference++) {
            net n = net_of(moit_ctx(reference), &m, true);
            assert_string_equal(moi_plan_row(n.plan), "moe");
            forward(&n, true);
            backward(&n);
            compare_all(&layers[i], &n, &m);
            free_net(&n);
        }
        free_problem(&m);
    }
}

/* A few entries of one input: central differences of the float64 objective against the float64 gradient, whose agreement
 * with the layer test_float64 shows.  Error h^2 times a third derivative, and 1e-16 / h times the objective. */
static void check_differences(const layer *l, moit_moe *m, const char *what, double *input, const moit_mat *gradient, moit_rng *rng)
{
    double most = 0, h = 1e-5;
    for (int64_t i = 0; i < gradient->rows * gradient->cols; i++) most = fmax(most, fabs(gradient->v[i]));
    for (int n = 0; n < 4; n++) {
        int64_t i = moit_below(rng, gradient->rows * gradient->cols);
        double x = input[i], objective[2];
        for (int side = 0; side < 2; side++) {
            moit_moe moved = *m;
            moved.fixed_ids = true;
            input[i] = side ? x + h : x - h;
            moit_moe_run(&moved, false);
            objective[side] = moved.objective;
            moit_moe_clear(&moved);
        }
        input[i] = x;
        double slope = (objective[1] - objective[0]) / (2 * h);
        if (!(fabs(slope - gradient->v[i]) <= 1e-6 * (most + 1)))
            fail_msg("%s: gradient of %s[%lld] is %g, differences say %g", l->name, what, (long long)i, gradient->v[i], slope);
    }
}

/* P:moe.grad: finite differences. */
static void test_differences(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        if (l->recipe != MOI_RECIPE_F32) continue;
        moit_rng rng = moit_seed("differences", (uint64_t)i);
        moit_moe m = problem_of(l);
        moit_moe_run(&m, true);
        check_differences(l, &m, "x", m.x, &m.d_x, &rng);
        if (l->experts > 1) check_differences(l, &m, "router", m.router, &m.d_router, &rng);
        check_differences(l, &m, "gate_up", m.gate_up, &m.d_gate_up, &rng);
        check_differences(l, &m, "down", m.down, &m.d_down, &rng);
        free_problem(&m);
    }
}

/* ---- the layer against itself ---- */

static void same(const layer *l, const char *what, const void *a, const void *b, int64_t bytes)
{
    if (bytes && memcmp(a, b, (size_t)bytes)) fail_msg("%s: %s: other bits", l->name, what);
}

static void same_gradients(const layer *l, const net *a, const net *b)
{
    if (l->experts > 1) same(l, "d_router", a->d_router, b->d_router, a->router_n * 4);
    same(l, "d_gate_up", a->d_gate_up, b->d_gate_up, a->up_n * 4);
    same(l, "d_down", a->d_down, b->d_down, a->down_n * 4);
    same(l, "d_x", a->d_x, b->d_x, moi_row_bytes(a->m->d.io, a->dx_n));
}

/* P:moe.saved: the backward pass after the forward pass's workspace, outputs and masters are gone, from copies of saved and
 * prepared elsewhere, gives the same bits.  P:det: so does a second forward pass, and inference gives the same y. */
static void test_saved(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        moit_moe m = problem_of(l);
        net a = net_of(moit_ctx(0), &m, true), b = net_of(moit_ctx(0), &m, true), c = net_of(moit_ctx(0), &m, false);
        forward(&a, true);
        backward(&a);
        forward(&b, true);
        same(l, "y", a.y, b.y, moi_row_bytes(l->io, a.dx_n));
        same(l, "aux", a.aux, b.aux, 4);
        void *saved = moit_alloc(b.saved_bytes), *prepared = moit_alloc(b.prepared_bytes);
        memcpy(saved, b.saved, (size_t)b.saved_bytes), memcpy(prepared, b.prepared, (size_t)b.prepared_bytes);
        memset(b.ws, 0xFF, (size_t)moi_plan_workspace_bytes(b.plan)), memset(b.y, 0xFF, (size_t)moi_row_bytes(l->io, a.dx_n));
        memset(b.saved, 0xFF, (size_t)b.saved_bytes), memset(b.prepared, 0xFF, (size_t)b.prepared_bytes);
        memset(b.gate_up, 0xFF, (size_t)b.up_n * 4), memset(b.down, 0xFF, (size_t)b.down_n * 4);
        moit_free(b.saved), moit_free(b.prepared);
        b.saved = saved, b.prepared = prepared;
        backward(&b);
        same_gradients(l, &a, &b);
        memset(c.ws, 0xFF, (size_t)moi_plan_workspace_bytes(c.plan));
        forward(&c, false);
        same(l, "y of inference", a.y, c.y, moi_row_bytes(l->io, a.dx_n));
        free_net(&a), free_net(&b), free_net(&c);
        free_problem(&m);
    }
}

/* One thread and four: both must agree with float64 (sums may be cut differently, so bits are not compared). */
static void test_threads(void **state)
{
    (void)state;
    static const int counts[] = { 1, 4 };
    static const int which[] = { 0, 11, 17 };
    for (int i = 0; i < 6; i++) {
        moi_ctx_config config = MOI_CTX_CONFIG_INIT;
        moi_ctx *ctx;
        const layer *l = &layers[which[i / 2]];
        config.threads = counts[i % 2];
        config.backend = MOI_BACKEND_CPU;
        moit_ok(moi_ctx_create(&ctx, &config));
        moit_moe m = problem_of(l);
        moit_moe_run(&m, true);
        net n = net_of(ctx, &m, true);
        forward(&n, true);
        backward(&n);
        compare_all(l, &n, &m);
        free_net(&n);
        free_problem(&m);
        moi_ctx_free(ctx);
    }
}

/* No tokens: y and d_x are empty, weight gradients stay, the loss is 0. */
static void test_empty(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++) {
        layer l = layers[i];
        l.tokens = 0;
        moit_moe m = problem_of(&l);
        net n = net_of(moit_ctx(0), &m, true);
        *n.aux = 7;
        forward(&n, true);
        assert_true(*n.aux == 0);
        backward(&n);
        for (int64_t j = 0; j < n.up_n; j++) assert_true(n.d_gate_up[j] == START);
        for (int64_t j = 0; j < n.down_n; j++) assert_true(n.d_down[j] == START);
        for (int64_t j = 0; j < n.router_n; j++) assert_true(n.d_router[j] == START);
        free_net(&n);
        free_problem(&m);
    }
}

/* An expert without tokens gets no gradient. */
static void test_unused_experts(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        if (l->bias != ONE_EXPERT) continue;
        moit_moe m = problem_of(l);
        net n = net_of(moit_ctx(0), &m, true);
        forward(&n, true);
        backward(&n);
        for (int64_t j = 0; j < n.up_n; j++)
            if (j < n.up_n / l->experts * (l->experts - 1)) assert_true(n.d_gate_up[j] == START);
        assert_true(n.d_gate_up[n.up_n - 1] != START);
        free_net(&n);
        free_problem(&m);
    }
}

/* NaN in one token's x spoils that token's y and d_x and no other's. */
static void test_nan_token(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        int64_t bad = l->tokens / 2, h = l->hidden;
        moit_moe m = problem_of(l);
        m.x[bad * h + h / 2] = NAN;
        net n = net_of(moit_ctx(0), &m, true);
        forward(&n, true);
        backward(&n);
        for (int64_t t = 0; t < l->tokens; t++) {
            for (int64_t j = 0; j < h; j++) {
                float y = moi_decode(l->io, n.y, t * h + j), dx = moi_decode(l->io, n.d_x, t * h + j);
                if (t == bad ? !isnan(y) : !isfinite(y) || !isfinite(dx))
                    fail_msg("%s: token %lld, NaN in token %lld: y %g, d_x %g", l->name, (long long)t, (long long)bad, (double)y, (double)dx);
            }
        }
        free_net(&n);
        free_problem(&m);
    }
}

/* ---- refusals ---- */

static void test_plan_refusals(void **state)
{
    (void)state;
    moit_moe m = problem_of(&layers[0]);
    moi_moe_desc good = m.d, d = good;
    moi_plan *p;
    moi_ctx *ctx = moit_ctx(0);
    moit_refused(moi_moe_plan_create(NULL, ctx, &d), MOI_ERR_ARG, "out is NULL");
    moit_refused(moi_moe_plan_create(&p, NULL, &d), MOI_ERR_ARG, "ctx is NULL");
    d.top_k = d.experts + 1;
    moit_refused(moi_moe_plan_create(&p, ctx, &d), MOI_ERR_SHAPE, "top_k must be 1..experts, got top_k 6 of 5");
    d = good, d.hidden = 0;
    moit_refused(moi_moe_plan_create(&p, ctx, &d), MOI_ERR_SHAPE, "hidden");
    d = good, d.max_tokens = INT64_MAX / 4;
    moit_refused(moi_moe_plan_create(&p, ctx, &d), MOI_ERR_SHAPE, "max_tokens");
    d = good, d.max_tokens = (int64_t)1 << 31;
    moit_refused(moi_moe_plan_create(&p, ctx, &d), MOI_ERR_SHAPE, "max_tokens");
    d = good, d.io = MOI_F16;
    moit_refused(moi_moe_plan_create(&p, ctx, &d), MOI_ERR_ARG, "io must be f32 or bf16, got f16");
    d = good, d.recipe = MOI_RECIPE_MX32, d.elem_forward = MOI_E2M1;
    moit_refused(moi_moe_plan_create(&p, ctx, &d), MOI_ERR_UNSUPPORTED, "8 bits");
    d = good, d.recipe = MOI_RECIPE_BLK128, d.elem_gradient = MOI_INT8;
    moit_refused(moi_moe_plan_create(&p, ctx, &d), MOI_ERR_ARG, "elem_gradient");
    d = good, d.aux_coef = INFINITY;
    moit_refused(moi_moe_plan_create(&p, ctx, &d), MOI_ERR_ARG, "aux_coef");
    assert_null(p);
    assert_int_equal(moi_moe_prepared_bytes(NULL, true), -1);
    assert_int_equal(moi_moe_saved_bytes(NULL, 1), -1);
    free_problem(&m);
}

static void test_run_refusals(void **state)
{
    (void)state;
    moit_moe m = problem_of(&layers[11]);
    net n = net_of(moit_ctx(0), &m, true);
    int64_t bytes = moi_plan_workspace_bytes(n.plan);
    assert_int_equal(moi_moe_saved_bytes(n.plan, m.d.max_tokens + 1), -1);
    moi_moe_args a = forward_args(&n, true);
    moit_refused(moi_moe_forward_run(n.plan, &a, n.ws, bytes - 1, NULL), MOI_ERR_WORKSPACE, "workspace");
    moit_refused(moi_moe_forward_run(n.plan, &a, NULL, bytes, NULL), MOI_ERR_WORKSPACE, "NULL");
    moit_refused(moi_moe_forward_run(n.plan, &a, n.ws, bytes, &a), MOI_ERR_ARG, "streams");
    a.tokens = m.d.max_tokens + 1;
    moit_refused(moi_moe_forward_run(n.plan, &a, n.ws, bytes, NULL), MOI_ERR_SHAPE, "tokens must be 0..");
    a = forward_args(&n, true), a.x = NULL;
    moit_refused(moi_moe_forward_run(n.plan, &a, n.ws, bytes, NULL), MOI_ERR_ARG, "x is NULL");
    a = forward_args(&n, true), a.router = NULL;
    moit_refused(moi_moe_forward_run(n.plan, &a, n.ws, bytes, NULL), MOI_ERR_ARG, "router is NULL");
    a = forward_args(&n, true), a.y = (char *)n.y + 4;
    moit_refused(moi_moe_forward_run(n.plan, &a, n.ws, bytes, NULL), MOI_ERR_ALIGN, "y must be aligned");
    a = forward_args(&n, true), a.prepared = (char *)n.prepared + 16;
    moit_refused(moi_moe_forward_run(n.plan, &a, n.ws, bytes, NULL), MOI_ERR_ALIGN, "aligned to 128");
    a = backward_args(&n), a.saved = NULL;
    moit_refused(moi_moe_backward_run(n.plan, &a, n.ws, bytes, NULL), MOI_ERR_ARG, "saved is NULL");
    a = backward_args(&n), a.d_router = NULL;
    moit_refused(moi_moe_backward_run(n.plan, &a, n.ws, bytes, NULL), MOI_ERR_ARG, "d_router is NULL");
    a = backward_args(&n), a.d_down = NULL;
    moit_refused(moi_moe_backward_run(n.plan, &a, n.ws, bytes, NULL), MOI_ERR_ARG, "d_down is NULL");
    moit_refused(moi_moe_prepare(n.plan, n.gate_up, NULL, n.prepared, true, n.ws, bytes, NULL), MOI_ERR_ARG, "down is NULL");
    moit_refused(moi_moe_prepare(n.plan, n.gate_up, n.down, NULL, true, n.ws, bytes, NULL), MOI_ERR_ARG, "prepared is NULL");
    free_net(&n);
    free_problem(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float64), cmocka_unit_test(test_differences), cmocka_unit_test(test_saved), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_empty), cmocka_unit_test(test_unused_experts), cmocka_unit_test(test_nan_token),
        cmocka_unit_test(test_plan_refusals), cmocka_unit_test(test_run_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
