/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_up.cuh: pass 1 of moe_decode_f16_sm90: what its warps do with an item of 8 neurons.
 *
 * Line i of a slot is warp i's, in every item: so a warp keeps what its lines take of x, in shared memory, each lane its own.  All 8 warps wait for
 * and free every slot. */
#ifndef MOII_DECODE_F16_UP_CUH
#define MOII_DECODE_F16_UP_CUH

#include "decode_f16_ring.cuh"

/* Of one line and group: 4 blocks of `columns` times 64 bytes, then factors of 32 lanes. */
MOII_FN column_source kept_at(const worker &w, const moe_decode_f16_sm90_args &a, int part)
{
    column_source k;
    const int lane = (int)as_it_is((unsigned int)w.lane);
    k.block_bytes = a.columns * 64, k.group_bytes = 4 * k.block_bytes + 256;
    const unsigned int base = w.shared + a.at_columns + (w.warp * a.parts + part) * GROUPS * k.group_bytes;
    k.at = base + (lane / 4 & (a.columns - 1)) * 64 + lane % 4 * 16;
    k.factors_at = base + 4 * k.block_bytes + lane * 8;
    return k;
}

MOII_FN void keep_columns(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, int job, int groups)
{
    const int column = w.lane / 4 & (a.columns - 1);
#pragma unroll 1
    for (int part = 0; part < a.parts; part++) {
        const int line = part * a.slot_lines + w.warp;
        if (w.warp >= a.slot_lines || line >= a.lines) break;
        const column_source k = kept_at(w, a, part);
#pragma unroll 1
        for (int j = 0; j < groups; j++) {
            const int pair = a.dense ? 0 : l.column[job * COLUMNS + 8 * j + column];
            const int token = a.dense ? (column < a.tokens ? column : -1) : pair < 0 ? -1 : token_of(a, pair);
            line_columns x;
            load_x(x, token < 0 ? 0 : a.x + (long long)token * a.hidden + line * F16_LINE + w.lane % 4 * 8, w.lane);
            if (w.lane / 4 < a.columns)
#pragma unroll
                for (int b = 0; b < 4; b++) shared_write_four(k.at + j * k.group_bytes + b * k.block_bytes, x.v[b]);
            shared_write(k.factors_at + j * k.group_bytes, x.even), shared_write(k.factors_at + j * k.group_bytes + 4, x.odd);
        }
    }
    __syncwarp();
}

MOII_FN void multiply(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, share s)
{
    turn t;
    t.slot = 0, t.phase = 0;
    int scale_slot = 0, kept = a.dense ? -2 : -1;
    place p = first_place(a, s);
    for (int n = s.from; n < s.to; n++, next_place(p, l, a)) {
        const int groups = groups_of(w, a, p.job);
        tile_sum sums[GROUPS];
#pragma unroll
        for (int j = 0; j < GROUPS; j++) sums[j].v[0] = sums[j].v[1] = sums[j].v[2] = sums[j].v[3] = 0;
        if (kept != -2 && kept != p.job) keep_columns(w, a, l, p.job, groups), kept = p.job;
        for (int part = 0; part < a.parts; part++, advance(t, a)) {
            const int line = part * a.slot_lines + w.warp;
            barrier_wait(filled(w, a, t.slot), t.phase);
            if (w.warp < a.slot_lines && line < a.lines) {
                const int lane = (int)as_it_is((unsigned int)w.lane); /* registers are short: nothing of what follows is to be kept */
                const unsigned int from = w.shared + t.slot * a.slot_bytes + w.warp * F16_LINE_BYTES + lane_place(lane);
                const unsigned int scale = w.shared + a.at_scales + (scale_slot * F16_ROWS + row_at(lane / 4)) * a.scale_row + line * 4;
                add_line(sums, from, shared_word(scale), shared_word(scale + 8 * a.scale_row), groups, kept_at(w, a, part));
            }
            __syncwarp();
            if (w.lane == 0) barrier_arrive(freed(w, a, t.slot));
        }
        put_sums(w, a, sums, n - s.from & 1, w.warp, n - s.from >> 1, groups);
        if (++scale_slot == a.scale_slots) scale_slot = 0;
    }
}

/* One column's u of 8 neurons in 8 lanes (g = 0 .. 7): FP16 times a power of two, and its exponent. */
MOII_FN void put_u(const moe_decode_f16_sm90_args &a, float u, int pair, int tile, int g)
{
    const unsigned int bits = moii_bits_of(u) & 0x7FFFFFFFu;
    unsigned int most = max(bits >= 0x7F800000u ? 0u : bits >> 23, (unsigned int)LEAST_EXPONENT);
#pragma unroll
    for (int step = 4; step < 32; step *= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
    if (pair < 0) return;
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(u * f16_scale(most)));
    a.u[(unsigned int)pair * (unsigned long long)a.width + (tile * 8 + row_at(g))] = half;
    if (g == 0) a.exponent[(unsigned int)pair * (unsigned int)(a.width / 8) + (tile & ~15) + tile % 4 * 4 + tile / 4 % 4] = (unsigned char)most;
}

MOII_FN void add_up(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, share s)
{
    place p = first_place(a, s);
    for (int n = s.from; n < s.to; n++, next_place(p, l, a)) {
        const int groups = groups_of(w, a, p.job), buffer = n - s.from & 1;
        barrier_wait(summed(w, a, buffer), n - s.from >> 1 & 1);
#pragma unroll 1
        for (int j = 0; j < groups; j++) {
            const int column = 8 * j + w.lane % 4 * 2, even = pair_of(w, a, p.job, column), odd = pair_of(w, a, p.job, column + 1);
            const tile_sum sum = whole_sum(w, a, buffer, j);
            if (j == groups - 1) free_sums(w, a, buffer);
            put_u(a, moii_swiglu(sum.v[0], sum.v[2]), even, p.tile, w.lane / 4);
            put_u(a, moii_swiglu(sum.v[1], sum.v[3]), odd, p.tile, w.lane / 4);
        }
    }
}

#endif
