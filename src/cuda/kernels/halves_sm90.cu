/* SPDX-License-Identifier: Apache-2.0
 *
 * halves_sm90: products on Hopper of few rows of A in FP16, each times a power of two, and B in E4M3, E5M2 or E2M1 with a scale for each 32 values:
 * D_g (+)= A_g B_g^T, A's rows cut by offsets or counts, or one matrix.
 *
 * B, the weights, are the tensor cores' rows and a group's rows of A their columns.  Codes become FP16 in registers, which is exact and one instruction for
 * two (E2M1: 13 for eight), and sums of 32 products are added times B's scale: of few columns that is less than to multiply codes by it (mixed_sm90).
 *
 *   defines   GROUPS PRODUCT_DENSE, PRODUCT_ROWS, PRODUCT_MASKED;  ELEM_B;  OUT_F32, ADD, SCATTER, WEIGHTED as in product_sm90.cuh
 *             SWIGLU, STAGES as in mixed_sm90.cu;  BN, WGS, WAVES  64, 2 and 2: a tile has 64 rows of A, and of B two times 64 for each warpgroup
 *             that multiplies
 *             WORDS  as in weight_scales.cuh
 *   A, a.row_factor  as half_rows_sm90 makes them
 *   a.k       a multiple of 32
 *   unit, threads, launch  as in mixed_sm90.cu
 *   shared    SHARED_BYTES, as tensor_tile.c computes it */
#include "lane_scan.cuh"
#include "own_warp.cuh"
#include "product_one.cuh"
#include "product_scales.cuh"
#include "product_sm90_args.h"
#include "ptx_sm90.cuh"

#define WGMMA_TYPE "f32.f16.f16"
#define PART_ROWS HALVES_ROWS
#define SCALES_EACH 8 /* bytes of a row of B in a stage */
#define SCALES_BYTES (BM * SCALES_EACH)
#define ROW_BYTES (ELEM_B == PRODUCT_E2M1 ? 64 : 128)
#define FACTORS_BYTES (THIN_CARDS * BN * 4)
#define STAGE_ARRIVALS (1 + 2) /* of scales each warp's */
#define WORDS_AHEAD 4
#define LOADING_REGISTERS 72
#define MULTIPLYING_REGISTERS 216
#include "mixed_tile.cuh"
#include "halves_scales.cuh"
#include "weight_scales.cuh"
#include "halves_multiply.cuh"

extern "C" {
extern __shared__ __align__(1024) char halves_memory[];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) halves_sm90(const __grid_constant__ product_args a)
{
    run_block(a, halves_memory);
}
