/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_ring.cuh: what the warps of moe_decode_f16_sm90 share: barriers, the order of the work, sums. */
#ifndef MOII_DECODE_F16_RING_CUH
#define MOII_DECODE_F16_RING_CUH

#include "decode_f16_lists.cuh"
#include "decode_f16_multiply.cuh"

typedef struct worker {
    char *memory;
    unsigned int shared;
    int warp, lane;
} worker;

/* A slot of the ring, and whether it has come round an even or odd number of times: who waits for a slot must have seen its last turn. */
typedef struct turn { int slot; unsigned int phase; } turn;
MOII_FN void advance(turn &t, const moe_decode_f16_sm90_args &a)
{
    if (++t.slot == a.ring) t.slot = 0, t.phase ^= 1u;
}

/* Sums: pass 1: two buffers, in each what 8 warps have of an item; pass 2: two for each warp. */
enum { SUM_BUFFERS = PASS == 1 ? 2 : 2 * F16_CONSUMERS, SUM_WARPS = PASS == 1 ? F16_CONSUMERS : 1 };

/* Barriers: of the ring's slots, filled and free; of the buffers for sums, filled and free. */
MOII_FN unsigned int filled(const worker &w, const moe_decode_f16_sm90_args &a, int slot) { return w.shared + a.at_barriers + 8 * slot; }
MOII_FN unsigned int freed(const worker &w, const moe_decode_f16_sm90_args &a, int slot) { return filled(w, a, a.ring + slot); }
MOII_FN unsigned int summed(const worker &w, const moe_decode_f16_sm90_args &a, int buffer) { return filled(w, a, 2 * a.ring + buffer); }
MOII_FN unsigned int added(const worker &w, const moe_decode_f16_sm90_args &a, int buffer) { return filled(w, a, 2 * a.ring + SUM_BUFFERS + buffer); }

MOII_FN void make_barriers(const worker &w, const moe_decode_f16_sm90_args &a)
{
    const int i = (int)threadIdx.x, r = a.ring;
    if (i >= 2 * (r + SUM_BUFFERS)) return;
    barrier_init(filled(w, a, i), (i >= r && i < 2 * r) || (i >= 2 * r && i < 2 * r + SUM_BUFFERS) ? SUM_WARPS : 1u);
    barrier_init_done();
}

/* Pass 1: items job * tiles + tile.  Pass 2: jobs, for each of the block's tiles. */
typedef struct share { int from, to; } share;
MOII_FN share my_share(const lists &l, const moe_decode_f16_sm90_args &a)
{
    share s;
    const int all = l.jobs * a.tiles, block = (int)blockIdx.x, blocks = (int)gridDim.x;
    if (PASS == 1) s.from = all * block / blocks, s.to = all * (block + 1) / blocks;
    else s.from = 0, s.to = l.jobs * ((a.tiles - block + blocks - 1) / blocks);
    return s;
}

/* An item as warps come to it. */
typedef struct place { int job, tile; } place;
MOII_FN place first_place(const moe_decode_f16_sm90_args &a, share s)
{
    place p;
    p.job = PASS == 1 ? s.from / a.tiles : 0, p.tile = PASS == 1 ? s.from % a.tiles : (int)blockIdx.x;
    return p;
}
MOII_FN void next_place(place &p, const lists &l, const moe_decode_f16_sm90_args &a)
{
    if (PASS == 1) {
        if (++p.tile == a.tiles) p.tile = 0, p.job++;
    } else if (++p.job == l.jobs) p.job = 0, p.tile += (int)gridDim.x;
}

MOII_FN int pair_of(const worker &w, const moe_decode_f16_sm90_args &a, int job, int column)
{
    short v;
    asm volatile("ld.shared.s16 %0, [%1];" : "=h"(v) : "r"(w.shared + a.at_column + 2 * (job * COLUMNS + column)) : "memory");
    return v;
}
MOII_FN int groups_of(const worker &w, const moe_decode_f16_sm90_args &a, int job)
{
    return GROUPS == 1 ? 1 : pair_of(w, a, job, 8 * (GROUPS - 1)) >= 0 ? 2 : 1;
}

/* ---- sums of a warp, of a group of columns ---- */

MOII_FN unsigned int sums_at(const worker &w, const moe_decode_f16_sm90_args &a, int buffer, int group, int warp)
{
    return w.shared + a.at_sums + (((buffer * GROUPS + group) * SUM_WARPS + warp) * 32 + (int)as_it_is((unsigned int)w.lane)) * 16;
}

/* When the buffer is free, for the `turns`th time. */
MOII_FN void put_sums(const worker &w, const moe_decode_f16_sm90_args &a, const tile_sum *sums, int buffer, int warp, int turns, int groups)
{
    barrier_wait(added(w, a, buffer), turns & 1 ^ 1);
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        if (j && j >= groups) break;
        const float *v = sums[j].v;
        shared_write_four(sums_at(w, a, buffer, j, warp), make_uint4(moii_bits_of(v[0]), moii_bits_of(v[1]), moii_bits_of(v[2]), moii_bits_of(v[3])));
    }
    __syncwarp();
    if (w.lane == 0) barrier_arrive(summed(w, a, buffer));
}

/* Rows g and g + 8, columns 2c and 2c + 1 of the whole item. */
MOII_FN tile_sum whole_sum(const worker &w, const moe_decode_f16_sm90_args &a, int buffer, int group)
{
    const unsigned int from = sums_at(w, a, buffer, group, 0);
    uint4 part[SUM_WARPS];
#pragma unroll
    for (int i = 0; i < SUM_WARPS; i++) part[i] = shared_read_four(from + i * F16_SUM_BYTES);
    tile_sum sum = { { moii_float_of(part[0].x), moii_float_of(part[0].y), moii_float_of(part[0].z), moii_float_of(part[0].w) } };
#pragma unroll
    for (int i = 1; i < SUM_WARPS; i++) {
        sum.v[0] += moii_float_of(part[i].x), sum.v[1] += moii_float_of(part[i].y);
        sum.v[2] += moii_float_of(part[i].z), sum.v[3] += moii_float_of(part[i].w);
    }
    return sum;
}

/* Behind the last reading. */
MOII_FN void free_sums(const worker &w, const moe_decode_f16_sm90_args &a, int buffer)
{
    __syncwarp();
    if (w.lane == 0) barrier_arrive(added(w, a, buffer));
}

#endif
