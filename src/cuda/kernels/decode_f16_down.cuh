/* SPDX-License-Identifier: Apache-2.0
 * decode_f16_down.cuh: pass 2 of moe_decode_f16_sm90: what its warps do with 16 outputs.
 *
 * A block has some tiles of 16 outputs, and goes through them together, job by job as pass 1 does.  A unit is a slot: some lines of a job's 16 rows.  Units go
 * round the workers, each of which sends for its own, and leaves each token's sums in shared memory: [tile][part][pair][row].  When all are done,
 * a thread for each token and row adds its slots' sums, the first slot's first.  ITEMS: where the parts' sums have no room, items go round the workers, and
 * the worker itself adds up an item's parts, in the same order: [tile][pair][row]. */
#ifndef MOII_DECODE_F16_DOWN_CUH
#define MOII_DECODE_F16_DOWN_CUH

#include "decode_f16_far.cuh"
#include "decode_f16_handover.cuh"

/* A worker's units, one behind the other: a part of tile blockIdx + number * gridDim. */
typedef struct unit { int job, number, part; } unit;

MOII_FN bool there_is(const unit &u, const lists &l) { return u.job < l.jobs; }
MOII_FN int tile_of(const unit &u) { return (int)blockIdx.x + u.number * (int)gridDim.x; }

MOII_FN void move_on(unit &u, int jobs, int numbers, int parts, const moe_decode_f16_sm90_args &a)
{
    u.part += parts;
    if (u.part >= a.parts) u.part -= a.parts, u.number++;
    u.number += numbers;
    if (u.number >= a.block_tiles) u.number -= a.block_tiles, u.job++;
    u.job += jobs;
}
/* The same, or the worker's next one whose tile there is, if any: where none of its tiles are, it comes behind all jobs. */
MOII_FN void settle(unit &u, const moe_decode_f16_sm90_args &a)
{
    while (tile_of(u) >= a.tiles && u.job < a.most_jobs) move_on(u, a.step_job, a.step_number, a.step_rest, a);
}
MOII_FN unit next_unit(unit u, const moe_decode_f16_sm90_args &a)
{
    if (ITEMS && ++u.part < a.parts) return u;
    if (ITEMS) u.part = 0;
    move_on(u, a.step_job, a.step_number, a.step_rest, a);
    settle(u, a);
    return u;
}
MOII_FN unit first_unit(const worker &w, const moe_decode_f16_sm90_args &a)
{
    unit u = { 0, 0, 0 };
#pragma unroll 1
    for (int i = 0; i < w.warp; i++) move_on(u, 0, ITEMS, !ITEMS, a);
    settle(u, a);
    return u;
}

MOII_FN void send_for(const unit &u, int expert, int slot, const worker &w, const moe_decode_f16_sm90_args &a)
{
    const int row = tile_of(u) * F16_ROWS;
    if (elected()) load_codes(w, a, slot, u.part, expert * a.hidden + row, 0, a.policy);
    send_for_scales(w, a, slot, scales_from(a, expert, row), u.part);
}

/* Where this lane's u of a unit's lines is; 0 lines: no unit.  NO_U: its column is not there, and what is multiplied for it is left. */
#define NO_U 0xFFFFFFFFu
typedef struct unit_place { unsigned int u, exponents; int lines, whole; } unit_place; /* whole: TAIL: lines before the row's last one */

MOII_FN unit_place place_of(const unit &u, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    unit_place p = { NO_U, 0, 0, 0 };
    if (!there_is(u, l)) return p;
    const int line = u.part * a.slot_lines, column = w.lane / 4;
    p.lines = min(a.slot_lines, a.lines - line), p.whole = a.lines - 1 - line;
    const int row = u.job * a.columns + column;
    if (pair_of(w, a, u.job, column) >= 0) p.u = (unsigned int)(row * a.width + line * LINE_VALUES + w.lane % 4 * 8);
    p.exponents = (unsigned int)(row * a.exponent_row + line * (LINE_VALUES / 8) + w.lane % 4 * BLOCKS);
    return p;
}

/* Blocks that there are of a unit's line. */
MOII_FN int blocks_of(const unit_place &p, const moe_decode_f16_sm90_args &a, int line) { return TAIL && line >= p.whole ? a.last_blocks : (int)BLOCKS; }

/* Exponents of a line are in the order of the blocks for each of the four lanes. */
MOII_FN unsigned int exponents_of(const unit_place &p, const moe_decode_f16_sm90_args &a, int line)
{
    return bytes_of_blocks(read_exponents(a.exponent + (p.exponents + line * (LINE_VALUES / 8))), blocks_of(p, a, line));
}

MOII_FN void load_u(line_u &u, const unit_place &p, const moe_decode_f16_sm90_args &a, int line)
{
    if (p.u == NO_U || line >= p.lines) return;
    u.exponents = exponents_of(p, a, line);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
        if (!TAIL || b < blocks_of(p, a, line)) u.v[b] = read_u(a.u + p.u + line * LINE_VALUES + 32 * b);
        else u.v[b] = make_uint4(0, 0, 0, 0);
}

MOII_FN bool is_blank(const line_u &u)
{
    bool blank = any_blank(u.exponents);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) blank |= u.v[b].w == BLANK_WORD;
    return blank;
}

/* All lines at once: a look at one is a trip to L2. */
MOII_FN bool lacks_exponents(const unit_place &p, const moe_decode_f16_sm90_args &a, bool mine)
{
    unsigned int word[SLOT_LINES];
    bool blank = false;
#pragma unroll
    for (int i = 0; i < SLOT_LINES; i++) word[i] = mine && i < p.lines ? exponents_of(p, a, i) : 0;
#pragma unroll
    for (int i = 0; i < SLOT_LINES; i++) blank |= any_blank(word[i]);
    return __any_sync(0xFFFFFFFFu, blank);
}

/* Until a unit's u is there: looks at one word of each line, and seldom, since all blocks do so at the same time. */
MOII_FN void wait_for_u(line_u held[SLOT_LINES], const unit_place &p, const moe_decode_f16_sm90_args &a)
{
    const bool mine = p.u != NO_U;
#pragma unroll 1
    for (;;) {
        unsigned int blank = 0;
#pragma unroll
        for (int i = 0; i < SLOT_LINES; i++) blank |= (unsigned int)is_blank(held[i]) << i;
        if (!__any_sync(0xFFFFFFFFu, mine && (blank & ((1u << p.lines) - 1u)))) return;
#pragma unroll 1
        while (lacks_exponents(p, a, mine)) __nanosleep(200);
#pragma unroll
        for (int i = 0; i < SLOT_LINES; i++) load_u(held[i], p, a, i);
    }
}

/* How many of an item's sums are kept. */
MOII_FN int parts_kept(const moe_decode_f16_sm90_args &a) { return ITEMS ? 1 : a.parts; }

/* A lane's, of one row: its own alone. */
MOII_FN void put_sum(unsigned int at, float sum, const unit &u) { shared_write(at, ITEMS && u.part ? shared_read(at) + sum : sum); }
MOII_FN void put_sums(const worker &w, const moe_decode_f16_sm90_args &a, const tile_sum &sum, const unit &u)
{
    const int even = pair_of(w, a, u.job, w.lane % 4 * 2), odd = pair_of(w, a, u.job, w.lane % 4 * 2 + 1);
    const int place = u.number * parts_kept(a) + (ITEMS ? 0 : u.part);
    const unsigned int to = w.shared + a.at_sums + place * (a.tokens * a.top_k * F16_ROWS * 4) + row_at(w.lane / 4) * 4;
    if (even >= 0) put_sum(to + even * (F16_ROWS * 4), sum.v[0], u), put_sum(to + even * (F16_ROWS * 4) + 32, sum.v[2], u);
    if (odd >= 0) put_sum(to + odd * (F16_ROWS * 4), sum.v[1], u), put_sum(to + odd * (F16_ROWS * 4) + 32, sum.v[3], u);
}

enum { SLOTS_AT_ONCE = 8 };

/* An output that is Inf or NaN, from its slots' sums. */
MOII_FN float far_output(unsigned int at, int token, int row, const moe_decode_f16_sm90_args &a, const lists &l)
{
    float y = 0;
#pragma unroll 1
    for (int pair = token * a.top_k; pair < (token + 1) * a.top_k; pair++, at += F16_ROWS * 4) {
        const int id = l.ids[pair];
        if (id < 0) continue;
        float sum = shared_read(at);
#pragma unroll 1
        for (int part = 1; part < parts_kept(a); part++) sum += shared_read(at + part * (l.pairs * F16_ROWS * 4));
        const int job = a.tokens == 1 && a.logits ? pair : l.job[l.first[id]];
        y = __fmaf_rn(l.weights[pair], mended(sum, id, row, job, token, a), y);
    }
    return y;
}

/* Workers: outputs of the block's tiles. */
MOII_FN void put_outputs(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.block_tiles * a.tokens * F16_ROWS; i += THREADS) {
        const int row = i % F16_ROWS;
        int number = 0, token = i / F16_ROWS;
        for (; token >= a.tokens; token -= a.tokens) number++;
        const int tile = (int)blockIdx.x + number * (int)gridDim.x;
        const unsigned int first = w.shared + a.at_sums + ((number * parts_kept(a) * l.pairs + token * a.top_k) * F16_ROWS + row) * 4;
        float y = 0;
#pragma unroll 1
        for (int slot = 0; slot < a.top_k; slot += SLOTS_AT_ONCE) {
            const int pair = token * a.top_k + slot;
            unsigned int at = first + slot * (F16_ROWS * 4);
            float sum[SLOTS_AT_ONCE];
#pragma unroll 1
            for (int part = 0; part < parts_kept(a); part++, at += l.pairs * F16_ROWS * 4)
#pragma unroll
                for (int j = 0; j < SLOTS_AT_ONCE; j++) {
                    const float v = slot + j < a.top_k ? shared_read(at + j * (F16_ROWS * 4)) : 0;
                    sum[j] = part ? sum[j] + v : v;
                }
            bool there[SLOTS_AT_ONCE];
            float weight[SLOTS_AT_ONCE];
#pragma unroll
            for (int j = 0; j < SLOTS_AT_ONCE; j++) {
                const int own = pair + min(j, a.top_k - 1 - slot);
                there[j] = slot + j < a.top_k & l.ids[own] >= 0, weight[j] = l.weights[own];
            }
#pragma unroll
            for (int j = 0; j < SLOTS_AT_ONCE; j++) y = there[j] ? __fmaf_rn(weight[j], sum[j], y) : y;
        }
        const long long to = (long long)token * a.hidden + tile * F16_ROWS + row;
        if (tile >= a.tiles) continue;
        if (may_be_far(y)) y = far_output(first, token, tile * F16_ROWS + row, a, l);
        if (a.out_f32) ((float *)a.out)[to] = y;
        else ((unsigned short *)a.out)[to] = (unsigned short)moii_bf16_encode(y);
    }
}

/* A worker's units that are to be sent for: the next one with its expert, and how many of the ring's slots have been filled first. */
typedef struct to_send { unit next; int expert, slots; } to_send;

MOII_FN void find_expert(to_send &s, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    if (there_is(s.next, l)) s.expert = expert_of(w, a, s.next.job);
}
MOII_FN void send_next(to_send &s, int slot, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    send_for(s.next, s.expert, slot, w, a);
    s.next = next_unit(s.next, a);
    find_expert(s, w, a, l);
}
MOII_FN void send_until(to_send &s, int slots, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
#pragma unroll 1
    for (; s.slots < slots && there_is(s.next, l); s.slots++) send_next(s, s.slots, w, a, l);
}
MOII_FN to_send send_first(const unit &first, const worker &w, const moe_decode_f16_sm90_args &a, const lists &l)
{
    to_send s = { first, 0, 0 };
    find_expert(s, w, a, l);
    send_until(s, a.first_slots, w, a, l);
    return s;
}

/* What a worker does with a unit; then it holds the next one's u. */
MOII_FN void do_unit(line_u held[SLOT_LINES], const unit_place &here, const unit_place &next, int slot, const unit &u, to_send &later, const worker &w,
                     const moe_decode_f16_sm90_args &a, const lists &l)
{
    tile_sum sum = { { 0, 0, 0, 0 } };
    const unsigned int from = w.own.codes + (unsigned int)(slot * a.slot_bytes), scales = slot_scales(w, a, slot, 0, u.part);
    wait_for_u(held, here, a);
    send_until(later, a.ring, w, a, l);
#pragma unroll
    for (int i = 0; i < SLOT_LINES; i++) {
        if (!i || i < here.lines) {
            column_source columns;
            align_u(columns.line, held[i], (int)as_it_is((unsigned int)w.lane)); /* registers are short: nothing of it is to be kept */
            add_line(sum, from + i * LINE_BYTES, line_scales(w, a, scales, i, blocks_of(here, a, i)), columns);
        }
        load_u(held[i], next, a, i);
    }
    put_sums(w, a, sum, u);
}

/* weight: the thread's pair's, as pass 1 had left it. */
MOII_FN void multiply(const worker &w, const moe_decode_f16_sm90_args &a, const lists &l, unit here, to_send later, unsigned int weight)
{
    line_u held[SLOT_LINES];
    unit_place at = place_of(here, w, a, l);
#pragma unroll
    for (int i = 0; i < SLOT_LINES; i++) {
        held[i].exponents = 0;
        for (int b = 0; b < BLOCKS; b++) held[i].v[b] = make_uint4(0, 0, 0, 0);
        load_u(held[i], at, a, i);
    }
    const unsigned int asked = ask_for_weight(weight, l, a);
    turn t = { 0, 0 };
    while (there_is(here, l)) {
        const unit next = next_unit(here, a);
        const unit_place then = place_of(next, w, a, l);
        barrier_wait(filled(w, t.slot), t.phase);
        do_unit(held, at, then, t.slot, here, later, w, a, l);
        __syncwarp();
        if (there_is(later.next, l)) send_next(later, t.slot, w, a, l);
        advance(t, a);
        here = next, at = then;
    }
    await_weights(weight, asked, l, a);
    threads_meet(BARRIER_TILE, THREADS);
    put_outputs(w, a, l);
}

#endif
