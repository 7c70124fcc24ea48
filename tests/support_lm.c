/* SPDX-License-Identifier: Apache-2.0 */
#include "support_lm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

float *moit_weight(const moi_lm *lm, const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    for (int64_t i = 0; i < lm->params.count; i++)
        if (!strcmp(lm->params.items[i].name, name)) return lm->weights + lm->params.items[i].offset;
    fail_msg("no tensor %s", name);
    return NULL;
}

static double *doubles(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* y [rows, out] = x [rows, in] w^T */
static void linear(double *y, const double *x, const float *w, int64_t rows, int64_t in, int64_t out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double s = 0;
            for (int64_t i = 0; i < in; i++) s += x[r * in + i] * (double)w[o * in + i];
            y[r * out + o] = s;
        }
}

static void norm(double *y, const double *x, const float *g, int64_t rows, int64_t width, double eps)
{
    for (int64_t r = 0; r < rows; r++) {
        double s = 0;
        for (int64_t c = 0; c < width; c++) s += x[r * width + c] * x[r * width + c];
        s = 1 / sqrt(s / (double)width + eps);
        for (int64_t c = 0; c < width; c++) y[r * width + c] = x[r * width + c] * s * (double)g[c];
    }
}

/* x [rows, heads, d]; row r has position r % seq */
static void rotate(double *x, int64_t rows, int64_t heads, int64_t d, int64_t seq, double theta)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < d / 2; i++) {
                double *a = x + (r * heads + h) * d + i, *b = a + d / 2, angle = (double)(r % seq) / pow(theta, 2.0 * (double)i / (double)d);
                double u = *a, v = *b;
                *a = u * cos(angle) - v * sin(angle);
                *b = v * cos(angle) + u * sin(angle);
            }
}

static void attend(double *out, const double *q, const double *k, const double *v, const moi_lm_config *c, int64_t batch, int64_t seq)
{
    const int64_t d = c->head_dim, heads = c->num_attention_heads, kvs = c->num_key_value_heads;
    double *p = doubles(seq);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < seq; i++) {
                const int64_t g = h * kvs / heads;
                double sum = 0;
                for (int64_t j = 0; j <= i; j++) {
                    double s = 0;
                    for (int64_t e = 0; e < d; e++) s += q[((b * seq + i) * heads + h) * d + e] * k[((b * seq + j) * kvs + g) * d + e];
                    sum += p[j] = exp(s / sqrt((double)d));
                }
                for (int64_t e = 0; e < d; e++) {
                    double o = 0;
                    for (int64_t j = 0; j <= i; j++) o += p[j] / sum * v[((b * seq + j) * kvs + g) * d + e];
                    out[((b * seq + i) * heads + h) * d + e] = o;
                }
            }
    free(p);
}

/* y += weight * down(silu(gate x) * up x) for one token */
static void expert(double *y, const double *x, const moi_lm *lm, const char *prefix, int64_t h, int64_t f, double weight)
{
    double *g = doubles(f), *u = doubles(f), *o = doubles(h);
    linear(g, x, moit_weight(lm, "%s.gate_proj.weight", prefix), 1, h, f);
    linear(u, x, moit_weight(lm, "%s.up_proj.weight", prefix), 1, h, f);
    for (int64_t i = 0; i < f; i++) u[i] *= g[i] / (1 + exp(-g[i]));
    linear(o, u, moit_weight(lm, "%s.down_proj.weight", prefix), 1, f, h);
    for (int64_t i = 0; i < h; i++) y[i] += weight * o[i];
    free(g), free(u), free(o);
}

/* y [t, h]; returns this layer's load-balancing loss */
static double experts(double *y, const double *x, const moi_lm *lm, int64_t layer, int64_t t)
{
    const moi_lm_config *c = &lm->config;
    const int64_t h = c->hidden_size, e = c->num_experts, k = c->num_experts_per_tok;
    double *p = doubles(t * e), *count = doubles(e), *mean = doubles(e), aux = 0;
    char prefix[64];
    linear(p, x, moit_weight(lm, "model.layers.%d.mlp.gate.weight", (int)layer), t, h, e);
    for (int64_t r = 0; r < t; r++) {
        double *w = p + r * e, sum = 0, chosen = 0;
        int best[16];
        for (int64_t i = 0; i < e; i++) sum += w[i] = exp(w[i]);
        for (int64_t i = 0; i < e; i++) w[i] /= sum, mean[i] += w[i] / (double)t;
        for (int64_t s = 0; s < k; s++) {
            best[s] = -1;
            for (int i = 0; i < e; i++) {
                int taken = 0;
                for (int64_t z = 0; z < s; z++) taken |= best[z] == i;
                if (!taken && (best[s] < 0 || w[i] > w[best[s]])) best[s] = i;
            }
            chosen += w[best[s]], count[best[s]] += 1;
        }
        for (int64_t s = 0; s < k; s++) {
            snprintf(prefix, sizeof prefix, "model.layers.%d.mlp.experts.%d", (int)layer, best[s]);
            expert(y + r * h, x + r * h, lm, prefix, h, c->moe_intermediate_size, c->norm_topk_prob ? w[best[s]] / chosen : w[best[s]]);
        }
    }
    for (int64_t i = 0; i < e; i++) aux += count[i] / (double)t * mean[i];
    free(p), free(count), free(mean);
    return e == 1 ? 0 : (double)c->router_aux_loss_coef * (double)e * aux; /* one expert: nothing to balance */
}

/* x [t, h] -> x; returns the load-balancing loss */
static double run_layer(double *x, const moi_lm *lm, int64_t layer, int64_t batch, int64_t seq)
{
    const moi_lm_config *c = &lm->config;
    const int64_t t = batch * seq, h = c->hidden_size, d = c->head_dim, qw = c->num_attention_heads * d, kw = c->num_key_value_heads * d;
    const double eps = (double)c->rms_norm_eps, theta = (double)c->rope_theta;
    const int l = (int)layer;
    double *n = doubles(t * h), *q = doubles(t * qw), *k = doubles(t * kw), *v = doubles(t * kw), *a = doubles(t * qw), *y = doubles(t * h), aux = 0;
    norm(n, x, moit_weight(lm, "model.layers.%d.input_layernorm.weight", l), t, h, eps);
    linear(q, n, moit_weight(lm, "model.layers.%d.self_attn.q_proj.weight", l), t, h, qw);
    linear(k, n, moit_weight(lm, "model.layers.%d.self_attn.k_proj.weight", l), t, h, kw);
    linear(v, n, moit_weight(lm, "model.layers.%d.self_attn.v_proj.weight", l), t, h, kw);
    norm(q, q, moit_weight(lm, "model.layers.%d.self_attn.q_norm.weight", l), t * c->num_attention_heads, d, eps);
    norm(k, k, moit_weight(lm, "model.layers.%d.self_attn.k_norm.weight", l), t * c->num_key_value_heads, d, eps);
    rotate(q, t, c->num_attention_heads, d, seq, theta);
    rotate(k, t, c->num_key_value_heads, d, seq, theta);
    attend(a, q, k, v, c, batch, seq);
    linear(y, a, moit_weight(lm, "model.layers.%d.self_attn.o_proj.weight", l), t, qw, h);
    for (int64_t i = 0; i < t * h; i++) x[i] += y[i], y[i] = 0;
    norm(n, x, moit_weight(lm, "model.layers.%d.post_attention_layernorm.weight", l), t, h, eps);
    if (c->mlp_only[layer]) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "model.layers.%d.mlp", l);
        for (int64_t r = 0; r < t; r++) expert(y + r * h, n + r * h, lm, prefix, h, c->intermediate_size, 1);
    } else aux = experts(y, n, lm, layer, t);
    for (int64_t i = 0; i < t * h; i++) x[i] += y[i];
    free(n), free(q), free(k), free(v), free(a), free(y);
    return aux;
}

double moit_lm_loss(const moi_lm *lm, const int32_t *tokens, int64_t batch, int64_t seq, double *aux, double *logits)
{
    const moi_lm_config *c = &lm->config;
    const int64_t t = batch * seq, h = c->hidden_size, vocab = c->vocab_size;
    const float *table = moit_weight(lm, "model.embed_tokens.weight");
    double *x = doubles(t * h), *n = doubles(t * h), *z = doubles(t * vocab), loss = 0;
    for (int64_t r = 0; r < t; r++)
        for (int64_t i = 0; i < h; i++) x[r * h + i] = (double)table[tokens[r / seq * (seq + 1) + r % seq] * h + i];
    *aux = 0;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) *aux += run_layer(x, lm, l, batch, seq);
    norm(n, x, moit_weight(lm, "model.norm.weight"), t, h, (double)c->rms_norm_eps);
    linear(z, n, c->tie_word_embeddings ? table : moit_weight(lm, "lm_head.weight"), t, h, vocab);
    for (int64_t r = 0; r < t; r++) {
        double sum = 0;
        for (int64_t i = 0; i < vocab; i++) sum += exp(z[r * vocab + i]);
        loss += log(sum) - z[r * vocab + tokens[r / seq * (seq + 1) + r % seq + 1]];
    }
    if (logits) memcpy(logits, z, (size_t)(t * vocab) * sizeof *z);
    free(x), free(n), free(z);
    return loss / (double)t;
}

moi_lm_config moit_lm_config(void)
{
    moi_lm_config c = MOI_LM_CONFIG_INIT;
    c.vocab_size = 40, c.hidden_size = 32, c.num_hidden_layers = 2, c.num_attention_heads = 4, c.num_key_value_heads = 2, c.head_dim = 8;
    c.intermediate_size = 48, c.moe_intermediate_size = 32, c.num_experts = 4, c.num_experts_per_tok = 2;
    c.max_position_embeddings = 600, c.initializer_range = 0.2f, c.router_aux_loss_coef = 0.02f;
    return c;
}

moi_lm *moit_lm(const moi_lm_config *config, moi_recipe recipe)
{
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    moi_lm *lm;
    o.recipe = recipe;
    moit_ok(moi_lm_create(&lm, moit_ctx(0), config, &o, 5));
    return lm;
}

void moit_roughen_norms(moi_lm *lm)
{
    moit_rng rng = moit_seed("norms", 1);
    for (int64_t i = 0; i < lm->params.count; i++)
        for (int64_t r = 0; lm->params.items[i].cols == 0 && r < lm->params.items[i].rows; r++)
            lm->weights[lm->params.items[i].offset + r] += 0.2f * moit_normal(&rng);
    lm->version++;
}

moi_lm_config moit_variant(int i)
{
    static const struct { int64_t heads, kv_heads; bool tied, dense_first, renormalize; int64_t step, experts, top_k; } variants[MOIT_VARIANTS] = {
        { 4, 2, true, true, true, 1, 4, 2 }, { 2, 2, false, false, true, 1, 4, 2 }, { 4, 1, false, true, false, 1, 4, 3 },
        { 3, 1, true, false, true, 2, 4, 1 }, { 2, 1, false, false, true, 1, 1, 1 }, { 2, 1, true, false, true, 1, 0, 0 },
    };
    moi_lm_config c = moit_lm_config();
    c.num_attention_heads = variants[i].heads, c.num_key_value_heads = variants[i].kv_heads;
    c.tie_word_embeddings = variants[i].tied, c.norm_topk_prob = variants[i].renormalize;
    c.num_experts = variants[i].experts, c.num_experts_per_tok = variants[i].top_k, c.decoder_sparse_step = variants[i].step;
    c.mlp_only[0] = variants[i].dense_first;
    return c;
}

moi_lm *moit_open(const char *folder, moi_recipe recipe)
{
    moi_lm *lm;
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    o.recipe = recipe;
    moit_ok(moi_lm_open(&lm, moit_ctx(0), folder, &o));
    return lm;
}

void moit_tokens(int32_t *tokens, int64_t count, int64_t vocab, uint64_t salt)
{
    moit_rng rng = moit_seed("tokens", salt);
    int64_t at = moit_below(&rng, vocab);
    for (int64_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)at;
        at = moit_below(&rng, 8) ? (at * 3 + 1) % vocab : moit_below(&rng, vocab);
    }
}
