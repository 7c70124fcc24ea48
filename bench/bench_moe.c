/* SPDX-License-Identifier: Apache-2.0
 * bench_moe.c: a whole MoE layer forward or backward, against plain sgemm of 1024^3 on the same machine. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { CHECKED_TOKENS = 64 }; /* the strict rows are slow */

/* One layer on one context. */
typedef struct layer {
    moi_plan *plan;
    moi_moe_args args;
    void *workspace, *prepared, *saved;
    float *y, *d_x, *d_router, *d_gate_up, *d_down;
    bool backward;
} layer;

typedef struct masters { float *gate_up, *down, *router, *x, *d_y; } masters;

static bool forward(const layer *l)
{
    return !moi_moe_forward_run(l->plan, &l->args, l->workspace, moi_plan_workspace_bytes(l->plan), NULL);
}

static bool backward(const layer *l)
{
    return !moi_moe_backward_run(l->plan, &l->args, l->workspace, moi_plan_workspace_bytes(l->plan), NULL);
}

static bool run(void *user, int64_t repetition)
{
    const layer *l = user;
    (void)repetition;
    return l->backward ? backward(l) : forward(l);
}

static bool make_layer(layer *l, moi_ctx *ctx, const moi_moe_desc *d, const masters *w)
{
    if (moi_moe_plan_create(&l->plan, ctx, d)) return false;
    int64_t h = d->hidden, f = d->width, e = d->experts, t = d->max_tokens;
    l->workspace = bench_alloc(moi_plan_workspace_bytes(l->plan));
    l->prepared = bench_alloc(moi_moe_prepared_bytes(l->plan, true));
    l->saved = bench_alloc(moi_moe_saved_bytes(l->plan, t));
    l->y = bench_alloc(t * h * 4);
    l->d_x = bench_alloc(t * h * 4);
    l->d_router = bench_alloc(e * h * 4);
    l->d_gate_up = bench_alloc(e * 2 * f * h * 4);
    l->d_down = bench_alloc(e * h * f * 4);
    l->args = (moi_moe_args){ .size = sizeof l->args, .tokens = t, .x = w->x, .router = w->router, .prepared = l->prepared,
                              .saved = l->saved, .y = l->y, .d_y = w->d_y, .d_x = l->d_x, .d_router = l->d_router,
                              .d_gate_up = l->d_gate_up, .d_down = l->d_down };
    if (moi_moe_prepare(l->plan, w->gate_up, w->down, l->prepared, true, l->workspace, moi_plan_workspace_bytes(l->plan), NULL)) return false;
    return forward(l);
}

static void free_layer(layer *l)
{
    free(l->workspace), free(l->prepared), free(l->saved), free(l->y), free(l->d_x);
    free(l->d_router), free(l->d_gate_up), free(l->d_down);
    moi_plan_free(l->plan);
}

static double distance(const float *got, const float *want, int64_t count)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)got[i] - (double)want[i];
        apart += d * d;
        size += (double)want[i] * (double)want[i];
    }
    return apart == 0 ? 0 : sqrt(apart / size);
}

/* The largest relative distance (2-norm) between the results of the library's choice and those of the strict rows. */
static double check(const bench *b, const moi_moe_desc *desc, const masters *w, bool with_backward)
{
    moi_moe_desc d = *desc;
    if (d.max_tokens > CHECKED_TOKENS) d.max_tokens = CHECKED_TOKENS;
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    config.reference_only = true;
    config.backend = MOI_BACKEND_CPU;
    moi_ctx *strict = NULL;
    layer got = { 0 }, want = { 0 };
    double worst = (double)NAN;
    if (!moi_ctx_create(&strict, &config) && make_layer(&got, b->ctx, &d, w) && make_layer(&want, strict, &d, w) &&
        (!with_backward || (backward(&got) && backward(&want)))) {
        bench_corrupt(b, MOI_F32, with_backward ? got.d_x : got.y);
        int64_t x = d.max_tokens * d.hidden, weights = d.experts * d.width * d.hidden;
        worst = distance(got.y, want.y, x);
        if (with_backward) {
            double parts[] = { distance(got.d_x, want.d_x, x), distance(got.d_router, want.d_router, d.experts * d.hidden),
                               distance(got.d_gate_up, want.d_gate_up, 2 * weights), distance(got.d_down, want.d_down, weights) };
            for (int i = 0; i < 4; i++)
                if (!isnan(worst) && !(parts[i] <= worst)) worst = parts[i]; /* NaN stays */
        }
    }
    free_layer(&got);
    free_layer(&want);
    moi_ctx_free(strict);
    return worst;
}

static bool describe(const shapes *s, int line, moi_moe_desc *d)
{
    const char *recipe = shapes_text(s, line, "recipe", "mx32");
    d->max_tokens = shapes_int(s, line, "tokens", 1024);
    d->hidden = shapes_int(s, line, "hidden", 512);
    d->width = shapes_int(s, line, "width", 512);
    d->experts = shapes_int(s, line, "experts", 8);
    d->top_k = shapes_int(s, line, "top_k", 2);
    d->renormalize = true;
    d->recipe = MOI_RECIPE_F32;
    while (d->recipe < MOI_RECIPE_BLK128 && strcmp(recipe, moi_recipe_name(d->recipe))) d->recipe++;
    return !strcmp(recipe, moi_recipe_name(d->recipe));
}

static bool time_layer(bench *b, bench_case *c, const moi_moe_desc *d, const masters *w, bool with_backward)
{
    static machine_limit limit;
    layer l = { .backward = with_backward };
    bool good = make_layer(&l, b->ctx, d, w);
    if (!good) bench_refuse(b, c->op, c->name, c->row, moi_last_error());
    if (good && !machine_limit_sgemm(&limit, 1024, 1024, 1024)) good = bench_refuse(b, c->op, c->name, c->row, "no memory");
    if (good) {
        double weights = (double)d->hidden * (double)d->width;
        c->limit = &limit;
        c->flops = 6.0 * (double)(d->max_tokens * d->top_k) * weights * (with_backward ? 2.0 : 1.0);
        c->bytes = (double)moi_moe_prepared_bytes(l.plan, with_backward) + 8.0 * (double)(d->max_tokens * d->hidden);
        c->work = (timing_work){ run, &l };
        good = bench_time(b, c);
        machine_limit_free(&limit);
    }
    free_layer(&l);
    return good;
}

bool bench_moe(bench *b, const shapes *s, int line, const char *row)
{
    bench_case c = { .op = "moe", .row = "(composed)" };
    moi_moe_desc d = MOI_MOE_DESC_INIT;
    bool with_backward = !strcmp(shapes_text(s, line, "pass", "forward"), "backward");
    bool known = describe(s, line, &d);
    snprintf(c.name, sizeof c.name, "%s t%lld h%lld f%lld e%lld top%lld %s", with_backward ? "backward" : "forward",
             (long long)d.max_tokens, (long long)d.hidden, (long long)d.width, (long long)d.experts, (long long)d.top_k,
             shapes_text(s, line, "recipe", "mx32"));
    if (!known) return bench_refuse(b, c.op, c.name, row, "unknown recipe");
    if (d.max_tokens < 1 || d.hidden < 1 || d.width < 1 || d.experts < 1) return bench_refuse(b, c.op, c.name, row, "a size is missing");
    int64_t weights = d.experts * d.width * d.hidden, x = d.max_tokens * d.hidden;
    masters w = { bench_alloc(2 * weights * 4), bench_alloc(weights * 4), bench_alloc(d.experts * d.hidden * 4), bench_alloc(x * 4),
                  bench_alloc(x * 4) };
    bench_normal(b, w.gate_up, 2 * weights, 1.0f / sqrtf((float)d.hidden));
    bench_normal(b, w.down, weights, 1.0f / sqrtf((float)d.width));
    bench_normal(b, w.router, d.experts * d.hidden, 1.0f / sqrtf((float)d.hidden));
    bench_normal(b, w.x, x, 1.0f);
    bench_normal(b, w.d_y, x, 1.0f);
    /* f32 differs only by the order of sums; elsewhere a last bit before rounding may turn one code into its neighbour */
    double allowed = d.recipe == MOI_RECIPE_F32 ? 1e-5 : 5e-3, worst = check(b, &d, &w, with_backward);
    bool good = true;
    if (!(worst <= allowed)) {
        char why[96];
        snprintf(why, sizeof why, "wrong result: relative distance %.3g from the reference, allowed %.3g", worst, allowed);
        good = bench_refuse(b, c.op, c.name, c.row, isnan(worst) ? moi_last_error() : why);
    }
    if (good) good = time_layer(b, &c, &d, &w, with_backward);
    free(w.gate_up), free(w.down), free(w.router), free(w.x), free(w.d_y);
    return good;
}
