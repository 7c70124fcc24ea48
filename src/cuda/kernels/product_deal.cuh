/* SPDX-License-Identifier: Apache-2.0
 *
 * product_deal.cuh: which unit a block works on next, for product_sm90.cuh.  The warp that loads tiles finds the block's units and deals
 * them to all others: cards of 32 bytes in shared memory, CARDS of them in turn, each with a barrier for "dealt" and one for "read".
 *
 *   DEAL 0   cluster c takes the units c, c + clusters, ...
 *   DEAL 1   clusters draw tickets from a counter, so that none waits for those with larger tiles (PRODUCT_ROWS).  Tiles of groups of few rows,
 *            which wait for memory, are dealt among the others, which compute; a few are kept for the end, to even it out. */
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
    u.group = v.x, u.row = v.y, u.rows = v.z, u.col = v.w & ~7, u.d_row = w.x, u.block = w.w;
    u.broad = BROAD && v.w & 1, u.ahead = v.w & 2, u.strip = STRIP && v.w & 4; /* a tile's first column is a multiple of 8 */
    u.k = w.y, u.k_end = w.z;
    return u;
}

/* The same by a whole warp. */
MOII_FN unit read_card(const shared &s, hand h)
{
    unit u = look_at_card(s, h);
    u.k = uniform(u.k), u.k_end = uniform(u.k_end);
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
    shared_write_four(to, make_uint4(u.group, u.row, u.rows, u.col | u.broad | u.ahead << 1 | u.strip << 2));
    shared_write_four(to + 16, make_uint4(u.d_row, u.k, u.k_end, u.block));
    barrier_arrive(card_dealt(s, h));
}

/* The same when it is free. */
MOII_FN void deal_card(const shared &s, hand *h, const unit &u)
{
    barrier_wait(card_read(s, *h), (*h / CARDS & 1) ^ 1);
    write_card(s, *h, u);
    ++*h;
}

#if DEAL
/* Units in all, of groups of many rows and of few; how many of many each ticket stands for, up to ticket `mixed`. */
typedef struct deck {
    cursor many, few;
    int units, units_many, mixed;
    double share;
    int next; /* ticket */
} deck;

MOII_FN deck deck_make(const product_args &a) /* a whole warp */
{
    deck d;
    int all = 0, few = 0;
#pragma unroll 1
    for (int g = (int)threadIdx.x % 32; g < a.groups; g += 32) {
        const int rows = (int)(__ldg(a.offsets + g + 1) - __ldg(a.offsets + g));
        const int n = group_units(a, rows);
        all += n;
        if (rows <= FEW_ROWS) few += n;
    }
    d.units = __reduce_add_sync(~0u, all), few = __reduce_add_sync(~0u, few), d.units_many = d.units - few;
    product_cutting c = { PRODUCT_UNCUT, 2 };
    if (CUTS && few == 0 && d.units > 0) {
        c = product_cut_rest(d.units_many, units_apart(), BM);
        if (c.cut < PRODUCT_UNCUT) d.units_many = d.units = c.cut + (d.units - c.cut) * c.pieces;
    }
    d.mixed = d.units_many > 0 ? d.units - min(few, 2 * units_apart()) : d.units;
    d.share = (d.units_many + 0.25) / max(d.mixed, 1); /* the quarter: rounding must not lose the last one */
    d.many = cursor_begin(a, ROWS_MANY), d.few = cursor_begin(a, ROWS_FEW);
    d.many.cut = c.cut, d.many.pieces = c.pieces;
    d.next = first_unit();
    return d;
}

MOII_FN int of_many(const deck &d, int ticket)
{
    if (d.units == d.units_many) return ticket;
    return ticket < d.mixed ? min((int)(ticket * d.share), d.units_many) : d.units_many;
}

#if CLUSTER > 1
MOII_FN unsigned int ticket_at(const shared &s, unsigned int i) { return s.base + TICKETS_AT + i % TICKETS * 16; } /* and its barrier */
#endif

/* The next ticket of the cluster.  The first block draws, the others are told.  drawn: the counter as it was found last, which nobody touches
 * before it is wanted, not even to add to it, for that would wait for it. */
MOII_FN int draw(const product_args &a, const shared &s, deck *d, int *drawn, hand dealt, unsigned int block)
{
    const int ticket = d->next;
#if CLUSTER > 1
    if (block > 0) {
        if (dealt == 0) return ticket;
        const unsigned int at = ticket_at(s, dealt - 1);
        barrier_expect(at + 8, 4);
        barrier_wait(at + 8, (dealt - 1) / TICKETS & 1);
        return (int)shared_read_word(at);
    }
#endif
    if (ticket >= d->units) return ticket; /* nobody asks for another */
    d->next = 2 * units_apart() + *drawn;
#if CLUSTER > 1
    for (unsigned int b = 1; b < CLUSTER; b++) word_send(ticket_at(s, dealt), (unsigned int)d->next, ticket_at(s, dealt) + 8, b);
#endif
    *drawn = atomicAdd(a.tickets, 1);
    return ticket;
}

/* dealt: units so far. */
MOII_FN bool next_unit(const product_args &a, const shared &s, deck *d, int *drawn, hand dealt, unsigned int block, unit *u)
{
    const int ticket = draw(a, s, d, drawn, dealt, block), many = of_many(*d, ticket);
    if (ticket >= d->units) return false;
    return of_many(*d, ticket + 1) > many ? find_unit(a, &d->many, many, block, u) : find_unit(a, &d->few, ticket - many, block, u);
}
#else
typedef cursor deck;

MOII_FN deck deck_make(const product_args &a) { return cursor_begin(a, ROWS_ANY); }

MOII_FN bool next_unit(const product_args &a, const shared &, deck *d, int *, hand dealt, unsigned int block, unit *u)
{
    return find_unit(a, d, first_unit() + (int)dealt * units_apart(), block, u);
}
#endif

/* The dealing thread alone: the next unit for all; false: there is none, and all are told so. */
MOII_FN bool deal_unit(const product_args &a, const shared &s, deck *d, int *drawn, hand *h, unsigned int block, unit *u)
{
    const bool more = next_unit(a, s, d, drawn, *h, block, u);
    if (!more) u->group = -1;
    deal_card(s, h, *u);
    return more;
}

/* The same of the first unit, which was dealt already. */
MOII_FN void pass_unit(const product_args &a, const shared &s, deck *d, int *drawn, unsigned int block)
{
#if DEAL
    draw(a, s, d, drawn, 0, block);
#endif
}

/* Where the dealing thread keeps it: a larger one in shared memory, for its registers are few. */
MOII_FN deck *deck_at(const shared &s, deck *made)
{
    if (!DEAL) return made;
    *(deck *)(s.p + DECK_AT) = *made;
    return (deck *)(s.p + DECK_AT);
}

#endif
