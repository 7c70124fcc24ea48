/* SPDX-License-Identifier: Apache-2.0
 * eight_f16.cuh: eight codes of E2M1 as FP16 times 2^-14, exactly: code i in half i / 4 of word i % 4.
 *
 * A code's sign goes to bit 15 and its three other bits to 11 .. 9, which are FP16's lowest exponent bits and highest mantissa bit; what is subnormal there is
 * subnormal here.  That is a byte for each code, of even ones and of odd ones in a word each, then every second byte in its place. */
#ifndef MOII_EIGHT_F16_CUH
#define MOII_EIGHT_F16_CUH

#include "num.h"

MOII_FN unsigned int high_bytes(unsigned int signs, unsigned int others) { return (signs & 0x80808080u) | (others & 0x0E0E0E0Eu); }
MOII_FN uint4 eight_f16(unsigned int w)
{
    const unsigned int even = high_bytes(w << 4, w << 1), odd = high_bytes(w, w >> 3);
    return make_uint4(__byte_perm(even, 0, 0x2404), __byte_perm(odd, 0, 0x2404), even & 0xFF00FF00u, odd & 0xFF00FF00u);
}
/* The same, codes 2i and 2i + 1 in word i. */
MOII_FN uint4 eight_in_turn(unsigned int w)
{
    const unsigned int even = high_bytes(w << 4, w << 1), odd = high_bytes(w, w >> 3);
    const unsigned int low = __byte_perm(even, odd, 0x5140), high = __byte_perm(even, odd, 0x7362);
    return make_uint4(__byte_perm(low, 0, 0x1404), __byte_perm(low, 0, 0x3424), __byte_perm(high, 0, 0x1404), __byte_perm(high, 0, 0x3424));
}

#endif
