/* SPDX-License-Identifier: Apache-2.0
 * thin_ring.cuh: the ring of stages of thin_sm90 and mixed_sm90. */
#ifndef MOII_THIN_RING_CUH
#define MOII_THIN_RING_CUH

typedef struct ring { /* where a role stands in the stages */
    unsigned int stage, parity;
} ring;

MOII_FN void ring_step(ring &r)
{
    if (++r.stage == STAGES) r.stage = 0, r.parity ^= 1;
}

MOII_FN unsigned int full_barrier(unsigned int base, unsigned int stage) { return base + BARRIERS_AT + 16 * stage; }
MOII_FN unsigned int empty_barrier(unsigned int base, unsigned int stage) { return base + BARRIERS_AT + 16 * stage + 8; }

MOII_FN void ring_open(unsigned int base)
{
    for (unsigned int i = 0; i < STAGES; i++) barrier_init(full_barrier(base, i), STAGE_ARRIVALS), barrier_init(empty_barrier(base, i), 4 * WGS);
    barrier_init_done();
}

MOII_FN void release_stage(unsigned int base, unsigned int stage)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty_barrier(base, stage));
}

#endif
