/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_strips.cuh: the strips of rows that tiles lie in, and what no tile owns.  Included by tile8.cuh, whose defines it reads.
 */
#ifndef MOII_TILE8_STRIPS_CUH
#define MOII_TILE8_STRIPS_CUH

/* Which rows strip i has; false: none.  (Shifts: a division of 64 bits takes a hundred registers' work.) */
MOII_FN bool find_strip(const tile8_cut &a, unsigned int i, tile *t)
{
    const int width_bits = COL_KIND == TILE_MX32 ? 5 : 7;
    long long start = 0, end = a.rows;
    unsigned int first = 0, g = 0;
    t->owned = true;
    if (a.groups) {
        unsigned int low = 0, high = (unsigned int)a.groups; /* the last group whose strips begin at i or before; `groups`: rows behind all */
        while (low < high) {
            const unsigned int m = (low + high + 1) / 2;
            if ((unsigned int)(a.offsets[m] >> 7) + m <= i) low = m;
            else high = m - 1;
        }
        g = low;
        t->owned = g < a.groups;
        start = a.offsets[g], end = t->owned ? a.offsets[g + 1] : a.rows, first = (unsigned int)(start >> 7) + g;
    }
    t->r0 = start + (long long)(i - first) * TILE;
    t->rows = (int)min(end - t->r0, (long long)TILE);
    t->block = (start >> width_bits) + g + (long long)(i - first) * (TILE >> width_bits);
    return t->r0 < end;
}

/* With groups: scale blocks that no group owns, and the padding of tiled row-wise scales. */
MOII_FN void clear(const tile8_cut &a, const tile8_side &row, const tile8_side &col, const tile &t)
{
#if COL_KIND == TILE_MX32 || COL_KIND == TILE_BLK128
    const int width = COL_KIND == TILE_MX32 ? 32 : 128;
    for (long long g = -1; g < a.groups; g++) {
        long long used = 0, next = col.blocks;
        if (g >= 0) used = a.offsets[g] / width + g + (a.offsets[g + 1] - a.offsets[g] + width - 1) / width;
        if (g + 1 < a.groups) next = a.offsets[g + 1] / width + g + 1;
        for (long long b = used; b < next; b++)
            for (int c = thread_index(); c < TILE; c += 256) {
                long long r = t.c0 + c;
                const int last = COL_KIND == TILE_MX32 ? 15 : 3;
                long long padded = col.layout == SCALES_COL ? (col.scale_rows + last) & ~(long long)last : col.scale_rows;
                if (r >= padded) continue;
                if (COL_KIND == TILE_MX32) ((unsigned char *)col.scale)[scale_place(col, r, b, last)] = 0;
                else ((unsigned int *)col.scale)[scale_place(col, r, b, last)] = 0;
            }
    }
#endif
#if ROW_KIND == TILE_MX32
    if (row.layout == SCALES_TILED)
        for (long long r = a.rows; r < ((a.rows + 127) & ~127LL); r++)
            if (thread_index() < 4) ((unsigned char *)row.scale)[scale_place(row, r, t.c0 / 32 + thread_index(), 15)] = 0;
#endif
}

#endif
