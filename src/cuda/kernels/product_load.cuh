/* SPDX-License-Identifier: Apache-2.0
 * product_load.cuh: the loading warps of product_sm90.cuh: tiles of A and B by tensor maps, scales by runs or by ordinary loads. */
#ifndef MOII_PRODUCT_LOAD_CUH
#define MOII_PRODUCT_LOAD_CUH

/* K-major: one box of rows of 128 bytes.  MN-major: runs of 64 values, 64 lines of the reduction each. */
MOII_FN void load_lines(const product_map *mb, const unit &u, unsigned int tile, unsigned int full, int k, int half)
{
    [[maybe_unused]] const int zb = B_GROUPED ? u.group : 0;
#if SWIGLU /* each warpgroup's gate, then its up; half: rows of B before the first of up */
#pragma unroll
    for (int i = 0; i < 2 * WGS; i++)
        box_load(tile + A_BYTES + i * BN / 2 * PRODUCT_STEP_BYTES, mb, full, k, u.col + i / 2 * (BN / 2) + i % 2 * half, zb);
#elif WOVEN
    box_load_5(tile + A_BYTES, mb, full, k, 0, 0, 0, u.col / 16);
#elif B_TURNED
#pragma unroll
    for (int i = 0; i < BN << BROAD; i += 64)
        if (i < BN || is_broad(u)) box_load(tile + (is_broad(u) ? BROAD_B : A_BYTES) + i * 128, mb, full, u.col + i, k, zb);
#else
    if (is_broad(u)) box_load(tile + BROAD_B, mb, full, k, u.col, zb), box_load(tile + BROAD_B + B_BYTES, mb, full, k, u.col + BN, zb);
    else box_load(tile + A_BYTES, mb, full, k, u.col, zb);
#endif
}

/* A strip's, which the first block fetches for both. */
MOII_FN void load_strip(const product_map *mb, const unit &u, unsigned int tile, unsigned int full, int k, unsigned int block)
{
    if (block > 0) return;
#if B_TURNED
    for (int i = 0; i < BN; i += 64) box_load_to(tile + A_BYTES + i * 128, mb, full, u.col + i, k, 0, WHOLE_CLUSTER);
#else
    box_load_to(tile + A_BYTES, mb, full, k, u.col, 0, WHOLE_CLUSTER);
#endif
}

/* In a cluster the first block fetches A for all, unless each is to have its own copy: alone. */
MOII_FN void load_rows(const product_args &a, const unit &u, unsigned int tile, unsigned int full, int k, unsigned int block, bool alone)
{
    const product_map *ma = &a.a_map;
    const int za = A_GROUPED ? u.group : 0;
    const bool to_all = CLUSTER > 1 && !alone;
    if (to_all && block > 0) return;
    if (HALVES && !A_TURNED && blocks_of(u) < BM / 64) {
#pragma unroll 1
        for (int i = 0; i < blocks_of(u); i++) {
            if (to_all) box_load_to(tile + i * 8192, &a.part_map, full, k, u.row + i * 64, za, WHOLE_CLUSTER);
            else box_load(tile + i * 8192, &a.part_map, full, k, u.row + i * 64, za);
        }
        return;
    }
#if A_TURNED
    for (int i = 0; i < BM; i += 64) {
        if (to_all) box_load_to(tile + i * 128, ma, full, u.row + i, k, za, WHOLE_CLUSTER);
        else box_load(tile + i * 128, ma, full, u.row + i, k, za);
    }
#else
    if (to_all) box_load_to(tile, ma, full, k, u.row, za, WHOLE_CLUSTER);
    else box_load(tile, ma, full, k, u.row, za);
#endif
}

/* Bytes that come by boxes. */
MOII_FN unsigned int stage_bytes(const unit &u)
{
    const unsigned int b = is_broad(u) ? 2 * B_BYTES : B_BYTES;
    return HALVES && !A_TURNED ? b + (unsigned int)blocks_of(u) * 8192 : STAGE_BYTES;
}

/* An operand's scales of a unit: one run of floats for each block of 128 of the reduction. */
#define RUNS_IN_TURN (!ROTATED) /* one thread asks for all of them, in their order */
typedef struct scale_runs {
    const float *from; /* RUNS_IN_TURN: the next stage's, else the first one's */
    unsigned int apart, bytes;
} scale_runs;

MOII_FN scale_runs scale_runs_of(const product_scales &t, long long group, int row, int block, int most)
{
    const int there = (int)t.block_stride - row; /* block_stride: all rows, rounded up to 4 */
    const float *first = (const float *)((const char *)t.p + group * t.group_bytes) + (long long)block * t.block_stride + row;
    return { first, t.block_stride * STRIDE, 4 * (unsigned int)max(min(most, there), 0) };
}

MOII_FN void load_run(scale_runs *t, int step, unsigned int to, unsigned int full, bool to_all)
{
    const float *from = t->from + (RUNS_IN_TURN ? 0 : (unsigned long long)t->apart * step);
    if (t->bytes == 0) return;
    if (to_all) run_load_to(to, from, t->bytes, full, WHOLE_CLUSTER);
    else run_load(to, from, t->bytes, full);
    if (RUNS_IN_TURN) t->from += t->apart;
}

/* What the stages of a unit have in common: between a stage's release and its copies there is little to find out. */
typedef struct feed {
    unsigned int bytes; /* of a stage, scales among them */
    scale_runs a, b;
} feed;

MOII_FN feed feed_of(const product_args &a, const unit &u)
{
    feed f = { stage_bytes(u), { 0, 0, 0 }, { 0, 0, 0 } };
#if SCALE_RUNS
    static_assert(!WIDE || SCALING == SCALING_SQUARE, "a warpgroup's columns have scales in a tile's own order");
    f.a = scale_runs_of(a.a_scales, A_GROUPED ? u.group : 0, u.row & ~3, u.block, A_STAGED);
    if (SCALING == SCALING_VECTOR) f.b = scale_runs_of(a.b_scales, B_GROUPED ? u.group : 0, u.col, u.block, BN);
    f.bytes += f.a.bytes + f.b.bytes;
#endif
    return f;
}

/* Of a stage: what other kernels made long ago, and what the one in front did (FOLLOWS). */
#define LOADS_B 1
#define LOADS_A 2
#define LOADS_BOTH 3

/* A stage, whose place is free.  What a cluster shares goes first, else weights, which come from memory. */
MOII_FN void load_step(const product_args &a, const shared &s, const unit &u, feed *f, unsigned int stage, int i, unsigned int block, bool alone, int which)
{
    const int step = turned(u, i), k = u.k + step * (STRIDE * STEP);
    const unsigned int tile = tile_at(s, stage), full = full_barrier(s, stage), scales = s.base + SCALES_AT + SCALE_FLOATS * 4 * stage;
    const bool strip = is_strip(u) && !alone, to_all = CLUSTER > 1 && !alone && !strip;
    if (which & LOADS_B) barrier_expect(full, f->bytes);
    if (to_all) load_rows(a, u, tile, full, k, block, false);
    if (strip) load_strip(&a.b_map, u, tile, full, k, block);
    else if (which & LOADS_B) load_lines(&a.b_map, u, tile, full, k, a.n / 2);
    if (!(which & LOADS_A)) return;
    if (!to_all) load_rows(a, u, tile, full, k, block, true);
    if (SCALE_RUNS && (!to_all || block == 0)) load_run(&f->a, step, scales, full, to_all);
    if (SCALE_RUNS && SCALING == SCALING_VECTOR) load_run(&f->b, step, scales + A_STAGED * 4, full, false);
}

#if EARLY
/* The warp that loads tiles, before the block has met: it opens the barriers of the stages that it sends, and then those of cards, for the others wait for the
 * first card.  Each block fetches A for itself, for the others of its cluster may not be there yet.  What the kernel in front makes is waited for behind what
 * is there without it.  Gives the stages that were sent. */
MOII_FN int send_early(const product_args &a, const shared &s, unsigned int block)
{
    unit u = { };
    const bool leads = elected();
    if (leads) map_prefetch(&a.a_map), map_prefetch(&a.b_map), open_first(s);
    if (!WAITS_LATE) grid_wait();
    const int stages = find_first(a, block, &u) ? min(EARLY_STAGES, steps_of(u)) : 0;
    if (leads) {
        feed f = feed_of(a, u);
#pragma unroll 1
        for (int i = 0; i < stages; i++) load_step(a, s, u, &f, (unsigned int)i, i, block, true, FOLLOWS ? LOADS_B : LOADS_BOTH);
#if FOLLOWS
        grid_wait();
#pragma unroll 1
        for (int i = 0; i < stages; i++) load_step(a, s, u, &f, (unsigned int)i, i, block, true, LOADS_A);
#endif
        open_cards(s);
        barrier_init_done();
        if (stages > 0) write_card(s, 0, u);
    }
    __syncwarp();
    if (FOLLOWS) grid_wait(); /* each lane */
    return stages;
}
#endif

/* What a tile's sums will be added to comes into L2: additions there to what memory has take longer than loads and stores of it would (2.5
 * and 3.8 TB/s, read and written).  It is asked for a few stages ahead, not more: what comes too early has left L2 again by then.  Where stages are
 * multiplied two by two, so that a tile's last ones take less time, behind the next tile's first stage. */
#define ASKS (CARRIES && ADD)
#define ASKS_LATE (SCALING == SCALING_ROWS)
#if ASKS
MOII_FN void ask_for_sums(const product_args &a, const unit &u)
{
    const int cols = min(is_broad(u) ? 2 * BN : BN, a.n - u.col);
    if (!a.d_boxes || nothing_added(u)) return;
#pragma unroll 1
    for (int row = 0; row < min(u.rows, BM); row += 64)
#pragma unroll 1
        for (int col = 0; col < cols; col += 32) box_fetch(&a.d_map, u.col + col, box_row(u) + row, box_matrix(u));
}
#endif

#if SEARCHES && !DEALS_APART
static_assert(!EARLY, "whose stages are sent early has another warp that deals units");

/* Stages of the unit on a card from `step` on; behind the first one of all, what the last unit's sums will be added to (of a unit without stages comes no
 * first one: then the unit before it is not asked for). */
MOII_FN void send_stages(const product_args &a, const shared &s, hand card, ring *r, int step, int end, unsigned int block)
{
    const unit u = look_at_card(s, card);
    feed f = feed_of(a, u);
    if (RUNS_IN_TURN && step > 0) f.a.from += step * (long long)f.a.apart, f.b.from += step * (long long)f.b.apart;
#pragma unroll 1
    for (; step < end; step++, ring_step(r)) {
        barrier_wait(empty_barrier(s, r->stage), r->parity ^ 1);
        load_step(a, s, u, &f, r->stage, step, block, false, LOADS_BOTH);
#if ASKS
        if (ASKS_LATE && step == 0 && card > 0) ask_for_sums(a, look_at_card(s, card - 1));
#endif
    }
}

/* And deals the units, the next one while the ring is full: all lanes look for it, and what is needed of a unit stands on its card, for registers are few. */
MOII_FN void load_tiles(const product_args &a, const shared &s, unsigned int block, int)
{
    const bool leads = elected();
    dealer d = dealer_make(a, s, leads, false);
    ring r = { 0, 0 };
    unit u;
    for (bool more = deal_unit(a, s, &d, block, &u); more;) {
        const hand h = d.next - 1;
        const int steps = steps_of(look_at_card(s, h)), first = min(steps, STAGES);
        if (leads) send_stages(a, s, h, &r, 0, first, block);
        __syncwarp();
        more = deal_unit(a, s, &d, block, &u);
        if (leads && first < steps) send_stages(a, s, h, &r, first, steps, block);
#if ASKS
        if (leads && (!ASKS_LATE || !more)) ask_for_sums(a, look_at_card(s, h));
#endif
        __syncwarp();
    }
}
#else
/* Where the loading thread has its units from.  dealt: the card of the first one is there already; false: there is no more. */
#if DEALS_APART
typedef hand source;
MOII_FN source source_open(const product_args &, const shared &, bool) { return 0; }

MOII_FN bool source_next(const product_args &, const shared &s, source *h, unsigned int, bool, unit *u)
{
    barrier_wait(card_dealt(s, *h), *h / CARDS & 1);
    *u = look_at_card(s, *h);
    barrier_arrive(card_read(s, *h));
    ++*h;
    return u->group >= 0;
}
#else
typedef dealer source; /* it deals them */
MOII_FN source source_open(const product_args &a, const shared &s, bool dealt) { return dealer_make(a, s, true, dealt); }

MOII_FN bool source_next(const product_args &a, const shared &s, source *d, unsigned int block, bool dealt, unit *u)
{
    if (!dealt) return deal_unit(a, s, d, block, u);
    *u = look_at_card(s, 0);
    return true;
}
#endif

MOII_FN void load_tiles(const product_args &a, const shared &s, unsigned int block, int sent)
{
    if (!elected()) return;
    ring r = { 0, 0 };
    unit u, next;
    int ready = 0;
    source from = source_open(a, s, sent > 0);
    bool more = source_next(a, s, &from, block, sent > 0, &next);
#if ASKS
    unit left = { };
    bool asks = false;
#endif
    for (; more; sent = 0) { /* stages of this unit that are under way */
        u = next;
        const int steps = steps_of(u);
        feed f = feed_of(a, u);
        if (RUNS_IN_TURN && sent > 0) f.a.from += sent * (long long)f.a.apart, f.b.from += sent * (long long)f.b.apart;
        if (WIDENS && steps > 0) await_rows(a, u.row + BM, &ready);
#pragma unroll 1
        for (int step = 0; step < steps; step++) {
            if (step >= sent) {
                barrier_wait(empty_barrier(s, r.stage), r.parity ^ 1);
                load_step(a, s, u, &f, r.stage, step, block, false, LOADS_BOTH);
            }
            ring_step(&r);
#if ASKS
            if (ASKS_LATE && asks) ask_for_sums(a, left), asks = false;
#endif
        }
        more = source_next(a, s, &from, block, false, &next);
#if ASKS
        if (!ASKS_LATE) ask_for_sums(a, u);
        else if (steps > 0) left = u, asks = true;
#endif
    }
#if ASKS
    if (asks) ask_for_sums(a, left);
#endif
}
#endif

/* ---- scales ---- */

#if SCALE_ARRIVALS > 0

#define BLOCK_VALUES (E8M0_SCALES ? 32 : 128)
#define BLOCK_STEP (STEP / BLOCK_VALUES) /* blocks in a stage */
#define A_TURNS ((BM + LOADERS - 1) / LOADERS)
#define B_TURNS ((BN + LOADERS - 1) / LOADERS)

typedef struct scale_walk { /* one operand's scales of a unit */
    const char *p;
    int row, rows, block_end; /* row: the tile's first */
} scale_walk;

/* Where S[row][block] lies.  Outside, a neighbour: what it would scale is 0 or not stored. */
MOII_FN unsigned int scale_place(const product_scales &t, const scale_walk &w, int row, int block)
{
    row = min(w.row + row, w.rows - 1), block = min(block, w.block_end - 1);
    return scale_index(t, (unsigned int)row, (unsigned int)block);
}

#if OUTER
#include "product_outer_load.cuh"
#elif E8M0_SCALES

/* Stages whose scales are on their way at a time: one by one each would take as long as memory does. */
#define SCALES_AHEAD 4

#if QUADS

/* A thread has four rows of A, or columns of B, whose codes lie in one word. */
static_assert(PER_STEP == 1 && (BM + BN) / 4 <= LOADERS, "one word a thread");
MOII_FN void load_unit_scales(const product_args &a, const shared &s, const unit &u, const scale_walk &wa, const scale_walk &wb, ring *r, unsigned int *)
{
    const int i = (int)threadIdx.x - 32, steps = steps_of(u);
    const bool of_b = i >= BM / 4, mine = i < (BM + BN) / 4;
    const scale_walk &w = of_b ? wb : wa;
    const unsigned int apart = of_b ? a.b_scales.block_stride : a.a_scales.block_stride;
    const int row = min(w.row + 4 * (of_b ? i - BM / 4 : i), (w.rows - 1) & ~3); /* behind the last, a neighbour */
    const char *from = w.p + (unsigned long long)u.block * apart + row;
    unsigned int v[SCALES_AHEAD];
#pragma unroll
    for (int k = 0; k < SCALES_AHEAD; k++)
        if (mine && k < steps) v[k] = __ldg((const unsigned int *)from), from += BLOCK_STEP * apart;
#pragma unroll 1
    for (int first = 0; first < steps; first += SCALES_AHEAD) {
#pragma unroll
        for (int k = 0; k < SCALES_AHEAD; k++) {
            const int step = first + k;
            if (step >= steps) break;
            barrier_wait(empty_barrier(s, r->stage), r->parity ^ 1);
            if (mine) ((float4 *)scales_at(s, r->stage))[i] = four_scales(v[k]); /* B's stand behind A's */
            if (mine && step + SCALES_AHEAD < steps) v[k] = __ldg((const unsigned int *)from), from += BLOCK_STEP * apart;
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(full_barrier(s, r->stage));
            ring_step(r);
        }
    }
}

#else

/* A thread's rows of A and of B: where the next stage's scales lie, or what they are. */
typedef struct stage_rows { unsigned int a[A_TURNS], b[B_TURNS]; } stage_rows, stage_codes;

MOII_FN stage_rows rows_of_stages(const product_args &a, const scale_walk &wa, const scale_walk &wb, int block)
{
    const int lane = (int)threadIdx.x - 32;
    stage_rows at;
#pragma unroll
    for (int j = 0; j < A_TURNS; j++) at.a[j] = scale_place(a.a_scales, wa, j * LOADERS + lane, block);
#pragma unroll
    for (int j = 0; j < B_TURNS; j++) at.b[j] = scale_place(a.b_scales, wb, j * LOADERS + lane, block);
    return at;
}

/* The codes of PER_STEP blocks, of which so many are there, the first in the lowest byte.  Stages lie equally far apart in every layout. */
MOII_FN unsigned int next_codes(const product_scales &t, const scale_walk &w, unsigned int *at, int there)
{
    const unsigned char *p = (const unsigned char *)w.p + *at;
    *at += t.across ? 512 : BLOCK_STEP * t.block_stride;
    if (PER_STEP == 1) return __ldg(p);
    if (t.words) return __ldg((const unsigned int *)p);
    unsigned int codes = 0;
#pragma unroll
    for (int i = 0; i < PER_STEP; i++) codes |= (unsigned int)__ldg(p + (unsigned int)min(i, there - 1) * t.block_stride) << 8 * i;
    return codes;
}

MOII_FN stage_codes fetch_codes(const product_args &a, const scale_walk &wa, const scale_walk &wb, stage_rows *at, int there)
{
    stage_codes v;
#pragma unroll
    for (int j = 0; j < A_TURNS; j++) v.a[j] = next_codes(a.a_scales, wa, &at->a[j], there);
#pragma unroll
    for (int j = 0; j < B_TURNS; j++) v.b[j] = next_codes(a.b_scales, wb, &at->b[j], there);
    return v;
}

/* A's [row][PER_STEP], B's [PER_STEP][column].  What lies behind the last block may be anything: 1 takes its place. */
MOII_FN void place_codes(stage_codes v, float *to, int there)
{
    const int lane = (int)threadIdx.x - 32;
    if (PER_STEP > 1 && there < PER_STEP) {
        const unsigned int keep = (1u << 8 * there) - 1, rest = 0x7F7F7F7Fu & ~keep;
#pragma unroll
        for (int j = 0; j < A_TURNS; j++) v.a[j] = (v.a[j] & keep) | rest;
#pragma unroll
        for (int j = 0; j < B_TURNS; j++) v.b[j] = (v.b[j] & keep) | rest;
    }
#pragma unroll
    for (int j = 0; j < A_TURNS; j++) {
        const int row = j * LOADERS + lane;
        if (row >= BM) continue;
        if (PER_STEP == 1) to[row] = moii_e8m0_decode(v.a[j]);
        else ((float4 *)to)[row] = four_scales(v.a[j]);
    }
#pragma unroll
    for (int j = 0; j < B_TURNS; j++) {
        const int col = j * LOADERS + lane;
        float *b = to + A_STAGED + col;
        if (col >= BN) continue;
        if (PER_STEP == 1) *b = moii_e8m0_decode(v.b[j]);
        else {
            const float4 four = four_scales(v.b[j]);
            b[0] = four.x, b[BN] = four.y, b[2 * BN] = four.z, b[3 * BN] = four.w;
        }
    }
}

MOII_FN void load_unit_scales(const product_args &a, const shared &s, const unit &u, const scale_walk &wa, const scale_walk &wb, ring *r, unsigned int *)
{
    const int steps = steps_of(u), blocks = wa.block_end - u.block;
    stage_rows at = rows_of_stages(a, wa, wb, u.block);
    stage_codes v[SCALES_AHEAD];
#pragma unroll
    for (int i = 0; i < SCALES_AHEAD; i++)
        if (i < steps) v[i] = fetch_codes(a, wa, wb, &at, blocks - i * BLOCK_STEP);
#pragma unroll 1
    for (int first = 0; first < steps; first += SCALES_AHEAD) {
#pragma unroll
        for (int i = 0; i < SCALES_AHEAD; i++) {
            const int step = first + i;
            if (step >= steps) break;
            barrier_wait(empty_barrier(s, r->stage), r->parity ^ 1);
            place_codes(v[i], scales_at(s, r->stage), blocks - step * BLOCK_STEP);
            if (step + SCALES_AHEAD < steps) v[i] = fetch_codes(a, wa, wb, &at, blocks - (step + SCALES_AHEAD) * BLOCK_STEP);
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(full_barrier(s, r->stage));
            ring_step(r);
        }
    }
}

#endif

#elif SCALES_STAGED

/* FP32: rows of A, then columns of B unless they have squares. */
MOII_FN void load_unit_scales(const product_args &a, const shared &s, const unit &u, const scale_walk &wa, const scale_walk &wb, ring *r,
                              unsigned int *fetched)
{
    const int lane = (int)threadIdx.x - 32, steps = steps_of(u);
    for (int step = 0; step < steps; step++) {
        const int block = u.block + step;
        const unsigned int to = s.base + SCALES_AT + SCALE_FLOATS * 4 * r->stage;
#if SCALING == SCALING_SQUARE
        if (step % SQUARES_STEPS == 0 && lane < 32) fetch_squares(a, s, u, step, (*fetched)++);
#endif
        barrier_wait(empty_barrier(s, r->stage), r->parity ^ 1);
#pragma unroll 1
        for (int row = lane; row < BM; row += LOADERS) word_load(to + row * 4, (const float *)wa.p + scale_place(a.a_scales, wa, row, block));
#pragma unroll 1
        for (int col = lane; col < BN && SCALING == SCALING_VECTOR; col += LOADERS)
            word_load(to + (A_STAGED + col) * 4, (const float *)wb.p + scale_place(a.b_scales, wb, col, block));
        barrier_arrive_behind_words(full_barrier(s, r->stage));
        ring_step(r);
    }
}

#endif

MOII_FN void load_scales(const product_args &a, const shared &s)
{
    hand h = 0;
    ring r = { 0, 0 };
    unsigned int fetched = 0; /* of squares' scales */
    unit u;
    for (; take_card(s, h, &u); return_card(s, &h)) {
        const int end = u.block + (u.k_end - u.k + BLOCK_VALUES - 1) / BLOCK_VALUES;
        const int rows = OUTER && A_GROUPED ? u.row + u.rows : a.a_scales.rows; /* what others have may not make a stage far */
        const scale_walk wa = { (const char *)a.a_scales.p + (A_GROUPED ? u.group * a.a_scales.group_bytes : 0), u.row, rows, end };
        const scale_walk wb = { (const char *)a.b_scales.p + (B_GROUPED ? u.group * a.b_scales.group_bytes : 0), u.col, a.b_scales.rows, end };
        load_unit_scales(a, s, u, wa, wb, &r, &fetched);
    }
}

#else
MOII_FN void load_scales(const product_args &, const shared &) {}
#endif

#endif
