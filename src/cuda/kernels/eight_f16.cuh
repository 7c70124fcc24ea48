/* SPDX-License-Identifier: Apache-2.0
 * eight_f16.cuh: eight codes of E2M1 as FP16 times 2^-14, exactly: code i in half i / 4 of word i % 4.
 *
 * A code's sign goes to bit 15 and its three other bits to 11 .. 9, which are FP16's lowest exponent bits and highest mantissa bit; what is subnormal there is
 * subnormal here. */
#ifndef MOII_EIGHT_F16_CUH
#define MOII_EIGHT_F16_CUH

#include "num.h"

MOII_FN unsigned int two_f16(unsigned int signs, unsigned int others) { return (signs & 0x80008000u) | (others & 0x0E000E00u); }
MOII_FN uint4 eight_f16(unsigned int w)
{
    return make_uint4(two_f16(w << 12, w << 9), two_f16(w << 8, w << 5), two_f16(w << 4, w << 1), two_f16(w, w >> 3));
}

#endif
