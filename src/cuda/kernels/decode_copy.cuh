/* SPDX-License-Identifier: Apache-2.0
 * decode_copy.cuh: copies into shared memory that go on by themselves, reads of it, and waiting for the grid before. */
#ifndef MOII_DECODE_COPY_CUH
#define MOII_DECODE_COPY_CUH

#include "num.h"

MOII_FN unsigned int shared_of(const void *p) { return (unsigned int)__cvta_generic_to_shared(p); }

/* This thread's copy of 16 bytes, or of 4; zeros instead where it is not `valid`. */
MOII_FN void copy_16(unsigned int to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
MOII_FN void copy_4(unsigned int to, const void *from, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}
/* Copies since the last call are one group; wait until at most `RING` - 2 groups are on their way. */
MOII_FN void copies_close() { asm volatile("cp.async.commit_group;" ::: "memory"); }
MOII_FN void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(RING - 2) : "memory"); }

MOII_FN uint2 shared_pair(unsigned int at)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
    return v;
}
MOII_FN unsigned int shared_word(unsigned int at)
{
    unsigned int v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
    return v;
}

/* Programmatic dependent launch: the grid before has ended, and what it wrote is there; the next may start. */
MOII_FN void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
MOII_FN void grid_release() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

#endif
