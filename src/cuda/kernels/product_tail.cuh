/* SPDX-License-Identifier: Apache-2.0
 * product_tail.cuh: the last stage of a group of a ragged reduction, in product_sm90.cuh. */
#ifndef MOII_PRODUCT_TAIL_CUH
#define MOII_PRODUCT_TAIL_CUH

/* The last stage of a ragged reduction holds the next group's values behind `there`: they become 0, in A and B alike, for 0 x NaN is NaN. */
MOII_FN void clear_tail(const shared &s, unsigned int stage, int there)
{
    char *p = s.p + STAGE_BYTES * stage;
    const int t = (int)threadIdx.x - 128;
#if A_TURNED || B_TURNED
    for (int i = t; i < STAGE_BYTES / 16; i += CONSUMERS) /* lines of 128 bytes, 64 to a run */
        if (i / 8 % 64 >= there) ((uint4 *)p)[i] = make_uint4(0, 0, 0, 0);
#else
    const int size = BITS16 ? 2 : 1;
#pragma unroll 1
    for (int row = t; row < BM + COLUMNS; row += CONSUMERS)
#pragma unroll 1
        for (int i = there * size / 16 * 16; i < 128; i += size) {
            if (i < there * size) continue;
            const int at = row * 128 + ((i / 16 ^ (row & 7)) * 16 + i % 16);
            if (BITS16) *(unsigned short *)(p + at) = 0;
            else p[at] = 0;
        }
#endif
    shared_to_async();
    threads_meet(1, CONSUMERS);
}

MOII_FN void stage_cleared(const shared &s, const unit &u, ring at, int step)
{
    if (!STAGES_STRADDLE || u.k_end - u.k - step * STEP >= STEP) return;
    barrier_wait(full_barrier(s, at.stage), at.parity);
    clear_tail(s, at.stage, u.k_end - u.k - step * STEP);
}

#endif
