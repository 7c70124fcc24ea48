/* SPDX-License-Identifier: Apache-2.0
 * mixed_multiply.cuh: the multiplying warpgroups of mixed_sm90: codes of B to FP16, a tile's sums.
 *
 * A lane (g = lane / 4, c = lane % 4) has rows g and g + 8 of B of its warp's 16, and of each its 32 codes 32 c to 32 c + 31 of a stage, so that a row's
 * have one scale.  Piece s of the 16 values that are multiplied at once has its codes 4 s to 4 s + 3, as A's copy is laid (half_rows_sm90.cu).  Codes come
 * 16 bytes of a row at a time: of E4M3 those of four pieces, of E2M1 of all. */
#ifndef MOII_MIXED_MULTIPLY_CUH
#define MOII_MIXED_MULTIPLY_CUH

#define FOUR_E5M2 0
#include "eight_f16.cuh"
#include "four_f16.cuh"
#include "mixed_end.cuh"

#define PIECES 8                               /* of a row of a stage, of 16, that are multiplied at once */
#define TAKEN (ELEM_B == PRODUCT_E2M1 ? 8 : 4) /* of which codes come together */
enum { FEWER = BN > 128 ? 96 : 64, FEW = BN > 128 ? 48 : 32 }; /* columns of a tile that has no more rows of A */

/* A power of two of mixed_scales.cuh, twice. */
MOII_FN unsigned int power_pair(unsigned int upper_byte) { return __byte_perm(upper_byte, 0, 0x0404); }

/* Codes of piece i times a power, four of those in a word: a[0] has the first two, a[2] the others.  NaN codes are NaN. */
MOII_FN void four_codes(unsigned int word, int i, unsigned int power, unsigned int a[4])
{
#if ELEM_B == PRODUCT_E2M1 /* even pieces have a word's lower two bytes */
    const uint4 eight = eight_in_turn(word);
    const uint2 four = i % 2 ? make_uint2(eight.z, eight.w) : make_uint2(eight.x, eight.y);
#else
    const uint2 four = four_f16(word);
#endif
    a[0] = f16_times(four.x, power), a[2] = f16_times(four.y, power);
}

/* Addresses, of the first stage: descriptor of A; of the lane's codes of its first row, of its power. */
typedef struct places { unsigned int a, codes, power; } places;

/* What a multiplying thread has of B on its way: of pieces that are multiplied at one time or another, PIECES of them, its FP16; codes of those that come
 * next; the powers of the last wave that was begun. */
typedef struct rows_of_b {
    unsigned int value[PIECES][4];
    uint4 codes[2];
    unsigned int power[2];
} rows_of_b;

/* Where a lane's first codes of its first row are, of a stage's. */
MOII_FN unsigned int lane_codes(int row, int lane)
{
    const int c = lane % 4;
    if (ELEM_B == PRODUCT_E2M1) return (unsigned int)(row * ROW_BYTES + (c ^ lane / 8) * 16);
    return (unsigned int)(row * ROW_BYTES + ((2 * c) ^ (lane / 4)) * 16);
}

/* Those of the pieces from i on, a multiple of TAKEN, of a stage. */
MOII_FN void read_codes(const places &at, unsigned int stage, int i, rows_of_b &b)
{
    const unsigned int codes = (at.codes ^ i % PIECES / TAKEN * 16) + stage * STAGE_BYTES + i / PIECES * (64 * ROW_BYTES);
#pragma unroll
    for (int h = 0; h < 2; h++) b.codes[h] = shared_read_four(codes + h * (8 * ROW_BYTES));
}

MOII_FN void read_powers(const places &at, unsigned int stage, int wave, rows_of_b &b)
{
#pragma unroll
    for (int h = 0; h < 2; h++) b.power[h] = power_pair(shared_read_byte(at.power + stage * SCALES_BYTES + (wave * 64 + h * 8) * 4));
}

/* low of a lane's rows in a stage: of row g + 8 h of wave w byte 2 w + h. */
MOII_FN unsigned int read_lows(unsigned int base, unsigned int stage)
{
    const int thread = (int)threadIdx.x - 128, row = thread / 128 * (64 * WAVES) + thread / 32 % 4 * 16 + thread % 32 / 4; /* no register keeps it */
    const unsigned int at = base + SCALES_AT + stage * SCALES_BYTES + low_at(row);
    unsigned int lows = 0;
#pragma unroll
    for (int i = 0; i < 2 * WAVES; i++) lows |= shared_read_byte(at + (low_at(i / 2 * 64 + i % 2 * 8) - LOWS_AT)) << 8 * i;
    return lows;
}

MOII_FN unsigned int read_flags(unsigned int base, unsigned int stage)
{
    return shared_read_word(base + SCALES_AT + FLAGS_AT + stage * SCALES_BYTES + own_warpgroup() * 4);
}

/* Piece i of a stage becomes FP16: its codes have been read. */
MOII_FN void convert_piece(int i, rows_of_b &b)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint4 v = b.codes[h];
        const int word = i % TAKEN * 4 / TAKEN;
        const unsigned int codes = word == 0 ? v.x : word == 1 ? v.y : word == 2 ? v.z : v.w;
        four_codes(codes, i, b.power[h], b.value[i % PIECES] + h);
    }
}

/* Pieces i and i + 1 of a stage. */
MOII_FN void start_two(const places &at, unsigned int stage, int i, const rows_of_b &b, int columns, float *sum)
{
    const unsigned int a = at.a + stage * (STAGE_BYTES / 16) + i % PIECES / 4 * (HALF_BYTES / 16) + i % 4 * 2;
    wgmma_begin();
    wgmma_kept(sum, b.value[i % PIECES], a, columns, 1);
    wgmma_kept(sum, b.value[i % PIECES + 1], a + 2, columns, 1);
    wgmma_close();
}

enum { ALL = WAVES * PIECES };

/* Two of a stage's pieces are multiplied; meanwhile two that come four pieces later, of the next stage if this is not the unit's last, become FP16, in the
 * place of two that have been. */
MOII_FN void multiply_two(const places &at, unsigned int stage, unsigned int next, bool last, int i, int columns, rows_of_b &b, float sum[WAVES][BN / 2])
{
    const int then = i + 4, taken = then + 2;
    start_two(at, stage, i, b, columns, sum[i / PIECES]);
    WGMMA_WAIT(1);
    if (last && then >= ALL) return;
    if (then % PIECES == 0) read_powers(at, then < ALL ? stage : next, then / PIECES % WAVES, b);
    convert_piece(then % ALL, b), convert_piece(then % ALL + 1, b);
    if (taken % TAKEN != 0) return;
    if (taken < ALL) read_codes(at, stage, taken, b);
    else if (!last) read_codes(at, next, taken % ALL, b);
}

/* A stage's pieces, one wave's and then the other's: what a warp does besides goes on where it lies between products, and not where it lies behind them all.
 * Straight code up to the last wait: else the compiler has each product waited for at once. */
MOII_FN void multiply_stage(const places &at, unsigned int stage, unsigned int next, bool last, int columns, rows_of_b &b, float sum[WAVES][BN / 2])
{
    wgmma_hold(sum[0], columns), wgmma_hold(sum[1], columns);
#pragma unroll
    for (int i = 0; i < ALL; i += 2) multiply_two(at, stage, next, last, i, columns, b, sum);
    WGMMA_WAIT(0);
    wgmma_hold(sum[0], columns), wgmma_hold(sum[1], columns);
}

#if LEAVES
/* The last stage of a unit: wave 0's sums go to D while wave 1's are multiplied. */
MOII_FN void multiply_last(const product_args &a, const unit_end &e, const places &at, unsigned int stage, int columns, rows_of_b &b, float sum[WAVES][BN / 2])
{
    wgmma_hold(sum[0], columns), wgmma_hold(sum[1], columns);
#pragma unroll
    for (int i = 0; i < ALL - 4; i += 2) multiply_two(at, stage, stage, true, i, columns, b, sum);
    start_two(at, stage, ALL - 4, b, columns, sum[1]);
    start_two(at, stage, ALL - 2, b, columns, sum[1]);
    wgmma_hold(sum[0], columns);
    leave_wave(a, e, 0, columns, sum[0]);
    WGMMA_WAIT(0);
    wgmma_hold(sum[1], columns);
}
#endif

/* All stages of a unit but its last, of which the first pieces are ready then. */
MOII_FN void multiply_stages(unsigned int base, const places &at, int steps, int columns, ring &r, rows_of_b &b, float sum[WAVES][BN / 2])
{
    read_powers(at, r.stage, 0, b);
    read_codes(at, r.stage, 0, b);
#pragma unroll
    for (int i = 0; i < 4; i++) convert_piece(i, b);
    if (TAKEN == 4) read_codes(at, r.stage, 4, b);
#pragma unroll 1
    for (; steps > 1; steps--) {
        const unsigned int stage = r.stage;
        ring_step(r);
        barrier_wait(full_barrier(base, r.stage), r.parity);
        const bool moves = read_flags(base, r.stage) & MOVES;
        multiply_stage(at, stage, r.stage, false, columns, b, sum);
        if (moves) move_sums(read_lows(base, stage), read_lows(base, r.stage), columns, sum);
        release_stage(base, stage);
    }
}

/* A unit of no more than so many rows of A, the block's n-th, whose first stage is there. */
MOII_FN void multiply_unit(const product_args &a, int n, unsigned int base, const places &at, int columns, ring &r)
{
    float sum[WAVES][BN / 2];
    rows_of_b b;
#pragma unroll
    for (int j = 0; j < columns / 2; j++) sum[0][j] = sum[1][j] = 0.0f;
    multiply_stages(base, at, (a.k + STEP - 1) / STEP, columns, r, b, sum);
#if LEAVES
    if (a.vectors && a.n % 8 == 0 && !(read_flags(base, r.stage) & FAR)) {
        const unit_end e = end_of(base, n, read_lows(base, r.stage));
        multiply_last(a, e, at, r.stage, columns, b, sum);
        release_stage(base, r.stage);
        leave_wave(a, e, 1, columns, sum[1]);
        ring_step(r);
        return;
    }
#endif
    multiply_stage(at, r.stage, r.stage, true, columns, b, sum);
    const unsigned int lows = read_lows(base, r.stage);
    const bool far = read_flags(base, r.stage) & FAR;
    release_stage(base, r.stage);
    times_powers(factors_at(base, n), lows, far, columns, sum);
    store_waves(a, look_at_card(base, n), columns, sum, base);
    if (LEAVES) warpgroup_meets();
    ring_step(r);
}

/* Of no products: what a warpgroup has of a unit. */
MOII_FN void store_zeros(const product_args &a, const unit &u)
{
    const int line = (int)threadIdx.x % 128, at = line_of(a, u, own_warpgroup() * (64 * WAVES)) + line, lines = SWIGLU ? a.n / 2 : a.n;
    if (at >= lines || (SWIGLU && line >= 64)) return;
#pragma unroll 1
    for (int row = 0; row < u.rows; row++) {
        const int place = place_of(a, u, row);
        if (place >= 0) store_one(a, place * a.ldd + at, 0.0f * weight_of(a, u, row));
    }
}

MOII_FN void multiply_units(const product_args &a, const group_list &groups, unsigned int base, int wg)
{
    const int lane = (int)threadIdx.x % 32, c = lane % 4, first = wg * (64 * WAVES) + (int)threadIdx.x / 32 % 4 * 16, row = first + lane / 4;
    const places at = { wgmma_at(base + B_BYTES), base + lane_codes(row, lane), base + SCALES_AT + row * 4 + c };
    ring r = { 0, 0 };
    unit u;
#pragma unroll 1
    for (int n = 0; take_unit(a, groups, base, n, &u); return_unit(base, n), n++) {
        if (a.k == 0) {
            if (!ADD) store_zeros(a, u);
            continue;
        }
        barrier_wait(full_barrier(base, r.stage), r.parity);
        const int rows = __shfl_sync(~0u, u.rows, 0);
        if (rows > FEWER && BN > FEWER) multiply_unit(a, n, base, at, BN, r);
        else if (rows > FEW) multiply_unit(a, n, base, at, FEWER, r);
        else multiply_unit(a, n, base, at, FEW, r);
    }
}

#endif
