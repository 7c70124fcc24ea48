/* SPDX-License-Identifier: Apache-2.0
 * test_moe.c: the whole layer, forward and backward, against an independent float64 evaluation of its formula and that
 * evaluation's central differences, under every recipe, in the reference rows and the chosen ones. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct shape { int64_t tokens, hidden, width, experts, top_k; bool renormalize; float aux; } shape;

/* Inputs and results of one layer; the loss is aux + sum of g * y. */
typedef struct layer {
    shape s;
    moi_recipe recipe;
    moi_dtype io;
    moi_plan *plan;
    float *param[4];  /* x, router, gate_up, down */
    float *grad[4];
    int64_t count[4];
    float *g, *y;
    void *io_x, *io_y, *io_g, *io_dx; /* in io's type; the FP32 arrays themselves where io is FP32 */
    void *prepared, *saved, *workspace;
    float *aux;
} layer;

static const char *const names[] = { "x", "router", "gate_up", "down" };

/* ---- the float64 layer ---- */

static double silu(double v) { return v / (1 + exp(-v)); }

/* p = softmax(x router^T) of one token; ids: the top_k largest, lower index first. */
static void route64(const shape *s, const double *x, const double *router, double *p, int64_t *ids)
{
    double top = -INFINITY, sum = 0;
    for (int64_t e = 0; e < s->experts; e++) {
        p[e] = 0;
        for (int64_t h = 0; h < s->hidden; h++) p[e] += x[h] * router[e * s->hidden + h];
        top = fmax(top, p[e]);
    }
    for (int64_t e = 0; e < s->experts; e++) sum += p[e] = exp(p[e] - top);
    for (int64_t e = 0; e < s->experts; e++) p[e] /= sum;
    for (int64_t k = 0; k < s->top_k; k++) {
        int64_t best = -1;
        for (int64_t e = 0; e < s->experts; e++) {
            bool taken = false;
            for (int64_t j = 0; j < k; j++) taken |= ids[j] == e;
            if (!taken && (best < 0 || p[e] > p[best])) best = e;
        }
        ids[k] = best;
    }
}

static void expert64(const shape *s, const double *x, const double *gate_up, const double *down, double weight, double *y)
{
    double act[64];
    for (int64_t f = 0; f < s->width; f++) {
        double gate = 0, up = 0;
        for (int64_t h = 0; h < s->hidden; h++) {
            gate += x[h] * gate_up[f * s->hidden + h];
            up += x[h] * gate_up[(s->width + f) * s->hidden + h];
        }
        act[f] = silu(gate) * up;
    }
    for (int64_t h = 0; h < s->hidden; h++)
        for (int64_t f = 0; f < s->width; f++) y[h] += weight * act[f] * down[h * s->width + f];
}

/* The loss; y may be NULL. */
static double loss64(const shape *s, double *const param[4], const float *g, double *y_out)
{
    double p[16], mean[16] = { 0 }, counts[16] = { 0 }, loss = 0, y[64];
    int64_t ids[16] = { 0 };
    for (int64_t t = 0; t < s->tokens; t++) {
        const double *x = param[0] + t * s->hidden;
        double sum = 0;
        memset(y, 0, sizeof y);
        p[0] = 1;
        if (s->experts > 1) route64(s, x, param[1], p, ids);
        for (int64_t k = 0; k < s->top_k; k++) sum += p[ids[k]];
        for (int64_t k = 0; k < s->top_k; k++) {
            int64_t e = ids[k];
            counts[e]++;
            expert64(s, x, param[2] + e * 2 * s->width * s->hidden, param[3] + e * s->hidden * s->width, s->renormalize ? p[e] / sum : p[e], y);
        }
        for (int64_t e = 0; e < s->experts; e++) mean[e] += p[e] / (double)s->tokens;
        for (int64_t h = 0; h < s->hidden; h++) loss += y[h] * (double)g[t * s->hidden + h];
        if (y_out) memcpy(y_out + t * s->hidden, y, (size_t)s->hidden * sizeof *y);
    }
    for (int64_t e = 0; e < s->experts && s->experts > 1; e++)
        loss += (double)s->aux * (double)s->experts * counts[e] / (double)s->tokens * mean[e];
    return loss;
}

/* ---- running the layer ---- */

static void *to_io(const layer *l, float *values, int64_t n)
{
    if (l->io == MOI_F32) return values;
    void *out = moit_alloc(n * 2);
    for (int64_t i = 0; i < n; i++) {
        moi_encode(MOI_BF16, out, i, values[i]);
        values[i] = moi_decode(MOI_BF16, out, i); /* both sides see the same numbers */
    }
    return out;
}

static layer make(moi_ctx *ctx, shape s, moi_recipe recipe, moi_dtype io)
{
    layer l = { .s = s, .recipe = recipe, .io = io };
    moit_rng rng = moit_seed("moe", (uint64_t)(s.tokens * 131 + s.experts));
    moi_moe_desc d = MOI_MOE_DESC_INIT;
    d.max_tokens = s.tokens + 3;
    d.hidden = s.hidden;
    d.width = s.width;
    d.experts = s.experts;
    d.top_k = s.top_k;
    d.renormalize = s.renormalize;
    d.aux_coef = s.aux;
    d.recipe = recipe;
    d.io = io;
    moit_ok(moi_moe_plan_create(&l.plan, ctx, &d));
    int64_t counts[4] = { s.tokens * s.hidden, s.experts * s.hidden, s.experts * 2 * s.width * s.hidden, s.experts * s.hidden * s.width };
    for (int i = 0; i < 4; i++) {
        l.count[i] = counts[i];
        l.param[i] = moit_alloc(counts[i] * 4);
        l.grad[i] = moit_alloc(counts[i] * 4);
        memset(l.grad[i], 0, (size_t)counts[i] * 4);
        moit_fill_normal(&rng, l.param[i], counts[i], i == 0 ? 1.0f : 0.3f);
    }
    l.g = moit_alloc(counts[0] * 4);
    l.y = moit_alloc(counts[0] * 4);
    moit_fill_normal(&rng, l.g, counts[0], 1);
    l.io_x = to_io(&l, l.param[0], counts[0]);
    l.io_g = to_io(&l, l.g, counts[0]);
    l.io_y = io == MOI_F32 ? (void *)l.y : moit_alloc(counts[0] * 2);
    l.io_dx = io == MOI_F32 ? (void *)l.grad[0] : moit_alloc(counts[0] * 2);
    l.prepared = moit_alloc(moi_moe_prepared_bytes(l.plan, true));
    l.saved = moit_alloc(moi_moe_saved_bytes(l.plan, s.tokens));
    l.workspace = moit_workspace(l.plan);
    l.aux = moit_alloc(4);
    moit_ok(moi_moe_prepare(l.plan, l.param[2], l.param[3], l.prepared, true, l.workspace, moi_plan_workspace_bytes(l.plan), NULL));
    return l;
}

static moi_moe_args args_of(const layer *l)
{
    return (moi_moe_args){ .size = sizeof(moi_moe_args), .tokens = l->s.tokens, .x = l->io_x, .router = l->param[1], .prepared = l->prepared,
                           .saved = l->saved, .y = l->io_y, .aux_loss = l->aux, .d_y = l->io_g, .d_x = l->io_dx, .d_router = l->grad[1],
                           .d_gate_up = l->grad[2], .d_down = l->grad[3] };
}

static void widen(const layer *l)
{
    for (int64_t i = 0; i < l->count[0] && l->io == MOI_BF16; i++) {
        l->y[i] = moi_decode(MOI_BF16, l->io_y, i);
        l->grad[0][i] = moi_decode(MOI_BF16, l->io_dx, i);
    }
}

static void forward(const layer *l)
{
    moi_moe_args a = args_of(l);
    moit_ok(moi_moe_forward_run(l->plan, &a, l->workspace, moi_plan_workspace_bytes(l->plan), NULL));
}

static void backward(const layer *l)
{
    moi_moe_args a = args_of(l);
    moit_ok(moi_moe_backward_run(l->plan, &a, l->workspace, moi_plan_workspace_bytes(l->plan), NULL));
    widen(l);
}

static void drop(layer *l)
{
    if (l->io == MOI_BF16) moit_free(l->io_x), moit_free(l->io_g), moit_free(l->io_y), moit_free(l->io_dx);
    for (int i = 0; i < 4; i++) moit_free(l->param[i]), moit_free(l->grad[i]);
    moit_free(l->g), moit_free(l->y), moit_free(l->prepared), moit_free(l->saved), moit_free(l->workspace), moit_free(l->aux);
    moi_plan_free(l->plan);
}

/* ---- comparison ---- */

/* ||got - want|| / ||want|| over every step-th element; 0 where both are 0. */
static double distance(const float *got, const double *want, int64_t n, int64_t step)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n; i += step) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        norm += want[i] * want[i];
    }
    return error == 0 ? 0 : sqrt(error / norm);
}

/* A gradient passes at most four products in a row, each with two rounded operands, so eight relative errors u meet.  BF16:
 * u <= 2^-9, added up.  E4M3: u <= 2^-4 for normals, and errors of different elements are independent, so they add in
 * quadrature.  FP32: five sums of at most 64 terms, 2^-24 each, and a factor of 2 for cancellation. */
static double limit_of(const layer *l)
{
    if (l->recipe == MOI_RECIPE_F32 && l->io == MOI_F32) return 2 * 5 * 64 * 0x1p-24;
    if (l->recipe == MOI_RECIPE_F32 || l->recipe == MOI_RECIPE_BF16) return 8 * 0x1p-9;
    return l->s.tokens < 8 ? 8 * 0x1p-4 : sqrt(8) * 0x1p-4; /* one token has too few errors to be independent */
}

static void check_gradients(const layer *l, const char *where)
{
    double *param[4], *want = malloc((size_t)(l->count[2] + l->count[0]) * sizeof *want);
    double worst = 0;
    for (int i = 0; i < 4; i++) {
        param[i] = malloc((size_t)l->count[i] * sizeof **param);
        for (int64_t j = 0; j < l->count[i]; j++) param[i][j] = (double)l->param[i][j];
    }
    loss64(&l->s, param, l->g, want);
    worst = distance(l->y, want, l->count[0], 1);
    if (!(worst <= limit_of(l))) fail_msg("%s: y is off by %g, limit %g", where, worst, limit_of(l));
    for (int i = 0; i < 4; i++) {
        if (i == 1 && l->s.experts == 1) continue;
        int64_t step = l->count[i] > 500 ? 11 : 1; /* differences are slow: a sample of the large ones */
        for (int64_t j = 0; j < l->count[i]; j += step) {
            double at = param[i][j], h = 1e-5, up, low;
            param[i][j] = at + h;
            up = loss64(&l->s, param, l->g, NULL);
            param[i][j] = at - h;
            low = loss64(&l->s, param, l->g, NULL);
            param[i][j] = at;
            want[j] = (up - low) / (2 * h);
        }
        double d = distance(l->grad[i], want, l->count[i], step);
        if (!(d <= limit_of(l))) fail_msg("%s: the gradient of %s is off by %g, limit %g", where, names[i], d, limit_of(l));
        worst = fmax(worst, d);
    }
    print_message("%s: at most %.2g of the limit %.2g\n", where, worst / limit_of(l), limit_of(l));
    for (int i = 0; i < 4; i++) free(param[i]);
    free(want);
}

static const shape shapes[] = {
    { 13, 12, 8, 5, 2, true, 0.1f }, { 13, 12, 8, 5, 2, false, 0 }, { 40, 33, 17, 3, 1, true, 0.01f }, { 40, 33, 17, 3, 3, false, 0.01f },
    { 1, 8, 5, 12, 2, true, 0.1f },  { 9, 20, 12, 1, 1, false, 0 },
};

/* P:moe.grad for recipe F32 in FP32; the other recipes stay within what their roundings allow. */
static void test_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int recipe = MOI_RECIPE_F32; recipe <= MOI_RECIPE_BLK128; recipe++)
            for (int variant = 0; variant < 3; variant++) { /* chosen rows; reference rows; BF16 in and out */
                char where[96];
                layer l = make(moit_ctx(variant == 1), shapes[i], (moi_recipe)recipe, variant == 2 ? MOI_BF16 : MOI_F32);
                snprintf(where, sizeof where, "shape %d %s %s", (int)i, moi_recipe_name((moi_recipe)recipe),
                         variant == 0 ? "" : variant == 1 ? "reference" : "bf16 io");
                forward(&l);
                backward(&l);
                check_gradients(&l, where);
                drop(&l);
            }
}

/* P:moe.saved  whatever happens to workspace and results between the passes, the gradients have the same bits; and so they
 * have when everything runs twice (P:det). */
static void test_saved(void **state)
{
    (void)state;
    for (int recipe = MOI_RECIPE_F32; recipe <= MOI_RECIPE_BLK128; recipe++) {
        layer a = make(moit_ctx(0), shapes[2], (moi_recipe)recipe, MOI_F32), b = make(moit_ctx(0), shapes[2], (moi_recipe)recipe, MOI_F32);
        forward(&a);
        backward(&a);
        forward(&b);
        assert_memory_equal(a.y, b.y, (size_t)a.count[0] * 4);
        memset(b.workspace, 0x7F, (size_t)moi_plan_workspace_bytes(b.plan));
        memset(b.y, 0x7F, (size_t)b.count[0] * 4);
        memset(b.param[2], 0x7F, (size_t)b.count[2] * 4); /* the masters: backward has the prepared ones */
        backward(&b);
        for (int i = 0; i < 4; i++) assert_memory_equal(a.grad[i], b.grad[i], (size_t)a.count[i] * 4);
        /* weight gradients are added to, d_x is overwritten */
        float before = a.grad[3][0];
        backward(&a);
        assert_true(fabsf(a.grad[3][0] - 2 * before) <= fabsf(before) * 0x1p-22f);
        assert_memory_equal(a.grad[0], b.grad[0], (size_t)a.count[0] * 4);
        drop(&a);
        drop(&b);
    }
}

/* Inference keeps nothing and gives the bits of training. */
static void test_inference(void **state)
{
    (void)state;
    for (int recipe = MOI_RECIPE_F32; recipe <= MOI_RECIPE_BLK128; recipe++) {
        layer l = make(moit_ctx(0), shapes[0], (moi_recipe)recipe, MOI_F32);
        float *trained = malloc((size_t)l.count[0] * 4);
        forward(&l);
        memcpy(trained, l.y, (size_t)l.count[0] * 4);
        moi_moe_args a = args_of(&l);
        a.saved = NULL;
        a.aux_loss = NULL;
        moit_ok(moi_moe_forward_run(l.plan, &a, l.workspace, moi_plan_workspace_bytes(l.plan), NULL));
        assert_memory_equal(trained, l.y, (size_t)l.count[0] * 4);
        free(trained);
        drop(&l);
    }
}

/* All tokens to one expert: the others are empty, and get no gradient. */
static void test_one_expert_has_all(void **state)
{
    (void)state;
    for (int recipe = MOI_RECIPE_F32; recipe <= MOI_RECIPE_BLK128; recipe++) {
        shape s = { 21, 16, 8, 4, 1, true, 0 };
        layer l = make(moit_ctx(0), s, (moi_recipe)recipe, MOI_F32);
        for (int64_t t = 0; t < s.tokens; t++) l.param[0][t * s.hidden] = 4;
        for (int64_t e = 0; e < s.experts; e++) l.param[1][e * s.hidden] = e == 2 ? 20.0f : -20.0f;
        forward(&l);
        backward(&l);
        check_gradients(&l, "all to expert 2");
        int64_t each = l.count[3] / s.experts;
        for (int64_t i = 0; i < l.count[3]; i++)
            if (i / each != 2 && l.grad[3][i] != 0) fail_msg("expert %d has no token but a gradient", (int)(i / each));
        drop(&l);
    }
}

/* NaN in one token's x reaches only that token's y. */
static void test_nan_stays_in_its_token(void **state)
{
    (void)state;
    for (int recipe = MOI_RECIPE_F32; recipe <= MOI_RECIPE_BLK128; recipe++) {
        layer l = make(moit_ctx(0), shapes[0], (moi_recipe)recipe, MOI_F32);
        l.param[0][4 * l.s.hidden + 3] = NAN;
        forward(&l);
        for (int64_t i = 0; i < l.count[0]; i++) {
            bool own = i / l.s.hidden == 4;
            if (own != isnan(l.y[i])) fail_msg("%s: token %d is %g", moi_recipe_name(l.recipe), (int)(i / l.s.hidden), (double)l.y[i]);
        }
        drop(&l);
    }
}

/* P:empty and refusals. */
static void test_edges(void **state)
{
    (void)state;
    layer l = make(moit_ctx(0), shapes[0], MOI_RECIPE_MX32, MOI_F32);
    int64_t bytes = moi_plan_workspace_bytes(l.plan);
    moi_moe_args a = args_of(&l);
    a.tokens = 0;
    *l.aux = 1;
    moit_ok(moi_moe_forward_run(l.plan, &a, l.workspace, bytes, NULL));
    moit_ok(moi_moe_backward_run(l.plan, &a, l.workspace, bytes, NULL));
    assert_true(*l.aux == 0);
    for (int64_t i = 0; i < l.count[2]; i++) assert_true(l.grad[2][i] == 0);
    a.tokens = l.s.tokens + 4;
    moit_refused(moi_moe_forward_run(l.plan, &a, l.workspace, bytes, NULL), MOI_ERR_SHAPE, "tokens must be 0..16, got 17");
    a = args_of(&l);
    a.router = NULL;
    moit_refused(moi_moe_forward_run(l.plan, &a, l.workspace, bytes, NULL), MOI_ERR_ARG, "router is NULL");
    a = args_of(&l);
    a.saved = NULL;
    moit_refused(moi_moe_backward_run(l.plan, &a, l.workspace, bytes, NULL), MOI_ERR_ARG, "saved is NULL");
    moit_refused(moi_moe_forward_run(l.plan, &a, l.workspace, bytes - 1, NULL), MOI_ERR_WORKSPACE, "workspace must hold");
    assert_int_equal(moi_moe_saved_bytes(l.plan, -1), -1);
    moi_moe_desc d = MOI_MOE_DESC_INIT;
    moi_plan *plan;
    d.hidden = d.width = 32;
    d.experts = 4;
    d.top_k = 5;
    moit_refused(moi_moe_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_SHAPE, "top_k 5 of 4 experts");
    d.top_k = 2;
    d.elem_forward = MOI_E2M1;
    moit_refused(moi_moe_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_UNSUPPORTED, "8 bits");
    d.elem_forward = MOI_F32;
    moit_refused(moi_moe_plan_create(&plan, moit_ctx(0), &d), MOI_ERR_ARG, "elem_forward");
    drop(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_saved), cmocka_unit_test(test_inference),
        cmocka_unit_test(test_one_expert_has_all), cmocka_unit_test(test_nan_stays_in_its_token), cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
