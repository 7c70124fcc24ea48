/* SPDX-License-Identifier: Apache-2.0 */
#include "support_decode.h"

#include <math.h>
#include <stdlib.h>

static const double max_f32 = 0x1.fffffep127;

void *exact_alloc(int64_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 16, bytes ? (size_t)bytes : 1), 0);
    memset(p, 0, bytes ? (size_t)bytes : 1);
    return p;
}

static moi_dtype scale_type(const moi_format *f) { return f->recipe == MOI_RECIPE_MX32 ? MOI_E8M0 : MOI_F32; }

/* Random finite codes, with rubbish in the unused bits at the end of a row; scales around 2^-4. */
static void make_weights(moit_rng *rng, const moi_format *f, int64_t experts, int64_t rows, int64_t cols, void **codes, void **scales)
{
    int64_t row_bytes = moi_row_bytes(f->elem, cols), bytes = experts * rows * row_bytes, scale_bytes = experts * moi_scale_bytes(f, rows, cols, 0);
    unsigned char *c = *codes = exact_alloc(bytes);
    unsigned char *s = *scales = scale_bytes ? exact_alloc(scale_bytes) : NULL;
    for (int64_t i = 0; i < bytes; i++) {
        c[i] = (unsigned char)moit_next(rng);
        if (f->elem == MOI_E4M3 && (c[i] & 0x7F) == 0x7F) c[i] ^= 1;
        if (f->elem == MOI_E5M2 && (c[i] & 0x7F) >= 0x7C) c[i] ^= 0x40;
    }
    if (f->elem == MOI_F32 || f->elem == MOI_BF16 || f->elem == MOI_F16)
        for (int64_t i = 0; i < experts * rows * cols; i++) moi_encode(f->elem, c, i, 0.3f * moit_normal(rng));
    for (int64_t i = 0; f->recipe == MOI_RECIPE_MX32 && i < scale_bytes; i++) s[i] = (unsigned char)(119 + moit_below(rng, 6));
    for (int64_t i = 0; f->recipe == MOI_RECIPE_BLK128 && i < scale_bytes / 4; i++) ((float *)*scales)[i] = 0.02f + 0.05f * (float)moit_uniform(rng);
}

problem problem_make(moi_format f, shape s, moi_dtype x, moi_dtype out)
{
    problem p = { .d = MOI_MOE_DECODE_DESC_INIT };
    moit_rng rng = moit_seed("decode", (uint64_t)(f.elem + 100 * f.layout + s.h * 1000 + s.tokens));
    p.d.weights = f, p.d.x = x, p.d.out = out;
    p.d.max_tokens = s.tokens, p.d.hidden = s.h, p.d.width = s.f, p.d.experts = s.experts, p.d.top_k = s.top_k;
    make_weights(&rng, &f, s.experts, 2 * s.f, s.h, &p.codes[0], &p.scales[0]);
    make_weights(&rng, &f, s.experts, s.h, s.f, &p.codes[1], &p.scales[1]);
    p.x = exact_alloc(s.tokens * moi_row_bytes(x, s.h));
    p.ids = exact_alloc(s.tokens * s.top_k * 4);
    p.weights = exact_alloc(s.tokens * s.top_k * 4);
    for (int64_t i = 0; i < s.tokens * s.h; i++) moi_encode(x, p.x, i, 0.5f * moit_normal(&rng));
    for (int64_t i = 0; i < s.tokens * s.top_k; i++) {
        p.ids[i] = (int32_t)(s.tokens == 3 ? 0 : moit_below(&rng, s.experts + 1) - (s.tokens > 1)); /* 3: all to one; > 1: some skipped */
        if (p.ids[i] >= s.experts) p.ids[i] = 0;
        p.weights[i] = (float)moit_uniform(&rng) - 0.25f;
    }
    p.a = (moi_moe_decode_args){ .size = sizeof p.a, .tokens = s.tokens, .x = p.x, .ids = p.ids, .weights = p.weights,
                                 .gate_up = { p.codes[0], p.scales[0], 0 }, .down = { p.codes[1], p.scales[1], 0 } };
    return p;
}

void problem_free(problem *p)
{
    free(p->x), free(p->ids), free(p->weights);
    for (int i = 0; i < 2; i++) free(p->codes[i]), free(p->scales[i]);
}

static bool is_chosen(const problem *p, int64_t e)
{
    for (int64_t i = 0; i < p->a.tokens * p->d.top_k; i++)
        if (p->ids[i] == e) return true;
    return false;
}

/* One matrix of every expert that is chosen, each weight as moi_dequantize_run would give it: [e, rows, cols]. */
static double *dequantised(const problem *p, int which)
{
    const moi_format *f = &p->d.weights;
    int64_t rows = which ? p->d.hidden : 2 * p->d.width, cols = which ? p->d.width : p->d.hidden, block = moi_format_block(f);
    int64_t div = block && f->block == MOI_BLOCK_SQUARE ? 128 : 1, blocks = block ? moi_scale_blocks(f, cols, 0) : 0;
    int64_t row_bytes = moi_row_bytes(f->elem, cols), scale_bytes = moi_scale_bytes(f, rows, cols, 0);
    double *w = calloc((size_t)(p->d.experts * rows * cols + 1), sizeof *w);
    for (int64_t e = 0; e < p->d.experts; e++) {
        if (!is_chosen(p, e)) continue;
        const char *scales = (char *)p->scales[which] + e * scale_bytes;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                float v = moi_decode(f->elem, (char *)p->codes[which] + (e * rows + r) * row_bytes, c);
                int64_t scale_rows = (rows + div - 1) / div;
                if (block) v *= moi_decode(scale_type(f), scales, moi_scale_index(f->layout, scale_type(f), r / div, c / block, scale_rows, blocks));
                w[(e * rows + r) * cols + c] = (double)v;
            }
    }
    return w;
}

void exact(const problem *p, double *y, double *bound)
{
    const moi_moe_decode_desc *d = &p->d;
    int64_t h = d->hidden, f = d->width;
    const double eps = 0x1p-24, end = 0x1p-100, round_u = d->x == MOI_BF16 ? 0x1p-8 : 0x1p-24, round_y = d->out == MOI_BF16 ? 0x1p-8 : 0x1p-24;
    double *u = calloc((size_t)(2 * f + h + 1), sizeof *u), *du = u + f, *x = du + f;
    double *gate_up = dequantised(p, 0), *down = dequantised(p, 1);
    memset(y, 0, (size_t)(p->a.tokens * h) * sizeof *y);
    memset(bound, 0, (size_t)(p->a.tokens * h) * sizeof *y);
    for (int64_t ts = 0; ts < p->a.tokens * d->top_k; ts++) {
        int64_t t = ts / d->top_k, e = p->ids[ts];
        double w = (double)p->weights[ts];
        if (e < 0) continue;
        for (int64_t l = 0; l < h; l++) x[l] = (double)moi_decode(d->x, (char *)p->x + t * moi_row_bytes(d->x, h), l);
        double largest = 0;
        for (int64_t i = 0; i < f; i++) {
            double dot[2] = { 0, 0 }, mag[2] = { 0, 0 };
            for (int g = 0; g < 2; g++) {
                const double *row = gate_up + ((2 * e + g) * f + i) * h;
                for (int64_t l = 0; l < h; l++) dot[g] += row[l] * x[l], mag[g] += fabs(row[l] * x[l]);
            }
            double silu = dot[0] / (1 + exp(-dot[0])), unit = (double)(h + 4) * eps + p->more.dot;
            double dg = unit * mag[0] + end, dup = unit * mag[1] + end;
            double most = (fabs(silu) + 1.1 * dg) * (fabs(dot[1]) + dup);
            u[i] = silu * dot[1];
            if (isfinite(u[i]) && !(most <= max_f32)) most = INFINITY; /* u may leave FP32: nothing is known of y */
            du[i] = 1.1 * dg * (fabs(dot[1]) + dup) + fabs(silu) * dup + (8 * eps + round_u + p->more.u) * most;
            largest = fmax(largest, most);
        }
        for (int64_t j = 0; j < h; j++) {
            double dot = 0, mag = 0, moved = 0;
            for (int64_t i = 0; i < f; i++) {
                double v = down[(e * h + j) * f + i];
                double off = du[i] + p->more.block * largest;
                dot += v * u[i], mag += fabs(v) * (fabs(u[i]) + off), moved += fabs(v) * off;
            }
            y[t * h + j] += w * dot;
            moved += p->more.dot * mag, moved += p->more.out * (fabs(dot) + moved);
            bound[t * h + j] += fabs(w) * (moved + (double)(f + 4 + d->top_k + 1) * eps * mag + end);
        }
    }
    for (int64_t i = 0; i < p->a.tokens * h; i++) bound[i] += round_y * (fabs(y[i]) + bound[i]);
    free(u), free(gate_up), free(down);
}

int64_t y_bytes(const problem *p) { return p->a.tokens * moi_row_bytes(p->d.out, p->d.hidden); }

const char *gpu_row(const char *op, int r)
{
    int cpu_rows = 0;
    while (moit_row(op, cpu_rows)) cpu_rows++;
    return moit_any_row(op, cpu_rows + r);
}

static int64_t matrix_bytes(const problem *p, int which, bool scales)
{
    const moi_moe_decode_desc *d = &p->d;
    int64_t rows = which ? d->hidden : 2 * d->width, cols = which ? d->width : d->hidden;
    return d->experts * (scales ? moi_scale_bytes(&d->weights, rows, cols, 0) : rows * moi_row_bytes(d->weights.elem, cols));
}

/* NULL where the row, of the GPU, does not take this problem. */
static moi_plan *plan_for(const moit_mem *m, moi_ctx *ctx, const char *row, problem *p)
{
    moi_plan *plan;
    p->d.row = row;
    moi_status status = moi_moe_decode_plan_create(&plan, m->gpu ? m->ctx : ctx, &p->d);
    if (m->gpu && status == MOI_ERR_UNSUPPORTED) return NULL;
    moit_ok(status);
    assert_string_equal(moi_plan_row(plan), row);
    return plan;
}

static moi_moe_decode_args args_in(moit_mem *m, const problem *p, void *y)
{
    moi_moe_decode_args a = p->a;
    int64_t slots = a.tokens * p->d.top_k;
    a.x = moit_in(m, a.x, a.tokens * moi_row_bytes(p->d.x, p->d.hidden));
    a.ids = moit_in(m, a.ids, slots * 4), a.weights = moit_in(m, a.weights, slots * 4);
    a.logits = moit_in(m, a.logits, a.tokens * p->d.experts * 4);
    a.ids_out = moit_out(m, a.ids_out, slots * 4), a.weights_out = moit_out(m, a.weights_out, slots * 4);
    a.gate_up = (moi_operand){ moit_in(m, a.gate_up.data, matrix_bytes(p, 0, false)), moit_in(m, a.gate_up.scale, matrix_bytes(p, 0, true)), 0 };
    a.down = (moi_operand){ moit_in(m, a.down.data, matrix_bytes(p, 1, false)), moit_in(m, a.down.scale, matrix_bytes(p, 1, true)), 0 };
    a.y = moit_out(m, y, y_bytes(p));
    return a;
}

/* Each plan's run, one after the other, twice. */
static moi_status in_turn(moi_plan *const plan[2], const moi_moe_decode_args a[2], void *ws, int64_t bytes, void *stream)
{
    for (int i = 0; i < 4; i++) {
        moi_status status = moi_moe_decode_run(plan[i % 2], &a[i % 2], ws, bytes, stream);
        if (status) return status;
    }
    return MOI_OK;
}

bool run_two(moi_ctx *ctx, const char *row, problem p[2], void *const y[2])
{
    moit_mem m = moit_mem_of(row);
    moi_plan *plan[2] = { plan_for(&m, ctx, row, &p[0]), NULL };
    if (!plan[0]) return false;
    plan[1] = plan_for(&m, ctx, row, &p[1]);
    assert_non_null(plan[1]);
    const moi_moe_decode_args a[2] = { args_in(&m, &p[0], y[0]), args_in(&m, &p[1], y[1]) };
    const moi_plan *larger = plan[moi_plan_workspace_bytes(plan[1]) > moi_plan_workspace_bytes(plan[0])];
    void *ws = moit_mem_workspace(&m, larger);
    moit_mem_run(&m, in_turn(plan, a, ws, moi_plan_workspace_bytes(larger), m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(ws);
    moi_plan_free(plan[0]), moi_plan_free(plan[1]);
    return true;
}

bool run_on(moi_ctx *ctx, const char *row, problem *p, void *y)
{
    moit_mem m = moit_mem_of(row);
    moi_plan *plan = plan_for(&m, ctx, row, p);
    if (!plan) return false;
    const moi_moe_decode_args a = args_in(&m, p, y);
    void *ws = moit_mem_workspace(&m, plan);
    moit_mem_run(&m, moi_moe_decode_run(plan, &a, ws, moi_plan_workspace_bytes(plan), m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(ws);
    moi_plan_free(plan);
    return true;
}

bool check_row(moi_ctx *ctx, const char *row, problem *p, const double *y, const double *bound)
{
    void *got = moit_alloc(y_bytes(p));
    bool takes = run_on(ctx, row, p, got);
    for (int64_t i = 0; takes && i < p->a.tokens * p->d.hidden; i++) {
        double v = (double)moi_decode(p->d.out, got, i), want = fabs(y[i]) > max_f32 ? copysign(INFINITY, y[i]) : y[i];
        bool good = isnan(want) ? isnan(v) : isinf(want) ? v == want : fabs(v - want) <= bound[i];
        if (isfinite(y[i]) && !(bound[i] <= max_f32)) continue; /* FP32 may have been left on the way */
        if (!good)
            fail_msg("%s on %s, weights %s %s block %d layout %d, x %s, out %s, t %lld h %lld f %lld: y[%lld][%lld] = %.9g, exact %.9g, bound %.3g",
                     row, moi_ctx_describe(ctx), moi_recipe_name(p->d.weights.recipe), moi_dtype_name(p->d.weights.elem), (int)p->d.weights.block,
                     (int)p->d.weights.layout, moi_dtype_name(p->d.x), moi_dtype_name(p->d.out), (long long)p->a.tokens,
                     (long long)p->d.hidden, (long long)p->d.width, (long long)(i / p->d.hidden), (long long)(i % p->d.hidden), v, y[i], bound[i]);
    }
    moit_free(got);
    return takes;
}

moi_ctx *decode_contexts[DECODE_CONTEXTS];

void decode_check(problem *p)
{
    int64_t n = p->a.tokens * p->d.hidden;
    double *y = calloc((size_t)n + 1, sizeof *y), *bound = calloc((size_t)n + 1, sizeof *bound);
    exact(p, y, bound);
    for (int r = 0; moit_row("moe_decode", r); r++) {
        check_row(decode_contexts[0], moit_row("moe_decode", r), p, y, bound);
        if (strcmp(moit_row("moe_decode", r), "moe_decode_ref") != 0) check_row(decode_contexts[3], moit_row("moe_decode", r), p, y, bound);
    }
    for (int r = 0; gpu_row("moe_decode", r); r++) check_row(NULL, gpu_row("moe_decode", r), p, y, bound);
    free(y), free(bound);
}

int decode_open_contexts(void **state)
{
    (void)state;
    for (int i = 0; i < DECODE_CONTEXTS; i++) {
        moi_ctx_config c = MOI_CTX_CONFIG_INIT;
        c.threads = i < 3 ? i + 1 : 1;
        c.backend = MOI_BACKEND_CPU;
        if (i == 3) setenv("MOI_CPU_ISA", "generic", 1);
        moit_ok(moi_ctx_create(&decode_contexts[i], &c));
    }
    unsetenv("MOI_CPU_ISA");
    return 0;
}
int decode_close_contexts(void **state)
{
    (void)state;
    for (int i = 0; i < DECODE_CONTEXTS; i++) moi_ctx_free(decode_contexts[i]);
    return 0;
}

void decode_check_alone(const char *row, const problem *p, int64_t token)
{
    problem whole = *p, one = *p;
    char *all = moit_alloc(y_bytes(p)), *alone = moit_alloc(y_bytes(p));
    one.a.tokens = 1, one.a.x = (const char *)p->a.x + token * moi_row_bytes(p->d.x, p->d.hidden);
    one.a.ids = p->a.ids + token * p->d.top_k, one.a.weights = p->a.weights + token * p->d.top_k;
    if (run_on(decode_contexts[1], row, &whole, all) && run_on(decode_contexts[1], row, &one, alone))
        assert_memory_equal(all + token * y_bytes(&one), alone, (size_t)y_bytes(&one));
    moit_free(all), moit_free(alone);
}

void decode_check_tokens(problem *p)
{
    const int64_t last = p->a.tokens - 1;
    decode_check(p);
    for (int r = 0; gpu_row("moe_decode", r); r++) {
        decode_check_alone(gpu_row("moe_decode", r), p, 0);
        if (last > 128) decode_check_alone(gpu_row("moe_decode", r), p, 128);
        if (last > 0) decode_check_alone(gpu_row("moe_decode", r), p, last);
    }
}

bool decode_picked(size_t i, bool always) { return moit_picked(always ? 97 : i + 1) && (always || moit_gpu()); }

void decode_check_case(size_t i, const moi_format *weights, shape size, bool always)
{
    if (!decode_picked(i, always)) return;
    problem p = problem_make(*weights, size, MOI_BF16, MOI_F32);
    decode_check_tokens(&p);
    problem_free(&p);
}
void decode_check_cases(const decode_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) decode_check_case(i, cases[i].weights, cases[i].size, cases[i].always);
}
