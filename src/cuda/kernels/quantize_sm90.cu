/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_sm90: moi_quantize_run to 8-bit elements, either direction or both from one read, in tiles of 128 x 128 values.
 *
 *   defines   BF16: 1, or 0 where the values are FP32; ROW_KIND, COL_KIND: TILE_...; ROW_ELEM, COL_ELEM: ELEM_E4M3 or ELEM_E5M2
 *   grid      x: 128 columns, y: strips of 128 rows (and one more that clears, if there are groups), z: matrices
 *   threads   256, a square of 8 x 8 values each, all of them read before anything else is done; tile8.cuh says who has what, and makes
 *             codes and scales of them.
 */
#include "quantize_sm90_args.h"

#define TILE_BF16 BF16
#include "tile8.cuh"

/* ---- values ---- */

MOII_FN uint4 load16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

#if BF16
#define SIZE 2 /* bytes of a value */
#else
#define SIZE 4
#endif

/* 16 bytes of which the first `count` values are there; apart, so that there is one copy of it. */
static __device__ __noinline__ uint4 load_edge(const char *p, int count)
{
    unsigned int w[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < 16 / SIZE; i++) {
        if (i >= count) continue;
#if BF16
        w[i / 2] |= (unsigned int)((const unsigned short *)p)[i] << 16 * (i % 2);
#else
        w[i] = ((const unsigned int *)p)[i];
#endif
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

MOII_FN line load_line(const quantize_sm90_args &a, const tile &t, int row, int col)
{
    const char *p = (const char *)a.in + t.matrix * a.in_bytes + ((t.r0 + row) * a.in_ld + t.c0 + col) * SIZE;
    const bool whole = row < t.rows && col + 8 <= t.cols && a.vectors;
    const int count = row < t.rows ? t.cols - col : 0;
#if BF16
    return whole ? load16(p) : load_edge(p, count);
#else
    line v;
    v.low = whole ? load16(p) : load_edge(p, count);
    v.high = whole ? load16(p + 16) : load_edge(p + 16, count - 4);
    return v;
#endif
}

#define ONE_SIDE (ROW_KIND == TILE_NONE || COL_KIND == TILE_NONE)
extern "C" __global__ void __launch_bounds__(256, BF16 && ONE_SIDE ? 3 : 2) quantize_sm90(const __grid_constant__ quantize_sm90_args a)
{
    __shared__ shared_memory s;
    const tile8_cut cut = { a.offsets, a.rows, a.groups };
    tile t;
    t.matrix = blockIdx.z, t.c0 = (long long)blockIdx.x * TILE;
    t.cols = (int)(a.cols - t.c0 < TILE ? a.cols - t.c0 : TILE);
    if (blockIdx.y == a.strips) {
        clear(cut, a.row, a.col, t);
        return;
    }
    if (!find_strip(cut, blockIdx.y, &t)) return;
    const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 16 * 8, col0 = lane % 16 * 8;
    line v[8];
#pragma unroll
    for (int p = 0; p < 8; p++) v[p] = load_line(a, t, row0 + p, col0);
    put_tile(a.row, a.col, t, v, &s);
}
