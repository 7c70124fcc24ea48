/* SPDX-License-Identifier: Apache-2.0
 * product_gather.cuh: rows of A that an index list names, for product_sm90.cuh.
 *
 * A tensor map has no list of rows, so the loading warps copy A themselves: pieces of 16 bytes, placed as a map with a 128-byte swizzle would
 * place them.  Their copies end in the background; a stage is announced GATHER_LAG stages later, when they have. */
#ifndef MOII_PRODUCT_GATHER_CUH
#define MOII_PRODUCT_GATHER_CUH

#define GATHER_LAG (STAGES > 3 ? 2 : 1)

typedef struct announcer { /* what one warp has yet to announce */
    ring next;
    int pending;
    unsigned int squares; /* fetched so far */
} announcer;

MOII_FN int gathered_row(const shared &s, int row) { return ((const int *)(s.p + GATHER_AT))[row]; }

/* The tile's rows of A, into shared memory; rows that are not there: any. */
MOII_FN void gather_open(const product_args &a, const shared &s, const unit &u)
{
    threads_meet(3, LOADERS); /* the last unit's are read */
    for (int row = (int)threadIdx.x - 32; row < BM; row += LOADERS) {
        const int index = row < u.rows ? __ldg(a.rows_of_a + u.row + row) : 0;
        ((int *)(s.p + GATHER_AT))[row] = min(max(index, 0), a.a_rows - 1);
    }
    threads_meet(3, LOADERS);
}

/* Eight threads copy a row's 128 bytes; behind the reduction's end: zeros. */
MOII_FN void gather_stage(const product_args &a, const shared &s, const unit &u, unsigned int stage, int k)
{
    const int t = (int)threadIdx.x - 32, piece = t % 8, at = k * (BITS16 ? 2 : 1) + piece * 16, rows = min(u.rows, BM);
    const bool there = at < a.k * (BITS16 ? 2 : 1);
    const char *from = (const char *)a.a + (there ? at : 0);
    const unsigned int to = tile_at(s, stage), pitch = (unsigned int)(a.a_pitch / 16); /* in sixteens: 32 bits */
#pragma unroll(SWIGLU || E8M0_SCALES ? 2 : THREADS > 384 ? 4 : 8) /* registers are short */
    for (int row = t / 8; row < rows; row += LOADERS / 8)
        piece_load(to + row * 128 + ((piece ^ (row & 7)) << 4), from + (unsigned long long)((unsigned int)gathered_row(s, row) * pitch) * 16, there ? 16 : 0);
}

/* What this warp copied and stored is visible to the tensor cores: an arrival at the oldest stage. */
MOII_FN void announce_oldest(const shared &s, announcer *n)
{
    shared_to_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(full_barrier(s, n->next.stage));
    ring_step(&n->next);
    n->pending--;
}

MOII_FN void gather_close(const shared &s, announcer *n)
{
    copies_commit();
    if (++n->pending > GATHER_LAG) {
        COPIES_WAIT(GATHER_LAG);
        announce_oldest(s, n);
    }
}

MOII_FN void gather_end(const shared &s, announcer *n)
{
    COPIES_WAIT(0);
    while (n->pending > 0) announce_oldest(s, n);
}

#endif
