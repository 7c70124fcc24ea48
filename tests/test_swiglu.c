/* SPDX-License-Identifier: Apache-2.0
 * test_swiglu.c: the bound against long double, the bits against the reference, and fused quantisation against quantisation of
 * the plain result. */
#include "support_gpu.h"

#include <math.h>
#include <stdlib.h>

#include "silu.h"

/* NULL where a row of the GPU declines. */
static moi_plan *plan_of(const moi_swiglu_desc *d)
{
    moi_plan *p;
    moit_mem m = moit_mem_of(d->row);
    moi_status status = moi_swiglu_plan_create(&p, m.ctx, d);
    if (status == MOI_ERR_UNSUPPORTED && m.gpu) return NULL;
    moit_ok(status);
    return p;
}

static moi_result out_of(moit_mem *m, moi_result r)
{
    return (moi_result){ moit_out(m, r.data, moit_size(r.data)), moit_out(m, r.scale, moit_size(r.scale)), r.ld };
}

/* Every buffer of `host` is a whole one of moit_alloc. */
static void run(const moi_plan *p, const moi_swiglu_args *host, int backward)
{
    moit_mem m = moit_mem_of(moi_plan_row(p));
    void *ws = moit_mem_workspace(&m, p);
    int64_t bytes = moi_plan_workspace_bytes(p);
    moi_swiglu_args a = *host;
    a.gate_up.data = moit_in(&m, host->gate_up.data, moit_size(host->gate_up.data));
    a.gate_up.scale = moit_in(&m, host->gate_up.scale, moit_size(host->gate_up.scale));
    a.d_act = moit_in(&m, host->d_act, moit_size(host->d_act));
    a.offsets = moit_in(&m, host->offsets, moit_size(host->offsets));
    a.plain = moit_out(&m, host->plain, moit_size(host->plain));
    a.rowwise = out_of(&m, host->rowwise), a.colwise = out_of(&m, host->colwise);
    if (backward) moit_mem_run(&m, moi_swiglu_backward_run(p, &a, ws, bytes, m.stream));
    else moit_mem_run(&m, moi_swiglu_run(p, &a, ws, bytes, m.stream));
    moit_mem_done(&m);
    if (!m.gpu) moit_free(ws);
}

/* P:swiglu.bound: `limit`, and what subnormals lose; what is not finite must be so here and there.  With an infinite up, silu may
 * underflow earlier here than in long double, so NaN and Inf count as one. */
static void compare(const char *row, const char *what, float gate, float up, float got, long double want, long double limit)
{
    limit += (1 + fabsl((long double)gate)) * (isfinite(up) ? 1 + fabsl((long double)up) : 1) * 0x1p-149L;
    int bad;
    if (!isfinite(up) && !isfinite(want)) bad = isfinite(got);
    else if (isnan(want)) bad = !isnan(got);
    else if (fabsl(want) >= 0x1.ffffffp127L) bad = !isinf(got) || !signbit(got) != !signbit(want); /* rounds to infinity */
    else bad = !(fabsl((long double)got - want) <= limit);
    if (bad)
        fail_msg("%s %s(%a, %a): %a, wanted %La", row, what, (double)gate, (double)up, (double)got, want);
}

static long double sigmoid(long double x) { return 1 / (1 + expl(-x)); }

/* P:swiglu.bits: those of the reference. */
static void check_bits(const moi_swiglu_desc *desc, const moi_swiglu_args *args, int backward, const void *got, int64_t bytes)
{
    moi_swiglu_desc d = *desc;
    moi_swiglu_args a = *args;
    d.row = "swiglu_ref", d.want = 0, d.rowwise_mx = d.colwise_mx = MOI_MX_FREE;
    moi_plan *p = plan_of(&d);
    a.plain = moit_alloc(bytes);
    run(p, &a, backward);
    for (int64_t i = 0; i < bytes; i++)
        if (((unsigned char *)a.plain)[i] != ((const unsigned char *)got)[i])
            fail_msg("%s, %s: byte %lld is not the reference's", desc->row, backward ? "backward" : "forward", (long long)i);
    moit_free(a.plain);
    moi_plan_free(p);
}

static void check_bound(const char *row, const float *gate, const float *up, const float *d_act, int64_t n)
{
    moi_swiglu_desc d = MOI_SWIGLU_DESC_INIT;
    d.row = row, d.in = MOI_FORMAT_F32, d.max_rows = 1, d.width = n;
    moi_plan *p = plan_of(&d);
    if (!p) return;
    float *in = moit_alloc(2 * n * 4), *act = moit_alloc(n * 4), *grad = moit_alloc(2 * n * 4), *da = moit_alloc(n * 4);
    memcpy(in, gate, (size_t)n * 4), memcpy(in + n, up, (size_t)n * 4), memcpy(da, d_act, (size_t)n * 4);
    moi_swiglu_args a = { .size = sizeof a, .rows = 1, .gate_up = { in, NULL, 0 }, .plain = act, .d_act = da };
    run(p, &a, 0);
    check_bits(&d, &a, 0, act, n * 4);
    a.plain = grad;
    run(p, &a, 1);
    check_bits(&d, &a, 1, grad, 2 * n * 4);
    for (int64_t i = 0; i < n; i++) {
        long double g = (long double)gate[i], u = (long double)up[i], da_ = (long double)d_act[i], s = sigmoid(g), silu = g / (1 + expl(-g));
        const long double unit = 0x1p-24L;
        compare(row, "act", gate[i], up[i], act[i], silu * u, 8 * unit * fabsl(silu * u));
        compare(row, "d_gate", gate[i], up[i], grad[i], da_ * u * s * (1 + g * (1 - s)),
                12 * unit * fabsl(da_ * u * s) * (1 + fabsl(g) * (1 - s)));
        compare(row, "d_up", gate[i], up[i], grad[n + i], da_ * silu, 8 * unit * fabsl(da_ * silu));
    }
    moit_free(in), moit_free(act), moit_free(grad), moit_free(da);
    moi_plan_free(p);
}

static void test_bound(void **state)
{
    (void)state;
    static const float edges[] = { 0.0f, -0.0f, 100.0f, -100.0f, 88.0f, -88.0f, -87.4f, 104.0f, -104.0f, -150.0f, -190.0f, -700.0f, -708.0f,
                                   -709.5f, -1000.0f, 1000.0f, 3e38f, -3e38f, 0x1p-149f, -0x1p-149f, 0x1p-130f, 1e-20f, -1e-20f, 1.0f,
                                   INFINITY, -INFINITY, NAN };
    static const float ups[] = { 1.0f, -1.0f, 0.0f, 1e30f, -3e38f, 1e-30f, 0x1p-140f, INFINITY, NAN };
    enum { E = sizeof edges / sizeof *edges, U = sizeof ups / sizeof *ups, N = 20000 };
    float *g = malloc(N * 4), *u = malloc(N * 4), *da = malloc(N * 4);
    for (int i = 0; moit_any_row("swiglu", i); i++) {
        moit_rng rng = moit_seed("swiglu", 0);
        for (int n = 0; n < E * U; n++) g[n] = edges[n % E], u[n] = ups[n / E], da[n] = 1.0f;
        check_bound(moit_any_row("swiglu", i), g, u, da, E * U);
        for (int n = 0; n < N; n++) { /* normals of many sizes, and the floats around the zero of d_gate */
            g[n] = n < N / 2 ? ldexpf(moit_normal(&rng), (int)moit_below(&rng, 12) - 4) : -1.2784645f + (float)(n - N * 3 / 4) * 0x1p-23f;
            u[n] = ldexpf(moit_normal(&rng), (int)moit_below(&rng, 40) - 20);
            da[n] = moit_normal(&rng);
        }
        check_bound(moit_any_row("swiglu", i), g, u, da, N);
    }
    free(g), free(u), free(da);
}

/* P:swiglu.bits from BF16 to BF16: every gate with ups of any size; then those of 2^-31 to 86, of which rows may guess the results, with ups of usual
 * ones and with such that the product is next to the middle between two BF16 numbers, where they must see that they cannot. */
static void test_all_gates(void **state)
{
    (void)state;
    enum { ROWS = 1024, WIDTH = 1024 };
    const int64_t rows = moit_picked(1) ? ROWS : 65536 / WIDTH; /* of a selection: every gate once */
    unsigned short *in = moit_alloc(2 * ROWS * WIDTH * 2), *act = moit_alloc(ROWS * WIDTH * 2);
    unsigned char *q = moit_alloc(ROWS * WIDTH), *scale = moit_alloc(ROWS * WIDTH / 32);
    unsigned short usual[65536];
    unsigned int count = 0;
    for (unsigned int g = 0; g < 65536; g++)
        if ((g & 0x7FFF) >= 0x3000 && moii_silu_near(moii_bf16_decode(g))) usual[count++] = (unsigned short)g;
    moit_rng rng = moit_seed("gates", 0);
    for (int64_t i = 0; i < rows * WIDTH; i++) {
        unsigned int gate = (unsigned int)(i % 65536), way = (unsigned int)(i / 65536), up = (unsigned int)moit_below(&rng, 65536);
        if (way % 4) gate = usual[i % count];
        if (way % 4) up = (up & 0x807Fu) | (unsigned int)(0x70 + moit_below(&rng, 20)) << 7;
        if (way % 4 == 3) { /* the mantissa that comes nearest */
            unsigned int best = up, far = 0x10000;
            for (unsigned int m = 0; m < 128; m++) {
                unsigned int u = (up & 0xFF80u) | m, low = moii_bits_of(moii_swiglu(moii_bf16_decode(gate), moii_bf16_decode(u))) & 0xFFFFu;
                unsigned int d = low > 0x8000u ? low - 0x8000u : 0x8000u - low;
                if (d && d < far) far = d, best = u;
            }
            up = best;
        }
        in[i / WIDTH * 2 * WIDTH + i % WIDTH] = (unsigned short)gate, in[i / WIDTH * 2 * WIDTH + WIDTH + i % WIDTH] = (unsigned short)up;
    }
    for (int i = 0; moit_any_row("swiglu", i); i++) {
        moi_swiglu_desc d = MOI_SWIGLU_DESC_INIT;
        d.row = moit_any_row("swiglu", i), d.in = MOI_FORMAT_BF16, d.out = MOI_BF16, d.max_rows = rows, d.width = WIDTH;
        d.rowwise = MOI_FORMAT_MXFP8, d.want = MOI_WANT_ROWWISE;
        moi_plan *p = plan_of(&d);
        if (!p) continue;
        moi_swiglu_args a = { .size = sizeof a, .rows = rows, .gate_up = { in, NULL, 0 }, .plain = act, .rowwise = { q, scale, 0 } };
        run(p, &a, 0);
        check_bits(&d, &a, 0, act, rows * WIDTH * 2);
        moi_plan_free(p);
    }
    moit_free(in), moit_free(act), moit_free(q), moit_free(scale);
}

typedef struct fused { int64_t rows, width, groups; moi_format row, col, in; moi_dtype out; uint32_t want; } fused;
/* Of such a case: whether scales of 128 are equal along rows, down columns. */
typedef struct equal { moi_mx_scales row, col; } equal;

/* Offsets with an empty group, a group of one row, and, if there is room, rows that no group owns. */
static void fill_offsets(int64_t *offsets, int64_t groups, int64_t rows)
{
    for (int64_t g = 0; g <= groups; g++) offsets[g] = g == 0 ? 0 : g == 1 ? rows / 3 : g == 2 ? rows / 3 : rows / 3 + (rows - rows / 3) * g / groups;
    if (groups && rows > 4) offsets[groups] = rows - 1;
    for (int64_t g = groups; g > 0; g--)
        if (offsets[g - 1] > offsets[g]) offsets[g - 1] = offsets[g];
}

/* A matrix in `f` made of nasty values by the reference quantiser; with `gap` its rows begin anywhere. */
static moi_operand make_input(const fused *c, moit_rng *rng, bool gap)
{
    int64_t cols = 2 * c->width, ld = cols + (gap && moi_dtype_bits(c->in.elem) >= 8 ? 5 : 0);
    float *x = moit_alloc(c->rows * cols * 4);
    moit_fill_nasty(rng, x, c->rows * cols, 1);
    moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
    q.rowwise = c->in, q.max_rows = c->rows, q.cols = cols, q.row = "quantize_ref";
    moi_plan *p;
    moit_ok(moi_quantize_plan_create(&p, moit_ctx(0), &q));
    void *data = moit_alloc(c->rows * moi_row_bytes(c->in.elem, ld)), *scale = moit_alloc(moi_scale_bytes(&c->in, c->rows, cols, 0)), *ws = moit_workspace(p);
    moi_quantize_args a = { .size = sizeof a, .rows = c->rows, .in = { x, NULL, 0 }, .rowwise = { data, scale, ld } };
    moit_ok(moi_quantize_run(p, &a, ws, moi_plan_workspace_bytes(p), NULL));
    moi_plan_free(p);
    moit_free(x), moit_free(ws);
    return (moi_operand){ data, scale, ld };
}

typedef struct results { moi_result row, col; int64_t row_data, row_scale, col_data, col_scale; } results;

/* With `gap` plain rows begin anywhere. */
static results results_of(const fused *c, int64_t cols, bool gap)
{
    int64_t ld = gap && moi_dtype_bits(c->row.elem) >= 16 ? cols + 5 : 0;
    results r = { .row_data = c->rows * moi_row_bytes(c->row.elem, ld ? ld : cols), .row_scale = moi_scale_bytes(&c->row, c->rows, cols, 0),
                  .col_data = cols * moi_row_bytes(c->col.elem, moi_ragged_cols(&c->col, c->rows, c->groups)),
                  .col_scale = moi_scale_bytes(&c->col, cols, c->rows, c->groups) };
    r.row = (moi_result){ moit_alloc(r.row_data), moit_alloc(r.row_scale), ld };
    memset(r.row.data, 0x5A, (size_t)r.row_data); /* what lies between them stays */
    r.col = (moi_result){ moit_alloc(r.col_data), moit_alloc(r.col_scale), 0 };
    return r;
}

static void free_results(results *r)
{
    moit_free(r->row.data), moit_free(r->row.scale), moit_free(r->col.data), moit_free(r->col.scale);
}

/* P:swiglu.fused and P:swiglu.bits: the same bits as the plain result quantised by the reference; both with and without `plain` wanted. */
static void fused_case(const char *row, const fused *c, equal mx, uint64_t salt)
{
    moit_rng rng = moit_seed("swiglu fused", salt);
    moi_swiglu_desc d = MOI_SWIGLU_DESC_INIT;
    d.row = row, d.in = c->in, d.out = c->out, d.rowwise = c->row, d.colwise = c->col, d.want = c->want, d.max_rows = c->rows, d.width = c->width;
    d.groups = c->groups, d.rowwise_mx = mx.row, d.colwise_mx = mx.col;
    moi_plan *p = plan_of(&d);
    if (!p) return;
    moi_operand in = make_input(c, &rng, salt % 3 == 2);
    int64_t *offsets = moit_alloc((c->groups + 1) * 8), n = c->rows * c->width, unit = moi_dtype_bits(c->out) / 8;
    char *d_act = moit_alloc(n * unit), *plain = moit_alloc(2 * n * unit);
    fill_offsets(offsets, c->groups, c->rows);
    for (int64_t i = 0; i < n; i++) moi_encode(c->out, d_act, i, moit_normal(&rng));
    for (int backward = 0; backward < 2; backward++) {
        int64_t cols = (1 + backward) * c->width;
        results got = results_of(c, cols, salt % 3 == 1), want = results_of(c, cols, salt % 3 == 1);
        moi_swiglu_args a = { .size = sizeof a, .rows = c->rows, .gate_up = in, .plain = plain, .rowwise = got.row, .colwise = got.col,
                              .d_act = d_act, .offsets = offsets };
        for (int with_plain = 1; with_plain >= 0; with_plain--) {
            if (!with_plain) a.plain = NULL;
            run(p, &a, backward);
            if (with_plain) check_bits(&d, &a, backward, plain, c->rows * cols * unit);
            moi_quantize_desc q = MOI_QUANTIZE_DESC_INIT;
            q.row = "quantize_ref", q.in = c->out, q.rowwise = c->row, q.colwise = c->col, q.want = c->want, q.max_rows = c->rows, q.cols = cols;
            q.groups = c->groups, q.rowwise_mx = mx.row, q.colwise_mx = mx.col;
            moi_plan *qp;
            moit_ok(moi_quantize_plan_create(&qp, moit_ctx(0), &q));
            void *ws = moit_workspace(qp);
            moi_quantize_args qa = { .size = sizeof qa, .rows = c->rows, .in = { plain, NULL, 0 }, .rowwise = want.row, .colwise = want.col,
                                     .offsets = offsets };
            moit_ok(moi_quantize_run(qp, &qa, ws, moi_plan_workspace_bytes(qp), NULL));
            moit_free(ws);
            moi_plan_free(qp);
            assert_memory_equal(got.row.data, want.row.data, (size_t)want.row_data);
            assert_memory_equal(got.row.scale, want.row.scale, (size_t)want.row_scale);
            assert_memory_equal(got.col.data, want.col.data, (size_t)want.col_data);
            assert_memory_equal(got.col.scale, want.col.scale, (size_t)want.col_scale);
        }
        free_results(&got), free_results(&want);
    }
    moit_free((void *)(uintptr_t)in.data), moit_free((void *)(uintptr_t)in.scale);
    moit_free(offsets), moit_free(d_act), moit_free(plain);
    moi_plan_free(p);
}

static void test_fused(void **state)
{
    (void)state;
    moi_format mx = MOI_FORMAT_MXFP8, mx5 = mx, blk = MOI_FORMAT_BLK128_ACT, f32 = MOI_FORMAT_F32, bf = MOI_FORMAT_BF16, fp4 = MOI_FORMAT_MXFP4;
    moi_format tiled = mx, blk_col = blk, in5 = mx, mx_col = mx;
    mx5.elem = MOI_E5M2, mx5.layout = MOI_LAYOUT_COL, tiled.layout = MOI_LAYOUT_TILED;
    blk_col.layout = mx_col.layout = MOI_LAYOUT_COL, in5.elem = MOI_E5M2, in5.layout = MOI_LAYOUT_TILED;
    const fused cases[] = {
        { 0, 32, 3, mx, mx, f32, MOI_F32, 3 },    { 0, 32, 0, mx, mx, bf, MOI_BF16, 3 },    { 1, 1, 1, mx, mx, f32, MOI_F32, 3 },
        { 70, 48, 4, mx, mx, bf, MOI_BF16, 3 },   { 133, 96, 5, mx, mx5, bf, MOI_BF16, 3 }, { 97, 33, 0, mx5, mx, f32, MOI_F32, 3 },
        { 200, 130, 3, blk, blk, bf, MOI_BF16, 3 }, { 70, 200, 0, blk, blk, f32, MOI_F32, 3 }, { 40, 64, 8, mx, mx, mx, MOI_BF16, 3 },
        { 31, 72, 0, fp4, bf, fp4, MOI_F32, 3 },  { 64, 600, 4, mx, f32, blk, MOI_BF16, 3 }, { 50, 64, 0, mx, mx, bf, MOI_BF16, 1 },
        { 50, 64, 2, mx, mx, bf, MOI_BF16, 2 },
        /* whole tiles of 128 columns, which rows of tiles want */
        { 300, 256, 3, mx, mx, bf, MOI_BF16, 3 },  { 129, 128, 0, tiled, tiled, bf, MOI_BF16, 3 }, { 260, 128, 5, tiled, mx5, f32, MOI_F32, 3 },
        { 131, 256, 2, blk, blk, bf, MOI_BF16, 3 }, { 40, 128, 0, mx5, mx5, mx, MOI_BF16, 3 },  { 140, 128, 4, blk, blk_col, blk, MOI_F32, 3 },
        { 64, 384, 0, mx, mx, in5, MOI_BF16, 1 },  { 96, 128, 3, mx, mx, bf, MOI_F32, 2 },     { 33, 128, 0, tiled, mx, f32, MOI_BF16, 3 },
        /* so many that a block of the GPU makes several, one after another */
        { 800, 3584, 3, mx, mx, bf, MOI_BF16, 3 }, { 1200, 3584, 0, tiled, mx, bf, MOI_BF16, 3 },
        /* groups: no rows, many, more than a warp asks about at once, columns alone */
        { 0, 128, 3, mx, mx, bf, MOI_BF16, 3 },    { 333, 256, 40, tiled, mx5, bf, MOI_BF16, 3 }, { 600, 128, 150, mx5, mx, bf, MOI_BF16, 3 },
        { 270, 128, 7, mx, mx5, bf, MOI_BF16, 2 },
        /* with one multiprocessor work for many rounds of blocks */
        { 2300, 256, 5, mx, mx, bf, MOI_BF16, 3 },
        /* plain results, which need no quantiser if they are all that is wanted: eights of values, and, of rows that begin anywhere, each by itself */
        { 70, 48, 0, bf, bf, bf, MOI_BF16, 1 },    { 45, 40, 0, f32, bf, f32, MOI_F32, 1 },     { 33, 136, 0, bf, bf, bf, MOI_BF16, 1 },
        { 29, 72, 0, bf, bf, f32, MOI_BF16, 1 },   { 31, 64, 0, f32, bf, bf, MOI_F32, 1 },      { 40, 52, 0, bf, f32, bf, MOI_BF16, 1 },
        { 37, 80, 0, f32, bf, bf, MOI_BF16, 1 },   { 0, 64, 0, bf, bf, bf, MOI_BF16, 1 },
    };
    const equal none = { MOI_MX_FREE, MOI_MX_FREE };
    const struct { fused c; equal mx; } equals[] = {
        { { 300, 128, 0, tiled, mx, bf, MOI_BF16, 3 }, { MOI_MX_PER_128, MOI_MX_PER_128 } },
        { { 133, 256, 3, mx, mx, bf, MOI_BF16, 3 }, { MOI_MX_PER_128, MOI_MX_PER_128 } },
        { { 70, 48, 4, mx, mx, f32, MOI_F32, 3 }, { MOI_MX_PER_128, MOI_MX_PER_128 } },
        { { 700, 256, 0, mx, tiled, bf, MOI_BF16, 3 }, { MOI_MX_PER_128, MOI_MX_FREE } },
        { { 33, 128, 0, mx, mx, bf, MOI_BF16, 3 }, { MOI_MX_FREE, MOI_MX_PER_128 } },
        { { 96, 128, 0, tiled, mx, bf, MOI_BF16, 1 }, { MOI_MX_PER_128, MOI_MX_FREE } },
        { { 260, 128, 0, mx, mx, bf, MOI_BF16, 2 }, { MOI_MX_FREE, MOI_MX_PER_128 } },
        { { 0, 128, 0, mx, mx, bf, MOI_BF16, 3 }, { MOI_MX_PER_128, MOI_MX_PER_128 } },
        { { 500, 128, 20, tiled, mx_col, bf, MOI_BF16, 3 }, { MOI_MX_PER_128, MOI_MX_PER_128 } },
        { { 430, 256, 9, mx_col, mx, bf, MOI_BF16, 3 }, { MOI_MX_FREE, MOI_MX_PER_128 } },
        { { 260, 128, 4, mx, mx, bf, MOI_BF16, 2 }, { MOI_MX_FREE, MOI_MX_PER_128 } },
    };
    for (int i = 0; moit_any_row("swiglu", i); i++) {
        for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
            if (moit_picked(n)) fused_case(moit_any_row("swiglu", i), &cases[n], none, n);
        for (size_t n = 0; n < sizeof equals / sizeof *equals; n++)
            if (moit_picked(n)) fused_case(moit_any_row("swiglu", i), &equals[n].c, equals[n].mx, 100 + n);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    moi_swiglu_desc d = MOI_SWIGLU_DESC_INIT;
    moi_plan *p;
    d.in = MOI_FORMAT_F32, d.max_rows = 4, d.width = 32, d.out = MOI_E4M3;
    moit_refused(moi_swiglu_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "out must be f32 or bf16, got e4m3");
    d.out = MOI_F32, d.want = 4;
    moit_refused(moi_swiglu_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "want");
    d.want = MOI_WANT_COLWISE, d.groups = 2, d.colwise = MOI_FORMAT_MXFP4;
    moit_refused(moi_swiglu_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "groups need elements of 8 bits, got e2m1");
    d.colwise = MOI_FORMAT_BLK128_WEIGHT;
    moit_refused(moi_swiglu_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "vector blocks");
    d.colwise = MOI_FORMAT_MXFP8, d.colwise_mx = MOI_MX_PER_ROW;
    moit_refused(moi_swiglu_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "swiglu plan: colwise_mx must be 0 (free) or 1 (per 128), got 2");
    d.colwise_mx = MOI_MX_FREE, d.rowwise_mx = MOI_MX_PER_128;
    moit_refused(moi_swiglu_plan_create(&p, moit_ctx(0), &d), MOI_ERR_ARG, "swiglu plan: rowwise_mx must be 0 (free) where that result is not wanted, got 1");
    d.rowwise_mx = MOI_MX_FREE, d.width = -1;
    moit_refused(moi_swiglu_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "width");
    d.width = INT64_MAX / 2;
    moit_refused(moi_swiglu_plan_create(&p, moit_ctx(0), &d), MOI_ERR_SHAPE, "address space");
    d.width = 32, d.want = 0, d.groups = 0;
    float *in = moit_alloc(4 * 64 * 4), *out = moit_alloc(4 * 64 * 4);
    for (int i = 0; moit_any_row("swiglu", i); i++) {
        d.row = moit_any_row("swiglu", i);
        if (!(p = plan_of(&d))) continue;
        moi_swiglu_args a = { .size = sizeof a, .rows = 4, .gate_up = { in, NULL, 0 } };
        moit_refused(moi_swiglu_run(p, &a, NULL, 0, NULL), MOI_ERR_ARG, "plain: data is NULL");
        a.plain = out, a.rows = 5;
        moit_refused(moi_swiglu_run(p, &a, NULL, 0, NULL), MOI_ERR_SHAPE, "rows must be 0..4, got 5");
        a.rows = 4;
        moit_refused(moi_swiglu_backward_run(p, &a, NULL, 0, NULL), MOI_ERR_ARG, "d_act: data is NULL");
        a.gate_up.ld = 63;
        moit_refused(moi_swiglu_run(p, &a, NULL, 0, NULL), MOI_ERR_SHAPE, "ld");
        moi_plan_free(p);
    }
    moit_free(in), moit_free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound), cmocka_unit_test(test_all_gates), cmocka_unit_test(test_fused), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
