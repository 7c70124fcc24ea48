/* SPDX-License-Identifier: Apache-2.0
 * product_multiply.cuh: the multiplying warpgroups of product_sm90.cuh: from stages to sums of one tile. */
#ifndef MOII_PRODUCT_MULTIPLY_CUH
#define MOII_PRODUCT_MULTIPLY_CUH

MOII_FN void release_stage(const shared &s, unsigned int stage)
{
    const unsigned int lane = threadIdx.x % 32;
    __syncwarp();
    if (CLUSTER > 1) {
        if (lane < CLUSTER) barrier_arrive_at(empty_barrier(s, stage), lane);
    } else if (lane == 0) barrier_arrive(empty_barrier(s, stage));
}

/* The last stage of a ragged reduction holds the next group's values behind `there`: they become 0, in A and B alike, for 0 x NaN is NaN. */
MOII_FN void clear_tail(const shared &s, unsigned int stage, int there)
{
    char *p = s.p + STAGE_BYTES * stage;
    const int t = (int)threadIdx.x - 128;
#if A_TURNED || B_TURNED
    for (int i = t; i < STAGE_BYTES / 16; i += CONSUMERS) /* lines of 128 bytes, 64 to a run */
        if (i / 8 % 64 >= there) ((uint4 *)p)[i] = make_uint4(0, 0, 0, 0);
#else
    const int size = BITS16 ? 2 : 1;
    for (int row = t; row < BM + BN; row += CONSUMERS)
        for (int i = there * size / 16 * 16; i < 128; i += size) {
            if (i < there * size) continue;
            const int at = row * 128 + ((i / 16 ^ (row & 7)) * 16 + i % 16);
            if (BITS16) *(unsigned short *)(p + at) = 0;
            else p[at] = 0;
        }
#endif
    shared_to_async();
    threads_meet(1, CONSUMERS);
}

/* Descriptors of the j-th product of a stage. */
MOII_FN unsigned int a_part(const shared &s, unsigned int stage, int wave, int j)
{
    const unsigned int at = s.a + stage * (STAGE_BYTES / 16);
    return A_TURNED ? at + wave * 512 + j * 128 : at + wave * 512 + j * 2;
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

#if !PROMOTED

/* 16 bits: the tensor cores' own sums serve. */
MOII_FN void multiply(const product_args &a, const shared &s, const unit &u, ring *r, int wg, int team, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
    unsigned int before = 0;
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
        wgmma_close();
        if (step >= TURNS) {
            WGMMA_WAIT(1);
            release_stage(s, before);
        }
        before = r->stage;
        ring_step(r);
    }
    WGMMA_WAIT(0);
#pragma unroll
    for (int w = 0; w < WAVES; w++) wgmma_hold(sum[w]);
    if (steps > team) release_stage(s, before);
}

#else

/* A lane's scales of one stage: of its rows lane / 4 and lane / 4 + 8 of each wave, and of the squares of B, if there are several; else the
 * rows' are already times B's. */
typedef struct stage_scales { float a[WAVES][2], b[SQUARES]; } stage_scales;

/* Shared address, in the first stage, of the scale of this lane's first row. */
MOII_FN unsigned int row_scales(const shared &s, const unit &u, int wg)
{
    const int early = SCALES_BULK && GROUPS == PRODUCT_ROWS ? u.row & 3 : 0; /* rows in front, so that the copy is aligned */
    return s.base + SCALES_AT + 4 * (FIRST_ROW(wg) + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + early);
}

/* there: whether the stage is, 0 or 1, as barrier_test says. */
MOII_FN stage_scales read_scales(const shared &s, unsigned int stage, unsigned int rows, unsigned int there)
{
    const unsigned int from = 4 * (SCALE_FLOATS * stage + there) - 4;
    stage_scales v;
#pragma unroll
    for (int i = 0; i < WAVES * 2 && SCALES_STAGED && SCALING != SCALING_MX; i++)
        v.a[i / 2][i % 2] = shared_read(rows + from + i / 2 * 256 + i % 2 * 32);
#pragma unroll
    for (int i = 0; i < SQUARES && SCALING == SCALING_SQUARE; i++) v.b[i] = shared_read(s.base + SCALES_AT + from + 4 * (A_STAGED + i));
#pragma unroll
    for (int i = 0; i < WAVES * 2 && SCALING == SCALING_SQUARE && SQUARES == 1; i++) v.a[i / 2][i % 2] *= v.b[0];
    return v;
}

/* Here and now: else the compiler moves additions behind the next stage's wait, and has no registers for what they add. */
MOII_FN void add_times(float *d, float x, float scale) { asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(*d) : "f"(x), "f"(scale)); }

/* sum += scale x what the tensor cores summed.  in: columns of the tile in front of its first square's end; columns: SCALING_VECTOR's
 * scales of the tile's columns. */
MOII_FN void promote(float *sum, const float *acc, const stage_scales &v, int w, int in, const float *columns)
{
#pragma unroll
    for (int j = 0; j < BN / 8; j++) {
        float s0 = v.a[w][0], s1 = v.a[w][1], *d = sum + 4 * j;
        const float *x = acc + 4 * j;
#if SCALING == SCALING_ROWS
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(d[i]) : "f"(x[i]));
#elif SCALING == SCALING_SQUARE
        const int at = j * 8 / SQUARE_RUN * SQUARE_RUN;
        if (SQUARES > 1) {
            const float b = at < in ? v.b[0] : SQUARES == 2 || at < in + 128 ? v.b[SQUARES > 1] : v.b[SQUARES - 1];
            s0 *= b, s1 *= b;
        }
        add_times(d, x[0], s0), add_times(d + 1, x[1], s0), add_times(d + 2, x[2], s1), add_times(d + 3, x[3], s1);
#else
        const float2 b = *(const float2 *)(columns + threadIdx.x % 4 * 2 + j * 8);
        d[0] = __fmaf_rn(x[0] * b.x, s0, d[0]), d[1] = __fmaf_rn(x[1] * b.y, s0, d[1]);
        d[2] = __fmaf_rn(x[2] * b.x, s1, d[2]), d[3] = __fmaf_rn(x[3] * b.y, s1, d[3]);
#endif
    }
}

MOII_FN stage_scales await_stage(const shared &s, ring at, unsigned int rows)
{
    barrier_wait(full_barrier(s, at.stage), at.parity);
    return read_scales(s, at.stage, rows, 1);
}

/* One stage: for each wave, four products summed by the tensor cores, then added.  While the tensor cores are at the last it is asked
 * whether the next stage is there, and its scales are read (once more if it was not), so that nothing but additions stands between two
 * waves' products; more: there is a next stage. */
MOII_FN void multiply_stage(const shared &s, unsigned int stage, unsigned int rows, int in, stage_scales *v, bool more, ring next,
                            float sum[WAVES][BN / 2])
{
    const float *columns = scales_at(s, stage) + A_STAGED;
    stage_scales after;
    float acc[BN / 2];
#pragma unroll
    for (int w = 0; w < WAVES; w++) {
        const unsigned int at = as_it_is(s.a);
        const bool last = w == WAVES - 1;
        unsigned int ready = 1;
        wgmma_hold(acc);
        wgmma_begin();
#pragma unroll
        for (int j = 0; j < 4; j++) wgmma(acc, at + stage * (STAGE_BYTES / 16) + w * 512 + j * 2, b_part(s, stage, j), j > 0);
        wgmma_close();
        if (last && more) {
            ready = barrier_test(full_barrier(s, next.stage), next.parity);
            after = read_scales(s, next.stage, rows, ready);
        }
        WGMMA_WAIT(0);
        wgmma_hold(acc);
        if (last && SCALING != SCALING_VECTOR) release_stage(s, stage);
        promote(sum[w], acc, *v, w, in, columns);
        if (last && SCALING == SCALING_VECTOR) release_stage(s, stage);
        if (last && more && !ready) after = await_stage(s, next, rows);
    }
    *v = after;
}

/* The same with a scale for every 32 values: each product is added by itself, while the next one runs. */
#if SCALING == SCALING_MX
MOII_FN void start_product(const shared &s, unsigned int stage, int i, float *acc)
{
    wgmma_hold(acc);
    wgmma_begin();
    wgmma(acc, a_part(s, stage, i / 4, i % 4), b_part(s, stage, i % 4), 0);
    wgmma_close();
}

MOII_FN void multiply_stage_mx(const shared &s, unsigned int stage, int wg, float sum[WAVES][BN / 2])
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
    const float *scales = scales_at(s, stage);
    float acc[2][BN / 2];
    start_product(s, stage, 0, acc[0]);
#pragma unroll
    for (int i = 0; i < 4 * WAVES; i++) {
        const int w = i / 4, j = i % 4;
        const int row = (wg * WAVES + w) * 64 + warp * 16 + lane / 4;
        if (i + 1 < 4 * WAVES) {
            start_product(s, stage, i + 1, acc[(i + 1) % 2]);
            WGMMA_WAIT(1);
        } else WGMMA_WAIT(0);
        wgmma_hold(acc[i % 2]);
        stage_scales v;
        v.a[w][0] = scales[row * 4 + j], v.a[w][1] = scales[(row + 8) * 4 + j];
        promote(sum[w], acc[i % 2], v, w, 0, scales + BM * 4 + j * BN);
    }
    release_stage(s, stage);
}
#endif

#define AHEAD (TURNS == 1 && SCALING != SCALING_VECTOR) /* whether a stage awaits the next: scales of columns leave no registers for it */

MOII_FN ring ring_next(ring r)
{
    ring_step(&r);
    return r;
}

MOII_FN void multiply(const product_args &a, const shared &s, const unit &u, ring *r, int wg, int team, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u), in = SWIGLU ? BN / 2 : 128 - u.col % 128;
    const unsigned int rows = row_scales(s, u, wg);
    stage_scales v;
    bool there = false; /* whether the stage has been awaited, and v read */
#pragma unroll
    for (int i = 0; i < WAVES * BN / 2; i++) sum[i / (BN / 2)][i % (BN / 2)] = 0.0f;
    for (int step = 0; step < steps; step++, ring_step(r)) {
        if (TURNS > 1 && step % TURNS != team) continue;
        if (!there) v = await_stage(s, *r, rows);
#if SCALING == SCALING_MX
        if (STAGES_STRADDLE && u.k_end - u.k - step * STEP < STEP) clear_tail(s, r->stage, u.k_end - u.k - step * STEP);
        multiply_stage_mx(s, r->stage, wg, sum);
#else
        there = AHEAD;
        if (AHEAD && r->stage == 0)
            for (; step + STAGES < steps; step += STAGES, r->parity ^= 1) /* a round by name: addresses of operands are constants */
#pragma unroll
                for (int stage = 0; stage < STAGES; stage++)
                    multiply_stage(s, stage, rows, in, &v, true, ring_next({ (unsigned int)stage, r->parity }), sum);
        if (STAGES_STRADDLE && u.k_end - u.k - step * STEP < STEP) clear_tail(s, r->stage, u.k_end - u.k - step * STEP);
        multiply_stage(s, r->stage, rows, in, &v, AHEAD && step + 1 < steps, ring_next(*r), sum);
#endif
    }
}

#endif
#endif
