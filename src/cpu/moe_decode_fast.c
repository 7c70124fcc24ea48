/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_fast.c: small-batch MoE organised around outputs.  Weights are converted on the fly, each row is read once from
 * memory, in the order in which rows lie there; nothing is gathered and no expert has an output of its own.
 *
 *   route   from logits: ids and weights
 *   widen   x to FP32, once
 *   pass 1  the pool of (token, slot, NEURONS neurons): their gate rows, then their up rows -> u
 *   place   u as the kernel of the second pass wants it
 *   pass 2  the pool of (token, OUTPUTS outputs): per slot their down rows -> one accumulator per output -> y */
#include <math.h>
#include <omp.h>

#include "decode_route.h"
#include "dots.h"

enum { NEURONS = 8, OUTPUTS = 16 };

typedef struct job {
    const moi_moe_decode_desc *d;
    moi_moe_decode_args a;
    const moii_isa *isa;
    moii_experts gate_up, down;
    moii_vectors x, u; /* token; token * top_k + slot */
    int64_t *active;   /* slots that are not skipped, ascending: token * top_k + slot */
    int64_t actives;
    float *scales;     /* per thread, those of one row */
    int64_t scales_room;
    void *routing;     /* what it leaves, from logits */
} job;

/* Lays out the workspace; returns its size. */
static int64_t lay_out(const moi_plan *plan, job *j, char *base)
{
    const moi_moe_decode_desc *d = j->d = &plan->desc.moe_decode;
    int64_t at = 0, slots = d->max_tokens * d->top_k;
    j->isa = moii_cpu_isa(plan->ctx);
    const moii_dot_kernel *kernel = &j->isa->dot[d->weights.elem];
    j->x = moii_vectors_carve(base, &at, kernel, d->max_tokens, d->hidden);
    j->u = moii_vectors_carve(base, &at, kernel, slots, d->width);
    j->active = moii_carve(base, &at, slots * 8);
    j->scales_room = moii_dots_scales(moii_max(d->hidden, d->width));
    j->scales = moii_carve(base, &at, plan->ctx->threads * j->scales_room * 4);
    j->routing = moii_carve(base, &at, moii_decode_route_bytes(d));
    return at;
}

static moi_status plan_fast(moi_plan *plan)
{
    job j = { 0 };
    plan->workspace_bytes = lay_out(plan, &j, NULL);
    return MOI_OK;
}

static void dots(const job *j, const moii_experts *m, int64_t at, int64_t row, int64_t rows, const moii_vectors *v, int64_t vector, double *out)
{
    moii_dots(j->isa, m, (moii_rows){ j->a.ids[at], row, rows }, v, vector, 1, j->scales + omp_get_thread_num() * j->scales_room, out);
}

static void widen(const job *j, int64_t t)
{
    const char *in = (const char *)j->a.x + t * moi_row_bytes(j->d->x, j->d->hidden);
    float *x = moii_vectors_plain(&j->x, t);
    for (int64_t l = 0; l < j->d->hidden; l++)
        x[l] = j->d->x == MOI_F32 ? ((const float *)(const void *)in)[l] : moii_bf16_decode(((const uint16_t *)(const void *)in)[l]);
    moii_vectors_place(&j->x, t);
}

/* u of neurons first .. first + NEURONS - 1 of one (token, slot) */
static void pass1(const job *j, int64_t at, int64_t first)
{
    const moi_moe_decode_desc *d = j->d;
    float *u = moii_vectors_plain(&j->u, at);
    double gate[NEURONS], up[NEURONS];
    int64_t count = moii_min(NEURONS, d->width - first), t = at / d->top_k;
    dots(j, &j->gate_up, at, first, count, &j->x, t, gate);
    dots(j, &j->gate_up, at, d->width + first, count, &j->x, t, up);
    for (int64_t i = 0; i < count; i++) {
        float v = (float)(gate[i] / (1.0 + exp(-gate[i])) * up[i]);
        u[first + i] = d->x == MOI_BF16 ? moii_bf16_decode(moii_bf16_encode(v)) : v;
    }
}

/* outputs first .. first + OUTPUTS - 1 of one token */
static void pass2(const job *j, int64_t t, int64_t first)
{
    const moi_moe_decode_desc *d = j->d;
    float y[OUTPUTS] = { 0 };
    double sums[OUTPUTS];
    int64_t count = moii_min(OUTPUTS, d->hidden - first);
    for (int64_t at = t * d->top_k; at < (t + 1) * d->top_k; at++) {
        if (j->a.ids[at] < 0) continue;
        dots(j, &j->down, at, first, count, &j->u, at, sums);
        for (int64_t o = 0; o < count; o++) y[o] += (float)((double)j->a.weights[at] * sums[o]);
    }
    for (int64_t o = 0; o < count; o++) {
        int64_t i = t * d->hidden + first + o;
        if (d->out == MOI_F32) ((float *)j->a.y)[i] = y[o];
        else ((uint16_t *)j->a.y)[i] = (uint16_t)moii_bf16_encode(y[o]);
    }
}

static void set_experts(job *j)
{
    const moi_moe_decode_desc *d = j->d;
    if (j->a.apart) {
        j->gate_up = moii_experts_apart(&d->weights, j->a.apart, false, d->width, d->hidden);
        j->down = moii_experts_apart(&d->weights, j->a.apart, true, d->hidden, d->width);
    } else {
        j->gate_up = moii_experts_of(&d->weights, &j->a.gate_up, 2 * d->width, d->hidden);
        j->down = moii_experts_of(&d->weights, &j->a.down, d->hidden, d->width);
    }
}

static void route(const moi_plan *plan, job *j)
{
    moii_decode_router r = moii_decode_router_of(j->d, &j->a, j->routing);
#pragma omp parallel for num_threads(plan->ctx->threads) schedule(static) if (j->a.tokens > 1)
    for (int64_t t = 0; t < j->a.tokens; t++) moii_route_token(&r.desc, &r.args, t);
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    job j = { .a = *(const moi_moe_decode_args *)args };
    (void)stream;
    lay_out(plan, &j, workspace);
    set_experts(&j);
    const moi_moe_decode_desc *d = j.d;
    if (d->from_logits) route(plan, &j);
    for (int64_t at = 0; at < j.a.tokens * d->top_k; at++)
        if (j.a.ids[at] >= 0) j.active[j.actives++] = at;
    int threads = moii_dots_threads(plan->ctx, 3 * j.actives * d->width * d->hidden);
    int64_t parts = moii_ceil_div(d->width, NEURONS), chunks = moii_ceil_div(d->hidden, OUTPUTS);
    int64_t share1 = moii_dots_share(j.actives * parts, threads), share2 = moii_dots_share(j.a.tokens * chunks, threads);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < j.a.tokens; t++) widen(&j, t);
#pragma omp for schedule(dynamic, share1)
        for (int64_t i = 0; i < j.actives * parts; i++) pass1(&j, j.active[i / parts], i % parts * NEURONS);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < j.actives; i++) moii_vectors_place(&j.u, j.active[i]);
#pragma omp for schedule(dynamic, share2)
        for (int64_t i = 0; i < j.a.tokens * chunks; i++) pass2(&j, i / chunks, i % chunks * OUTPUTS);
    }
    return MOI_OK;
}

/* A token's dot products cost here the same alone and among others; grouped products decode an expert's weights once for all of its rows. */
static int64_t grouped_from(const moi_plan *plan)
{
    const moi_moe_decode_desc *d = &plan->desc.moe_decode;
    int64_t rows = moi_dtype_bits(d->weights.elem) < 8 ? 16 : 8; /* of an expert, in the mean */
    return d->weights.elem == MOI_F32 || moii_mul(rows, d->experts) < 0 ? 0 : moii_max(moii_ceil_div(rows * d->experts, d->top_k), 2);
}

const moii_impl moii_impl_moe_decode_fast = {
    .name = "moe_decode_fast", .op = MOII_OP_MOE_DECODE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .takes_logits = true, .plan = plan_fast, .run = run, .grouped_from = grouped_from,
};
