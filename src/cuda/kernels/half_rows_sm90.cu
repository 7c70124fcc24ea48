/* SPDX-License-Identifier: Apache-2.0
 *
 * half_rows_sm90: rows of BF16, or of E4M3 or E5M2 with a scale for each 32 values, as FP16 times a power of two, in halves_sm90's order or mixed_sm90's.
 *
 *   value     a row's largest magnitude becomes 2^15 to 2^16 (less where it is below 2^-110), so that values down to 2^-32 of it are exact, and smaller ones
 *             are rounded to multiples of 2^-39 of it; of one with Inf or NaN all products are one of these
 *   factor    what the row has to be multiplied by again, a normal number
 *
 *   defines   ELEM: MOI_BF16, or, PLACED, MOI_E4M3 or MOI_E5M2;  PLACED: 1: mixed_sm90's order, zeros behind a row's last
 *   rows      are whole blocks of 32
 *   order     halves_sm90's: of each 32 values 8 c to 8 c + 7 for c = 0 to 3: in two pieces of 16, of which the first has 8 c to 8 c + 3
 *             mixed_sm90's: of each 128 values 32 c to 32 c + 31: in eight pieces, of which piece s has 32 c + 4 s to 32 c + 4 s + 3
 *             and of a piece the first two for all c in front
 *   a list may name the rows; counts may say how many a group has
 *   grid      any; HALF_ROWS_THREADS threads, a row for each warp
 *   launch    begins before the grid before it has ended, and waits for it */
#include "product_sm90_args.h"
#define FOUR_E5M2 (ELEM == PRODUCT_E5M2)
#include "f16x2.cuh"
#include "four_f16.cuh"
#include "half_rows_sm90_args.h"
#include "own_warp.cuh"
#include "product_scales.cuh"
#include "ptx_sm90.cuh"
#include "row_list.cuh"

enum { EACH = PLACED ? 32 : 8, PIECES = PLACED ? 8 : 2 }; /* values of one c; pieces that hold them */

/* A row as it lies, and the exponent field of what its values are multiplied by, of codes: with a scale of 1. */
typedef struct row_from {
    const char *at;
    product_scales scales; /* of its group */
    unsigned int row;      /* in that group */
    int field;
} row_from;

#if ELEM == PRODUCT_BF16
MOII_FN unsigned int larger(unsigned int pair) { return max(pair & 0x7FFFu, pair >> 16 & 0x7FFFu); }

/* The largest of a row's magnitudes, as bits of BF16. */
MOII_FN unsigned int row_top(const row_from &r, int pieces)
{
    unsigned int top = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x % 32; i < 2 * pieces; i += 32) {
        const uint4 v = __ldg((const uint4 *)r.at + i);
        top = max(max(top, max(larger(v.x), larger(v.y))), max(larger(v.z), larger(v.w)));
    }
    return __reduce_max_sync(~0u, top);
}

/* Exponent field of the power of two: 253 at most, so that its inverse is a normal number. */
MOII_FN int field_of(const row_from &r, int pieces) { return min(269 - (int)(row_top(r, pieces) >> 7), 253); }

/* Four values, of which the first is a row's 4 i-th. */
MOII_FN uint2 four_halves(const row_from &r, int i)
{
    const uint2 four = __ldg((const uint2 *)r.at + i);
    const float times = moii_float_of((unsigned int)r.field << 23);
    return make_uint2(f16_of_bf16(four.x, times), f16_of_bf16(four.y, times));
}
#else
enum { FRACTION = ELEM == PRODUCT_E5M2 ? 2 : 3, BIAS = ELEM == PRODUCT_E5M2 ? 15 : 7 };

MOII_FN unsigned int scale_code(const row_from &r, int block)
{
    return __ldg((const unsigned char *)r.scales.p + scale_index(r.scales, r.row, (unsigned int)block));
}

/* The largest of a block's magnitudes, as bits of a code. */
MOII_FN unsigned int block_top(const row_from &r, int block)
{
    unsigned int top = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 v = __ldg((const uint4 *)r.at + block * 2 + i);
        const unsigned int words[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (int j = 0; j < 4; j++) top = larger_pair(top, larger_pair(words[j] & 0x007F007Fu, words[j] >> 8 & 0x007F007Fu));
    }
    return max(top & 0xFFFFu, top >> 16);
}

/* Of a value's scale and exponent field the largest sum, where it is not 0: it is 2^(sum - 127 - BIAS) at least, and below twice as much. */
MOII_FN int field_of(const row_from &r, int pieces)
{
    int top = 16 + BIAS; /* so that the inverse is a normal number */
    for (int i = (int)threadIdx.x % 32; i < pieces / 2; i += 32) {
        const int code = (int)scale_code(r, i), largest = (int)block_top(r, i);
        if (code != 255 && largest > 0) top = max(top, code + max(largest >> FRACTION, 1));
    }
    return 269 + BIAS - __reduce_max_sync(~0u, top);
}

MOII_FN unsigned int half_pair(unsigned int halves, float times)
{
    float x, y;
    f16_values(halves, x, y);
    return f16_pair(x * times, y * times);
}

MOII_FN uint2 four_halves(const row_from &r, int i)
{
    const unsigned int scale = scale_code(r, i / 8);
    const int field = min((int)scale + r.field - 127, 254); /* more is of zeros alone */
    const float times = scale == 255 ? moii_float_of(0x7FC00000u) : field > 0 ? moii_float_of((unsigned int)field << 23) : 0.0f;
    const uint2 four = four_f16(__ldg((const unsigned int *)r.at + i));
    return make_uint2(half_pair(four.x, times), half_pair(four.y, times));
}
#endif

/* pieces: that are there, of so many that are written, an even number.  Lanes change halves of pieces with their neighbours: 32 bytes side by side are written
 * by two lanes at once, for L2 takes whole sectors. */
MOII_FN void write_row(const row_from &r, uint4 *to, int pieces, int written)
{
    const int lane = (int)threadIdx.x % 32, odd = lane % 2;
#pragma unroll 2
    for (int from = 0; from < written; from += 32) {
        const int i = from + lane;
        unsigned int front[4], behind[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int first = i / PIECES * (4 * EACH) + c * EACH;
            const uint2 four = first < 16 * pieces ? four_halves(r, first / 4 + i % PIECES) : make_uint2(0, 0);
            const unsigned int got = __shfl_xor_sync(~0u, odd ? four.x : four.y, 1);
            front[c] = odd ? got : four.x, behind[c] = odd ? four.y : got;
        }
        if (i >= written) continue;
        to[2 * i - odd] = make_uint4(front[0], front[1], front[2], front[3]);
        to[2 * i - odd + 2] = make_uint4(behind[0], behind[1], behind[2], behind[3]);
    }
}

extern "C" __global__ void __launch_bounds__(HALF_ROWS_THREADS, 8) half_rows_sm90(const __grid_constant__ half_rows_sm90_args a)
{
    grid_wait();
    grid_release();
    const int rows = listed_rows(a.list, a.rows), apart = (int)gridDim.x * (HALF_ROWS_THREADS / 32);
    for (int row = (int)blockIdx.x * (HALF_ROWS_THREADS / 32) + own_warp(); row < rows; row += apart) {
        const int group = a.counts ? row / a.group_rows : 0, from = listed_row(a.list, row);
        if (a.counts && row - group * a.group_rows >= __ldg(a.counts + group)) continue;
        row_from r = { a.from + from * a.pitch, a.scales, (unsigned int)(from - group * a.group_rows), 0 };
        r.scales.p = (const char *)a.scales.p + group * a.scales.group_bytes;
        r.field = field_of(r, a.pieces);
        write_row(r, (uint4 *)a.to + row * 2ll * a.written, a.pieces, a.written);
        if (threadIdx.x % 32 == 0) a.factor[row] = moii_float_of((unsigned int)(254 - r.field) << 23);
    }
}
