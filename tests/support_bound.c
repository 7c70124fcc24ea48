/* SPDX-License-Identifier: Apache-2.0 */
#include "support_bound.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../src/lm/config.h"

static const double U = 0x1p-24, HALF = 0x1p-9;

/* n numbers and the variances of their errors */
typedef struct val { double *x, *v; } val;

static val make(int64_t n) { return (val){ calloc((size_t)n + 1, sizeof(double)), calloc((size_t)n + 1, sizeof(double)) }; }
static void drop(val a) { free(a.x), free(a.v); }
static val at(val a, int64_t i) { return (val){ a.x + i, a.v + i }; }
static double sq(double x) { return x * x; }

/* y [rows, out] = x [rows, in] w^T; rounded: x is rounded to BF16 before */
static void linear(val y, val x, const float *w, int64_t rows, int64_t in, int64_t out, bool rounded)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double s = 0, v = 0, squares = 0;
            for (int64_t i = 0; i < in; i++) {
                const double wi = (double)w[o * in + i], xi = x.x[r * in + i];
                s += wi * xi;
                v += sq(wi) * (x.v[r * in + i] + (rounded ? sq(HALF * xi) : 0));
                squares += sq(wi * xi);
            }
            y.x[r * out + o] = s;
            y.v[r * out + o] = v + (double)in * sq(U) * squares + sq(U * s);
        }
}

static void norm(val y, val x, const float *g, int64_t rows, int64_t width, double eps)
{
    for (int64_t r = 0; r < rows; r++) {
        double s = 0, moved = 0;
        for (int64_t c = r * width; c < (r + 1) * width; c++) s += sq(x.x[c]), moved += sq(x.x[c]) * x.v[c];
        s = 1 / sqrt(s / (double)width + eps);
        moved *= sq(sq(s) / (double)width);
        for (int64_t c = r * width; c < (r + 1) * width; c++) {
            const double gain = s * (double)g[c - r * width];
            y.x[c] = x.x[c] * gain;
            y.v[c] = sq(gain) * (x.v[c] + sq(x.x[c]) * moved) + sq(4 * U * y.x[c]);
        }
    }
}

static void rotate(val x, int64_t rows, int64_t heads, int64_t d, int64_t seq, double theta)
{
    for (int64_t i = 0; i < rows * heads * d; i++) {
        const int64_t half = d / 2, c = i % d, r = i / (heads * d);
        if (c >= half) continue;
        const double angle = (double)(r % seq) / pow(theta, 2.0 * (double)c / (double)d), co = cos(angle), si = sin(angle);
        const double a = x.x[i], b = x.x[i + half], va = x.v[i], vb = x.v[i + half], added = sq(2 * U) * (sq(a) + sq(b));
        x.x[i] = a * co - b * si, x.x[i + half] = b * co + a * si;
        x.v[i] = sq(co) * va + sq(si) * vb + added, x.v[i + half] = sq(co) * vb + sq(si) * va + added;
    }
}

/* One query row of one head over keys 0..n-1, `ld` apart. */
static void attend_row(val out, val q, val k, val v, int64_t n, int64_t d, int64_t ld)
{
    val p = make(n);
    double sum = 0, most = -INFINITY, mean = 0;
    for (int64_t j = 0; j < n; j++) {
        double s = 0, var = 0, squares = 0;
        for (int64_t e = 0; e < d; e++) {
            const double a = q.x[e], b = k.x[j * ld + e];
            s += a * b, squares += sq(a * b), var += sq(a) * k.v[j * ld + e] + sq(b) * q.v[e];
        }
        p.x[j] = s / sqrt((double)d);
        p.v[j] = (var + (double)d * sq(U) * squares) / (double)d;
        most = fmax(most, p.x[j]);
    }
    for (int64_t j = 0; j < n; j++) sum += p.x[j] = exp(p.x[j] - most);
    for (int64_t j = 0; j < n; j++) p.x[j] /= sum, mean += sq(p.x[j]) * p.v[j];
    for (int64_t e = 0; e < d; e++) {
        out.x[e] = out.v[e] = 0;
        for (int64_t j = 0; j < n; j++) {
            const double w = p.x[j], x = v.x[j * ld + e], vw = sq(w) * (p.v[j] + mean + sq(4 * U));
            out.x[e] += w * x;
            out.v[e] += sq(w) * v.v[j * ld + e] + sq(x) * vw + (double)n * sq(U * w * x);
        }
    }
    drop(p);
}

/* y += weight * down(silu(gate x) * up x) for one token */
static void expert(val y, val x, const moi_lm *lm, const char *prefix, int64_t h, int64_t f, double weight, double weight_v, bool half)
{
    val g = make(f), u = make(f), o = make(h);
    linear(g, x, moit_weight(lm, "%s.gate_proj.weight", prefix), 1, h, f, half);
    linear(u, x, moit_weight(lm, "%s.up_proj.weight", prefix), 1, h, f, half);
    for (int64_t i = 0; i < f; i++) {
        const double s = 1 / (1 + exp(-g.x[i])), silu = g.x[i] * s, slope = s * (1 + g.x[i] * (1 - s));
        u.v[i] = sq(slope * u.x[i]) * g.v[i] + sq(silu) * u.v[i];
        u.x[i] *= silu;
        u.v[i] += sq(8 * U * u.x[i]);
    }
    linear(o, u, moit_weight(lm, "%s.down_proj.weight", prefix), 1, f, h, half);
    for (int64_t i = 0; i < h; i++) {
        y.x[i] += weight * o.x[i];
        y.v[i] += sq(weight) * o.v[i] + sq(o.x[i]) * weight_v + sq(U * weight * o.x[i]) + sq(U * y.x[i]);
    }
    drop(g), drop(u), drop(o);
}

/* The experts of one token; false where another choice of them is within reach of the errors. */
static bool experts(val y, val x, const moi_lm *lm, int layer, bool half)
{
    const moi_lm_config *c = &lm->config;
    const int64_t h = c->hidden_size, e = c->num_experts, k = c->num_experts_per_tok;
    char prefix[64];
    bool sure = true, *chosen = calloc((size_t)e, 1);
    val z = make(e);
    double sum = 0, kept = 0, most = -INFINITY, mean = 0;
    linear(z, x, moit_weight(lm, "model.layers.%d.mlp.gate.weight", layer), 1, h, e, false);
    for (int64_t s = 0; s < k; s++) {
        int64_t best = -1;
        for (int64_t i = 0; i < e; i++)
            if (!chosen[i] && (best < 0 || z.x[i] > z.x[best])) best = i;
        chosen[best] = true;
    }
    for (int64_t i = 0; i < e; i++)
        for (int64_t j = 0; j < e; j++)
            if (chosen[i] && !chosen[j] && z.x[i] - z.x[j] < MOIT_SURE * sqrt(z.v[i] + z.v[j])) sure = false;
    for (int64_t i = 0; i < e; i++) most = fmax(most, z.x[i]);
    for (int64_t i = 0; i < e; i++) {
        const double p = exp(z.x[i] - most);
        sum += p;
        if (chosen[i]) kept += p;
        if (chosen[i] || !c->norm_topk_prob) mean += sq(p) * z.v[i];
    }
    const double total = c->norm_topk_prob ? kept : sum;
    for (int64_t i = 0; i < e; i++) {
        if (!chosen[i]) continue;
        const double w = exp(z.x[i] - most) / total;
        snprintf(prefix, sizeof prefix, "model.layers.%d.mlp.experts.%d", layer, (int)i);
        expert(y, x, lm, prefix, h, c->moe_intermediate_size, w, sq(w) * (z.v[i] + mean / sq(total) + sq(8 * U)), half);
    }
    drop(z);
    free(chosen);
    return sure;
}

static void add(val x, val y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x.x[i] += y.x[i], x.v[i] += y.v[i] + sq(U * x.x[i]);
}

static void attention(val x, val n, const moi_lm *lm, int l, int64_t batch, int64_t seq, bool half)
{
    const moi_lm_config *c = &lm->config;
    const int64_t t = batch * seq, h = c->hidden_size, d = c->head_dim, heads = c->num_attention_heads, kvs = c->num_key_value_heads;
    const double eps = (double)c->rms_norm_eps, theta = (double)c->rope_theta;
    val q = make(t * heads * d), k = make(t * kvs * d), v = make(t * kvs * d), a = make(t * heads * d), y = make(t * h);
    linear(q, n, moit_weight(lm, "model.layers.%d.self_attn.q_proj.weight", l), t, h, heads * d, half);
    linear(k, n, moit_weight(lm, "model.layers.%d.self_attn.k_proj.weight", l), t, h, kvs * d, half);
    linear(v, n, moit_weight(lm, "model.layers.%d.self_attn.v_proj.weight", l), t, h, kvs * d, half);
    norm(q, q, moit_weight(lm, "model.layers.%d.self_attn.q_norm.weight", l), t * heads, d, eps);
    norm(k, k, moit_weight(lm, "model.layers.%d.self_attn.k_norm.weight", l), t * kvs, d, eps);
    rotate(q, t, heads, d, seq, theta);
    rotate(k, t, kvs, d, seq, theta);
    for (int64_t r = 0; r < t; r++)
        for (int64_t i = 0; i < heads; i++) {
            const int64_t first = r / seq * seq * kvs * d + i * kvs / heads * d;
            attend_row(at(a, (r * heads + i) * d), at(q, (r * heads + i) * d), at(k, first), at(v, first), r % seq + 1, d, kvs * d);
        }
    linear(y, a, moit_weight(lm, "model.layers.%d.self_attn.o_proj.weight", l), t, heads * d, h, half);
    add(x, y, t * h);
    drop(q), drop(k), drop(v), drop(a), drop(y);
}

moit_exact moit_exact_logits(const moi_lm *lm, const int32_t *tokens, int64_t batch, int64_t seq, bool half)
{
    const moi_lm_config *c = &lm->config;
    const int64_t t = batch * seq, h = c->hidden_size, vocab = c->vocab_size;
    const float *table = moit_weight(lm, "model.embed_tokens.weight");
    val x = make(t * h), n = make(t * h), y = make(t * h), z = make(t * vocab);
    moit_exact out = { z.x, z.v, calloc((size_t)t, sizeof(bool)) };
    for (int64_t r = 0; r < t; r++) {
        out.sure[r] = true;
        for (int64_t i = 0; i < h; i++) x.x[r * h + i] = (double)table[tokens[r / seq * (seq + 1) + r % seq] * h + i];
    }
    for (int l = 0; l < c->num_hidden_layers; l++) {
        char prefix[64];
        norm(n, x, moit_weight(lm, "model.layers.%d.input_layernorm.weight", l), t, h, (double)c->rms_norm_eps);
        attention(x, n, lm, l, batch, seq, half);
        norm(n, x, moit_weight(lm, "model.layers.%d.post_attention_layernorm.weight", l), t, h, (double)c->rms_norm_eps);
        snprintf(prefix, sizeof prefix, "model.layers.%d.mlp", l);
        for (int64_t r = 0; r < t; r++) {
            for (int64_t i = r * h; i < (r + 1) * h; i++) y.x[i] = y.v[i] = 0;
            if (moii_config_sparse(c, l)) out.sure[r] &= experts(at(y, r * h), at(n, r * h), lm, l, half);
            else expert(at(y, r * h), at(n, r * h), lm, prefix, h, c->intermediate_size, 1, 0, half);
        }
        add(x, y, t * h);
    }
    norm(n, x, moit_weight(lm, "model.norm.weight"), t, h, (double)c->rms_norm_eps);
    linear(z, n, c->tie_word_embeddings ? table : moit_weight(lm, "lm_head.weight"), t, h, vocab, false);
    for (int64_t i = 0; i < t * vocab; i++) z.v[i] = sqrt(z.v[i]);
    for (int64_t r = 1; r < t; r++) out.sure[r] &= r % seq == 0 || out.sure[r - 1];
    drop(x), drop(n), drop(y);
    return out;
}

void moit_exact_free(moit_exact *e) { free(e->logits), free(e->sigma), free(e->sure); }

double moit_exact_worst(const moit_exact *e, const float *got, int64_t first, int64_t count, int64_t vocab, int64_t *rows)
{
    double worst = 0;
    for (int64_t r = first; r < first + count; r++) {
        if (!e->sure[r]) continue;
        ++*rows;
        for (int64_t v = 0; v < vocab; v++) {
            const double d = fabs((double)got[(r - first) * vocab + v] - e->logits[r * vocab + v]) / e->sigma[r * vocab + v];
            if (!(d <= worst)) worst = d;
        }
    }
    return worst;
}
