/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_sm90: rows of an operand that a list names, and their scales, one behind the other.
 *
 *   defines   SCALE_BYTES: of each, or 0: there are none
 *   grid      any; GATHER_THREADS threads.  Each warp takes so many pieces of a row at a time, or scales of a few rows: few rows are spread over
 *             many warps, so that nobody waits for memory twice
 *   launch    begins before the grid before it has ended, and waits for it */
#include "gather_sm90_args.h"
#include "product_scales.cuh"
#include "ptx_sm90.cuh"
#include "row_list.cuh"

MOII_FN void copy_pieces(const gather_sm90_args &a, int row, int first)
{
    const uint4 *from = (const uint4 *)(a.from + listed_row(a.list, row) * a.pitch);
    uint4 *to = (uint4 *)a.to + (long long)row * a.pieces;
    uint4 v[GATHER_PIECES / 32];
    first += (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < GATHER_PIECES / 32; i++)
        if (first + 32 * i < a.pieces) v[i] = __ldg(from + first + 32 * i);
#pragma unroll
    for (int i = 0; i < GATHER_PIECES / 32; i++)
        if (first + 32 * i < a.pieces) to[first + 32 * i] = v[i];
}

#if SCALE_BYTES > 0
#if SCALE_BYTES == 4
typedef unsigned int scale_bits;
#else
typedef unsigned char scale_bits;
#endif

#define BLOCKS_BESIDE (32 / GATHER_ROWS) /* whose scales lanes have at one time */
#define BLOCKS_EACH 8                    /* of a lane */

/* Neighbouring lanes have one block's.  first: of the blocks that are wanted. */
MOII_FN void copy_scales(const gather_sm90_args &a, int first_row, int first, int rows)
{
    const int lane = (int)threadIdx.x % 32, row = first_row + lane % GATHER_ROWS;
    if (row >= rows) return;
    const unsigned int from = (unsigned int)listed_row(a.list, row);
    scale_bits v[BLOCKS_EACH];
    first += lane / GATHER_ROWS;
#pragma unroll
    for (int i = 0; i < BLOCKS_EACH; i++) {
        const int block = (first + i * BLOCKS_BESIDE) * a.block_step;
        if (block < a.blocks) v[i] = __ldg((const scale_bits *)a.scales.p + scale_index(a.scales, from, (unsigned int)block));
    }
#pragma unroll
    for (int i = 0; i < BLOCKS_EACH; i++) {
        const int block = (first + i * BLOCKS_BESIDE) * a.block_step;
        if (block < a.blocks) ((scale_bits *)a.in_order.p)[scale_index(a.in_order, (unsigned int)row, (unsigned int)block)] = v[i];
    }
}

/* A warp: its share of all scales. */
MOII_FN void copy_all_scales(const gather_sm90_args &a, int rows, int warp, int warps)
{
    const int wide = BLOCKS_BESIDE * BLOCKS_EACH, wanted = (a.blocks + a.block_step - 1) / a.block_step;
    const int across = (wanted + wide - 1) / wide, high = (rows + GATHER_ROWS - 1) / GATHER_ROWS;
    for (int i = warp; i < across * high; i += warps) {
        const int down = i / across;
        copy_scales(a, down * GATHER_ROWS, (i - down * across) * wide, rows);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(GATHER_THREADS, GATHER_BLOCKS) gather_sm90(const __grid_constant__ gather_sm90_args a)
{
    grid_wait();
    grid_release();
    const int thread = (int)(blockIdx.x * GATHER_THREADS + threadIdx.x), threads = (int)gridDim.x * GATHER_THREADS;
    const int rows = listed_rows(a.list, a.rows), parts = (a.pieces + GATHER_PIECES - 1) / GATHER_PIECES;
    const long long all = (long long)rows * parts;
    for (long long i = thread / 32; i < all; i += threads / 32) {
        const int row = (int)((unsigned long long)i / (unsigned int)parts);
        copy_pieces(a, row, (int)(i - (long long)row * parts) * GATHER_PIECES);
    }
#if SCALE_BYTES > 0
    copy_all_scales(a, rows, threads / 32 - 1 - thread / 32, threads / 32); /* by those first who had the fewest rows */
#endif
}
