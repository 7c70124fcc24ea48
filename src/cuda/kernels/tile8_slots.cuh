/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_slots.cuh: slots of 32 rows, each a block of every column: slot s stands for codes 32 s .. 32 s + 31 of a column.  With groups, group g owns those
 * from offsets[g] / 32 + g, which is where its codes begin, and each has its own rows: so groups cost no tiles of their own.  A slot that has fewer rows, or
 * none, is filled up with zeros, as are those of rows that no group owns, down columns.
 *
 *   defines   STRIP_SLOTS: so many, one after another, are a strip.  COL_REBASE: it is 4, and a group's strips begin with its first slot, so that
 *             slots whose scales are equal lie in one tile; it has those from offsets[g] / 128 + g on, some of which may be without slots.
 *             ALL_ROWS: 1 where rows that no group owns count, too;  RAGGED: groups cut the rows
 */
#ifndef MOII_TILE8_SLOTS_CUH
#define MOII_TILE8_SLOTS_CUH

#define SLOT_BITS 5
#define SLOT (1 << SLOT_BITS)
#define STRIP_BITS (COL_REBASE ? SLOT_BITS + 2 : SLOT_BITS) /* of what begins with each group */
#include "tile8_groups.cuh"

/* Rows of a slot; valid ones come first. */
typedef struct slot { long long r0; int rows, owned; } slot;
/* Of a strip: the first slot, and the codes of a column that are its own from there on. */
typedef struct strip { int first, left; } strip;

MOII_FN strip strip_whole(long long blocks, unsigned int i)
{
    strip b;
    b.first = (int)i * STRIP_SLOTS, b.left = (int)min((blocks - b.first) << SLOT_BITS, (long long)STRIP_SLOTS * SLOT);
    return b;
}

#if RAGGED
/* Where group g begins and ends, and g itself: the last that begins at slot (COL_REBASE: strip) i or before, `groups` behind them all. */
typedef struct range { long long begin, end; unsigned int group; } range;

/* One round of asking for all boundaries, each lane four of them: what lies around the slot is known with it. */
MOII_FN range range_of(const tile8_cut &cut, unsigned int i)
{
    enum { ROUNDS = 4 };
    const unsigned int groups = (unsigned int)cut.groups, lane = threadIdx.x % 32;
    range r = { 0, cut.rows, 0 };
    if (groups > 32 * ROUNDS) {
        r.group = group_among_many(cut.offsets, groups, i);
        r.begin = cut.offsets[r.group];
        if (r.group < groups) r.end = cut.offsets[r.group + 1];
        return r;
    }
    long long at[ROUNDS];
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        const unsigned int m = k * 32 + lane + 1;
        at[k] = m <= groups ? cut.offsets[m] : cut.rows;
    }
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        if (r.group != 32 * k) continue; /* not all of the rounds before have begun, so none of this one has */
        const unsigned int m = k * 32 + lane + 1, before = __popc(__ballot_sync(0xFFFFFFFFu, m <= groups && (unsigned int)(at[k] >> STRIP_BITS) + m <= i));
        r.group += before;
        if (before) r.begin = __shfl_sync(0xFFFFFFFFu, at[k], before - 1);
        if (before < 32) r.end = __shfl_sync(0xFFFFFFFFu, at[k], before);
    }
    return r;
}

/* A whole warp finds out about the k-th slot of strip i, and what the strip is. */
MOII_FN slot find_slot(const tile8_cut &cut, long long blocks, unsigned int i, int k, strip *b)
{
#if COL_REBASE
    const range r = range_of(cut, i);
    const long long ends = r.group < (unsigned int)cut.groups ? (r.end >> SLOT_BITS) + r.group + 1 : blocks;
    b->first = (int)((unsigned int)(r.begin >> SLOT_BITS) + r.group + STRIP_SLOTS * (i - ((unsigned int)(r.begin >> STRIP_BITS) + r.group)));
    b->left = (int)max(min(ends - b->first, (long long)STRIP_SLOTS), 0LL) << SLOT_BITS;
#else
    *b = strip_whole(blocks, i);
    const range r = range_of(cut, (unsigned int)(b->first + k));
#endif
    slot s;
    s.owned = r.group < (unsigned int)cut.groups;
    s.r0 = r.begin + ((long long)((unsigned int)(b->first + k) - ((unsigned int)(r.begin >> SLOT_BITS) + r.group)) << SLOT_BITS);
    s.rows = (int)max(min(r.end - s.r0, (long long)SLOT), 0LL);
    if (!ALL_ROWS && !s.owned) s.rows = 0;
    return s;
}

/* The padding of rows' scales behind the last row becomes 0, where no tile ends with it: of 128 columns, by 512 threads. */
MOII_FN void clear_padding(const tile8_side &side, long long rows, long long c0)
{
    const long long last = side.layout == SCALES_TILED ? 127 : side.layout == SCALES_COL ? 15 : 0, r = rows + threadIdx.x / 4;
    if (r < ((rows + last) & ~last)) ((unsigned char *)side.scale)[scale_place(side, r, c0 / 32 + threadIdx.x % 4, 15)] = 0;
}
#endif

#endif
