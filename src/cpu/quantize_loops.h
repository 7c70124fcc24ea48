/* SPDX-License-Identifier: Apache-2.0
 * quantize_loops.h: the inner loops of quantisation, one table per instruction set (quantize_body.h).
 *
 * Codes are one per byte here, packed ones too.  Loops see only finite blocks: what NaN and Inf do is quantize_block.h's
 * business, and blocks that hold them are redone by it. */
#ifndef MOII_QUANTIZE_LOOPS_H
#define MOII_QUANTIZE_LOOPS_H

#include "dtype.h"

/* An element in the form the loops need.  Encoding rounds by addition: with x in [2^e, 2^(e+1)), e at least the exponent
 * of the smallest normal, the FP32 sum x + 2^(e + 23 - MB) has its last bit where the code has its own, so the adder rounds
 * to nearest even, and the sum's bits less those of the addend are the code's mantissa with its hidden bit. */
typedef struct moii_codec {
    bool is_int8;
    bool pow2;          /* every inverse is a power of two: set by the one who knows the scales */
    int mantissa_bits, bias, max_code;
    int shift;          /* 23 - mantissa bits */
    int min_exponent;   /* FP32 bits of the smallest normal */
    int max_bits;       /* FP32 bits of the largest */
    int offset;         /* turns the addend's shifted bits into the code's exponent field */
    int sign_bit;       /* of the code */
} moii_codec;

static inline moii_codec moii_codec_of(moi_dtype elem)
{
    const moii_dtype_info *info = moii_dtype(elem);
    moii_codec c = { .is_int8 = elem == MOI_INT8 };
    if (!info->is_mx_element || c.is_int8) return c;
    int exponent_bits = info->bits - 1 - info->rule.mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
    c.mantissa_bits = info->rule.mantissa_bits;
    c.bias = bias;
    c.max_code = (int)moii_code_encode(elem, (float)info->max);
    c.shift = 23 - info->rule.mantissa_bits;
    c.min_exponent = (128 - bias) << 23;
    c.max_bits = (int)moii_bits_of((float)info->max);
    c.offset = (c.shift + 128 - bias) << info->rule.mantissa_bits;
    c.sign_bit = 1 << (info->bits - 1);
    return c;
}

/* Values a loop reads: rows x cols at v, F32 or BF16; `ahead` bytes behind each lies what to prefetch. */
typedef struct moii_span {
    moi_dtype in;
    const void *v;
    int64_t ld, rows, cols, ahead;
} moii_span;

typedef struct moii_quant_loops {
    /* A span has at most 16384 values. */
    /* Codes with `stream` go around the caches where they can: for results that would not stay in them.  `fence` ends it. */
    /* amax[r * blocks + b] = largest magnitude bits of v[r][b * block ...]; blocks = ceil(cols / block) */
    void (*amax)(const moii_span *x, int64_t block, unsigned int *amax);
    void (*encode)(const moii_codec *c, const moii_span *x, int64_t block, const float *inverse, unsigned char *codes, int64_t codes_ld,
                   bool stream);
    /* whether one of the maxima is infinite, NaN, or from 1 to `tiny` */
    bool (*outside)(const unsigned int *amax, int64_t n, unsigned int tiny);
    /* mx32: e[i] = E8M0 code for finite amax[i], by moii_e8m0_from_amax, and inverse[i] = 2^(127 - e[i]) */
    void (*scale)(moii_scale_rule rule, int rounding, const unsigned int *amax, int64_t n, unsigned char *e, float *inverse);
    /* blk128: scale[i] = amax[i] / most, at least 2^-126, and 1 for 0; inverse[i] = 1 / scale[i] */
    void (*scale_f32)(float most, const unsigned int *amax, int64_t n, float *scale, float *inverse);
    /* the same down columns, one maximum and one inverse each */
    void (*amax_cols)(const moii_span *x, unsigned int *amax);
    void (*encode_cols)(const moii_codec *c, const moii_span *x, const float *inverse, unsigned char *codes, int64_t codes_ld);
    /* to[c][r] = from[r][c] */
    void (*transpose)(const unsigned char *from, int64_t from_ld, int64_t rows, int64_t cols, unsigned char *to, int64_t to_ld);
    void (*copy)(const unsigned char *from, int64_t from_ld, int64_t rows, int64_t bytes, unsigned char *to, int64_t to_ld, bool stream);
    void (*fence)(void);
    void (*widen)(moi_dtype in, const void *v, int64_t n, float *out);
    void (*narrow)(const float *v, int64_t n, uint16_t *out); /* to BF16 */
    /* To BF16, towards zero, but what is cut off is remembered in the last bit ("round to odd"): whatever rounds the result
     * to nearest even at least two bits higher, or compares it with a number that ends there, sees the value itself. */
    void (*narrow_odd)(const float *v, int64_t n, uint16_t *out);
} moii_quant_loops;

#endif
