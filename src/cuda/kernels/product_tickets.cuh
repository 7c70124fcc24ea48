/* SPDX-License-Identifier: Apache-2.0
 * product_tickets.cuh: a cluster's tickets, for product_deal.cuh (DEAL): its first is its own number, others it draws from a counter, one by one, until
 * there is none left.  So as many are drawn as there are units, and the counter, which begins anew behind so many, is 0 again in the end. */
#ifndef MOII_PRODUCT_TICKETS_CUH
#define MOII_PRODUCT_TICKETS_CUH

MOII_FN int units_in_all(const product_args &a, const shared &s) { return SEARCHES ? (int)shared_read_word(s.base + DECK_AT) : a.units; }

MOII_FN int count_ticket(const product_args &a, const shared &s) { return (int)atomicInc(a.tickets, (unsigned int)units_in_all(a, s) - 1); }

/* Who draws: all lanes of a warp, of which one leads, or one thread alone. */
typedef struct drawer {
#if !DEALS_APART
    int ticket, drawn; /* the next one, and the counter as the leading lane found it last */
#endif
} drawer;

MOII_FN int from_leader(int x, bool leads)
{
    if (!DEALS_APART && !SEARCHES) return x; /* it is alone */
    return __shfl_sync(~0u, x, __ffs((int)__ballot_sync(~0u, leads)) - 1);
}

#if CLUSTER > 1
/* The first block tells the others behind `dealt` units; their places for that, each with a barrier, are taken again behind TICKETS others, when all have
 * read: of which they tell the first block's barrier of that place. */
MOII_FN unsigned int ticket_at(const shared &s, unsigned int i) { return s.base + TICKETS_AT + i % TICKETS * 16; }

MOII_FN void open_tickets(const shared &s, unsigned int block)
{
    for (unsigned int i = 0; i < TICKETS; i++) barrier_init(ticket_at(s, i) + 8, block > 0 ? 1 : CLUSTER - 1);
}

MOII_FN int hear_ticket(const shared &s, hand dealt, bool leads)
{
    const unsigned int at = ticket_at(s, dealt - 1);
    if (leads) barrier_expect(at + 8, 4);
    barrier_wait(at + 8, (dealt - 1) / TICKETS & 1);
    const int ticket = (int)shared_read_word(at);
    if (DEALS_APART || SEARCHES) __syncwarp();
    if (leads) barrier_arrive_at(at + 8, 0);
    return ticket;
}
#endif

MOII_FN void tell_ticket(const shared &s, hand dealt, int ticket)
{
#if CLUSTER > 1
    const unsigned int at = ticket_at(s, dealt - 1);
    barrier_wait(at + 8, ((dealt - 1) / TICKETS & 1) ^ 1);
    for (unsigned int b = 1; b < CLUSTER; b++) word_send(at, (unsigned int)ticket, at + 8, b);
#endif
}

/* The next ticket of the cluster, behind `dealt` units: the first block's leading lane draws, the other blocks are told. */
#if DEALS_APART
MOII_FN drawer drawer_make() { return { }; }

/* Not before the multiprocessor is done with the tile before the last one that was dealt: drawn earlier, tiles would be less in the order in which they are
 * done, which L2 minds.  Short tiles do not leave the time for that. */
MOII_FN int draw(const product_args &a, const shared &s, drawer *, hand dealt, unsigned int block, bool leads)
{
    enum { LONG = 8 }; /* stages */
    const int stages = a.k / STEP;
    const hand ahead = (GROUPS == PRODUCT_DEPTH ? stages / LONG >= a.groups : stages >= LONG) ? 2 : CARDS;
    int ticket = first_unit();
    if (dealt == 0) return ticket;
    if (dealt >= ahead) barrier_wait(card_read(s, dealt - ahead), (dealt - ahead) / CARDS & 1);
#if CLUSTER > 1
    if (block > 0) return hear_ticket(s, dealt, leads);
#endif
    if (leads) {
        ticket = units_apart() + count_ticket(a, s);
        tell_ticket(s, dealt, ticket);
    }
    return from_leader(ticket, leads);
}
#else
/* By one who has no time to wait: nobody touches what was drawn before it is wanted, not even to add to it, for that would wait for it. */
MOII_FN int draw(const product_args &a, const shared &s, drawer *d, hand dealt, unsigned int block, bool leads)
{
    const int ticket = d->ticket;
#if CLUSTER > 1
    if (block > 0) return dealt == 0 ? ticket : hear_ticket(s, dealt, leads);
#endif
    if (ticket >= units_in_all(a, s)) return ticket; /* nobody asks for another */
    d->ticket = 2 * units_apart() + from_leader(d->drawn, leads);
    if (leads) {
        tell_ticket(s, dealt + 1, d->ticket);
        d->drawn = count_ticket(a, s);
    }
    return ticket;
}

MOII_FN drawer drawer_make() { return { first_unit(), first_unit() - units_apart() }; }
#endif

#endif
