/* SPDX-License-Identifier: Apache-2.0
 *
 * moe_decode_sm90: one pass of moi_moe_decode_run for hidden and width that are multiples of 32 and x in BF16.
 *
 *   defines   PASS 1: u = silu(gate . x) * (up . x); 2: y = sum of weight * (down . u)
 *             WEIGHT, SCALES (moe_decode_sm90_args.h); EXACT: 1 where rows fill their stages;
 *             TEAM: warps that share an item; RING: stages that a warp holds
 *   grid      as many blocks as multiprocessors, or fewer; all must run at once
 *   item      rows of one expert times up to 8 columns, tokens that chose it.  Pass 1: 16 rows of gate and 16 of up; block b takes a run of
 *             the items of all experts, so that it reads memory in order.  Pass 2: block b takes 16 outputs, all experts ascending.
 *   team      warps that share an item, each a part of k, and add their sums in order; teams know nothing of each other
 *   warp      streams its own weights: stages of 2 KB, RING - 1 of them on their way, item after item
 *   bits      the arithmetic of a column depends on its own values alone: nothing of a token's result depends on the batch
 *   launch    pass 1 waits for the grid before it, which also covers what pass 2 reads early: logits or ids and weights, and its experts' rows.
 *             Pass 2 starts while pass 1 runs, sends for its first stages, and waits for u. */
#include "decode_copy.cuh"
#include "decode_lists.cuh"
#include "decode_weights.cuh"
#include "own_warp.cuh"
#include "silu.h"

enum { TEAMS = DECODE_WARPS / TEAM };
/* A stage: MT times 16 rows (pass 1: 8 of gate, 8 of up), PIECE bytes of each. */
enum { MT = PASS == 1 ? DECODE_MT_UP : 1, PIECE = DECODE_STAGE / DECODE_ROWS / MT, CHUNKS = PIECE / 32, ROWS = DECODE_ROWS * MT };
/* words of scales of a row and stage: 4 E8M0 bytes or one FP32 */
enum { WORDS = WEIGHT == WEIGHT_BF16 ? 0 : WEIGHT == WEIGHT_MXFP4 ? 2 : 1 };

typedef struct worker { int warp, lane, g, c, team, member; unsigned int shared, ring, scales; } worker;

MOII_FN worker worker_of(const moe_decode_sm90_args &a, const char *memory)
{
    worker w;
    w.warp = own_warp(), w.lane = (int)threadIdx.x % 32, w.g = w.lane / 4, w.c = w.lane % 4;
    w.team = w.warp / TEAM, w.member = w.warp % TEAM;
    w.shared = shared_of(memory);
    w.ring = w.shared + a.at_ring + w.warp * RING * DECODE_STAGE;
    w.scales = w.shared + a.at_scales + w.warp * a.scale_slots * a.spans * (ROWS * 4 * WORDS);
    return w;
}

/* ---- what a team does ---- */

typedef struct share { int from, to; } share;
MOII_FN share part_of(share s, int i, int n)
{
    const long long all = s.to - s.from;
    share part;
    part.from = s.from + (int)(all * i / n), part.to = s.from + (int)(all * (i + 1) / n);
    return part;
}

/* Pass 1: items of all tiles; pass 2: groups, for each tile. */
MOII_FN share my_share(const lists &l, const moe_decode_sm90_args &a, const worker &w)
{
    share all;
    all.from = 0, all.to = l.group[l.actives] * (PASS == 1 ? a.tiles : 1);
    if (PASS == 1) all = part_of(all, (int)blockIdx.x, (int)gridDim.x);
    return part_of(all, w.team, TEAMS);
}

MOII_FN void go_to(cursor &c, const lists &l, const moe_decode_sm90_args &a, share s)
{
    const int tiles = PASS == 1 ? a.tiles : 1;
    c.active = active_at(l, tiles, s.from);
    const int rest = s.from - l.group[c.active] * tiles, groups = groups_of(l, c.active);
    if (PASS == 1) c.tile = rest / groups, c.group = rest % groups;
    else c.group = rest, c.left = s.to - s.from;
}

MOII_FN void advance(cursor &c, const lists &l, const moe_decode_sm90_args &a, share s)
{
    if (PASS == 2 && --c.left == 0) {
        go_to(c, l, a, s);
        c.tile += (int)gridDim.x;
    } else if (++c.group == groups_of(l, c.active)) {
        c.group = 0;
        if (PASS == 2 || ++c.tile == a.tiles) c.active++;
        if (PASS == 1 && c.tile == a.tiles) c.tile = 0;
    }
}

/* ---- the stream of weights ---- */

/* The rows of a tile: 8 from `first`, 8 from `second`; where MT is 2, then the next 8 of both. */
MOII_FN int first_row(int tile) { return 16 * tile; }
MOII_FN int second_row(const moe_decode_sm90_args &a, int tile) { return PASS == 1 ? a.width + 16 * tile : 16 * tile + 8; }

MOII_FN long long scale_offset(const moe_decode_sm90_args &a, int row)
{
    return (long long)(WEIGHT == WEIGHT_SQUARE ? row / 128 : row) * a.scale_row;
}

/* What is to be sent for next. */
typedef struct stream {
    cursor c;
    int items, stage; /* items left; the stage of the item */
    int scale_slot;
    const unsigned char *at; /* this lane's place in row lane / 8 */
} stream;

MOII_FN void send_scales(const stream &f, const moe_decode_sm90_args &a, const worker &w, const unsigned char *scale)
{
    const int words = a.spans * WORDS, first = w.member * words;
    const unsigned int to = w.scales + f.scale_slot * words * (ROWS * 4);
    const unsigned char *first_half = scale + scale_offset(a, first_row(f.c.tile)), *second_half = scale + scale_offset(a, second_row(a, f.c.tile));
#pragma unroll 1
    for (int row = w.lane / 2; row < ROWS; row += 16) { /* two lanes a row */
        const unsigned char *from = (row & 8 ? second_half : first_half) + (WEIGHT == WEIGHT_SQUARE ? 0 : (row / 16 * 8 + row % 8) * a.scale_row);
#pragma unroll 1
        for (int i = w.lane % 2; i < words; i += 2) {
            const bool valid = EXACT || (first + i) * 4 < a.scale_row;
            copy_4(to + (row * words + i) * 4, valid ? from + (first + i) * 4 : from, valid);
        }
    }
}

/* To the first stage of the next item. */
MOII_FN void begin_item(stream &f, const lists &l, const moe_decode_sm90_args &a, const worker &w)
{
    const unsigned int expert = l.expert[f.c.active];
    f.stage = 0;
    f.at = a.data + (unsigned long long)expert * a.expert_bytes + (unsigned int)(first_row(f.c.tile) + w.lane / (PIECE / 16)) * (unsigned int)a.row_bytes
         + (w.member * a.stages * PIECE + w.lane % (PIECE / 16) * 16);
    if (WORDS && SCALES == SCALES_WORDS) send_scales(f, a, w, a.scale + (unsigned long long)expert * a.expert_scale_bytes);
}

/* Where this lane's 16 bytes go in a stage: chunks of 32 bytes are shuffled by row for the sake of banks. */
MOII_FN unsigned int shuffled(int row) { return PIECE == 128 ? row % 4 : row / 2 % 2; }
MOII_FN unsigned int lane_place(const worker &w)
{
    const int each = PIECE / 16, row = w.lane / each, chunk = w.lane % each / 2;
    return w.ring + row * PIECE + ((chunk ^ shuffled(row)) * 32 + w.lane % 2 * 16);
}

/* Sends for one stage, 16 bytes a lane, 512 at a time: of 8 rows in pass 1, of 4 in pass 2. */
MOII_FN void send(stream &f, const lists &l, const moe_decode_sm90_args &a, const worker &w, share s, unsigned int to)
{
    if (f.items > 0) {
        const bool valid = EXACT || (w.member * a.stages + f.stage) * PIECE + w.lane % (PIECE / 16) * 16 < a.row_bytes;
        const unsigned char *from = valid ? f.at : a.data;
        const unsigned int one = PASS == 1 ? a.second_half : a.step_rows, two = PASS == 1 ? a.step_rows : a.second_half;
        copy_16(to, from, valid);
        copy_16(to + 512, from + one, valid);
        copy_16(to + 1024, from + two, valid);
        copy_16(to + 1536, from + one + two, valid);
        f.at += PIECE;
        if (++f.stage == a.stages && --f.items > 0) {
            if (++f.scale_slot == a.scale_slots) f.scale_slot = 0;
            advance(f.c, l, a, s);
            begin_item(f, l, a, w);
        }
    }
    copies_close();
}

/* ---- products ---- */

/* A stage's columns, fetched as soon as the stage before is done. */
typedef struct columns { column_part part[CHUNKS]; } columns;

/* One item as it is multiplied. */
typedef struct item {
    const unsigned short *column;  /* this lane's, at the stage's first value; another column's where the group has fewer */
    const unsigned char *scale[2]; /* of rows g and g + 8 */
    int k;                         /* the stage's first value of this lane */
} item;

MOII_FN item item_at(const moe_decode_sm90_args &a, const lists &l, const worker &w, const cursor &c)
{
    item it;
    const int begin = l.start[c.active] + DECODE_COLUMNS * c.group, i = begin + w.g;
    const unsigned int pair = l.order[i < l.start[c.active + 1] ? i : begin];
    it.k = w.member * a.stages * (CHUNKS * CHUNK_K) + w.c * (CHUNK_K / 4);
    it.column = (const unsigned short *)a.in + (unsigned long long)(PASS == 1 ? pair * a.inverse_top_k >> 16 : pair) * (unsigned int)a.k + it.k;
    if (WORDS && SCALES == SCALES_BYTES) {
        const unsigned char *scale = a.scale + l.expert[c.active] * a.expert_scale_bytes;
        it.scale[0] = scale + scale_offset(a, first_row(c.tile) + w.g), it.scale[1] = scale + scale_offset(a, second_row(a, c.tile) + w.g);
    }
    return it;
}

/* A stage's columns; then `it` is at the next. */
MOII_FN void load_columns(columns &to, item &it, const moe_decode_sm90_args &a)
{
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) load_column(to.part[i], it.column + i * CHUNK_K, EXACT || it.k + i * CHUNK_K < a.k);
    it.column += CHUNKS * CHUNK_K;
    it.k += CHUNKS * CHUNK_K;
}

/* Back to the first stage: the same columns for other rows. */
MOII_FN void rewind(item &it, const moe_decode_sm90_args &a)
{
    it.column -= a.stages * (CHUNKS * CHUNK_K);
    it.k -= a.stages * (CHUNKS * CHUNK_K);
}

/* The scales of rows g and g + 8, one for each chunk: E8M0, or the bits of one FP32. */
typedef struct stage_scales { unsigned int e0[CHUNKS], e1[CHUNKS]; } stage_scales;

MOII_FN bool any_far(unsigned int v) { return ((v & 0x7F7F7F7Fu) + (LIFT - 127 + 128) * 0x01010101u & v & 0x80808080u) != 0; } /* a byte over 254 - LIFT */

/* True where one of this lane's E8M0 scales needs care.  s0, s1: the words of the stage's span; `it` is one stage further, two if
 * it is ahead. */
MOII_FN bool get_scales(stage_scales &e, const item &it, const moe_decode_sm90_args &a, const worker &w, unsigned int s0, unsigned int s1, int stage, int mt,
                        bool ahead)
{
    bool far = false;
    if (WEIGHT == WEIGHT_BF16) {
        for (int i = 0; i < CHUNKS; i++) e.e0[i] = e.e1[i] = 0;
        return false;
    }
#if SCALES == 1
    for (int i = 0; i < CHUNKS; i++) {
        const int k = it.k + (i - (ahead ? 2 : 1) * CHUNKS) * CHUNK_K, at = k / 32 + mt * 8 * a.scale_row;
        e.e0[i] = k < a.k ? __ldcg(it.scale[0] + at) : 127, e.e1[i] = k < a.k ? __ldcg(it.scale[1] + at) : 127;
        far = far || needs_rest(e.e0[i]) || needs_rest(e.e1[i]);
    }
#else
    const unsigned int bytes = PIECE == 64 ? stage % 2 * (2 * WORDS) : 0; /* where the stage's begin in the words of its span */
    const unsigned int at = SCALED_APART ? 0 : bytes & 4u, sub = bytes & 3u;
    const unsigned int v0 = shared_word(s0 + at), v1 = shared_word(s1 + at);
    const bool two = WORDS == 2 && PIECE == 128;
    const unsigned int u0 = two ? shared_word(s0 + 4) : 0, u1 = two ? shared_word(s1 + 4) : 0;
    far = any_far(v0) || any_far(v1) || any_far(u0) || any_far(u1);
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const unsigned int byte = WORDS == 2 ? 2 * (i % 2) + w.c / 2 : sub + i;
        e.e0[i] = SCALED_APART ? v0 : __byte_perm(i >= 2 && two ? u0 : v0, 0, 0x4440 + byte);
        e.e1[i] = SCALED_APART ? v1 : __byte_perm(i >= 2 && two ? u1 : v1, 0, 0x4440 + byte);
    }
#endif
    return !SCALED_APART && far;
}

/* sums: of the MT tiles, or of the even and the odd chunks; `at`: this lane's place in the stage. */
MOII_FN void stage_product(tile_sum *sums, unsigned int *nan, const item &it, const moe_decode_sm90_args &a, const worker &w, const columns &b, bool ahead,
                           unsigned int at, unsigned int s0, unsigned int s1, int stage)
{
    const unsigned int half = 8 * PIECE;
#pragma unroll
    for (int mt = 0; mt < MT; mt++, at += 16 * PIECE, s0 += 16 * a.spans * 4 * WORDS, s1 += 16 * a.spans * 4 * WORDS) {
        stage_scales e;
        const bool far = get_scales(e, it, a, w, s0, s1, stage, mt, ahead);
        if (WORDS && !SCALED_APART && __any_sync(0xFFFFFFFFu, far)) {
#pragma unroll
            for (int i = 0; i < CHUNKS; i++)
                add_chunk_far(sums[MT == 2 ? mt : i % 2], shared_pair(at ^ i * 32u), shared_pair((at ^ i * 32u) + half), e.e0[i], e.e1[i], b.part[i],
                              nan + 2 * mt);
            continue;
        }
        tile_sum own = { { 0, 0, 0, 0 } };
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            add_chunk(SCALED_APART ? own : sums[MT == 2 ? mt : i % 2], shared_pair(at ^ i * 32u), shared_pair((at ^ i * 32u) + half), e.e0[i], e.e1[i],
                      b.part[i], nan + 2 * mt);
        if (SCALED_APART)
            for (int j = 0; j < 4; j++) sums[mt].v[j] = __fmaf_rn(moii_float_of(j < 2 ? e.e0[0] : e.e1[0]), own.v[j], sums[mt].v[j]);
    }
}

MOII_FN void team_meets(const worker &w) { asm volatile("bar.sync %0, %1;" ::"r"(w.team + 1), "n"(TEAM * 32) : "memory"); }

/* Pass 1: this warp's sums; then neuron i / 8 of the tile for column i % 8, i < 128. */
MOII_FN void put_sum(float *red, const worker &w, const tile_sum *sums)
{
    float2 *to = (float2 *)(red + w.member * (128 * MT)) + w.lane;
    for (int mt = 0; mt < MT; mt++) {
        to[64 * mt] = make_float2(sums[mt].v[0], sums[mt].v[1]);
        to[64 * mt + 32] = make_float2(sums[mt].v[2], sums[mt].v[3]);
    }
}
MOII_FN float whole_sum(const float *red, int i)
{
    float v = red[i];
    for (int member = 1; member < TEAM; member++) v += red[member * (128 * MT) + i];
    return v;
}

/* u lies in memory as load_column wants it in pass 2. */
MOII_FN int place_of(int neuron)
{
    if (WEIGHT == WEIGHT_BF16) return neuron;
    if (WEIGHT == WEIGHT_MXFP4) return (neuron & ~7) | (neuron & 3) << 1 | (neuron >> 2 & 1);
    return (neuron & ~3) | (neuron & 1) << 1 | (neuron >> 1 & 1);
}
MOII_FN void put_neuron(const moe_decode_sm90_args &a, const lists &l, const cursor &c, const float *red, int i)
{
    const int at = l.start[c.active] + DECODE_COLUMNS * c.group + i % 8, sum = i / 64 * 128 + i % 64;
    if (at >= l.start[c.active + 1]) return;
    const float u = moii_swiglu(whole_sum(red, sum), whole_sum(red, sum + 64));
    ((unsigned short *)a.out)[(unsigned long long)l.order[at] * (unsigned int)a.width + place_of(16 * c.tile + i / 8)] = (unsigned short)moii_bf16_encode(u);
}

/* Pass 2: the first of the team adds what the second has, and keeps each column's 16 outputs. */
MOII_FN void put_dots(const lists &l, const cursor &c, const worker &w, const float2 *red, const tile_sum &sum, float *dots)
{
    const int at = l.start[c.active] + DECODE_COLUMNS * c.group + 2 * w.c, end = l.start[c.active + 1];
    const float2 top = red[w.lane], bottom = red[32 + w.lane];
    if (at < end) {
        float *to = dots + l.order[at] * DECODE_ROWS + w.g;
        to[0] = sum.v[0] + top.x, to[8] = sum.v[2] + bottom.x;
    }
    if (at + 1 < end) {
        float *to = dots + l.order[at + 1] * DECODE_ROWS + w.g;
        to[0] = sum.v[1] + top.y, to[8] = sum.v[3] + bottom.y;
    }
}

/* Pass 2: a tile's outputs of all tokens, slot after slot. */
MOII_FN void put_outputs(const moe_decode_sm90_args &a, const lists &l, const float *dots, int tile)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < a.tokens * DECODE_ROWS; i += DECODE_THREADS) {
        const int token = i / DECODE_ROWS, row = i % DECODE_ROWS;
        float y = 0;
#pragma unroll 1
        for (int pair = token * a.top_k; pair < (token + 1) * a.top_k; pair++)
            if (l.ids[pair] >= 0) y = __fmaf_rn(l.weights[pair], dots[pair * DECODE_ROWS + row], y);
        const long long at = (long long)token * a.hidden + tile * DECODE_ROWS + row;
        if (a.out_f32) ((float *)a.out)[at] = y;
        else ((unsigned short *)a.out)[at] = (unsigned short)moii_bf16_encode(y);
    }
}

extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 1) moe_decode_sm90(const __grid_constant__ moe_decode_sm90_args a)
{
    extern __shared__ __align__(1024) char memory[];
    const worker w = worker_of(a, memory);
    float *dots = (float *)(memory + a.at_dots), *reds = (float *)(memory + a.at_red) + w.team * ((PASS == 1 ? 2 * TEAM * MT : 2) * 128);
    if (PASS == 1) grid_wait();
    grid_release();
    lists l = lists_at(a, memory);
    make_lists(l, a);
    const share s = my_share(l, a, w);
    const int rounds = PASS == 1 ? 1 : (a.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x, items = s.to - s.from;
    stream f;
    f.items = items * rounds, f.scale_slot = 0, f.c.tile = (int)blockIdx.x;
    const unsigned int to = lane_place(w);
    if (items > 0) {
        go_to(f.c, l, a, s);
        begin_item(f, l, a, w);
    }
    cursor c = f.c;
    for (int i = 0; i < RING - 1; i++) send(f, l, a, w, s, to + i * DECODE_STAGE);
    if (PASS == 1 && a.logits) hand_out(a);
    if (PASS == 2) {
        grid_wait();
        if (a.logits) fetch_weights(l, a); /* the block meets before it reads them */
    }
    item it = { 0, { 0, 0 }, 0 };
    columns b;
    if (items > 0) it = item_at(a, l, w, c), load_columns(b, it, a);
    const unsigned int place = w.ring + w.g * PIECE + w.c * 8 + shuffled(w.g) * 32;
    unsigned int at = 0; /* of the ring */
    int scale_slot = 0, buffer = 0;
    for (int round = 0; round < rounds; round++) {
        const int tile = c.tile;
        for (int n = 0; n < items; n++) {
            tile_sum sums[2] = { { { 0, 0, 0, 0 } }, { { 0, 0, 0, 0 } } };
            unsigned int nan[2 * MT] = { 0 };
            const cursor mine = c;
            const unsigned int s0 = w.scales + (scale_slot * ROWS + w.g) * a.spans * 4 * WORDS, s1 = s0 + 8 * a.spans * 4 * WORDS;
#pragma unroll 1
            for (int stage = 0; stage < a.stages; stage++) {
                const unsigned int span = stage / (128 / PIECE) * (4 * WORDS);
                columns now = b;
                const bool ahead = PASS == 1 && stage + 1 < a.stages; /* where registers allow it, the next stage's are fetched now */
                if (ahead) load_columns(b, it, a);
                copies_wait();
                __syncwarp();
                send(f, l, a, w, s, to + (at + (RING - 1) * DECODE_STAGE) % (RING * DECODE_STAGE));
                stage_product(sums, nan, it, a, w, now, ahead, place + at, s0 + span, s1 + span, stage);
                at = (at + DECODE_STAGE) % (RING * DECODE_STAGE);
                if (stage + 1 == a.stages) {
                    if (n + 1 == items && round + 1 == rounds) break;
                    advance(c, l, a, s);
                    if (PASS == 1 && SCALES == SCALES_WORDS && c.active == mine.active && c.group == mine.group) rewind(it, a);
                    else it = item_at(a, l, w, c);
                }
                if (!ahead) load_columns(b, it, a);
            }
            if (++scale_slot == a.scale_slots) scale_slot = 0;
            for (int i = 0; i < 4 && MT == 1; i++) sums[0].v[i] += sums[1].v[i];
            for (int mt = 0; mt < MT; mt++) poison(sums[mt], nan + 2 * mt, w.lane);
            if (PASS == 1) {
                float *red = reds + buffer * (TEAM * MT * 128);
                put_sum(red, w, sums);
                team_meets(w); /* the other buffer is free then: who read it has come here */
                if (w.member < 4) put_neuron(a, l, mine, red, w.member * 32 + w.lane);
            } else {
                float2 *red = (float2 *)reds + buffer * 64;
                if (w.member) red[w.lane] = make_float2(sums[0].v[0], sums[0].v[1]), red[32 + w.lane] = make_float2(sums[0].v[2], sums[0].v[3]);
                team_meets(w);
                if (!w.member) put_dots(l, mine, w, red, sums[0], dots);
            }
            buffer ^= 1;
        }
        if (PASS == 1) break;
        __syncthreads();
        put_outputs(a, l, dots, items > 0 ? tile : (int)blockIdx.x + round * (int)gridDim.x);
        __syncthreads();
    }
}
