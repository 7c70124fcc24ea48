/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_up.cuh: pass 1 of moe_decode_f16_sm90: what its warps do with an item of 8 neurons.
 *
 * x lies in shared memory as FP16.  A team of four warps shares an item: slot i is its warp i % 4's, in every item.  They leave their sums in
 * shared memory, which the team's fifth warp adds up, and finishes the item.  Each worker sends for its own slots. */
#ifndef MOII_DECODE_F16_UP_CUH
#define MOII_DECODE_F16_UP_CUH

#include "decode_f16_ring.cuh"

/* Of one line: 4 blocks of `columns` times 64 bytes, then factors of pairs of columns. */
MOII_FN column_source kept_at(const worker &w, const moe_decode_f16_sm90_args &a, int line, int lane)
{
    column_source k;
    k.block_bytes = a.columns * 64;
    const unsigned int base = w.shared + a.at_columns + line * (4 * k.block_bytes + 32);
    k.at = base + (lane / 4 & (a.columns - 1)) * 64 + lane % 4 * 16;
    k.factors_at = base + 4 * k.block_bytes + lane % 4 * 8;
    return k;
}

/* A worker's columns: lines number `warp` and every WORKERS lines on, some at once; column j is token j, or where there are fewer, the last one. */
enum { LINES_AT_ONCE = 2 };
typedef struct some_lines { line_columns of[LINES_AT_ONCE]; } some_lines;

MOII_FN void load_columns(some_lines &c, const worker &w, const moe_decode_f16_sm90_args &a, int first)
{
    const int column = w.lane / 4 & (a.columns - 1), token = min(column, a.tokens - 1);
    const unsigned short *x = a.x + (long long)token * a.hidden + w.lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < LINES_AT_ONCE; i++) load_x(c.of[i], x + min(first + i * WORKERS, a.lines - 1) * F16_LINE);
}
/* c: the first, loaded. */
MOII_FN void keep_columns(some_lines &c, const worker &w, const moe_decode_f16_sm90_args &a)
{
#pragma unroll 1
    for (int first = w.warp;;) {
#pragma unroll
        for (int i = 0; i < LINES_AT_ONCE; i++) {
            const int line = min(first + i * WORKERS, a.lines - 1);
            const column_source k = kept_at(w, a, line, w.lane);
            widen_x(c.of[i], w.lane);
            if (w.lane / 4 < a.columns)
#pragma unroll
                for (int b = 0; b < 4; b++) shared_write_four(k.at + b * k.block_bytes, c.of[i].v[b]);
            if (w.lane < 4) shared_write(k.factors_at, c.of[i].even), shared_write(k.factors_at + 4, c.of[i].odd);
        }
        first += LINES_AT_ONCE * WORKERS;
        if (first >= a.lines) return;
        load_columns(c, w, a, first);
    }
}

/* A team's items, and a worker's slots of them, one behind the other. */
typedef struct work { int job, tile, part; } work;

MOII_FN work first_item(const moe_decode_f16_sm90_args &a, int team)
{
    const int item = (int)blockIdx.x + team * (int)gridDim.x;
    work k;
    k.job = item / a.tiles, k.tile = item - k.job * a.tiles, k.part = 0;
    return k;
}
MOII_FN void next_item(work &k, const moe_decode_f16_sm90_args &a)
{
    k.job += a.step_job, k.tile += a.step_rest;
    if (k.tile >= a.tiles) k.tile -= a.tiles, k.job++;
}
/* True: it is of another item. */
MOII_FN bool next_slot(work &k, const worker &w, const moe_decode_f16_sm90_args &a)
{
    if ((k.part += F16_TEAM) < a.parts) return false;
    k.part = w.warp % F16_TEAM;
    next_item(k, a);
    return true;
}

/* One column's u of 8 neurons in 8 lanes (g = 0 .. 7): FP16 times a power of two, and its exponent. */
MOII_FN void put_u(const moe_decode_f16_sm90_args &a, float u, bool there, int job, int column, int tile, int g)
{
    const unsigned int bits = moii_bits_of(u) & 0x7FFFFFFFu;
    unsigned int most = max(bits >= 0x7F800000u ? 0u : bits >> 23, (unsigned int)LEAST_EXPONENT);
#pragma unroll
    for (int step = 4; step < 32; step *= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(u * f16_scale(most)));
    const unsigned int word = (unsigned int)half | __shfl_down_sync(0xFFFFFFFFu, (unsigned int)half, 16) << 16; /* neurons 2g and 2g + 1: row_at */
    uint4 all;
    all.x = word, all.y = __shfl_down_sync(0xFFFFFFFFu, word, 4);
    all.z = __shfl_down_sync(0xFFFFFFFFu, word, 8), all.w = __shfl_down_sync(0xFFFFFFFFu, word, 12);
    if (g || !there) return;
    write_u(u_of(a, job, column, tile), all);
    write_exponent(exponent_of(a, job, column, tile), most);
}

/* The warp that finishes a team's items. */
MOII_FN void finish(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, int team)
{
    const unsigned int sums = w.shared + a.at_sums + team * (2 * F16_TEAM * 512) + w.lane * 16;
    int turns = 0;
    for (work k = first_item(a, team); k.job < l.jobs; next_item(k, a), turns++) {
        const int column = w.lane % 4 * 2, place = turns & 1;
        const bool even = pair_of(w, a, k.job, column) >= 0, odd = pair_of(w, a, k.job, column + 1) >= 0;
        uint4 part[F16_TEAM];
        barrier_wait(summed(w, a, team * 2 + place), turns >> 1 & 1);
#pragma unroll
        for (int i = 0; i < F16_TEAM; i++) part[i] = shared_read_four(sums + (place * F16_TEAM + i) * 512);
        __syncwarp();
        if (w.lane == 0) barrier_arrive(added(w, a, team * 2 + place));
        float v[4] = { moii_float_of(part[0].x), moii_float_of(part[0].y), moii_float_of(part[0].z), moii_float_of(part[0].w) };
#pragma unroll
        for (int i = 1; i < F16_TEAM; i++)
            v[0] += moii_float_of(part[i].x), v[1] += moii_float_of(part[i].y), v[2] += moii_float_of(part[i].z), v[3] += moii_float_of(part[i].w);
        put_u(a, moii_swiglu(v[0], v[2]), even, k.job, column, k.tile, w.lane / 4);
        if (a.tokens > 1) put_u(a, moii_swiglu(v[1], v[3]), odd, k.job, column + 1, k.tile, w.lane / 4);
    }
}

MOII_FN void send_for(work k, int slot, const worker &w, const moe_decode_f16_sm90_args &a)
{
    const int expert = expert_of(w, a, k.job);
    if (w.lane == 0) {
        barrier_expect(filled(w, a, slot), a.slot_bytes);
        box_load_4(slot_at(w, a, slot), &a.map, filled(w, a, slot), 0, k.tile * 8, 2 * expert, k.part * a.slot_lines);
    }
    send_for_scales(w, a, slot, a.scale + ((unsigned long long)(unsigned int)expert * a.expert_scale_bytes + (unsigned int)(k.tile * 8 * a.scale_row)),
                    (unsigned int)(a.width * a.scale_row), k.part);
}

MOII_FN void multiply(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    const int team = w.warp / F16_TEAM, member = w.warp % F16_TEAM;
    const unsigned int sums = w.shared + a.at_sums + team * (2 * F16_TEAM * 512) + w.lane * 16;
    work k = first_item(a, team);
    k.part = member;
    work later = k; /* what is to be sent for */
    for (int slot = 0; slot < a.ring && later.job < l.jobs && member < a.parts; slot++, next_slot(later, w, a)) send_for(later, slot, w, a);
    tile_sum sum = { { 0, 0, 0, 0 } };
    turn t = { 0, 0 };
    for (int turns = 0; k.job < l.jobs;) {
        if (member < a.parts) {
            barrier_wait(filled(w, a, t.slot), t.phase);
            const unsigned int from = slot_at(w, a, t.slot) + lane_place(w.lane);
            const unsigned int scales = scales_at(w, a, t.slot) + row_at(w.lane / 4) * (SLOT_LINES * 4);
#pragma unroll
            for (int i = 0; i < SLOT_LINES; i++) {
                const int line = k.part * a.slot_lines + i;
                if (i < a.slot_lines && line < a.lines)
                    add_line(sum, from + i * F16_LINE_BYTES, shared_word(scales + 4 * i), shared_word(scales + 4 * i + SCALE_WORDS * 2),
                             kept_at(w, a, line, w.lane));
            }
            __syncwarp();
            if (later.job < l.jobs) {
                send_for(later, t.slot, w, a);
                next_slot(later, w, a);
            }
            advance(t, a);
        }
        if (next_slot(k, w, a)) {
            const int place = team * 2 + (turns & 1);
            barrier_wait(added(w, a, place), turns >> 1 & 1 ^ 1);
            shared_write_four(sums + ((turns & 1) * F16_TEAM + member) * 512,
                              make_uint4(moii_bits_of(sum.v[0]), moii_bits_of(sum.v[1]), moii_bits_of(sum.v[2]), moii_bits_of(sum.v[3])));
            __syncwarp();
            if (w.lane == 0) barrier_arrive(summed(w, a, place));
            sum.v[0] = sum.v[1] = sum.v[2] = sum.v[3] = 0, turns++;
        }
    }
}

#endif
