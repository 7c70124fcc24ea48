/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_strips.cuh: the strips of rows that tiles lie in, a block's way down them, and what no tile owns.
 * Included by tile8.cuh, whose defines it reads.
 */
#ifndef MOII_TILE8_STRIPS_CUH
#define MOII_TILE8_STRIPS_CUH

/* The last group whose strips begin at strip i or before; `groups`: the rows behind all.  Each lane asks one of 32 boundaries at a time.
 * (Apart: it shall not have a say in the registers of what follows.) */
static __device__ __noinline__ unsigned int group_of(const long long *offsets, unsigned int groups, unsigned int i)
{
    unsigned int low = 0, high = groups;
    while (low < high) {
        const unsigned int step = (high - low + 31) / 32, m = low + (thread_index() % 32 + 1) * step;
        const bool begun = m <= high && (unsigned int)(offsets[m] >> 7) + m <= i;
        low += __popc(__ballot_sync(0xFFFFFFFFu, begun)) * step;
        high = min(high, low + step - 1);
    }
    return low;
}

/* The rows start .. end - 1 of group g begin with the strip w->strip - below. */
MOII_FN void set_strip(const tile8_cut &a, way *w, unsigned int g, long long start, long long end, unsigned int below)
{
    const int width_bits = COL_KIND == TILE_MX32 ? 5 : 7;
    w->group = g, w->end = end;
    w->t.owned = !RAGGED || g < a.groups;
    w->t.r0 = start + (long long)below * TILE;
    w->t.rows = (int)min(end - w->t.r0, (long long)TILE);
    w->t.block = (start >> width_bits) + g + (long long)below * (TILE >> width_bits);
}

/* Which rows strip i has; none: rows is not positive.  All threads of a warp come here.  (Shifts: a division of 64 bits takes a hundred
 * registers' work.) */
MOII_FN void find_strip(const tile8_cut &a, unsigned int i, way *w)
{
    unsigned int g = 0, first = 0;
    long long start = 0, end = a.rows;
    if (RAGGED) {
        g = group_of(a.offsets, (unsigned int)a.groups, i);
        start = a.offsets[g], end = g < a.groups ? a.offsets[g + 1] : a.rows, first = (unsigned int)(start >> 7) + g;
    }
    w->strip = i;
    set_strip(a, w, g, start, end, i - first);
}

/* ---- walking down ---- */

/* By one thread; right: how far the twin is. */
MOII_FN void note(way *to, const way &w, long long right)
{
    *to = w;
#if TILE_RINGS > 1
    to->twin = w.t;
    to->twin.c0 += right;
#endif
}

/* The next strip with rows, `step` strips down (RAGGED: the next); rows 0: there is none before `stop`. */
MOII_FN way below(const tile8_cut &a, const way &from, unsigned int step)
{
    way w = from;
    if (RAGGED) step = 1;
    w.strip += step;
    w.t.r0 += (long long)step * TILE, w.t.block += step * (COL_KIND == TILE_MX32 ? TILE / 32 : 1);
    w.t.rows = (int)min(w.end - w.t.r0, (long long)TILE);
    if (RAGGED && w.t.rows <= 0) {
        const long long start = w.end;
        unsigned int g = w.group;
        long long end = start;
        while (end == start && g < a.groups) g++, end = g < a.groups ? a.offsets[g + 1] : a.rows;
        w.strip = (unsigned int)(start >> 7) + g;
        set_strip(a, &w, g, start, end, 0);
    }
    if (w.strip >= w.stop || w.t.rows < 0) w.t.rows = 0;
    return w;
}

/* The first strips from lo on, below `stop`: ways[0] and ways[1].  t: what does not change.  Every thread of the block comes here. */
MOII_FN void begin(const tile8_cut &a, const tile &t, unsigned int lo, unsigned int stop, unsigned int step, way *ways, long long right)
{
    if (threadIdx.x < 32) {
        way w;
        w.t = t, w.stop = stop;
        find_strip(a, lo, &w);
        if (w.t.rows <= 0) w = below(a, w, step); /* a number between two groups */
        w.t.from = w.t.r0;
        if (threadIdx.x == 0) note(&ways[0], w, right);
        w = below(a, w, step);
        if (threadIdx.x == 0) note(&ways[1], w, right);
    }
    __syncthreads();
}

#if COL_KIND == TILE_MX32 || COL_KIND == TILE_BLK128
/* Scale blocks b .. end - 1 of 128 columns become 0, by `threads` of the block's threads, of which this is number i. */
MOII_FN void clear_blocks(const tile8_side &col, const tile &t, long long b, long long end, int i, int threads)
{
    const int last = COL_KIND == TILE_MX32 ? 15 : 3;
    const long long padded = col.layout == SCALES_COL ? (col.scale_rows + last) & ~(long long)last : col.scale_rows;
    for (long long at = b * TILE + i; at < end * TILE; at += threads) {
        const long long r = t.c0 + (at & (TILE - 1));
        if (r >= padded) continue;
        if (COL_KIND == TILE_MX32) ((unsigned char *)col.scale)[scale_place(col, r, at >> 7, last)] = 0;
        else ((unsigned int *)col.scale)[scale_place(col, r, at >> 7, last)] = 0;
    }
}
#endif

/* With groups: scale blocks that no group owns, and the padding of tiled row-wise scales. */
MOII_FN void clear(const tile8_cut &a, const tile8_side &row, const tile8_side &col, const tile &t)
{
#if COL_KIND == TILE_MX32 || COL_KIND == TILE_BLK128
    const int width = COL_KIND == TILE_MX32 ? 32 : 128, thread = thread_index();
    for (long long g = thread / 32; g < a.groups; g += WARPS) /* between groups there are few: a warp for each */
        clear_blocks(col, t, a.offsets[g] / width + g + (a.offsets[g + 1] - a.offsets[g] + width - 1) / width,
                     g + 1 < a.groups ? a.offsets[g + 1] / width + g + 1 : 0, thread % 32, 32);
    clear_blocks(col, t, 0, a.offsets[0] / width, thread, 256);
    const long long behind = a.offsets[a.groups - 1] / width + a.groups - 1 + (a.offsets[a.groups] - a.offsets[a.groups - 1] + width - 1) / width;
    clear_blocks(col, t, behind, col.blocks, thread, 256);
#endif
#if ROW_KIND == TILE_MX32
    if (row.layout == SCALES_TILED)
        for (long long r = a.rows; r < ((a.rows + 127) & ~127LL); r++)
            if (thread_index() < 4) ((unsigned char *)row.scale)[scale_place(row, r, t.c0 / 32 + thread_index(), 15)] = 0;
#endif
}

#endif
