/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_ring.cuh: what the warps of moe_decode_f16_sm90 share: barriers, the order of slots, a line's scales. */
#ifndef MOII_DECODE_F16_RING_CUH
#define MOII_DECODE_F16_RING_CUH

#include "decode_f16_lists.cuh"
#include "decode_f16_multiply.cuh"

typedef struct worker {
    unsigned int shared;
    int warp, lane;
} worker;

/* Barriers: of slots that are filled; pass 1: of each team's two places for sums, written and read. */
MOII_FN unsigned int barrier_at(const worker &w, const moe_decode_f16_sm90_args &a, int i) { return w.shared + a.at_barriers + 8 * i; }
MOII_FN unsigned int filled(const worker &w, const moe_decode_f16_sm90_args &a, int slot) { return barrier_at(w, a, w.warp * a.ring + slot); }
MOII_FN unsigned int summed(const worker &w, const moe_decode_f16_sm90_args &a, int place) { return barrier_at(w, a, WORKERS * a.ring + place); }
MOII_FN unsigned int added(const worker &w, const moe_decode_f16_sm90_args &a, int place) { return summed(w, a, 2 * F16_TEAMS + place); }

/* Arrivals at a slot's: of the lane that sends for the box, and of each lane for its scales. */
MOII_FN void make_barriers(const worker &w, const moe_decode_f16_sm90_args &a)
{
    const int i = (int)threadIdx.x, slots = WORKERS * a.ring, sums = slots + 2 * F16_TEAMS;
    if (i < slots) barrier_init(barrier_at(w, a, i), 33);
    else if (PASS == 1 && i < sums + 2 * F16_TEAMS) barrier_init(barrier_at(w, a, i), i < sums ? F16_TEAM : 1);
    barrier_init_done();
}

/* A worker's slots: its place, and whether its ring has come round an even or odd number of times. */
typedef struct turn { int slot; unsigned int phase; } turn;
MOII_FN void advance(turn &t, const moe_decode_f16_sm90_args &a)
{
    if (++t.slot == a.ring) t.slot = 0, t.phase ^= 1u;
}
MOII_FN unsigned int slot_at(const worker &w, const moe_decode_f16_sm90_args &a, int slot)
{
    return w.shared + (w.warp * a.ring + slot) * a.slot_bytes;
}

enum { SLOT_LINES = PASS == 1 ? F16_UP_LINES : F16_DOWN_LINES };

/* A slot's scales lie beside it, a word for each row and line, and come with it: behind each lane's own copies and arrival at its barrier. */
enum { SCALE_WORDS = F16_ROWS * SLOT_LINES };
MOII_FN unsigned int scales_at(const worker &w, const moe_decode_f16_sm90_args &a, int slot)
{
    return w.shared + a.at_scales + (w.warp * a.ring + slot) * (SCALE_WORDS * 4);
}

/* All lanes.  from: the item's first row; bottom: how far its row 8 is behind that. */
MOII_FN void send_for_scales(const worker &w, const moe_decode_f16_sm90_args &a, int slot, const unsigned char *from, unsigned int bottom, int part)
{
    const unsigned int to = scales_at(w, a, slot);
#pragma unroll
    for (unsigned int i = (unsigned int)w.lane % 32u; i < SCALE_WORDS; i += 32) {
        const int row = (int)(i / SLOT_LINES), line = (int)(i % SLOT_LINES);
        if (line >= a.slot_lines || part * a.slot_lines + line >= a.lines) continue;
        word_load(to + 4 * i, from + (row < 8 ? 0u : bottom) + (unsigned int)(row % 8 * a.scale_row + (part * a.slot_lines + line) * 4));
    }
    barrier_arrive_behind_words(filled(w, a, slot));
}

MOII_FN int pair_of(const worker &w, const moe_decode_f16_sm90_args &a, int job, int column)
{
    short v;
    asm volatile("ld.shared.s16 %0, [%1];" : "=h"(v) : "r"(w.shared + a.at_column + 2 * (job * F16_MOST_TOKENS + column)) : "memory");
    return v;
}

MOII_FN int expert_of(const worker &w, const moe_decode_f16_sm90_args &a, int job) { return (int)shared_word(w.shared + a.at_expert + 4 * job); }

/* ---- u between the passes: it is there when it is no longer blank ---- */

enum { BLANK_EXPONENT = 0xFF };
#define BLANK_WORD 0xFFFFFFFFu /* two NaN of a sign that is never written */

/* Of an item's column: 8 values, 16 bytes. */
MOII_FN unsigned short *u_of(const moe_decode_f16_sm90_args &a, int job, int column, int tile)
{
    return a.u + (unsigned int)((job * a.columns + column) * a.width + tile * 8);
}
MOII_FN unsigned char *exponent_of(const moe_decode_f16_sm90_args &a, int job, int column, int tile)
{
    return a.exponent + (unsigned int)((job * a.columns + column) * (a.width / 8) + (tile & ~15) + tile % 4 * 4 + tile / 4 % 4);
}

MOII_FN void write_u(unsigned short *to, uint4 v)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" :: "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
MOII_FN void write_exponent(unsigned char *to, unsigned int v) { asm volatile("st.relaxed.gpu.global.u8 [%0], %1;" :: "l"(to), "r"(v) : "memory"); }
MOII_FN uint4 read_u(const unsigned short *from)
{
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v;
}
MOII_FN unsigned int read_exponents(const unsigned char *from)
{
    unsigned int v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}
MOII_FN bool any_blank(unsigned int exponents) { return ((~exponents - 0x01010101u) & exponents & 0x80808080u) != 0; }

/* Pass 1, one warp, before pass 2 starts: what the block may write, whatever the routing. */
MOII_FN void blank_u(const moe_decode_f16_sm90_args &a, int lane)
{
    const int all = a.most_jobs * a.tiles;
#pragma unroll 1
    for (int item = (int)blockIdx.x + lane * (int)gridDim.x; item < all; item += 32 * (int)gridDim.x)
#pragma unroll 1
        for (int column = 0; column < a.columns; column++) {
            const int job = item / a.tiles, tile = item - job * a.tiles;
            write_u(u_of(a, job, column, tile), make_uint4(BLANK_WORD, BLANK_WORD, BLANK_WORD, BLANK_WORD));
            write_exponent(exponent_of(a, job, column, tile), BLANK_EXPONENT);
        }
}

#endif
