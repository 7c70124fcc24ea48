/* SPDX-License-Identifier: Apache-2.0
 * lane_scan.cuh: the sum of v over a warp's lanes up to this one, and including it; all 32 call. */
#ifndef MOII_LANE_SCAN_CUH
#define MOII_LANE_SCAN_CUH

#include "num.h"

MOII_FN int lane_scan(int v, int lane)
{
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int lower = __shfl_up_sync(0xFFFFFFFFu, v, step);
        v += lane >= step ? lower : 0;
    }
    return v;
}

#endif
