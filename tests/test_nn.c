/* SPDX-License-Identifier: Apache-2.0
 * test_nn.c: the model's own operations against float64, finite differences, and other numbers of threads. */
#include <math.h>
#include <stdlib.h>

#include "ctx.h"
#include "nn.h"
#include "support.h"

static const moii_nn *nn(void) { return moit_ctx(0)->backend->nn; }
static float *floats(int64_t n) { return moit_alloc(n * 4); }
static float *normals(const char *name, int64_t n, float scale)
{
    moit_rng rng = moit_seed(name, (uint64_t)n);
    float *x = floats(n);
    moit_fill_normal(&rng, x, n, scale);
    return x;
}
static void near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: got %.9g, want %.9g, tolerance %.3g", what, got, want, tolerance);
}

/* ---- norm ---- */

static double norm_loss(const float *x, const float *g, const float *up, moii_heads s, int64_t ldy, float eps)
{
    double total = 0;
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t h = 0; h < s.heads; h++) {
            double sq = 0;
            for (int64_t c = 0; c < s.width; c++) sq += pow((double)x[r * s.ld + h * s.width + c], 2);
            double k = 1 / sqrt(sq / (double)s.width + (double)eps);
            for (int64_t c = 0; c < s.width; c++)
                total += (double)x[r * s.ld + h * s.width + c] * k * (double)g[c] * (double)up[r * ldy + h * s.width + c];
        }
    return total;
}

static void test_rmsnorm(void **state)
{
    (void)state;
    static const moii_heads shapes[] = { { 1, 1, 1, 1 }, { 3, 1, 33, 33 }, { 130, 1, 64, 64 }, { 67, 3, 32, 130 }, { 0, 1, 8, 8 } };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        moii_heads s = shapes[i];
        int64_t ldy = s.heads * s.width + 5, n = s.rows * s.ld, ny = s.rows * ldy;
        float *x = normals("x", n, 1), *g = normals("g", s.width, 1), *up = normals("up", ny, 1);
        float *y = floats(ny), *rstd = floats(s.rows * s.heads), *dx = floats(n), *dg = floats(s.width);
        memset(dx, 0, (size_t)n * 4), memset(dg, 0, (size_t)s.width * 4);
        nn()->rmsnorm(moit_ctx(0), s, x, g, 1e-6f, ldy, y, rstd);
        double got = 0, scale = 1e-30;
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t c = 0; c < s.heads * s.width; c++) {
                got += (double)y[r * ldy + c] * (double)up[r * ldy + c];
                scale += fabs((double)y[r * ldy + c] * (double)up[r * ldy + c]);
            }
        near(got, norm_loss(x, g, up, s, ldy, 1e-6f), 8 * 0x1p-24 * scale, "rmsnorm");
        nn()->rmsnorm_backward(moit_ctx(0), s, x, g, rstd, ldy, up, s.ld, dx, true, dg);
        moit_rng rng = moit_seed("pick", i);
        for (int k = 0; k < 12 && s.rows; k++) { /* central differences of the float64 function, step in exact FP32 */
            bool gain = k % 3 == 0;
            int64_t at = gain ? moit_below(&rng, s.width) : moit_below(&rng, s.rows) * s.ld + moit_below(&rng, s.heads * s.width);
            float *p = gain ? g + at : x + at, old = *p, lo, hi;
            hi = *p = old + 1e-3f;
            double up_loss = norm_loss(x, g, up, s, ldy, 1e-6f);
            lo = *p = old - 1e-3f;
            double down_loss = norm_loss(x, g, up, s, ldy, 1e-6f);
            *p = old;
            double want = (up_loss - down_loss) / ((double)hi - (double)lo);
            near((double)(gain ? dg[at] : dx[at]), want, 2e-4 * (1 + fabs(want)), gain ? "d gain" : "dx");
        }
        moit_free(x), moit_free(g), moit_free(up), moit_free(y), moit_free(rstd), moit_free(dx), moit_free(dg);
    }
}

static void test_rope(void **state)
{
    (void)state;
    enum { SEQ = 5, W = 6, HEADS = 2, LD = 15, ROWS = 10, PAST = 3 };
    float table[(SEQ + PAST) * W], *x = normals("rope", ROWS * LD, 1), *y = floats(ROWS * LD);
    for (int p = 0; p < SEQ + PAST; p++)
        for (int i = 0; i < W / 2; i++) {
            double angle = p * pow(10000.0, -2.0 * i / W);
            table[p * W + i] = (float)cos(angle), table[p * W + W / 2 + i] = (float)sin(angle);
        }
    memcpy(y, x, ROWS * LD * 4);
    moii_heads s = { ROWS, HEADS, W, LD };
    nn()->rope(moit_ctx(0), s, y, table, SEQ, PAST, false);
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < W / 2; i++) {
                double angle = (PAST + r % SEQ) * pow(10000.0, -2.0 * i / W);
                double a = (double)x[r * LD + h * W + i], b = (double)x[r * LD + h * W + W / 2 + i];
                near((double)y[r * LD + h * W + i], a * cos(angle) - b * sin(angle), 4 * 0x1p-24 * (fabs(a) + fabs(b)), "rope a");
                near((double)y[r * LD + h * W + W / 2 + i], b * cos(angle) + a * sin(angle), 4 * 0x1p-24 * (fabs(a) + fabs(b)), "rope b");
            }
    nn()->rope(moit_ctx(0), s, y, table, SEQ, PAST, true);
    for (int i = 0; i < ROWS * LD; i++) near((double)y[i], (double)x[i], 1e-6 * (1 + fabs((double)x[i])), "inverse");
    moit_free(x), moit_free(y);
}

/* ---- attention ---- */

/* sum of out * up in float64; out optional */
static double attention_loss(const moii_attention *a, const float *up, double *out, double *lse)
{
    int64_t keys = a->past + a->queries;
    double total = 0, *p = malloc((size_t)(keys + 1) * sizeof *p);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->queries; i++) {
                int64_t kv = h / (a->heads / a->kv_heads), seen = a->past + i + 1;
                const float *q = a->q + (b * a->queries + i) * a->ldq + h * a->width;
                double sum = 0;
                for (int64_t j = 0; j < seen; j++) {
                    const float *k = a->k + (b * keys + j) * a->ldk + kv * a->width;
                    double s = 0;
                    for (int64_t c = 0; c < a->width; c++) s += (double)q[c] * (double)k[c];
                    sum += p[j] = exp((double)a->scale * s);
                }
                if (lse) lse[(b * a->heads + h) * a->queries + i] = log(sum);
                for (int64_t c = 0; c < a->width; c++) {
                    double o = 0;
                    for (int64_t j = 0; j < seen; j++) o += p[j] / sum * (double)a->v[(b * keys + j) * a->ldv + kv * a->width + c];
                    int64_t at = (b * a->queries + i) * a->ldo + h * a->width + c;
                    if (out) out[at] = o;
                    total += o * (double)up[at];
                }
            }
    free(p);
    return total;
}

typedef struct attention_case { int64_t batch, queries, past, heads, kv_heads, width; } attention_case;
static const attention_case attention_cases[] = {
    { 1, 1, 0, 1, 1, 4 }, { 2, 5, 0, 4, 2, 8 }, { 1, 70, 0, 3, 1, 6 }, { 2, 130, 0, 2, 2, 16 },
    { 1, 1, 9, 4, 2, 8 }, { 1, 7, 66, 4, 4, 8 }, { 1, 1, 300, 8, 2, 4 },
};

static void finite_differences(moii_attention *a, const float *up, uint64_t salt)
{
    int64_t keys = a->past + a->queries;
    moit_rng rng = moit_seed("attention", salt);
    for (int k = 0; k < 9; k++) {
        int64_t rows = a->batch * (k % 3 ? keys : a->queries), width = a->width * (k % 3 ? a->kv_heads : a->heads);
        int64_t r = moit_below(&rng, rows), c = moit_below(&rng, width);
        const float *base = k % 3 == 0 ? a->q : k % 3 == 1 ? a->k : a->v;
        int64_t ld = k % 3 == 0 ? a->ldq : k % 3 == 1 ? a->ldk : a->ldv;
        float *p = (float *)(uintptr_t)(base + r * ld + c), old = *p;
        float got = k % 3 == 0 ? a->d_q[r * a->ld_dq + c] : k % 3 == 1 ? a->d_k[r * a->ld_dk + c] : a->d_v[r * a->ld_dv + c];
        float hi = *p = old + 1e-3f;
        double above = attention_loss(a, up, NULL, NULL);
        float lo = *p = old - 1e-3f;
        double below = attention_loss(a, up, NULL, NULL), want = (above - below) / ((double)hi - (double)lo);
        *p = old;
        near((double)got, want, 2e-5 * (1 + fabs(want)), k % 3 == 0 ? "d_q" : k % 3 == 1 ? "d_k" : "d_v");
    }
}

static void test_attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attention_cases / sizeof *attention_cases; i++) {
        attention_case t = attention_cases[i];
        int64_t keys = t.past + t.queries, qw = t.heads * t.width + 3, kw = 2 * t.kv_heads * t.width + 1;
        int64_t nq = t.batch * t.queries * qw, nk = t.batch * keys * kw, nl = t.batch * t.heads * t.queries;
        float *q = normals("q", nq, 1), *kv = normals("kv", nk, 1), *up = normals("up", nq, 1);
        float *out = floats(nq), *lse = floats(nl), *dq = floats(nq), *dkv = floats(nk);
        double *want = malloc((size_t)nq * sizeof *want), *want_lse = malloc((size_t)nl * sizeof *want_lse);
        moii_attention a = { t.batch, t.queries, t.past, t.heads, t.kv_heads, t.width, 1.0f / sqrtf((float)t.width), q, kv,
                             kv + t.kv_heads * t.width, out, qw, kw, kw, qw, lse, up, dq, dkv, dkv + t.kv_heads * t.width, qw, kw, kw };
        void *ws = moit_alloc(nn()->attention_workspace(moit_ctx(0), &a, false));
        nn()->attention(moit_ctx(0), &a, ws);
        moit_free(ws);
        attention_loss(&a, up, want, want_lse);
        for (int64_t r = 0; r < t.batch * t.queries; r++)
            for (int64_t c = 0; c < t.heads * t.width; c++) near((double)out[r * qw + c], want[r * qw + c], 4e-6, "attention");
        for (int64_t j = 0; j < nl; j++) near((double)lse[j], want_lse[j], 4e-6 * (1 + fabs(want_lse[j])), "lse");
        if (!t.past) {
            ws = moit_alloc(nn()->attention_workspace(moit_ctx(0), &a, true));
            nn()->attention_backward(moit_ctx(0), &a, ws);
            moit_free(ws);
            finite_differences(&a, up, i);
        }
        free(want), free(want_lse);
        moit_free(q), moit_free(kv), moit_free(up), moit_free(out), moit_free(lse), moit_free(dq), moit_free(dkv);
    }
}

/* ---- tokens, loss, optimiser ---- */

static void test_embedding(void **state)
{
    (void)state;
    enum { V = 7, W = 37, ROWS = 50 };
    float *table = normals("table", V * W, 1), *dt = floats(V * W), *y = floats(ROWS * W), *dy = normals("dy", ROWS * W, 1);
    int32_t ids[ROWS];
    double want[V * W] = { 0 };
    for (int r = 0; r < ROWS; r++) ids[r] = r * r % V;
    memset(dt, 0, V * W * 4);
    nn()->embed(moit_ctx(0), table, ids, ROWS, W, y);
    nn()->embed_backward(moit_ctx(0), dt, ids, ROWS, W, dy);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < W; c++) {
            assert_true(y[r * W + c] == table[ids[r] * W + c]);
            want[ids[r] * W + c] += (double)dy[r * W + c];
        }
    for (int i = 0; i < V * W; i++) near((double)dt[i], want[i], 1e-5, "d table");
    moit_free(table), moit_free(dt), moit_free(y), moit_free(dy);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    static const int64_t vocabs[] = { 1, 2, 31, 513, 1500 };
    enum { ROWS = 9 };
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        int64_t v = vocabs[i];
        float *x = normals("logits", ROWS * v, 4), *y = floats(ROWS * v), loss[ROWS], again[ROWS];
        int32_t target[ROWS];
        x[0] = 80.0f, x[v - 1] = -120.0f;
        memcpy(y, x, (size_t)(ROWS * v) * 4);
        for (int r = 0; r < ROWS; r++) target[r] = (int32_t)(r * 5 % v);
        nn()->cross_entropy(moit_ctx(0), y, target, ROWS, v, again, false, 0);
        assert_memory_equal(x, y, (size_t)(ROWS * v) * 4);
        nn()->cross_entropy(moit_ctx(0), y, target, ROWS, v, loss, true, 0.5f);
        assert_memory_equal(loss, again, sizeof loss);
        for (int r = 0; r < ROWS; r++) {
            double top = -1e300, sum = 0;
            for (int64_t c = 0; c < v; c++) top = fmax(top, (double)x[r * v + c]);
            for (int64_t c = 0; c < v; c++) sum += exp((double)x[r * v + c] - top);
            near((double)loss[r], top + log(sum) - (double)x[r * v + target[r]], 2e-6 * (2 + fabs((double)loss[r])), "loss");
            for (int64_t c = 0; c < v; c++)
                near((double)y[r * v + c], 0.5 * (exp((double)x[r * v + c] - top) / sum - (c == target[r])), 1e-6, "d logits");
        }
        y[0] = NAN;
        nn()->cross_entropy(moit_ctx(0), y, target, ROWS, v, loss, false, 0);
        assert_true(isnan(loss[0]) && !isnan(loss[1]));
        moit_free(x), moit_free(y);
    }
}

static void test_exp(void **state)
{
    (void)state;
    enum { N = 20001 };
    float *x = floats(N);
    for (int i = 0; i < N; i++) x[i] = -90.0f + (float)i * (90.0f / (N - 1));
    float *y = floats(N), l;
    int32_t last = N - 1;
    memcpy(y, x, N * 4);
    nn()->cross_entropy(moit_ctx(0), y, &last, 1, N, &l, true, 1.0f);
    double sum = 0;
    for (int i = 0; i < N; i++) sum += exp((double)x[i]);
    for (int i = 0; i < N - 1; i++) {
        double want = exp((double)x[i]) / sum;
        near((double)y[i], x[i] < -87.3f ? 0 : want, 1e-6 * want + 1e-42, "exp");
    }
    moit_free(x), moit_free(y);
}

static void test_adamw_and_sums(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 17, 513, 40000 };
    moii_adamw how = { 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 1 - 0.9f * 0.9f, 1 - 0.95f * 0.95f, 0.5f };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = sizes[i];
        float *w = normals("w", n, 1), *g = normals("g", n, 1), *m = normals("m", n, 0.1f), *v = normals("v", n, 0.1f), *z = floats(n);
        double sum = 0, squares = 0, magnitude = 0;
        for (int64_t j = 0; j < n; j++) {
            v[j] = fabsf(v[j]);
            sum += (double)g[j], squares += (double)g[j] * (double)g[j], magnitude += fabs((double)g[j]);
        }
        near(nn()->sum(moit_ctx(0), g, n), sum, 1e-12 * (1 + magnitude), "sum");
        near(nn()->squared_norm(moit_ctx(0), g, n), squares, 1e-6 * squares, "squared norm");
        nn()->add(moit_ctx(0), z, w, g, n);
        for (int64_t j = 0; j < n; j++) assert_true(z[j] == w[j] + g[j]);
        memcpy(z, w, (size_t)n * 4);
        float *m0 = floats(n), *v0 = floats(n);
        memcpy(m0, m, (size_t)n * 4), memcpy(v0, v, (size_t)n * 4);
        nn()->adamw(moit_ctx(0), w, g, m, v, n, &how);
        for (int64_t j = 0; j < n; j++) {
            double gj = 0.5 * (double)g[j], mj = 0.9 * (double)m0[j] + 0.1 * gj, vj = 0.95 * (double)v0[j] + 0.05 * gj * gj;
            double step = mj / 0.19 / (sqrt(vj / 0.0975) + 1e-8) + 0.1 * (double)z[j];
            near((double)w[j], (double)z[j] - 1e-2 * step, 1e-6 * (1 + fabs((double)z[j])), "adamw");
        }
        nn()->zero(moit_ctx(0), z, n);
        for (int64_t j = 0; j < n; j++) assert_true(z[j] == 0.0f);
        moit_free(w), moit_free(g), moit_free(m), moit_free(v), moit_free(z), moit_free(m0), moit_free(v0);
    }
}

/* P:det, and more than it says: the bits do not depend on the number of threads. */
static void test_threads(void **state)
{
    (void)state;
    enum { B = 2, Q = 70, HEADS = 4, KV = 2, W = 8, ROWS = B * Q, LDQ = HEADS * W, LDK = KV * W };
    float *q = normals("q", ROWS * LDQ, 1), *k = normals("k", ROWS * LDK, 1), *v = normals("v", ROWS * LDK, 1), *up = normals("u", ROWS * LDQ, 1);
    float *first = NULL, gain[LDQ] = { 0 };
    int64_t n = ROWS * (4 * LDQ + 2 * LDK) + LDQ + 1;
    for (int threads = 1; threads <= 3; threads++) {
        moi_ctx_config config = MOI_CTX_CONFIG_INIT;
        config.threads = threads;
        config.backend = MOI_BACKEND_CPU;
        moi_ctx *ctx;
        moit_ok(moi_ctx_create(&ctx, &config));
        float *r = floats(n), *out = r, *dq = out + ROWS * LDQ, *y = dq + ROWS * LDQ, *dx = y + ROWS * LDQ, *dk = dx + ROWS * LDQ,
              *dv = dk + ROWS * LDK, *dg = dv + ROWS * LDK, *lse = floats(B * HEADS * Q), *rstd = floats(ROWS);
        memset(r, 0, (size_t)n * 4);
        moii_attention a = { B, Q, 0, HEADS, KV, W, 0.35f, q, k, v, out, LDQ, LDK, LDK, LDQ, lse, up, dq, dk, dv, LDQ, LDK, LDK };
        void *ws = moit_alloc(nn()->attention_workspace(ctx, &a, true));
        nn()->attention(ctx, &a, ws);
        nn()->attention_backward(ctx, &a, ws);
        moii_heads s = { ROWS, 1, LDQ, LDQ };
        nn()->rmsnorm(ctx, s, q, gain, 1e-6f, LDQ, y, rstd);
        nn()->rmsnorm_backward(ctx, s, q, up, rstd, LDQ, up, LDQ, dx, false, dg);
        r[n - 1] = (float)nn()->squared_norm(ctx, q, ROWS * LDQ);
        if (first) assert_memory_equal(first, r, (size_t)n * 4);
        if (first) moit_free(r);
        else first = r;
        moit_free(ws), moit_free(lse), moit_free(rstd);
        moi_ctx_free(ctx);
    }
    moit_free(first), moit_free(q), moit_free(k), moit_free(v), moit_free(up);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm), cmocka_unit_test(test_rope), cmocka_unit_test(test_attention),
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_exp),
        cmocka_unit_test(test_adamw_and_sums), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("nn", tests, NULL, NULL);
}
