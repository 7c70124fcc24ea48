/* SPDX-License-Identifier: Apache-2.0
 *
 * moe_decode_fp8_sm90: one pass of moi_moe_decode_run for MXFP8 weights, whose codes the FP8 tensor cores read as they lie.
 *
 *   defines   PASS 1: u = silu(gate . x) * (up . x); 2: y = sum of weight * (down . u)
 *             TOKENS: of a group, 4 or 8; E5M2: 1 where weights are E5M2, else E4M3
 *             LINE: bytes of a row in a tile, 128 or 64; CHUNKS: tiles of a stage, behind each other along k
 *   grid      pass 1: as many blocks as multiprocessors, or fewer; pass 2: clusters of `slices` blocks, one for each 64 outputs
 *   item      pass 1: 16 outputs of an expert for a group of its tokens: 16 rows of gate and 16 of up, the first half of k in 32 rows of the
 *             tensor core's 64, the second in the others.  A block takes a run of the items of all groups.
 *             pass 2: 64 outputs of an expert, a slice of k; a block goes through all groups, its outputs stay
 *   warps     warpgroups that multiply: in pass 1 four, every fourth stage each, in pass 2 two, the experts of even or odd number;
 *             three warps that split columns of x or u into pairs of E4M3 (decode_fp8_columns.cuh);
 *             one that sends for weights, as far ahead as the ring has room
 *   bits      sums are cut by the shape alone, and a column's arithmetic depends on its own values alone: nothing depends on the batch
 *   launch    pass 1 waits for the grid before it, which also covers what pass 2 reads early: logits or ids and weights, and its
 *             experts' rows.  Pass 2 starts while pass 1 runs, sends for its first stages, and waits for u. */
#include "moe_decode_fp8_sm90_args.h"
#include "silu.h"

enum { GROUPS = PASS == 1 ? FP8_GROUPS_UP : FP8_GROUPS_DOWN, FP8_MULTIPLIERS = 128 * GROUPS, FP8_THREADS = FP8_MULTIPLIERS + FP8_OTHERS };
enum { HALVES = PASS == 1 ? 2 : 1, STEP = LINE * CHUNKS };
#if PASS == 1
#define COLUMNS (4 * TOKENS)
#else
#define COLUMNS (2 * TOKENS)
#endif
enum { STAGE_BYTES = FP8_ROWS * STEP, COLUMN_BYTES = COLUMNS * STEP };

#include "decode_fp8_columns.cuh"
#include "decode_fp8_lists.cuh"
#include "decode_fp8_multiply.cuh"

typedef struct worker {
    char *memory;
    unsigned int shared;
    int warp, lane;
} worker;

/* A place in the ring, and whether it has come round an even or odd number of times.  Who waits for a slot must have seen its last
 * turn: in pass 1 a slot always is the same warpgroup's (the ring, and an item's turns, are multiples of GROUPS), in pass 2 both pass all. */
typedef struct turn { int slot; unsigned int phase; } turn;
MOII_FN void advance(turn &t, const moe_decode_fp8_sm90_args &a, int by) /* by at most the ring */
{
    t.slot += by;
    if (t.slot >= a.ring) t.slot -= a.ring, t.phase ^= 1u;
}

/* Barriers: of the ring's slots, filled and free; in pass 1 of the columns' stages too, and of the items' scales. */
MOII_FN unsigned int filled(const worker &w, const moe_decode_fp8_sm90_args &a, int slot) { return w.shared + a.at_barriers + 8 * slot; }
MOII_FN unsigned int freed(const worker &w, const moe_decode_fp8_sm90_args &a, int slot) { return filled(w, a, a.ring + slot); }
MOII_FN unsigned int columns_filled(const worker &w, const moe_decode_fp8_sm90_args &a, int stage) { return filled(w, a, 2 * a.ring + stage); }
MOII_FN unsigned int columns_freed(const worker &w, const moe_decode_fp8_sm90_args &a, int stage) { return filled(w, a, 2 * a.ring + a.stages + stage); }
MOII_FN unsigned int scales_filled(const worker &w, const moe_decode_fp8_sm90_args &a, int slot) { return filled(w, a, 2 * a.ring + 2 * a.stages + slot); }

MOII_FN void make_barriers(const worker &w, const moe_decode_fp8_sm90_args &a)
{
    const int i = (int)threadIdx.x, all = 2 * a.ring + (PASS == 1 ? 2 * a.stages + a.scale_slots : 0);
    if (i < all) {
        const int kind = i < a.ring ? 0 : i < 2 * a.ring ? 1 : i < 2 * a.ring + a.stages ? 2 : i < 2 * a.ring + 2 * a.stages ? 3 : 4;
        const unsigned int arrivals = kind == 0 ? (PASS == 1 ? 1 : 2) : kind == 1 ? (PASS == 1 ? 4 : 8) : kind == 2 ? 2 : kind == 3 ? 4 : 1;
        barrier_init(filled(w, a, i), arrivals);
        barrier_init_done();
    }
    __syncthreads();
}

/* A block's work: pass 1: items group * tiles + tile; pass 2: groups. */
typedef struct share { int from, to; } share;
MOII_FN share my_share(const lists &l, const moe_decode_fp8_sm90_args &a)
{
    share s;
    s.from = 0, s.to = l.groups;
    if (PASS == 1) {
        const long long all = (long long)l.groups * a.tiles;
        s.from = (int)(all * blockIdx.x / gridDim.x), s.to = (int)(all * (blockIdx.x + 1) / gridDim.x);
    }
    return s;
}

/* ---- the warp that sends for weights: one lane ---- */

MOII_FN void send_stage(const moe_decode_fp8_sm90_args &a, unsigned int to, unsigned int barrier, int expert, int tile, int stage)
{
#if PASS == 1
#pragma unroll
    for (int i = 0; i < CHUNKS; i++)
        box_load_5(to + i * (FP8_ROWS * LINE), &a.map, barrier, stage * STEP + i * LINE, 0, 2 * expert, tile * (FP8_TILE_UP / 8), 0);
#else
    box_load(to, &a.map, barrier, 0, expert * a.hidden + tile * FP8_TILE_DOWN, ((int)cluster_rank() * a.stages + stage) * CHUNKS);
#endif
}

/* The scales of an item's rows, which lie behind each other. */
MOII_FN void send_scales(const moe_decode_fp8_sm90_args &a, unsigned int to, unsigned int barrier, int expert, int tile)
{
    const unsigned char *from = a.scale + (unsigned long long)expert * a.expert_scale_bytes;
    const unsigned int rows = PASS == 1 ? FP8_TILE_UP : FP8_TILE_DOWN, bytes = rows * a.scale_row;
    run_load(to, from + (unsigned long long)tile * bytes, bytes, barrier);
    if (PASS == 1) run_load(to + bytes, from + ((unsigned long long)a.width * a.scale_row + (unsigned long long)tile * bytes), bytes, barrier);
}

MOII_FN void send_weights(const worker &w, const moe_decode_fp8_sm90_args &a, const lists &l, share s)
{
    const unsigned int scale_bytes = (PASS == 1 ? 2 * FP8_TILE_UP : FP8_TILE_DOWN) * a.scale_row;
    turn t;
    t.slot = 0, t.phase = 1;
    int scale_slot = 0, group = PASS == 1 ? s.from / a.tiles : 0, tile = PASS == 1 ? s.from % a.tiles : (int)blockIdx.x / a.slices;
    for (int n = s.from; n < s.to; n++) {
        const int expert = l.expert[group];
        for (int stage = 0; stage < a.turns; stage++) {
            const unsigned int barrier = filled(w, a, t.slot);
            const unsigned int scales = PASS == 1 ? scales_filled(w, a, scale_slot) : barrier; /* in pass 2, who reads them has waited for stage 0 */
            barrier_wait(freed(w, a, t.slot), t.phase);
            if (PASS == 1 && !stage) barrier_expect(scales, scale_bytes);
            barrier_expect(barrier, (stage < a.stages ? STAGE_BYTES : 0) + (PASS == 1 || stage ? 0 : scale_bytes));
            if (stage < a.stages) send_stage(a, w.shared + t.slot * STAGE_BYTES, barrier, expert, tile, stage);
            if (!stage) send_scales(a, w.shared + a.at_scales + scale_slot * scale_bytes, scales, expert, tile);
            advance(t, a, 1);
        }
        if (++scale_slot == a.scale_slots) scale_slot = 0;
        if (PASS == 2) group++;
        else if (++tile == a.tiles) tile = 0, group++;
    }
}

/* ---- the warps that split columns ---- */

#if PASS == 1
/* A stage's columns are kept for all items of a group.  Unit: one half of k in one stage, for all tokens; warps take them in turn. */
MOII_FN void load_unit(stretch *x, const moe_decode_fp8_sm90_args &a, const lists &l, int group, int unit, int lane)
{
    const int k = unit / 2 * STEP + unit % 2 * (a.k / 2);
#pragma unroll
    for (int j = 0; j < TOKENS; j++) {
        const int pair = a.dense ? (j < a.tokens ? j * a.top_k : -1) : l.column[group * TOKENS + j];
        if (pair >= 0) load_stretch(x[j], a.in + (unsigned long long)(token_of(a, pair)) * (unsigned int)a.k + k, lane);
    }
}

MOII_FN void store_unit(const stretch *x, const worker &w, const moe_decode_fp8_sm90_args &a, const lists &l, int group, int unit)
{
    const int stage = unit / 2, half = unit % 2;
    float *factors = (float *)(w.memory + a.at_factors) + unit * TOKENS;
#pragma unroll
    for (int j = 0; j < TOKENS; j++)
        if (a.dense ? j < a.tokens : l.column[group * TOKENS + j] >= 0) {
            const float factor = store_stretch(x[j], w.shared + a.at_columns + stage * COLUMN_BYTES, half * (2 * TOKENS) + 2 * j, w.lane);
            if (w.lane == 0) factors[j] = factor;
        }
    shared_to_async();
    __syncwarp();
    if (w.lane == 0) barrier_arrive(columns_filled(w, a, stage));
}

/* Units are loaded two at a time. */
MOII_FN void split_columns(const worker &w, const moe_decode_fp8_sm90_args &a, const lists &l, int first, int last)
{
    const int me = w.warp - FP8_MULTIPLIERS / 32, units = 2 * a.stages;
    for (int group = first; group <= last; group++)
        for (int unit = me; unit < units; unit += 2 * FP8_SPLITTERS) {
            stretch x[2][TOKENS];
            const int second = unit + FP8_SPLITTERS;
            load_unit(x[0], a, l, group, unit, w.lane);
            if (second < units) load_unit(x[1], a, l, group, second, w.lane);
            if (group > first) barrier_wait(columns_freed(w, a, unit / 2), (group - first - 1) & 1);
            store_unit(x[0], w, a, l, group, unit);
            if (second >= units) continue;
            if (group > first) barrier_wait(columns_freed(w, a, second / 2), (group - first - 1) & 1);
            store_unit(x[1], w, a, l, group, second);
        }
}
#else
/* A stage's columns lie with its weights in the ring; warps take stages in turn, and load AHEAD of them at a time. */
enum { AHEAD = TOKENS * PIECES <= 8 ? 2 : 1 };
typedef struct place { int group, stage; } place;
MOII_FN void step_on(place &p, const moe_decode_fp8_sm90_args &a)
{
    for (p.stage += FP8_SPLITTERS; p.stage >= a.stages; p.stage -= a.stages) p.group++;
}

MOII_FN void split_columns(const worker &w, const moe_decode_fp8_sm90_args &a, const lists &l, share s)
{
    const int me = w.warp - FP8_MULTIPLIERS / 32, all = s.to * a.stages;
    const unsigned short *slice = a.in + (int)cluster_rank() * a.stages * STEP;
    turn t;
    t.slot = 0, t.phase = 1;
    advance(t, a, me);
    place p;
    p.group = me / a.stages, p.stage = me % a.stages;
    grid_wait();
    for (int i = me; i < all;) {
        stretch u[AHEAD][TOKENS];
        place q = p;
#pragma unroll
        for (int n = 0; n < AHEAD; n++, step_on(q, a))
#pragma unroll
            for (int j = 0; j < TOKENS; j++) {
                const int pair = i + n * FP8_SPLITTERS < all ? l.column[q.group * TOKENS + j] : -1;
                if (pair >= 0) load_stretch(u[n][j], slice + (unsigned long long)pair * (unsigned int)a.k + q.stage * STEP, w.lane);
            }
#pragma unroll
        for (int n = 0; n < AHEAD && i < all; n++, i += FP8_SPLITTERS, step_on(p, a)) {
            float *factors = (float *)(w.memory + a.at_factors) + t.slot * TOKENS;
            barrier_wait(freed(w, a, t.slot), t.phase);
#pragma unroll
            for (int j = 0; j < TOKENS; j++)
                if (l.column[p.group * TOKENS + j] >= 0) {
                    const float factor = store_stretch(u[n][j], w.shared + a.at_columns + t.slot * COLUMN_BYTES, 2 * j, w.lane);
                    if (w.lane == 0) factors[j] = factor;
                }
            shared_to_async();
            __syncwarp();
            if (w.lane == 0) barrier_arrive(filled(w, a, t.slot));
            advance(t, a, FP8_SPLITTERS);
        }
    }
}
#endif

/* ---- the warps that multiply ---- */

MOII_FN void leave(unsigned int barrier, int lane)
{
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
}

#if PASS == 1
/* Sums of both warpgroups and halves, then u. */
MOII_FN void put_item(const sums &total, const worker &w, const moe_decode_fp8_sm90_args &a, const lists &l, int group, int tile, int buffer)
{
    float2 *sum = (float2 *)(w.memory + a.at_sums) + (buffer & 1) * (4 * GROUPS * MINE * 32);
    const int wg = w.warp / 4, half = w.warp % 4 / 2, part = w.warp % 2;
#pragma unroll
    for (int j = 0; j < MINE; j++) sum[((2 * wg + half) * 2 * MINE + part * MINE + j) * 32 + w.lane] = make_float2(total.v[0][j], total.v[1][j]);
    threads_meet(1, FP8_MULTIPLIERS); /* the other buffer is free then: who read it has come here */
    const int i = (int)threadIdx.x - buffer * 128;
    if (i < 0 || i >= 2 * MINE * 32) return;
    float2 v = sum[i];
#pragma unroll
    for (int n = 1; n < 2 * GROUPS; n++) v.x += sum[n * (2 * MINE * 32) + i].x, v.y += sum[n * (2 * MINE * 32) + i].y;
    const int token = i / 32 % MINE * 4 + i % 4, output = i / (32 * MINE) * 8 + i % 32 / 4, pair = l.column[group * TOKENS + token];
    if (pair < 0) return;
    ((unsigned short *)a.out)[(unsigned long long)pair * (unsigned int)a.width + tile * FP8_TILE_UP + output]
        = (unsigned short)moii_bf16_encode(moii_swiglu(v.x, v.y));
}

MOII_FN void multiply(const worker &w, const moe_decode_fp8_sm90_args &a, const lists &l, share s)
{
    const int wg = w.warp / 4, half = w.warp % 4 / 2, row = w.warp % 2 * 8 + w.lane / 4;
    const unsigned int scale_bytes = 2 * FP8_TILE_UP * a.scale_row;
    const float *factors = (const float *)(w.memory + a.at_factors) + half * TOKENS + w.lane % 4;
    turn t;
    t.slot = 0, t.phase = 0;
    advance(t, a, wg);
    int scale_slot = 0, group = s.from / a.tiles, tile = s.from % a.tiles;
    unsigned int round = 0, scale_round = 0; /* of the columns, of the scales */
    for (int n = s.from; n < s.to; n++) {
        const bool first = n == s.from || (tile == 0 && !a.dense), last = tile + 1 == a.tiles && !a.dense; /* of the columns' items */
        const unsigned char *scale = (const unsigned char *)w.memory + a.at_scales + scale_slot * scale_bytes + row * a.scale_row + half * (a.scale_row / 2);
        sums total = { { { 0 } } };
        barrier_wait(scales_filled(w, a, scale_slot), scale_round);
#pragma unroll 1
        for (int stage = wg; stage < a.turns; stage += GROUPS) {
            barrier_wait(filled(w, a, t.slot), t.phase);
            if (stage < a.stages) {
                if (first) barrier_wait(columns_filled(w, a, stage), round);
                multiply_stage(total, w.shared + t.slot * STAGE_BYTES, w.shared + a.at_columns + stage * COLUMN_BYTES, half,
                               factors + stage * (2 * TOKENS), scale + stage * (STEP / 32), scale + FP8_TILE_UP * a.scale_row + stage * (STEP / 32));
                if (last) leave(columns_freed(w, a, stage), w.lane);
            }
            leave(freed(w, a, t.slot), w.lane);
            advance(t, a, GROUPS);
        }
        put_item(total, w, a, l, group, tile, n % GROUPS);
        if (++scale_slot == a.scale_slots) scale_slot = 0, scale_round ^= 1u;
        if (++tile == a.tiles) tile = 0, group++, round ^= 1u;
    }
}
#else
/* y += weight * total, for the tokens of a group. */
MOII_FN void put_item(const sums &total, const worker &w, const lists &l, const moe_decode_fp8_sm90_args &a, int group, float *y)
{
    __syncwarp(); /* other lanes may have added to the same outputs before */
#pragma unroll
    for (int j = 0; j < MINE; j++) {
        const int pair = l.column[group * TOKENS + 4 * j + w.lane % 4];
        if (pair < 0) continue;
        float *to = y + token_of(a, pair) * FP8_SUM_ROWS;
        const float weight = l.weights[pair];
        to[0] = __fmaf_rn(weight, total.v[0][j], to[0]);
        to[8] = __fmaf_rn(weight, total.v[1][j], to[8]);
    }
}

MOII_FN void multiply(const worker &w, const moe_decode_fp8_sm90_args &a, const lists &l, share s)
{
    const int wg = w.warp / 4, row = w.warp % 4 * 16 + w.lane / 4;
    const unsigned int scale_bytes = FP8_TILE_DOWN * a.scale_row;
    float *y = (float *)(w.memory + a.at_sums) + wg * a.tokens * FP8_SUM_ROWS + row;
    turn t;
    t.slot = 0, t.phase = 0;
    int scale_slot = 0;
    if (a.logits) {
        grid_wait();
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < l.pairs; i += FP8_MULTIPLIERS) l.weights[i] = __ldcg(a.weights + i);
        threads_meet(1, FP8_MULTIPLIERS);
    }
    for (int group = 0; group < s.to; group++) {
        const unsigned char *scale = (const unsigned char *)w.memory + a.at_scales + scale_slot * scale_bytes + row * a.scale_row
                                   + (int)cluster_rank() * (a.scale_row / a.slices);
        if ((l.expert[group] & 1) == wg) {
            sums total = { { { 0 } } };
#pragma unroll 1
            for (int stage = 0; stage < a.stages; stage++) {
                barrier_wait(filled(w, a, t.slot), t.phase);
                multiply_stage(total, w.shared + t.slot * STAGE_BYTES, w.shared + a.at_columns + t.slot * COLUMN_BYTES, 0,
                               (const float *)(w.memory + a.at_factors) + t.slot * TOKENS + w.lane % 4, scale + stage * (STEP / 32),
                               scale + 8 * a.scale_row + stage * (STEP / 32));
                leave(freed(w, a, t.slot), w.lane);
                advance(t, a, 1);
            }
            put_item(total, w, l, a, group, y);
        } else { /* passed all the same: a group that ran a whole turn ahead would take one turn's barrier for the next one's */
            for (int stage = 0; stage < a.stages; stage++) {
                barrier_wait(filled(w, a, t.slot), t.phase);
                leave(freed(w, a, t.slot), w.lane);
                advance(t, a, 1);
            }
        }
        if (++scale_slot == a.scale_slots) scale_slot = 0;
    }
}

/* Sums over both warpgroups and all slices, in order; each block of the cluster does its part of the rows. */
MOII_FN void put_outputs(const worker &w, const moe_decode_fp8_sm90_args &a)
{
    const int rows = FP8_TILE_DOWN / a.slices, rank = (int)cluster_rank(), tile = (int)blockIdx.x / a.slices;
    for (int i = (int)threadIdx.x; i < a.tokens * rows; i += FP8_THREADS) {
        const int token = i / rows, row = rank * rows + i % rows;
        const unsigned int at = w.shared + a.at_sums + 4 * (token * FP8_SUM_ROWS + row);
        float y = 0;
        for (int slice = 0; slice < a.slices; slice++)
            y += cluster_read(at, slice) + cluster_read(at + 4 * a.tokens * FP8_SUM_ROWS, slice);
        const long long to = (long long)token * a.hidden + tile * FP8_TILE_DOWN + row;
        if (a.out_f32) ((float *)a.out)[to] = y;
        else ((unsigned short *)a.out)[to] = (unsigned short)moii_bf16_encode(y);
    }
}
#endif

#define REGISTERS (TOKENS != 4 ? FP8_REGISTERS_MANY : PASS == 1 ? FP8_REGISTERS_UP : FP8_REGISTERS_DOWN)

extern "C" __global__ void __maxnreg__(REGISTERS) moe_decode_fp8_sm90(const __grid_constant__ moe_decode_fp8_sm90_args a)
{
    extern __shared__ __align__(1024) char memory[];
    worker w;
    w.memory = memory, w.shared = shared_address(memory), w.warp = (int)threadIdx.x / 32, w.lane = (int)threadIdx.x % 32;
    make_barriers(w, a);
    if (PASS == 1) grid_wait();
    grid_release();
    for (int i = (int)threadIdx.x; PASS == 2 && i < 2 * a.tokens * FP8_SUM_ROWS; i += FP8_THREADS) ((float *)(memory + a.at_sums))[i] = 0;
    lists l = lists_at(a, memory);
    const bool splitter = w.warp >= FP8_MULTIPLIERS / 32 && w.warp < FP8_MULTIPLIERS / 32 + FP8_SPLITTERS;
    share s;
    s.from = 0, s.to = 1;
    if (!(PASS == 1 && splitter && a.dense)) { /* where columns are tokens, who splits them needs no lists */
        make_lists(l, a);
        s = my_share(l, a);
    }
    if (w.warp < FP8_MULTIPLIERS / 32) multiply(w, a, l, s);
    else if (!splitter) {
        if (w.lane == 0) send_weights(w, a, l, s);
#if PASS == 1
    } else {
        if (s.from < s.to) split_columns(w, a, l, a.dense ? 0 : s.from / a.tiles, a.dense ? 0 : (s.to - 1) / a.tiles);
        if (a.logits && w.warp == FP8_MULTIPLIERS / 32) hand_out(a, w.lane);
    }
#else
    } else split_columns(w, a, l, s);
    __syncwarp();
    __syncthreads();
    cluster_meet();
    put_outputs(w, a);
    cluster_meet();
#endif
}
