/* SPDX-License-Identifier: Apache-2.0
 *
 * tile8_groups.cuh: which group a strip of rows belongs to: group g owns those from offsets[g] / (their rows) + g.
 *
 *   defines   STRIP_BITS: of the rows of a strip
 */
#ifndef MOII_TILE8_GROUPS_CUH
#define MOII_TILE8_GROUPS_CUH

/* Whether group m, or (m = groups) what lies behind all, begins at strip i or before. */
MOII_FN bool begun(const long long *offsets, unsigned int m, unsigned int i) { return (unsigned int)(offsets[m] >> STRIP_BITS) + m <= i; }

/* The last that has begun.  Each lane asks one of 32 boundaries at a time.  (Apart: it shall not have a say in the registers of what follows.) */
static __device__ __noinline__ unsigned int group_among_many(const long long *offsets, unsigned int groups, unsigned int i)
{
    unsigned int low = 0, high = groups;
    while (low < high) {
        const unsigned int step = (high - low + 31) / 32, m = low + (thread_index() % 32 + 1) * step;
        low += __popc(__ballot_sync(0xFFFFFFFFu, m <= high && begun(offsets, m, i))) * step;
        high = min(high, low + step - 1);
    }
    return low;
}

/* The same: all boundaries at once where there are not too many. */
MOII_FN unsigned int group_of(const long long *offsets, unsigned int groups, unsigned int i)
{
    enum { ROUNDS = 4 };
    if (groups > 32 * ROUNDS) return group_among_many(offsets, groups, i);
    unsigned int there = 0;
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        const unsigned int m = k * 32 + thread_index() % 32 + 1;
        there += __popc(__ballot_sync(0xFFFFFFFFu, m <= groups && begun(offsets, m, i)));
    }
    return there;
}

#endif
