/* SPDX-License-Identifier: Apache-2.0
 * thin_cards.cuh: which unit a block of mixed_sm90 or halves_sm90 works on next.  A warp of its own draws tickets from a counter (the first one is the block's
 * number), so that no block waits for those with larger tiles, and deals the units to all other warps: cards in shared memory, CARDS of them in turn.
 *
 * As many tickets are drawn as there are units, and the counter, which begins anew behind so many, is 0 again in the end. */
#ifndef MOII_THIN_CARDS_CUH
#define MOII_THIN_CARDS_CUH

enum { CARDS = THIN_CARDS, CARD_READERS = 3 + 4 * WGS }; /* warps */

/* Of the block's n-th unit: five words; barriers for `dealt` and for `read`. */
MOII_FN unsigned int card_at(unsigned int base, int n) { return base + CARDS_AT + n % CARDS * THIN_CARD; }
MOII_FN unsigned int card_dealt(unsigned int base, int n) { return card_at(base, n) + 32; }
MOII_FN unsigned int card_read(unsigned int base, int n) { return card_at(base, n) + 40; }

/* One thread. */
MOII_FN void open_cards(unsigned int base)
{
    for (int n = 0; n < CARDS; n++) barrier_init(card_dealt(base, n), 1), barrier_init(card_read(base, n), CARD_READERS);
}

MOII_FN unit look_at_card(unsigned int base, int n)
{
    const uint4 v = shared_read_four(card_at(base, n));
    const unit u = { (int)shared_read_word(card_at(base, n) + 16), (int)v.x, (int)v.y, (int)v.z, (int)v.w };
    return u;
}

/* A whole warp: waits for the block's n-th unit; false: there is none. */
MOII_FN bool take_unit(const product_args &, const group_list &, unsigned int base, int n, unit *u)
{
    barrier_wait(card_dealt(base, n), n / CARDS & 1);
    *u = look_at_card(base, n);
    return __shfl_sync(~0u, u->group, 0) >= 0;
}

/* A whole warp, which no longer needs it. */
MOII_FN void return_unit(unsigned int base, int n)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(card_read(base, n));
}

/* A ticket is not drawn before the block is done with the unit before the last one dealt: who draws early has work when others have none.  Short units do not
 * leave the time for that. */
MOII_FN void deal_units(const product_args &a, const group_list &groups, unsigned int base)
{
    enum { LONG = 6 }; /* stages */
    const int all = units_in_all(groups), ahead = (a.k + STEP - 1) / STEP >= LONG ? 2 : CARDS, lane = (int)threadIdx.x % 32;
    int i = (int)blockIdx.x;
#pragma unroll 1
    for (int n = 0;; n++) {
        if (n >= ahead) barrier_wait(card_read(base, n - ahead), (n - ahead) / CARDS & 1);
        if (n > 0) i = (int)gridDim.x + __shfl_sync(~0u, lane == 0 ? (int)atomicInc(a.tickets, (unsigned int)all - 1) : 0, 0);
        unit u = { -1, 0, 0, 0, 0 };
        if (i < all) u = find_unit(a, groups, i);
        if (lane == 0) {
            shared_write_four(card_at(base, n), make_uint4(u.row, u.rows, u.d_row, u.line));
            shared_write_word(card_at(base, n) + 16, u.group);
            barrier_arrive(card_dealt(base, n));
        }
        __syncwarp();
        if (i >= all) return;
    }
}

#endif
