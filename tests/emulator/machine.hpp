/* SPDX-License-Identifier: Apache-2.0
 *
 * machine.hpp: what the emulated device is made of, shared by the machine (machine.cpp, copies.cpp, races.cpp, products.cpp) and by the device
 * code that runs on it.
 *
 * All threads of the device are fibres of one thread of this process, so that a run repeats exactly.  A thread runs until it must wait: for lanes
 * of its warp, at a barrier, for a copy.  The order of warps and the moment at which copies arrive are random (EMU_SEED).  What no device would
 * forgive ends the process with a message: a collective that lanes reach with different masks or at different instructions, shared memory out of
 * bounds, a barrier that was not made, threads that wait for ever. */
#ifndef EMU_MACHINE_HPP
#define EMU_MACHINE_HPP

#include <stdint.h>
#include <string.h>

namespace emu {

struct block;
struct thread;
struct dims { unsigned int x, y, z; };

enum wait_kind { RUNS, LANES, MEETS, FILLS, CLUSTER, GRID, AGAIN, ENDED };

/* What lanes do together: the last one to arrive does it for all of `lane`, those that are not in the mask being null. */
typedef void (*together_fn)(thread *const lane[32]);

struct thread {
    void *stack, *place; /* where the fibre's stack begins, and where it stands */
    block *in;
    dims tid;
    int index;
    wait_kind wait;
    const void *given;        /* LANES */
    void *taken;
    int meets;                /* MEETS: at which barrier */
    unsigned int turn;        /* MEETS: behind how many meetings */
    unsigned int cluster_turn;
    const uint64_t *barrier;  /* FILLS: until the phase of this parity is over */
    unsigned int parity;
    struct copies *own;       /* cp.async of this thread */
    struct past *knows;       /* races.cpp */
};

/* An mbarrier's 8 bytes. */
struct mbarrier {
    uint64_t phase : 1, made : 3, pending : 12, expected : 12;
    int64_t bytes : 36;
};
enum { MADE = 5 };

enum { SHARED_FIRST = 1024, SHARED_STATIC = 48 << 10 }; /* address of dynamic shared memory; room for the static kind, behind it */

/* Lanes of a warp that wait for others: by instruction and mask. */
enum { GATHERINGS = 8 };
struct gathering { together_fn what; unsigned int mask, here; };
struct warp { unsigned int ended; gathering open[GATHERINGS]; };

struct meeting { int threads, here; unsigned int turn; };
struct cluster { int here, threads; unsigned int turn; int size; block *member[16]; };

struct block {
    struct grid *of;
    cluster *group;
    dims index;
    int rank, threads, alive, dynamic_bytes;
    bool released;
    char *memory; /* shared memory; address 0 */
    int static_bytes, static_at[16];
    meeting barrier[16];
    thread *thread_at;
    warp *warp_at;
    struct shadow *marks; /* races.cpp */
};

/* What a bulk copy needs of cuTensorMapEncodeTiled: lies in the map's 128 bytes. */
struct tensor_map {
    char *base;
    uint64_t size[5], stride[4]; /* stride[i]: bytes of a step in dimension i + 1 */
    uint32_t box[5];
    uint8_t rank, element, swizzle, made;
};
static_assert(sizeof(tensor_map) <= 128, "it is a CUtensorMap's place");

enum { READS = 1, WRITES, CHANGES /* atomically */ };

/* What the machine does for device code. */
struct machine {
    thread *self;
    const char *kernel;
    dims grid, threads; /* of the running kernel */
    void (*wait)(wait_kind);
    void (*fail)(const char *text);
    void (*together)(together_fn, unsigned int mask, const void *given, void *taken);
    void *(*fixed)(int id, int bytes);
    char *(*shared)(unsigned int address, int bytes);
    unsigned int (*address)(const void *p);
    void (*meet)(int barrier, int threads, bool waits);
    void (*cluster_arrive)();
    void (*release)();
    void (*arrive)(unsigned int barrier, int count, int bytes);
    bool (*phase_over)(unsigned int barrier, unsigned int parity);
    void (*copy)(unsigned int to, const void *from, int bytes, int valid);
    void (*copies_close)();
    void (*copies_wait)(int groups);
    void (*copies_arrive)(unsigned int barrier);
    void (*run_load)(unsigned int to, const void *from, unsigned int bytes, unsigned int barrier, unsigned int blocks);
    void (*box_load)(unsigned int to, uint64_t map, const int at[5], unsigned int barrier, unsigned int blocks);
    void (*box_store)(uint64_t map, const int at[5], unsigned int from, bool adds);
    void (*boxes_wait)();
    void (*product)(const char *shape, float *const *d, uint64_t a, uint64_t b, bool more, int a_turned, int b_turned);
    void (*product_kept)(const char *shape, float *const *d, const uint32_t a[4], uint64_t b, bool more);
    void (*touch)(const void *p, int bytes, int kind);
    void (*mma)(bool bf16, const uint32_t given[6], float d[4]);
};

}

#endif
