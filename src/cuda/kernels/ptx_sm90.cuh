/* SPDX-License-Identifier: Apache-2.0
 * ptx_sm90.cuh: barriers in shared memory, bulk copies by tensor map, clusters: one function per instruction.  Source: PTX ISA 8.0, 9.7. */
#ifndef MOII_PTX_SM90_CUH
#define MOII_PTX_SM90_CUH

#include "bf16x2.cuh"
#include "evict.h"
#include "num.h"

MOII_FN unsigned int shared_address(const void *p) { return (unsigned int)__cvta_generic_to_shared(p); }

MOII_FN float shared_read(unsigned int address)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
    return v;
}

MOII_FN float2 shared_read_pair(unsigned int address)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
    return v;
}

MOII_FN uint4 shared_read_four(unsigned int address)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
    return v;
}

MOII_FN void shared_write_four(unsigned int address, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

MOII_FN float4 shared_read_floats(unsigned int address)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address) : "memory");
    return v;
}

MOII_FN void shared_write_floats(unsigned int address, float a, float b, float c, float d)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(address), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

MOII_FN void shared_write_pair(unsigned int address, float a, float b)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(address), "f"(a), "f"(b) : "memory");
}

MOII_FN void shared_write_byte(unsigned int address, unsigned int v) { asm volatile("st.shared.u8 [%0], %1;" :: "r"(address), "r"(v) : "memory"); }
MOII_FN void shared_write_word(unsigned int address, unsigned int v) { asm volatile("st.shared.u32 [%0], %1;" :: "r"(address), "r"(v) : "memory"); }
MOII_FN void shared_write(unsigned int address, float v) { asm volatile("st.shared.f32 [%0], %1;" :: "r"(address), "f"(v) : "memory"); }

MOII_FN void shared_write_two(unsigned int address, uint2 v)
{
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(address), "r"(v.x), "r"(v.y) : "memory");
}

MOII_FN uint2 shared_read_two(unsigned int address)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
    return v;
}

MOII_FN unsigned int shared_read_word(unsigned int address)
{
    unsigned int v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

MOII_FN unsigned int shared_read_half(unsigned int address)
{
    unsigned int v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

MOII_FN unsigned int shared_read_byte(unsigned int address)
{
    unsigned int v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

/* Of two pairs of unsigned numbers of 16 bits the larger ones. */
MOII_FN unsigned int larger_pair(unsigned int a, unsigned int b)
{
    unsigned int m;
    asm("max.u16x2 %0, %1, %2;" : "=r"(m) : "r"(a), "r"(b));
    return m;
}

/* The same number, of which the compiler no longer knows where it comes from: sums with it stay where they are written. */
MOII_FN unsigned int as_it_is(unsigned int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* (x & mask) | beside, by one instruction also where both are constants, of which an instruction takes one. */
MOII_FN unsigned int bits_beside(unsigned int x, unsigned int mask, unsigned int beside)
{
    unsigned int v;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(v) : "r"(x), "r"(mask), "r"(beside));
    return v;
}
/* Bits where mask has them from a, elsewhere from b, by one instruction where mask is a constant, too. */
MOII_FN unsigned int bits_of_two(unsigned int a, unsigned int b, unsigned int mask)
{
    unsigned int v;
    asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(v) : "r"(a), "r"(b), "r"(mask));
    return v;
}

/* ---- barriers: 8 bytes of shared memory, named by their address ---- */

MOII_FN void barrier_init(unsigned int barrier, unsigned int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}

MOII_FN void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

MOII_FN void barrier_arrive(unsigned int barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

/* An arrival that also announces bytes to come from bulk copies. */
MOII_FN void barrier_expect(unsigned int barrier, unsigned int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

/* At the same barrier of another block of the cluster. */
MOII_FN void barrier_arrive_at(unsigned int barrier, unsigned int block)
{
    asm volatile("{\n .reg .b32 there;\n mapa.shared::cluster.u32 there, %0, %1;\n"
                 " mbarrier.arrive.shared::cluster.b64 _, [there];\n}" :: "r"(barrier), "r"(block) : "memory");
}

/* Waits for the end of the phase of this parity: 0 for the first, and 1 is over before anything has begun. */
MOII_FN void barrier_wait(unsigned int barrier, unsigned int parity)
{
    asm volatile("{\n .reg .pred done;\n again:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, %2;\n"
                 " @!done bra again;\n}" :: "r"(barrier), "r"(parity), "n"(10000000) : "memory");
}

/* One of the 15 barriers that whole warps share: `threads` of them meet. */
MOII_FN void threads_meet(int barrier, int threads) { asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory"); }

/* The calling threads are among those that meet, and do not wait for the others. */
MOII_FN void threads_pass(int barrier, int threads) { asm volatile("bar.arrive %0, %1;" :: "r"(barrier), "r"(threads) : "memory"); }

/* ---- copies of boxes of a tensor map into shared memory ---- */

MOII_FN void map_prefetch(const void *map)
{
    asm volatile("prefetch.tensormap [%0];" :: "l"((unsigned long long)map) : "memory");
}

MOII_FN void box_load(unsigned int to, const void *map, unsigned int barrier, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 :: "r"(to), "l"((unsigned long long)map), "r"(barrier), "r"(x), "r"(y), "r"(z) : "memory");
}

/* With one of evict.h's policies. */
MOII_FN void box_load_as(unsigned int to, const void *map, unsigned int barrier, int x, int y, int z, unsigned long long policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :: "r"(to), "l"((unsigned long long)map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy) : "memory");
}

MOII_FN void box_load_as_4(unsigned int to, const void *map, unsigned int barrier, int x, int y, int z, int v, unsigned long long policy)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                 :: "r"(to), "l"((unsigned long long)map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(v), "l"(policy) : "memory");
}

/* Into L2 alone. */
MOII_FN void box_fetch(const void *map, int x, int y, int z)
{
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" :: "l"((unsigned long long)map), "r"(x), "r"(y), "r"(z) : "memory");
}

MOII_FN void box_fetch_4(const void *map, int x, int y, int z, int v)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];"
                 :: "l"((unsigned long long)map), "r"(x), "r"(y), "r"(z), "r"(v) : "memory");
}

MOII_FN void box_load_5(unsigned int to, const void *map, unsigned int barrier, int x, int y, int z, int v, int w)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
                 :: "r"(to), "l"((unsigned long long)map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(v), "r"(w) : "memory");
}

/* Into every block of the mask, at the same place, announced to the same barrier. */
MOII_FN void box_load_to(unsigned int to, const void *map, unsigned int barrier, int x, int y, int z, unsigned short blocks)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%3, %4, %5}], [%2], %6;"
                 :: "r"(to), "l"((unsigned long long)map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks) : "memory");
}

/* A run of bytes; addresses and count are multiples of 16. */
MOII_FN void run_load(unsigned int to, const void *from, unsigned int bytes, unsigned int barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(to), "l"((unsigned long long)__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier) : "memory");
}

/* Into every block of the mask, as box_load_to. */
MOII_FN void run_load_to(unsigned int to, const void *from, unsigned int bytes, unsigned int barrier, unsigned short blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                 :: "r"(to), "l"((unsigned long long)__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "h"(blocks) : "memory");
}

/* A box the other way; what lies outside of the map is left out.  Copies so far, of this thread, become one group by copies_close. */
MOII_FN void box_store(const void *map, unsigned int from, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :: "l"((unsigned long long)map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
}

/* The same, FP32, added to what is there. */
MOII_FN void box_add(const void *map, unsigned int from, int x, int y, int z)
{
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :: "l"((unsigned long long)map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
}

MOII_FN void copies_close() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/* Waits until this thread's groups no longer need the shared memory they come from. */
MOII_FN void copies_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

/* Four bytes, copied in the background; the thread's arrival at the barrier comes when its copies so far are there. */
MOII_FN void word_load(unsigned int to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"((unsigned long long)__cvta_generic_to_global(from)) : "memory");
}

/* By a policy of L2. */
MOII_FN void store_two(void *to, uint2 v, unsigned long long policy)
{
    asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;"
                 :: "l"((unsigned long long)__cvta_generic_to_global(to)), "r"(v.x), "r"(v.y), "l"(policy) : "memory");
}
MOII_FN void store_four(void *to, uint4 v, unsigned long long policy)
{
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;"
                 :: "l"((unsigned long long)__cvta_generic_to_global(to)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy) : "memory");
}
/* Without a branch, which lanes would take apart; by a policy of L2. */
MOII_FN void store_if(bool wanted, float *to, float v, unsigned long long policy)
{
    asm volatile("{\n .reg .pred there;\n setp.ne.b32 there, %2, 0;\n @there st.global.L2::cache_hint.f32 [%0], %1, %3;\n}"
                 :: "l"((unsigned long long)__cvta_generic_to_global(to)), "f"(v), "r"((int)wanted), "l"(policy) : "memory");
}
/* A line of 128 bytes that nobody reads again: L2 drops it where it would have to write it to memory.  What it held is lost. */
MOII_FN void line_discard(void *at)
{
    asm volatile("discard.global.L2 [%0], 128;" :: "l"((unsigned long long)__cvta_generic_to_global(at)) : "memory");
}
/* From L2; 0 where it is not wanted. */
MOII_FN float load_if(bool wanted, const float *from)
{
    float v = 0;
    asm volatile("{\n .reg .pred there;\n setp.ne.b32 there, %2, 0;\n @there ld.global.cg.f32 %0, [%1];\n}"
                 : "+f"(v) : "l"((unsigned long long)__cvta_generic_to_global(from)), "r"((int)wanted) : "memory");
    return v;
}
MOII_FN void word_load_if(bool wanted, unsigned int to, const void *from)
{
    asm volatile("{\n .reg .pred there;\n setp.ne.b32 there, %2, 0;\n @there cp.async.ca.shared.global [%0], [%1], 4;\n}"
                 :: "r"(to), "l"((unsigned long long)__cvta_generic_to_global(from)), "r"((int)wanted) : "memory");
}

MOII_FN void barrier_arrive_behind_words(unsigned int barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(barrier) : "memory");
}

/* 16 bytes, of which the first `bytes` are copied and the others zero; a group is what a thread copies up to its commit. */
MOII_FN void piece_load(unsigned int to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(to), "l"((unsigned long long)__cvta_generic_to_global(from)), "r"(bytes) : "memory");
}

MOII_FN void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define COPIES_WAIT(groups) asm volatile("cp.async.wait_group %0;" :: "n"(groups) : "memory")

/* ---- clusters, warps, registers ---- */

MOII_FN unsigned int cluster_rank()
{
    unsigned int r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

MOII_FN void cluster_meet()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The same in two halves, for barriers that barrier_init_done has announced: a release would also wait for copies under way. */
MOII_FN void cluster_here() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
MOII_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

/* Sends four floats to a place of another block, announced to that block's barrier as 16 bytes; both named by their addresses here. */
MOII_FN void floats_send(unsigned int to, float a, float b, float c, float d, unsigned int barrier, unsigned int block)
{
    asm volatile("{\n .reg .b32 there, bell;\n mapa.shared::cluster.u32 there, %0, %6;\n mapa.shared::cluster.u32 bell, %5, %6;\n"
                 " st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%1, %2, %3, %4}, [bell];\n}"
                 :: "r"(to), "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier), "r"(block) : "memory");
}

/* Sends a word to a place of another block, announced to that block's barrier as 4 bytes; both named by their addresses here. */
MOII_FN void word_send(unsigned int to, unsigned int word, unsigned int barrier, unsigned int block)
{
    asm volatile("{\n .reg .b32 there, bell;\n mapa.shared::cluster.u32 there, %0, %3;\n mapa.shared::cluster.u32 bell, %2, %3;\n"
                 " st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [bell];\n}"
                 :: "r"(to), "r"(word), "r"(barrier), "r"(block) : "memory");
}

/* Programmatic dependent launch: the grid before has ended, and what it wrote is there; the next may start.  Else they do nothing. */
MOII_FN void grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
MOII_FN void grid_release() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/* One lane of a converged warp, the same each time. */
MOII_FN bool elected()
{
    unsigned int yes;
    asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.b32 %0, 1, 0, p;\n}" : "=r"(yes));
    return yes != 0;
}

#define REGISTERS_GIVE(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(n))
#define REGISTERS_TAKE(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(n))

/* What generic stores wrote to shared memory becomes visible to copies and tensor cores. */
MOII_FN void shared_to_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* The same of global memory; each side of a copy's source needs it. */
MOII_FN void global_to_async() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/* A counter in memory: what was done before an addition is seen by whoever finds it counted. */
MOII_FN void count_up(int *p)
{
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" :: "l"((unsigned long long)__cvta_generic_to_global(p)) : "memory");
}

MOII_FN int counted(const int *p)
{
    int v;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"((unsigned long long)__cvta_generic_to_global(p)) : "memory");
    return v;
}

MOII_FN void matrices_store(unsigned int address, unsigned int a, unsigned int b, unsigned int c, unsigned int d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

/* Row i of matrix k, 16 bytes, at lane 8k + i's address; a lane has word lane % 4 of row lane / 4 of each. */
MOII_FN uint4 matrices_load(unsigned int address)
{
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
    return v;
}

/* matrices_store, columns of each matrix as rows. */
MOII_FN void matrices_store_turned(unsigned int address, unsigned int a, unsigned int b, unsigned int c, unsigned int d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

/* Without a branch. */
MOII_FN void store_four_if(bool there, void *p, uint4 v)
{
    asm volatile("{\n .reg .pred there;\n setp.ne.b32 there, %0, 0;\n @there st.global.v4.u32 [%1], {%2, %3, %4, %5};\n}"
                 :: "r"((int)there), "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

/* 128 bytes into L2. */
MOII_FN void line_fetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p) : "memory"); }

#endif
