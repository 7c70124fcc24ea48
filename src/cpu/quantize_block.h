/* SPDX-License-Identifier: Apache-2.0
 * quantize_block.h: the scale of a block and the codes of its values: the one place that knows the scale rules and what
 * NaN and Inf do to a block.  Rows that fuse quantisation into their own loops use these, so they give the same bits.
 *
 *   unsigned int a = 0;
 *   for each v of the block: a = moii_amax(f, a, v);
 *   moii_block b = moii_block_of(f, a);
 *   store b.scale;  for each v: store moii_block_encode(f, b, v); */
#ifndef MOII_QUANTIZE_BLOCK_H
#define MOII_QUANTIZE_BLOCK_H

#include "dtype.h"
#include "format.h"

enum { MOII_INF_BITS = 0x7F800000, MOII_NAN_BITS = 0x7FC00000, MOII_FLT_MAX_BITS = 0x7F7FFFFF };

typedef struct moii_block {
    unsigned int scale; /* E8M0 code, or the bits of an FP32 scale */
    float inverse;      /* what values are multiplied by before rounding */
    bool poisoned;      /* every code is the element's nan_code */
} moii_block;

/* Magnitudes are compared as integers, so that Inf and NaN sort above every finite value and survive the maximum.
 * Lenient blocks ignore NaN. */
static inline unsigned int moii_amax(const moi_format *f, unsigned int amax, float v)
{
    unsigned int u = moii_bits_of(v) & 0x7FFFFFFFu;
    if (u > MOII_INF_BITS && (f->flags & MOI_NONFINITE_LENIENT)) return amax;
    return u > amax ? u : amax;
}

/* mx32: a power of two by f->round. */
static inline moii_block moii_block_mx32(const moi_format *f, unsigned int amax)
{
    unsigned int e = 254;
    if (amax < MOII_INF_BITS) e = moii_e8m0_from_amax(moii_float_of(amax), moii_dtype(f->elem)->rule, (int)f->round);
    return (moii_block){ e, moii_e8m0_inverse(e), false };
}

/* blk128: amax / max_elem in FP32, or the next power of two above it. */
static inline moii_block moii_block_blk128(const moi_format *f, unsigned int amax)
{
    float s = 1.0f;
    if (amax >= MOII_INF_BITS) amax = MOII_FLT_MAX_BITS;
    if (amax && (f->flags & MOI_SCALE_POW2)) {
        unsigned int e = moii_e8m0_from_amax(moii_float_of(amax), moii_dtype(f->elem)->rule, MOI_ROUND_RCEIL);
        s = moii_e8m0_decode(e ? e : 1);
    } else if (amax) {
        s = moii_float_of(amax) / (float)moii_dtype(f->elem)->max;
        if (s < 0x1p-126f) s = 0x1p-126f;
    }
    return (moii_block){ moii_bits_of(s), 1.0f / s, false };
}

/* `amax`: bits gathered by moii_amax.  The strict rule is the first line; behind it only lenient blocks can be infinite. */
static inline moii_block moii_block_of(const moi_format *f, unsigned int amax)
{
    bool mx = f->recipe == MOI_RECIPE_MX32;
    if (amax >= MOII_INF_BITS && !(f->flags & MOI_NONFINITE_LENIENT))
        return (moii_block){ mx ? 0xFFu : MOII_NAN_BITS, 1.0f, true };
    return mx ? moii_block_mx32(f, amax) : moii_block_blk128(f, amax);
}

static inline unsigned int moii_block_encode(const moi_format *f, moii_block b, float v)
{
    return b.poisoned ? moii_dtype(f->elem)->nan_code : moii_code_encode(f->elem, v * b.inverse);
}

/* A matrix of plain values that may be read as its transpose: at (r, c) lies element (c, r) of memory. */
typedef struct moii_view {
    const void *data;
    moi_dtype dtype;
    int64_t ld; /* elements between rows in memory */
    bool transposed;
} moii_view;

static inline float moii_view_get(const moii_view *v, int64_t r, int64_t c)
{
    return moi_decode(v->dtype, v->data, v->transposed ? c * v->ld + r : r * v->ld + c);
}

/* One quantised (or plain) result: rows x cols as it is stored, blocks along its columns, cut at offsets[1 .. groups - 1]
 * where groups > 0.  What no group owns becomes 0. */
typedef struct moii_side {
    moii_view in;
    const moi_format *format;
    int64_t rows, cols, groups;
    const int64_t *offsets;
    void *data, *scale;
    int64_t ld; /* elements, 0: dense */
} moii_side;

/* quantize_ref.c: the reference, block by block. */
void moii_quantize_side_ref(const moii_side *side);

#endif
