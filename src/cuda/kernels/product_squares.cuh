/* SPDX-License-Identifier: Apache-2.0
 * product_squares.cuh: scales of B's 128x128 squares for product_sm90.cuh.  A loading warp fetches those of 64 stages at once, into one of
 * two places in turn, long before they are needed: in a stage's own barrier they would come last, and cost 4 %. */
#ifndef MOII_PRODUCT_SQUARES_CUH
#define MOII_PRODUCT_SQUARES_CUH

#if SCALING == SCALING_SQUARE
#define SQUARES_BARRIERS (BARRIERS_AT + 16 * STAGES)

MOII_FN unsigned int squares_full(const shared &s, unsigned int place) { return s.base + SQUARES_BARRIERS + 16 * place; }
MOII_FN unsigned int squares_empty(const shared &s, unsigned int place) { return s.base + SQUARES_BARRIERS + 16 * place + 8; }
MOII_FN unsigned int squares_at(const shared &s, unsigned int place) { return s.base + SQUARES_AT + place * (4 * SQUARES_STEPS * TILE_SQUARES); }

typedef struct squares { float of[TILE_SQUARES][SQUARES_STEPS / 32]; } squares; /* a lane's share of 64 stages' scales */

/* One warp: the scales of the unit's stages from `step` on. */
MOII_FN squares read_squares(const product_args &a, const unit &u, int step)
{
    const int lane = (int)threadIdx.x % 32, steps = steps_of(u);
    squares v;
    const float *p = (const float *)((const char *)a.b_scales.p + (B_GROUPED ? u.group * a.b_scales.group_bytes : 0));
#pragma unroll
    for (int i = 0; i < TILE_SQUARES; i++) { /* behind the last: columns that are not stored */
        const unsigned int row = SWIGLU ? (unsigned int)(u.col + i * (a.n / 2)) / 128 : (unsigned int)min(u.col / 128 + i, a.b_scales.rows - 1);
#pragma unroll
        for (int j = 0; j < SQUARES_STEPS / 32; j++) {
            const int at = step + j * 32 + lane;
            v.of[i][j] = at < steps ? __ldg(p + scale_index(a.b_scales, row, (unsigned int)(u.block + turned(u, at) * STRIDE))) : 0.0f;
        }
    }
    return v;
}

/* Into a place that is free. */
MOII_FN void place_squares(const shared &s, const squares &v, unsigned int place)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < TILE_SQUARES; i++)
#pragma unroll
        for (int j = 0; j < SQUARES_STEPS / 32; j++) shared_write(squares_at(s, place) + 4 * (i * SQUARES_STEPS + j * 32 + lane), v.of[i][j]);
    __syncwarp();
    if (lane == 0) barrier_arrive(squares_full(s, place));
}

/* Those of the fetched-th 64 stages, which begin with `step`. */
MOII_FN void fetch_squares(const product_args &a, const shared &s, const unit &u, int step, unsigned int fetched)
{
    const squares v = read_squares(a, u, step);
    barrier_wait(squares_empty(s, fetched & 1), (fetched >> 1 & 1) ^ 1);
    place_squares(s, v, fetched & 1);
}

/* The warp that loads them asks for the first unit's before it is told which one that is, and before weights stand in front of them. */
#if SQUARES_AHEAD
typedef struct squares_ahead { squares first; bool known; } squares_ahead;
MOII_FN squares_ahead ask_for_squares(const product_args &a, unsigned int block)
{
    squares_ahead ahead = { };
    unit u;
    ahead.known = first_is_early(a, block, &u);
    if (ahead.known) ahead.first = read_squares(a, u, 0);
    return ahead;
}
#endif

#if !DEALS_APART
/* All units' scales, where the warp does nothing else; placed: but for the first 64 stages'. */
MOII_FN void load_squares(const product_args &a, const shared &s, bool placed)
{
    hand h = 0;
    unsigned int fetched = 0;
    for (unit u; take_card(s, h, &u); return_card(s, &h))
        for (int step = 0; step < steps_of(u); step += SQUARES_STEPS, fetched++)
            if (!placed || fetched > 0) fetch_squares(a, s, u, step, fetched);
}
#endif
#endif

/* A multiplying warp no longer needs the last 64 of the `taken` so far. */
MOII_FN void leave_squares(const shared &s, unsigned int taken)
{
#if SCALING == SCALING_SQUARE
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(squares_empty(s, (taken - 1) & 1));
#endif
}

/* It waits for the next 64. */
MOII_FN void take_squares(const shared &s, unsigned int *taken)
{
#if SCALING == SCALING_SQUARE
    barrier_wait(squares_full(s, *taken & 1), *taken >> 1 & 1);
    ++*taken;
#endif
}

/* Those of stage `step`; all stages of a unit are come to, one after the other. */
MOII_FN void reach_squares(const shared &s, int step, unsigned int *taken)
{
    if (step % SQUARES_STEPS) return;
    if (step > 0) leave_squares(s, *taken);
    take_squares(s, taken);
}

/* Address of the first square's scale in a stage; apart: squares of the tile in front of the warpgroup's. */
MOII_FN unsigned int square_of(const shared &s, unsigned int taken, int step, int apart)
{
#if SCALING == SCALING_SQUARE
    return squares_at(s, (taken - 1) & 1) + 4 * (step % SQUARES_STEPS + (WIDE ? apart * SQUARES_STEPS : 0));
#else
    return 0;
#endif
}

#endif
