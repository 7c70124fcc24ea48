/* SPDX-License-Identifier: Apache-2.0
 * product_dealer.cuh: a warp that looks for units and deals them, for product_sm90.cuh (DEALS_APART), and fetches the scales of their squares.  The one that
 * loads tiles would not refill the ring meanwhile: of groups' tiles of 6 to 16 stages that cost 1 to 3 %. */
#ifndef MOII_PRODUCT_DEALER_CUH
#define MOII_PRODUCT_DEALER_CUH

/* early: the first unit is dealt, and of squares the scales of its first 64 stages are there. */
MOII_FN void deal_units(const product_args &a, const shared &s, unsigned int block, bool early)
{
    dealer d = dealer_make(a, s, elected(), early);
    unit u = { };
    if (early) {
        barrier_wait(card_dealt(s, 0), 0);
        u = look_at_card(s, 0);
    }
    __syncwarp(); /* one lane writes there again */
    [[maybe_unused]] unsigned int fetched = 0;
    for (bool more = early || deal_unit(a, s, &d, block, &u); more; more = deal_unit(a, s, &d, block, &u))
#if SCALING == SCALING_SQUARE
        for (int step = 0; step < steps_of(u); step += SQUARES_STEPS, fetched++)
            if (!early || fetched > 0) fetch_squares(a, s, u, step, fetched)
#endif
            ;
}

#endif
