/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_sm90: moi_quantize_run to 8-bit elements, either direction or both from one read, in tiles of 128 x 128 values.
 *
 *   defines   BF16: 1, or 0 where the values are FP32; ROW_KIND, COL_KIND: TILE_...; ROW_ELEM, COL_ELEM: ELEM_E4M3 or ELEM_E5M2;
 *             RAGGED: 1 where groups cut the rows; ROW_REBASE: 1 where the scales of 128 columns are made equal
 *   grid      RAGGED: one per 128 columns that clears; then a block for each tile, those beside one another first (columns alone: for two
 *             tiles one below the other)
 *   threads   256 for each tile that a block makes at a time, a square of 8 x 8 values each, all of them read before anything else is done;
 *             tile8.cuh says who has what, and makes codes and scales of them.
 */
#include "quantize_sm90_args.h"

#define TILE_BF16 BF16
#define TILE_REPEATED
#define SCALES_IN_PACKETS
/* Columns leave in pieces of 256 bytes: alone, of two tiles that a block makes at a time; beside rows, of two blocks that store at the same time. */
#define TILE_UNITS QUANTIZE_SM90_UNITS(BF16, ROW_KIND, COL_KIND, RAGGED)
#define TILE_DOWN QUANTIZE_SM90_DOWN(BF16, ROW_KIND, COL_KIND, RAGGED)
#include "packets.cuh"
#include "tile8.cuh"

/* Where block i begins: t's matrix and columns; returns how many blocks come before it in its columns.  i / across by a multiplication. */
MOII_FN unsigned int find_stripe(const quantize_sm90_args &a, unsigned int i, tile *t)
{
    i /= TILE_DOWN;
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

MOII_FN void load_square(const quantize_sm90_args &a, const tile &t, line v[8])
{
    const int lane = thread_index() % 32, row0 = thread_index() / 32 * 16 + lane / 16 * 8, col0 = lane % 16 * 8;
    const char *from = (const char *)a.in + t.matrix * a.in_bytes + ((t.r0 + row0) * a.in_ld + t.c0 + col0) * VALUE_BYTES;
    const long long step = a.in_ld * VALUE_BYTES;
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
    if (a.vectors && t.cols == TILE) { /* few rows, or a group's last */
        const uint4 none = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int p = 0; p < 8; p++) {
            const bool there = row0 + p < t.rows;
#if BF16
            v[p] = there ? load16(from + p * step) : none;
#else
            v[p].low = there ? load16(from + p * step) : none, v[p].high = there ? load16(from + p * step + 16) : none;
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
#define MANY_REGISTERS (__CUDA_ARCH__ >= 1000 && (ROW_KIND != TILE_MX32 || COL_KIND != TILE_MX32))
#define BLOCKS_BF16 (TILE_UNITS > 1 ? 2 : ONE_SIDE ? 4 : MANY_REGISTERS ? 2 : 3)
#define BLOCKS_F32 (__CUDA_ARCH__ >= 1000 && !ONE_SIDE ? 1 : 2)
extern "C" __global__ void __launch_bounds__(256 * TILE_UNITS, BF16 ? BLOCKS_BF16 : BLOCKS_F32)
quantize_sm90(const __grid_constant__ quantize_sm90_args a)
{
    const tile8_cut cut = { a.offsets, a.rows, a.groups };
    way w;
    line v[8];
#if RAGGED
    if (blockIdx.x < a.across) { /* blocks that clear: first, as they take long */
        find_stripe(a, blockIdx.x, &w.t);
        clear(cut, a.row, a.col, w.t);
        return;
    }
    find_strip(cut, find_stripe(a, blockIdx.x - a.across, &w.t), &w);
    if (w.t.rows <= 0) return;
    load_square(a, w.t, v);
    put_tile(a.row, a.col, w.t, v, true);
#else
    const unsigned int strip = find_stripe(a, blockIdx.x, &w.t);
    find_strip(cut, strip, &w);
    if (TILE_DOWN > 1 && w.t.rows <= 0) return;
    load_square(a, w.t, v);
    put_tile(a.row, a.col, w.t, v, a.rows - (w.t.r0 - unit_index() * TILE) >= TILE_UNITS * TILE);
#endif
}
