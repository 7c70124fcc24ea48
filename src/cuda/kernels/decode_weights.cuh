/* SPDX-License-Identifier: Apache-2.0
 * decode_weights.cuh: 16 rows of weights, 32 bytes of each, times 8 columns of BF16, by mma.m16n8k16.
 *
 * A lane (g = lane / 4, c = lane % 4) holds bytes 8c .. 8c + 7 of rows g and g + 8, and what stands against them in column g.  Which k goes
 * where within an mma is free as long as both operands agree, so nothing is shuffled.  Codes become BF16 exactly: their bits are put
 * where an exponent too small by a constant results, and one multiplication by a power of two, the block's scale in it, sets it right.
 *   MXFP8   exact for scales of 2^-124 and more; below, what lies under 2^-133 is rounded to it
 *   MXFP4   always exact
 *   blk128  codes alone; the FP32 scale multiplies the chunk's sum */
#ifndef MOII_DECODE_WEIGHTS_CUH
#define MOII_DECODE_WEIGHTS_CUH

#include "bf16x2.cuh"
#include "moe_decode_sm90_args.h"
#include "num.h"

/* values of a chunk of 32 bytes, registers of 8 columns against them */
#define CHUNK_K (WEIGHT == WEIGHT_BF16 ? 16 : WEIGHT == WEIGHT_MXFP4 ? 64 : 32)
#define COLUMN_WORDS (CHUNK_K / 8)
#define SCALED_APART (WEIGHT == WEIGHT_BLK128 || WEIGHT == WEIGHT_SQUARE)

typedef struct column_part { unsigned int w[COLUMN_WORDS]; } column_part;
typedef struct tile_sum { float v[4]; } tile_sum; /* row g: columns 2c, 2c + 1; row g + 8: the same */

MOII_FN void mma(tile_sum &d, unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3, unsigned int b0, unsigned int b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d.v[0]), "+f"(d.v[1]), "+f"(d.v[2]), "+f"(d.v[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

MOII_FN unsigned int larger2(unsigned int a, unsigned int b)
{
    unsigned int d;
    asm("max.u16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Pass 1 reads a token's x for one tile after the other; u is read once by each multiprocessor. */
MOII_FN uint2 column_load2(const uint2 *from) { return PASS == 1 ? *from : __ldcg(from); }
MOII_FN uint4 column_load4(const uint4 *from) { return PASS == 1 ? *from : __ldcg(from); }

/* What stands against a lane's weights: `from` is the column at the lane's first value. */
MOII_FN void load_column(column_part &p, const unsigned short *from, bool valid)
{
    for (int i = 0; i < COLUMN_WORDS; i++) p.w[i] = 0;
    if (!valid) return;
    if (WEIGHT == WEIGHT_BF16) {
        const uint2 v = column_load2((const uint2 *)from);
        p.w[0] = v.x, p.w[1] = v.y;
    } else if (PASS == 2) {
        for (int i = 0; i < COLUMN_WORDS / 4; i++) {
            const uint4 v = column_load4((const uint4 *)from + i);
            p.w[4 * i] = v.x, p.w[4 * i + 1] = v.y, p.w[4 * i + 2] = v.z, p.w[4 * i + 3] = v.w;
        }
    } else if (WEIGHT == WEIGHT_MXFP4) { /* code i of a word goes with code i + 4 */
        for (int i = 0; i < 2; i++) {
            const uint4 v = column_load4((const uint4 *)from + i);
            p.w[4 * i] = __byte_perm(v.x, v.z, 0x5410), p.w[4 * i + 1] = __byte_perm(v.x, v.z, 0x7632);
            p.w[4 * i + 2] = __byte_perm(v.y, v.w, 0x5410), p.w[4 * i + 3] = __byte_perm(v.y, v.w, 0x7632);
        }
    } else { /* code i of a word goes with code i + 2 */
        const uint4 v = column_load4((const uint4 *)from);
        p.w[0] = __byte_perm(v.x, v.y, 0x5410), p.w[1] = __byte_perm(v.x, v.y, 0x7632);
        p.w[2] = __byte_perm(v.z, v.w, 0x5410), p.w[3] = __byte_perm(v.z, v.w, 0x7632);
    }
}

/* ---- codes to BF16: value * 2^-120 (E4M3), * 2^-126 (E2M1), then times `mul` ---- */

enum { LIFT = WEIGHT == WEIGHT_MXFP4 ? 126 : 120 };

/* `nan` collects the largest magnitudes: 0x7F0 is E4M3's NaN. */
MOII_FN void widen_e4m3(unsigned int w, unsigned int mul, unsigned int *out, unsigned int &nan)
{
    const unsigned int even = w << 4 & 0x07F007F0u, odd = w >> 4 & 0x07F007F0u;
    nan = larger2(nan, larger2(even, odd));
    out[0] = bf16_times(even | (w << 8 & 0x80008000u), mul);
    out[1] = bf16_times(odd | (w & 0x80008000u), mul);
}

MOII_FN void widen_e2m1(unsigned int w, unsigned int mul, unsigned int *out)
{
    out[0] = bf16_times((w << 6 & 0x01C001C0u) | (w << 12 & 0x80008000u), mul);
    out[1] = bf16_times((w << 2 & 0x01C001C0u) | (w << 8 & 0x80008000u), mul);
    out[2] = bf16_times((w >> 2 & 0x01C001C0u) | (w << 4 & 0x80008000u), mul);
    out[3] = bf16_times((w >> 6 & 0x01C001C0u) | (w & 0x80008000u), mul);
}

/* A lane's 8 bytes of one row times `mul`, as BF16 pairs in the order of load_column. */
enum { PAIRS = COLUMN_WORDS };
MOII_FN void widen(uint2 w, unsigned int mul, unsigned int *out, unsigned int &nan)
{
    if (WEIGHT == WEIGHT_BF16) {
        out[0] = w.x, out[1] = w.y;
    } else if (WEIGHT == WEIGHT_MXFP4) {
        widen_e2m1(w.x, mul, out);
        widen_e2m1(w.y, mul, out + 4);
    } else {
        widen_e4m3(w.x, mul, out, nan);
        widen_e4m3(w.y, mul, out + 2, nan);
    }
}

/* The factor for a block of E8M0 scale e.  From 255 - LIFT on one BF16 cannot hold it: then `rest` multiplies too. */
MOII_FN bool needs_rest(unsigned int e) { return e > 254 - LIFT; }
MOII_FN unsigned int factor_of(unsigned int e)
{
    return SCALED_APART || WEIGHT == WEIGHT_BF16 ? (127 + LIFT) * 0x00800080u : e * 0x00800080u + LIFT * 0x00800080u;
}
MOII_FN unsigned int rest_of(unsigned int e) { return e == 255 ? 0x7FC07FC0u : e * 0x00800080u; }

/* sum += 16 rows x 32 bytes: w0 of row g, w1 of row g + 8. */
MOII_FN void add_chunk(tile_sum &sum, uint2 w0, uint2 w1, unsigned int e0, unsigned int e1, const column_part &column, unsigned int *nan)
{
    unsigned int r0[PAIRS], r1[PAIRS];
    widen(w0, factor_of(e0), r0, nan[0]);
    widen(w1, factor_of(e1), r1, nan[1]);
    for (int i = 0; i < PAIRS; i += 2) mma(sum, r0[i], r1[i], r0[i + 1], r1[i + 1], column.w[i], column.w[i + 1]);
}

/* The same for scales of any size: rare. */
MOII_FN void add_chunk_far(tile_sum &sum, uint2 w0, uint2 w1, unsigned int e0, unsigned int e1, const column_part &column, unsigned int *nan)
{
    unsigned int r0[PAIRS], r1[PAIRS];
    widen(w0, needs_rest(e0) ? factor_of(127) : factor_of(e0), r0, nan[0]);
    widen(w1, needs_rest(e1) ? factor_of(127) : factor_of(e1), r1, nan[1]);
    for (int i = 0; i < PAIRS; i++) {
        if (needs_rest(e0)) r0[i] = bf16_times(r0[i], rest_of(e0));
        if (needs_rest(e1)) r1[i] = bf16_times(r1[i], rest_of(e1));
    }
    __syncwarp();
    for (int i = 0; i < PAIRS; i += 2) mma(sum, r0[i], r1[i], r0[i + 1], r1[i + 1], column.w[i], column.w[i + 1]);
}

MOII_FN bool has_nan(unsigned int largest) { return (largest & 0xFFFFu) == 0x7F0u || largest >> 16 == 0x7F0u; }

/* A NaN code makes its row's sums NaN. */
MOII_FN void poison(tile_sum &sum, const unsigned int *nan, int lane)
{
    for (int i = 0; i < (WEIGHT == WEIGHT_BF16 || WEIGHT == WEIGHT_MXFP4 ? 0 : 2); i++) {
        const unsigned int rows = __ballot_sync(0xFFFFFFFFu, has_nan(nan[i]));
        if (rows >> (lane & ~3) & 15u) sum.v[2 * i] = sum.v[2 * i + 1] = moii_float_of(0x7FFFFFFFu);
    }
}

#endif
