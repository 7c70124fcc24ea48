/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_sm90: moi_quantize_run to 8-bit elements, either direction or both from one read, in tiles of 128 x 128 values.
 *
 *   defines   BF16: 1, or 0 where the values are FP32; ROW_KIND, COL_KIND: TILE_...; ROW_ELEM, COL_ELEM: ELEM_E4M3 or ELEM_E5M2
 *   grid      one per 128 columns that clears, if there are groups; then a block for each tile, those of a strip of 128 rows after each other
 *   threads   256, a square of 8 x 8 values each, all of them read before anything else is done; tile8.cuh says who has what, and makes
 *             codes and scales of them.
 */
#include "quantize_sm90_args.h"

#define TILE_BF16 BF16
#include "tile8.cuh"

#if BF16
#define SIZE 2 /* bytes of a value */
#else
#define SIZE 4
#endif

/* ---- tiles ---- */

/* The i-th tile; false: its strip has no rows.  i / across by a multiplication. */
MOII_FN bool find_tile(const quantize_sm90_args &a, const tile8_cut &cut, unsigned int i, tile *t)
{
    unsigned int strip = a.across_magic ? __umulhi(i, a.across_magic) >> a.across_shift : i;
    const unsigned int col = i - strip * a.across;
    t->matrix = 0;
    if (a.one_matrix == 0) t->matrix = strip / a.strips, strip -= (unsigned int)t->matrix * a.strips;
    t->c0 = (long long)col * TILE;
    t->cols = (int)min(a.cols - t->c0, (long long)TILE);
    return find_strip(cut, strip, t);
}

MOII_FN uint4 load16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

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

MOII_FN void load_square(const quantize_sm90_args &a, const tile &t, line v[8])
{
    const int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 * 16 + lane / 16 * 8, col0 = lane % 16 * 8;
    const char *from = (const char *)a.in + t.matrix * a.in_bytes + ((t.r0 + row0) * a.in_ld + t.c0 + col0) * SIZE;
    const long long step = a.in_ld * SIZE;
    if (a.vectors && t.rows == TILE && t.cols == TILE) {
#pragma unroll
        for (int p = 0; p < 8; p++) {
#if BF16
            v[p] = load16(from + p * step);
#else
            v[p].low = load16(from + p * step), v[p].high = load16(from + p * step + 16);
#endif
        }
        return;
    }
#pragma unroll
    for (int p = 0; p < 8; p++) {
        const int count = row0 + p < t.rows ? t.cols - col0 : 0;
        const bool whole = a.vectors && count >= 8;
#if BF16
        v[p] = whole ? load16(from + p * step) : load_edge(from + p * step, count);
#else
        v[p].low = whole ? load16(from + p * step) : load_edge(from + p * step, count);
        v[p].high = whole ? load16(from + p * step + 16) : load_edge(from + p * step + 16, count - 4);
#endif
    }
}

#define ONE_SIDE (ROW_KIND == TILE_NONE || COL_KIND == TILE_NONE)
/* Fewer blocks to an SM where the registers would spill. */
#define MANY_REGISTERS (ROW_KIND == TILE_BLK128 || COL_KIND == TILE_BLK128 || (__CUDA_ARCH__ >= 1000 && ROW_KIND == TILE_SQUARE))
#define BLOCKS_BF16 (ONE_SIDE ? 4 : MANY_REGISTERS ? 2 : 3)
#define BLOCKS_F32 (__CUDA_ARCH__ >= 1000 && !ONE_SIDE ? 1 : 2)
extern "C" __global__ void __launch_bounds__(256, BF16 ? BLOCKS_BF16 : BLOCKS_F32) quantize_sm90(const __grid_constant__ quantize_sm90_args a)
{
    __shared__ shared_memory s;
    const tile8_cut cut = { a.offsets, a.rows, a.groups };
    tile t;
    const unsigned int clears = a.groups ? a.across : 0; /* blocks that clear: first, as they take long */
    if (blockIdx.x < clears) {
        t.matrix = 0, t.c0 = (long long)blockIdx.x * TILE;
        clear(cut, a.row, a.col, t);
        return;
    }
    if (!find_tile(a, cut, blockIdx.x - clears, &t)) return;
    line v[8];
    load_square(a, t, v);
    put_tile(a.row, a.col, t, v, &s);
}
