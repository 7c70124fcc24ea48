/* SPDX-License-Identifier: Apache-2.0
 * moe_decode_fast.c: small-batch MoE organised around outputs.  Weights are converted on the fly, each row is read once from
 * memory, in the order in which rows lie there; nothing is gathered and no expert has an output of its own.
 *
 *   widen   x to FP32, once
 *   pass 1  the pool of (token, slot, neuron): gate and up rows of two neurons at a time -> u
 *   pass 2  the pool of (token, 16 outputs): per slot their down rows -> one accumulator per output -> y
 *
 * Each activation is kept twice: as the dot kernels want it (dot.h), and in order for rows that must be computed strictly. */
#include <math.h>
#include <omp.h>

#include "cpu.h"
#include "experts.h"
#include "isa.h"

enum { OUTPUTS = 16 };

/* Rows of activations in the two forms, and where they lie in the workspace. */
typedef struct vectors {
    float *placed, *plain;
    int64_t stride; /* elements between rows: the length rounded up to whole blocks */
} vectors;

typedef struct job {
    const moi_moe_decode_desc *d;
    const moi_moe_decode_args *a;
    const moii_isa *isa;
    const moii_dot_kernel *dot;
    moii_experts gate_up, down;
    vectors x, u;      /* rows: token; token * top_k + slot */
    int64_t *active;   /* slots that are not skipped, ascending: token * top_k + slot */
    int64_t actives;
    float *scales;     /* per thread, MOII_DOT_ROWS rows of `blocks` */
    int64_t blocks;
} job;

static char *take(char *base, int64_t *at, int64_t bytes) /* the next part of the workspace; base NULL: only measures */
{
    char *p = base ? base + *at : NULL;
    *at += moii_round_up(bytes, MOII_WORKSPACE_ALIGN);
    return p;
}

static vectors take_vectors(char *base, int64_t *at, int64_t rows, int64_t cols)
{
    vectors v = { .stride = moii_round_up(cols, MOII_DOT_BLOCK) };
    v.placed = (float *)(void *)take(base, at, rows * v.stride * 4);
    v.plain = (float *)(void *)take(base, at, rows * v.stride * 4);
    return v;
}

/* Lays out the workspace; returns its size. */
static int64_t lay_out(const moi_plan *plan, job *j, char *base)
{
    const moi_moe_decode_desc *d = j->d = &plan->desc.moe_decode;
    int64_t at = 0, slots = d->max_tokens * d->top_k;
    j->isa = moii_cpu_isa(plan->ctx);
    j->dot = &j->isa->dot[d->weights.elem];
    j->x = take_vectors(base, &at, d->max_tokens, d->hidden);
    j->u = take_vectors(base, &at, slots, d->width);
    j->active = (int64_t *)(void *)take(base, &at, slots * 8);
    j->blocks = moii_round_up(moii_max(j->x.stride, j->u.stride) / MOII_DOT_BLOCK, MOII_WORKSPACE_ALIGN / 4);
    j->scales = (float *)(void *)take(base, &at, plan->ctx->threads * MOII_DOT_ROWS * j->blocks * 4);
    return at;
}

static moi_status plan_fast(moi_plan *plan)
{
    job j = { 0 };
    plan->workspace_bytes = lay_out(plan, &j, NULL);
    return MOI_OK;
}

static void put(const job *j, const vectors *v, int64_t row, int64_t i, float value)
{
    v->plain[row * v->stride + i] = value;
    v->placed[row * v->stride + i / MOII_DOT_BLOCK * MOII_DOT_BLOCK + j->dot->place[i % MOII_DOT_BLOCK]] = value * j->dot->x_factor;
}

/* See MOII_DOT_SCALE_LIMIT. */
static float usable(float scale)
{
    const float limit = 0x1p112f;
    return scale > -limit && scale < limit ? scale : INFINITY;
}

/* The scales of one row, one per 32 weights. */
static void row_scales(const job *j, const moii_experts *m, int64_t expert, int64_t row, float *out)
{
    moii_scales s = moii_experts_scales(m, expert);
    moi_layout layout = m->format->layout;
    int64_t first = moi_scale_index(layout, s.dtype, row / s.row_div, 0, s.rows, s.blocks);
    int64_t step = layout == MOI_LAYOUT_COL ? moi_scale_index(layout, s.dtype, 0, 1, s.rows, s.blocks) : 1;
    if (s.dtype == MOI_F32) {
        const float *in = (const float *)s.data + first;
        int64_t full = m->cols / MOII_BLK; /* a last, short block may be less than four times 32 */
        for (int64_t b = 0; b < full; b++)
            for (int64_t i = 0; i < 4; i++) out[4 * b + i] = usable(in[b * step]);
        for (int64_t i = 4 * full; i * MOII_DOT_BLOCK < m->cols; i++) out[i] = usable(in[full * step]);
        return;
    }
    const unsigned char *in = (const unsigned char *)s.data + first;
    if (layout == MOI_LAYOUT_ROW) j->isa->dot_scales(in, out, s.blocks);
    else
        for (int64_t b = 0; b < s.blocks; b++) out[b] = usable(moii_e8m0_decode(in[layout == MOI_LAYOUT_COL ? b * step : b / 4 * 512 + b % 4]));
}

/* Four rows of one expert . vector `at`; rows may repeat. */
static void four_dots(const job *j, const moii_experts *m, int64_t expert, const int64_t row[MOII_DOT_ROWS], const vectors *v, int64_t at,
                      int64_t rows_ahead, double out[MOII_DOT_ROWS])
{
    float *scales = j->scales + omp_get_thread_num() * MOII_DOT_ROWS * j->blocks;
    moii_dot dot = { .scale = scales, .scale_stride = j->blocks, .x = v->placed + at * v->stride, .cols = m->cols,
                     .row_bytes = m->row_bytes, .ahead = rows_ahead * m->row_bytes };
    for (int r = 0; r < MOII_DOT_ROWS; r++) {
        dot.w[r] = (const unsigned char *)moii_experts_row(m, expert, row[r]);
        if (m->scale) row_scales(j, m, expert, row[r], scales + r * j->blocks);
    }
    float sum[MOII_DOT_ROWS];
    j->dot->run(&dot, sum);
    for (int r = 0; r < MOII_DOT_ROWS; r++)
        out[r] = moii_is_finite(sum[r]) ? (double)sum[r] : moii_experts_dot(m, expert, row[r], v->plain + at * v->stride);
}

static void widen(const job *j, int64_t t)
{
    const char *in = (const char *)j->a->x + t * moi_row_bytes(j->d->x, j->d->hidden);
    for (int64_t l = 0; l < j->x.stride; l++) {
        float v = 0.0f;
        if (l < j->d->hidden && j->d->x == MOI_F32) v = ((const float *)(const void *)in)[l];
        if (l < j->d->hidden && j->d->x == MOI_BF16) v = moii_bf16_decode(((const uint16_t *)(const void *)in)[l]);
        put(j, &j->x, t, l, v);
    }
}

/* u of neurons i and i + 1 of one (token, slot) */
static void pass1(const job *j, int64_t at, int64_t i)
{
    const moi_moe_decode_desc *d = j->d;
    int64_t second = i + 1 < d->width ? i + 1 : i;
    int64_t row[MOII_DOT_ROWS] = { i, second, d->width + i, d->width + second };
    double dot[MOII_DOT_ROWS];
    four_dots(j, &j->gate_up, j->a->ids[at], row, &j->x, at / d->top_k, 2, dot);
    for (int64_t n = i; n <= second; n++) {
        double gate = dot[n - i], up = dot[n - i + 2];
        float u = (float)(gate / (1.0 + exp(-gate)) * up);
        put(j, &j->u, at, n, d->x == MOI_BF16 ? moii_bf16_decode(moii_bf16_encode(u)) : u);
    }
    if (second + 1 < d->width) return;
    for (int64_t n = d->width; n < j->u.stride; n++) put(j, &j->u, at, n, 0.0f);
}

/* outputs first .. first + 15 of one token */
static void pass2(const job *j, int64_t t, int64_t first)
{
    const moi_moe_decode_desc *d = j->d;
    float y[OUTPUTS] = { 0 };
    double dot[MOII_DOT_ROWS];
    int64_t count = moii_min(OUTPUTS, d->hidden - first);
    for (int64_t at = t * d->top_k; at < (t + 1) * d->top_k; at++) {
        if (j->a->ids[at] < 0) continue;
        for (int64_t o = 0; o < count; o += MOII_DOT_ROWS) {
            int64_t row[MOII_DOT_ROWS];
            for (int r = 0; r < MOII_DOT_ROWS; r++) row[r] = first + moii_min(o + r, count - 1);
            four_dots(j, &j->down, j->a->ids[at], row, &j->u, at, MOII_DOT_ROWS, dot);
            for (int64_t r = 0; r < MOII_DOT_ROWS && o + r < count; r++) y[o + r] += (float)((double)j->a->weights[at] * dot[r]);
        }
    }
    for (int64_t o = 0; o < count; o++) {
        int64_t i = t * d->hidden + first + o;
        if (d->out == MOI_F32) ((float *)j->a->y)[i] = y[o];
        else ((uint16_t *)j->a->y)[i] = (uint16_t)moii_bf16_encode(y[o]);
    }
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    job j = { .a = args };
    (void)stream;
    lay_out(plan, &j, workspace);
    const moi_moe_decode_desc *d = j.d;
    j.gate_up = moii_experts_of(&d->weights, &j.a->gate_up, 2 * d->width, d->hidden);
    j.down = moii_experts_of(&d->weights, &j.a->down, d->hidden, d->width);
    for (int64_t at = 0; at < j.a->tokens * d->top_k; at++)
        if (j.a->ids[at] >= 0) j.active[j.actives++] = at;
    int64_t pairs = moii_ceil_div(d->width, 2), chunks = moii_ceil_div(d->hidden, OUTPUTS);
#pragma omp parallel num_threads(plan->ctx->threads)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < j.a->tokens; t++) widen(&j, t);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < j.actives * pairs; i++) pass1(&j, j.active[i / pairs], i % pairs * 2);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < j.a->tokens * chunks; i++) pass2(&j, i / chunks, i % chunks * OUTPUTS);
    }
    return MOI_OK;
}

const moii_impl moii_impl_moe_decode_fast = {
    .name = "moe_decode_fast", .op = MOII_OP_MOE_DECODE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .plan = plan_fast, .run = run,
};
