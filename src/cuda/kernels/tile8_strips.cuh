/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_strips.cuh: the strips of rows that tiles lie in, a block's way down them, and what no tile owns.
 * Included by tile8.cuh, whose defines it reads.
 */
#ifndef MOII_TILE8_STRIPS_CUH
#define MOII_TILE8_STRIPS_CUH

#define COL_BITS (COL_KIND == TILE_MX32 ? 5 : 7) /* of a block's length */
#define STRIP_BITS (TILE_UNITS * TILE_DOWN > 1 ? 8 : 7)
#include "tile8_groups.cuh"

/* How many codes a column gets: as many blocks as the group's rows touch; behind all groups, what is left of (a.rows >> COL_BITS) + a.groups. */
MOII_FN void set_run(const tile8_cut &a, way *w)
{
#if RAGGED
    const long long above = unit_index() * TILE, owned = (w->end - w->t.r0 + above + ((1 << COL_BITS) - 1)) & -(1LL << COL_BITS);
    const long long left = ((a.rows >> COL_BITS) + a.groups - w->t.block) * (1LL << COL_BITS) + above;
    w->t.run = (int)max(min(w->t.owned ? owned : left, (long long)TILE * TILE_UNITS), 0LL);
#endif
}

/* The rows start .. end - 1 of group g begin with the strip w->strip - below. */
MOII_FN void set_strip(const tile8_cut &a, way *w, unsigned int g, long long start, long long end, unsigned int below)
{
    const long long into = ((long long)below << STRIP_BITS) + rows_down();
    w->group = g, w->end = end;
    w->t.owned = !RAGGED || g < a.groups;
    w->t.r0 = start + into;
    w->t.rows = (int)min(end - w->t.r0, (long long)TILE);
    w->t.block = (start >> COL_BITS) + g + (into >> COL_BITS);
    set_run(a, w);
}

/* Which rows strip i has; none: rows is not positive.  All threads of a warp come here.  (Shifts: a division of 64 bits takes a hundred
 * registers' work.) */
MOII_FN void find_strip(const tile8_cut &a, unsigned int i, way *w)
{
    unsigned int g = 0, first = 0;
    long long start = 0, end = a.rows;
    if (RAGGED) {
        g = group_of(a.offsets, (unsigned int)a.groups, i);
        start = a.offsets[g], end = g < a.groups ? a.offsets[g + 1] : a.rows, first = (unsigned int)(start >> STRIP_BITS) + g;
    }
    w->strip = i;
    set_strip(a, w, g, start, end, i - first);
}

/* ---- walking down ---- */

/* By one thread; right: how far the twin is. */
MOII_FN void note(way *to, const way &w, long long right)
{
    *to = w;
#if TILE_TWINS
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
    w.t.r0 += (long long)step * TILE, w.t.block += step * (TILE >> COL_BITS);
    w.t.rows = (int)min(w.end - w.t.r0, (long long)TILE);
    set_run(a, &w);
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
        if (threadIdx.x == 0) note(&ways[0], w, right);
        w = below(a, w, step);
        if (threadIdx.x == 0) note(&ways[1], w, right);
    }
    __syncthreads();
}

#if RAGGED
/* Scale blocks b .. end - 1 of 128 columns become 0, by `threads` of the block's threads, of which this is number i. */
MOII_FN void clear_scales(const tile8_side &col, const tile &t, long long b, long long end, int i, int threads)
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

/* The codes of blocks b .. end - 1 become 0, by a warp. */
MOII_FN void clear_codes(const tile8_side &col, const tile &t, long long b, long long end)
{
    const int width = 1 << COL_BITS, count = (int)(end - b) * width;
    unsigned char *base = col.data + t.c0 * col.stride + b * width;
    const bool aligned = (((unsigned long long)base | (unsigned long long)col.stride) & 15) == 0;
    if (!col.data || count <= 0) return;
    const int pieces = count / 16;
    for (int i = thread_index() % 32; i < t.cols * pieces; i += 32) {
        unsigned char *to = base + i / pieces * col.stride + i % pieces * 16;
        if (aligned) *(uint4 *)to = make_uint4(0, 0, 0, 0);
        else
            for (int k = 0; k < 16; k++) to[k] = 0;
    }
}
#endif

/* With groups: blocks that no group owns (the codes of those behind all are what tiles without an owner make), and the padding of tiled row-wise
 * scales.  By the block's first 256 threads. */
MOII_FN void clear(const tile8_cut &a, const tile8_side &row, const tile8_side &col, const tile &t)
{
    const int thread = thread_index();
    if (unit_index() > 0) return;
#if RAGGED
    const int width = 1 << COL_BITS;
    for (long long g = thread / 32; g < a.groups; g += WARPS) { /* between groups there are few: a warp for each */
        const long long used = (a.offsets[g] >> COL_BITS) + g + ((a.offsets[g + 1] - a.offsets[g] + width - 1) >> COL_BITS);
        const long long next = (a.offsets[g + 1] >> COL_BITS) + g + 1;
        clear_scales(col, t, used, next, thread % 32, 32);
        clear_codes(col, t, used, next);
    }
    clear_scales(col, t, (a.offsets[a.groups] >> COL_BITS) + a.groups, col.blocks, thread, 256);
#endif
#if ROW_KIND == TILE_MX32
    if (row.layout == SCALES_TILED)
        for (long long r = a.rows; r < ((a.rows + 127) & ~127LL); r++)
            if (thread < 4) ((unsigned char *)row.scale)[scale_place(row, r, t.c0 / 32 + thread, 15)] = 0;
#endif
}

#endif
