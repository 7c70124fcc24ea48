/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_multiply.cuh: a line of an item, 16 rows of 128 codes, times columns of FP16; or of 64 values, times columns of BF16.
 *
 * E4M3 and E5M2 become FP16 exactly, two codes by one instruction, E2M1 times 2^-14 by bytes (eight_f16.cuh).  What has one scale, a block of 32
 * or a whole line, is a sum of its own (FP32, by mma.m16n8k16).  A whole line's is multiplied first by the column's power of two, then by the scale, so that
 * nothing leaves FP32 on the way; blocks of 32 by their scales first, and their sum by the column's power: what leaves FP32 there is decode_f16_far.cuh's.
 *   scale   of 32: the float with the scale's bits as exponent and a full mantissa: 2^(e - 126), 2^-24 of it less; e = 0 gives 2^-126 and
 *           e = 255 NaN, as they should
 *   rows    row i of the tensor core's product is row 2i (i < 4) or 2i - 7 (i < 8) of the item's eight: so a half warp's reads of
 *           8 bytes from rows that lie as TMA's 128-byte swizzle puts them touch every bank once
 *   a lane  has codes 8c .. 8c + 7 of each block of row g and of row g + 8
 *   BF16    a lane's eight values are 16 bytes, so that a quarter of a warp reads two rows at once: row i is row i / 2, or if i is odd i / 2 + 4.  There is
 *           no scale, and all of a slot is one sum
 *   E2M1    a row has 64 bytes, as TMA's 64-byte swizzle puts them, or in whole slots 128 of two lines, and a lane's eight codes are a word, brought by
 *           ldmatrix: rows as they lie */
#ifndef MOII_DECODE_F16_MULTIPLY_CUH
#define MOII_DECODE_F16_MULTIPLY_CUH

#include "decode_f16_columns.cuh"
#define FOUR_E5M2 (WEIGHTS == F16_MX_E5M2)
#include "eight_f16.cuh"
#include "four_f16.cuh"

/* Each slot has SLOT_LINES lines. */
#ifndef WHOLE
#define WHOLE 0
#endif

/* A slot's codes are in registers before they are multiplied, so that the slot is sent for again at once: where a worker has few slots. */
#define TAKES (FEWER && WHOLE)

typedef struct tile_sum { float v[4]; } tile_sum; /* row g: columns 2c, 2c + 1; row g + 8: the same */

#if WEIGHTS == F16_BF16
MOII_FN int row_at(int i) { return i / 2 + i % 2 * 4; }
#elif WEIGHTS == F16_MXFP4
MOII_FN int row_at(int i) { return i; }
#else
MOII_FN int row_at(int i) { return i < 4 ? 2 * i : 2 * i - 7; }
#endif

MOII_FN uint2 shared_codes(unsigned int at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
    return v;
}
MOII_FN unsigned int shared_word(unsigned int at)
{
    unsigned int v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

#if WEIGHTS == F16_BF16
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
MOII_FN void mma(tile_sum &d, uint2 top, uint2 bottom, unsigned int b0, unsigned int b1)
{
    asm(MMA "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d.v[0]), "+f"(d.v[1]), "+f"(d.v[2]), "+f"(d.v[3])
        : "r"(top.x), "r"(bottom.x), "r"(top.y), "r"(bottom.y), "r"(b0), "r"(b1));
}

/* Twice as large, for the mantissa is all ones, so that NaN is NaN.  Shifts to the left are multiplications to the compiler, for which there is room beside
 * what masks and permutes; but where registers are short (NARROW) the same by a permutation. */
enum { NARROW = PASS == 1 && GROUPS > 1 && (!WHOLE || GROUPS > 2) && !TAIL && WEIGHTS != F16_MXFP4 };
MOII_FN float scale_of(unsigned int word, int b)
{
    if (NARROW) return moii_float_of(__byte_perm(word, 0xFFFFFFFFu, (unsigned int)b << 12 | 0x444u) >> 1);
    return moii_float_of(bits_beside(b < 3 ? word << (23 - 8 * b) : word >> 1, 0x7F800000u, 0x007FFFFFu));
}

enum { PIECE_LINES = F16_PIECE_LINES(WEIGHTS, WHOLE) };

/* Where a lane's codes of a line's first block lie; the others: ^ 32 b, of BF16 ^ 64 b; row g + 8: half of the line further.  Of E2M1 the row, 16 bytes,
 * that the lane brings for all: of row lane % 16 and block lane / 16; blocks 2 and 3: ^ 32; a piece's second line: ^ 64. */
MOII_FN unsigned int lane_place(int lane)
{
    const int row = row_at(lane / 4), c = lane % 4, from = row * F16_ROW_BYTES(WEIGHTS);
    if (WEIGHTS == F16_BF16) return (unsigned int)(from + (c ^ row) * 16);
    if (PIECE_LINES > 1) return (unsigned int)(lane % F16_ROWS * 128 + (lane / F16_ROWS ^ lane % 8) * 16);
    if (WEIGHTS == F16_MXFP4) return (unsigned int)(lane % F16_ROWS * 64 + (lane / F16_ROWS ^ lane % 8 / 2) * 16);
    return (unsigned int)(from + ((c / 2 ^ row) * 16 + c % 2 * 8));
}

/* The same of the slot's line i. */
MOII_FN unsigned int place_of_line(unsigned int first, int i)
{
    return PIECE_LINES == 1 ? first + i * LINE_BYTES : (first ^ 64u * (i % 2)) + i / 2 * (2 * LINE_BYTES);
}

/* A lane's eight codes of a block, of row g or, lower, of row g + 8. */
#if WEIGHTS == F16_MXFP4
typedef struct line_codes { uint4 two[BLOCKS / 2]; } line_codes; /* of either row of a block, then of the next one */
MOII_FN line_codes codes_of(unsigned int at)
{
    line_codes c;
#pragma unroll
    for (int i = 0; i < BLOCKS / 2; i++) c.two[i] = matrices_load(at ^ 32u * i);
    return c;
}
MOII_FN uint4 eight_of(const line_codes &c, int b, bool lower)
{
    const uint4 v = c.two[b / 2];
    return eight_f16(b % 2 ? lower ? v.w : v.z : lower ? v.y : v.x);
}
#elif WEIGHTS != F16_BF16
MOII_FN uint2 eight_codes(unsigned int at, int b, bool lower) { return shared_codes((at ^ 32u * b) + (lower ? LINE_BYTES / 2 : 0)); }
#if TAKES
typedef struct line_codes { uint2 of[BLOCKS][2]; } line_codes;
MOII_FN line_codes codes_of(unsigned int at)
{
    line_codes c;
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) c.of[b][0] = eight_codes(at, b, false), c.of[b][1] = eight_codes(at, b, true);
    return c;
}
MOII_FN uint2 codes_at(const line_codes &c, int b, bool lower) { return c.of[b][lower]; }
#else
typedef struct line_codes { unsigned int at; } line_codes;
MOII_FN line_codes codes_of(unsigned int at)
{
    const line_codes c = { at };
    return c;
}
MOII_FN uint2 codes_at(const line_codes &c, int b, bool lower) { return eight_codes(c.at, b, lower); }
#endif
MOII_FN uint4 eight_of(const line_codes &c, int b, bool lower)
{
    const uint2 v = codes_at(c, b, lower), low = four_f16(v.x), high = four_f16(v.y);
    return make_uint4(low.x, low.y, high.x, high.y);
}
#endif

/* A line as add_lines is given it: its codes, or this lane's place in it. */
#if TAKES
typedef line_codes line_source;
MOII_FN line_source line_at(unsigned int at) { return codes_of(at); }
MOII_FN line_codes codes_from(const line_source &line) { return line; }
#else
typedef unsigned int line_source;
MOII_FN line_source line_at(unsigned int at) { return at; }
#if WEIGHTS != F16_BF16
MOII_FN line_codes codes_from(line_source line) { return codes_of(line); }
#endif
#endif

/* What stands against a line: in shared memory, or in registers. */
#if PASS == 1 || MANY
typedef struct column_source { unsigned int at, factors_at, block_bytes; } column_source;
MOII_FN uint4 block_of(const column_source &c, int b) { return shared_read_four(c.at + b * c.block_bytes); }
MOII_FN float2 factors_of(const column_source &c) { return shared_read_pair(c.factors_at); }
#else
typedef struct column_source { line_columns line; } column_source;
MOII_FN uint4 block_of(const column_source &c, int b) { return c.line.v[b]; }
#if WEIGHTS != F16_BF16
MOII_FN float2 factors_of(const column_source &c) { return make_float2(c.line.even, c.line.odd); }
#endif
#endif

#if WEIGHTS == F16_BF16
/* sum += the line, for n times 8 columns, a constant.  at: this lane's place in it. */
MOII_FN void add_lines(int n, tile_sum *sum, unsigned int at, uint2, const column_source *columns)
{
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        const uint4 top = shared_read_four(at ^ 64u * b), bottom = shared_read_four((at ^ 64u * b) + LINE_BYTES / 2);
#pragma unroll
        for (int i = 0; i < n; i++) {
            const uint4 x = block_of(columns[i], b);
            mma(sum[i], make_uint2(top.x, top.y), make_uint2(bottom.x, bottom.y), x.x, x.y);
            mma(sum[i], make_uint2(top.z, top.w), make_uint2(bottom.z, bottom.w), x.z, x.w);
        }
    }
}
#else
/* sum += d times a scale of row g, and of row g + 8. */
MOII_FN void add_scaled(tile_sum &sum, const tile_sum &d, float s0, float s1)
{
    sum.v[0] = __fmaf_rn(s0, d.v[0], sum.v[0]), sum.v[1] = __fmaf_rn(s0, d.v[1], sum.v[1]);
    sum.v[2] = __fmaf_rn(s1, d.v[2], sum.v[2]), sum.v[3] = __fmaf_rn(s1, d.v[3], sum.v[3]);
}
/* sum += d times the factors of columns. */
MOII_FN void add_factored(tile_sum &sum, const tile_sum &d, float2 f)
{
    sum.v[0] = __fmaf_rn(d.v[0], f.x, sum.v[0]), sum.v[1] = __fmaf_rn(d.v[1], f.y, sum.v[1]);
    sum.v[2] = __fmaf_rn(d.v[2], f.x, sum.v[2]), sum.v[3] = __fmaf_rn(d.v[3], f.y, sum.v[3]);
}

/* sum += the line, for n times 8 columns, a constant.  scales: of row g and of row g + 8, a word each: four of E8M0, or a float. */
MOII_FN void add_lines(int n, tile_sum *sum, const line_source &line, uint2 scales, const column_source *columns)
{
    float2 f[GROUPS];
    tile_sum whole[GROUPS][2] = {}; /* of squares: blocks in turn, half as many wait for each other */
#pragma unroll
    for (int i = 0; i < n; i++) f[i] = factors_of(columns[i]);
    const line_codes codes = codes_from(line);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
        const uint4 top = eight_of(codes, b, false), bottom = eight_of(codes, b, true);
        const uint2 t0 = make_uint2(top.x, top.y), t1 = make_uint2(top.z, top.w), b0 = make_uint2(bottom.x, bottom.y), b1 = make_uint2(bottom.z, bottom.w);
#pragma unroll
        for (int i = 0; i < n; i++) {
            const uint4 x = block_of(columns[i], b);
#if WEIGHTS == F16_SQUARES
            mma(whole[i][b % 2], t0, b0, x.x, x.y);
            mma(whole[i][b % 2], t1, b1, x.z, x.w);
#else
            tile_sum d = { { 0, 0, 0, 0 } };
            mma(d, t0, b0, x.x, x.y);
            mma(d, t1, b1, x.z, x.w);
            add_scaled(whole[i][0], d, scale_of(scales.x, b), scale_of(scales.y, b));
#endif
        }
    }
#pragma unroll
    for (int i = 0; i < n; i++) {
#if WEIGHTS == F16_SQUARES
        tile_sum of_line = {};
#pragma unroll
        for (int j = 0; j < 4; j++) whole[i][0].v[j] += whole[i][1].v[j], of_line.v[j] = whole[i][0].v[j] * (j % 2 ? f[i].y : f[i].x);
        add_scaled(sum[i], of_line, moii_float_of(scales.x), moii_float_of(scales.y));
#else
        add_factored(sum[i], whole[i][0], f[i]);
#endif
    }
}
#endif
MOII_FN void add_line(tile_sum &sum, unsigned int at, uint2 scales, const column_source &columns) { add_lines(1, &sum, line_at(at), scales, &columns); }

#endif
