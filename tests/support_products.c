/* SPDX-License-Identifier: Apache-2.0 */
#include "support_products.h"

#include <math.h>
#include <stdlib.h>

static int64_t block_of(const moit_matrix *m, int64_t l)
{
    int64_t block = moi_format_block(&m->format);
    if (!m->offsets) return l / block;
    int64_t g = 0;
    while (g < m->groups && l >= m->offsets[g + 1]) g++;
    return m->offsets[g] / block + g + (l - m->offsets[g]) / block;
}

/* Where element l lies in a stored row of a K-major matrix. */
static int64_t place_of(const moit_matrix *m, int64_t l)
{
    int64_t block = moi_format_block(&m->format), g = 0;
    if (!m->offsets || !block) return l;
    while (g < m->groups && l >= m->offsets[g + 1]) g++;
    return block * (m->offsets[g] / block + g) + l - m->offsets[g];
}

static int64_t depth_used(const moit_matrix *m) { return m->offsets ? m->offsets[m->groups] : m->depth; }

static int is_square(const moi_format *f) { return f->recipe == MOI_RECIPE_BLK128 && f->block == MOI_BLOCK_SQUARE; }

/* Where the scale of an element lies, in scales. */
static int64_t scale_place(const moit_matrix *m, int64_t row, int64_t block)
{
    moi_dtype type = m->format.recipe == MOI_RECIPE_MX32 ? MOI_E8M0 : MOI_F32;
    int64_t div = is_square(&m->format) ? 128 : 1;
    return moi_scale_index(m->format.layout, type, row / div, block, (m->rows + div - 1) / div, moi_scale_blocks(&m->format, m->depth, m->groups));
}

static void *element(const moit_matrix *m, int64_t b, int64_t row, int64_t l, int64_t *index)
{
    int turned = m->order == MOI_MN_MAJOR;
    int64_t lines = turned ? m->depth : m->rows, line = turned ? l : row;
    *index = turned ? row : place_of(m, l);
    return (char *)m->data + (b * lines + line) * moi_row_bytes(m->format.elem, m->ld);
}

static void *scales_at(const moit_matrix *m, int64_t b) { return (char *)m->scale + b * (m->scale_bytes / (m->batch ? m->batch : 1)); }

static float random_scale(const moit_matrix *m, moit_rng *rng)
{
    int middle = m->spread == MOIT_LARGE ? 100 : m->spread == MOIT_SMALL ? -100 : 0;
    float s = ldexpf(1.0f, middle + (int)moit_below(rng, 21) - 10);
    return m->format.recipe == MOI_RECIPE_BLK128 ? s * (1.0f + (float)moit_uniform(rng)) : s;
}

static void fill_scales(moit_matrix *m, int64_t b, moit_rng *rng)
{
    if (!m->scale_bytes) return;
    for (int64_t r = 0; r < m->rows; r += is_square(&m->format) ? 128 : 1)
        for (int64_t l = 0; l < depth_used(m); l++) {
            if (l > 0 && block_of(m, l) == block_of(m, l - 1)) continue;
            int64_t i = scale_place(m, r, block_of(m, l));
            float s = random_scale(m, rng);
            if (m->format.recipe == MOI_RECIPE_BLK128) ((float *)scales_at(m, b))[i] = s;
            else ((unsigned char *)scales_at(m, b))[i] = (unsigned char)(127 + ilogbf(s));
        }
}

/* Every finite code of the element is as likely as any other. */
static float random_value(const moit_matrix *m, moit_rng *rng)
{
    if (m->format.recipe <= MOI_RECIPE_BF16) return ldexpf(moit_normal(rng), (int)moit_below(rng, 9) - 4);
    for (;;) {
        unsigned char code[2] = { (unsigned char)moit_next(rng), 0 };
        float v = moi_decode(m->format.elem, code, 0);
        if (isfinite(v)) return v;
    }
}

void moit_matrix_make(moit_matrix *m, moit_rng *rng)
{
    int turned = m->order == MOI_MN_MAJOR;
    int64_t lines = turned ? m->depth : m->rows, dense = turned ? m->rows : moi_ragged_cols(&m->format, m->depth, m->groups);
    if (!m->batch) m->batch = 1;
    if (m->pad && moi_dtype_bits(m->format.elem) < 8) m->pad += 7 - (dense + m->pad + 7) % 8; /* rows begin on bytes */
    m->ld = dense + m->pad;
    m->data_bytes = m->batch * lines * moi_row_bytes(m->format.elem, m->ld);
    m->scale_bytes = m->batch * moi_scale_bytes(&m->format, m->rows, m->depth, m->groups);
    m->data = moit_alloc(m->data_bytes);
    m->scale = moit_alloc(m->scale_bytes);
    memset(m->data, 0xFF, (size_t)m->data_bytes);
    for (int64_t i = 0; i < m->batch * m->rows && m->groups && moi_format_block(&m->format); i++) /* codes that no group owns */
        memset((char *)m->data + i * moi_row_bytes(m->format.elem, m->ld), 0, (size_t)moi_row_bytes(m->format.elem, dense));
    memset(m->scale, 0xFF, (size_t)m->scale_bytes);
    m->values = calloc((size_t)(m->batch * m->rows * m->depth) + 1, sizeof(double));
    for (int64_t b = 0; b < m->batch; b++) {
        fill_scales(m, b, rng);
        for (int64_t r = 0; r < m->rows; r++)
            for (int64_t l = 0; l < depth_used(m); l++) {
                int64_t i;
                void *line = element(m, b, r, l, &i);
                moi_encode(m->format.elem, line, i, random_value(m, rng));
            }
    }
    moit_matrix_read(m);
}

void moit_matrix_read(moit_matrix *m)
{
    double *v = m->values;
    for (int64_t b = 0; b < m->batch; b++)
        for (int64_t r = 0; r < m->rows; r++) {
            int64_t block = -1;
            double scale = 1.0;
            for (int64_t l = 0; l < m->depth; l++, v++) {
                int64_t i;
                if (l >= depth_used(m)) continue;
                void *line = element(m, b, r, l, &i);
                *v = moi_decode(m->format.elem, line, i);
                if (!m->scale_bytes) continue;
                int64_t next = block_of(m, l);
                if (next != block) {
                    i = scale_place(m, r, block = next);
                    scale = m->format.recipe == MOI_RECIPE_BLK128 ? ((float *)scales_at(m, b))[i] : moi_decode(MOI_E8M0, scales_at(m, b), i);
                }
                *v *= scale;
            }
        }
}

void moit_matrix_free(moit_matrix *m)
{
    moit_free(m->data);
    moit_free(m->scale);
    free(m->values);
    m->data = m->scale = m->values = NULL;
}

void moit_matrix_set(moit_matrix *m, int64_t row, int64_t l, float value)
{
    int64_t i;
    void *line = element(m, 0, row, l, &i);
    if (m->format.elem == MOI_E5M2 && isinf(value)) ((unsigned char *)line)[i] = value < 0 ? 0xFC : 0x7C;
    else moi_encode(m->format.elem, line, i, value);
}

void moit_matrix_set_scale(moit_matrix *m, int64_t b, int64_t row, int64_t l, float scale)
{
    int64_t i = scale_place(m, row, block_of(m, l));
    if (m->format.recipe == MOI_RECIPE_BLK128) ((float *)scales_at(m, b))[i] = scale;
    else ((unsigned char *)scales_at(m, b))[i] = (unsigned char)(isnan(scale) ? 0xFF : 127 + ilogbf(scale));
}

double moit_half_unit(moi_dtype out, double x)
{
    int e = x == 0.0 ? -126 : ilogb(x);
    if (e < -126) e = -126;
    return ldexp(1.0, e - (out == MOI_BF16 ? 8 : 24));
}

double moit_product_error(moi_dtype out, float got, double exact, double magnitude, int64_t k, int strict)
{
    if (isnan(exact)) return isnan(got) ? 0.0 : HUGE_VAL;
    if (isinf(exact)) return (double)got == exact ? 0.0 : HUGE_VAL;
    if (!isfinite(got)) return HUGE_VAL;
    double larger = fabs(exact) > fabs((double)got) ? exact : got;
    double slack = strict ? 0x1p-45 * magnitude : (double)(k + 4) * 0x1p-24 * magnitude; /* 0x1p-45: the test's own sums */
    return fabs((double)got - exact) / (slack + moit_half_unit(out, larger));
}

int moit_matrix_power(const moit_matrix *m, int64_t b, int64_t row, int64_t l)
{
    return ((const unsigned char *)scales_at(m, b))[scale_place(m, row, block_of(m, l))];
}
