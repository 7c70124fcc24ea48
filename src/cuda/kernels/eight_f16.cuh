/* SPDX-License-Identifier: Apache-2.0
 * eight_f16.cuh: eight codes of E2M1 as FP16 times 2^-14, exactly: code i in half i / 4 of word i % 4.
 *
 * A code's sign goes to bit 15 and its three other bits to 11 .. 9, which are FP16's lowest exponent bits and highest mantissa bit; what is subnormal there is
 * subnormal here.  First the same within a byte for each code, of even ones and of odd ones in a word each, where bits of neighbours may stay; then every
 * second byte in its place, and one mask for both.  What masks and shifts right is what bounds it: a shift to the left is a multiplication to the compiler. */
#ifndef MOII_EIGHT_F16_CUH
#define MOII_EIGHT_F16_CUH

#include "num.h"
#include "ptx_sm90.cuh"

MOII_FN unsigned int even_codes(unsigned int w) { return bits_of_two(w << 4, w << 1, 0x80808080u); }
MOII_FN unsigned int odd_codes(unsigned int w) { return bits_of_two(w, w >> 3, 0x80808080u); }
MOII_FN unsigned int two_f16(unsigned int high_bytes) { return high_bytes & 0x8E008E00u; }

MOII_FN uint4 eight_f16(unsigned int w)
{
    const unsigned int even = even_codes(w), odd = odd_codes(w);
    return make_uint4(two_f16(even << 8), two_f16(odd << 8), two_f16(even), two_f16(odd));
}
/* The same, codes 2i and 2i + 1 in word i. */
MOII_FN uint4 eight_in_turn(unsigned int w)
{
    const unsigned int even = even_codes(w), odd = odd_codes(w);
    const unsigned int low = __byte_perm(even, odd, 0x5410), high = __byte_perm(even, odd, 0x7632);
    return make_uint4(two_f16(low << 8), two_f16(low), two_f16(high << 8), two_f16(high));
}

#endif
