/* SPDX-License-Identifier: Apache-2.0
 *
 * mixed_sm90: products on Hopper of A in BF16 and B in E4M3 or E2M1 with a scale for each 32 values: D_g (+)= A_g B_g^T, A's rows cut by offsets or
 * counts, or one matrix.
 *
 * B, the weights, are the tensor cores' rows and a group's rows of A their columns.  Codes become BF16 times their scale in registers, which is exact where
 * BF16's exponents do not end, and the tensor cores' own sums are all: nothing is added between products.
 *
 *   defines   GROUPS PRODUCT_DENSE, PRODUCT_ROWS, PRODUCT_MASKED;  ELEM_B;  WORDS as in weight_scales.cuh
 *             OUT_F32, ADD, SCATTER, WEIGHTED as in product_sm90.cuh
 *             SWIGLU: 1: B is gate and up, n = 2 f, and D what SwiGLU makes of their products, of f columns and in BF16;  then none of the four
 *             STAGES  of the ring;  BN, WGS, WAVES  64, 96, 128 or 144, 2 and 2: a tile has BN rows of A, and of B two times 64 for each warpgroup that
 *             multiplies
 *   A         each 128 values of a row in widen_sm90's order (PLACED), zeros behind its end
 *   a.k       a multiple of 32
 *   unit      (group, tile of A's rows, tile of B's rows): all of the reduction.  Block b takes the units b, b + blocks, ...; tiles of A of one tile of B
 *             lie behind each other, so that B comes out of L2 for all but the first
 *   threads   384.  Warp 0 sends for tiles, by tensor maps, warps 1 and 2 bring B's scales; the last eight multiply
 *   shared    SHARED_BYTES, as tensor_tile.c computes it
 *   launch    begins before the grid before it has ended, and waits for it */
#include "bf16x2.cuh"
#include "lane_scan.cuh"
#include "own_warp.cuh"
#include "product_one.cuh"
#include "product_scales.cuh"
#include "product_sm90_args.h"
#include "ptx_sm90.cuh"

#define WGMMA_TYPE "f32.bf16.bf16"
#define PART_ROWS MIXED_ROWS(BN)
#define ROW_BYTES (ELEM_B == PRODUCT_E2M1 ? 64 : 128)
#define SCALES_EACH 4
#define FACTORS_BYTES 0
#define STAGE_ARRIVALS (1 + 2) /* of scales each warp's */
#define WORDS_AHEAD 1
#if WORDS && !SWIGLU /* scales by bytes, or of rows that are apart, take more to bring */
#define LOADING_REGISTERS 40
#define MULTIPLYING_REGISTERS 232
#else
#define LOADING_REGISTERS 56
#define MULTIPLYING_REGISTERS 224
#endif
#include "mixed_tile.cuh"

/* Scales as they are: who multiplies makes BF16 of them.  Of rows of A there is nothing. */
MOII_FN void put_codes(unsigned int to, unsigned int codes) { shared_write(to, moii_float_of(codes)); }
typedef struct rows_taken { int none; } rows_taken;
MOII_FN rows_taken take_rows(const product_args &, const unit &, int) { return rows_taken(); }
MOII_FN void leave_rows(unsigned int, int, int, rows_taken) {}

#include "weight_scales.cuh"
#include "mixed_multiply.cuh"

extern "C" {
extern __shared__ __align__(1024) char mixed_memory[];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) mixed_sm90(const __grid_constant__ product_args a)
{
    run_block(a, mixed_memory);
}
