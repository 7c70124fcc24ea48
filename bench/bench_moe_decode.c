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

static bool is_grouped(const job *j)
{
    int64_t from = moi_moe_decode_grouped_from(j->plan);
    return from > 0 && from <= j->desc.max_tokens;
}

/* What grouped products make of activations beside these weights; false where that is BF16, which x and u are. */
static bool rounds(const job *j, moi_format *act)
{
    *act = j->desc.weights;
    act->block = MOI_BLOCK_VECTOR;
    return is_grouped(j) && act->recipe == MOI_RECIPE_BLK128;
}

/* u of one token and expert, whose exact value lies within du, as grouped products round it by way of BF16: the ends of that are rounded too.  Where a
 * block's scale is not certain, a step of E4M3 (2^-3) more. */
static bool round_u(bench *b, const job *j, sums *s)
{
    enum { LOW, MID, HIGH, THREE };
    int64_t f = j->desc.width;
    moi_format act;
    if (!rounds(j, &act)) return true;
    float *ends = bench_alloc(THREE * f * 4);
    uint16_t *bf16 = bench_alloc(THREE * f * 2);
    double *means = bench_alloc(THREE * f * 8);
    for (int64_t i = 0; i < f; i++)
        for (int e = 0; e < THREE; e++) ends[e * f + i] = (float)(s->u[i] + (e - MID) * s->du[i]);
    bench_to(MOI_BF16, bf16, ends, THREE * f);
    for (int64_t i = 0; i < THREE * f; i++) ends[i] = (float)bench_value(MOI_BF16, bf16, i);
    bench_matrix m;
    bool good = bench_matrix_of(b, &m, act, THREE, f, ends);
    if (good) bench_decode(&m, 0, NULL, 0, means);
    int64_t block = moi_format_block(&act), bytes = good ? m.scale_bytes / THREE : 0, each = good ? bytes / moi_scale_blocks(&act, f, 0) : 0;
    for (int64_t i = 0; good && i < f; i++) {
        const char *scale = m.scale + i / block * each;
        double off = fmax(fabs(means[HIGH * f + i] - means[MID * f + i]), fabs(means[LOW * f + i] - means[MID * f + i]));
        bool certain = !memcmp(scale, scale + bytes, (size_t)each) && !memcmp(scale, scale + 2 * bytes, (size_t)each);
        s->u[i] = means[MID * f + i];
        s->du[i] = off + (certain ? 0 : 0x1p-3 * (fabs(s->u[i]) + off));
    }
    if (good) bench_matrix_free(&m);
    free(ends), free(bf16), free(means);
    return good;
}

/* What one expert adds to a token, and how far a row may be from it: each dot product may err by the bound of gemm, each u
 * by 2^-8 for its rounding to BF16, and the errors of u pass through the second product. */
static bool add_expert(bench *b, const job *j, int64_t expert, const double *x, double weight, sums *s)
{
    moi_format act;
    double bf16 = rounds(j, &act) ? 0 : 0x1p-8, between = is_grouped(j) ? 0x1p-8 : 0; /* gate and up are BF16 before SwiGLU */
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
        double unit = (double)(h + 4) * 0x1p-24, e_gate = unit * abs_gate + between * fabs(gate), e_up = unit * abs_up + between * fabs(up);
        double silu = gate / (1 + exp(-gate)), e_silu = 1.1 * e_gate + 8 * 0x1p-24 * fabs(silu); /* |silu'| < 1.1 */
        s->u[i] = silu * up;
        s->du[i] = e_silu * (fabs(up) + e_up) + fabs(silu) * e_up;
        s->du[i] += bf16 * (fabs(s->u[i]) + s->du[i]) + 0x1p-133;
    }
    if (!round_u(b, j, s)) return false;
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
    return true;
}

/* x as the products read it, in double. */
static bool read_x(bench *b, const job *j, double *x)
{
    int64_t count = j->desc.max_tokens * j->desc.hidden;
    moi_format act;
    bench_matrix m;
    for (int64_t i = 0; i < count; i++) x[i] = bench_value(MOI_BF16, j->x, i);
    if (!rounds(j, &act)) return true;
    float *from = bench_alloc(count * 4);
    for (int64_t i = 0; i < count; i++) from[i] = (float)x[i];
    bool good = bench_matrix_of(b, &m, act, j->desc.max_tokens, j->desc.hidden, from);
    if (good) bench_decode(&m, 0, NULL, 0, x), bench_matrix_free(&m);
    free(from);
    return good;
}

static double check(bench *b, job *j)
{
    int64_t h = j->desc.hidden, f = j->desc.width, k = j->desc.top_k;
    if (!run(j, 1)) return (double)NAN;
    bench_corrupt(b, MOI_F32, j->y);
    sums s = { bench_alloc(f * 8), bench_alloc(f * 8), bench_alloc(h * 8), bench_alloc(h * 8), bench_alloc(2 * f * h * 8), bench_alloc(h * f * 8) };
    double *x = bench_alloc(j->desc.max_tokens * h * 8), worst = 0;
    if (!read_x(b, j, x)) worst = (double)NAN;
    for (int64_t t = 0; t < j->desc.max_tokens; t++) {
        memset(s.y, 0, (size_t)h * 8);
        memset(s.bound, 0, (size_t)h * 8);
        for (int64_t i = 0; i < k; i++)
            if (!add_expert(b, j, j->ids[t * k + i], x + t * h, (double)j->weights[t * k + i], &s)) worst = (double)NAN;
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
    bool chosen = !strcmp(shapes_text(s, line, "grouped_from", "0"), "auto");
    d->grouped_from = chosen ? MOI_GROUPED_AUTO : shapes_int(s, line, "grouped_from", 0);
    if (!bench_format(format, &d->weights)) return bench_refuse(b, c.op, "?", row, "unknown format");
    if (!chosen && d->grouped_from < 0) return bench_refuse(b, c.op, "?", row, "grouped_from must be a number of tokens, 0 or auto");
    int64_t each = expert_bytes(d), slots = d->max_tokens * d->top_k;
    if (d->experts == 0 && each > 0) {
        d->experts = 4 * machine_cache_bytes() / each + 1;
        if (d->experts < 2 * slots) d->experts = 2 * slots;
    }
    snprintf(c.name, sizeof c.name, "t%lld h%lld f%lld e%lld top%lld %s", (long long)d->max_tokens, (long long)d->hidden,
             (long long)d->width, (long long)d->experts, (long long)d->top_k, format);
    if (moi_moe_decode_plan_create(&j.plan, b->ctx, d)) return bench_declined(b, c.op, c.name, row);
    c.row = is_grouped(&j) ? "grouped products" : moi_plan_row(j.plan);
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
