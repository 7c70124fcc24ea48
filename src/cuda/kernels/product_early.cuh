/* SPDX-License-Identifier: Apache-2.0
 * product_early.cuh: a cluster's first unit, for product_sm90.cuh: found and sent for before anything else.
 *
 * Whatever a kernel does first it does slowly: its code, its constants and the offsets of groups come from memory.  Found as all others are, the first
 * unit's first copy was sent 4500 clocks after the block had begun, of ragged groups 10000.  Here a whole warp looks for it, by a short way that does not know
 * all cases, and sends for the first stages (EARLY_STAGES; product_load.cuh), before the block's other warps and its cluster have met. */
#ifndef MOII_PRODUCT_EARLY_CUH
#define MOII_PRODUCT_EARLY_CUH

#if EARLY
static_assert(!SHORT || GROUPS == PRODUCT_DENSE, "a tile of few rows is one matrix's");

#if B_GROUPED
/* A whole warp: the group that has the unit, what it has in front of it, and where its rows are; false: none.  By tickets, groups of few rows are behind all
 * others. */
MOII_FN bool first_group(const product_args &a, int *group, int *in, int *begin, int *end)
{
    const int lane = (int)threadIdx.x % 32, want = first_unit();
    int before = 0;
    if (a.groups > 32) line_fetch(a.offsets + min(lane * 16, a.groups - 1)); /* all at once: they are looked at one after the other */
#pragma unroll 1
    for (int few = 0; few <= SEARCHES; few++)
#pragma unroll 1
        for (int from = 0; from < a.groups; from += 32) {
            const span here = span_of(a, min(from + lane, a.groups - 1));
            const int rows = here.end - here.begin;
            const bool counts = from + lane < a.groups && (!SEARCHES || (rows <= FEW_ROWS) == few);
            const int n = counts ? group_units(a, rows) : 0, upto = before + lane_scan(n, lane);
            const unsigned int behind = __ballot_sync(~0u, upto > want);
            if (behind) {
                const int at = __ffs((int)behind) - 1;
                *group = from + at, *in = want - __shfl_sync(~0u, upto - n, at);
                *begin = __shfl_sync(~0u, here.begin, at), *end = __shfl_sync(~0u, here.end, at);
                return true;
            }
            before = __shfl_sync(~0u, upto, 31);
        }
    return false;
}
#endif

/* A whole warp: the cluster's first unit; false: it is to be looked for as all others are. */
#if SHORT
MOII_FN bool find_first(const product_args &a, unsigned int block, unit *u)
{
    if (a.m > BM || first_unit() >= a.n_tiles) return false;
    unit_at(a, 0, 0, a.m, 0, first_unit(), false, 0, block, u);
    unit_part(block, u);
    return true;
}
#else
MOII_FN bool find_first(const product_args &a, unsigned int block, unit *u)
{
    int group = 0, in = first_unit(), begin = 0, end = a.m, band = 0;
    if (GROUPS != PRODUCT_DENSE && a.groups < 1) return false;
#if B_GROUPED
    if (!first_group(a, &group, &in, &begin, &end)) return false;
#elif GROUPS == PRODUCT_DEPTH
    const span here = span_of(a, 0);
    begin = here.begin, end = here.end;
#endif
    if (STRIP && in >= a.strip_at) return false;
    const int tiles = tiles_high(GROUPS == PRODUCT_DEPTH ? a.m : end - begin);
    if (in >= tiles * a.n_tiles && !(BROAD && tiles == 0)) return false; /* 0: broad ones alone */
    if (in >= a.band * a.n_tiles) band = quotient(in, a.band * a.n_tiles, true), in -= band * a.band * a.n_tiles; /* there are not so many blocks */
    const int high = min(a.band, tiles - band * a.band);
    const spot at = spot_in_band(a, in, high, ends_broad(end - begin) && band * a.band + high == tiles, true);
    unit_at(a, group, begin, end, band * a.band + at.m, at.n, at.broad, 0, block, u);
    return true;
}
#endif

/* Whether the warp that loads tiles deals it, and sends for its first stages, before the block has met. */
MOII_FN bool first_is_early(const product_args &a, unsigned int block, unit *u) { return find_first(a, block, u) && steps_of(*u) > 0; }
#endif

#endif
