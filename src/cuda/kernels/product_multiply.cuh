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

/* sum += scale x what the tensor cores summed: rows lane / 4 and lane / 4 + 8 of the wave. */
#if SCALING == SCALING_SQUARE
/* sb: of the squares that the tile touches; in: columns of the tile in front of its first square's end */
MOII_FN void promote(float *sum, const float *acc, const float *sa, const float *sb, int in)
{
#pragma unroll
    for (int run = 0; run < RUNS; run++) {
        const float b = run * SQUARE_RUN < in ? sb[0] : SQUARES == 2 || run * SQUARE_RUN < in + 128 ? sb[SQUARES > 1] : sb[SQUARES - 1];
        const float s0 = sa[0] * b, s1 = sa[1] * b;
#pragma unroll
        for (int i = run * (BN / RUNS / 2); i < (run + 1) * (BN / RUNS / 2); i += 4) {
            sum[i] = __fmaf_rn(acc[i], s0, sum[i]);
            sum[i + 1] = __fmaf_rn(acc[i + 1], s0, sum[i + 1]);
            sum[i + 2] = __fmaf_rn(acc[i + 2], s1, sum[i + 2]);
            sum[i + 3] = __fmaf_rn(acc[i + 3], s1, sum[i + 3]);
        }
    }
}
#elif SCALING == SCALING_ROWS
MOII_FN void promote(float *sum, const float *acc, const float *, const float *, int)
{
#pragma unroll
    for (int i = 0; i < BN / 2; i++) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(sum[i]) : "f"(acc[i]));
}
#else
/* sb: this lane's first column of the tile */
MOII_FN void promote(float *sum, const float *acc, const float *sa, const float *sb, int)
{
#pragma unroll
    for (int i = 0; i < BN / 2; i += 4) {
        const float2 b = *(const float2 *)(sb + i * 2);
        sum[i] = __fmaf_rn(acc[i] * b.x, sa[0], sum[i]);
        sum[i + 1] = __fmaf_rn(acc[i + 1] * b.y, sa[0], sum[i + 1]);
        sum[i + 2] = __fmaf_rn(acc[i + 2] * b.x, sa[1], sum[i + 2]);
        sum[i + 3] = __fmaf_rn(acc[i + 3] * b.y, sa[1], sum[i + 3]);
    }
}
#endif

/* Where a lane's scales come from. */
typedef struct scale_view {
    unsigned int a;          /* shared address, in the first stage, of the scale of this lane's first row */
    unsigned int b[SQUARES]; /* SCALING_SQUARE: the next stage's, in floats from the operand's first, of the squares the tile touches */
    int in;                  /* see promote */
    float next[SQUARES];     /* they are on their way while a stage is worked at */
} scale_view;

MOII_FN void view_read(const product_args &a, scale_view *v)
{
#pragma unroll
    for (int i = 0; i < SQUARES; i++) {
        v->next[i] = __ldg((const float *)a.b_scales.p + v->b[i]);
        v->b[i] += a.b_scales.block_stride * TURNS;
    }
}

MOII_FN void view_open(const product_args &a, const shared &s, const unit &u, int wg, int team, scale_view *v)
{
    const int early = SCALES_BULK && GROUPS == PRODUCT_ROWS ? u.row & 3 : 0; /* rows in front, so that the copy is aligned */
    v->a = s.base + SCALES_AT + 4 * (wg * WAVES * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + early);
    v->in = 128 - u.col % 128;
#if SCALING == SCALING_SQUARE
#pragma unroll
    for (int i = 0; i < SQUARES; i++) /* behind the last: columns that are not stored */
        v->b[i] = (B_GROUPED ? (unsigned int)u.group * (unsigned int)(a.b_scales.group_bytes / 4) : 0) +
                  (unsigned int)min(u.col / 128 + i, a.b_scales.rows - 1) * a.b_scales.row_stride + (u.block + team) * a.b_scales.block_stride;
    if (team < steps_of(u)) view_read(a, v);
#endif
}

/* x, but not before acc is there: else the compiler multiplies scales between the products of a stage, which then wait for them, and another
 * warpgroup's products come in between.  `select` picks all bytes of x. */
MOII_FN float behind(float x, float acc, unsigned int select)
{
    return __uint_as_float(__byte_perm(__float_as_uint(acc), __float_as_uint(x), select));
}

/* One stage: for each wave, four products summed by the tensor cores, then added. */
MOII_FN void multiply_stage(const product_args &a, const shared &s, unsigned int stage, scale_view *v, bool last, float sum[WAVES][BN / 2])
{
    const float *b = scales_at(s, stage) + A_STAGED + threadIdx.x % 4 * 2;
    float sa[WAVES][2], acc[BN / 2];
#if SCALING == SCALING_SQUARE
    float sb[SQUARES];
#pragma unroll
    for (int i = 0; i < SQUARES; i++) sb[i] = v->next[i];
    if (!last) view_read(a, v);
    b = sb;
#endif
#pragma unroll
    for (int i = 0; i < WAVES * 2 && SCALES_STAGED; i++) sa[i / 2][i % 2] = shared_read(v->a + SCALE_FLOATS * 4 * stage + i / 2 * 256 + i % 2 * 32);
#pragma unroll
    for (int w = 0; w < WAVES; w++) {
        const unsigned int rows = as_it_is(s.a), select = as_it_is(0x7654);
        wgmma_hold(acc);
        wgmma_begin();
#pragma unroll
        for (int j = 0; j < 4; j++) wgmma(acc, rows + stage * (STAGE_BYTES / 16) + w * 512 + j * 2, b_part(s, stage, j), j > 0);
        wgmma_close();
        WGMMA_WAIT(0);
        wgmma_hold(acc);
        if (SCALING != SCALING_VECTOR && w == WAVES - 1) release_stage(s, stage);
        if (SCALING == SCALING_SQUARE) sa[w][0] = behind(sa[w][0], acc[0], select), sa[w][1] = behind(sa[w][1], acc[2], select);
        promote(sum[w], acc, sa[w], b, v->in);
    }
    if (SCALING == SCALING_VECTOR) release_stage(s, stage);
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
        const float sa[2] = { scales[row * 4 + j], scales[(row + 8) * 4 + j] };
        if (i + 1 < 4 * WAVES) {
            start_product(s, stage, i + 1, acc[(i + 1) % 2]);
            WGMMA_WAIT(1);
        } else WGMMA_WAIT(0);
        wgmma_hold(acc[i % 2]);
        promote(sum[w], acc[i % 2], sa, scales + BM * 4 + j * BN + lane % 4 * 2, 0);
    }
    release_stage(s, stage);
}
#endif

MOII_FN void multiply_one(const product_args &a, const shared &s, const unit &u, unsigned int stage, unsigned int parity, int wg, int step, int steps,
                          scale_view *v, float sum[WAVES][BN / 2])
{
    barrier_wait(full_barrier(s, stage), parity);
    if (STAGES_STRADDLE && u.k_end - u.k - step * STEP < STEP) clear_tail(s, stage, u.k_end - u.k - step * STEP);
#if SCALING == SCALING_MX
    multiply_stage_mx(s, stage, wg, sum);
#else
    multiply_stage(a, s, stage, v, step + TURNS >= steps, sum);
#endif
}

MOII_FN void multiply(const product_args &a, const shared &s, const unit &u, ring *r, int wg, int team, float sum[WAVES][BN / 2])
{
    const int steps = steps_of(u);
#pragma unroll
    for (int i = 0; i < WAVES * BN / 2; i++) sum[i / (BN / 2)][i % (BN / 2)] = 0.0f;
    scale_view v;
    view_open(a, s, u, wg, team, &v);
    /* the ring's stages by name: addresses of operands are then constants */
    int step = -(int)r->stage;
    for (; step < steps; step += STAGES) {
#pragma unroll
        for (int stage = 0; stage < STAGES; stage++) {
            if (step + stage < 0 || step + stage >= steps || (TURNS > 1 && (step + stage) % TURNS != team)) continue;
            multiply_one(a, s, u, stage, r->parity, wg, step + stage, steps, &v, sum);
        }
        if (step + STAGES <= steps) r->parity ^= 1;
    }
    r->stage = (unsigned int)(steps - step + STAGES) % STAGES;
}

#endif
#endif
