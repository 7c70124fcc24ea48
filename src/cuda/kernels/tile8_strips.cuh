/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_strips.cuh: the strips of rows that tiles lie in, and what no tile owns.  Included by tile8.cuh, whose defines it reads.
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

/* Which rows strip i has; false: none.  All threads of a warp come here.  (Shifts: a division of 64 bits takes a hundred registers' work.) */
MOII_FN bool find_strip(const tile8_cut &a, unsigned int i, tile *t)
{
    const int width_bits = COL_KIND == TILE_MX32 ? 5 : 7;
    long long start = 0, end = a.rows;
    unsigned int first = 0, g = 0;
    t->owned = true;
    if (a.groups) {
        g = group_of(a.offsets, (unsigned int)a.groups, i);
        t->owned = g < a.groups;
        start = a.offsets[g], end = t->owned ? a.offsets[g + 1] : a.rows, first = (unsigned int)(start >> 7) + g;
    }
    t->r0 = start + (long long)(i - first) * TILE;
    t->rows = (int)min(end - t->r0, (long long)TILE);
    t->block = (start >> width_bits) + g + (long long)(i - first) * (TILE >> width_bits);
    return t->r0 < end;
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
