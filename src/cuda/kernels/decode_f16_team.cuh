/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_team.cuh: pass 1 of the decode rows that multiply in FP16: what its warps do with an item of 8 neurons.
 *
 * A team of four warps shares an item: slots i, i + 4 and on are one warp's.  Where one would always have fewer lines than the others, they change places
 * from item to item.  They leave their sums in shared memory, which another warp, the team's own, adds up, and finishes the item.  Each worker sends
 * for its own slots.  The order of items, columns of x, and what else happens when a team has finished some items, are the includer's. */
#ifndef MOII_DECODE_F16_TEAM_CUH
#define MOII_DECODE_F16_TEAM_CUH

#include "decode_f16_far.cuh"
#include "decode_f16_slot.cuh"

/* A warp's first slot of the team's `turn`-th item, and the place of its sums, which are added up in the order of slots.  With few tokens only of MXFP4: of
 * the others multiplying bounds nothing, and one and two tokens took 1 % longer with block FP8. */
enum { MAY_SHIFT = MANY || WEIGHTS == F16_MXFP4 };
MOII_FN int first_part(int member, int turn, const moe_decode_f16_sm90_args &a)
{
    return MAY_SHIFT ? (member + turn * a.shifts) & (F16_TEAM - 1) : member;
}

/* True: it is of another item. */
MOII_FN bool next_slot(work &k, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if ((k.part += F16_TEAM) < a.parts) return false;
    k.part = first_part(MAY_SHIFT ? k.part % F16_TEAM : w.warp % F16_TEAM, 1, a);
    next_item(k, a, l);
    return true;
}

/* A warp's sums of an item; a lane's place in a team's. */
enum { SUM_BYTES = GROUPS * 512, SUM_PLACES = MANY_SUM_PLACES(GROUPS * F16_MOST_TOKENS) };
MOII_FN unsigned int sums_of_team(const worker &w, const moe_decode_f16_sm90_args &a, int team)
{
    return w.shared + a.at_sums + team * (SUM_PLACES * F16_TEAM * SUM_BYTES) + w.lane * 16;
}

/* One column's u of 8 neurons in 8 lanes (g = 0 .. 7), in the order of row_at: FP16 times a power of two, and its exponent; or BF16, and that it is there. */
MOII_FN void put_u(const moe_decode_f16_sm90_args &a, float u, bool there, int job, int column, int tile, int g)
{
    uint4 all;
#if WEIGHTS == F16_BF16
    const unsigned int most = 0;
    unsigned int word; /* neurons 0 and 1, those of g = 1 4 and 5, of g = 4 2 and 3, of g = 5 6 and 7; NaN: 0x7FFF */
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(__shfl_down_sync(0xFFFFFFFFu, u, 8)), "f"(u));
    all.x = word, all.y = __shfl_down_sync(0xFFFFFFFFu, word, 16);
    all.z = __shfl_down_sync(0xFFFFFFFFu, word, 4), all.w = __shfl_down_sync(0xFFFFFFFFu, word, 20);
#else
    const unsigned int bits = moii_bits_of(u) & 0x7FFFFFFFu;
    unsigned int most = max(bits >= 0x7F800000u ? 0u : bits >> 23, (unsigned int)LEAST_EXPONENT);
#pragma unroll
    for (int step = 4; step < 32; step *= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(u * f16_scale(most)));
    const unsigned int word = (unsigned int)half | __shfl_down_sync(0xFFFFFFFFu, (unsigned int)half, 16) << 16; /* neurons 2g, 2g + 1; E2M1: g, g + 4 */
    all.x = word, all.y = __shfl_down_sync(0xFFFFFFFFu, word, 4);
    all.z = __shfl_down_sync(0xFFFFFFFFu, word, 8), all.w = __shfl_down_sync(0xFFFFFFFFu, word, 12);
#endif
    if (g || !there) return;
    if (MANY) write_u_kept(u_of(a, job, column, tile), all, a.kept);
    else write_u(u_of(a, job, column, tile), all);
    if (!MANY || WEIGHTS != F16_BF16) write_exponent(exponent_of(a, job, column, tile), most);
}

/* Sums of gate, then of up, of a lane's two columns, where any lane has one that is Inf or NaN. */
MOII_FN void mend_item(float v[4], const work &k, int column, bool even, bool odd, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if (!MAY_BE_FAR || !__any_sync(0xFFFFFFFFu, may_be_far(fabsf(v[0]) + fabsf(v[1]) + fabsf(v[2]) + fabsf(v[3])))) return;
    const int first = token_in(k.job, column, w, a, l), second = token_in(k.job, column + 1, w, a, l);
    const int expert = expert_of(w, a, k.job), gate = k.tile * 8 + row_at(w.lane / 4);
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        const int row = i & 2 ? a.width + gate : gate;
        const float sum = i & 2 ? i & 1 ? v[3] : v[2] : i & 1 ? v[1] : v[0];
        bool mine = (i & 1 ? odd : even) & may_be_far(sum);
        if (!__any_sync(0xFFFFFFFFu, mine)) continue;
        mine = mine & has_far_scale(a, expert, row);
        if (!__any_sync(0xFFFFFFFFu, mine)) continue;
        const float far = far_sum(a, expert, row, far_x(a, i & 1 ? second : first));
        v[0] = mine && i == 0 ? far : v[0], v[1] = mine && i == 1 ? far : v[1], v[2] = mine && i == 2 ? far : v[2], v[3] = mine && i == 3 ? far : v[3];
    }
}

#if SCALE_BOXES
/* Of the item, if there is one: the warp that finishes the team's. */
MOII_FN void send_scales(const work &k, int team, int turn, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if (!there_is(k, l)) return;
    const source from = source_of(w, a, k.job);
    if (elected()) load_scales(w, a, team, turn, expert_at(from), k.tile, policy_of(from, a));
}
/* Of as many items as have room: the item behind them. */
MOII_FN work send_first_scales(int team, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    work k = first_item(a, l, team);
#pragma unroll 1
    for (int turn = 0; turn < a.scale_rooms && there_is(k, l); turn++, next_item(k, a, l)) send_scales(k, team, turn, w, a, l);
    return k;
}
#endif

/* The warp that finishes a team's items; later: the first item whose scales it has not sent for. */
MOII_FN void finish(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, int team, work later)
{
    const unsigned int sums = sums_of_team(w, a, team);
    int turns = 0;
    for (work k = first_item(a, l, team);; next_item(k, a, l), turns++) {
        come_to(k, w, l);
        if (!there_is(k, l)) return;
        int column = w.lane % 4 * 2;
        const int place = turns & (SUM_PLACES - 1), groups = groups_of(w, a, k.job);
        bool even = has_column(w, a, k.job, column), odd = has_column(w, a, k.job, column + 1);
        barrier_wait(summed(w, a, team * 2 + place), turns >> (SUM_PLACES - 1) & 1);
#if SCALE_BOXES
        send_scales(later, team, turns + a.scale_rooms, w, a, l);
        next_item(later, a, l);
#endif
        begin_turn(turns, team, w, a, l);
        for (int group = 0;;) {
            uint4 part[F16_TEAM];
#pragma unroll
            for (int i = 0; i < F16_TEAM; i++) part[i] = shared_read_four(sums + (place * F16_TEAM + i) * SUM_BYTES + group * 512);
            __syncwarp();
            if (++group == groups && w.lane == 0) barrier_arrive(added(w, a, team * 2 + place));
            float v[4] = { moii_float_of(part[0].x), moii_float_of(part[0].y), moii_float_of(part[0].z), moii_float_of(part[0].w) };
#pragma unroll
            for (int i = 1; i < F16_TEAM; i++)
                v[0] += moii_float_of(part[i].x), v[1] += moii_float_of(part[i].y), v[2] += moii_float_of(part[i].z), v[3] += moii_float_of(part[i].w);
            mend_item(v, k, column, even, odd, w, a, l);
            put_u(a, moii_swiglu(v[0], v[2]), even, k.job, column, k.tile, w.lane / 4);
            if (a.tokens > 1) put_u(a, moii_swiglu(v[1], v[3]), odd, k.job, column + 1, k.tile, w.lane / 4);
            if (group == groups) break;
            column += F16_MOST_TOKENS;
            even = has_column(w, a, k.job, column), odd = has_column(w, a, k.job, column + 1);
        }
    }
}

MOII_FN void send_for(const work &k, const source &from, int slot, const worker &w, const moe_decode_f16_sm90_args &a)
{
    if (elected()) load_codes(w, a, slot, k.part, k.tile * 8, 2 * expert_at(from), policy_of(from, a));
    send_for_scales(w, a, slot, scales_from(a, expert_at(from), k.tile * 8), k.part);
}

/* A worker's first; and slots are sent for until the ring is full, or there are no more. */
MOII_FN work first_work(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    work k = first_item(a, l, w.warp / F16_TEAM);
    k.part = w.warp % F16_TEAM;
    return k;
}
MOII_FN void send_more(work &later, int &slot, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    const int member = w.warp % F16_TEAM;
    for (; slot < a.ring && there_is(later, l) && member < a.parts; slot++, next_slot(later, w, a, l)) send_for(later, source_of(w, a, later.job), slot, w, a);
}
MOII_FN work send_first(work later, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    int slot = 0;
    send_more(later, slot, w, a, l);
    return later;
}

MOII_FN void multiply(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, work k, work later)
{
    const int team = w.warp / F16_TEAM, member = w.warp % F16_TEAM;
    const unsigned int sums = sums_of_team(w, a, team);
    tile_sum sum[GROUPS] = {};
    turn t = { 0, 0 };
    held_columns held = first_columns(a, l);
    source from = {};
    if (there_is(later, l)) from = source_of(w, a, later.job);
    for (int turns = 0;; turns++, next_item(k, a, l)) {
        hold_columns(held, k, w, a, l);
        if (!there_is(k, l)) break;
        const bool few = GROUPS > 1 && groups_of(w, a, k.job) < GROUPS;
        const int first = first_part(member, turns, a);
        if (member < a.parts) wait_for_scales(w, a, turns);
#pragma unroll 1
        for (int part = first; part < a.parts; part += F16_TEAM) {
            barrier_wait(filled(w, t.slot), t.phase);
            const unsigned int scales = slot_scales(w, a, t.slot, turns, part);
            const slot_lines_read taken = take_slot(t.slot, scales, part, w, a);
            if (!TAKES) add_slot(sum, taken, t.slot, scales, part, few, held, w, a);
            __syncwarp();
            if (there_is(later, l)) {
                send_for(later, from, t.slot, w, a);
                const int job = later.job;
                if (next_slot(later, w, a, l) && there_is(later, l) && (!MANY || later.job != job)) from = source_of(w, a, later.job);
            }
            if (TAKES) add_slot(sum, taken, t.slot, scales, part, few, held, w, a);
            advance(t, a);
        }
        const int place = SUM_PLACES > 1 ? team * 2 + (turns & 1) : (int)as_it_is((unsigned int)(team * 2)); /* one place would be kept in registers */
        barrier_wait(added(w, a, place), turns >> (SUM_PLACES - 1) & 1 ^ 1);
        const unsigned int own = SUM_PLACES > 1 ? sums + ((turns & 1) * F16_TEAM + first) * SUM_BYTES : sums_of_team(w, a, place / 2) + first * SUM_BYTES;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            shared_write_four(own + g * 512,
                              make_uint4(moii_bits_of(sum[g].v[0]), moii_bits_of(sum[g].v[1]), moii_bits_of(sum[g].v[2]), moii_bits_of(sum[g].v[3])));
            sum[g].v[0] = sum[g].v[1] = sum[g].v[2] = sum[g].v[3] = 0;
        }
        __syncwarp();
        if (w.lane == 0) barrier_arrive(summed(w, a, place));
    }
}

#endif
