/* SPDX-License-Identifier: Apache-2.0
 * wgmma_codes.cuh: what wgmma.cuh is told of E4M3 and E5M2.
 *
 *   defines   WGMMA_LEFT, WGMMA_RIGHT   PRODUCT_E4M3 or PRODUCT_E5M2: of the operand that has the tensor cores' rows, and of the other */
#ifndef MOII_WGMMA_CODES_CUH
#define MOII_WGMMA_CODES_CUH

#include "product_sm90_args.h"

#define WGMMA_K "k32"
#define WGMMA_END ""
#if WGMMA_LEFT == PRODUCT_E4M3 && WGMMA_RIGHT == PRODUCT_E4M3
#define WGMMA_TYPE "f32.e4m3.e4m3"
#elif WGMMA_LEFT == PRODUCT_E4M3
#define WGMMA_TYPE "f32.e4m3.e5m2"
#elif WGMMA_RIGHT == PRODUCT_E4M3
#define WGMMA_TYPE "f32.e5m2.e4m3"
#else
#define WGMMA_TYPE "f32.e5m2.e5m2"
#endif

#endif
