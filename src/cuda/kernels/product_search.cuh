/* SPDX-License-Identifier: Apache-2.0
 * product_search.cuh: which unit of groups that differ a ticket stands for, for product_deal.cuh (SEARCHES).  A whole warp looks for it.  Tiles of groups of
 * few rows, which wait for memory, are dealt among the others, which compute; a few are kept for the end, to even it out, and clusters begin with others, as
 * long as there are any, so that a first unit is found without knowing how many units there are (product_early.cuh). */
#ifndef MOII_PRODUCT_SEARCH_CUH
#define MOII_PRODUCT_SEARCH_CUH

/* Among groups of many rows, or of few: how many units there are in front of group `from`, from which on 32 are looked at at a time, and the group that was
 * found last, which has most often the next one, too: its rows, its units and those before them. */
typedef struct search { int from, before, group, begin, end, first, units; } search;

/* Units in all and of groups of many rows; how many of many each ticket stands for, behind the clusters' first ones and up to ticket `mixed`; those from `cut`
 * on come in pieces.  In shared memory, for registers are few. */
typedef struct stock {
    int units, units_many, mixed, cut, pieces;
    unsigned long long share; /* and 32 bits behind the point */
} stock;

MOII_FN void stock_keep(const shared &s, const stock &d)
{
    shared_write_four(s.base + DECK_AT, make_uint4(d.units, d.units_many, d.mixed, d.cut));
    shared_write_four(s.base + DECK_AT + 16, make_uint4(d.pieces, 0, (unsigned int)d.share, (unsigned int)(d.share >> 32)));
}

MOII_FN stock stock_of(const shared &s)
{
    const uint2 units = shared_read_two(s.base + DECK_AT), rest = shared_read_two(s.base + DECK_AT + 8), share = shared_read_two(s.base + DECK_AT + 24);
    return { (int)units.x, (int)units.y, (int)rest.x, (int)rest.y, (int)shared_read_word(s.base + DECK_AT + 16), (unsigned long long)share.y << 32 | share.x };
}

/* Tickets that stand for as many units of groups of many rows, and come first. */
MOII_FN int first_of_many(const stock &d) { return min(units_apart(), d.units_many); }

MOII_FN stock stock_make(const product_args &a) /* a whole warp, as all that follows */
{
    stock d;
    int all = 0, few = 0;
#pragma unroll 1
    for (int g = (int)threadIdx.x % 32; g < a.groups; g += 32) {
        const span here = span_of(a, g);
        const int rows = here.end - here.begin, n = group_units(a, rows);
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
    const int first = first_of_many(d);
    d.share = 0;
    /* and a quarter: rounding must not lose the last one */
    if (few > 0) d.share = ((unsigned long long)(d.units_many - first) << 32 | 1ull << 30) / max(d.mixed - first, 1);
    return d;
}

MOII_FN int of_many(const stock &d, int ticket)
{
    const int first = first_of_many(d), behind = ticket - first;
    if (d.units == d.units_many || behind < 0) return ticket;
    return ticket < d.mixed ? min(first + (int)((unsigned long long)behind * d.share >> 32), d.units_many) : d.units_many;
}

/* The group of the i-th unit of groups of few rows, or of many; i must not descend from call to call.  false: there is none. */
MOII_FN bool search_group(const product_args &a, search *at, bool few, int i)
{
    const int lane = (int)threadIdx.x % 32;
    for (; at->from < a.groups; at->from += 32) {
        const span here = span_of(a, min(at->from + lane, a.groups - 1));
        const int rows = here.end - here.begin;
        const bool counts = at->from + lane < a.groups && (rows <= FEW_ROWS) == few;
        const int n = counts ? group_units(a, rows) : 0, upto = at->before + lane_scan(n, lane);
        const unsigned int behind = __ballot_sync(~0u, upto > i);
        if (behind) {
            const int there = __ffs((int)behind) - 1;
            at->group = at->from + there, at->begin = __shfl_sync(~0u, here.begin, there), at->end = __shfl_sync(~0u, here.end, there);
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

/* The unit of a ticket; false: there is none. */
MOII_FN bool ticket_unit(const product_args &a, const stock &all, int ticket, search *many, search *few, unsigned int block, unit *u)
{
    if (ticket >= all.units) return false;
    const int i = of_many(all, ticket), behind = i - all.cut;
    if (of_many(all, ticket + 1) <= i) return search_unit(a, few, true, ticket - i, block, u);
    if (!CUTS || behind < 0) return search_unit(a, many, false, i, block, u);
    const int whole = behind / all.pieces, rows = BM / all.pieces;
    if (!search_unit(a, many, false, all.cut + whole, block, u)) return false;
    unit_cut(u, (behind - whole * all.pieces) * rows, rows);
    return true;
}

#endif
