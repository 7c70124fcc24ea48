/* SPDX-License-Identifier: Apache-2.0
 * floats.hpp: FP16, BF16, E4M3 and E5M2 as the device's conversions have them, written without src/core/num.h, which they check. */
#ifndef EMU_FLOATS_HPP
#define EMU_FLOATS_HPP

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace ptx {

typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

enum { F16_E = 5, F16_M = 10, BF16_E = 8, BF16_M = 7, NAN_16 = 0x7FFF };

static inline double of_bits(u64 bits)
{
    double v;
    memcpy(&v, &bits, 8);
    return v;
}
static inline u64 bits_of(double v)
{
    u64 bits;
    memcpy(&bits, &v, 8);
    return bits;
}

static inline double decode(u32 code, int e_bits, int m_bits)
{
    const u32 e = code >> m_bits & ((1u << e_bits) - 1), mantissa = code & ((1u << m_bits) - 1);
    const u64 sign = (u64)(code >> (e_bits + m_bits)) << 63;
    const int bias = (1 << (e_bits - 1)) - 1;
    if (e == (1u << e_bits) - 1) return mantissa ? NAN : of_bits(sign | (u64)2047 << 52);
    if (!e) return of_bits(sign | bits_of((double)mantissa * of_bits((u64)(1024 - bias - m_bits) << 52)));
    return of_bits(sign | (u64)((int)e - bias + 1023) << 52 | (u64)mantissa << (52 - m_bits));
}
/* The code nearest to |v|, ties to even, as if exponents had no end: what is beyond the format is up to the caller. */
static inline u32 nearest(double v, int e_bits, int m_bits)
{
    const int bias = (1 << (e_bits - 1)) - 1, drop = 52 - m_bits;
    const u64 bits = bits_of(v) & ~((u64)1 << 63);
    if (bits >> 52 < (u64)(1024 - bias)) return (u32)nearbyint(fabs(v) * of_bits((u64)(1022 + bias + m_bits) << 52)); /* multiples of the least */
    return (u32)((bits + ((u64)1 << (drop - 1)) - 1 + (bits >> drop & 1)) >> drop) - ((u32)(1023 - bias) << m_bits);
}
static inline u32 ieee(double v, int e_bits, int m_bits)
{
    if (v != v) return NAN_16;
    const u32 most = ((1u << e_bits) - 1) << m_bits, sign = signbit(v) ? 1u << (e_bits + m_bits) : 0;
    if (isinf(v)) return sign | most;
    const u32 code = nearest(v, e_bits, m_bits);
    return sign | (code > most ? most : code);
}
static inline u32 f16(double v) { return ieee(v, F16_E, F16_M); }
static inline u32 bf16(double v) { return ieee(v, BF16_E, BF16_M); }
static inline double of_f16(u32 code) { return decode(code & 0xFFFF, F16_E, F16_M); }
static inline double of_bf16(u32 code) { return decode(code & 0xFFFF, BF16_E, BF16_M); }
static inline u32 e4m3(double v) /* up to 448; 0x7F is NaN */
{
    if (v != v) return 0x7F;
    const u32 code = isinf(v) ? 0x7E : nearest(v, 4, 3);
    return (signbit(v) ? 0x80u : 0) | (code > 0x7E ? 0x7E : code);
}
static inline u32 e5m2(double v) /* up to 57344 */
{
    if (v != v) return 0x7F;
    const u32 code = isinf(v) ? 0x7B : nearest(v, 5, 2);
    return (signbit(v) ? 0x80u : 0) | (code > 0x7B ? 0x7B : code);
}
static inline double of_e4m3(u32 code)
{
    code &= 255;
    if ((code & 127) == 127) return NAN;
    if ((code & 0x78) == 0x78) return (code & 128 ? -1.0 : 1.0) * (double)(8 + (code & 7)) * 32;
    return decode(code, 4, 3);
}
static inline double of_e5m2(u32 code) { return decode(code & 255, 5, 2); }
static inline u32 two(u32 high, u32 low) { return high << 16 | (low & 0xFFFF); }

/* a * b + c exactly, but for a last bit that says whether something was left out: rounding it again to fewer bits is right. */
static inline double fused(double a, double b, double c)
{
    const double p = a * b, s = p + c;
    if (!isfinite(s)) return s;
    const double back = s - p, left = (p - (s - back)) + (c - back);
    return left == 0 || bits_of(s) & 1 ? s : nextafter(s, left > 0 ? INFINITY : -INFINITY);
}

}

#endif
