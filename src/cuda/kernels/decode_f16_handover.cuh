/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_handover.cuh: u between the passes of moe_decode_f16_sm90: it is there when it is no longer blank. */
#ifndef MOII_DECODE_F16_HANDOVER_CUH
#define MOII_DECODE_F16_HANDOVER_CUH

#include "decode_f16_ring.cuh"

enum { BLANK_EXPONENT = 0xFF };

/* Of an item's column: 8 values, 16 bytes. */
MOII_FN unsigned short *u_of(const moe_decode_f16_sm90_args &a, int job, int column, int tile)
{
    return a.u + (unsigned int)((job * a.columns + column) * a.width + tile * 8);
}
MOII_FN unsigned char *exponent_of(const moe_decode_f16_sm90_args &a, int job, int column, int tile)
{
    const unsigned int place = (unsigned int)((tile & ~(4 * BLOCKS - 1)) + tile % 4 * BLOCKS + tile / 4 % BLOCKS); /* in its line: by lanes, then blocks */
    return a.exponent + ((unsigned int)((job * a.columns + column) * a.exponent_row) + place);
}

MOII_FN void write_u(unsigned short *to, uint4 v)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
/* By a policy of L2. */
MOII_FN void write_u_kept(unsigned short *to, uint4 v, unsigned long long policy)
{
    asm volatile("st.relaxed.gpu.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
                 :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy) : "memory");
}
MOII_FN void write_exponent(unsigned char *to, unsigned int v) { asm volatile("st.relaxed.gpu.global.u8 [%0], %1;" :: "l"(to), "r"(v) : "memory"); }
MOII_FN uint4 read_u(const unsigned short *from)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v;
}
#if WEIGHTS == F16_BF16
MOII_FN unsigned int read_exponents(const unsigned char *from)
{
    unsigned short v;
    asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(v) : "l"(from) : "memory");
    return v;
}
#else
MOII_FN unsigned int read_exponents(const unsigned char *from) { return read_word(from); }
#endif
MOII_FN bool any_blank(unsigned int exponents) { return ((~exponents - 0x01010101u) & exponents & 0x80808080u) != 0; }

/* Pass 1, one warp, before pass 2 starts: what the block may write, whatever the routing. */
MOII_FN void blank_u(const moe_decode_f16_sm90_args &a, int lane)
{
    const int all = a.most_jobs * a.tiles;
    const bool much = a.columns == F16_MOST_TOKENS;
#pragma unroll 1
    for (int item = (int)blockIdx.x + lane * (int)gridDim.x; item < all; item += 32 * (int)gridDim.x)
#pragma unroll 1
        for (int column = 0; column < a.columns; column++) {
            const int job = item / a.tiles, tile = item - job * a.tiles;
            const uint4 blank = make_uint4(BLANK_WORD, BLANK_WORD, BLANK_WORD, BLANK_WORD);
            if (much) write_u_kept(u_of(a, job, column, tile), blank, a.kept);
            else write_u(u_of(a, job, column, tile), blank);
            write_exponent(exponent_of(a, job, column, tile), BLANK_EXPONENT);
        }
}

#endif
