/* SPDX-License-Identifier: Apache-2.0
 *
 * packets.cuh: 16 bytes of a row from global memory, that nothing writes meanwhile.
 *
 *   defines   TILE_BF16: 1, or 0 where the values are FP32 */
#ifndef MOII_PACKETS_CUH
#define MOII_PACKETS_CUH

#include "evict.h"
#include "num.h"

#define VALUE_BYTES (TILE_BF16 ? 2 : 4)

MOII_FN uint4 load16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p), "l"(EVICT_LAST));
    return v;
}

/* 16 bytes of which the first `count` values are there; apart, so that there is one copy of it. */
static __device__ __noinline__ uint4 load_edge(const char *p, int count)
{
    unsigned int w[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < 16 / VALUE_BYTES; i++) {
        if (i >= count) continue;
#if TILE_BF16
        w[i / 2] |= (unsigned int)((const unsigned short *)p)[i] << 16 * (i % 2);
#else
        w[i] = ((const unsigned int *)p)[i];
#endif
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

#endif
