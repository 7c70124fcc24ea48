/* SPDX-License-Identifier: Apache-2.0
 * parts.hpp: what the emulator's own files share. */
#ifndef EMU_PARTS_HPP
#define EMU_PARTS_HPP

#include <string>
#include <vector>

#include "emulator.h"
#include "machine.hpp"

struct emu_kernel {
    void *library;
    char name[128];
    void (*entry)(const void *args);
    int args_bytes;
};

namespace emu {

enum { STACK = 64 << 10, NEAR = 4096 }; /* of a thread; what lies around an allocation and belongs to nobody */
enum { SHARED_BYTES = SHARED_FIRST + (227 << 10) + SHARED_STATIC }; /* of a block: nothing, the dynamic kind, the static kind */

struct grid {
    const emu_kernel *kernel;
    dims size;
    int threads, dynamic_bytes, cluster_size;
    std::vector<char> args;
    grid *before; /* of its chain */
    long long next;
    std::vector<block *> live;
    long long blocks() const { return (long long)size.x * size.y * size.z; }
    bool done() const { return next >= blocks() && live.empty(); }
};

extern machine device;
unsigned int random_below(unsigned int n);

/* copies.cpp, products.cpp: the functions of the machine that those files hold. */
void fill_units(machine *m);
void fill_products(machine *m);
/* Some of the copies under way arrive; false: there were none. */
bool copies_some();
bool loads_left(const block *b);
copies *no_copies();
void stores_finish(thread *t);
bool encode(moii_cu_tensor_map *map, moii_cuenum type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides_bytes,
            const uint32_t *box, moii_cuenum swizzle);

/* races.cpp: nothing where it is not asked for. */
extern bool checking;
void races_begin(block *b);
void lanes_order(thread *const lane[32]);
void meeting_release(thread *t, int barrier);
void meeting_complete(thread *t, int barrier);
void meeting_acquire(thread *t, int barrier);
void cluster_release(thread *t);
void cluster_complete(const cluster *c);
void cluster_acquire(thread *t);
void mbarrier_release(const mbarrier *b, thread *t);
void mbarrier_complete(const mbarrier *b);
void mbarrier_acquire(const mbarrier *b, thread *t);
void copier_writes(block *b, int at, int bytes, const mbarrier *barrier, thread *issuer);
void copier_reads(int at, int bytes, thread *issuer); /* of its block's memory */
void copies_known(thread *t); /* those that it sent have read */
void touch(const void *p, int bytes, int kind);
void doubts_settle();
/* bytes 0: it is no more. */
void allocation(const void *p, size_t bytes);

/* kernel.cpp */
emu_kernel *kernel_load(const void *image);
void kernel_unload(emu_kernel *kernel);
int kernel_args_bytes(const emu_kernel *kernel);

/* Where the swizzle of that many bytes (0, 32, 64, 128) puts what lies at an address. */
static inline unsigned int swizzled(unsigned int address, int bytes) { return bytes ? address ^ (address >> 3 & (unsigned int)(bytes - 16)) : address; }

}

#endif
