/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_far.cuh: sums that left FP32 on the way, worked out anew in FP64, from memory.
 *
 * A line's blocks of 32 are added up times their scales before the column's factor, which is 2^-14 for values near 1 and goes down to 2^-125.  So scales
 * from 2^89 on (E4M3: 2^96, E2M1: 2^116) can give Inf or NaN where products of dequantised weights are finite.  A sum that is neither is as good as ever.  One
 * that is, of a row that has a scale of 2 or more and none that is NaN, takes this way: whether it does depends on its row and column alone. */
#ifndef MOII_DECODE_F16_FAR_CUH
#define MOII_DECODE_F16_FAR_CUH

#include "moe_decode_f16_sm90_args.h"
#include "num.h"

enum { MAY_BE_FAR = WEIGHTS != F16_SQUARES && WEIGHTS != F16_BF16 };
MOII_FN bool may_be_far(float sum) { return MAY_BE_FAR && !moii_is_finite(sum); }

/* A column, whole, whatever lines the launch has: a token's x, or u of a job's column with its exponents. */
MOII_FN double far_power(int exponent) { return __longlong_as_double((long long)(exponent + 1023) << 52); }
#if PASS == 1
typedef const unsigned short *far_column;
MOII_FN far_column far_x(const moe_decode_f16_sm90_args &a, int token) { return a.x + (long long)token * a.hidden; }
MOII_FN double far_value(far_column c, int k) { return (double)moii_bf16_decode(__ldcg(c + k)); }
MOII_FN int far_cols(const moe_decode_f16_sm90_args &a) { return a.hidden; }
MOII_FN int far_rows(const moe_decode_f16_sm90_args &a) { return 2 * a.width; }
#else
typedef struct far_column { const unsigned short *values; const unsigned char *exponents; } far_column;
MOII_FN far_column far_u(const moe_decode_f16_sm90_args &a, int job, int column)
{
    const long long row = (long long)job * a.columns + column;
    const far_column c = { a.u + (row * a.width - a.before * F16_LINE), a.exponent + (row * a.exponent_row - a.before * (F16_LINE / 8)) };
    return c;
}
MOII_FN double far_value(const far_column &c, int k)
{
    const int eight = k / 8, in_line = eight % 16; /* exponents: in a line by lanes, then blocks */
    const unsigned int exponent = __ldcg(c.exponents + (eight - in_line + in_line % 4 * 4 + in_line / 4));
    return (double)moii_f16_decode(__ldcg(c.values + k)) * far_power((int)exponent - 141);
}
MOII_FN int far_cols(const moe_decode_f16_sm90_args &a) { return a.width; }
MOII_FN int far_rows(const moe_decode_f16_sm90_args &a) { return a.hidden; }
#endif

MOII_FN double far_weight(const unsigned char *row, int k)
{
    if (WEIGHTS == F16_MXFP4) return (double)moii_e2m1_decode(row[k / 2] >> k % 2 * 4 & 15u);
    return (double)(WEIGHTS == F16_MX_E5M2 ? moii_e5m2_decode(row[k]) : moii_e4m3_decode(row[k]));
}

MOII_FN const unsigned char *far_scales(const moe_decode_f16_sm90_args &a, int expert, int row)
{
    return a.scale + ((long long)expert * a.expert_scale_bytes + (long long)row * a.scale_row - a.before * 4);
}
/* Whether a row has a scale of 2 or more, and none that is NaN.  As many rounds for all lanes, here and below: behind loops that they leave apart the compiler
 * would take them for parted. */
MOII_FN bool has_far_scale(const moe_decode_f16_sm90_args &a, int expert, int row)
{
    const unsigned char *scales = far_scales(a, expert, row);
    unsigned int most = 0;
#pragma unroll 1
    for (int b = 0; b < far_cols(a) / 32; b++) most = max(most, (unsigned int)scales[b]);
    return most >= 128 && most < 255;
}
/* An expert's row times a column. */
MOII_FN float far_sum(const moe_decode_f16_sm90_args &a, int expert, int row, const far_column &c)
{
    const int cols = far_cols(a), row_bytes = WEIGHTS == F16_MXFP4 ? cols / 2 : cols;
    const unsigned char *codes = a.codes + ((long long)expert * far_rows(a) + row) * row_bytes, *scales = far_scales(a, expert, row);
    double sum = 0;
#pragma unroll 1
    for (int k = 0; k < cols; k++) sum += far_weight(codes, k) * far_value(c, k) * far_power(scales[k / 32] - 127);
    return (float)sum;
}

#if PASS == 2
/* An output of an expert and a column: as it is, or anew. */
MOII_FN float mended(float sum, int expert, int row, int job, int column, const moe_decode_f16_sm90_args &a)
{
    return may_be_far(sum) && has_far_scale(a, expert, row) ? far_sum(a, expert, row, far_u(a, job, column)) : sum;
}
#endif

#endif
