/* SPDX-License-Identifier: Apache-2.0
 * mixed_multiply.cuh: the multiplying warpgroups of mixed_sm90: codes of B to BF16, a tile's sums.
 *
 * A lane (g = lane / 4, c = lane % 4) has rows g and g + 8 of B of its warp's 16, and of each its 32 codes 32 c to 32 c + 31 of a stage, so that a row's
 * have one scale.  Piece s of the 16 values that are multiplied at once has its codes 4 s to 4 s + 3, as A's copy is laid (widen_sm90.cu).  Codes come 16 bytes
 * of a row at a time: of E4M3 those of four pieces, of E2M1 of all. */
#ifndef MOII_MIXED_MULTIPLY_CUH
#define MOII_MIXED_MULTIPLY_CUH

#define PIECES 8                               /* of a row of a stage, of 16, that are multiplied at once */
#define TAKEN (ELEM_B == PRODUCT_E2M1 ? 8 : 4) /* of which codes come together */
enum { FEWER = BN > 128 ? 96 : 64, FEW = BN > 128 ? 48 : 32 }; /* columns of a tile that has no more rows of A */

/* 2^(scale - 127), twice, in BF16; NaN for 255. */
MOII_FN unsigned int scale_pair(unsigned int scale)
{
    const unsigned int one = scale == 255 ? 0x7FFFu : scale ? scale << 7 : 0x40u;
    return one | one << 16;
}

/* Codes of piece i times a scale, four of those in a word: a[0] has the first and the third, a[2] the second and the fourth.  nan: bits 7 of bytes, set where a
 * code is NaN; where there is one, at others of its row, too. */
#if ELEM_B == PRODUCT_E2M1
/* Even pieces have a word's lower two bytes.  A code's sign goes to bit 15, its three other bits to 8 .. 6, which are BF16's lowest exponent bits and highest
 * mantissa bit; what is subnormal there is subnormal here.  None is NaN. */
MOII_FN void four_codes(unsigned int word, int i, unsigned int scale, unsigned int a[4], unsigned int &)
{
    const unsigned int magnitude = 0x01C001C0u, there = 0x81C081C0u, times = 0x7E807E80u; /* BF16's 2^126: E2M1's exponents are 126 less */
    const unsigned int codes = __byte_perm(word, 0, i % 2 ? 0x4342 : 0x4140);
    a[0] = bf16_times(bf16_times(bits_of_two(codes << 6, codes << 12, magnitude) & there, times), scale);
    a[2] = bf16_times(bf16_times(bits_of_two(codes << 2, codes << 8, magnitude) & there, times), scale);
}
#else
MOII_FN void four_codes(unsigned int codes, int, unsigned int scale, unsigned int a[4], unsigned int &nan)
{
    const unsigned int magnitude = 0x07F007F0u, sign = 0x80008000u, times = 0x7B807B80u; /* BF16's 2^120: E4M3's exponents are 120 less */
    const unsigned int even = (codes << 4 & magnitude) | (codes << 8 & sign), odd = (codes >> 4 & magnitude) | (codes & sign);
    a[0] = bf16_times(bf16_times(even, times), scale);
    a[2] = bf16_times(bf16_times(odd, times), scale);
    nan |= codes ^ (codes + 0x01010101u);
}
#endif

/* Addresses, of the first stage: descriptor of A; of the lane's codes of its first row, and of its scale. */
typedef struct places { unsigned int a, codes, scale; } places;

/* What a multiplying thread has of B on its way: of pieces that are multiplied at one time or another, PIECES of them, its BF16; codes of those that come
 * next; the scales of the last wave that was begun; which codes were NaN (E2M1 has none). */
typedef struct rows_of_b {
    unsigned int value[PIECES][4];
    uint4 codes[2];
    unsigned int scale[2], nan[WAVES][2];
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

MOII_FN void read_scales(const places &at, unsigned int stage, int wave, rows_of_b &b)
{
#pragma unroll
    for (int h = 0; h < 2; h++) b.scale[h] = scale_pair(shared_read_byte(at.scale + stage * SCALES_BYTES + (wave * 64 + h * 8) * 4));
}

/* Piece i of a stage becomes BF16: its codes have been read. */
MOII_FN void convert_piece(int i, rows_of_b &b)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint4 v = b.codes[h];
        const int word = i % TAKEN * 4 / TAKEN;
        const unsigned int codes = word == 0 ? v.x : word == 1 ? v.y : word == 2 ? v.z : v.w;
        four_codes(codes, i, b.scale[h], b.value[i % PIECES] + h, b.nan[i / PIECES][h]);
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

/* A stage's pieces, one wave's and then the other's.  While two are multiplied, two that come four pieces later become BF16, in the place of two that have
 * been: what a warp does besides goes on where it lies between products, and not where it lies behind them all.  Straight code up to the last wait: else the
 * compiler has each product waited for at once. */
MOII_FN void multiply_stage(const places &at, unsigned int stage, unsigned int next, bool last, int columns, rows_of_b &b, float sum[WAVES][BN / 2])
{
    enum { ALL = WAVES * PIECES };
    wgmma_hold(sum[0], columns), wgmma_hold(sum[1], columns);
#pragma unroll
    for (int i = 0; i < ALL; i += 2) {
        const int then = i + 4, taken = then + 2;
        start_two(at, stage, i, b, columns, sum[i / PIECES]);
        WGMMA_WAIT(1);
        if (last && then >= ALL) continue;
        if (then % PIECES == 0) read_scales(at, then < ALL ? stage : next, then / PIECES % WAVES, b);
        convert_piece(then % ALL, b), convert_piece(then % ALL + 1, b);
        if (taken % TAKEN != 0) continue;
        if (taken < ALL) read_codes(at, stage, taken, b);
        else if (!last) read_codes(at, next, taken % ALL, b);
    }
    WGMMA_WAIT(0);
    wgmma_hold(sum[0], columns), wgmma_hold(sum[1], columns);
}

/* A NaN among a row's codes is in all of its products. */
MOII_FN void spread_nan(float *sum, int columns, const unsigned int nan[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        unsigned int any = nan[h];
        any |= __shfl_xor_sync(~0u, any, 1), any |= __shfl_xor_sync(~0u, any, 2);
        if (any & 0x80808080u)
#pragma unroll
            for (int i = 0; i < columns / 8; i++) sum[4 * i + 2 * h] = sum[4 * i + 2 * h + 1] = moii_float_of(0x7FFFFFFFu);
    }
}

MOII_FN void multiply_tile(unsigned int base, const places &at, int steps, int columns, ring &r, float sum[WAVES][BN / 2])
{
    rows_of_b b;
#pragma unroll
    for (int j = 0; j < columns / 2; j++) sum[0][j] = sum[1][j] = 0.0f;
    if (steps == 0) return;
    b.nan[0][0] = b.nan[0][1] = b.nan[1][0] = b.nan[1][1] = 0;
    barrier_wait(full_barrier(base, r.stage), r.parity);
    read_scales(at, r.stage, 0, b);
    read_codes(at, r.stage, 0, b);
#pragma unroll
    for (int i = 0; i < 4; i++) convert_piece(i, b);
    if (TAKEN == 4) read_codes(at, r.stage, 4, b);
#pragma unroll 1
    for (; steps > 1; steps--) {
        const unsigned int stage = r.stage;
        ring_step(r);
        barrier_wait(full_barrier(base, r.stage), r.parity);
        multiply_stage(at, stage, r.stage, false, columns, b, sum);
        release_stage(base, stage);
    }
    multiply_stage(at, r.stage, r.stage, true, columns, b, sum);
    release_stage(base, r.stage);
    ring_step(r);
#pragma unroll
    for (int w = 0; w < WAVES && ELEM_B != PRODUCT_E2M1; w++) spread_nan(sum[w], columns, b.nan[w]);
}

/* A unit of no more than so many rows of A.  first: the warp's first row of B in the tile. */
MOII_FN void multiply_unit(const product_args &a, const group_list &groups, int i, unsigned int base, const places &at, int first, int columns, ring &r)
{
    float sum[WAVES][BN / 2];
    multiply_tile(base, at, (a.k + STEP - 1) / STEP, columns, r, sum);
    if (ADD && a.k == 0) return;
    store_waves(a, find_unit(a, groups, i), columns, first, sum, base); /* found again: no registers keep it */
}

MOII_FN void multiply_units(const product_args &a, const group_list &groups, unsigned int base, int wg)
{
    const int lane = (int)threadIdx.x % 32, c = lane % 4, first = wg * (64 * WAVES) + (int)threadIdx.x / 32 % 4 * 16, row = first + lane / 4;
    const int all = __shfl_sync(~0u, units_in_all(groups), 0);
    const places at = { wgmma_at(base + B_BYTES), base + lane_codes(row, lane), base + SCALES_AT + row * 4 + c };
    ring r = { 0, 0 };
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < all; i += (int)gridDim.x) {
        const int rows = __shfl_sync(~0u, find_unit(a, groups, i).rows, 0);
        if (rows > FEWER && BN > FEWER) multiply_unit(a, groups, i, base, at, first, BN, r);
        else if (rows > FEW) multiply_unit(a, groups, i, base, at, first, FEWER, r);
        else multiply_unit(a, groups, i, base, at, first, FEW, r);
    }
}

#endif
