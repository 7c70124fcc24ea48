/* SPDX-License-Identifier: Apache-2.0
 *
 * permute_plain: moi_permute_run; plain CUDA for capability 8.0 and newer.  A stable counting sort of slots (token, k) by expert.
 *
 *   defines   UNIT  bytes that a thread copies at once: 16, or an element's where rows are not a multiple of that
 *   grid      PERMUTE_COUNT (of many slots), PERMUTE_PLACE: a block for each chunk, which of few slots counts those of the others for itself;
 *             PERMUTE_COPY: any number of blocks, which walk over units of x, a thread each
 *   block     up to 16 warps; each takes a part of the chunk, in order, so that neither blocks nor warps need one another to know a slot's place
 *   shared    4 bytes for each expert and warp, 8 more for each expert
 *   launch    begins before the grid before it has ended, and waits for it, on devices that can (9.0 and newer)
 */
#include "num.h"
#include "lane_scan.cuh"
#include "permute_plain_args.h"

#define EVERYONE 0xFFFFFFFFu

#if UNIT == 16
typedef uint4 unit;
#elif UNIT == 4
typedef unsigned int unit;
#else
typedef unsigned short unit;
#endif

extern __shared__ int permute_memory[];

/* A warp's part of the chunk, and where it counts: [experts]. */
typedef struct part {
    int first, end, lane;
    int *held;
} part;

MOII_FN part part_of(const permute_plain_args &a)
{
    const int warp = (int)threadIdx.x / 32, size = a.chunk / ((int)blockDim.x / 32);
    part p;
    p.first = (int)blockIdx.x * a.chunk + warp * size, p.end = min(p.first + size, a.slots), p.lane = (int)threadIdx.x % 32;
    p.held = permute_memory + warp * a.experts;
    return p;
}

/* -1: the slot is skipped, or there is none. */
MOII_FN int expert_of(const permute_plain_args &a, const part &p, int i)
{
    const int id = i < p.end ? __ldg(a.ids + i) : -1;
    return id < a.experts ? max(id, -1) : -1;
}

/* Behind the warps' counts: of the chunks behind the block's own, or, later, where slots of all chunks begin; of those before it. */
MOII_FN int *behind_of(const permute_plain_args &a) { return permute_memory + (int)blockDim.x / 32 * a.experts; }
MOII_FN int *before_of(const permute_plain_args &a) { return behind_of(a) + a.experts; }

MOII_FN void count_others(const permute_plain_args &a)
{
    int *const behind = behind_of(a), *const before = before_of(a);
    const int first = (int)blockIdx.x * a.chunk, end = first + a.chunk;
#pragma unroll 8
    for (int i = (int)threadIdx.x; i < a.slots; i += (int)blockDim.x) {
        const int e = __ldg(a.ids + i);
        if (e >= 0 && e < a.experts && (i < first || i >= end)) atomicAdd((i < first ? before : behind) + e, 1);
    }
}

/* Each warp's counts of its part. */
MOII_FN void count_parts(const permute_plain_args &a, const part &p)
{
    for (int i = (int)threadIdx.x; i < ((int)blockDim.x / 32 + 2) * a.experts; i += (int)blockDim.x) permute_memory[i] = 0;
    __syncthreads();
    if (!a.counts && a.chunks > 1) count_others(a);
#pragma unroll 4
    for (int i = p.first + p.lane; i < p.end; i += 32) {
        const int e = expert_of(a, p, i);
        if (e >= 0) atomicAdd(p.held + e, 1);
    }
    __syncthreads();
}

MOII_FN int count_of(const permute_plain_args &a, int e)
{
    int sum = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) sum += permute_memory[w * a.experts + e];
    return sum;
}

/* Numbers of slots become where they begin: one warp.  The first block tells the caller. */
MOII_FN void scan_experts(const permute_plain_args &a, int *start, int lane)
{
    int sum = 0;
    for (int base = 0; base < a.experts; base += 32) {
        const int e = base + lane, n = e < a.experts ? start[e] : 0, up_to = lane_scan(n, lane);
        if (e < a.experts) start[e] = sum + up_to - n;
        if (e < a.experts && blockIdx.x == 0) a.offsets[e] = sum + up_to - n;
        sum += __shfl_sync(EVERYONE, up_to, 31);
    }
    if (lane == 0 && blockIdx.x == 0) a.offsets[a.experts] = sum;
}

/* For each expert: where its slots of each warp's part go; counts give way to that. */
MOII_FN void place_parts(const permute_plain_args &a, const part &p)
{
    const int warps = (int)blockDim.x / 32;
    int *const start = behind_of(a), *const before = before_of(a);
    for (int e = (int)threadIdx.x; e < a.experts; e += (int)blockDim.x) {
        int all = 0, lower = before[e];
        if (!a.counts) all = lower + count_of(a, e) + start[e];
        for (int c = 0; a.counts && c < a.chunks; c++) {
            const int n = __ldg(a.counts + (long long)c * a.experts + e);
            all += n;
            if (c < (int)blockIdx.x) lower += n;
        }
        start[e] = all, before[e] = lower;
    }
    __syncthreads();
    if (threadIdx.x < 32) scan_experts(a, start, p.lane);
    __syncthreads();
    for (int e = (int)threadIdx.x; e < a.experts; e += (int)blockDim.x) {
        int at = start[e] + before[e];
        for (int w = 0; w < warps; w++) {
            const int n = permute_memory[w * a.experts + e];
            permute_memory[w * a.experts + e] = at;
            at += n;
        }
    }
    __syncthreads();
}

/* Slots of a warp's part take their places, 32 at a time, of one expert in order. */
MOII_FN void write_part(const permute_plain_args &a, const part &p)
{
    for (int base = p.first; base < p.end; base += 32) {
        const int i = base + p.lane, e = expert_of(a, p, i);
        const unsigned int same = __match_any_sync(EVERYONE, e), before = same & ((1u << p.lane) - 1u);
        const int row = e < 0 ? -1 : p.held[e] + __popc(before);
        __syncwarp();
        if (e >= 0 && !before) p.held[e] = row + __popc(same);
        __syncwarp();
        if (i >= p.end) continue;
        a.row_of[i] = row;
        if (e >= 0) a.token_of[row] = (int)((unsigned int)i / (unsigned int)a.top_k);
    }
}

/* A unit of a token's row goes wherever its slots are. */
MOII_FN void copy_unit(const permute_plain_args &a, long long token, long long at)
{
    const unit v = __ldg((const unit *)a.x + token * a.units + at);
    for (int s = 0; s < a.top_k; s++) {
        const int row = __ldg(a.row_of + token * a.top_k + s);
        if (row >= 0) ((unit *)a.x_sorted)[row * a.units + at] = v;
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) permute_plain(const __grid_constant__ permute_plain_args a)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
    if (a.step == PERMUTE_COPY) {
        for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < a.tokens * a.units; i += gridDim.x * (long long)blockDim.x)
            copy_unit(a, i / a.units, i % a.units);
        return;
    }
    const part p = part_of(a);
    count_parts(a, p);
    if (a.step == PERMUTE_PLACE) {
        place_parts(a, p);
        write_part(a, p);
        return;
    }
    for (int e = (int)threadIdx.x; e < a.experts; e += (int)blockDim.x) a.counts[(long long)blockIdx.x * a.experts + e] = count_of(a, e);
}
