/* SPDX-License-Identifier: Apache-2.0
 * product_fast.c: one tile of a product by one thread. */
#include "product_fast.h"

#include <string.h>

#include "blas.h"
#include "isa.h"

/* Tiles of 512 x 512 reach most of what BLAS does on whole matrices, and two panels of 1 MB are small beside any weight.
 * Operands that BLAS reads in place need no panels, so their tiles may be larger. */
enum { TILE = 512, PANEL_DEPTH = 512, DIRECT_TILE = 2048, ROW_GAP = 16, SLIM = 4, SLIM_DIRECT = 2 };

static bool direct(const moi_format *f) { return f->recipe == MOI_RECIPE_F32; }

static int64_t panel_bytes(int64_t lines, int64_t depth) /* either order fits: lines x depth or depth x lines, with gaps */
{
    int64_t k_major = lines * (depth + ROW_GAP), mn_major = depth * (lines + ROW_GAP);
    return moii_round_up(moii_max(k_major, mn_major) * 4, MOII_WORKSPACE_ALIGN);
}

moii_tiling moii_tiling_of(const moi_format *a, const moi_format *b, moi_dtype out, int64_t m, int64_t n, int64_t k)
{
    int64_t tile = direct(a) && direct(b) ? DIRECT_TILE : TILE;
    moii_tiling t = { .m = moii_min(m, tile), .n = moii_min(n, tile), .depth = moii_min(k, PANEL_DEPTH) };
    t.a_bytes = direct(a) ? panel_bytes(SLIM, t.depth) : panel_bytes(t.m, t.depth);
    t.b_bytes = direct(b) ? 0 : panel_bytes(t.n, t.depth);
    t.scale_bytes = moii_round_up(PANEL_DEPTH / MOII_MX_BLOCK * 4, MOII_WORKSPACE_ALIGN);
    t.d_bytes = out == MOI_F32 ? 0 : moii_round_up(t.m * t.n * 4, MOII_WORKSPACE_ALIGN);
    t.scratch_bytes = t.a_bytes + t.b_bytes + t.scale_bytes + t.d_bytes;
    return t;
}

int64_t moii_part(int64_t size, int64_t parts, int64_t i)
{
    int64_t grain = size >= 16 * parts ? 16 : 1;
    return i >= parts ? size : moii_ceil_div(size, grain) * i / parts * grain;
}

moii_cut moii_cut_of(const moii_tiling *t, int64_t m, int64_t n, int64_t tasks)
{
    moii_cut c = { moii_ceil_div(m, t->m), moii_ceil_div(n, t->n) };
    if (m == 0 || n == 0) return (moii_cut){ 0, 0 };
    /* grow until every thread has a share, but keep tiles of 64 and more */
    while (c.m_parts * c.n_parts < 4 * tasks && c.m_parts * c.n_parts % tasks != 0) {
        bool wide = n / c.n_parts >= m / c.m_parts;
        if (wide && n / (c.n_parts + 1) >= 64) c.n_parts++;
        else if (m / (c.m_parts + 1) >= 64) c.m_parts++;
        else if (n / (c.n_parts + 1) >= 64) c.n_parts++;
        else break;
    }
    return c;
}

/* Lines as BLAS wants them: `mn_major` says how; ld in elements. */
typedef struct panel { const float *data; int64_t ld; bool mn_major; } panel;

/* Dequantises rows r0..r1 over depth l0..l1 into `out`, or points at them where they are FP32 already. */
static panel panel_of(const moii_isa *isa, const moii_view *v, int64_t r0, int64_t r1, int64_t l0, int64_t l1, float *scales, float *out)
{
    moi_dtype elem = v->format->elem;
    int64_t from = v->mn_major ? l0 : r0, to = v->mn_major ? l1 : r1, first = v->mn_major ? r0 : l0 + v->shift;
    int64_t count = v->mn_major ? r1 - r0 : l1 - l0, ld = count + ROW_GAP; /* the gap keeps rows out of one cache set */
    if (direct(v->format))
        return (panel){ (const float *)(const void *)(v->data + from * v->ld_bytes) + first, v->ld_bytes / 4, v->mn_major };
    int64_t block = v->block ? v->first_block + (l0 - v->first) / v->block : 0;
    for (int64_t line = from; line < to; line++) {
        int64_t stored = moii_view_row(v, line);
        if (v->block) moii_scale_span(&v->scales, stored, block, moii_ceil_div(count, v->block), scales);
        isa->dequant(elem, v->data + stored * v->ld_bytes, first, count, v->block, scales, out + (line - from) * ld);
    }
    return (panel){ out, ld, v->mn_major };
}

static void multiply(const panel *a, const panel *b, int64_t m, int64_t n, int64_t k, bool add, float *d, int64_t ldd)
{
    moii_sgemm(a->mn_major, !b->mn_major, m, n, k, a->data, a->ld, b->data, b->ld, add, d, ldd);
}

/* A few rows of A: each row of B is dequantised once, into the first-level cache, and multiplied with all of them. */
static void slim(const moii_isa *isa, const moii_view *a, const moii_view *b, moii_range r, bool add, float *d, int64_t ldd, float *scales,
                 float *panel_a, float *line)
{
    int64_t m = r.i1 - r.i0, k = r.l1 - r.l0;
    panel pa = panel_of(isa, a, r.i0, r.i1, r.l0, r.l1, scales, panel_a);
    const float *rows[SLIM];
    for (int64_t i = 0; i < m; i++) {
        rows[i] = pa.data + i * pa.ld;
        if (!pa.mn_major) continue;
        float *copy = panel_a + i * (k + ROW_GAP); /* only FP32 comes here: its panel is free */
        for (int64_t l = 0; l < k; l++) copy[l] = pa.data[l * pa.ld + i];
        rows[i] = copy;
    }
    for (int64_t j = r.j0; j < r.j1; j++) {
        panel pb = panel_of(isa, b, j, j + 1, r.l0, r.l1, scales, line);
        for (int64_t i = 0; i < m; i++) {
            float *out = &d[i * ldd + j - r.j0], sum = isa->nn_dot(rows[i], pb.data, k);
            *out = add ? *out + sum : sum;
        }
    }
}

static void clear(float *d, int64_t m, int64_t n, int64_t ldd)
{
    for (int64_t i = 0; i < m; i++) memset(d + i * ldd, 0, (size_t)n * sizeof *d);
}

void moii_product_tile(const moi_ctx *ctx, const moii_tiling *t, const moii_view *a, const moii_view *b, moii_range r, moi_dtype out,
                       bool accumulate, void *d, int64_t ldd, void *scratch)
{
    const moii_isa *isa = moii_cpu_isa(ctx);
    char *s = scratch;
    float *pa = (float *)(void *)s, *pb = (float *)(void *)(s + t->a_bytes);
    float *scales = (float *)(void *)(s + t->a_bytes + t->b_bytes), *sum = (float *)(void *)(s + t->a_bytes + t->b_bytes + t->scale_bytes);
    int64_t m = r.i1 - r.i0, n = r.j1 - r.j0, ld_sum = n;
    bool few = m <= (direct(a->format) && direct(b->format) ? SLIM_DIRECT : SLIM) && !b->mn_major && !(a->mn_major && !direct(a->format));
    int64_t depth = direct(a->format) && direct(b->format) && !few ? INT32_MAX : PANEL_DEPTH;
    if (out == MOI_F32) sum = d, ld_sum = ldd;
    if (r.l0 == r.l1 && !accumulate) clear(sum, m, n, ld_sum);
    for (int64_t l = r.l0; l < r.l1; l += depth) {
        int64_t end = r.l1 - l < depth ? r.l1 : l + depth;
        bool add = accumulate || l > r.l0;
        if (few) {
            moii_range part = { r.i0, r.i1, r.j0, r.j1, l, end };
            slim(isa, a, b, part, add, sum, ld_sum, scales, pa, pb);
        } else {
            panel qa = panel_of(isa, a, r.i0, r.i1, l, end, scales, pa), qb = panel_of(isa, b, r.j0, r.j1, l, end, scales, pb);
            multiply(&qa, &qb, m, n, end - l, add, sum, ld_sum);
        }
    }
    if (out == MOI_F32) return;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) ((uint16_t *)d)[i * ldd + j] = (uint16_t)moii_bf16_encode(sum[i * n + j]);
}

moi_status moii_product_fits(const char *where, const moi_operand *a, const moi_operand *b, int64_t ldd)
{
    MOII_REQUIRE(a->ld <= INT32_MAX && b->ld <= INT32_MAX && ldd <= INT32_MAX, MOI_ERR_SHAPE,
                 "%s: leading dimensions must be below 2^31 for this row, got %lld, %lld, %lld", where, (long long)a->ld, (long long)b->ld, (long long)ldd);
    return MOI_OK;
}
