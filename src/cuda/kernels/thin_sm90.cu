/* SPDX-License-Identifier: Apache-2.0
 *
 * thin_sm90: products on Hopper of few rows, or of groups that have few, with a scale for each 32 values: D_g (+)= A_g B_g^T, A's rows cut by offsets or
 * counts, or one matrix.
 *
 * The tensor cores multiply 64 rows by some columns.  Here B, the weights, are the rows, and a group's rows of A the columns: so what is added for every 32
 * products is no more than the group's rows need, where product_sm90.cuh adds for 64 of them.  Sums of 32 products are added one after the other: the bits
 * are those of its tiles, but for the ones whose stages two teams share.
 *
 *   defines   GROUPS PRODUCT_DENSE, PRODUCT_ROWS, PRODUCT_MASKED;  ELEM_A, ELEM_B;  OUT_F32, ADD, SCATTER, WEIGHTED as in product_sm90.cuh
 *             STAGES  of the ring;  BN, WGS  64 and 2: a tile has 64 rows of A, and 64 of B for each warpgroup that multiplies
 *   a.k       a multiple of 128; scales of four blocks lie in words (product_scales.words)
 *   unit      (group, tile of A's rows, tile of B's rows): all of the reduction.  Block b takes the units b, b + blocks, ...; tiles of A of one tile of B
 *             lie behind each other, so that B comes out of L2 for all but the first
 *   threads   384.  Warp 0 sends for tiles, by tensor maps, warp 1 copies B's scales, warps 2 and 3 make FP32 of A's; the others multiply
 *   shared    SHARED_BYTES, as tensor_tile.c computes it
 *   launch    begins before the grid before it has ended, and waits for it */
#include "lane_scan.cuh"
#include "own_warp.cuh"
#include "product_one.cuh"
#include "product_scales.cuh"
#include "product_sm90_args.h"
#include "ptx_sm90.cuh"

#define BM (64 * WGS) /* rows of B in a tile */
#define THREADS (128 + 128 * WGS)
#define WGMMA_N BN
#define WGMMA_HALF
#define WGMMA_QUARTER
#define WGMMA_LEFT ELEM_B
#define WGMMA_RIGHT ELEM_A
#include "wgmma_codes.cuh"
#include "wgmma.cuh"

#define STEP 128 /* values of the reduction in a stage */
#define BLOCKS 4 /* of them, that have a scale */
#define ROW_BYTES PRODUCT_STEP_BYTES
#define B_BYTES (BM * ROW_BYTES)
#define A_BOXES 1
#define SWIGLU 0
#define PART_ROWS THIN_ROWS
#define STAGE_BYTES (B_BYTES + BN * PRODUCT_STEP_BYTES)
#define SCALES_AT (STAGES * STAGE_BYTES)
#define A_SCALES (BM * 4) /* behind B's, words of four codes each: floats, four of each row of A */
#define SCALES_BYTES (A_SCALES + BN * 16)
#define BARRIERS_AT (SCALES_AT + STAGES * SCALES_BYTES)
#define ROOMS_AT (BARRIERS_AT + STAGES * 16) /* thin_store.cuh */
#define GROUPS_AT (ROOMS_AT + 4 * WGS * THIN_ROOM(BN))
static_assert(SHARED_BYTES == GROUPS_AT + THIN_LISTS, "the launch reserves another number of bytes");
static_assert(BN == 64 && BM == 128, "what loading warps bring");

#define STAGE_ARRIVALS (1 + 32 + 2) /* at full_barrier: the tiles' copies, B's scales' by lane, A's by warp */
#include "thin_ring.cuh"
#include "thin_units.cuh"
#include "thin_apart.cuh"
#include "thin_load.cuh"
#include "thin_scales.cuh"
#include "thin_store.cuh"
#include "thin_multiply.cuh"

extern "C" {
extern __shared__ __align__(1024) char thin_memory[];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) thin_sm90(const __grid_constant__ product_args a)
{
    const unsigned int base = shared_address(thin_memory);
    const int warp = own_warp();
    const group_list groups = begin_block(a, base, (int *)(thin_memory + GROUPS_AT));
    if (warp < 4) {
        REGISTERS_GIVE(56);
        if (warp == 0) load_tiles(a, groups, base);
        else if (warp == 1) load_weight_scales(a, groups, base, 0);
        else load_row_scales(a, groups, base, warp - 2);
    } else {
        REGISTERS_TAKE(224);
        multiply_units(a, groups, base, warp / 4 - 1);
    }
}
