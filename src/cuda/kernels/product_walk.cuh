/* SPDX-License-Identifier: Apache-2.0
 * product_walk.cuh: how a multiplying warp of product_sm90.cuh goes from unit to unit. */
#ifndef MOII_PRODUCT_WALK_CUH
#define MOII_PRODUCT_WALK_CUH

/* A multiplying warp's way through its units.  The present one, the next one and where it looks for more wait in shared memory rather than
 * in registers: three pieces of 8 words. */
typedef struct walk {
    bool more;         /* whether the next unit is there */
    unsigned int slot; /* 0 or 1: which piece holds it */
} walk;

/* Of all lanes the same, and known to be. */
MOII_FN int uniform(int x) { return __shfl_sync(~0u, x, 0); }

MOII_FN int *walk_piece(const shared &s, unsigned int piece) { return (int *)(s.p + UNITS_AT) + ((as_it_is(threadIdx.x) / 32 - 4) * 3 + piece) * 8; }

MOII_FN void walk_keep(const shared &s, const cursor &c, int i)
{
    int *to = walk_piece(s, 2);
    if (threadIdx.x % 32 == 0) *(int4 *)to = make_int4(c.group, c.first, c.begin, c.end), *(int2 *)(to + 4) = make_int2(c.band, i);
    __syncwarp();
}

MOII_FN void find_next(const product_args &a, const shared &s, walk *t)
{
    const int *from = walk_piece(s, 2);
    const int4 v = *(const int4 *)from;
    const int2 w = *(const int2 *)(from + 4);
    cursor c;
    unit u;
    c.group = v.x, c.first = v.y, c.begin = v.z, c.end = v.w, c.band = w.x;
    t->more = uniform(find_unit(a, &c, w.y, CLUSTER * SPLIT > 1 ? cluster_rank() : 0, &u));
    t->slot ^= 1;
    __syncwarp();
    if (threadIdx.x % 32 == 0 && t->more) {
        int *to = walk_piece(s, t->slot);
        *(int4 *)to = make_int4(u.group, u.row, u.rows, u.col);
        *(int4 *)(to + 4) = make_int4(u.d_row, u.k, u.k_end, u.block);
    }
    walk_keep(s, c, w.y + units_apart());
}

MOII_FN unit recall_unit(const shared &s, unsigned int slot)
{
    const int *from = walk_piece(s, slot);
    const int4 v = *(const int4 *)from, w = *(const int4 *)(from + 4);
    unit u;
    u.group = v.x, u.row = v.y, u.rows = v.z, u.col = v.w, u.d_row = w.x, u.block = w.w;
    u.k = uniform(w.y), u.k_end = uniform(w.z);
    return u;
}

#endif
