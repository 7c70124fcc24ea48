/* SPDX-License-Identifier: Apache-2.0
 * product_one.cuh: one value of D (OUT_F32, ADD), wherever it goes. */
#ifndef MOII_PRODUCT_ONE_CUH
#define MOII_PRODUCT_ONE_CUH

#include "product_sm90_args.h"
#include "ptx_sm90.cuh"

MOII_FN void store_one(const product_args &a, long long at, float v)
{
#if OUT_F32
    float *d = (float *)a.d + at;
    *d = ADD ? *d + v : v;
#else
    ((unsigned short *)a.d)[at] = (unsigned short)bf16_pair(v, 0.0f);
#endif
}

#endif
