/* SPDX-License-Identifier: Apache-2.0
 *
 * product_deal.cuh: which unit a block works on next, for product_sm90.cuh.  A warp of its own (product_dealer.cuh), or the one that loads tiles where
 * none is free, finds the block's units and deals them to all others: cards of 32 bytes in shared memory, CARDS of them in turn, each with a barrier for
 * "dealt" and one for "read".
 *
 *   DEAL 0   cluster c takes the units c, c + clusters, ...
 *   DEAL 1   clusters draw tickets from a counter (product_tickets.cuh), so that none waits for those with larger tiles, and all tiles at work are near
 *            each other */
#ifndef MOII_PRODUCT_DEAL_CUH
#define MOII_PRODUCT_DEAL_CUH

/* Of all lanes the same, and known to be. */
MOII_FN int uniform(int x) { return __shfl_sync(~0u, x, 0); }

MOII_FN unsigned int card_dealt(const shared &s, unsigned int card) { return s.base + CARDS_AT + CARDS * 32 + 16 * (card % CARDS); }
MOII_FN unsigned int card_read(const shared &s, unsigned int card) { return card_dealt(s, card) + 8; }

typedef unsigned int hand; /* which card a role holds or waits for, of all that there ever were */

/* What a card says; group -1: there is no more work. */
MOII_FN unit look_at_card(const shared &s, hand h)
{
    const int *from = (const int *)(s.p + CARDS_AT + 32 * (h % CARDS));
    const int4 v = *(const int4 *)from, w = *(const int4 *)(from + 4);
    unit u;
    u.group = v.x, u.row = v.y, u.rows = v.z, u.col = v.w & ~7, u.d_row = w.x, u.block = PARTS_OF_K ? w.w : 0;
    u.broad = BROAD && v.w & 1, u.strip = STRIP && v.w & 2; /* a tile's first column is a multiple of 8 */
    u.k = PARTS_OF_K ? w.y : 0, u.k_end = w.z;
    return u;
}

/* The same by a whole warp. */
MOII_FN unit read_card(const shared &s, hand h)
{
    unit u = look_at_card(s, h);
    if (PARTS_OF_K) u.k = uniform(u.k);
    u.k_end = uniform(u.k_end);
    return u;
}

/* A whole warp: waits for the card; false: the last one. */
MOII_FN bool take_card(const shared &s, hand h, unit *u)
{
    barrier_wait(card_dealt(s, h), h / CARDS & 1);
    *u = read_card(s, h);
    return uniform(u->group) >= 0;
}

/* A whole warp, which no longer needs it. */
MOII_FN void return_card(const shared &s, hand *h)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(card_read(s, *h));
    ++*h;
}

/* The dealing thread alone; the card's place is free. */
MOII_FN void write_card(const shared &s, hand h, const unit &u)
{
    const unsigned int to = s.base + CARDS_AT + 32 * (h % CARDS);
    shared_write_four(to, make_uint4(u.group, u.row, u.rows, u.col | u.broad | u.strip << 1));
    shared_write_four(to + 16, make_uint4(u.d_row, u.k, u.k_end, u.block));
    barrier_arrive(card_dealt(s, h));
}

/* The same when it is free. */
MOII_FN void deal_card(const shared &s, hand h, const unit &u)
{
    barrier_wait(card_read(s, h), (h / CARDS & 1) ^ 1);
    write_card(s, h, u);
}

#if DEAL
#include "product_tickets.cuh"
#endif
#if SEARCHES
#include "product_search.cuh"
#endif

/* Who deals: one thread, or all lanes of a warp, which find the same; where it found units, which card comes next. */
typedef struct dealer {
#if SEARCHES
    search many, few;
#else
    cursor cards;
#endif
#if DEAL
    drawer tickets;
#endif
    hand next;
    bool leads;
} dealer;

/* first: the first unit's card is dealt. */
MOII_FN dealer dealer_make(const product_args &a, [[maybe_unused]] const shared &s, bool leads, bool first)
{
    dealer d = { };
#if SEARCHES
    const stock all = stock_make(a);
    if (threadIdx.x % 32 == 0) stock_keep(s, all);
    __syncwarp();
#else
    d.cards = cursor_begin(a);
#endif
#if DEAL
    d.tickets = drawer_make();
#endif
    d.next = first, d.leads = leads;
    return d;
}

MOII_FN bool next_unit(const product_args &a, [[maybe_unused]] const shared &s, dealer *d, unsigned int block, unit *u)
{
#if DEAL
    const int i = draw(a, s, &d->tickets, d->next, block, d->leads);
#else
    const int i = first_unit() + (int)d->next * units_apart();
#endif
#if SEARCHES
    return ticket_unit(a, stock_of(s), i, &d->many, &d->few, block, u);
#else
    return find_unit(a, &d->cards, i, block, u);
#endif
}

/* The next unit for all; false: there is none, and all are told so. */
MOII_FN bool deal_unit(const product_args &a, const shared &s, dealer *d, unsigned int block, unit *u)
{
    const bool more = next_unit(a, s, d, block, u);
    if (!more) u->group = -1;
    if (d->leads) deal_card(s, d->next, *u);
    if (SEARCHES) __syncwarp();
    ++d->next;
    return more;
}

#endif
