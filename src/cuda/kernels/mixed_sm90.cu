/* SPDX-License-Identifier: Apache-2.0
 *
 * mixed_sm90: products on Hopper of A in FP16, each row times a power of two, and B in E4M3 or E2M1 with a scale for each 32 values:
 * D_g (+)= A_g B_g^T, A's rows cut by offsets or counts, or one matrix.
 *
 * B, the weights, are the tensor cores' rows and a group's rows of A their columns.  Codes become FP16 in registers, times what their scale has
 * more than others of their row (mixed_scales.cuh), and the tensor cores' own sums are all: nothing is added between products.
 *
 *   defines   GROUPS PRODUCT_DENSE, PRODUCT_ROWS, PRODUCT_MASKED;  ELEM_B;  WORDS as in weight_scales.cuh
 *             OUT_F32, ADD, SCATTER, WEIGHTED as in product_sm90.cuh
 *             SWIGLU: 1: B is gate and up, n = 2 f, and D what SwiGLU makes of their products, of f columns and in BF16;  then none of the four
 *             STAGES  of the ring;  BN, WGS, WAVES  64, 96, 128 or 144, 2 and 2: a tile has BN rows of A, and of B two times 64 for each warpgroup that
 *             multiplies
 *   A, a.row_factor  as half_rows_sm90 makes them (PLACED), zeros behind a row's end
 *   a.k       a multiple of 32
 *   unit      (group, tile of A's rows, tile of B's rows): all of the reduction.  Blocks draw units from a counter (thin_cards.cuh); tiles of A of one tile
 *             of B lie behind each other, so that B comes out of L2 for all but the first
 *   threads   384.  Warp 0 sends for tiles, by tensor maps, warps 1 and 2 bring B's scales, warp 3 deals units; the last eight multiply
 *   shared    SHARED_BYTES, as tensor_tile.c computes it
 *   launch    begins before the grid before it has ended, and waits for it */
#include "bf16x2.cuh"
#include "f16x2.cuh"
#include "lane_scan.cuh"
#include "own_warp.cuh"
#include "product_one.cuh"
#include "product_scales.cuh"
#include "product_sm90_args.h"
#include "ptx_sm90.cuh"

#define WGMMA_TYPE "f32.f16.f16"
#define PART_ROWS MIXED_ROWS(BN)
#define ROW_BYTES (ELEM_B == PRODUCT_E2M1 ? 64 : 128)
#define SCALES_BYTES MIXED_SCALES(BM)
#define FACTORS_BYTES (THIN_CARDS * BN)
#define STAGE_ARRIVALS (1 + 2) /* of scales each warp's */
#define WORDS_AHEAD 1
#if WORDS == 1 && !SWIGLU /* scales in parts, or of rows that are apart, take more to bring */
#define LOADING_REGISTERS 56
#define MULTIPLYING_REGISTERS 224
#else
#define LOADING_REGISTERS 72
#define MULTIPLYING_REGISTERS 216
#endif
#include "mixed_tile.cuh"

#include "mixed_scales.cuh"
#include "weight_scales.cuh"
#include "mixed_multiply.cuh"

extern "C" {
extern __shared__ __align__(1024) char mixed_memory[];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) mixed_sm90(const __grid_constant__ product_args a)
{
    run_block(a, mixed_memory);
}
