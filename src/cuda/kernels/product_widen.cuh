/* SPDX-License-Identifier: Apache-2.0
 *
 * product_widen.cuh: A of 8 bits with a scale for every 32 values, which product_sm90.cuh multiplies as BF16 (WIDENS: the codes' ELEM).  The warps
 * that would load scales make the copy, a little ahead of the tiles that need it, so that it comes out of L2 and costs no time of its own.
 *
 * Tickets of WIDEN_ROWS rows are drawn from a counter.  Whoever draws one widens it without waiting for anyone, and a warp draws until those of
 * its own block's tile are drawn: no block waits for one that has yet to be started. */
#ifndef MOII_PRODUCT_WIDEN_CUH
#define MOII_PRODUCT_WIDEN_CUH

#if WIDENS
#define WIDEN_E5M2 (WIDENS == PRODUCT_E5M2)
#include "widen.cuh"

/* Rows in front of a tile's that are to be ready before it: the next tiles'. */
#define WIDEN_AHEAD 2048

MOII_FN unsigned int codes_scale(const product_args &a, int row, int block)
{
    return __ldg((const unsigned char *)a.a_scales.p + scale_index(a.a_scales, (unsigned int)row, (unsigned int)block));
}

/* A warp: rows of one ticket, 16 values of each for each lane at a time: half a block of one scale. */
MOII_FN void widen_ticket(const product_args &a, int first)
{
    const int lane = (int)threadIdx.x % 32, rows = min(WIDEN_ROWS, a.m - first), pieces = a.k / 16;
    const unsigned char *from = (const unsigned char *)a.a + first * a.a_pitch;
    unsigned short *to = (unsigned short *)a.wide + (long long)first * a.k;
#pragma unroll 1
    for (int p = lane; p < pieces; p += 32) {
        uint4 v[WIDEN_ROWS];
        unsigned int scale[WIDEN_ROWS];
#pragma unroll
        for (int r = 0; r < WIDEN_ROWS; r++) {
            if (r >= rows) break;
            v[r] = __ldg((const uint4 *)(from + r * a.a_pitch + p * 16)), scale[r] = codes_scale(a, first + r, p / 2);
        }
#pragma unroll
        for (int r = 0; r < WIDEN_ROWS; r++) {
            if (r >= rows) break;
            const float by = moii_e8m0_decode(scale[r]);
            uint4 *out = (uint4 *)(to + (long long)r * a.k + p * 16);
            out[0] = make_uint4(widen_pair(v[r].x, by), widen_pair(v[r].x >> 16, by), widen_pair(v[r].y, by), widen_pair(v[r].y >> 16, by));
            out[1] = make_uint4(widen_pair(v[r].z, by), widen_pair(v[r].z >> 16, by), widen_pair(v[r].w, by), widen_pair(v[r].w >> 16, by));
        }
    }
    __threadfence();
    global_to_async();
    __syncwarp();
    if (lane == 0) count_up(a.counters + 1 + first / WIDEN_CHUNK);
}

/* A loading warp: whatever the block's tiles need, and what lies a little ahead. */
MOII_FN void widen_rows(const product_args &a, const shared &s)
{
    hand h = 0;
    unit u;
    for (int drawn = -1; take_card(s, h, &u); return_card(s, &h)) {
        const int end = min(a.m, u.row + BM + WIDEN_AHEAD);
        while ((drawn + 1) * WIDEN_ROWS < end) {
            int ticket = 0;
            if (threadIdx.x % 32 == 0) ticket = atomicAdd(a.counters, 1);
            drawn = uniform(ticket);
            if (drawn * WIDEN_ROWS < a.m) widen_ticket(a, drawn * WIDEN_ROWS);
        }
    }
}

/* The thread that loads tiles: waits for rows up to `end`; ready: chunks of rows that are known to be. */
MOII_FN void await_rows(const product_args &a, int end, int *ready)
{
    end = min(end, a.m);
    if (*ready * WIDEN_CHUNK >= end) return;
    for (; *ready * WIDEN_CHUNK < end; ++*ready) {
        const int tickets = (min(WIDEN_CHUNK, a.m - *ready * WIDEN_CHUNK) + WIDEN_ROWS - 1) / WIDEN_ROWS;
        while (counted(a.counters + 1 + *ready) < tickets) __nanosleep(64);
    }
    global_to_async();
}
#else
MOII_FN void widen_rows(const product_args &, const shared &) {}
MOII_FN void await_rows(const product_args &, int, int *) {}
#endif

#endif
