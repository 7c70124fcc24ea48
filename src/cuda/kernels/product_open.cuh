/* SPDX-License-Identifier: Apache-2.0
 * product_open.cuh: the barriers of a block are opened, for product_sm90.cuh: by threads of different warps at once, and each by places known in advance,
 * for a loop over lanes would take far longer.  The thread that sends a first unit's stages early opens theirs first, and cards' behind them. */
#ifndef MOII_PRODUCT_OPEN_CUH
#define MOII_PRODUCT_OPEN_CUH

#define STAGES_FIRST (EARLY ? EARLY_STAGES : 0) /* opened before they are sent */

MOII_FN void open_cards(const shared &s)
{
    for (unsigned int i = 0; i < CARDS; i++) barrier_init(card_dealt(s, i), 1), barrier_init(card_read(s, i), CARD_READERS);
}

MOII_FN void open_squares(const shared &s)
{
#if SCALING == SCALING_SQUARE
    for (unsigned int i = 0; i < 2; i++) barrier_init(squares_full(s, i), 1), barrier_init(squares_empty(s, i), CONSUMERS / 32);
#endif
}

/* What copies need that are sent early. */
MOII_FN void open_first(const shared &s)
{
    for (unsigned int i = 0; i < STAGES_FIRST; i++) barrier_init(full_barrier(s, i), 1 + SCALE_ARRIVALS);
    barrier_init_done();
}

MOII_FN void open_stages(const shared &s, unsigned int block)
{
    for (unsigned int i = STAGES_FIRST; i < STAGES; i++) barrier_init(full_barrier(s, i), 1 + SCALE_ARRIVALS);
    for (unsigned int i = 0; i < STAGES; i++) barrier_init(empty_barrier(s, i), WGS * 4 * (block > 0 ? 1 : CLUSTER));
}

/* All else.  The second warp of the block opens nothing: it looks for the first unit, and asks for its scales. */
MOII_FN void open_rest(const shared &s, unsigned int block)
{
    if (threadIdx.x == (EARLY ? 64 : 0)) open_stages(s, block);
    if (threadIdx.x == 128) {
        if (!EARLY) open_cards(s);
        open_squares(s);
    }
#if DEAL && CLUSTER > 1
    if (threadIdx.x == 96) open_tickets(s, block);
#endif
#if SENDS
    if (threadIdx.x == 96)
        for (int wg = 0; wg < WGS; wg++) barrier_init(room_full(s, wg), 4), barrier_init(room_free(s, wg), 1);
#endif
#if SPLIT > 1
    if (threadIdx.x == 96) barrier_init(s.base + PARTS_BARRIER, 1), barrier_expect(s.base + PARTS_BARRIER, (SPLIT - 1) * parts_here(block) * TEAM * 16);
#endif
    if (threadIdx.x <= 128 && threadIdx.x % 32 == 0) barrier_init_done();
}

#endif
