/* SPDX-License-Identifier: Apache-2.0
 *
 * blk_turn.cuh: a tile of 128 x 128 BF16 values in shared memory, where mx_turn.cuh has them, becomes codes of blocks of 128 along its rows and
 * down its columns, by 512 threads.  Rows behind the last must be zeros.
 *
 *   tops      largest magnitudes of each warp's 8 rows, a pair of columns to a word
 *   inverse   what a column's values are multiplied by; NaN for poisoned blocks
 */
#ifndef MOII_BLK_TURN_CUH
#define MOII_BLK_TURN_CUH

typedef unsigned int warp_tops[TILE / 8][TILE / 2];

/* The largest magnitudes of four rows of eight columns, over both halves of the warp. */
MOII_FN void keep_tops(const line v[4], unsigned int *tops)
{
    uint4 m = v[0];
#pragma unroll
    for (int i = 1; i < 4; i++) m = make_uint4(stronger(m.x, v[i].x), stronger(m.y, v[i].y), stronger(m.z, v[i].z), stronger(m.w, v[i].w));
    m = make_uint4(magnitudes(m.x), magnitudes(m.y), magnitudes(m.z), magnitudes(m.w));
    m.x = larger(m.x, __shfl_xor_sync(0xFFFFFFFFu, m.x, 16)), m.y = larger(m.y, __shfl_xor_sync(0xFFFFFFFFu, m.y, 16));
    m.z = larger(m.z, __shfl_xor_sync(0xFFFFFFFFu, m.z, 16)), m.w = larger(m.w, __shfl_xor_sync(0xFFFFFFFFu, m.w, 16));
    if (threadIdx.x % 32 < 16) *(uint4 *)(tops + threadIdx.x % 16 * 4) = m;
}

/* Four rows, of which each of 16 lanes has eight values, become codes; `row` is the first one's number in `scales`.  Divisions are dear, so of four
 * lanes each finds the scale of one row. */
MOII_FN void four_rows(const tile8_side &side, const line v[4], int row, shared_scales *scales, uint2 codes[4])
{
    const int lane = threadIdx.x % 16;
    const unsigned int first = top_of_lanes(row_pair_top(v, 0), 1, 16), second = top_of_lanes(row_pair_top(v, 2), 1, 16);
    const unsigned int pair = lane & 2 ? second : first, own = lane & 1 ? upper_half(pair) : lower_half(pair);
    const float mine = take_scale(TILE_BLK128, side, own, lane < 4, scales, 0, row + lane % 4);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float by = __shfl_sync(0xFFFFFFFFu, mine, i, 16);
        float x[8];
#pragma unroll
        for (int c = 0; c < 8; c++) x[c] = value_of(v[i], c) * by;
        codes[i] = eight_codes(ROW_ELEM, x);
    }
}

/* The scale of a column. */
MOII_FN void take_column(const tile8_side &side, const warp_tops &tops, int col, shared_scales *scales, float *inverse)
{
    unsigned int top = 0;
#pragma unroll
    for (int w = 0; w < TILE / 8; w++) top = larger(top, tops[w][col / 2]);
    inverse[col] = take_scale(TILE_BLK128, side, col % 2 ? upper_half(top) : lower_half(top), true, scales, 0, col);
}

/* The thread's 16 rows of two columns become codes. */
MOII_FN void turn_by(const float *inverse, const whole_tile &from, half_tile &turned)
{
    const int lane = threadIdx.x % 32, half = lane / 16, block = threadIdx.x / 128 % 4, pair = threadIdx.x / 32 % 4 * 16 + lane % 16;
    const unsigned int *values = (const unsigned int *)from[block * 32 + half * 16] + (pair ^ half << 4);
    const float2 by = *(const float2 *)(inverse + 2 * pair);
    unsigned int w[16];
#pragma unroll
    for (int i = 0; i < 16; i++) w[i] = values[i * (TILE / 2)];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float x[16];
#pragma unroll
        for (int k = 0; k < 16; k++) x[k] = i ? moii_float_of(upper_half(w[k])) * by.y : moii_float_of(lower_half(w[k])) * by.x;
        const uint2 low = eight_codes(COL_ELEM, x), high = eight_codes(COL_ELEM, x + 8);
        turned[2 * pair + i][chunk_place(2 * pair, 2 * block + half)] = make_uint4(low.x, low.y, high.x, high.y);
    }
}

#endif
