/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_sm90: moi_quantize_run to 8-bit elements, either direction or both from one read, in tiles of 128 x 128 values.
 *
 *   defines   BF16: 1, or 0 where the values are FP32; ROW_KIND, COL_KIND: TILE_...; ROW_ELEM, COL_ELEM: ELEM_E4M3 or ELEM_E5M2;
 *             RAGGED: 1 where groups cut the rows
 *   grid      RAGGED: one per 128 columns that clears; then a block for each tile, those beside one another first (columns alone: for two
 *             tiles one below the other; RAGGED: for `depth` strips)
 *   threads   256 for each tile that a block makes at a time, a square of 8 x 8 values each, all of them read before anything else is done;
 *             tile8.cuh says who has what, and makes codes and scales of them.
 *   shared    dynamic: RAGGED and BF16, the tile below
 */
#include "quantize_sm90_args.h"

#define TILE_BF16 BF16
#define TILE_REPEATED
/* Columns alone: of two tiles at a time, so that they leave in pieces of 256 bytes.  With groups: tile after tile downward, so that they
 * leave in whole pieces; what is read for the next is on its way meanwhile, unless it is FP32, which would take too much shared memory. */
#define TILE_UNITS QUANTIZE_SM90_UNITS(BF16, ROW_KIND, COL_KIND, RAGGED)
#define TILE_SLOTS QUANTIZE_SM90_SLOTS(BF16, RAGGED)
#include "tile8.cuh"

#if BF16
#define SIZE 2 /* bytes of a value */
#else
#define SIZE 4
#endif

/* Where block i begins: t's matrix and columns; returns how many blocks come before it in its columns.  i / across by a multiplication. */
MOII_FN unsigned int find_stripe(const quantize_sm90_args &a, unsigned int i, tile *t)
{
    unsigned int q = a.across_magic ? __umulhi(i, a.across_magic) >> a.across_shift : i;
    const unsigned int col = i - q * a.across;
    t->matrix = 0;
    if (a.batch > 1) {
        const unsigned int above = q / a.batch;
        t->matrix = q - above * a.batch, q = above;
    }
    t->c0 = (long long)col * TILE;
    t->cols = (int)min(a.cols - t->c0, (long long)TILE);
    return q;
}

/* ---- reading ---- */

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
    const int lane = thread_index() % 32, row0 = thread_index() / 32 * 16 + lane / 16 * 8, col0 = lane % 16 * 8;
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

#if RAGGED
MOII_FN void fetch_square(const quantize_sm90_args &a, const tile &t)
{
#if TILE_SLOTS
    const int lane = thread_index() % 32, row0 = thread_index() / 32 * 16 + lane / 16 * 8, col0 = lane % 16 * 8;
    const char *from = (const char *)a.in + t.matrix * a.in_bytes + ((t.r0 + row0) * a.in_ld + t.c0 + col0) * SIZE;
    const long long step = a.in_ld * SIZE;
    if (!a.vectors) return;
    const int bytes = min(max(t.cols - col0, 0), 8) * SIZE, rows = bytes ? t.rows - row0 : 0;
#pragma unroll
    for (int p = 0; p < 8; p++) fetch16(p, p < rows ? from + p * step : (const char *)a.in, p < rows ? bytes : 0);
#endif
}

MOII_FN void take_square(const quantize_sm90_args &a, const tile &t, line v[8])
{
#if TILE_SLOTS
    if (a.vectors) {
        fetched();
#pragma unroll
        for (int p = 0; p < 8; p++) v[p] = slot16(p);
        return;
    }
#endif
    load_square(a, t, v);
}

MOII_FN void do_ragged(const quantize_sm90_args &a)
{
    way *const ways = units->ways;
    const tile8_cut cut = { a.offsets, a.rows, a.groups };
    tile t = { };
    line v[8];
    if (blockIdx.x < a.across) { /* blocks that clear: first, as they take long */
        t.c0 = (long long)blockIdx.x * TILE;
        clear(cut, a.row, a.col, t);
        return;
    }
    const unsigned int lo = find_stripe(a, blockIdx.x - a.across, &t) * a.depth, stop = min(lo + a.depth, a.strips);
    begin(cut, t, lo, stop, 1, ways, 0);
    if (ways[0].t.rows == 0) return;
    fetch_square(a, ways[0].t);
#pragma unroll 1
    for (int now = 0;; now = (now + 1) % 4) {
        const int next = (now + 1) % 4;
        take_square(a, ways[now].t, v);
        const bool last = ways[next].t.rows == 0;
        if (!last) {
            fetch_square(a, ways[next].t);
            if (thread_index() == 0) note(&ways[(now + 2) % 4], below(cut, ways[next], 1), 0);
        }
        put_tile(a.row, a.col, ways[now].t, v, last, ways[now].t.rows == TILE, 0);
        if (last) return;
    }
}
#endif

#define ONE_SIDE (ROW_KIND == TILE_NONE || COL_KIND == TILE_NONE)
/* Fewer blocks to an SM where the registers would spill. */
#define MANY_REGISTERS (__CUDA_ARCH__ >= 1000 && (ROW_KIND != TILE_MX32 || COL_KIND != TILE_MX32))
#define BLOCKS_BF16 (TILE_UNITS > 1 ? 2 : ONE_SIDE && !RAGGED ? 4 : MANY_REGISTERS ? 2 : 3)
#define BLOCKS_F32 (__CUDA_ARCH__ >= 1000 && !ONE_SIDE ? 1 : 2)
extern "C" __global__ void __launch_bounds__(256 * TILE_UNITS, BF16 ? BLOCKS_BF16 : BLOCKS_F32)
quantize_sm90(const __grid_constant__ quantize_sm90_args a)
{
#if RAGGED
    do_ragged(a);
#else
    const tile8_cut cut = { a.offsets, a.rows, a.groups };
    way w;
    line v[8];
    const unsigned int strip = find_stripe(a, blockIdx.x, &w.t) * TILE_UNITS;
    find_strip(cut, strip + unit_index(), &w);
    load_square(a, w.t, v);
    put_tile(a.row, a.col, w.t, v, true, a.rows - (long long)strip * TILE >= TILE_UNITS * TILE, 0);
#endif
}
