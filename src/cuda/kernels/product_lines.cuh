/* SPDX-License-Identifier: Apache-2.0
 * product_lines.cuh: SCALING_ROWS, for product_sm90.cuh: rows of A and of B have one scale each, in each group of a reduction: their first block's.
 *
 * A tile's are asked for before it is multiplied, and looked at behind it: a trip to L2 at its end would keep the tensor cores waiting. */
#ifndef MOII_PRODUCT_LINES_CUH
#define MOII_PRODUCT_LINES_CUH

#define LINE_COLUMNS ((BN + 31) / 32)

/* sums become BF16 before their scales, two by two; weights are FP32's */
#define LINES_PAIRED (SCALING == SCALING_ROWS && !OUT_F32 && !WEIGHTED)

/* Codes of a warp's rows, lane l that of row l, from lane 16 on the second wave's, and of the warpgroup's columns, lane l those of l, l + 32, ... */
typedef struct line_codes { unsigned int rows, cols[LINE_COLUMNS]; } line_codes;

#if SCALING == SCALING_ROWS
/* Here and now, not where it is used. */
MOII_FN unsigned int line_code(const product_scales &t, long long group, int line, int block)
{
    unsigned int code;
    const unsigned int at = scale_index(t, (unsigned int)min(line, t.rows - 1), (unsigned int)block);
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(code) : "l"((const unsigned char *)t.p + group * t.group_bytes + at));
    return code;
}

/* first, second: rows of the tile where the waves begin; col: its column where the wave's do. */
MOII_FN line_codes line_codes_of(const product_args &a, const unit &u, int first, int second, int col)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4, block = GROUPS == PRODUCT_DEPTH ? u.block : 0;
    line_codes c;
    c.rows = 127;
#pragma unroll
    for (int i = 0; i < LINE_COLUMNS; i++) c.cols[i] = 127;
    if (a.k == 0 || (GROUPS == PRODUCT_DEPTH && u.k_end <= u.k)) return c; /* no blocks, no scales */
    c.rows = line_code(a.a_scales, A_GROUPED ? u.group : 0, u.row + (lane < 16 ? first : second) + warp * 16 + lane % 16, block);
#pragma unroll
    for (int i = 0; i < LINE_COLUMNS; i++) c.cols[i] = line_code(a.b_scales, B_GROUPED ? u.group : 0, u.col + col + i * 32 + lane, block);
    return c;
}

/* A wave's: those from ahead, unless the tile turned out to be broad or halved. */
MOII_FN line_codes wave_codes(const product_args &a, const unit &u, int wg, int w, const line_codes &ahead)
{
    if (!is_broad(u) && !halved(u)) return ahead;
    return line_codes_of(a, u, wave_row(u, wg, w), wave_row(u, wg, w), wave_col(u, wg, w));
}

/* A wave's sums times their scales. */
MOII_FN void apply_lines(const line_codes &c, int w, int lane, float *sum)
{
    const float row = moii_e8m0_decode(c.rows), s0 = __shfl_sync(~0u, row, w * 16 + lane / 4), s1 = __shfl_sync(~0u, row, w * 16 + lane / 4 + 8);
    float mine = 0.0f;
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        if (j % 4 == 0) mine = moii_e8m0_decode(c.cols[j / 4]);
        const float b0 = __shfl_sync(~0u, mine, j % 4 * 8 + lane % 4 * 2), b1 = __shfl_sync(~0u, mine, j % 4 * 8 + lane % 4 * 2 + 1);
        sum[j * 4] *= b0, sum[j * 4 + 1] *= b1, sum[j * 4 + 2] *= b0, sum[j * 4 + 3] *= b1;
        sum[j * 4] *= s0, sum[j * 4 + 1] *= s0, sum[j * 4 + 2] *= s1, sum[j * 4 + 3] *= s1;
    }
}

#if LINES_PAIRED
/* Whether all of a warp's are near 1: sums, which are multiples of 2^-32, then become no subnormals, so that rounding to BF16 first changes nothing. */
MOII_FN bool lines_near(const line_codes &c)
{
    bool near = c.rows - 91 <= 72;
#pragma unroll
    for (int i = 0; i < LINE_COLUMNS; i++) near = near && c.cols[i] - 91 <= 72;
    return __all_sync(~0u, near);
}

/* A wave's sums times their scales, as BF16, two by two. */
MOII_FN void pair_lines(const line_codes &c, int w, int lane, float *sum, unsigned int *pairs)
{
    if (!lines_near(c)) {
        apply_lines(c, w, lane, sum);
#pragma unroll
        for (int i = 0; i < BN / 4; i++) pairs[i] = bf16_pair(sum[2 * i], sum[2 * i + 1]);
        return;
    }
    const unsigned int row = c.rows << 7 | c.rows << 23, s0 = __shfl_sync(~0u, row, w * 16 + lane / 4), s1 = __shfl_sync(~0u, row, w * 16 + lane / 4 + 8);
    unsigned int two = 0; /* lane l's: columns 2 l and 2 l + 1 of 32 */
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        if (j % 4 == 0) two = __shfl_sync(~0u, c.cols[j / 4], lane * 2 % 32) << 7 | __shfl_sync(~0u, c.cols[j / 4], lane * 2 % 32 + 1) << 23;
        const unsigned int b = __shfl_sync(~0u, two, j % 4 * 4 + lane % 4);
        pairs[j * 2] = bf16_times(bf16_times(bf16_pair(sum[j * 4], sum[j * 4 + 1]), b), s0);
        pairs[j * 2 + 1] = bf16_times(bf16_times(bf16_pair(sum[j * 4 + 2], sum[j * 4 + 3]), b), s1);
    }
}
#endif

/* Of the tile that is multiplied next: one that is neither broad nor halved. */
static_assert(WAVES <= 2, "a lane has one row of each of two waves");
MOII_FN line_codes line_codes_ahead(const product_args &a, const unit &u, int wg)
{
    return line_codes_of(a, u, WAVE_ROW(wg, 0), WAVE_ROW(wg, WAVES - 1), WIDE ? wg * BN : 0);
}
#else
MOII_FN line_codes line_codes_ahead(const product_args &, const unit &, int) { return {}; }
#endif

#endif
