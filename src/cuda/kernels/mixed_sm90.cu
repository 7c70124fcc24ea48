/* SPDX-License-Identifier: Apache-2.0
 *
 * mixed_sm90: products on Hopper of A in BF16 and B in E4M3 with a scale for each 32 values: D_g (+)= A_g B_g^T, A's rows cut by offsets or counts, or one
 * matrix.
 *
 * B, the weights, are the tensor cores' rows and a group's rows of A their columns.  Codes become BF16 times their scale in registers, which is exact where
 * BF16's exponents do not end, and the tensor cores' own sums are all: nothing is added between products.
 *
 *   defines   GROUPS PRODUCT_DENSE, PRODUCT_ROWS, PRODUCT_MASKED;  OUT_F32, ADD, SCATTER, WEIGHTED as in product_sm90.cuh
 *             SWIGLU: 1: B is gate and up, n = 2 f, and D what SwiGLU makes of their products, of f columns and in BF16;  then none of the four
 *             STAGES  of the ring;  BN, WGS, WAVES  64 or 128, 2 and 2: a tile has BN rows of A, and of B two times 64 for each warpgroup that multiplies
 *   A         each 128 values of a row in widen_sm90's order (PLACED)
 *   a.k       a multiple of 128; scales of four blocks lie in words (product_scales.words)
 *   unit      (group, tile of A's rows, tile of B's rows): all of the reduction.  Block b takes the units b, b + blocks, ...; tiles of A of one tile of B
 *             lie behind each other, so that B comes out of L2 for all but the first
 *   threads   384.  Warp 0 sends for tiles, by tensor maps, warps 1 and 2 copy B's scales; the last eight multiply
 *   shared    SHARED_BYTES, as tensor_tile.c computes it
 *   launch    begins before the grid before it has ended, and waits for it */
#include "bf16x2.cuh"
#include "lane_scan.cuh"
#include "own_warp.cuh"
#include "product_one.cuh"
#include "product_scales.cuh"
#include "product_sm90_args.h"
#include "ptx_sm90.cuh"

#define BM (64 * WAVES * WGS) /* rows of B in a tile */
#define THREADS (128 + 128 * WGS)
#define WGMMA_N BN
#define WGMMA_K "k16"
#define WGMMA_TYPE "f32.bf16.bf16"
#define WGMMA_END ", 0, 0"
#include "wgmma.cuh"
#include "wgmma_kept.cuh"

#define STEP 128 /* values of the reduction in a stage */
#define PIECES 8 /* of 16, that are multiplied at once */
#define B_BYTES (BM * STEP)
#define HALF_BYTES (BN * PRODUCT_STEP_BYTES) /* of A: 64 values of each row */
#define A_BOXES 2
#define STAGE_BYTES (B_BYTES + A_BOXES * HALF_BYTES)
#define SCALES_AT (STAGES * STAGE_BYTES)
#define SCALES_BYTES (BM * 4)
#define BARRIERS_AT (SCALES_AT + STAGES * SCALES_BYTES)
#define ROOMS_AT (BARRIERS_AT + STAGES * 16) /* thin_store.cuh */
#define GROUPS_AT (ROOMS_AT + 4 * WGS * THIN_ROOM)
static_assert(SHARED_BYTES == GROUPS_AT + (3 * THIN_GROUPS + 1) * 4, "the launch reserves another number of bytes");
static_assert(!SWIGLU || !(OUT_F32 || SCATTER || WEIGHTED), "what store_activated does");
static_assert((BN == 64 || BN == 128) && WGS == 2 && WAVES == 2, "what loading warps bring");

#define STAGE_ARRIVALS (1 + 64) /* at full_barrier: the tiles' copies, B's scales' by lane */
#include "thin_ring.cuh"
#include "thin_units.cuh"
#include "thin_load.cuh"
#include "thin_store.cuh"
#include "mixed_activate.cuh"
#include "mixed_multiply.cuh"

extern "C" {
extern __shared__ __align__(1024) char mixed_memory[];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) mixed_sm90(const __grid_constant__ product_args a)
{
    const unsigned int base = shared_address(mixed_memory);
    const int warp = own_warp();
    const group_list groups = begin_block(a, base, (int *)(mixed_memory + GROUPS_AT));
    if (warp < 4) {
        REGISTERS_GIVE(40);
        if (warp == 0) load_tiles(a, groups, base);
        else if (warp < 3) load_weight_scales(a, groups, base, warp - 1);
    } else {
        REGISTERS_TAKE(232);
        multiply_units(a, groups, base, warp / 4 - 1);
    }
}
