/* SPDX-License-Identifier: Apache-2.0
 * bench_moe_decode_cuda.c: MoE layers on the GPU, from router logits to output: `layers` of them one after another, each with weights at addresses of its
 * own and routing of its own, so that L2 holds nothing of a layer when its turn comes; one workspace, as in a model.  A repetition is many calls, queued
 * and waited for once; times are of one.  Beside it the device copies as many bytes between buffers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode_layer.h"

enum { MOST_LAYERS = 64, BUFFERS = 8 * MOST_LAYERS + 8, CALLS = 128, CHECKED = 8, COPY_BYTES = 256 << 20, COPIES = 4 };

typedef struct job {
    moi_ctx *ctx;
    moi_plan *plan;
    decode_layer layer;
    int64_t layers, calls;                   /* calls of a repetition */
    moi_moe_decode_args args[MOST_LAYERS];
    float *logits;                           /* of the layer that is checked */
    double experts;                          /* that a layer's tokens choose, in the mean */
    void *workspace, *copy[2];
    void *buffer[BUFFERS];                   /* all of them */
    int buffers;
} job;

static void *device(job *j, const void *host, int64_t bytes)
{
    void *p = NULL;
    if (j->buffers == BUFFERS || moi_buf_alloc(j->ctx, bytes, &p)) return NULL;
    j->buffer[j->buffers++] = p;
    return host && moi_buf_put(j->ctx, p, host, bytes, NULL) ? NULL : p;
}

/* All experts of one matrix, on the device: those with numbers of their own again and again. */
static bool upload(job *j, const bench_matrix *m, int64_t experts, moi_operand *to)
{
    char *data = device(j, NULL, experts * m->data_bytes), *scale = m->scale ? device(j, NULL, experts * m->scale_bytes) : NULL;
    if (!data || (m->scale && !scale)) return false;
    for (int64_t e = 0; e < experts; e++) {
        moi_operand from = bench_operand(m, e % DECODE_DISTINCT);
        if (moi_buf_put(j->ctx, data + e * m->data_bytes, from.data, m->data_bytes, NULL)) return false;
        if (scale && moi_buf_put(j->ctx, scale + e * m->scale_bytes, from.scale, m->scale_bytes, NULL)) return false;
    }
    *to = (moi_operand){ data, scale, 0 };
    return true;
}

static bool make(bench *b, job *j)
{
    decode_layer *l = &j->layer;
    const moi_moe_decode_desc *d = &l->desc;
    int64_t slots = d->max_tokens * d->top_k;
    if (!decode_layer_make(b, l, DECODE_DISTINCT)) return false;
    void *x = device(j, l->x, d->max_tokens * d->hidden * 2), *y = device(j, NULL, d->max_tokens * d->hidden * 4);
    int32_t *ids = device(j, NULL, slots * 4);
    float *weights = device(j, NULL, slots * 4);
    j->workspace = device(j, NULL, moi_plan_workspace_bytes(j->plan));
    j->logits = bench_alloc(d->max_tokens * d->experts * 4);
    for (int i = 0; i < 2; i++)
        if (!(j->copy[i] = device(j, NULL, COPY_BYTES))) return false;
    for (int64_t i = j->layers; i-- > 0;) { /* the first one's logits stay */
        moi_moe_decode_args *a = &j->args[i];
        bench_normal(b, j->logits, d->max_tokens * d->experts, 1.0f);
        *a = (moi_moe_decode_args){ .size = sizeof *a, .tokens = d->max_tokens, .x = x, .y = y, .ids_out = ids, .weights_out = weights,
                                    .logits = device(j, j->logits, d->max_tokens * d->experts * 4) };
        if (!a->logits || !upload(j, &l->gate_up, d->experts, &a->gate_up) || !upload(j, &l->down, d->experts, &a->down)) return false;
    }
    return x && y && ids && weights && j->workspace;
}

static moi_status one(const job *j, int64_t layer)
{
    return moi_moe_decode_run(j->plan, &j->args[layer], j->workspace, moi_plan_workspace_bytes(j->plan), NULL);
}
static bool run(void *user, int64_t repetition)
{
    const job *j = user;
    (void)repetition;
    for (int64_t i = 0; i < j->calls; i++)
        if (one(j, i % j->layers)) return false;
    return !moi_ctx_sync(j->ctx, NULL);
}
static bool run_copy(void *user, int64_t repetition)
{
    const job *j = user;
    for (int i = 0; i < COPIES; i++)
        if (moi_buf_copy(j->ctx, j->copy[(i + repetition) % 2], j->copy[(i + repetition + 1) % 2], COPY_BYTES, NULL)) return false;
    return !moi_ctx_sync(j->ctx, NULL);
}

static int64_t distinct(const decode_layer *l)
{
    int64_t n = 0, slots = l->desc.max_tokens * l->desc.top_k;
    bool *seen = bench_alloc(l->desc.experts);
    for (int64_t i = 0; i < slots; i++) n += !seen[l->ids[i]], seen[l->ids[i]] = true;
    free(seen);
    return n;
}

/* Whether ids are those of the greatest logits, best first, and weights their softmax: within 2^-18, which no two random logits that matter are apart. */
static bool routed(const decode_layer *l, const float *logits)
{
    const int64_t experts = l->desc.experts, k = l->desc.top_k;
    bool good = true;
    for (int64_t t = 0; t < l->desc.max_tokens && good; t++) {
        const int32_t *ids = l->ids + t * k;
        const float *of = logits + t * experts;
        double sum = 0;
        bool *chosen = bench_alloc(experts);
        for (int64_t i = 0; i < k && good; i++) {
            good = ids[i] >= 0 && ids[i] < experts && !chosen[ids[i]] && (i == 0 || of[ids[i]] <= of[ids[i - 1]]);
            if (good) chosen[ids[i]] = true, sum += exp((double)(of[ids[i]] - of[ids[0]]));
        }
        for (int64_t e = 0; e < experts && good; e++) good = chosen[e] || of[e] <= of[ids[k - 1]];
        for (int64_t i = 0; i < k && good; i++) good = fabs((double)l->weights[t * k + i] * sum / exp((double)(of[ids[i]] - of[ids[0]])) - 1) < 0x1p-18;
        free(chosen);
    }
    return good;
}

/* Each layer once; the first one's result is looked at. */
static double check(bench *b, job *j)
{
    decode_layer *l = &j->layer;
    const moi_moe_decode_desc *d = &l->desc;
    int64_t slots = d->max_tokens * d->top_k, all = 0;
    for (int64_t i = j->layers; i-- > 0;) {
        if (one(j, i) || moi_buf_get(j->ctx, l->ids, j->args[i].ids_out, slots * 4, NULL)) return (double)NAN;
        all += distinct(l);
    }
    j->experts = (double)all / (double)j->layers;
    if (moi_buf_get(j->ctx, l->weights, j->args[0].weights_out, slots * 4, NULL)) return (double)NAN;
    if (moi_buf_get(j->ctx, l->y, j->args[0].y, d->max_tokens * d->hidden * 4, NULL)) return (double)NAN;
    bench_corrupt(b, MOI_F32, l->y);
    return routed(l, j->logits) ? decode_layer_check(b, l, CHECKED) : (double)INFINITY;
}

bool bench_moe_decode_cuda(bench *b, const shapes *s, int line, const char *row)
{
    bench_case c = { .op = "moe_decode", .row = row };
    job *j = calloc(1, sizeof *j);
    if (!j) return bench_refuse(b, c.op, "?", row, "no memory");
    moi_moe_decode_desc *d = &j->layer.desc;
    *d = (moi_moe_decode_desc)MOI_MOE_DECODE_DESC_INIT;
    const char *why = decode_layer_shape(d, s, line, c.name);
    j->ctx = b->ctx, j->layers = shapes_int(s, line, "layers", 1);
    j->calls = (b->quick ? 1 : CALLS / j->layers + 1) * j->layers;
    d->row = row, d->from_logits = d->renormalize = true;
    if (!why && (j->layers < 1 || j->layers > MOST_LAYERS)) why = "layers must be 1 to 64";
    bool good = !why || bench_refuse(b, c.op, c.name, row, why), planned = false;
    if (good) good = planned = !moi_moe_decode_plan_create(&j->plan, b->ctx, d);
    if (!why && !planned) good = bench_declined(b, c.op, c.name, row);
    if (planned) {
        int64_t from = moi_moe_decode_grouped_from(j->plan);
        j->layer.grouped = from > 0 && from <= d->max_tokens;
        c.row = j->layer.grouped ? "grouped products" : moi_plan_row(j->plan);
        good = make(b, j) || bench_refuse(b, c.op, c.name, c.row, moi_last_error());
        if (good) good = bench_within(b, &c, check(b, j));
    }
    if (planned && good) {
        machine_limit limit = { .name = "device copy", .unit = "GB/s", .amount = 2.0 * COPIES * COPY_BYTES, .work = { run_copy, j } };
        c.limit = &limit, c.calls = j->calls;
        c.flops = 6.0 * (double)(d->max_tokens * d->top_k) * (double)d->hidden * (double)d->width;
        c.bytes = j->experts * (double)decode_expert_bytes(d) + (double)(d->max_tokens * d->hidden * 6);
        c.work = (timing_work){ run, j };
        good = bench_time(b, &c);
    }
    for (int i = 0; i < j->buffers; i++) moi_buf_free(j->ctx, j->buffer[i]);
    moi_plan_free(j->plan);
    decode_layer_free(&j->layer);
    free(j->logits), free(j);
    return good;
}
