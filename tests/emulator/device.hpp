/* SPDX-License-Identifier: Apache-2.0
 *
 * device.hpp: CUDA's language for g++: the words, types and functions that device code is written with, on the emulated machine.  Instructions
 * that device code names itself are in ptx.hpp. */
#ifndef EMU_DEVICE_HPP
#define EMU_DEVICE_HPP

#include <math.h>

#include "machine.hpp"

namespace emu {
machine *m;
}
extern "C" __attribute__((no_sanitize_thread)) void emu_bind(emu::machine *machine) { emu::m = machine; }

#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (emu::m->self->tid)
#define blockIdx (emu::m->self->in->index)
#define blockDim (emu::m->threads)
#define gridDim (emu::m->grid)

struct __align__(8) uint2 { unsigned int x, y; };
struct __align__(16) uint4 { unsigned int x, y, z, w; };
struct __align__(16) int4 { int x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) ulonglong2 { unsigned long long x, y; };
static inline uint2 make_uint2(unsigned int x, unsigned int y) { return { x, y }; }
static inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return { x, y, z, w }; }
static inline int4 make_int4(int x, int y, int z, int w) { return { x, y, z, w }; }
static inline float2 make_float2(float x, float y) { return { x, y }; }
static inline float4 make_float4(float x, float y, float z, float w) { return { x, y, z, w }; }
static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return { x, y }; }

/* ---- arithmetic ---- */

#define EMU_LEAST_MOST(T)                                     \
    static inline T min(T a, T b) { return b < a ? b : a; }   \
    static inline T max(T a, T b) { return a < b ? b : a; }
EMU_LEAST_MOST(int)
EMU_LEAST_MOST(unsigned int)
EMU_LEAST_MOST(long long)
EMU_LEAST_MOST(unsigned long long)
static inline unsigned int min(int a, unsigned int b) { return min((unsigned int)a, b); }
static inline unsigned int min(unsigned int a, int b) { return min(a, (unsigned int)b); }
static inline unsigned int max(int a, unsigned int b) { return max((unsigned int)a, b); }
static inline unsigned int max(unsigned int a, int b) { return max(a, (unsigned int)b); }
static inline long long min(int a, long long b) { return min((long long)a, b); }
static inline long long min(long long a, int b) { return min(a, (long long)b); }
static inline long long max(int a, long long b) { return max((long long)a, b); }
static inline long long max(long long a, int b) { return max(a, (long long)b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }

static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline int __popc(unsigned int v) { return __builtin_popcount(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned int)v) : 32; }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned int)((unsigned long long)a * b >> 32); }
static inline double __hiloint2double(int high, int low)
{
    const unsigned long long bits = (unsigned long long)(unsigned int)high << 32 | (unsigned int)low;
    double v;
    memcpy(&v, &bits, 8);
    return v;
}
static inline unsigned long long emu_bits(double v)
{
    unsigned long long bits;
    memcpy(&bits, &v, 8);
    return bits;
}
static inline int __double2loint(double v) { return (int)emu_bits(v); }
static inline int __double2hiint(double v) { return (int)(emu_bits(v) >> 32); }
static inline unsigned int __float_as_uint(float v)
{
    unsigned int bits;
    memcpy(&bits, &v, 4);
    return bits;
}
static inline float __uint_as_float(unsigned int bits)
{
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
static inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift)
{
    return (unsigned int)(((unsigned long long)high << 32 | low) >> (shift & 31u));
}
static inline unsigned int __byte_perm(unsigned int low, unsigned int high, unsigned int select)
{
    const unsigned long long all = (unsigned long long)high << 32 | low;
    unsigned int out = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned int s = select >> 4 * i & 15u, byte = (unsigned int)(all >> 8 * (s & 7u)) & 255u;
        out |= (s & 8u ? (byte & 128u ? 255u : 0u) : byte) << 8 * i;
    }
    return out;
}

/* ---- memory ---- */

#ifdef EMU_CHECK
/* What -fsanitize=thread calls at each access. */
#define EMU_UNTOLD static __attribute__((no_sanitize_thread))
#define EMU_CHANGES(p) emu::m->touch(p, sizeof *(p), emu::CHANGES)
/* What the compiler takes to be aligned (of 16 bytes: to 8, for structs of two words are among them): this machine forgives it if it is not, a device
 * would not. */
EMU_UNTOLD void emu_access(const void *p, int bytes, int kind)
{
    if ((unsigned long)p % (unsigned long)(bytes < 8 ? bytes : 8)) emu::m->fail("an address is not a multiple of the load or store there");
    emu::m->touch(p, bytes, kind);
}
#define EMU_TELL(bytes)                                                                                                                   \
    extern "C" __attribute__((no_sanitize_thread)) void __tsan_read##bytes(void *p) { emu_access(p, bytes, emu::READS); }                 \
    extern "C" __attribute__((no_sanitize_thread)) void __tsan_write##bytes(void *p) { emu_access(p, bytes, emu::WRITES); }               \
    extern "C" __attribute__((no_sanitize_thread)) void __tsan_unaligned_read##bytes(void *p) { emu::m->touch(p, bytes, emu::READS); }    \
    extern "C" __attribute__((no_sanitize_thread)) void __tsan_unaligned_write##bytes(void *p) { emu::m->touch(p, bytes, emu::WRITES); }
EMU_TELL(1)
EMU_TELL(2)
EMU_TELL(4)
EMU_TELL(8)
EMU_TELL(16)
extern "C" __attribute__((no_sanitize_thread)) void __tsan_read_range(void *p, unsigned long bytes) { emu::m->touch(p, (int)bytes, emu::READS); }
extern "C" __attribute__((no_sanitize_thread)) void __tsan_write_range(void *p, unsigned long bytes) { emu::m->touch(p, (int)bytes, emu::WRITES); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}
#else
#define EMU_UNTOLD static inline
#define EMU_CHANGES(p) (void)0
#endif

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
static inline double __longlong_as_double(long long bits) { double v; memcpy(&v, &bits, sizeof v); return v; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __nanosleep(unsigned int) { emu::m->wait(emu::AGAIN); }
static inline unsigned long long __cvta_generic_to_global(const void *p) { return (unsigned long long)(uintptr_t)p; }
static inline unsigned long long __cvta_generic_to_shared(const void *p) { return emu::m->address(p); }
template <class T, class V> EMU_UNTOLD T atomicAdd(T *p, V v) { EMU_CHANGES(p); const T before = *p; *p = (T)(before + (T)v); return before; }
EMU_UNTOLD unsigned int atomicInc(unsigned int *p, unsigned int most)
{
    EMU_CHANGES(p);
    const unsigned int before = *p;
    *p = before >= most ? 0 : before + 1;
    return before;
}
template <class T, class V> EMU_UNTOLD T atomicMin(T *p, V v) { EMU_CHANGES(p); const T before = *p; *p = (T)v < before ? (T)v : before; return before; }
template <class T, class V> EMU_UNTOLD T atomicOr(T *p, V v) { EMU_CHANGES(p); const T before = *p; *p = (T)(before | (T)v); return before; }
template <class T, class V> EMU_UNTOLD T atomicMax(T *p, V v) { EMU_CHANGES(p); const T before = *p; *p = before < (T)v ? (T)v : before; return before; }

namespace emu {
/* Arrays in shared memory, where they are not declared in a function. */
template <class T> struct dynamic {
    operator T *() const { return (T *)(m->self->in->memory + SHARED_FIRST); }
    template <class U> explicit operator U *() const { return (U *)(T *)*this; }
    explicit operator unsigned long long() const { return (unsigned long long)(uintptr_t)(T *)*this; }
};
template <class T, int BYTES, int ID> struct constant {
    operator T *() const { return (T *)m->fixed(ID, BYTES); }
    T *operator->() const { return *this; }
};
}

/* ---- what lanes do together ---- */

static inline void __syncthreads() { emu::m->meet(0, 0, true); }

namespace emu {

template <class T> struct sent { T v; int lane; }; /* lane: of whom the value is wanted */

static inline void nothing(thread *const *) {}

template <class T> void pass_on(thread *const lane[32])
{
    for (int i = 0; i < 32; i++) {
        if (!lane[i]) continue;
        const int from = ((const sent<T> *)lane[i]->given)->lane;
        if (!lane[from]) m->fail("a lane wants a value of one that is not there");
        *(T *)lane[i]->taken = ((const sent<T> *)lane[from]->given)->v;
    }
}
template <class T> T shuffle(unsigned int mask, T v, int lane)
{
    const sent<T> s = { v, lane };
    T out;
    m->together(pass_on<T>, mask, &s, &out);
    return out;
}
static inline int own_lane() { return m->self->index % 32; }

enum { ANY, ALL, BALLOT, LEAST, MOST, SUM, SAME };
template <class T, int HOW> void combine(thread *const lane[32])
{
    unsigned int set = 0;
    T least = 0, most = 0, sum = 0;
    bool any = false, all = true;
    for (int i = 0; i < 32; i++) {
        if (!lane[i]) continue;
        const T v = *(const T *)lane[i]->given;
        if (v) set |= 1u << i;
        least = !any || v < least ? v : least, most = !any || most < v ? v : most, sum = (T)(sum + v), any = true, all = all && v;
    }
    for (int i = 0; i < 32; i++) {
        if (!lane[i]) continue;
        if (HOW == SAME) {
            unsigned int same = 0;
            for (int j = 0; j < 32; j++)
                if (lane[j] && *(const T *)lane[j]->given == *(const T *)lane[i]->given) same |= 1u << j;
            *(unsigned int *)lane[i]->taken = same;
        } else if (HOW == ANY || HOW == ALL) *(T *)lane[i]->taken = (T)(HOW == ANY ? set != 0 : all);
        else if (HOW == BALLOT) *(T *)lane[i]->taken = (T)set;
        else *(T *)lane[i]->taken = HOW == LEAST ? least : HOW == MOST ? most : sum;
    }
}
template <class T, int HOW> T combined(unsigned int mask, T v)
{
    T out = 0;
    m->together(combine<T, HOW>, mask, &v, &out);
    return out;
}

}

static inline void __syncwarp(unsigned int mask = 0xFFFFFFFFu) { emu::m->together(emu::nothing, mask, 0, 0); }
template <class T> static inline T __shfl_sync(unsigned int mask, T v, int lane, int width = 32)
{
    return emu::shuffle(mask, v, (emu::own_lane() & ~(width - 1)) | (lane & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned int mask, T v, int by) { return emu::shuffle(mask, v, emu::own_lane() ^ by); }
template <class T> static inline T __shfl_up_sync(unsigned int mask, T v, unsigned int by)
{
    const int lane = emu::own_lane() - (int)by;
    return emu::shuffle(mask, v, lane < 0 ? emu::own_lane() : lane);
}
template <class T> static inline T __shfl_down_sync(unsigned int mask, T v, unsigned int by)
{
    const int lane = emu::own_lane() + (int)by;
    return emu::shuffle(mask, v, lane > 31 ? emu::own_lane() : lane);
}
static inline unsigned int __ballot_sync(unsigned int mask, bool v) { return emu::combined<unsigned int, emu::BALLOT>(mask, v); }
static inline int __any_sync(unsigned int mask, bool v) { return emu::combined<int, emu::ANY>(mask, v); }
static inline int __all_sync(unsigned int mask, bool v) { return emu::combined<int, emu::ALL>(mask, v); }
template <class T> static inline T __reduce_max_sync(unsigned int mask, T v) { return emu::combined<T, emu::MOST>(mask, v); }
template <class T> static inline T __reduce_min_sync(unsigned int mask, T v) { return emu::combined<T, emu::LEAST>(mask, v); }
template <class T> static inline T __reduce_add_sync(unsigned int mask, T v) { return emu::combined<T, emu::SUM>(mask, v); }
template <class T> static inline unsigned int __match_any_sync(unsigned int mask, T v)
{
    unsigned int out;
    emu::m->together(emu::combine<T, emu::SAME>, mask, &v, &out);
    return out;
}

#include "ptx.hpp"

/* ---- entries ---- */

namespace emu {
template <class A> void call(void (*kernel)(A), const void *args) { kernel(*(const A *)args); }
template <class A> constexpr int size_of(void (*)(A)) { return (int)sizeof(A); }
}
#define EMU_ENTRY(kernel)                                                      \
    extern "C" void emu_entry(const void *args) { emu::call(kernel, args); }   \
    extern "C" int emu_args_bytes() { return emu::size_of(kernel); }           \
    extern "C" const char *emu_name() { return #kernel; }

#endif
