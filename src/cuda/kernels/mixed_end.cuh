/* SPDX-License-Identifier: Apache-2.0
 * mixed_end.cuh: powers of two that mixed_sm90's sums are multiplied by, between stages and in a unit's end, and their way to D from there. */
#ifndef MOII_MIXED_END_CUH
#define MOII_MIXED_END_CUH

/* What there is of a unit when its last stage begins. */
typedef struct unit_end { unit u; unsigned int factors, lows, room; } unit_end;

/* 2^n; 0 far below. */
MOII_FN float power_of(int n) { return n < -126 ? 0.0f : moii_float_of((unsigned int)(n + 127) << 23); }

/* A row's sums, wave w's row g + 8 h, times a power of two. */
MOII_FN void times_power(float *sum, int h, int columns, float power)
{
#pragma unroll
    for (int j = 2 * h; j < columns / 2; j += 4) sum[j] *= power, sum[j + 1] *= power;
}

/* Sums that have one low get another. */
MOII_FN void move_sums(unsigned int before, unsigned int now, int columns, float sum[WAVES][BN / 2])
{
#pragma unroll
    for (int i = 0; i < 2 * WAVES; i++) times_power(sum[i / 2], i % 2, columns, power_of(byte_of(before, i) - byte_of(now, i)));
}

/* Factors of columns j * 2 + 2 c and the next one, as exponents. */
MOII_FN unsigned int two_factors(unsigned int factors, int j) { return shared_read_half(factors + j * 2 + (int)threadIdx.x % 4 * 2); }

/* The power of two that sums of row g + 8 (i % 2) of wave i / 2 are to be multiplied by. */
MOII_FN int low_power(unsigned int lows, int i) { return byte_of(lows, i) - LOW_BIAS; }

/* Columns times powers of two, whose exponents are halves of their rows' factors': the first or the other. */
MOII_FN void times_half_factors(unsigned int factors, int other, int columns, float sum[WAVES][BN / 2])
{
#pragma unroll
    for (int j = 0; j < columns / 2; j += 4) {
        const unsigned int both = two_factors(factors, j);
        const int even = byte_of(both, 0) - 127 + other, odd = byte_of(both, 1) - 127 + other;
#pragma unroll
        for (int w = 0; w < WAVES; w++) {
            sum[w][j] *= power_of(even >> 1), sum[w][j + 2] *= power_of(even >> 1);
            sum[w][j + 1] *= power_of(odd >> 1), sum[w][j + 3] *= power_of(odd >> 1);
        }
    }
}

/* Far powers, a row's and a column's by halves in turn: what makes sums smaller goes first.  So none is beyond FP32 where the last is not. */
MOII_FN void times_far_powers(unsigned int factors, unsigned int lows, int columns, float sum[WAVES][BN / 2])
{
#pragma unroll
    for (int step = 0; step < 3; step++) {
#pragma unroll
        for (int i = 0; i < 2 * WAVES; i++) {
            const int by = low_power(lows, i), turn = by < 0 ? step : step - 1;
            times_power(sum[i / 2], i % 2, columns, power_of(turn == 0 ? by >> 1 : turn == 1 ? (by + 1) >> 1 : 0));
        }
        if (step < 2) times_half_factors(factors, step, columns, sum);
    }
}

/* Columns of a wave's sums times powers: rows what their low says, columns their rows' factors.  Sums are below 2^(32 + LIMIT) for each product, so near powers
 * of rows do no harm in front of those of columns. */
MOII_FN void times_near_powers(unsigned int factors, unsigned int lows, int wave, int from, int some, float *sum)
{
    const float upper = power_of(low_power(lows, 2 * wave)), lower = power_of(low_power(lows, 2 * wave + 1));
#pragma unroll
    for (int j = 0; j < some / 2; j += 4) {
        const unsigned int both = two_factors(factors, from / 2 + j);
        const float even = moii_float_of(both << 23 & 0x7F800000u), odd = moii_float_of(both >> 8 << 23);
        sum[j] = sum[j] * upper * even, sum[j + 1] = sum[j + 1] * upper * odd;
        sum[j + 2] = sum[j + 2] * lower * even, sum[j + 3] = sum[j + 3] * lower * odd;
    }
}

MOII_FN void times_powers(unsigned int factors, unsigned int lows, bool far, int columns, float sum[WAVES][BN / 2])
{
    if (far) {
        times_far_powers(factors, lows, columns, sum);
        return;
    }
#pragma unroll
    for (int w = 0; w < WAVES; w++) times_near_powers(factors, lows, w, 0, columns, sum[w]);
}

/* Sums of one wave leave while the other's are multiplied. */
#define LEAVES (!OUT_F32 && !SCATTER && !WEIGHTED && !SWIGLU)

MOII_FN unit_end end_of(unsigned int base, int n, unsigned int lows)
{
    const unit_end e = { look_at_card(base, n), factors_at(base, n), lows, base + ROOMS_AT + own_warpgroup() * ROOM_BYTES };
    return e;
}

#if LEAVES
/* A wave's sums to D, near ones, by parts of half the room in turn, so that one is filled while the other is read.  Straight code: products are under way. */
MOII_FN void leave_wave(const product_args &a, const unit_end &e, int wave, int columns, float *sum)
{
    enum { PART = ROOM_COLUMNS / 2 };
    const int parts = columns / PART, at = e.u.line + own_warpgroup() * (64 * WAVES) + wave * 64 + eight_written() * 8;
    unsigned short *const d = (unsigned short *)a.d + ((e.u.d_row + column_written()) * a.ldd + at);
#pragma unroll
    for (int p = 0; p < parts; p++) {
        const unsigned int room = e.room + (wave * parts + p) % 2 * (ROOM_BYTES / 2);
        times_near_powers(e.factors, e.lows, wave, p * PART, PART, sum + p * (PART / 2));
        fill_room(a, e.u, PART, p * PART, sum + p * (PART / 2), room);
        warpgroup_meets();
#pragma unroll
        for (int i = 0; i < PART / 16; i++) {
            const int column = i * 16 + column_written();
            store_four_if(p * PART + column < e.u.rows && at < a.n, d + (p * PART + i * 16) * a.ldd, shared_read_four(in_room(room, column, eight_written())));
        }
    }
}
#endif

#endif
