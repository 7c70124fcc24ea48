/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu_values.cuh: from packets of gate, up and d_act to what SwiGLU and its gradient make of them.
 *
 *   defines   BACKWARD, IN_ELEM, IN_BYTES, IN_WIDE, OUT_BF16: see swiglu_sm90.cu
 */
#ifndef MOII_SWIGLU_VALUES_CUH
#define MOII_SWIGLU_VALUES_CUH

#include "bf16x2.cuh"
#include "silu.h"
#include "stored.cuh"
#include "tile8_codes.cuh"

/* ---- reading ---- */

MOII_FN uint4 load16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

MOII_FN uint2 load8(const void *p)
{
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

/* Eight values of a row of gate_up. */
#if IN_BYTES == 1
typedef uint2 packet;
#elif IN_BYTES == 2
typedef uint4 packet;
#else
typedef struct packet { uint4 low, high; } packet;
#endif

MOII_FN packet load_packet(const char *p)
{
#if IN_BYTES == 1
    return load8(p);
#elif IN_BYTES == 2
    return load16(p);
#else
    packet v;
    v.low = load16(p), v.high = load16(p + 16);
    return v;
#endif
}

MOII_FN line load_gradient(const char *p)
{
#if OUT_BF16
    return load16(p);
#else
    line v;
    v.low = load16(p), v.high = load16(p + 16);
    return v;
#endif
}

/* The scale of eight values, which lie in one block as columns and width are multiples of 8. */
MOII_FN float load_scale(const stored_matrix &m, long long r, long long c)
{
#if IN_BYTES == 1
    const long long b = c / (IN_WIDE ? 128 : 32);
    const long long i = stored_scale_place(m.layout, IN_WIDE, r, b, m.scale_rows, m.blocks);
    return IN_WIDE ? ((const float *)m.scale)[i] : moii_e8m0_decode(((const unsigned char *)m.scale)[i]);
#else
    return 1.0f;
#endif
}

/* ---- values ---- */

MOII_FN void unpack(const packet &v, float scale, float x[8])
{
#if IN_BYTES == 1
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned short two = (unsigned short)((i < 2 ? v.x : v.y) >> 16 * (i % 2));
        unsigned int halves;
        if (IN_ELEM == ELEM_E5M2) asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(two));
        else asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(two));
        float low, high;
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(halves));
        x[2 * i] = low * scale, x[2 * i + 1] = high * scale;
    }
#elif IN_BYTES == 2
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned int w = i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
        x[2 * i] = moii_float_of(w << 16), x[2 * i + 1] = moii_float_of(w & 0xFFFF0000u);
    }
#else
    x[0] = moii_float_of(v.low.x), x[1] = moii_float_of(v.low.y), x[2] = moii_float_of(v.low.z), x[3] = moii_float_of(v.low.w);
    x[4] = moii_float_of(v.high.x), x[5] = moii_float_of(v.high.y), x[6] = moii_float_of(v.high.z), x[7] = moii_float_of(v.high.w);
#endif
}

MOII_FN line pack(const float x[8])
{
#if OUT_BF16
    return make_uint4(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7])); /* NaN: 0x7FFF */
#else
    line v;
    v.low = make_uint4(moii_bits_of(x[0]), moii_bits_of(x[1]), moii_bits_of(x[2]), moii_bits_of(x[3]));
    v.high = make_uint4(moii_bits_of(x[4]), moii_bits_of(x[5]), moii_bits_of(x[6]), moii_bits_of(x[7]));
    return v;
#endif
}

/* Whether magnitudes of gates are compared in pairs: of BF16, by an instruction of 8.6 and newer. */
#define GATES_PAIRED (IN_BYTES == 2 && __CUDA_ARCH__ >= 860)

/* Larger magnitudes of gates than those in `top`: bits of BF16 pairs (signs are anything), or of FP32. */
MOII_FN unsigned int top_gate(unsigned int top, const packet &v, const float gate[8])
{
#if GATES_PAIRED
    asm("{.reg .b32 m; max.NaN.xorsign.abs.bf16x2 m, %1, %2; max.NaN.xorsign.abs.bf16x2 %0, %0, m; max.NaN.xorsign.abs.bf16x2 m, %3, %4;"
        " max.NaN.xorsign.abs.bf16x2 %0, %0, m;}" : "+r"(top) : "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
#else
#pragma unroll
    for (int c = 0; c < 8; c++) top = max(top, moii_bits_of(gate[c]) & 0x7FFFFFFFu);
#endif
    return top;
}

MOII_FN bool all_near(unsigned int top)
{
#if GATES_PAIRED
    top &= 0x7FFF7FFFu;
    return max(top << 16, top) <= (MOII_SILU_NEAR_BITS | 0xFFFFu);
#else
    return top <= MOII_SILU_NEAR_BITS;
#endif
}

/* A row of eight as if its gates were near; *second: backward, d_up. */
MOII_FN line make_row(const packet &g, const packet &u, const line &d, float gate_scale, float up_scale, line *second, unsigned int *top)
{
    float gate[8], up[8], x[8];
    unpack(g, gate_scale, gate);
    unpack(u, up_scale, up);
#if BACKWARD
    float y[8];
#pragma unroll
    for (int c = 0; c < 8; c++) {
        moii_swiglu_grad grad = moii_swiglu_grad_near(gate[c], up[c], value_of(d, c));
        x[c] = grad.gate, y[c] = grad.up;
    }
    *second = pack(y);
#else
#pragma unroll
    for (int c = 0; c < 8; c++) x[c] = moii_swiglu_near(gate[c], up[c]);
#endif
    *top = top_gate(*top, g, gate);
    return pack(x);
}

/* ---- slowly ---- */

MOII_FN float get(const stored_matrix &m, long long r, long long c)
{
    const float v = stored_decode(IN_ELEM, m.data + r * m.stride, c);
    return IN_BYTES == 1 ? v * load_scale(m, r, c) : v;
}

MOII_FN line no_line(void)
{
#if OUT_BF16
    return make_uint4(0, 0, 0, 0);
#else
    line v;
    v.low = v.high = make_uint4(0, 0, 0, 0);
    return v;
#endif
}

/* Value c of a line, which was 0; c need not be a constant, and a loop over words would become an array in local memory. */
MOII_FN void insert(line &to, int c, float v)
{
#if OUT_BF16
    const unsigned int w = moii_bf16_encode(v) << 16 * (c % 2);
    to.x |= c / 2 == 0 ? w : 0, to.y |= c / 2 == 1 ? w : 0, to.z |= c / 2 == 2 ? w : 0, to.w |= c / 2 == 3 ? w : 0;
#else
    const unsigned int w = moii_bits_of(v);
    to.low.x |= c == 0 ? w : 0, to.low.y |= c == 1 ? w : 0, to.low.z |= c == 2 ? w : 0, to.low.w |= c == 3 ? w : 0;
    to.high.x |= c == 4 ? w : 0, to.high.y |= c == 5 ? w : 0, to.high.z |= c == 6 ? w : 0, to.high.w |= c == 7 ? w : 0;
#endif
}

#endif
