/* SPDX-License-Identifier: Apache-2.0
 * stats.c: counting what a tensor contains. */
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 18 }; /* elements; a multiple of 8, so that packed pieces begin on a byte */

static inline void add_one(stats *s, double v)
{
    if (v - v != 0) { /* NaN or Inf */
        if (v != v) s->nans++;
        else s->infs++;
        return;
    }
    if (s->min > s->max) s->min = s->max = v;
    if (v < s->min) s->min = v;
    if (v > s->max) s->max = v;
    s->zeros += v == 0;
    s->sum_squares += v * v;
}

void stats_add(stats *s, const float *x, int64_t n)
{
    enum { LANES = 4 }; /* sums that do not wait for each other */
    float low = INFINITY, high = -INFINITY;
    double sums[LANES] = { 0 };
    int64_t zeros = 0, i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float v = x[i + j], finite = v - v == 0 ? v : 0.0f;
            sums[j] += (double)finite * (double)finite;
            zeros += v == 0;
            if (v - v != 0) {
                s->nans += v != v;
                s->infs += v == v;
                continue;
            }
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
    s->sum_squares += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    s->zeros += zeros;
    if (low <= high) {
        bool first = s->min > s->max;
        s->min = first || (double)low < s->min ? (double)low : s->min;
        s->max = first || (double)high > s->max ? (double)high : s->max;
    }
    for (; i < n; i++) add_one(s, (double)x[i]);
    s->count += n;
}

double stats_mean_square(const stats *s)
{
    int64_t finite = s->count - s->nans - s->infs;
    return finite > 0 ? s->sum_squares / (double)finite : 0.0;
}

void stats_decode(moi_dtype dtype, const void *src, int64_t n, float *to)
{
    if (dtype == MOI_F32) {
        memcpy(to, src, (size_t)n * 4);
    } else if (dtype == MOI_BF16) {
        const unsigned char *p = src;
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)p[2 * i] << 16 | (uint32_t)p[2 * i + 1] << 24;
            memcpy(&to[i], &bits, 4);
        }
    } else if (moi_dtype_bits(dtype) == 8) {
        float table[256];
        for (int i = 0; i < 256; i++) table[i] = moi_decode(dtype, &(unsigned char){ (unsigned char)i }, 0);
        for (int64_t i = 0; i < n; i++) to[i] = table[((const unsigned char *)src)[i]];
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = moi_decode(dtype, src, i);
    }
}

#define CASE(dtype, type)                                     \
    case dtype:                                               \
        for (int64_t i = 0; i < n; i++) {                     \
            type v;                                           \
            memcpy(&v, p + i * (int64_t)sizeof v, sizeof v);  \
            add_one(s, (double)v);                            \
        }                                                     \
        break
/* Types that FP32 does not hold. */
static void add_wide(stats *s, moi_dtype dtype, const char *p, int64_t n)
{
    switch (dtype) {
    CASE(MOI_F64, double);
    CASE(MOI_I64, int64_t);
    CASE(MOI_I32, int32_t);
    CASE(MOI_I16, int16_t);
    CASE(MOI_I8, int8_t);
    CASE(MOI_U64, uint64_t);
    CASE(MOI_U32, uint32_t);
    CASE(MOI_U16, uint16_t);
    default:
        for (int64_t i = 0; i < n; i++) add_one(s, (double)(unsigned char)p[i]);
    }
    s->count += n;
}

bool stats_of_tensor(const moi_st *file, const moi_tensor *t, stats *s)
{
    float *x = malloc(PIECE * sizeof *x);
    if (!x) return false;
    for (int64_t at = 0; at < t->elements; at += PIECE) {
        int64_t n = t->elements - at < PIECE ? t->elements - at : PIECE;
        moi_tensor part = *t;
        part.data = (const char *)t->data + moi_row_bytes(t->dtype, at);
        part.bytes = moi_row_bytes(t->dtype, n);
        if (t->dtype >= MOI_F64) {
            add_wide(s, t->dtype, part.data, n);
        } else {
            stats_decode(t->dtype, part.data, n, x);
            stats_add(s, x, n);
        }
        moi_st_forget(file, &part);
    }
    free(x);
    return true;
}
