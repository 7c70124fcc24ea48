/* SPDX-License-Identifier: Apache-2.0
 * bench_moe_decode.c: a few tokens through a MoE layer, bound by reading weights: other experts in each repetition, all of them
 * together several times larger than the last-level cache. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { DISTINCT = 4 }; /* matrices with their own numbers; the others repeat them at other addresses */

typedef struct job {
    moi_plan *plan;
    void *workspace;
    bench_matrix gate_up, down;
    float *weights, *y;
    void *x; /* BF16 */
    int32_t *ids;
    moi_moe_decode_desc desc;
} job;

static bool run(void *user, int64_t repetition)
{
    const job *j = user;
    int64_t slots = j->desc.max_tokens * j->desc.top_k;
    for (int64_t i = 0; i < slots; i++) j->ids[i] = (int32_t)((repetition * slots + i) % j->desc.experts);
    moi_moe_decode_args a = { .size = sizeof a, .tokens = j->desc.max_tokens, .x = j->x, .ids = j->ids, .weights = j->weights,
                              .gate_up = bench_operand(&j->gate_up, 0), .down = bench_operand(&j->down, 0), .y = j->y };
    return !moi_moe_decode_run(j->plan, &a, j->workspace, moi_plan_workspace_bytes(j->plan), NULL);
}

static void free_job(job *j)
{
    free(j->workspace), free(j->weights), free(j->y), free(j->x), free(j->ids);
    bench_matrix_free(&j->gate_up);
    bench_matrix_free(&j->down);
    moi_plan_free(j->plan);
}

static bool make(bench *b, job *j)
{
    const moi_moe_decode_desc *d = &j->desc;
    int64_t slots = d->max_tokens * d->top_k;
    float *x = bench_alloc(d->max_tokens * d->hidden * 4);
    bench_normal(b, x, d->max_tokens * d->hidden, 1.0f);
    j->x = bench_alloc(d->max_tokens * d->hidden * 2);
    bench_to(MOI_BF16, j->x, x, d->max_tokens * d->hidden);
    free(x);
    j->workspace = bench_alloc(moi_plan_workspace_bytes(j->plan));
    j->ids = bench_alloc(slots * 4);
    j->weights = bench_alloc(slots * 4);
    j->y = bench_alloc(d->max_tokens * d->hidden * 4);
    for (int64_t i = 0; i < slots; i++) j->weights[i] = 1.0f / (float)d->top_k;
    return bench_matrix_random(b, &j->gate_up, d->weights, 2 * d->width, d->hidden, d->experts, DISTINCT) &&
           bench_matrix_random(b, &j->down, d->weights, d->hidden, d->width, d->experts, DISTINCT);
}

typedef struct sums { double *u, *du, *y, *bound, *gate_up, *down; } sums;

/* What one expert adds to a token, and how far a row may be from it: each dot product may err by the bound of gemm, each u
 * by 2^-8 for its rounding to BF16, and the errors of u pass through the second product. */
static void add_expert(const job *j, int64_t expert, const double *x, double weight, sums *s)
{
    int64_t h = j->desc.hidden, f = j->desc.width;
    bench_decode(&j->gate_up, expert, NULL, 0, s->gate_up);
    bench_decode(&j->down, expert, NULL, 0, s->down);
    for (int64_t i = 0; i < f; i++) {
        double gate = 0, up = 0, abs_gate = 0, abs_up = 0;
        const double *g = s->gate_up + i * h, *p = s->gate_up + (f + i) * h;
        for (int64_t l = 0; l < h; l++) {
            gate += g[l] * x[l], abs_gate += fabs(g[l] * x[l]);
            up += p[l] * x[l], abs_up += fabs(p[l] * x[l]);
        }
        double unit = (double)(h + 4) * 0x1p-24, e_gate = unit * abs_gate, e_up = unit * abs_up;
        double silu = gate / (1 + exp(-gate)), e_silu = 1.1 * e_gate + 8 * 0x1p-24 * fabs(silu); /* |silu'| < 1.1 */
        s->u[i] = silu * up;
        s->du[i] = e_silu * (fabs(up) + e_up) + fabs(silu) * e_up;
        s->du[i] += 0x1p-8 * (fabs(s->u[i]) + s->du[i]) + 0x1p-133;
    }
    for (int64_t r = 0; r < h; r++) {
        double sum = 0, abs_sum = 0, moved = 0;
        for (int64_t i = 0; i < f; i++) {
            double w = s->down[r * f + i];
            sum += w * s->u[i], abs_sum += fabs(w * s->u[i]), moved += fabs(w) * s->du[i];
        }
        double slots = (double)j->desc.top_k; /* one accumulator runs through all slots */
        s->y[r] += weight * sum;
        s->bound[r] += fabs(weight) * (((double)f * slots + slots + 4) * 0x1p-24 * (abs_sum + moved) + moved);
    }
}

static double check(const bench *b, job *j)
{
    int64_t h = j->desc.hidden, f = j->desc.width, k = j->desc.top_k;
    if (!run(j, 1)) return (double)NAN;
    bench_corrupt(b, MOI_F32, j->y);
    sums s = { bench_alloc(f * 8), bench_alloc(f * 8), bench_alloc(h * 8), bench_alloc(h * 8), bench_alloc(2 * f * h * 8), bench_alloc(h * f * 8) };
    double *x = bench_alloc(h * 8), worst = 0;
    for (int64_t t = 0; t < j->desc.max_tokens; t++) {
        memset(s.y, 0, (size_t)h * 8);
        memset(s.bound, 0, (size_t)h * 8);
        for (int64_t l = 0; l < h; l++) x[l] = bench_value(MOI_BF16, j->x, t * h + l);
        for (int64_t i = 0; i < k; i++) add_expert(j, j->ids[t * k + i], x, (double)j->weights[t * k + i], &s);
        for (int64_t r = 0; r < h; r++) {
            double ratio = fabs((double)j->y[t * h + r] - s.y[r]) / (s.bound[r] + 0x1p-140);
            if (!(ratio <= worst) && !isnan(worst)) worst = ratio;
        }
    }
    free(s.u), free(s.du), free(s.y), free(s.bound), free(s.gate_up), free(s.down), free(x);
    return worst;
}

static int64_t expert_bytes(const moi_moe_decode_desc *d)
{
    int64_t scales = moi_scale_bytes(&d->weights, 2 * d->width, d->hidden, 0) + moi_scale_bytes(&d->weights, d->hidden, d->width, 0);
    return 2 * d->width * moi_row_bytes(d->weights.elem, d->hidden) + d->hidden * moi_row_bytes(d->weights.elem, d->width) + scales;
}

bool bench_moe_decode(bench *b, const shapes *s, int line, const char *row)
{
    static machine_limit limit;
    bench_case c = { .op = "moe_decode", .row = row };
    job j = { .desc = MOI_MOE_DECODE_DESC_INIT };
    moi_moe_decode_desc *d = &j.desc;
    const char *format = shapes_text(s, line, "format", "mxfp8");
    d->row = row;
    d->max_tokens = shapes_int(s, line, "tokens", 1);
    d->hidden = shapes_int(s, line, "hidden", 2048);
    d->width = shapes_int(s, line, "width", 768);
    d->experts = shapes_int(s, line, "experts", 0);
    d->top_k = shapes_int(s, line, "top_k", 8);
    if (!bench_format(format, &d->weights)) return bench_refuse(b, c.op, "?", row, "unknown format");
    int64_t each = expert_bytes(d), slots = d->max_tokens * d->top_k;
    if (d->experts == 0 && each > 0) {
        d->experts = 4 * machine_cache_bytes() / each + 1;
        if (d->experts < 2 * slots) d->experts = 2 * slots;
    }
    snprintf(c.name, sizeof c.name, "t%lld h%lld f%lld e%lld top%lld %s", (long long)d->max_tokens, (long long)d->hidden,
             (long long)d->width, (long long)d->experts, (long long)d->top_k, format);
    if (moi_moe_decode_plan_create(&j.plan, b->ctx, d)) return bench_declined(b, c.op, c.name, row);
    c.row = moi_plan_row(j.plan);
    bool good = make(b, &j);
    if (!good) bench_refuse(b, c.op, c.name, c.row, moi_last_error());
    if (good) good = bench_within(b, &c, check(b, &j));
    if (good && !machine_limit_read(&limit, moi_ctx_threads(b->ctx))) good = bench_refuse(b, c.op, c.name, c.row, "no memory");
    if (good) {
        int64_t read = slots < d->experts ? slots : d->experts;
        c.limit = &limit;
        c.flops = 6.0 * (double)slots * (double)d->hidden * (double)d->width;
        c.bytes = (double)(read * each + d->max_tokens * d->hidden * 6);
        c.work = (timing_work){ run, &j };
        good = bench_time(b, &c);
        machine_limit_free(&limit);
    }
    free_job(&j);
    return good;
}
