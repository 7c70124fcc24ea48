/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_codes.cuh: from values to the codes and scales of blocks, in registers.
 *
 *   defines   TILE_BF16: 1, or 0 where the values are FP32
 */
#ifndef MOII_TILE8_CODES_CUH
#define MOII_TILE8_CODES_CUH

#include "elem.cuh"
#include "evict.h"
#include "tile8_args.h"

#define TILE 128

typedef struct tile {
    long long matrix, r0, c0; /* r0: first row */
    int rows, cols;           /* valid ones */
    long long block;          /* of the column side: the strip's first */
    bool owned;               /* by a group, or there are none */
    int run;                  /* RAGGED: codes of a column, of all units: whole blocks, or of rows that no group owns what is left */
} tile;

#if TILE_BF16
typedef uint4 line; /* eight values of a row */
#else
typedef struct line { uint4 low, high; } line;
#endif

typedef struct __align__(16) shared_scales {
    union { unsigned char e8m0[4][TILE]; unsigned int f32[TILE]; };
} shared_scales;

/* ---- values ---- */

/* Value c (0..7) of a line; c is a constant wherever this is inlined. */
MOII_FN float value_of(const line &v, int c)
{
#if TILE_BF16
    unsigned int w = c < 2 ? v.x : c < 4 ? v.y : c < 6 ? v.z : v.w;
    return moii_float_of(c & 1 ? w & 0xFFFF0000u : w << 16);
#else
    const uint4 &h = c < 4 ? v.low : v.high;
    return moii_float_of(c % 4 == 0 ? h.x : c % 4 == 1 ? h.y : c % 4 == 2 ? h.z : h.w);
#endif
}

/* Magnitudes: BF16 in pairs, whose integer order is that of their magnitudes; FP32 singly. */
MOII_FN unsigned int larger(unsigned int a, unsigned int b)
{
#if TILE_BF16
    unsigned int m;
    asm("max.u16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    return m;
#else
    return a > b ? a : b;
#endif
}

/* ---- codes ---- */

MOII_FN unsigned int four_codes(int elem, float a, float b, float c, float d)
{
    unsigned int codes; /* the second conversion takes the first's result in */
    if (elem == ELEM_E5M2)
        asm("{.reg .b16 l, h; cvt.rn.satfinite.e5m2x2.f32 l, %2, %1; cvt.rn.satfinite.e5m2x2.f32 h, %4, %3; mov.b32 %0, {l, h};}"
            : "=r"(codes) : "f"(a), "f"(b), "f"(c), "f"(d));
    else
        asm("{.reg .b16 l, h; cvt.rn.satfinite.e4m3x2.f32 l, %2, %1; cvt.rn.satfinite.e4m3x2.f32 h, %4, %3; mov.b32 %0, {l, h};}"
            : "=r"(codes) : "f"(a), "f"(b), "f"(c), "f"(d));
    return codes;
}

MOII_FN uint2 eight_codes(int elem, const float v[8])
{
    return make_uint2(four_codes(elem, v[0], v[1], v[2], v[3]), four_codes(elem, v[4], v[5], v[6], v[7]));
}

/* Codes of E4M3 times 2^-shift, rounded once more: FP16 holds every code, and every product that is not below half the smallest code. */
MOII_FN uint2 shifted(uint2 codes, unsigned int shift)
{
    const float by = moii_float_of((127u - (shift < 60 ? shift : 60)) << 23); /* far below the smallest FP16 it is 0, and so are the codes */
    asm("{.reg .b16 l, h; .reg .b32 f, x, y; cvt.rn.f16x2.f32 f, %2, %2;"
        " mov.b32 {l, h}, %0; cvt.rn.f16x2.e4m3x2 x, l; cvt.rn.f16x2.e4m3x2 y, h; mul.rn.f16x2 x, x, f; mul.rn.f16x2 y, y, f;"
        " cvt.rn.satfinite.e4m3x2.f16x2 l, x; cvt.rn.satfinite.e4m3x2.f16x2 h, y; mov.b32 %0, {l, h};"
        " mov.b32 {l, h}, %1; cvt.rn.f16x2.e4m3x2 x, l; cvt.rn.f16x2.e4m3x2 y, h; mul.rn.f16x2 x, x, f; mul.rn.f16x2 y, y, f;"
        " cvt.rn.satfinite.e4m3x2.f16x2 l, x; cvt.rn.satfinite.e4m3x2.f16x2 h, y; mov.b32 %1, {l, h};}"
        : "+r"(codes.x), "+r"(codes.y) : "f"(by));
    return codes;
}

/* The scale of a block goes to shared memory; what its values are multiplied by comes back. */
MOII_FN float take_scale(int kind, const tile8_side &side, unsigned int amax, bool writes, shared_scales *s, int block, int row)
{
    if (kind == TILE_MX32) { /* moii_block_make for these elements and finite values: codes of 0 .. 247 */
        int e = (int)((amax + side.carry) >> 23) - side.rule.element.emax;
        unsigned int code = e > 0 ? e : 0;
        bool poisoned = amax >= MOII_INF_BITS;
        if (writes) s->e8m0[block][row] = (unsigned char)(poisoned ? 0xFFu : code);
        return moii_float_of(poisoned ? MOII_NAN_BITS : (254u - code) << 23);
    }
    moii_block_rule r = side.rule;
    r.mx = 0, r.lenient = 0;
    moii_block b = moii_block_make(r, amax);
    if (writes) s->f32[row] = b.scale;
    return b.poisoned ? moii_float_of(MOII_NAN_BITS) : b.inverse;
}

#if TILE_BF16
/* The one of larger magnitude, or NaN, in pairs; the signs are anything. */
MOII_FN unsigned int stronger(unsigned int a, unsigned int b)
{
    unsigned int m;
    asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    return m;
}

MOII_FN unsigned int magnitudes(unsigned int pair) { return pair & 0x7FFF7FFFu; }

/* Two blocks of 32 at once, in halves of 16 bits, from BF16 magnitudes: nothing of take_scale's arithmetic crosses 16 bits, and powers of
 * two multiply BF16 numbers exactly (results below 2^-126 become zeros as codes in any case). */
typedef struct two_scales { unsigned int codes, inverse; } two_scales; /* E8M0, see poisoned; 2^(127 - code) as BF16, NaN for poisoned blocks */

MOII_FN two_scales take_two(const tile8_side &side, unsigned int tops)
{
    two_scales s;
    const unsigned int e = larger(((tops + side.carry2) >> 7) & 0x01FF01FFu, side.emax2);
    s.codes = e - side.emax2;
    s.inverse = 0x7F007F00u - s.codes * 128;
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(s.inverse) : "r"(tops), "r"(0)); /* Inf and NaN: NaN */
    return s;
}

/* take_two's codes are not yet those of poisoned blocks, as these are rare: whoever has several asks for all at once whether there is one. */
MOII_FN unsigned int poisoned(unsigned int tops) { return (tops + 0x00800080u) & 0x80008000u; }
MOII_FN unsigned int poison(unsigned int codes, unsigned int tops) { return codes | (poisoned(tops) >> 15) * 0xFFu; }

/* Value `half` (0, 1) of a pair of BF16 times the upper half of `by`, as FP32, in one instruction: the lower half of `by` is 0, and
 * minus_zero (-0 above, 0 below; opaque, so that it stays in a register) makes what is there 0 and keeps the sign of what is above. */
MOII_FN float scaled(unsigned int pair, int half, unsigned int by, unsigned int minus_zero)
{
    unsigned int x;
    if (half)
        asm("{.reg .b16 l, h; .reg .b32 t; mov.b32 {l, h}, %1; mov.b32 t, {h, h}; fma.rn.bf16x2 %0, t, %2, %3;}"
            : "=r"(x) : "r"(pair), "r"(by), "r"(minus_zero));
    else
        asm("{.reg .b16 l, h; .reg .b32 t; mov.b32 {l, h}, %1; mov.b32 t, {l, l}; fma.rn.bf16x2 %0, t, %2, %3;}"
            : "=r"(x) : "r"(pair), "r"(by), "r"(minus_zero));
    return moii_float_of(x);
}

/* Eight codes of BF16 values, each times by. */
MOII_FN uint2 scaled_codes(int elem, const uint4 &w, unsigned int by, unsigned int minus_zero)
{
    uint2 q;
    q.x = four_codes(elem, scaled(w.x, 0, by, minus_zero), scaled(w.x, 1, by, minus_zero), scaled(w.y, 0, by, minus_zero), scaled(w.y, 1, by, minus_zero));
    q.y = four_codes(elem, scaled(w.z, 0, by, minus_zero), scaled(w.z, 1, by, minus_zero), scaled(w.w, 0, by, minus_zero), scaled(w.w, 1, by, minus_zero));
    return q;
}

MOII_FN unsigned int upper_half(unsigned int pair) { return pair & 0xFFFF0000u; }
MOII_FN unsigned int lower_half(unsigned int pair) { return pair << 16; }
#endif

/* To columns: when lines of a column that lie together leave together, memory takes them faster (docs/notes/quantize-h200.md); so they stay in the
 * L2 cache, unless the kernel says otherwise. */
#ifndef COL_POLICY
#define COL_POLICY EVICT_LAST
#endif
MOII_FN void put_sixteen(unsigned char *to, ulonglong2 v)
{
    asm volatile("st.global.L2::cache_hint.v2.u64 [%0], {%1, %2}, %3;" : : "l"(to), "l"(v.x), "l"(v.y), "l"(COL_POLICY) : "memory");
}
MOII_FN void put_sixteen(unsigned char *to, const uint4 &v)
{
    put_sixteen(to, make_ulonglong2(v.x | (unsigned long long)v.y << 32, v.z | (unsigned long long)v.w << 32));
}

#endif
