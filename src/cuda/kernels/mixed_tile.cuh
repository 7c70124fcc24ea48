/* SPDX-License-Identifier: Apache-2.0
 * mixed_tile.cuh: what mixed_sm90 and halves_sm90 have in common: a tile in shared memory, what each warp does.
 *
 *   defines   what mixed_sm90.cu lists;  WGMMA_TYPE  of the products;  PART_ROWS  of A that come at a time;  SCALES_BYTES  of a stage, for B's
 *             ROW_BYTES   of a row of B in a stage
 *             FACTORS_BYTES   for what there is of rows of A
 *             STAGE_ARRIVALS  at full_barrier, one of them the tiles' copies'
 *             LOADING_REGISTERS, MULTIPLYING_REGISTERS   of a thread: who takes more than all have at first waits for ever */
#ifndef MOII_MIXED_TILE_CUH
#define MOII_MIXED_TILE_CUH

#define BM (64 * WAVES * WGS) /* rows of B in a tile */
#define THREADS (128 + 128 * WGS)
#define WGMMA_N BN
#define WGMMA_K "k16"
#define WGMMA_END ", 0, 0"
#include "wgmma.cuh"
#include "wgmma_kept.cuh"

#define STEP 128 /* values of the reduction in a stage */
#define B_BYTES (BM * ROW_BYTES)
#define HALF_BYTES (BN * PRODUCT_STEP_BYTES) /* of A: 64 values of each row */
#define A_BOXES 2
#define STAGE_BYTES (B_BYTES + A_BOXES * HALF_BYTES)
#define ROOMS_AT (STAGES * STAGE_BYTES) /* thin_store.cuh */
#define SCALES_AT (ROOMS_AT + 4 * WGS * THIN_ROOM(BN))
#define BARRIERS_AT (SCALES_AT + STAGES * SCALES_BYTES)
#define FACTORS_AT (BARRIERS_AT + STAGES * 16)
#define CARDS_AT (FACTORS_AT + FACTORS_BYTES)
#define GROUPS_AT (CARDS_AT + THIN_CARDS * THIN_CARD)
static_assert(SHARED_BYTES == GROUPS_AT + THIN_LISTS, "the launch reserves another number of bytes");
static_assert(CARDS_AT % 16 == 0 && ROOMS_AT % 16 == 0, "they are read 16 bytes at a time");
static_assert(LOADING_REGISTERS + 2 * MULTIPLYING_REGISTERS <= 3 * 168, "a block of 384 threads begins with 168 registers of each");
static_assert(!SWIGLU || !(OUT_F32 || SCATTER || WEIGHTED), "what store_activated does");
static_assert((BN == 64 || BN == 96 || BN == 128 || BN == 144) && WGS == 2 && WAVES == 2, "what loading warps bring");

#include "thin_ring.cuh"
#include "thin_units.cuh"
#include "thin_cards.cuh"
#include "thin_load.cuh"
#include "thin_store.cuh"
#include "mixed_activate.cuh"

/* A warpgroup's sums of a tile. */
MOII_FN void store_waves(const product_args &a, const unit &u, int columns, const float sum[WAVES][BN / 2], unsigned int base)
{
    const int first = own_warpgroup() * (64 * WAVES); /* row of B in it */
#if SWIGLU
    store_activated(a, u, columns, line_of(a, u, first), a.n / 2, sum[0], sum[1], base);
#else
#pragma unroll
    for (int w = 0; w < WAVES; w++) store_tile(a, u, columns, u.line + first + w * 64, sum[w], base);
#endif
}

MOII_FN void load_scales(const product_args &a, const group_list &groups, unsigned int base, int part);
MOII_FN void multiply_units(const product_args &a, const group_list &groups, unsigned int base, int wg);

MOII_FN void run_block(const product_args &a, char *memory)
{
    const unsigned int base = shared_address(memory);
    const int warp = own_warp();
    if (threadIdx.x == 0) open_cards(base); /* before begin_block, which has all see it */
    const group_list groups = begin_block(a, base, (int *)(memory + GROUPS_AT));
    if (warp < 4) {
        REGISTERS_GIVE(LOADING_REGISTERS);
        if (warp == 0) load_tiles(a, groups, base);
        else if (warp < 3) load_scales(a, groups, base, warp - 1);
        else deal_units(a, groups, base);
    } else {
        REGISTERS_TAKE(MULTIPLYING_REGISTERS);
        multiply_units(a, groups, base, warp / 4 - 1);
    }
}

#endif
