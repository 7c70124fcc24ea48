/* SPDX-License-Identifier: Apache-2.0
 * mixed_scales.cuh: what the warps of mixed_sm90 that bring scales leave in shared memory, and how who multiplies takes it.
 *
 * Codes of a row of B become FP16 times 2^(field - 15), where field is what the block's scale has more than the row's `low`, and LEAST: so that its values lie
 * where FP16 has them exactly, which is so of scales up to 2^SPAN apart, and sums are to be multiplied by 2^(low - LOW_BIAS) in the end.  low is the
 * stage's, of its four blocks: it stays as long as their scales fit, and where it moves, which a flag of 128 rows says, sums so far follow.  It falls to no
 * more than LIMIT below the highest that it was in the unit, for sums are FP32.  What lies deeper, or more than SPAN below another of the four, is rounded
 * to multiples of 2^-24, and is 0 where there is no power for it.
 *
 *   stage     of each row four fields, as the upper byte of 2^(field - 15) in FP16; then low of each row, a byte (low_at); then flags of 128 rows each, words
 *   factors   of a unit's rows of A, which are powers of two: exponents, a byte each */
#ifndef MOII_MIXED_SCALES_CUH
#define MOII_MIXED_SCALES_CUH

#if ELEM_B == PRODUCT_E2M1 /* 2^-14 in FP16 as they come: 0.5 to 6 with fields 6 to 30 */
enum { LEAST = 6, SPAN = 24, LOW_BIAS = 104 };
#else /* 2^-9 to 448, fields 1 to 22 */
enum { LEAST = 1, SPAN = 21, LOW_BIAS = 113 };
#endif
enum { LIMIT = 40, NAN_SCALE = 255, NEAR = 30 };
enum { MOVES = 1, FAR = 2 }; /* flags: some row's low is not the last stage's; in a unit's last stage: is more than NEAR from LOW_BIAS */

#define LOWS_AT (BM * 4)
#define FLAGS_AT (BM * 5)

enum { EACH = 4 }; /* rows of a lane of those warps, each 32 from the one before */

/* Of a lane's rows a byte each: low, and the highest that it has been of the unit. */
typedef struct scales_kept { unsigned int lows, highest; } scales_kept;

MOII_FN int byte_of(unsigned int word, int i) { return (int)(word >> 8 * i & 255); }

/* A low that fits four blocks' scales, in the middle of those that do; of more than SPAN powers the highest are what it fits. */
MOII_FN int low_for(unsigned int codes, int low, int highest, bool first)
{
    int high = -1, least = NAN_SCALE;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int code = byte_of(codes, i);
        if (code != NAN_SCALE) high = max(high, code), least = min(least, code);
    }
    if (high < 0 || (!first && least >= low && high <= low + SPAN)) return low;
    const int spare = SPAN - (high - least);
    return max(spare < 0 ? high - SPAN : least - spare / 2, first ? 0 : max(highest - LIMIT, 0));
}

/* The upper byte of 2^(field - 15). */
MOII_FN unsigned int power_byte(int code, int low)
{
    const int field = code - low + LEAST;
    return code == NAN_SCALE ? 0x7Eu : field > 0 ? (unsigned int)field << 2 : field == 0 ? 2u : field == -1 ? 1u : 0u;
}

/* A row's four powers, after low has moved where it has to. */
MOII_FN unsigned int moved_powers(unsigned int codes, int e, bool first, scales_kept &s)
{
    const int low = low_for(codes, byte_of(s.lows, e), byte_of(s.highest, e), first);
    unsigned int powers = 0;
#pragma unroll 1
    for (int i = 0; i < 4; i++) powers |= power_byte(byte_of(codes, i), low) << 8 * i;
    s.lows = (s.lows & ~(255u << 8 * e)) | (unsigned int)low << 8 * e;
    s.highest = (s.highest & ~(255u << 8 * e)) | (unsigned int)max(low, first ? 0 : byte_of(s.highest, e)) << 8 * e;
    return powers;
}

/* Four codes of each of a lane's rows, of which the first `left` are there, into a stage of the unit, whose first it may be.  Absent blocks count as their
 * row's first: their values are 0.  Nearly always all of them fit, and differences of words are of bytes: they are where those are 0 to 127. */
MOII_FN void put_codes(unsigned int to, int part, unsigned int codes[EACH], int left, bool first, scales_kept &s)
{
    const int lane = (int)threadIdx.x % 32;
    const unsigned int ones = 0x01010101u, row = to + (part * (32 * EACH) + lane) * 4, before = s.lows;
    unsigned int in[EACH], beyond = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const unsigned int low = __byte_perm(s.lows, 0, 0x1111 * e);
        if (left < 4) codes[e] |= (codes[e] & 255) * (ones << 8 * left);
        in[e] = codes[e] - low;
        beyond |= low | in[e] | (in[e] + (127u - SPAN) * ones);
    }
    if (first || beyond & 0x80808080u) {
#pragma unroll
        for (int e = 0; e < EACH; e++) in[e] = moved_powers(codes[e], e, first, s);
    } else {
#pragma unroll
        for (int e = 0; e < EACH; e++) in[e] = (in[e] + LEAST * ones) << 2;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) shared_write_word(row + e * 128, in[e]);
    shared_write_word(to + LOWS_AT + (part * 32 + lane) * 4, s.lows);
    bool far = false;
#pragma unroll
    for (int e = 0; e < EACH; e++) far |= left <= 4 && (byte_of(s.lows, e) < LOW_BIAS - NEAR || byte_of(s.lows, e) > LOW_BIAS + NEAR);
    const bool moves = __any_sync(~0u, !first && s.lows != before), any_far = __any_sync(~0u, far);
    if (lane == 0) shared_write_word(to + FLAGS_AT + part * 4, (moves ? MOVES : 0) | (any_far ? FAR : 0));
}

/* Where a row's low is in a stage's scales. */
MOII_FN unsigned int low_at(int row) { return (unsigned int)(LOWS_AT + (row / (32 * EACH) * 32 + row % 32) * 4 + row / 32 % EACH); }

/* Where factors of the rows of a block's n-th unit are, while its card is not returned. */
MOII_FN unsigned int factors_at(unsigned int base, int n) { return base + FACTORS_AT + n % CARDS * BN; }

/* A lane's rows of A: every 64th from one on. */
typedef struct rows_taken { unsigned int factor[(BN + 63) / 64]; } rows_taken;
MOII_FN int row_taken(int part) { return part * 32 + (int)threadIdx.x % 32; }
MOII_FN rows_taken take_rows(const product_args &a, const unit &u, int part)
{
    rows_taken v;
#pragma unroll
    for (int j = 0; j < (BN + 63) / 64; j++) {
        const int row = row_taken(part) + 64 * j;
        v.factor[j] = row < u.rows ? moii_bits_of(__ldg(a.row_factor + u.d_row + row)) : 0u;
    }
    return v;
}
MOII_FN void leave_rows(unsigned int base, int n, int part, const rows_taken &v)
{
#pragma unroll
    for (int j = 0; j < (BN + 63) / 64; j++)
        if (row_taken(part) + 64 * j < BN) shared_write_byte(factors_at(base, n) + row_taken(part) + 64 * j, v.factor[j] >> 23);
}

#endif
