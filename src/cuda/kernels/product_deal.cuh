/* SPDX-License-Identifier: Apache-2.0
 *
 * product_deal.cuh: which unit a block works on next, for product_sm90.cuh.  A warp of its own (product_dealer.cuh), or the one that loads tiles where
 * none is free, finds the block's units and deals them to all others: cards of 32 bytes in shared memory, CARDS of them in turn, each with a barrier for
 * "dealt" and one for "read".
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
/* Among groups of many rows, or of few: how many units there are in front of group `from`, from which on 32 are looked at at a time, and the group that was
 * found last, which has most often the next one, too: its rows, its units and those before them. */
typedef struct search { int from, before, group, begin, end, first, units; } search;

/* Who deals: where it found units, which card comes next.  drawn: the counter as the leading lane found it last. */
typedef struct dealer {
    search many, few;
    hand next;
    bool leads;
#if !DEALS_APART
    int ticket, drawn;
#endif
} dealer;

/* Units in all and of groups of many rows; how many of many each ticket stands for, up to ticket `mixed`; those from `cut` on come in pieces.  In shared
 * memory, for registers are few. */
typedef struct stock {
    int units, units_many, mixed, cut, pieces;
    unsigned long long share; /* and 32 bits behind the point */
} stock;

MOII_FN void stock_keep(const shared &s, const stock &d)
{
    shared_write_four(s.base + DECK_AT, make_uint4(d.units, d.units_many, d.mixed, d.cut));
    shared_write_four(s.base + DECK_AT + 16, make_uint4(d.pieces, 0, (unsigned int)d.share, (unsigned int)(d.share >> 32)));
}

MOII_FN int units_in_all(const shared &s) { return (int)shared_read_word(s.base + DECK_AT); }

MOII_FN stock stock_of(const shared &s)
{
    const uint2 units = shared_read_two(s.base + DECK_AT), rest = shared_read_two(s.base + DECK_AT + 8), share = shared_read_two(s.base + DECK_AT + 24);
    return { (int)units.x, (int)units.y, (int)rest.x, (int)rest.y, (int)shared_read_word(s.base + DECK_AT + 16), (unsigned long long)share.y << 32 | share.x };
}

MOII_FN int rows_of_group(const product_args &a, int g) { return (int)(__ldg(a.offsets + g + 1) - __ldg(a.offsets + g)); }

MOII_FN stock stock_make(const product_args &a) /* a whole warp, as all that follows */
{
    stock d;
    int all = 0, few = 0;
#pragma unroll 1
    for (int g = (int)threadIdx.x % 32; g < a.groups; g += 32) {
        const int rows = rows_of_group(a, g), n = group_units(a, rows);
        all += n;
        if (rows <= FEW_ROWS) few += n;
    }
    d.units = __reduce_add_sync(~0u, all), few = __reduce_add_sync(~0u, few), d.units_many = d.units - few;
    d.cut = PRODUCT_UNCUT, d.pieces = 2;
    if (CUTS && few == 0 && d.units > 0) {
        const product_cutting c = product_cut_rest(d.units_many, units_apart(), BM);
        if (c.cut < PRODUCT_UNCUT) d.units_many = d.units = c.cut + (d.units - c.cut) * c.pieces;
        d.cut = c.cut, d.pieces = c.pieces;
    }
    d.mixed = d.units_many > 0 ? d.units - min(few, 2 * units_apart()) : d.units;
    d.share = ((unsigned long long)d.units_many << 32 | 1ull << 30) / max(d.mixed, 1); /* the quarter: rounding must not lose the last one */
    return d;
}

MOII_FN int of_many(const stock &d, int ticket)
{
    if (d.units == d.units_many) return ticket;
    return ticket < d.mixed ? min((int)((unsigned long long)ticket * d.share >> 32), d.units_many) : d.units_many;
}

/* The group of the i-th unit of groups of few rows, or of many; i must not descend from call to call.  false: there is none. */
MOII_FN bool search_group(const product_args &a, search *at, bool few, int i)
{
    const int lane = (int)threadIdx.x % 32;
    for (; at->from < a.groups; at->from += 32) {
        const int g = min(at->from + lane, a.groups - 1), begin = (int)__ldg(a.offsets + g), end = (int)__ldg(a.offsets + g + 1);
        const bool counts = at->from + lane < a.groups && (end - begin <= FEW_ROWS) == few;
        const int n = counts ? group_units(a, end - begin) : 0, upto = at->before + lane_scan(n, lane);
        const unsigned int behind = __ballot_sync(~0u, upto > i);
        if (behind) {
            const int there = __ffs((int)behind) - 1;
            at->group = at->from + there, at->begin = __shfl_sync(~0u, begin, there), at->end = __shfl_sync(~0u, end, there);
            at->units = __shfl_sync(~0u, n, there), at->first = __shfl_sync(~0u, upto, there) - at->units;
            return true;
        }
        at->before = __shfl_sync(~0u, upto, 31);
    }
    return false;
}

MOII_FN bool search_unit(const product_args &a, search *at, bool few, int i, unsigned int block, unit *u)
{
    if (i - at->first >= at->units && !search_group(a, at, few, i)) return false;
    unit_in_group(a, at->group, at->begin, at->end, i - at->first, block, u);
    return true;
}

#if CLUSTER > 1
/* A ticket's place is taken again behind TICKETS others.  The first block is ahead of another by what its own cards allow and a ring of stages that they share;
 * besides by pieces of tiles without rows, which have no stages: a dozen of those, all drawn by one cluster while its second block has not ended the tile in
 * front of them, would be too many, 10 us and more later. */
static_assert(CARDS + STAGES + 3 <= TICKETS, "a ticket's place is taken before it was read");
MOII_FN unsigned int ticket_at(const shared &s, unsigned int i) { return s.base + TICKETS_AT + i % TICKETS * 16; } /* and its barrier */

/* A block other than the first is told the ticket behind `dealt` units. */
MOII_FN int hear_ticket(const shared &s, hand dealt, bool leads)
{
    const unsigned int at = ticket_at(s, dealt - 1);
    if (leads) barrier_expect(at + 8, 4);
    barrier_wait(at + 8, (dealt - 1) / TICKETS & 1);
    return (int)shared_read_word(at);
}
#endif

MOII_FN void tell_ticket(const shared &s, hand dealt, int ticket)
{
#if CLUSTER > 1
    for (unsigned int b = 1; b < CLUSTER; b++) word_send(ticket_at(s, dealt - 1), (unsigned int)ticket, ticket_at(s, dealt - 1) + 8, b);
#endif
}

MOII_FN int from_leader(int x, bool leads) { return __shfl_sync(~0u, x, __ffs((int)__ballot_sync(~0u, leads)) - 1); }

/* The next ticket of the cluster: the first block's leading lane draws, the other blocks are told. */
#if DEALS_APART
/* Not before the multiprocessor is done with the tile before the last one that was dealt: drawn earlier, tiles would be less in the order in which they are
 * done, which L2 minds.  Short tiles do not leave the time for that. */
MOII_FN int draw(const product_args &a, const shared &s, dealer *d, unsigned int block)
{
    enum { LONG = 8 }; /* stages */
    const hand dealt = d->next, ahead = a.k >= LONG * STEP ? 2 : CARDS;
    int ticket = first_unit();
    if (dealt == 0) return ticket;
    if (dealt >= ahead) barrier_wait(card_read(s, dealt - ahead), (dealt - ahead) / CARDS & 1);
#if CLUSTER > 1
    if (block > 0) return hear_ticket(s, dealt, d->leads);
#endif
    if (d->leads) {
        ticket = units_apart() + atomicAdd(a.tickets, 1);
        tell_ticket(s, dealt, ticket);
    }
    return from_leader(ticket, d->leads);
}
#else
/* By one who has no time to wait: nobody touches what was drawn before it is wanted, not even to add to it, for that would wait for it. */
MOII_FN int draw(const product_args &a, const shared &s, dealer *d, unsigned int block)
{
    const int ticket = d->ticket;
    const hand dealt = d->next;
#if CLUSTER > 1
    if (block > 0) return dealt == 0 ? ticket : hear_ticket(s, dealt, d->leads);
#endif
    if (ticket >= units_in_all(s)) return ticket; /* nobody asks for another */
    d->ticket = 2 * units_apart() + from_leader(d->drawn, d->leads);
    if (d->leads) {
        tell_ticket(s, dealt + 1, d->ticket);
        d->drawn = atomicAdd(a.tickets, 1);
    }
    return ticket;
}
#endif

MOII_FN bool next_unit(const product_args &a, const shared &s, dealer *d, unsigned int block, unit *u)
{
    const int ticket = draw(a, s, d, block);
    const stock all = stock_of(s);
    if (ticket >= all.units) return false;
    const int i = of_many(all, ticket), behind = i - all.cut;
    if (of_many(all, ticket + 1) <= i) return search_unit(a, &d->few, true, ticket - i, block, u);
    if (!CUTS || behind < 0) return search_unit(a, &d->many, false, i, block, u);
    const int whole = behind / all.pieces, rows = BM / all.pieces;
    if (!search_unit(a, &d->many, false, all.cut + whole, block, u)) return false;
    unit_cut(u, (behind - whole * all.pieces) * rows, rows);
    return true;
}

/* first: the first unit's card is dealt. */
MOII_FN dealer dealer_make(const product_args &a, const shared &s, unsigned int block, bool leads, bool first)
{
    const stock all = stock_make(a);
    if (threadIdx.x % 32 == 0) stock_keep(s, all);
    __syncwarp();
    dealer d = { };
    d.leads = leads;
#if !DEALS_APART
    d.ticket = first_unit(), d.drawn = first_unit() - units_apart();
    if (first) draw(a, s, &d, block); /* its ticket */
#endif
    d.next = first;
    return d;
}

/* The next unit for all; false: there is none, and all are told so. */
MOII_FN bool deal_unit(const product_args &a, const shared &s, dealer *d, unsigned int block, unit *u)
{
    const bool more = next_unit(a, s, d, block, u);
    if (!more) u->group = -1;
    if (d->leads) deal_card(s, d->next, *u);
    __syncwarp();
    ++d->next;
    return more;
}
#else
/* Who deals: one thread, or all lanes of a warp, which find the same.  first: the first unit's card is dealt. */
typedef struct dealer {
    cursor cards;
    hand next;
    bool leads;
} dealer;

MOII_FN dealer dealer_make(const product_args &a, const shared &, unsigned int, bool leads, bool first) { return { cursor_begin(a), first, leads }; }

/* The next unit for all; false: there is none, and all are told so. */
MOII_FN bool deal_unit(const product_args &a, const shared &s, dealer *d, unsigned int block, unit *u)
{
    const bool more = find_unit(a, &d->cards, first_unit() + (int)d->next * units_apart(), block, u);
    if (!more) u->group = -1;
    if (d->leads) deal_card(s, d->next, *u);
    ++d->next;
    return more;
}
#endif

#endif
