/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_columns.cuh: columns of x and u as FP16, what a line (128 values of k) takes of them; or against BF16 weights (64 values) as they are.
 *
 * A lane (g = lane / 4, c = lane % 4) has column g at k = 32 b + 8 c .. + 7 for b = 0 .. 3, as mma.m16n8k16 wants them.  Each column's line is
 * multiplied by a power of two that takes its largest finite magnitude into 2^14 .. 2^15, so that FP16 holds BF16's values down to 2^-32 of it
 * exactly and smaller ones within 2^-40 of it.  An exponent here is that of the largest as a float has it, at least LEAST_EXPONENT; the line's sums
 * are then 2^(141 - exponent) too large, and twice that where scales are taken twice as large (decode_f16_multiply.cuh); codes of E2M1 are 2^14 too small.
 * Against these, each eight values are in the order 0, 4, 1, 5, 2, 6, 3, 7. */
#ifndef MOII_DECODE_F16_COLUMNS_CUH
#define MOII_DECODE_F16_COLUMNS_CUH

#include "f16x2.cuh"
#include "num.h"

enum { LINE_VALUES = F16_LINE_VALUES(WEIGHTS), BLOCKS = F16_BLOCKS(WEIGHTS), LINE_BYTES = F16_LINE_BYTES(WEIGHTS) };

/* Rows that are no whole lines (TAIL): blocks of 32 that there are of a line; the others' codes come as zeros, and columns and scales are to be zeros, too. */
#ifndef TAIL
#define TAIL 0
#endif
MOII_FN int blocks_of(const moe_decode_f16_sm90_args &a, int line) { return !TAIL || line + 1 < a.lines ? (int)BLOCKS : a.last_blocks; }
MOII_FN unsigned int bytes_of_blocks(unsigned int word, int blocks) { return TAIL ? word & 0xFFFFFFFFu >> 8 * (4 - blocks) : word; }

#if WEIGHTS == F16_BF16
typedef struct line_columns { uint4 v[BLOCKS]; } line_columns;
typedef struct line_u { uint4 v[BLOCKS]; unsigned int exponents; } line_u; /* the latter: whether it is there */
MOII_FN void widen_x(line_columns &, int) {}
MOII_FN void align_u(line_columns &to, const line_u &u, int)
{
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) to.v[b] = u.v[b];
}
#else
enum { LEAST_EXPONENT = 16, SCALES_TWICE = WEIGHTS != F16_SQUARES, CODES_SMALLER = WEIGHTS == F16_MXFP4 ? 14 : 0 };

/* Against a line's weights; the factors of the sums of columns 2c and 2c + 1. */
typedef struct line_columns { uint4 v[BLOCKS]; float even, odd; } line_columns;

MOII_FN float f16_scale(unsigned int exponent) { return moii_float_of((268u - exponent) << 23); }  /* 2^(141 - exponent) */
/* 2^(exponent - 141), or half of it; of E2M1 2^14 times as much */
MOII_FN float sum_factor(unsigned int exponent) { return moii_float_of((exponent - 14u + CODES_SMALLER - SCALES_TWICE) << 23); }

MOII_FN void set_factors(line_columns &to, unsigned int exponent, int lane)
{
    const float own = sum_factor(exponent);
    to.even = __shfl_sync(0xFFFFFFFFu, own, lane % 4 * 8), to.odd = __shfl_sync(0xFFFFFFFFu, own, lane % 4 * 8 + 4);
}

/* The same of all lanes of a column. */
MOII_FN unsigned int column_most(unsigned int v)
{
    v = max(v, __shfl_xor_sync(0xFFFFFFFFu, v, 1));
    return max(v, __shfl_xor_sync(0xFFFFFFFFu, v, 2));
}

#if PASS == 1
/* Of two BF16: exponents + 1 in bits 7 .. 15 of each half, negative for Inf and NaN. */
MOII_FN unsigned int bf16_exponents(unsigned int pair) { return (pair & 0x7F807F80u) + 0x00800080u; }
MOII_FN unsigned int most_of_halves(unsigned int a, unsigned int b) /* signed */
{
    unsigned int d;
    asm("max.s16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Eight values to the order of E2M1's. */
MOII_FN uint4 in_order(const uint4 &v)
{
    if (WEIGHTS != F16_MXFP4) return v;
    return make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632), __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632));
}

MOII_FN void widen_x(line_columns &to, int lane)
{
    unsigned int both = 0;
#pragma unroll
    for (int b = 0; b < 4; b++) {
        both = most_of_halves(both, most_of_halves(bf16_exponents(to.v[b].x), bf16_exponents(to.v[b].y)));
        both = most_of_halves(both, most_of_halves(bf16_exponents(to.v[b].z), bf16_exponents(to.v[b].w)));
    }
    const int here = (int)(max(both & 0xFFFFu, both >> 16) >> 7) - 1; /* neither half is negative */
    const unsigned int most = column_most((unsigned int)max(here, (int)LEAST_EXPONENT));
    const float scale = f16_scale(most);
#pragma unroll
    for (int b = 0; b < 4; b++) {
        to.v[b] = in_order(to.v[b]);
        to.v[b].x = f16_of_bf16(to.v[b].x, scale), to.v[b].y = f16_of_bf16(to.v[b].y, scale);
        to.v[b].z = f16_of_bf16(to.v[b].z, scale), to.v[b].w = f16_of_bf16(to.v[b].w, scale);
    }
    set_factors(to, most, lane);
}
#else
/* u as pass 1 left it: each lane's 8 values have an exponent of their own. */
typedef struct line_u { uint4 v[4]; unsigned int exponents; } line_u;

/* To one exponent for all of a column's line. */
MOII_FN void align_u(line_columns &to, const line_u &u, int lane)
{
    unsigned int e[4], most = LEAST_EXPONENT;
#pragma unroll
    for (int b = 0; b < 4; b++) e[b] = u.exponents >> 8 * b & 255u, most = max(most, e[b]);
    most = column_most(most);
#pragma unroll
    for (int b = 0; b < 4; b++) {
        const float less = moii_float_of((unsigned int)max(127 + (int)e[b] - (int)most, 64) << 23); /* 2^-63 is 0 in FP16 */
        unsigned int f;
        asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(f) : "f"(less));
        to.v[b].x = f16_times(u.v[b].x, f), to.v[b].y = f16_times(u.v[b].y, f);
        to.v[b].z = f16_times(u.v[b].z, f), to.v[b].w = f16_times(u.v[b].w, f);
    }
    set_factors(to, most, lane);
}
#endif
#endif

#if PASS == 1
/* x: the lane's column at the line's first value for this lane. */
MOII_FN void load_x(line_columns &to, const unsigned short *x, int blocks)
{
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
        if (TAIL && b >= blocks) to.v[b] = make_uint4(0, 0, 0, 0);
        else asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" /* now: not where it is used first */
                     : "=r"(to.v[b].x), "=r"(to.v[b].y), "=r"(to.v[b].z), "=r"(to.v[b].w) : "l"(x + 32 * b) : "memory");
}
#endif

#endif
