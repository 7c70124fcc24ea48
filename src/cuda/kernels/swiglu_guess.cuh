/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu_guess.cuh: SwiGLU forward from BF16 to BF16 in fewer instructions than its definition takes, with its bits.  Included by
 * swiglu_sm90.cuh, whose functions it uses. */
#ifndef MOII_SWIGLU_GUESS_CUH
#define MOII_SWIGLU_GUESS_CUH

/* The machine's own exponential and inverse say to which BF16 number a result is rounded, unless it lies so near the
 * middle between two that the row is computed again as it is defined; so the bits are those of the definition.  How near, with u = 2^-24:
 *
 *   guess       exp(-x) = 2^(-x H) (1 - x R) with H, the first 16 bits of log2 e, times a BF16 exact: what is left out is below 1.5 u; ex2 is
 *               within 2 units (4 u), the factor, the sum and the inverse (1 unit) add u, u and 2 u, the two products 2 u: 11.5 u
 *   definition  4.8 u for the sigmoid (silu.h), 2 u for the products
 *
 * which together are less than 19 units in the last place.  Products that are subnormal have more: where a result of the square is below
 * 2^-119, all of it is computed again. */
enum { GUESS_UNITS = 20, GUESS_TINY = 8 << 7 };

MOII_FN float guess(float gate, float up)
{
    float e, s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(gate * -1.44268798828125f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(__fmaf_rn(e, __fmaf_rn(gate, -4.8885e-6f, 1.0f), 1.0f)));
    return gate * (s * up);
}

/* Pairs of 16 bits: what is least of m and of how far the lower halves of x and y lie above the beginning of that middle. */
MOII_FN unsigned int nearer(unsigned int m, float x, float y)
{
    unsigned int q = __byte_perm(moii_bits_of(x), moii_bits_of(y), 0x5410);
    asm("{add.u16x2 %1, %1, %2; min.u16x2 %0, %0, %1;}" : "+r"(m), "+r"(q) : "r"((0x8000u + GUESS_UNITS) * 0x10001u));
    return m;
}

MOII_FN unsigned int weaker(unsigned int a, unsigned int b) /* the one of smaller magnitude, in pairs of BF16 */
{
    unsigned int m;
    asm("min.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    return m;
}

/* A row of guesses; *doubt: not 0 where one may be wrong. */
MOII_FN uint4 guess_row(const uint4 &g, const uint4 &u, unsigned int *top, unsigned int *least, unsigned int *doubt)
{
    float gate[8], up[8], x[8];
    unsigned int m = 0xFFFFFFFFu;
    unpack(g, 1.0f, gate);
    unpack(u, 1.0f, up);
#pragma unroll
    for (int c = 0; c < 8; c++) x[c] = guess(gate[c], up[c]);
#pragma unroll
    for (int c = 0; c < 8; c += 2) m = nearer(m, x[c], x[c + 1]);
    *doubt = (m - (2 * GUESS_UNITS + 1) * 0x10001u) & ~m & 0x80008000u;
    *top = top_gate(*top, g, gate);
    const uint4 v = pack(x);
    *least = weaker(weaker(weaker(*least, v.x), v.y), weaker(v.z, v.w));
    return v;
}

MOII_FN bool some_tiny(unsigned int least)
{
    least &= 0x7FFF7FFFu;
    return min(least & 0xFFFFu, least >> 16) < GUESS_TINY;
}

/* The rows of a square whose bits are set in `rows`, read again and computed as they are defined; their gates are near. */
MOII_FN void make_again(const swiglu_sm90_args &a, const tile &t, line v[8], unsigned int rows)
{
#pragma unroll 1
    while (rows) {
        const int i = __ffs((int)rows) - 1;
        const char *p = gate_at(a, t) + (unsigned long long)row_within(t, my_row() + i) * a.stride;
        const uint4 g = load16(p), u = load16(p + a.width * IN_BYTES);
        float gate[8], up[8], x[8];
        unpack(g, 1.0f, gate);
        unpack(u, 1.0f, up);
#pragma unroll
        for (int c = 0; c < 8; c++) x[c] = moii_swiglu_near(gate[c], up[c]);
        const uint4 w = pack(x);
#pragma unroll
        for (int p = 0; p < 8; p++)
            if (p == i) v[p] = w;
        rows &= rows - 1;
    }
}

#endif
