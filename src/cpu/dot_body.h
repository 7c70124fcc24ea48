/* SPDX-License-Identifier: Apache-2.0
 * dot_body.h: dot.h's kernels in plain C, compiled once per instruction set for the elements that have no better body. */
#ifndef MOII_DOT_BODY_H
#define MOII_DOT_BODY_H

#include <string.h>

#include "dot.h"
#include "num.h"

#define MOII_DOT_IN_ORDER { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 }

/* A float of `bits` bits with `mantissa` mantissa bits becomes FP32 by moving its fields and one exact multiplication, which
 * also makes its subnormals right. */
static inline void dot_floats(const unsigned char *code, int bits, int mantissa, float factor, float *v)
{
    unsigned int magnitude = (1u << (bits - 1)) - 1u;
    for (int i = 0; i < MOII_DOT_BLOCK; i++) {
        unsigned int c = code[i];
        v[i] = moii_float_of((c >> (bits - 1)) << 31 | (c & magnitude) << (23 - mantissa)) * factor;
    }
}

static inline void dot_unpack(const unsigned char *w, int bits, unsigned char *code)
{
    for (int i = 0; bits == 4 && i < 16; i++) {
        code[2 * i] = w[i] & 15;
        code[2 * i + 1] = w[i] >> 4;
    }
    for (int i = 0; bits == 6 && i < 8; i++) {
        unsigned int v = w[3 * i] | (unsigned int)w[3 * i + 1] << 8 | (unsigned int)w[3 * i + 2] << 16;
        for (int j = 0; j < 4; j++) code[4 * i + j] = (unsigned char)(v >> (6 * j) & 63u);
    }
}

/* 32 weights; true if one of them is not a finite number */
static inline bool dot_decode(moi_dtype elem, const unsigned char *w, float *v)
{
    unsigned char code[MOII_DOT_BLOCK], most = 0;
    unsigned short half[MOII_DOT_BLOCK];
    switch (elem) {
    case MOI_F32: memcpy(v, w, 4 * MOII_DOT_BLOCK); return false;
    case MOI_BF16:
        memcpy(half, w, sizeof half);
        for (int i = 0; i < MOII_DOT_BLOCK; i++) v[i] = moii_bf16_decode(half[i]);
        return false;
    case MOI_F16:
        memcpy(half, w, sizeof half);
        for (int i = 0; i < MOII_DOT_BLOCK; i++) v[i] = moii_f16_decode(half[i]);
        return false;
    case MOI_E4M3: dot_floats(w, 8, 3, 0x1p120f, v); break;
    case MOI_E5M2: dot_floats(w, 8, 2, 0x1p112f, v); break;
    case MOI_E3M2: dot_unpack(w, 6, code), dot_floats(code, 6, 2, 0x1p124f, v); return false;
    case MOI_E2M3: dot_unpack(w, 6, code), dot_floats(code, 6, 3, 0x1p126f, v); return false;
    case MOI_E2M1: dot_unpack(w, 4, code), dot_floats(code, 4, 1, 0x1p126f, v); return false;
    default: /* MOI_INT8 */
        for (int i = 0; i < MOII_DOT_BLOCK; i++) v[i] = (float)(signed char)w[i] * 0x1p-6f;
        return false;
    }
    for (int i = 0; i < MOII_DOT_BLOCK; i++) most = (w[i] & 0x7F) > most ? w[i] & 0x7F : most;
    return most >= (elem == MOI_E4M3 ? 0x7F : 0x7C);
}

/* eight lanes of a row's sum; lane i gets the elements i, i + 8, i + 16, i + 24 of each block */
static inline void dot_add(float *restrict lane, const float *restrict v, const float *restrict x, float scale)
{
    for (int i = 0; i < 8; i++) lane[i] += (v[i] * x[i] + v[i + 8] * x[i + 8] + v[i + 16] * x[i + 16] + v[i + 24] * x[i + 24]) * scale;
}

static inline __attribute__((always_inline)) float dot_plain_c(moi_dtype elem, int bits, const moii_dot *d)
{
    int64_t blocks = d->cols / MOII_DOT_BLOCK, bytes = bits * MOII_DOT_BLOCK / 8;
    float lane[8] = { 0 }, v[MOII_DOT_BLOCK];
    const float *x = d->x;
    bool strange = false;
    for (int64_t b = 0; b < blocks; b++) {
        strange |= dot_decode(elem, d->w + b * bytes, v);
        dot_add(lane, v, x + b * MOII_DOT_BLOCK, bits < 16 ? d->scale[b] : 1.0f);
    }
    if (d->cols % MOII_DOT_BLOCK) {
        unsigned char tail[4 * MOII_DOT_BLOCK] = { 0 };
        memcpy(tail, d->w + blocks * bytes, (size_t)(d->row_bytes - blocks * bytes));
        strange |= dot_decode(elem, tail, v);
        dot_add(lane, v, x + blocks * MOII_DOT_BLOCK, bits < 16 ? d->scale[blocks] : 1.0f);
    }
    if (strange) return moii_float_of(0x7FC00000u);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

#define MOII_DOT_PLAIN_C(name, elem, bits) \
    static inline float name(const moii_dot *d) { return dot_plain_c(elem, bits, d); }
MOII_DOT_PLAIN_C(dot_c_f32, MOI_F32, 32)
MOII_DOT_PLAIN_C(dot_c_f16, MOI_F16, 16)
MOII_DOT_PLAIN_C(dot_c_bf16, MOI_BF16, 16)
MOII_DOT_PLAIN_C(dot_c_e4m3, MOI_E4M3, 8)
MOII_DOT_PLAIN_C(dot_c_e5m2, MOI_E5M2, 8)
MOII_DOT_PLAIN_C(dot_c_e3m2, MOI_E3M2, 6)
MOII_DOT_PLAIN_C(dot_c_e2m3, MOI_E2M3, 6)
MOII_DOT_PLAIN_C(dot_c_e2m1, MOI_E2M1, 4)
MOII_DOT_PLAIN_C(dot_c_int8, MOI_INT8, 8)

/* x in the kernel's order, zeros behind its end */
static inline void dot_place(const moii_dot_kernel *kernel, const float *x, int64_t cols, void *placed)
{
    float *out = (float *)placed;
    if (cols == 0) return; /* there may be no memory at all */
    memset(out, 0, (size_t)moii_dot_placed_bytes(kernel, cols));
    for (int64_t i = 0; i < cols; i++) out[i / MOII_DOT_BLOCK * MOII_DOT_BLOCK + kernel->order[i % MOII_DOT_BLOCK]] = x[i] * kernel->x_factor;
}
#define MOII_DOT_FLOATS(run, factor, ...) { run, dot_place, factor, __VA_ARGS__, 0, 4 * MOII_DOT_PAIR }

/* E8M0 codes to FP32; what may make a weight of 2^128 or more, and NaN, becomes Inf: the row is computed strictly */
static inline void dot_scales(const unsigned char *code, float *scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned int bits = (unsigned int)code[i] << 23;
        bits = bits > 0x400000u ? bits : 0x400000u; /* 2^-127 is subnormal */
        scale[i] = moii_float_of(bits | (code[i] >= 127 + MOII_DOT_SCALE_LIMIT ? 0x7F800000u : 0u));
    }
}

#endif
