/* SPDX-License-Identifier: Apache-2.0
 * product_multiply.cuh: the multiplying warpgroups of product_sm90.cuh: from stages to sums of one tile. */
#ifndef MOII_PRODUCT_MULTIPLY_CUH
#define MOII_PRODUCT_MULTIPLY_CUH

#include "product_tail.cuh"

/* Where registers are few, none keeps what follows from it. */
MOII_FN unsigned int this_thread(const shared &s) { return KEEPS_THREAD ? as_it_is(s.thread) : THREADS > 384 ? as_it_is(threadIdx.x) : threadIdx.x; }

MOII_FN void release_stage(const shared &s, unsigned int stage)
{
    const unsigned int lane = this_thread(s) % 32;
    __syncwarp();
    static_assert(CLUSTER <= 2, "whoever is not the first block tells itself and the first one, which writes into all");
    if (CLUSTER > 1) {
        if (lane <= s.rank) barrier_arrive_at(empty_barrier(s, stage), lane);
    } else if (lane == 0) barrier_arrive(empty_barrier(s, stage));
}

/* Here alone: else the compiler does it in advance for those tiles too whose sums begin as a product. */
MOII_FN void sums_clear(float sum[WAVES][BN / 2])
{
#pragma unroll
    for (int i = 0; i < WAVES * BN / 2; i++) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(sum[i / (BN / 2)][i % (BN / 2)]));
}

/* Descriptors of the j-th product of a stage. */
MOII_FN unsigned int a_part(const shared &s, unsigned int stage, int wave, int j)
{
    const unsigned int at = s.a + stage * (STAGE_BYTES / 16);
    return at + wave * (512 * WAVES_APART) + j * (A_TURNED ? 128 : 2);
}

MOII_FN unsigned int b_part(const shared &s, unsigned int stage, int j)
{
    const unsigned int at = s.b + stage * (STAGE_BYTES / 16);
    return B_TURNED ? at + j * 128 : at + j * 2;
}

/* The first team's sums become those of all teams. */
MOII_FN void join_teams(const shared &s, int team, float sum[WAVES][BN / 2])
{
    float *there = (float *)(s.p + JOIN_AT) + ((int)threadIdx.x - 128) % TEAM;
    if (team > 0) {
#pragma unroll
        for (int i = 0; i < WAVES * BN / 2; i++) there[((team - 1) * (WAVES * BN / 2) + i) * TEAM] = sum[i / (BN / 2)][i % (BN / 2)];
    }
    threads_meet(1, CONSUMERS);
    if (team == 0) {
        for (int t = 0; t < TURNS - 1; t++)
#pragma unroll
            for (int i = 0; i < WAVES * BN / 2; i++) sum[i / (BN / 2)][i % (BN / 2)] += there[(t * (WAVES * BN / 2) + i) * TEAM];
    }
    threads_meet(1, CONSUMERS);
}

/* Whether a tile leaves out rows that are not there: those of ragged groups. */
#define LEAVES_OUT ((B_GROUPED && TURNS == 1) || HALVES)

/* A warpgroup's blocks of rows that are there, but for one that both have. */
MOII_FN int waves_there(const unit &u, int wg)
{
    const int blocks = (u.rows + 63) / 64;
    if (is_broad(u)) return blocks;
    if (HALVES) return min(blocks, BM / 64) / 2;
    return min(BESIDE ? blocks : (blocks + WGS - 1 - wg) / WGS, WAVES);
}

/* A unit of which the warpgroup has no rows. */
MOII_FN void pass_stages(const shared &s, const unit &u, ring *r, unsigned int *taken)
{
    const int steps = steps_of(u);
#pragma unroll 1
    for (int step = 0; step < steps; step++, ring_step(r)) {
        reach_squares(s, step, taken); /* else the next ones would never be fetched */
        barrier_wait(full_barrier(s, r->stage), r->parity);
        release_stage(s, r->stage);
    }
    if (steps > 0) leave_squares(s, *taken);
}

/* Descriptors of the block of rows that both warpgroups have, and of the warpgroup's half of B. */
#if HALVES
MOII_FN unsigned int a_shared_part(const shared &s, const unit &u, unsigned int stage, int wg, int j)
{
    return a_part(s, stage, 0, j) + (blocks_of(u) - 1 - wg) * 512;
}

MOII_FN unsigned int b_half_part(const shared &s, unsigned int stage, int wg, int j) { return b_part(s, stage, j) + wg * (BN * 4); }
#endif

/* A broad tile as a warpgroup sees it: B lies elsewhere; of 64 rows both have all, and each half of the columns. */
#if BROAD
MOII_FN shared broad_view(const shared &s, int wg, bool alone)
{
    shared t = s;
    t.b -= (A_BYTES - BROAD_B) / 16;
    if (alone) t.a -= WAVE_ROW(wg, 0) * (PRODUCT_STEP_BYTES / 16), t.b += wg * (B_BYTES / 16);
    return t;
}
#endif

#if !PROMOTED

/* A unit of which not all rows are there. */
#if HALVES
MOII_FN void multiply_few(const shared &s, const unit &u, ring *r, int waves, bool half, int wg, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    sums_clear(sum);
#pragma unroll 1
    for (int step = 0; step < steps; step++, ring_step(r)) {
        barrier_wait(full_barrier(s, r->stage), r->parity);
#pragma unroll
        for (int w = 0; w < WAVES; w++) wgmma_hold(sum[w]);
#pragma unroll
        for (int w = 0; w < WAVES - 1; w++) {
            if (w >= waves) break;
            wgmma_begin();
#pragma unroll
            for (int j = 0; j < 4; j++) wgmma(sum[w], a_part(s, r->stage, w, j), b_part(s, r->stage, j), 1);
            wgmma_close();
            WGMMA_WAIT(0);
        }
        if (half) {
            wgmma_begin();
#pragma unroll
            for (int j = 0; j < 4; j++) wgmma_half(sum[WAVES - 1], a_shared_part(s, u, r->stage, wg, j), b_half_part(s, r->stage, wg, j), 1);
            wgmma_close();
            WGMMA_WAIT(0);
        }
#pragma unroll
        for (int w = 0; w < WAVES; w++) wgmma_hold(sum[w]);
        release_stage(s, r->stage);
    }
}
#endif

/* Behind a stage's products: the stage before, if there is one, is left when its own have ended. */
MOII_FN void close_stage(const shared &s, ring *r, bool any, unsigned int *before)
{
    wgmma_close();
    if (any) {
        WGMMA_WAIT(1);
        release_stage(s, *before);
    }
    *before = r->stage;
    ring_step(r);
}

MOII_FN void close_stages(const shared &s, bool any, unsigned int before, float sum[WAVES][BN / 2])
{
    WGMMA_WAIT(0);
#pragma unroll
    for (int w = 0; w < WAVES; w++) wgmma_hold(sum[w]);
    if (any) release_stage(s, before);
}

#if STRIP
#include "product_strip.cuh"
#endif

#if BROAD
MOII_FN void multiply_broad(const shared &s, const unit &u, ring *r, int waves, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    unsigned int before = 0;
    sums_clear(sum);
#pragma unroll
    for (int w = 0; w < WAVES; w++) wgmma_hold(sum[w]);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        barrier_wait(full_barrier(s, r->stage), r->parity);
        wgmma_begin();
#pragma unroll
        for (int w = 0; w < waves; w++)
#pragma unroll
            for (int j = 0; j < 4; j++) wgmma(sum[w], a_part(s, r->stage, 0, j), b_part(s, r->stage, j) + w * (B_BYTES / 16), 1);
        close_stage(s, r, step > 0, &before);
    }
    close_stages(s, steps > 0, before, sum);
}
#endif

/* 16 bits: the tensor cores' own sums serve. */
MOII_FN void multiply(const product_args &a, const shared &s, const unit &u, ring *r, unsigned int *taken, int wg, int team, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    unsigned int before = 0;
    const int waves = LEAVES_OUT ? uniform(waves_there(u, wg)) : WAVES;
    const bool half = uniform(halved(u));
    if (waves == 0 && !half) {
        pass_stages(s, u, r, taken);
        return;
    }
#if BROAD
    if (uniform(u.broad)) { /* how many waves is known where it is inlined */
        if (waves == 1) multiply_broad(broad_view(s, wg, true), u, r, 1, sum);
        else multiply_broad(broad_view(s, wg, false), u, r, 2, sum);
        return;
    }
#endif
#if HALVES
    if (waves < WAVES) {
        multiply_few(s, u, r, waves, half, wg, sum);
        return;
    }
#endif
#if STRIP
    if (uniform(u.strip)) {
        multiply_strip(s, u, r, sum);
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < WAVES * BN / 2; i++) sum[i / (BN / 2)][i % (BN / 2)] = 0.0f;
#pragma unroll
    for (int w = 0; w < WAVES; w++) wgmma_hold(sum[w]);
    for (int step = 0; step < steps; step++) {
        if (TURNS > 1 && step % TURNS != team) {
            ring_step(r);
            continue;
        }
        barrier_wait(full_barrier(s, r->stage), r->parity);
        if (STAGES_STRADDLE && u.k_end - u.k - step * STEP < STEP) clear_tail(s, r->stage, u.k_end - u.k - step * STEP);
        const unsigned int stage = r->stage;
        wgmma_begin();
#pragma unroll
        for (int w = 0; w < WAVES; w++)
#pragma unroll
            for (int j = 0; j < 4; j++) wgmma(sum[w], a_part(s, stage, w, j), b_part(s, stage, j), 1);
        close_stage(s, r, step >= TURNS, &before);
    }
    close_stages(s, steps > team, before, sum);
}

#else

/* Shared address, in the first stage, of the scale of the warpgroup's first row. */
MOII_FN unsigned int row_scales(const shared &s, const unit &u, int wg)
{
    const int early = SCALES_BULK && GROUPS == PRODUCT_ROWS ? u.row & 3 : 0; /* rows in front, so that the copy is aligned */
    return s.base + SCALES_AT + 4 * (WAVE_ROW(wg, 0) + early);
}

/* Bytes from there to that of this lane's first row. */
MOII_FN unsigned int lane_scales(const shared &s)
{
    const unsigned int t = this_thread(s);
    return t / 32 % 4 * 64 + t % 32 / 4 * 4;
}

/* A lane's scales of one stage and one wave: of rows lane / 4 and lane / 4 + 8, and of the squares of B, if there are several; else the
 * rows' are already times B's. */
typedef struct wave_scales { float a[2], b[SQUARES]; } wave_scales;

/* first: the sums begin here, else more is added.  in: columns of the tile in front of its first square's end; columns: where
 * the scales of the lane's columns begin, if they have any; lines: 1: of the lane's two rows only the first is there. */
MOII_FN void promote(float *sum, const float *acc, int width, const wave_scales &v, bool first, int in, unsigned int columns, int lines = 2)
{
    float4 four = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < width / 8; j++) {
        float s0 = v.a[0], s1 = v.a[1], *d = sum + 4 * j;
        const float *x = acc + 4 * j;
        const int at = j * 8 / SQUARE_RUN * SQUARE_RUN;
        if (SCALING == SCALING_SQUARE && SQUARES > 1) {
            const float b = at < in ? v.b[0] : SQUARES == 2 || at < in + 128 ? v.b[SQUARES > 1] : v.b[SQUARES - 1];
            s0 *= b, s1 *= b;
        }
        float t[4] = { x[0], x[1], x[2], x[3] };
        if (SCALING == SCALING_VECTOR || SCALING == SCALING_MX) {
            if (WOVEN && j % 2 == 0) four = shared_read_floats(columns + j * 32);
            const float2 b = !WOVEN ? shared_read_pair(columns + j * 32) : j % 2 ? make_float2(four.z, four.w) : make_float2(four.x, four.y);
            t[0] *= b.x, t[1] *= b.y, t[2] *= b.x, t[3] *= b.y;
        }
#pragma unroll
        for (int i = 0; i < 2 * lines; i++) {
#if SCALING == SCALING_ROWS /* here and now, else the compiler adds behind the next products, and waits for them in between */
            if (first) asm volatile("add.rn.f32 %0, %1, 0f00000000;" : "=f"(d[i]) : "f"(t[i]));
            else asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(d[i]) : "f"(t[i]));
#else
            const float scale = i < 2 ? s0 : s1;
            d[i] = first ? t[i] * scale : __fmaf_rn(t[i], scale, d[i]);
#endif
        }
    }
}

/* A unit's last stage alone may have to be cleared, so it has code of its own. */
#define PEELED (STAGES_STRADDLE && SCALING == SCALING_VECTOR)
/* Whole rounds of the ring by name, so that addresses are constants, where there are registers for that. */
#define BY_NAME (!SHORT && TURNS == 1 && SCALING != SCALING_VECTOR && SCALE_ARRIVALS == 0)
#define DOUBLED (SCALING == SCALING_ROWS && !SHORT && TURNS == 1)
/* A tile's first stage is one as all others, and its sums are 0 before: where there is one tile, that is done while its first stage is on its way. */
#define ALL_BY_NAME (BY_NAME && LONE)

MOII_FN unsigned int lane_columns(const shared &s, unsigned int from)
{
    return s.base + SCALES_AT + from + 4 * A_STAGED + this_thread(s) % 4 * (WOVEN ? 16 : 8);
}

/* One stage: for each of so many waves, four products summed by the tensor cores, then added times their scales.  keep: the stage is not
 * left yet; beside: the waves lie side by side, in a broad tile. */
MOII_FN void multiply_stage(const shared &s, ring at, unsigned int rows, unsigned int square, int in, bool first, int waves, bool keep,
                            float sum[WAVES][BN / 2], bool beside = false)
{
    const unsigned int from = 4 * SCALE_FLOATS * at.stage;
    const unsigned int columns = lane_columns(s, from);
    wave_scales v;
    float acc[BN / 2];
    barrier_wait(full_barrier(s, at.stage), at.parity);
#pragma unroll
    for (int i = 0; i < SQUARES && SCALING == SCALING_SQUARE; i++) v.b[i] = shared_read(square + i * (4 * SQUARES_STEPS));
#pragma unroll
    for (int w = 0; w < WAVES; w++) {
        if (w >= waves) break;
        const int down = beside ? 0 : w * WAVES_APART, across = beside ? w : 0;
        const unsigned int tile = as_it_is(s.a) + at.stage * (STAGE_BYTES / 16) + down * 512;
#pragma unroll
        for (int i = 0; i < 2 && SCALES_STAGED; i++) v.a[i] = shared_read(rows + lane_scales(s) + from + down * 256 + i * 32);
        if (SCALING == SCALING_SQUARE && across) v.b[0] = shared_read(square + across * (4 * SQUARES_STEPS));
        wgmma_hold(acc);
        wgmma_begin();
#pragma unroll
        for (int j = 0; j < 4; j++) wgmma(acc, tile + j * 2, b_part(s, at.stage, j) + across * (B_BYTES / 16), j > 0);
        wgmma_close();
#pragma unroll
        for (int i = 0; i < 2 && SCALING == SCALING_SQUARE && SQUARES == 1; i++) v.a[i] *= v.b[0];
        WGMMA_WAIT(0);
        wgmma_hold(acc);
        if (w + 1 == waves && !keep && SCALING != SCALING_VECTOR) release_stage(s, at.stage);
        promote(sum[w], acc, BN, v, first, in, columns);
        if (w + 1 == waves && !keep && SCALING == SCALING_VECTOR) release_stage(s, at.stage);
    }
}

#if HALVES
#include "product_halves.cuh"
#endif
#if DOUBLED
#include "product_double.cuh"
#endif

/* The same with a scale for every 32 values: each product is added by itself, while the next one runs. */
#if SCALING == SCALING_MX
MOII_FN void start_product(const shared &s, unsigned int stage, int i, float *acc)
{
    wgmma_hold(acc);
    wgmma_begin();
    wgmma(acc, a_part(s, stage, i / 4, i % 4), b_part(s, stage, i % 4), 0);
    wgmma_close();
}

/* there: rows of this warp's 16 that are, where the unit has no more for the warpgroup: what others would add is left out; else more than 16. */
MOII_FN void multiply_stage_mx(const shared &s, unsigned int stage, int wg, int there, float sum[WAVES][BN / 2])
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const float *scales = scales_at(s, stage);
    const unsigned int columns = s.base + SCALES_AT + 4 * (SCALE_FLOATS * stage + A_STAGED) + lane % 4 * 8;
    float acc[2][BN / 2];
    start_product(s, stage, 0, acc[0]);
#pragma unroll
    for (int i = 0; i < 4 * WAVES; i++) {
        const int w = i / 4, j = i % 4;
        const int row = WAVE_ROW(wg, w) + warp * 16 + lane / 4;
        if (i + 1 < 4 * WAVES) {
            start_product(s, stage, i + 1, acc[(i + 1) % 2]);
            WGMMA_WAIT(1);
        } else WGMMA_WAIT(0);
        wgmma_hold(acc[i % 2]);
        wave_scales v;
        if (there <= 0) continue;
        v.a[0] = scales[row * 4 + j], v.a[1] = scales[(row + 8) * 4 + j];
        if (there > 8) promote(sum[w], acc[i % 2], BN, v, false, 0, columns + j * (BN * 4));
        else promote(sum[w], acc[i % 2], BN, v, false, 0, columns + j * (BN * 4), 1);
    }
    release_stage(s, stage);
}
#endif

#if SCALING == SCALING_MX
MOII_FN void multiply_stages(const shared &s, const unit &u, ring *r, int wg, int team, int there, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    for (int step = 0; step < steps; step++, ring_step(r)) {
        if (TURNS > 1 && step % TURNS != team) continue;
        barrier_wait(full_barrier(s, r->stage), r->parity);
        stage_cleared(s, u, *r, step);
        multiply_stage_mx(s, r->stage, wg, there, sum);
    }
}

MOII_FN void multiply(const product_args &a, const shared &s, const unit &u, ring *r, unsigned int *taken, int wg, int team, float sum[WAVES][BN / 2])
{
    enum { ALL = 64 };
    const int rows = uniform(u.rows - WAVE_ROW(wg, 0)), there = uniform(rows - (int)threadIdx.x / 32 % 4 * 16);
    sums_clear(sum);
    if (WAVES == 1 && rows <= 16) multiply_stages(s, u, r, wg, team, min(there, 16), sum);
    else multiply_stages(s, u, r, wg, team, ALL, sum);
}
#elif OUTER
#include "product_outer_stages.cuh"
#else
#define ONE_LOOP (SHORT && GROUPS == PRODUCT_DENSE) /* little code: the first stage has none of its own */
#define PAIRED (GROUPS == PRODUCT_DENSE && SCALING == SCALING_SQUARE && WAVES == 1 && TURNS == 1 && BN <= 128 && (SHORT ? SHORT == 2 : WGS == 1))
#if PAIRED
#include "product_pairs.cuh"
#endif

/* A unit of which not all of the warpgroup's rows are there: the time it takes is theirs. */
MOII_FN void multiply_few(const shared &s, const unit &u, ring *r, unsigned int *taken, unsigned int rows, int in, int apart, int waves, int wg,
                          int team, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    const bool half = uniform(halved(u));
    if (!half && (waves == 0 || (WAVES == 1 && !ONE_LOOP && !PAIRED))) {
        pass_stages(s, u, r, taken);
        return;
    }
    sums_clear(sum);
#pragma unroll 1
    for (int step = 0; step < steps; step++, ring_step(r)) {
        reach_squares(s, step, taken);
#if PAIRED
        for (; step % IN_A_ROW == 0 && step + IN_A_ROW <= steps; reach_squares(s, step, taken)) {
            multiply_row(s, r, rows, square_of(s, *taken, step, apart), in, sum[0]);
            if ((step += IN_A_ROW) == steps) break;
        }
        if (step == steps) break;
#endif
#if DOUBLED
        if (step % 2 == 0 && step + 2 <= full_steps(u)) {
            const ring next = ring_behind(*r);
            if (!HALVES || waves > 0) multiply_two(s, *r, next, false, waves, half, sum);
#if HALVES
            if (half) multiply_two_halves(s, u, *r, next, wg, sum[WAVES - 1]);
#endif
            *r = next, step++;
            continue;
        }
#endif
        if (TURNS > 1 && step % TURNS != team) continue;
        stage_cleared(s, u, *r, step);
        if (!HALVES || waves > 0) multiply_stage(s, *r, rows, square_of(s, *taken, step, apart), in, false, waves, half, sum);
#if HALVES
        if (half) multiply_half(s, u, *r, rows, square_of(s, *taken, step, apart), wg, sum[WAVES - 1]);
#endif
    }
    if (steps > 0) leave_squares(s, *taken);
}

/* A broad tile.  alone: it has 64 rows, so that each warpgroup has one wave. */
#if BROAD
MOII_FN void multiply_broad(const shared &s, const unit &u, ring *r, unsigned int *taken, int wg, bool alone, float sum[WAVES][BN / 2])
{
    const shared t = broad_view(s, wg, alone);
    const int steps = steps_of(u), waves = alone ? 1 : WAVES;
#if DOUBLED
    multiply_by_two(t, u, r, false, waves, sum, true);
#else
    const unsigned int rows = row_scales(s, u, wg) - (alone ? 4 * WAVE_ROW(wg, 0) : 0), own = alone ? wg * (4 * SQUARES_STEPS) : 0;
    sums_clear(sum);
    for (int step = 0; step < steps;) {
        reach_squares(s, step, taken);
        if (BY_NAME && r->stage == 0) {
            const int end = min(steps, step / SQUARES_STEPS * SQUARES_STEPS + SQUARES_STEPS);
            for (; step + STAGES <= end; step += STAGES, r->parity ^= 1) {
                const unsigned int square = square_of(s, *taken, step, 0) + own;
#pragma unroll
                for (unsigned int stage = 0; stage < STAGES; stage++)
                    multiply_stage(t, { stage, r->parity }, rows, square + 4 * stage, 128, false, waves, false, sum, true);
            }
            if (step == end) continue;
        }
        multiply_stage(t, *r, rows, square_of(s, *taken, step, 0) + own, 128, false, waves, false, sum, true);
        ring_step(r), step++;
    }
    if (steps > 0) leave_squares(s, *taken);
#endif
}
#endif

MOII_FN void multiply(const product_args &a, const shared &s, const unit &u, ring *r, unsigned int *taken, int wg, int team, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u), col = u.col + (WIDE ? wg * BN : 0), in = SWIGLU ? BN / 2 : 128 - col % 128;
    const int apart = col / 128 - u.col / 128;
    const unsigned int rows = row_scales(s, u, wg);
    const int waves = LEAVES_OUT ? uniform(waves_there(u, wg)) : WAVES;
#if BROAD
    if (uniform(u.broad)) { /* how many waves is known where it is inlined */
        if (waves == 1) multiply_broad(s, u, r, taken, wg, true, sum);
        else multiply_broad(s, u, r, taken, wg, false, sum);
        return;
    }
#endif
    if (waves < WAVES || ONE_LOOP || PAIRED) {
        multiply_few(s, u, r, taken, rows, in, apart, waves, wg, team, sum);
        return;
    }
#if DOUBLED
    multiply_by_two(s, u, r, true, WAVES, sum);
#else
    const bool squares = SCALING == SCALING_SQUARE;
    int step = 0;
    for (; step < steps && step < team; step++) ring_step(r);
    if (squares && steps > 0) take_squares(s, taken);
    if (step == steps) {
        if (squares && steps > 0) leave_squares(s, *taken);
        sums_clear(sum);
        return;
    }
    if (ALL_BY_NAME) sums_clear(sum);
    else {
        stage_cleared(s, u, *r, step);
        multiply_stage(s, *r, rows, square_of(s, *taken, step, apart), in, true, WAVES, false, sum);
        ring_step(r), step++;
    }
    for (; step < steps - PEELED; step++, ring_step(r)) {
        if (TURNS > 1 && step % TURNS != team) continue;
        if (squares && step % SQUARES_STEPS < TURNS && (!ALL_BY_NAME || step > 0)) leave_squares(s, *taken), take_squares(s, taken);
        if (BY_NAME && r->stage == 0) {
            const int end = squares ? min(steps, step / SQUARES_STEPS * SQUARES_STEPS + SQUARES_STEPS) : steps;
            for (; step + STAGES <= end - STAGES_STRADDLE; step += STAGES, r->parity ^= 1) {
                const unsigned int square = square_of(s, *taken, step, apart);
#pragma unroll
                for (unsigned int stage = 0; stage < STAGES; stage++)
                    multiply_stage(s, { stage, r->parity }, rows, square + 4 * stage, in, false, WAVES, false, sum);
            }
            if (step == steps) break;
            if (squares && step == end) leave_squares(s, *taken), take_squares(s, taken);
        }
        if (!PEELED) stage_cleared(s, u, *r, step);
        multiply_stage(s, *r, rows, square_of(s, *taken, step, apart), in, false, WAVES, false, sum);
    }
#if PEELED
    if (step < steps) {
        if (TURNS == 1 || step % TURNS == team) {
            stage_cleared(s, u, *r, step);
            multiply_stage(s, *r, rows, 0, in, false, WAVES, false, sum);
        }
        ring_step(r);
    }
#endif
    if (squares) leave_squares(s, *taken);
    /* the other team alone had stages of the last 64 */
    if (squares && TURNS > 1 && steps > SQUARES_STEPS && steps % SQUARES_STEPS > 0 && steps % SQUARES_STEPS <= team) {
        take_squares(s, taken);
        leave_squares(s, *taken);
    }
#endif
}
#endif

#endif
#endif
