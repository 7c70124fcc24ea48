/* SPDX-License-Identifier: Apache-2.0
 * elem.cuh: reading and writing values of a type known when the kernel is compiled, with the host's own functions. */
#ifndef MOII_ELEM_CUH
#define MOII_ELEM_CUH

#include "elem.h"
#include "num.h"

MOII_FN int elem_bits(int elem)
{
    return elem == ELEM_F32 ? 32 : elem == ELEM_F16 || elem == ELEM_BF16 ? 16 : elem == ELEM_E2M1 ? 4 : elem == ELEM_E3M2 || elem == ELEM_E2M3 ? 6 : 8;
}

MOII_FN unsigned int elem_encode(int elem, float v)
{
    switch (elem) {
    case ELEM_F32: return moii_bits_of(v);
    case ELEM_F16: return moii_f16_encode(v);
    case ELEM_BF16: return moii_bf16_encode(v);
    case ELEM_E4M3: return moii_e4m3_encode(v);
    case ELEM_E5M2: return moii_e5m2_encode(v);
    case ELEM_E3M2: return moii_e3m2_encode(v);
    case ELEM_E2M3: return moii_e2m3_encode(v);
    case ELEM_E2M1: return moii_e2m1_encode(v);
    default: return moii_int8_encode(v);
    }
}

/* Element i of a plain buffer of F32, F16 or BF16. */
MOII_FN float elem_load(int elem, const void *p, long long i)
{
    if (elem == ELEM_F32) return ((const float *)p)[i];
    unsigned int code = ((const unsigned short *)p)[i];
    return elem == ELEM_F16 ? moii_f16_decode(code) : moii_bf16_decode(code);
}

/* Code i of a row whose codes fill whole bytes. */
MOII_FN void elem_store(int elem, void *row, long long i, unsigned int code)
{
    if (elem_bits(elem) == 32) ((unsigned int *)row)[i] = code;
    else if (elem_bits(elem) == 16) ((unsigned short *)row)[i] = (unsigned short)code;
    else ((unsigned char *)row)[i] = (unsigned char)code;
}

#endif
