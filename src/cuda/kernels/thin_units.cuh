/* SPDX-License-Identifier: Apache-2.0
 * thin_units.cuh: how a block of thin_sm90, mixed_sm90 or halves_sm90 begins, and which tiles there are, found in lists that it makes once: those a grid apart
 * (thin_apart.cuh), or those that are drawn (thin_cards.cuh). */
#ifndef MOII_THIN_UNITS_CUH
#define MOII_THIN_UNITS_CUH

typedef struct unit {
    int group;
    int row, rows; /* of A: the tile's first within its matrix, how many are there */
    int d_row;     /* of D */
    int line;      /* of B, the tile's first; SWIGLU: of gate */
} unit;

/* In shared memory: units in front of each group, and behind the last; rows' offsets, or how many rows each group has. */
typedef struct group_list { const int *before; int count; } group_list;
MOII_FN int group_begin(const group_list &l, int g) { return GROUPS == PRODUCT_ROWS ? l.before[THIN_GROUPS + 1 + g] : 0; }
MOII_FN int group_rows(const group_list &l, int g)
{
    const int *at = l.before + THIN_GROUPS + 1 + g;
    return GROUPS == PRODUCT_ROWS ? max(at[1] - at[0], 0) : at[0];
}
MOII_FN int units_in_all(const group_list &l) { return l.before[l.count]; }

/* All threads. */
MOII_FN void groups_read(const product_args &a, int *to)
{
    const group_list l = { to, a.groups };
    int *rows = to + THIN_GROUPS + 1;
    for (int g = (int)threadIdx.x; g < a.groups + (GROUPS == PRODUCT_ROWS); g += (int)blockDim.x) {
#if GROUPS == PRODUCT_DENSE
        rows[g] = a.m;
#elif GROUPS == PRODUCT_MASKED
        rows[g] = (int)min(max(__ldg(a.offsets + g), 0ll), (long long)a.m);
#else
        rows[g] = (int)__ldg(a.offsets + g);
#endif
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        int sum = 0;
#pragma unroll 1
        for (int from = 0; from <= a.groups; from += 32) {
            const int g = from + (int)threadIdx.x, n = g < a.groups ? (group_rows(l, g) + BN - 1) / BN * a.n_tiles : 0;
            const int upto = sum + lane_scan(n, (int)threadIdx.x);
            if (g <= a.groups) to[g] = upto - n;
            sum = __shfl_sync(~0u, upto, 31);
        }
    }
    __syncthreads();
}

/* All threads: barriers, then, behind the grid before, the lists. */
MOII_FN group_list begin_block(const product_args &a, unsigned int base, int *lists)
{
    if (threadIdx.x == 0) ring_open(base);
    if (threadIdx.x == 32) map_prefetch(&a.a_map), map_prefetch(&a.b_map);
    grid_wait();
    grid_release();
    groups_read(a, lists);
    const group_list l = { lists, a.groups };
    return l;
}

/* The last of 32 places, `apart` from `first` on and before `end`, in front of which there are no more than i units; a whole warp. */
MOII_FN int last_place(const group_list &l, int i, int first, int apart, int end)
{
    const int at = first + (int)threadIdx.x % 32 * apart;
    return first + (__popc(__ballot_sync(~0u, at < end && l.before[min(at, l.count)] <= i)) - 1) * apart;
}

/* A whole warp; there is such a unit. */
MOII_FN unit find_unit(const product_args &a, const group_list &l, int i)
{
    const int apart = (l.count + 31) / 32, first = last_place(l, i, 0, apart, l.count);
    unit u;
    u.group = last_place(l, i, first, 1, min(first + apart, l.count));
    const int all = group_rows(l, u.group), high = (all + BN - 1) / BN, in = i - l.before[u.group];
    const int across = high == 1 ? in : in / high, down = (in - across * high) * BN;
    u.row = group_begin(l, u.group) + down, u.rows = min(all - down, BN);
    u.d_row = GROUPS == PRODUCT_MASKED ? u.group * a.m + down : u.row;
    u.line = across * (SWIGLU ? BM / 2 : BM);
    return u;
}

#endif
