/* SPDX-License-Identifier: Apache-2.0
 *
 * mx_turn.cuh: a tile of 128 x 128 BF16 values in shared memory becomes codes of blocks of 32 down its columns, by 512 threads; and pairs of
 * rows become codes along them.
 *
 *   tile      [row][packet of 8 columns], packets where packet_place puts them: the two halves of a block of 32 rows differ in where 64 bytes
 *             stand, so that lanes that go down both at once meet no bank twice.
 *   turned    [column][chunk of 16 rows], where chunk_place puts them: free of conflicts for those who write two columns and those who read one
 *   defines   COL_REBASE: 1 where the scales of a tile's columns are made equal (E4M3), as moi_rebase_run would
 */
#ifndef MOII_MX_TURN_CUH
#define MOII_MX_TURN_CUH

#ifndef COL_REBASE
#define COL_REBASE 0
#endif

typedef uint4 half_tile[TILE][8]; /* bytes: 128 rows of 128 */
typedef uint4 whole_tile[TILE][16];

MOII_FN int packet_place(int row, int packet) { return packet ^ (row >> 2 & 4); }
MOII_FN int chunk_place(int col, int chunk) { return chunk ^ (col >> 1 & 7); }

MOII_FN void fetch16(uint4 *to, const void *from, unsigned long long policy = EVICT_LAST)
{
    const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "l"(policy) : "memory");
}

/* Waits until no more of the thread's groups of copies are on their way. */
#define GROUPS_LEFT(count) asm volatile("cp.async.wait_group %0;" : : "n"(count) : "memory")

#if ROW_KIND != TILE_NONE
/* Two rows become codes q; their scales come back, a byte each.  All lanes of a warp come here. */
MOII_FN unsigned int pair_codes(const tile8_side &side, const line v[2], uint2 q[2])
{
    unsigned int top, scales = row_pair(side, v, q, &top);
    if (poisoned(top)) scales = poison(scales, top);
    return __byte_perm(scales, 0, 0x4420);
}

/* The same, and the codes leave.  plain: in words of 8; else those of the first `rows` rows, byte by byte. */
MOII_FN unsigned int put_pair(const tile8_side &side, unsigned char *to, bool plain, int rows, const line v[2])
{
    uint2 q[2];
    const unsigned int scales = pair_codes(side, v, q);
    if (plain) {
        *(uint2 *)to = q[0], *(uint2 *)(to + side.stride) = q[1];
    } else {
        if (rows > 0) put_edge(to, 8, q[0]);
        if (rows > 1) put_edge(to + side.stride, 8, q[1]);
    }
    return scales;
}
#endif

/* Of 16 codes all but the first `there` become 0. */
MOII_FN void cut_codes(unsigned int q[4], int there)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int left = min(max(there - 4 * k, 0), 4);
        q[k] &= (unsigned int)((1ULL << 8 * left) - 1);
    }
}

#if COL_REBASE
MOII_FN void shift_four(unsigned int q[4], unsigned int shift)
{
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        const uint2 moved = shifted(make_uint2(q[k], q[k + 1]), shift);
        q[k] = moved.x, q[k + 1] = moved.y;
    }
}
#endif

/* COL_REBASE: codes of scales of a tile's four blocks of two columns become the largest of each column, 0xFF where one is; all threads meet. */
MOII_FN unsigned int common_codes(shared_scales *scales, int block, int pair, bool writes, unsigned int own)
{
    if (writes) *(unsigned short *)&scales->e8m0[block][2 * pair] = (unsigned short)__byte_perm(own, 0, 0x4420);
    __syncthreads();
    unsigned int all = 0;
#pragma unroll
    for (int b = 0; b < 4; b++) all = larger(all, __byte_perm(*(const unsigned short *)&scales->e8m0[b][2 * pair], 0, 0x4140));
    __syncthreads();
    return all;
}

MOII_FN void turn_nothing(half_tile &turned, shared_scales *scales, int block, int half, int pair)
{
    const int chunk = chunk_place(2 * pair, 2 * block + half);
    turned[2 * pair][chunk] = turned[2 * pair + 1][chunk] = make_uint4(0, 0, 0, 0);
    *(unsigned short *)&scales->e8m0[block][2 * pair] = 0;
}

/* The thread's 16 rows of two columns become codes.  rows: those that the block of 32 has; what lies behind must not be larger than they, and its codes
 * are 0 (cuts: always; else it is zeros, but that a poisoned block would make NaN of them); 0: all values count as zeros.  COL_REBASE: all threads meet in
 * here. */
MOII_FN void turn_two(const tile8_side &side, const whole_tile &from, half_tile &turned, shared_scales *scales, int rows, bool cuts)
{
    const int lane = threadIdx.x % 32, half = lane / 16, block = threadIdx.x / 128 % 4, pair = threadIdx.x / 32 % 4 * 16 + lane % 16;
    unsigned int w[16], top = 0;
    if (rows == 0 && !COL_REBASE) {
        turn_nothing(turned, scales, block, half, pair);
        return;
    }
    if (rows || !COL_REBASE) {
        const unsigned int *values = (const unsigned int *)from[block * 32 + half * 16] + (pair ^ half << 4);
#pragma unroll
        for (int i = 0; i < 16; i++) w[i] = values[i * (TILE / 2)];
#pragma unroll
        for (int i = 0; i < 16; i += 2) top = stronger(top, stronger(w[i], w[i + 1]));
        top = magnitudes(top);
        top = larger(top, __shfl_xor_sync(0xFFFFFFFFu, top, 16));
    }
#if COL_REBASE /* as in pair_codes, but that what a block is poisoned by is told by its code */
    unsigned int shifts = take_two(side, top).codes;
    const unsigned int all = common_codes(scales, block, pair, half == 0, rows ? poisoned(top) ? poison(shifts, top) : shifts : 0);
    asm volatile("" : "+r"(top)); /* what is made of it is made anew: registers are short while threads meet */
#endif
    two_scales s = take_two(side, top);
    bool nan = poisoned(top);
#if COL_REBASE
    const unsigned int poisons = (all + 0x00010001u) >> 8 & 0x00010001u;
    shifts = all - s.codes;
    s.codes = all, s.inverse |= poisons * 0x7FFFu, nan = poisons;
#endif
    if (rows == 0 && COL_REBASE) {
        turn_nothing(turned, scales, block, half, pair);
        return;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const unsigned int by = i ? upper_half(s.inverse) : lower_half(s.inverse), zero = side.minus_zero;
        unsigned int q[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            q[k] = four_codes(COL_ELEM, scaled(w[4 * k], i, by, zero), scaled(w[4 * k + 1], i, by, zero), scaled(w[4 * k + 2], i, by, zero),
                              scaled(w[4 * k + 3], i, by, zero));
#if COL_REBASE
        shift_four(q, i ? shifts >> 16 : shifts & 0xFFFFu);
#endif
        if (rows < 32 && (cuts || nan)) cut_codes(q, rows - 16 * half);
        turned[2 * pair + i][chunk_place(2 * pair, 2 * block + half)] = make_uint4(q[0], q[1], q[2], q[3]);
    }
    if (nan && !COL_REBASE) s.codes = poison(s.codes, top);
    if (half == 0) *(unsigned short *)&scales->e8m0[block][2 * pair] = (unsigned short)__byte_perm(s.codes, 0, 0x4420);
}

/* 16 codes of a column, of which the first `count` are there. */
MOII_FN void put_chunk(unsigned char *to, const uint4 &v, bool aligned, long long count)
{
    if (aligned && count >= 16) {
        put_sixteen(to, v);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 16 && i < count; i++) to[i] = (unsigned char)((i < 8 ? i < 4 ? v.x : v.y : i < 12 ? v.z : v.w) >> 8 * (i % 4));
}

#endif
