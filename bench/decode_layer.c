/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *decode_layer_shape(moi_moe_decode_desc *d, const shapes *s, int line, char name[96])
{
    const char *format = shapes_text(s, line, "format", "mxfp8");
    d->max_tokens = shapes_int(s, line, "tokens", 1);
    d->hidden = shapes_int(s, line, "hidden", 2048);
    d->width = shapes_int(s, line, "width", 768);
    d->experts = shapes_int(s, line, "experts", 0);
    d->top_k = shapes_int(s, line, "top_k", 8);
    bool chosen = !strcmp(shapes_text(s, line, "grouped_from", "0"), "auto");
    d->grouped_from = chosen ? MOI_GROUPED_AUTO : shapes_int(s, line, "grouped_from", 0);
    snprintf(name, 96, "?");
    if (!bench_format(format, &d->weights)) return "unknown format";
    if (!chosen && d->grouped_from < 0) return "grouped_from must be a number of tokens, 0 or auto";
    int64_t each = decode_expert_bytes(d), slots = d->max_tokens * d->top_k;
    if (d->experts == 0 && each > 0) d->experts = 4 * machine_cache_bytes() / each + 1;
    if (d->experts && shapes_int(s, line, "experts", 0) == 0 && d->experts < 2 * slots) d->experts = 2 * slots;
    snprintf(name, 96, "t%lld h%lld f%lld e%lld top%lld %s", (long long)d->max_tokens, (long long)d->hidden, (long long)d->width,
             (long long)d->experts, (long long)d->top_k, format);
    return NULL;
}

int64_t decode_expert_bytes(const moi_moe_decode_desc *d)
{
    int64_t scales = moi_scale_bytes(&d->weights, 2 * d->width, d->hidden, 0) + moi_scale_bytes(&d->weights, d->hidden, d->width, 0);
    return 2 * d->width * moi_row_bytes(d->weights.elem, d->hidden) + d->hidden * moi_row_bytes(d->weights.elem, d->width) + scales;
}

bool decode_layer_make(bench *b, decode_layer *l, int64_t experts)
{
    const moi_moe_decode_desc *d = &l->desc;
    int64_t slots = d->max_tokens * d->top_k;
    float *x = bench_alloc(d->max_tokens * d->hidden * 4);
    bench_normal(b, x, d->max_tokens * d->hidden, 1.0f);
    l->x = bench_alloc(d->max_tokens * d->hidden * 2);
    bench_to(MOI_BF16, l->x, x, d->max_tokens * d->hidden);
    free(x);
    l->ids = bench_alloc(slots * 4);
    l->weights = bench_alloc(slots * 4);
    l->y = bench_alloc(d->max_tokens * d->hidden * 4);
    for (int64_t i = 0; i < slots; i++) l->weights[i] = 1.0f / (float)d->top_k;
    return bench_matrix_random(b, &l->gate_up, d->weights, 2 * d->width, d->hidden, experts, DECODE_DISTINCT) &&
           bench_matrix_random(b, &l->down, d->weights, d->hidden, d->width, experts, DECODE_DISTINCT);
}

void decode_layer_free(decode_layer *l)
{
    free(l->weights), free(l->y), free(l->x), free(l->ids);
    bench_matrix_free(&l->gate_up);
    bench_matrix_free(&l->down);
    for (int i = 0; i < 2 * DECODE_DISTINCT; i++) free(l->decoded[i / DECODE_DISTINCT][i % DECODE_DISTINCT]);
}

/* ---- what it ought to give ---- */

typedef struct sums { double *u, *du, *y, *bound; } sums;

/* What grouped products make of activations beside these weights; false where that is BF16, which x and u are. */
static bool rounds(const decode_layer *l, moi_format *act)
{
    *act = l->desc.weights;
    act->block = MOI_BLOCK_VECTOR;
    return l->grouped && act->recipe == MOI_RECIPE_BLK128;
}

/* u of one token and expert, whose exact value lies within du, as grouped products round it by way of BF16: the ends of that are rounded too.  Where a
 * block's scale is not certain, a step of E4M3 (2^-3) more. */
static bool round_u(bench *b, const decode_layer *l, sums *s)
{
    enum { LOW, MID, HIGH, THREE };
    int64_t f = l->desc.width;
    moi_format act;
    if (!rounds(l, &act)) return true;
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

static const double *decoded(decode_layer *l, int which, int64_t expert)
{
    const bench_matrix *m = which ? &l->down : &l->gate_up;
    double **at = &l->decoded[which][expert % DECODE_DISTINCT];
    if (*at) return *at;
    *at = bench_alloc(m->rows * m->cols * 8);
    bench_decode(m, expert % DECODE_DISTINCT, NULL, 0, *at);
    return *at;
}

/* What one expert adds to a token, and how far a row may be from it: each dot product may err by the bound of gemm, each u
 * by 2^-8 for its rounding to BF16, and the errors of u pass through the second product. */
static bool add_expert(bench *b, decode_layer *l, int64_t expert, const double *x, double weight, sums *s)
{
    moi_format act;
    double bf16 = rounds(l, &act) ? 0 : 0x1p-8, between = l->grouped ? 0x1p-8 : 0; /* gate and up are BF16 before SwiGLU */
    int64_t h = l->desc.hidden, f = l->desc.width;
    const double *gate_up = decoded(l, 0, expert), *down = decoded(l, 1, expert);
    for (int64_t i = 0; i < f; i++) {
        double gate = 0, up = 0, abs_gate = 0, abs_up = 0;
        const double *g = gate_up + i * h, *p = gate_up + (f + i) * h;
        for (int64_t c = 0; c < h; c++) {
            gate += g[c] * x[c], abs_gate += fabs(g[c] * x[c]);
            up += p[c] * x[c], abs_up += fabs(p[c] * x[c]);
        }
        double unit = (double)(h + 4) * 0x1p-24, e_gate = unit * abs_gate + between * fabs(gate), e_up = unit * abs_up + between * fabs(up);
        double silu = gate / (1 + exp(-gate)), e_silu = 1.1 * e_gate + 8 * 0x1p-24 * fabs(silu); /* |silu'| < 1.1 */
        s->u[i] = silu * up;
        s->du[i] = e_silu * (fabs(up) + e_up) + fabs(silu) * e_up;
        s->du[i] += bf16 * (fabs(s->u[i]) + s->du[i]) + 0x1p-133;
    }
    if (!round_u(b, l, s)) return false;
    for (int64_t r = 0; r < h; r++) {
        double sum = 0, abs_sum = 0, moved = 0;
        for (int64_t i = 0; i < f; i++) {
            double w = down[r * f + i];
            sum += w * s->u[i], abs_sum += fabs(w * s->u[i]), moved += fabs(w) * s->du[i];
        }
        double slots = (double)l->desc.top_k; /* one accumulator runs through all slots */
        s->y[r] += weight * sum;
        s->bound[r] += fabs(weight) * (((double)f * slots + slots + 4) * 0x1p-24 * (abs_sum + moved) + moved);
    }
    return true;
}

/* x as the products read it, in double. */
static bool read_x(bench *b, const decode_layer *l, double *x)
{
    int64_t count = l->desc.max_tokens * l->desc.hidden;
    moi_format act;
    bench_matrix m;
    for (int64_t i = 0; i < count; i++) x[i] = bench_value(MOI_BF16, l->x, i);
    if (!rounds(l, &act)) return true;
    float *from = bench_alloc(count * 4);
    for (int64_t i = 0; i < count; i++) from[i] = (float)x[i];
    bool good = bench_matrix_of(b, &m, act, l->desc.max_tokens, l->desc.hidden, from);
    if (good) bench_decode(&m, 0, NULL, 0, x), bench_matrix_free(&m);
    free(from);
    return good;
}

double decode_layer_check(bench *b, decode_layer *l, int64_t most_tokens)
{
    int64_t h = l->desc.hidden, f = l->desc.width, k = l->desc.top_k, tokens = l->desc.max_tokens, some = tokens < most_tokens ? tokens : most_tokens;
    sums s = { bench_alloc(f * 8), bench_alloc(f * 8), bench_alloc(h * 8), bench_alloc(h * 8) };
    double *x = bench_alloc(tokens * h * 8), worst = 0;
    if (!read_x(b, l, x)) worst = (double)NAN;
    for (int64_t n = 0; n < some; n++) {
        int64_t t = some > 1 ? n * (tokens - 1) / (some - 1) : 0;
        memset(s.y, 0, (size_t)h * 8);
        memset(s.bound, 0, (size_t)h * 8);
        for (int64_t i = 0; i < k; i++)
            if (!add_expert(b, l, l->ids[t * k + i], x + t * h, (double)l->weights[t * k + i], &s)) worst = (double)NAN;
        for (int64_t r = 0; r < h; r++) {
            double ratio = fabs((double)l->y[t * h + r] - s.y[r]) / (s.bound[r] + 0x1p-140);
            if (!(ratio <= worst) && !isnan(worst)) worst = ratio;
        }
    }
    free(s.u), free(s.du), free(s.y), free(s.bound), free(x);
    return worst;
}
