/* SPDX-License-Identifier: Apache-2.0 */
#include "support_moe.h"

#include <math.h>
#include <stdlib.h>

static const double U = 0x1p-24;

static moit_mat make(int64_t rows, int64_t cols)
{
    size_t n = (size_t)(rows * cols + 1);
    return (moit_mat){ rows, cols, calloc(n, sizeof(double)), calloc(n, sizeof(double)) };
}
static void drop(moit_mat *m) { free(m->v), free(m->e), *m = (moit_mat){ 0 }; }
static moit_mat copy(const moit_mat *m)
{
    moit_mat c = make(m->rows, m->cols);
    memcpy(c.v, m->v, (size_t)(m->rows * m->cols) * sizeof(double));
    memcpy(c.e, m->e, (size_t)(m->rows * m->cols) * sizeof(double));
    return c;
}
static moit_mat from(const double *v, int64_t rows, int64_t cols)
{
    moit_mat m = make(rows, cols);
    if (rows * cols > 0) memcpy(m.v, v, (size_t)(rows * cols) * sizeof(double));
    return m;
}

/* d[at] = sum of n terms a * b, one step of `as` and `bs` apart. */
static void dot(moit_mat *d, int64_t at, const moit_mat *a, int64_t ai, int64_t as, const moit_mat *b, int64_t bi, int64_t bs, int64_t n)
{
    double sum = 0, error = 0;
    for (int64_t l = 0; l < n; l++, ai += as, bi += bs) {
        sum += a->v[ai] * b->v[bi];
        error += a->e[ai] * fabs(b->v[bi]) + (fabs(a->v[ai]) + a->e[ai]) * b->e[bi] + (double)(n + 4) * U * fabs(a->v[ai] * b->v[bi]);
    }
    d->v[at] += sum, d->e[at] += error;
}

static double round_to(moi_dtype t, double v)
{
    float out;
    moi_encode(t, &out, 0, (float)v);
    return (double)moi_decode(t, &out, 0);
}

/* A result that the layer stores in `t`.  Exact recipe: not rounded, but the error grows by what the rounding may do. */
static void stored(const moit_moe *m, moit_mat *a, moi_dtype t)
{
    for (int64_t i = 0; i < a->rows * a->cols; i++) {
        if (m->d.recipe != MOI_RECIPE_F32) a->v[i] = round_to(t, a->v[i]);
        else if (t == MOI_BF16) a->e[i] += 0x1p-8 * (fabs(a->v[i]) + a->e[i]);
    }
}

static double power_above(double ratio) /* smallest power of two >= ratio */
{
    int e;
    double fraction = frexp(ratio, &e);
    return ldexp(fraction == 0.5 ? 0.5 : 1.0, e);
}

static double scale_of(const moi_moe_desc *d, moi_dtype elem, double amax)
{
    double max = moi_dtype_max(elem);
    if (amax == 0) return 1;
    if (d->recipe == MOI_RECIPE_MX32)
        return fmax(d->round == MOI_ROUND_FLOOR ? ldexp(1, ilogb(amax) - ilogb(max)) : power_above(amax / max), 0x1p-127);
    return fmax(d->flags & MOI_SCALE_POW2 ? power_above(amax / max) : (double)((float)amax / (float)max), 0x1p-126);
}

/* Quantises and dequantises in place the matrix whose element (i, j) is m[i * si + j * sj], blocks along j. */
static void fake(const moi_moe_desc *d, moi_dtype elem, bool square, double *m, int64_t ni, int64_t nj, int64_t si, int64_t sj)
{
    int64_t width = d->recipe == MOI_RECIPE_MX32 ? 32 : 128, height = square ? 128 : 1;
    if (d->recipe == MOI_RECIPE_F32) return;
    if (d->recipe == MOI_RECIPE_BF16) {
        for (int64_t i = 0; i < ni; i++)
            for (int64_t j = 0; j < nj; j++) m[i * si + j * sj] = round_to(MOI_BF16, m[i * si + j * sj]);
        return;
    }
    for (int64_t i0 = 0; i0 < ni; i0 += height) {
        for (int64_t j0 = 0; j0 < nj; j0 += width) {
            double amax = 0;
            for (int64_t i = i0; i < ni && i < i0 + height; i++)
                for (int64_t j = j0; j < nj && j < j0 + width; j++) amax = fmax(amax, fabs(m[i * si + j * sj]));
            double s = scale_of(d, elem, amax);
            float inverse = 1.0f / (float)s;
            for (int64_t i = i0; i < ni && i < i0 + height; i++)
                for (int64_t j = j0; j < nj && j < j0 + width; j++)
                    m[i * si + j * sj] = s * round_to(elem, (double)((float)m[i * si + j * sj] * inverse));
        }
    }
}

/* Everything between the inputs and the results.  Rows are sorted by expert; `_r` and `_c`: quantised row-wise and
 * column-wise (cut into groups); the weights' `_c` is quantised along their rows. */
typedef struct inner {
    const moit_moe *m;
    int64_t rows, *offsets, *token_of, *slot_of;
    moi_dtype mid;
    bool routed;
    double p_error; /* relative */
    moit_mat x, router, logits, p, w, xs_r, xs_c, gu_r, gu_c, down_r, down_c, gate_up, act_r, act_c, ys;
} inner;

static moit_mat quantized(const inner *n, const moit_mat *a, moi_dtype elem, bool by_column)
{
    moit_mat q = copy(a);
    if (!by_column) fake(&n->m->d, elem, false, q.v, q.rows, q.cols, q.cols, 1);
    else
        for (int64_t e = 0; e < n->m->d.experts; e++)
            fake(&n->m->d, elem, false, q.v + n->offsets[e] * q.cols, q.cols, n->offsets[e + 1] - n->offsets[e], 1, q.cols);
    return q;
}

static moit_mat quantized_weights(const inner *n, const double *v, int64_t rows, int64_t cols, bool by_column)
{
    const moi_moe_desc *d = &n->m->d;
    bool square = d->recipe == MOI_RECIPE_BLK128;
    moit_mat q = from(v, d->experts * rows, cols);
    for (int64_t e = 0; e < d->experts; e++) {
        double *w = q.v + e * rows * cols;
        if (by_column) fake(d, d->elem_forward, square, w, cols, rows, 1, cols);
        else fake(d, d->elem_forward, square, w, rows, cols, cols, 1);
    }
    return q;
}

static void choose(const inner *n, int64_t t, int32_t *ids)
{
    int64_t e = n->m->d.experts;
    for (int64_t s = 0; s < n->m->d.top_k; s++) {
        int64_t best = -1;
        for (int64_t i = 0; i < e; i++) {
            bool taken = false;
            for (int64_t o = 0; o < s; o++) taken |= ids[o] == i;
            if (!taken && (best < 0 || n->p.v[t * e + i] > n->p.v[t * e + best])) best = i;
        }
        ids[s] = (int32_t)best;
    }
}

static void route(inner *n, moit_moe *m)
{
    int64_t e = m->d.experts, k = m->d.top_k, h = m->d.hidden;
    double most = 0;
    for (int64_t t = 0; t < m->tokens; t++) {
        double max = -INFINITY, sum = 0;
        for (int64_t i = 0; i < e && n->routed; i++) {
            dot(&n->logits, t * e + i, &n->x, t * h, 1, &n->router, i * h, 1, h);
            max = fmax(max, n->logits.v[t * e + i]), most = fmax(most, n->logits.e[t * e + i]);
        }
        for (int64_t i = 0; i < e; i++) sum += n->p.v[t * e + i] = n->routed ? exp(n->logits.v[t * e + i] - max) : 1;
        for (int64_t i = 0; i < e; i++) n->p.v[t * e + i] /= sum;
        if (!m->fixed_ids) choose(n, t, m->ids + t * k);
    }
    n->p_error = n->routed ? 2 * most + 4 * U : 0;
    for (int64_t i = 0; i < m->tokens * e; i++) n->p.e[i] = n->p_error * n->p.v[i];
    for (int64_t t = 0; t < m->tokens; t++) {
        double sum = 0;
        for (int64_t s = t * k; s < (t + 1) * k; s++) sum += n->p.v[t * e + m->ids[s]];
        for (int64_t s = t * k; s < (t + 1) * k; s++) {
            n->w.v[s] = n->p.v[t * e + m->ids[s]] / (m->d.renormalize ? sum : 1);
            n->w.e[s] = n->w.v[s] * (m->d.renormalize ? 2 : 1) * n->p_error;
        }
    }
    int64_t r = 0;
    for (int64_t i = 0; i < e; i++) {
        for (int64_t s = 0; s < n->rows; s++)
            if (m->ids[s] == i) n->token_of[r] = s / k, n->slot_of[r++] = s;
        n->offsets[i + 1] = r;
    }
}

/* share[e] = coef * E * count_e / t^2: the loss is sum of share * p, and share its gradient. */
static double aux_share(const inner *n, int64_t e)
{
    double t = (double)n->m->tokens;
    return n->routed ? (double)n->m->d.aux_coef * (double)n->m->d.experts * (double)(n->offsets[e + 1] - n->offsets[e]) / (t * t) : 0;
}

/* silu(g) and its derivative. */
static double silu(double g) { return g / (1 + exp(-g)); }
static double slope(double g)
{
    double s = 1 / (1 + exp(-g));
    return s * (1 + g * (1 - s));
}

static void experts(inner *n)
{
    const moi_moe_desc *d = &n->m->d;
    int64_t h = d->hidden, f = d->width;
    moit_mat xs = make(n->rows, h), act = make(n->rows, f);
    for (int64_t r = 0; r < n->rows; r++) memcpy(xs.v + r * h, n->x.v + n->token_of[r] * h, (size_t)h * sizeof(double));
    n->xs_r = quantized(n, &xs, d->elem_forward, false), n->xs_c = quantized(n, &xs, d->elem_forward, true);
    for (int64_t e = 0; e < d->experts; e++)
        for (int64_t r = n->offsets[e]; r < n->offsets[e + 1]; r++)
            for (int64_t j = 0; j < 2 * f; j++)
                dot(&n->gate_up, r * 2 * f + j, &n->xs_r, r * h, 1, &n->gu_r, (e * 2 * f + j) * h, 1, h);
    stored(n->m, &n->gate_up, n->mid);
    for (int64_t r = 0; r < n->rows; r++) {
        for (int64_t j = 0; j < f; j++) {
            int64_t i = r * 2 * f + j;
            double g = n->gate_up.v[i], u = n->gate_up.v[i + f];
            act.v[r * f + j] = silu(g) * u;
            act.e[r * f + j] = fabs(slope(g) * u) * n->gate_up.e[i] + fabs(silu(g)) * n->gate_up.e[i + f] + 8 * U * fabs(silu(g) * u);
        }
    }
    stored(n->m, &act, n->mid);
    n->act_r = quantized(n, &act, d->elem_forward, false), n->act_c = quantized(n, &act, d->elem_forward, true);
    for (int64_t e = 0; e < d->experts; e++)
        for (int64_t r = n->offsets[e]; r < n->offsets[e + 1]; r++)
            for (int64_t j = 0; j < h; j++) dot(&n->ys, r * h + j, &n->act_r, r * f, 1, &n->down_r, (e * h + j) * f, 1, f);
    stored(n->m, &n->ys, d->io);
    drop(&xs), drop(&act);
}

static void combine(const inner *n, moit_moe *m)
{
    int64_t h = m->d.hidden;
    for (int64_t r = 0; r < n->rows; r++)
        for (int64_t j = 0; j < h; j++) dot(&m->y, n->token_of[r] * h + j, &n->w, n->slot_of[r], 1, &n->ys, r * h + j, 1, 1);
    for (int64_t i = 0; i < m->tokens * h; i++) m->y.e[i] += (double)m->d.top_k * U * fabs(m->y.v[i]);
    m->objective = m->aux = 0;
    for (int64_t i = 0; i < m->tokens * h; i++) m->objective += m->y.v[i] * m->d_y[i];
    stored(m, &m->y, m->d.io);
    for (int64_t e = 0; e < m->d.experts; e++)
        for (int64_t t = 0; t < m->tokens; t++) m->aux += aux_share(n, e) * n->p.v[t * m->d.experts + e];
    m->aux_error = m->aux * (n->p_error + 4 * U);
    m->objective += m->aux;
}

/* d_logits: dp = share + (d_w - mean) / sum of the chosen; d_logits = p (dp - sum p dp). */
static moit_mat route_backward(const inner *n, const moit_mat *dw)
{
    const moit_moe *m = n->m;
    int64_t e = m->d.experts, k = m->d.top_k;
    moit_mat dl = make(m->tokens, e), dp = make(m->tokens, e);
    for (int64_t t = 0; t < m->tokens; t++) {
        double sum = 1, mean = 0, mean_e = 0, all = 0, all_e = 0;
        if (m->d.renormalize) {
            sum = 0;
            for (int64_t s = t * k; s < (t + 1) * k; s++) {
                sum += n->p.v[t * e + m->ids[s]], mean += dw->v[s] * n->w.v[s];
                mean_e += dw->e[s] * n->w.v[s] + fabs(dw->v[s]) * n->w.e[s];
            }
        }
        for (int64_t i = 0; i < e; i++) dp.v[t * e + i] = aux_share(n, i);
        for (int64_t s = t * k; s < (t + 1) * k; s++) {
            int64_t at = t * e + m->ids[s];
            dp.v[at] += (dw->v[s] - mean) / sum;
            dp.e[at] += (dw->e[s] + mean_e + fabs(dw->v[s] - mean) * n->p_error) / sum;
        }
        for (int64_t i = t * e; i < (t + 1) * e; i++) {
            all += n->p.v[i] * dp.v[i];
            all_e += n->p.e[i] * fabs(dp.v[i]) + n->p.v[i] * (dp.e[i] + 4 * U * fabs(dp.v[i]));
        }
        for (int64_t i = t * e; i < (t + 1) * e; i++) {
            dl.v[i] = n->p.v[i] * (dp.v[i] - all);
            dl.e[i] = n->p.e[i] * fabs(dp.v[i] - all) + n->p.v[i] * (dp.e[i] + all_e + 8 * U * (fabs(dp.v[i]) + fabs(all)));
        }
    }
    drop(&dp);
    return dl;
}

static moit_mat swiglu_backward(const inner *n, const moit_mat *da)
{
    int64_t f = n->m->d.width;
    moit_mat dg = make(n->rows, 2 * f);
    for (int64_t r = 0; r < n->rows; r++) {
        for (int64_t j = 0; j < f; j++) {
            int64_t i = r * 2 * f + j, o = r * f + j;
            double g = n->gate_up.v[i], u = n->gate_up.v[i + f], ge = n->gate_up.e[i], ue = n->gate_up.e[i + f], a = da->v[o], ae = da->e[o];
            dg.v[i] = a * u * slope(g), dg.v[i + f] = a * silu(g); /* |silu''| <= 1/2 */
            dg.e[i] = ae * fabs(u * slope(g)) + fabs(a * slope(g)) * ue + fabs(a * u) * 0.5 * ge + 8 * U * fabs(dg.v[i]);
            dg.e[i + f] = ae * fabs(silu(g)) + fabs(a * slope(g)) * ge + 8 * U * fabs(dg.v[i + f]);
        }
    }
    stored(n->m, &dg, n->mid);
    return dg;
}

static void backward(const inner *n, moit_moe *m)
{
    const moi_moe_desc *d = &m->d;
    int64_t h = d->hidden, f = d->width, e = d->experts;
    moit_mat dy = from(m->d_y, m->tokens, h), dys = make(n->rows, h), dw = make(m->tokens, d->top_k), da = make(n->rows, f);
    for (int64_t r = 0; r < n->rows; r++) {
        int64_t t = n->token_of[r], s = n->slot_of[r];
        for (int64_t j = 0; j < h; j++) dot(&dys, r * h + j, &n->w, s, 1, &dy, t * h + j, 1, 1);
        dot(&dw, s, &dy, t * h, 1, &n->ys, r * h, 1, h);
    }
    stored(m, &dys, d->io);
    moit_mat dy_r = quantized(n, &dys, d->elem_gradient, false), dy_c = quantized(n, &dys, d->elem_gradient, true);
    for (int64_t g = 0; g < e; g++) {
        int64_t o = n->offsets[g], rows = n->offsets[g + 1] - o;
        for (int64_t r = o; r < o + rows; r++)
            for (int64_t j = 0; j < f; j++) dot(&da, r * f + j, &dy_r, r * h, 1, &n->down_c, g * h * f + j, f, h);
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < f; j++) dot(&m->d_down, (g * h + i) * f + j, &dy_c, o * h + i, h, &n->act_c, o * f + j, f, rows);
    }
    stored(m, &da, n->mid);
    moit_mat dg = swiglu_backward(n, &da), dg_r = quantized(n, &dg, d->elem_gradient, false), dg_c = quantized(n, &dg, d->elem_gradient, true);
    for (int64_t g = 0; g < e; g++) {
        int64_t o = n->offsets[g], rows = n->offsets[g + 1] - o;
        for (int64_t r = o; r < o + rows; r++)
            for (int64_t j = 0; j < h; j++)
                dot(&m->d_x, n->token_of[r] * h + j, &dg_r, r * 2 * f, 1, &n->gu_c, g * 2 * f * h + j, h, 2 * f);
        for (int64_t i = 0; i < 2 * f; i++)
            for (int64_t j = 0; j < h; j++) dot(&m->d_gate_up, (g * 2 * f + i) * h + j, &dg_c, o * 2 * f + i, 2 * f, &n->xs_c, o * h + j, h, rows);
    }
    if (n->routed) {
        moit_mat dl = route_backward(n, &dw);
        for (int64_t j = 0; j < h; j++) {
            for (int64_t t = 0; t < m->tokens; t++) dot(&m->d_x, t * h + j, &dl, t * e, 1, &n->router, j, h, e);
            for (int64_t i = 0; i < e; i++) dot(&m->d_router, i * h + j, &dl, i, e, &n->x, j, h, m->tokens);
        }
        drop(&dl);
    }
    for (int64_t i = 0; i < m->tokens * h; i++) m->d_x.e[i] += (double)(d->top_k + 4) * U * fabs(m->d_x.v[i]);
    stored(m, &m->d_x, d->io);
    drop(&dy), drop(&dys), drop(&dw), drop(&da), drop(&dy_r), drop(&dy_c), drop(&dg), drop(&dg_r), drop(&dg_c);
}

void moit_moe_run(moit_moe *m, bool with_backward)
{
    const moi_moe_desc *d = &m->d;
    int64_t h = d->hidden, f = d->width, e = d->experts, t = m->tokens, rows = t * d->top_k;
    inner n = { .m = m, .rows = rows, .mid = d->recipe == MOI_RECIPE_F32 ? MOI_F32 : MOI_BF16, .routed = e > 1 };
    n.offsets = calloc((size_t)e + 1, sizeof(int64_t));
    n.token_of = calloc((size_t)rows + 1, sizeof(int64_t)), n.slot_of = calloc((size_t)rows + 1, sizeof(int64_t));
    n.x = from(m->x, t, h), n.router = from(m->router, e, h), n.logits = make(t, e), n.p = make(t, e), n.w = make(t, d->top_k);
    n.gate_up = make(rows, 2 * f), n.ys = make(rows, h);
    n.gu_r = quantized_weights(&n, m->gate_up, 2 * f, h, false), n.gu_c = quantized_weights(&n, m->gate_up, 2 * f, h, true);
    n.down_r = quantized_weights(&n, m->down, h, f, false), n.down_c = quantized_weights(&n, m->down, h, f, true);
    m->y = make(t, h), m->d_x = make(t, h), m->d_router = make(e, h), m->d_gate_up = make(e * 2 * f, h), m->d_down = make(e * h, f);
    route(&n, m);
    experts(&n);
    combine(&n, m);
    if (with_backward) backward(&n, m);
    moit_mat *all[] = { &n.x, &n.router, &n.logits, &n.p, &n.w, &n.xs_r, &n.xs_c, &n.gu_r, &n.gu_c, &n.down_r, &n.down_c, &n.gate_up,
                        &n.act_r, &n.act_c, &n.ys };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
    free(n.offsets), free(n.token_of), free(n.slot_of);
}

void moit_moe_clear(moit_moe *m)
{
    drop(&m->y), drop(&m->d_x), drop(&m->d_router), drop(&m->d_gate_up), drop(&m->d_down);
}
