/* SPDX-License-Identifier: Apache-2.0
 *
 * product_sm90.cuh: D (+)= A B^T on Hopper's tensor cores: dense, grouped by rows (in one matrix or in one each), grouped along the reduction.
 *
 *   defines   ELEM_A, ELEM_B  PRODUCT_E4M3, PRODUCT_E5M2, or both PRODUCT_BF16;  A_TURNED, B_TURNED  1: BF16 and MN-major
 *             GROUPS PRODUCT_...;  SCALING SCALING_...;  SCALE_E8M0 1: SCALING_VECTOR's scales are bytes, four equal ones per 128
 *             SCALES_BULK 1: FP32 scales of 1x128 blocks lie column by column (MOI_LAYOUT_COL), so that a stage's are one run
 *             QUADS   1: SCALE_E8M0's lie so: four rows' in one word, and a tile begins with such a four (no PRODUCT_ROWS)
 *             OUT_F32 1: D is FP32, 0: BF16;  ADD 1: D is added to
 *             WGS, WAVES  a tile has BM = 64 WGS WAVES rows: WGS warpgroups, each with WAVES blocks of 64 rows;  BN  columns
 *             WIDE    1: warpgroups lie side by side: a tile has 64 WAVES rows and WGS BN columns
 *             WOVEN   1: of 16 rows of B the copies lay 0 1 4 5 8 9 12 13 in front of the others, so that a thread, which has two columns
 *                     of 8 and of the next 8, has four behind each other (product_carry.cuh)
 *             OUTER   1: the tensor cores multiply the scales of 1x128 by 1x128 with each other, too (no PRODUCT_ROWS; product_outer.cuh)
 *             SHORT   1: few rows: weights come from memory once, and so does the code, so that little of it is best;
 *                     2: and long chains of stages: one stage's products run while another's are added
 *             LONE    1: no block has a second tile: D's room in shared memory is used once
 *             TURNS   teams of WGS warpgroups that take the stages of a tile in turn, and add up at its end
 *             STAGES  of the ring of tiles of A and B;  CLUSTER  blocks side by side along N that share a tile of A
 *             FOLLOWS 1: the kernel in front made A in order, and waited for all that came before (gather_sm90)
 *             SCATTER, WEIGHTED  1: rows of D are those that a list names, rows of the product are multiplied (PRODUCT_ROWS)
 *             SWIGLU  1: B is gate, then up; a tile is 128 columns of each and 64 WAVES rows, which both (two) warpgroups have; what is stored
 *                     is their SwiGLU (product_activate.cuh): ACT_ELEM  as ELEM_A, PRODUCT_BF16: as D; 8 bits: ACT_MX 1: blocks of 32, 0: of 128
 *             WIDENS  PRODUCT_E4M3, PRODUCT_E5M2: A is a copy in BF16 of such codes, which the kernel makes (product_widen.cuh); 0: no
 *             SPLIT   blocks (a cluster) that share one tile of D, each with its part of the reduction
 *             STRIP   1: the last columns, 64 or fewer of a cluster's, are tiles of BM rows for each of its blocks (16 bits; product_units.cuh)
 *             BROAD   1: a group's last rows, if BM / 2 or fewer, have tiles of 2 BN columns (DEAL; product_units.cuh)
 *             BOXES   of 64 rows of D (BOX_COLS wide) that a warpgroup sends on their way at a time (BF16; or has room for: LINES_ALONE); FP32:
 *                     product_carry.cuh
 *             DEAL    how units are dealt to clusters (product_deal.cuh)
 *   grid      any multiple of CLUSTER * SPLIT; clusters take units of work (product_units.cuh) as they are dealt (product_deal.cuh)
 *   threads   128 + 128 WGS TURNS.  The first warpgroup loads: warp 0 tiles, by tensor maps; the others scales, where
 *             those are not runs, or the tensor cores multiply them (OUTER); else the second looks for units (DEALS_APART), the last two send D (SENDS).
 *             The others multiply: the tensor cores' sums over 128 values (32 for SCALING_MX, 256 for SCALING_ROWS) are added to FP32 registers, times the
 *             scales: they keep 13 bits themselves.
 *   shared    PRODUCT_SHARED bytes; SHARED_BYTES  the same as tensor_tile.c computes it
 *
 * The order of every sum is fixed: K ascending, or from a tile's own place on and around (for each team, then the teams), then, with SPLIT, the
 * parts ascending. */
#ifndef MOII_PRODUCT_SM90_CUH
#define MOII_PRODUCT_SM90_CUH

#include "bf16x2.cuh"
#include "lane_scan.cuh"
#include "num.h"
#include "own_warp.cuh"
#include "product_one.cuh"
#include "product_scales.cuh"
#include "product_sm90_args.h"
#include "ptx_sm90.cuh"
#include "silu.h"

#ifndef DEAL
#define DEAL 0
#endif
#ifndef FOLLOWS
#define FOLLOWS 0
#endif
#ifndef SCATTER
#define SCATTER 0
#endif
#ifndef WEIGHTED
#define WEIGHTED 0
#endif
#ifndef WIDENS
#define WIDENS 0
#endif
#define PLACED (SCATTER || WEIGHTED)
#ifndef QUADS
#define QUADS 0
#endif
#ifndef SWIGLU
#define SWIGLU 0
#endif
#ifndef ACT_ELEM
#define ACT_ELEM PRODUCT_BF16
#endif
#ifndef WIDE
#define WIDE 0
#endif
#ifndef WOVEN
#define WOVEN 0
#endif
#ifndef OUTER
#define OUTER 0
#endif
#ifndef BROAD
#define BROAD 0
#endif
#ifndef STRIP
#define STRIP 0
#endif
#ifndef SHORT
#define SHORT 0
#endif
#ifndef LONE
#define LONE 0
#endif
#define ACT_CODES (SWIGLU && ACT_ELEM != PRODUCT_BF16) /* what is stored is not D, and goes straight from registers */
#define BESIDE (SWIGLU || WIDE) /* warpgroups have the same rows, and columns of their own */
#define A_GROUPED (GROUPS == PRODUCT_MASKED) /* each group has its own A, its own B */
#define B_GROUPED (GROUPS == PRODUCT_ROWS || GROUPS == PRODUCT_MASKED)
#define SEARCHES (DEAL && B_GROUPED) /* tickets are of groups' units, as many as their rows make */
#define BITS16 (ELEM_A == PRODUCT_BF16)
#define BM (64 * WAVES * (BESIDE ? 1 : WGS))
#define COLUMNS (BN * (WIDE ? WGS : 1)) /* of D in a tile */
#define D_COLUMNS (SWIGLU ? BN / 2 : BN) /* of a warpgroup's sums */
/* Where a warpgroup's w-th block of 64 rows begins: they have blocks in turn, so that tiles of few rows keep them all busy. */
#define WAVE_ROW(wg, w) (64 * (BESIDE ? (w) : (w) * WGS + (wg)))
#define WAVES_APART (BESIDE ? 1 : WGS)
/* Both warpgroups have a tile's last 64 rows, each half of the columns, where they are an odd number of blocks of 64: the last of a wave's
 * sums are those, in front. */
#define HALVES                                                                                                                                       \
    (WGS == 2 && !BESIDE && TURNS == 1 && SPLIT == 1 && !SHORT && BN % 128 == 0 && GROUPS != PRODUCT_DEPTH && SCALING != SCALING_MX && !OUTER)
#define STEP (BITS16 ? 64 : 128) /* values of the reduction in a stage */
#define WHOLE_CLUSTER ((1 << CLUSTER) - 1) /* as a mask of blocks */
#define TEAM (128 * WGS)
#define CONSUMERS (TEAM * TURNS)
#define THREADS (CONSUMERS + 128)
/* of a thread; 64 K in all, in eights, of which the block is started with an equal share for each */
#define PRODUCER_REGISTERS (THREADS == 640 ? 32 : WIDENS && THREADS == 384 ? 72 : 56)
#define CONSUMER_REGISTERS (THREADS == 640 ? 112 : THREADS == 384 ? WIDENS ? 216 : 224 : 152)
/* whether the loading warps give registers to the others, which takes 300 clocks of a block's first thousands; of small tiles all have enough */
#define SUMS (BN / 2 * (WAVES + 1 + (SHORT == 2))) /* of a thread, with what products give */
#define HANDS_OVER (THREADS > 256 && !(THREADS == 384 && SCALING == SCALING_SQUARE && SUMS <= 96))
#define PROMOTED (SCALING != SCALING_NONE)
/* where the compiler would ask for a thread's number at each stage, and wait for it */
#define KEEPS_THREAD (THREADS > 384 && GROUPS == PRODUCT_DEPTH && SCALING == SCALING_VECTOR && SCALE_E8M0)
#define LOADERS 96 /* threads of the first warpgroup that load scales */
#define E8M0_SCALES (SCALING == SCALING_MX || (SCALING == SCALING_VECTOR && SCALE_E8M0))
#define SCALES_STAGED (SCALING >= SCALING_SQUARE && SCALING <= SCALING_MX)
#define SCALE_RUNS (SCALES_BULK && !OUTER) /* bulk copies bring them */
/* at a stage's barrier: of each thread behind its copies, or of each warp behind its stores, or (OUTER) of one that has the whole stage */
#define SCALE_ARRIVALS (OUTER ? 1 : !SCALES_STAGED || SCALE_RUNS ? 0 : E8M0_SCALES ? LOADERS / 32 : LOADERS)
/* FP32 leaves by boxes (product_carry.cuh) */
#define CARRIES (OUT_F32 && (WGS * WAVES > 2 || BN == 256 || OUTER) && TURNS == 1 && SPLIT == 1 && !SHORT && !SCATTER)
/* two loading warps that nobody needs send the boxes of D, one a warpgroup's, which goes on meanwhile (product_send.cuh) */
#define SENDS (WGS == 2 && !LONE && TURNS == 1 && SPLIT == 1 && !OUT_F32 && !ACT_CODES && !SHORT && SCALE_ARRIVALS == 0 && !WIDENS)
/* of few rows BF16 leaves by lines, each warp's own: that is shorter, and the block has nothing else to do meanwhile */
#define LINES (LONE && SHORT)
/* it does so there, and where no map has boxes for it; nobody sends them */
#define LINES_ALONE (!SENDS && (BN % 32 != 0 || LINES))
/* of a box of BF16: 32 columns where BN is an odd multiple of that */
#define BOX_COLS (BN % 64 == 32 && !LINES ? 32 : 64)
#define BOX_BYTES (64 * 2 * BOX_COLS)
/* the second warp looks for units and deals them, for the one that loads tiles would not refill the ring meanwhile.  It has other work where scales do not come
 * by copies; one tile or a few are not worth it */
#define DEALS_APART (SCALE_ARRIVALS == 0 && !WIDENS && !SHORT && !LONE && SPLIT == 1)
/* warps that read what the block works on */
#define CARD_READERS (CONSUMERS / 32 + (SENDS ? WGS : 0) + (SCALE_ARRIVALS > 0 || WIDENS ? LOADERS / 32 : SCALING == SCALING_SQUARE || DEALS_APART ? 1 : 0))
#define PER_STEP (SCALING == SCALING_MX ? 4 : 1) /* scales of a row in a stage */
/* columns that share a scale of B: all of a tile that cannot straddle two squares */
#define COMMON_RUN(columns) ((columns) % 128 == 0 ? 128 : (columns) % 64 == 0 ? 64 : (columns) % 32 == 0 ? 32 : (columns) % 16 == 0 ? 16 : 8)
#define SQUARE_RUN (SWIGLU ? 64 : COMMON_RUN(BN))
/* that so many columns may touch, which begin at a multiple of their number; a warpgroup's, a tile's */
#define SQUARES_OF(columns) ((255 - COMMON_RUN(columns) + (columns)) / 128)
#define SQUARES (SWIGLU ? 2 : SQUARES_OF(BN))
#define TILE_SQUARES (SWIGLU || BROAD ? 2 : SQUARES_OF(COLUMNS) + (WIDE && SQUARES > 1)) /* side by side: the last warpgroup's, whether it touches all or not */
/* floats of a stage; bulk copies begin at multiples of 4 rows */
#define A_STAGED (OUTER ? OUTER_FLOATS(BM) : SCALES_STAGED ? BM * PER_STEP + (SCALES_BULK && GROUPS == PRODUCT_ROWS ? 4 : 0) : 0)
#define B_STAGED (OUTER ? OUTER_FLOATS(BN) : SCALING == SCALING_VECTOR || SCALING == SCALING_MX ? BN * PER_STEP : 0)
/* Stages of few rows may come in any order, where none but the tiles' warp asks which one comes: with SPLIT a part has every SPLIT-th, for what
 * the parts read at one time then lies side by side; else a tile's stages are ROTATED (product_units.cuh). */
#define ANY_ORDER (SHORT && GROUPS == PRODUCT_DENSE && SCALE_ARRIVALS == 0)
#define STRIDE (ANY_ORDER ? SPLIT : 1)
/* the first stages are sent before the block's warps meet: nobody else has to be there for it, and the code comes early.  Of groups beside scales of squares
 * tiles of 64 and 128 rows lose 2 to 4 % by it, but gain as much if they have 128 and are drawn by tickets; SwiGLU loses 0.3 to 0.8
 * (docs/notes/gemm-hopper.md, "A ticket's first tile") */
#define SENDS_EARLY (!B_GROUPED || SCALING != SCALING_SQUARE || FOLLOWS || BM == 256 || (DEAL && BM >= 128 && !SWIGLU))
#define EARLY ((SPLIT == 1 || SHORT) && SCALE_ARRIVALS == 0 && SCALING != SCALING_VECTOR && !WIDENS && SENDS_EARLY)
/* whether units differ in the part of the reduction that they have; else all begin at 0, which is then known */
#define PARTS_OF_K (GROUPS == PRODUCT_DEPTH || SPLIT > 1)
#define EARLY_STAGES (SEARCHES || FOLLOWS || STAGES < 3 ? STAGES : 3) /* all, where much is to be found out of groups, or waited for, behind them */
#define WAITS_LATE (FOLLOWS && EARLY) /* the kernel in front is waited for behind the first stages of B */
#define SQUARES_AHEAD (EARLY && SCALING == SCALING_SQUARE)
#define SQUARES_STEPS 64 /* stages whose scales of B's squares are fetched together, in advance */

#define WGMMA_N BN
#if BITS16
#define WGMMA_K "k16"
#define WGMMA_TYPE "f32.bf16.bf16"
#define WGMMA_END_(a, b) ", " #a ", " #b
#define WGMMA_END__(a, b) WGMMA_END_(a, b)
#define WGMMA_END WGMMA_END__(A_TURNED, B_TURNED)
#else
#define WGMMA_LEFT ELEM_A
#define WGMMA_RIGHT ELEM_B
#include "wgmma_codes.cuh"
#endif
#if HALVES
#define WGMMA_HALF
#endif
#include "wgmma.cuh"

/* ---- shared memory ---- */

#define A_BYTES (BM * PRODUCT_STEP_BYTES)
#define B_BYTES ((BESIDE ? WGS : 1) * BN * PRODUCT_STEP_BYTES)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define BROAD_B (A_BYTES / 2) /* a broad tile's B in a stage: as much more of it as there is less of A */
#define SCALE_FLOATS (A_STAGED + B_STAGED)
#define CHUNKS ((D_COLUMNS + BOX_COLS - 1) / BOX_COLS)
#define OUT_BYTES ((OUT_F32 && !CARRIES) || SPLIT > 1 || ACT_CODES ? 0 : WGS * BOXES * (CARRIES ? 8192 : BOX_BYTES))
#define OUT_AT (STAGES * STAGE_BYTES)
#define SCALES_AT (OUT_AT + OUT_BYTES)
#define ZEROS_AT (SCALES_AT + STAGES * SCALE_FLOATS * 4)
#define SQUARES_AT (ZEROS_AT + (OUTER ? OUTER_ZEROS : 0))
#define SQUARES_BYTES (SCALING == SCALING_SQUARE ? 2 * SQUARES_STEPS * TILE_SQUARES * 4 : 0)
#define JOIN_AT (SQUARES_AT + SQUARES_BYTES)
#define JOIN_BYTES ((TURNS - 1) * TEAM * WAVES * BN * 2) /* sums of all teams but the first */
#define PIECES (WAVES * BN / 8) /* of a warpgroup's sums, 8 columns of 64 rows; with SPLIT each block adds up and stores so many: */
#define PIECES_EACH ((PIECES + SPLIT - 1) / SPLIT)
#define PARTS_AT (JOIN_AT + JOIN_BYTES)
#define PARTS_BYTES (SPLIT > 1 ? SPLIT * PIECES_EACH * TEAM * 16 : 0)
#define BARRIERS_AT (PARTS_AT + PARTS_BYTES)
#define CARDS 4
#define CARDS_AT (BARRIERS_AT + 16 * STAGES + (SCALING == SCALING_SQUARE ? 32 : 0)) /* what the block works on, and will */
#define TICKETS 16
#define TICKETS_AT (CARDS_AT + 48 * CARDS)
#define PARTS_BARRIER TICKETS_AT /* SPLIT: there are no tickets */
#define DECK_AT (TICKETS_AT + 16 * TICKETS)
#define DECK_BYTES 96 /* a stock has 32, and room for more */
#define ROOMS_AT (DECK_AT + DECK_BYTES) /* SENDS: barriers */
#define PLACES_AT (ROOMS_AT + 32) /* for each multiplying warp and wave: where its 16 rows go, their weights */
#define TOPS_AT (PLACES_AT + (PLACED ? CONSUMERS * WAVES * 4 : 0)) /* rows' largest magnitudes, of each warpgroup */
#define PRODUCT_SHARED (TOPS_AT + (ACT_CODES ? WGS * BM * 4 : 0))
/* Else a team would wait at stages that the others had in between, whose barriers tell one round from the next but not from the one behind it. */
static_assert(STAGES % TURNS == 0, "a stage is one team's in all of a tile");
static_assert(PRODUCT_SHARED == SHARED_BYTES, "the launch reserves another number of bytes");

typedef struct ring { /* where a role stands in the stages */
    unsigned int stage, parity;
} ring;

MOII_FN void ring_step(ring *r)
{
    if (++r->stage == STAGES) r->stage = 0, r->parity ^= 1;
}

MOII_FN void ring_skip(ring *r, unsigned int stages)
{
    const unsigned int to = r->parity * STAGES + r->stage + stages;
    r->parity = to / STAGES & 1, r->stage = to % STAGES;
}

typedef struct shared {
    unsigned int base; /* address, a multiple of 1024 */
    char *p;
    unsigned int rank; /* of the block in its cluster */
    unsigned int a, b; /* a multiplying warpgroup's descriptors of its part of the first stage */
    unsigned int thread; /* KEEPS_THREAD: its number, in a register */
} shared;

MOII_FN unsigned int full_barrier(const shared &s, unsigned int stage) { return s.base + BARRIERS_AT + 16 * stage; }
MOII_FN unsigned int empty_barrier(const shared &s, unsigned int stage) { return s.base + BARRIERS_AT + 16 * stage + 8; }
MOII_FN unsigned int room_full(const shared &s, int wg) { return s.base + ROOMS_AT + 16 * (unsigned int)wg; }
MOII_FN unsigned int room_free(const shared &s, int wg) { return room_full(s, wg) + 8; }
MOII_FN unsigned int tile_at(const shared &s, unsigned int stage) { return s.base + STAGE_BYTES * stage; }
MOII_FN float *scales_at(const shared &s, unsigned int stage) { return (float *)(s.p + SCALES_AT) + SCALE_FLOATS * stage; }

#include "product_outer.cuh"
#include "product_units.cuh"
#include "product_deal.cuh"
#include "product_early.cuh"
#include "product_squares.cuh"
#if DEALS_APART
#include "product_dealer.cuh"
#endif
#include "product_open.cuh"
#include "product_widen.cuh"
#include "product_load.cuh"
#include "product_multiply.cuh"
#include "product_lines.cuh"
#include "product_place.cuh"
#include "product_send.cuh"
#include "product_store.cuh"
#include "product_activate.cuh"

static_assert(!BROAD || (SEARCHES && HALVES && !A_TURNED && WAVES == 2 && BN == 128),
              "a broad tile's waves lie side by side, its stages fill the place of others");
static_assert(!STRIP || (HALVES && GROUPS == PRODUCT_DENSE && CLUSTER == 2 && WAVES == 2 && BN == 128 && !PROMOTED && !A_TURNED && !WIDENS),
              "a strip is half of a tile's columns");
static_assert(!WOVEN || (CARRIES && SCALING == SCALING_VECTOR && !B_GROUPED), "that order is one matrix's, and that of columns which leave by fours");

static_assert(!(DEAL && EARLY) || DEALS_APART, "tickets are drawn for the first unit, too, by who deals the others");
static_assert(!DEAL || (SPLIT == 1 && !WIDENS), "tickets are of whole reductions");

/* among: which of the multiplying warpgroups it is */
MOII_FN void consume(const product_args &a, shared s, unsigned int block, int among)
{
    const int wg = among % WGS, team = among / WGS;
    hand h = 0;
    ring r = { 0, 0 };
    unsigned int taken = 0; /* of what is fetched of squares' scales */
    s.a = wgmma_at(s.base + WAVE_ROW(wg, 0) * PRODUCT_STEP_BYTES) + (A_TURNED ? wgmma_runs(8192) : 0);
    if (SPLIT > 1) cluster_wait(); /* all blocks have opened their barriers */
    s.b = wgmma_at(s.base + A_BYTES + (BESIDE ? wg * BN * PRODUCT_STEP_BYTES : 0)) + (B_TURNED ? wgmma_runs(8192) : 0);
    float sum[WAVES][BN / 2];
    for (;; return_card(s, &h)) {
        unit u;
        if (!take_card(s, h, &u)) break;
        if (PLACED && team == 0) places_fetch(a, s, u, wg);
        const line_codes codes = line_codes_ahead(a, u, wg);
        multiply(a, s, u, &r, &taken, wg, team, sum);
        if (TURNS > 1) join_teams(s, team, sum);
        if (team > 0) continue;
        u = read_card(s, h); /* no register kept it */
        if (WIDE) u.col += wg * BN;
#if SPLIT > 1
        join_parts(a, s, u, wg, block, sum, codes);
#elif SWIGLU
        store_activated(a, s, u, h, wg, sum);
#else
        store_tile(a, s, u, h, wg, sum, codes);
#endif
    }
    if (((!OUT_F32 && !LINES_ALONE) || CARRIES) && SPLIT == 1 && threadIdx.x % 32 == 0) copies_read(); /* the block's memory is needed until then */
}

/* the block's memory begins at a multiple of 1024 */
extern "C" {
extern __shared__ __align__(1024) char product_memory[];
}

MOII_FN void product(const product_args &a)
{
    shared s;
    asm("mov.u32 %0, product_memory;" : "=r"(s.base) : "l"((unsigned long long)product_memory)); /* a constant, which a cast would not be in a cluster */
    s.p = product_memory;
    const unsigned int block = CLUSTER * SPLIT > 1 ? cluster_rank() : 0;
    const int warp = own_warp();
    s.rank = block;
#if EARLY
    int early = 0; /* of the first unit: stages that are sent; of the second warp, whether the unit is dealt and its first 64 scales of squares are there */
    if (warp == 0) early = send_early(a, s, block); /* its code stands in front of what others do meanwhile */
    else open_rest(s, block);
#else
    const int early = 0;
    if (threadIdx.x == 96) map_prefetch(&a.a_map), map_prefetch(&a.b_map);
    open_rest(s, block);
#endif
#if OUTER
    outer_clear(s);
#endif
    const bool meets = SPLIT > 1 || (EARLY && CLUSTER > 1); /* the others' memory is not touched before the end, or before they have met */
    if (meets) cluster_here();
    /* what the stream holds before has ended, and its results are there; what comes behind may start as soon as there is room */
    if (!WAITS_LATE && (!EARLY || warp > 0)) {
        grid_wait();
        grid_release();
    }
#if SQUARES_AHEAD
    squares_ahead ahead = { };
    if (warp == 1) ahead = ask_for_squares(a, block);
#elif EARLY && DEALS_APART
    if (warp == 1) {
        unit u;
        early = first_is_early(a, block, &u);
    }
#endif
#if EARLY
    if (CLUSTER > 1) cluster_wait();
    else threads_meet(0, THREADS);
    if (WAITS_LATE && warp > 0) {
        grid_wait();
        grid_release();
    }
#else
    if (CLUSTER > 1) cluster_meet();
    else __syncthreads();
#endif
#if SQUARES_AHEAD
    if (warp == 1 && ahead.known) place_squares(s, ahead.first, 0), early = 1;
#endif
    if (warp < 4) {
        if (HANDS_OVER) REGISTERS_GIVE(PRODUCER_REGISTERS);
#if DEALS_APART
        if (warp == 1) deal_units(a, s, block, early);
#elif SCALING == SCALING_SQUARE
        if (SCALE_ARRIVALS == 0 && warp == 1) load_squares(a, s, early);
#endif
        if (SCALE_ARRIVALS > 0 && warp > 0) load_scales(a, s);
        if (WIDENS && warp > 0) widen_rows(a, s);
#if SENDS
        if (warp > 1) send_boxes(a, s, warp - 2);
#endif
        if (warp == 0) load_tiles(a, s, block, early); /* last: it has no register to keep what others would be chosen by */
        __syncwarp();
        if (SPLIT > 1) cluster_wait();
    } else {
        if (HANDS_OVER) REGISTERS_TAKE(CONSUMER_REGISTERS);
        if (KEEPS_THREAD) s.thread = __shfl_sync(0xFFFFFFFFu, threadIdx.x, threadIdx.x % 32);
        consume(a, s, block, warp / 4 - 1);
    }
    if (CLUSTER > 1) cluster_meet(); /* nobody leaves while another may still write to its memory */
}

#endif
