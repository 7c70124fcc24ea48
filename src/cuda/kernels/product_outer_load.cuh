/* SPDX-License-Identifier: Apache-2.0
 * product_outer_load.cuh: scales as the tensor cores take them, for product_load.cuh (OUTER). */
#ifndef MOII_PRODUCT_OUTER_LOAD_CUH
#define MOII_PRODUCT_OUTER_LOAD_CUH

/* Four scales as they lie, side by side. */
#if SCALE_E8M0
typedef unsigned int four_stored;
#else
typedef float4 four_stored;
#endif

/* The first of a lane's four rows, or columns; behind the end, of the last four. */
MOII_FN int first_of_four(const scale_walk &w) { return min(w.row + (int)(threadIdx.x % 32 * 4), (w.rows - 1) & ~3); }

MOII_FN four_stored fetch_four(const product_scales &t, const scale_walk &w, int first, int block)
{
    const unsigned int at = (unsigned int)block * t.block_stride + (unsigned int)first;
    return __ldg((const four_stored *)(w.p + (unsigned long long)at * (SCALE_E8M0 ? 1 : 4)));
}

MOII_FN void four_floats(four_stored v, float to[4])
{
#if SCALE_E8M0
    const float4 f = four_scales(v);
#else
    const float4 f = v;
#endif
    to[0] = f.x, to[1] = f.y, to[2] = f.z, to[3] = f.w;
}

/* there: of the four, at least one; in place of the others, which scale nothing that is stored, stands the first one. */
MOII_FN void four_there(four_stored *v, int there)
{
    if (there >= 4) return;
#if SCALE_E8M0
    const unsigned int keep = (1u << 8 * there) - 1;
    *v = (*v & keep) | ((*v & 255) * 0x01010101u & ~keep);
#else
    v->w = v->x;
    if (there < 3) v->z = v->x;
    if (there < 2) v->y = v->x;
#endif
}

/* Of a step of a unit. */
typedef struct outer_fours { four_stored rows, cols; } outer_fours;

MOII_FN outer_fours fetch_fours(const product_args &a, const unit &u, const scale_walk &wa, const scale_walk &wb, int first_row, int first_col, int step)
{
    const int block = u.block + step * BLOCK_STEP;
    return { fetch_four(a.a_scales, wa, first_row, block), fetch_four(a.b_scales, wb, first_col, block) };
}

/* Where a lane has four rows of A and four columns of B, in the first stage. */
typedef struct outer_place { unsigned int rows, cols; } outer_place;

MOII_FN outer_place outer_place_of(const shared &s)
{
    const int lane = (int)threadIdx.x % 32;
    const unsigned int at = s.base + SCALES_AT; /* columns lie as copies lay rows of B */
    return { at + outer_at(4 * lane), at + 4 * A_STAGED + outer_at(WOVEN ? lane / 4 * 16 + lane % 4 * 2 : 4 * lane) };
}

/* Of a stage, whose place becomes free. */
MOII_FN void outer_write(const shared &s, const outer_place &to, const ring &r, const uint2 row[4], const uint2 col[4], float far)
{
    const unsigned int stage = 4 * SCALE_FLOATS * r.stage;
    barrier_wait(empty_barrier(s, r.stage), r.parity ^ 1);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        shared_write_two(to.rows + stage + i * OUTER_LINE, row[i]);
        shared_write_two(to.cols + stage + (WOVEN ? i / 2 * OUTER_EIGHT + i % 2 * OUTER_LINE : i * OUTER_LINE), col[i]);
    }
    if (threadIdx.x % 32 == 0) shared_write(s.base + SCALES_AT + stage + OUTER_FAR, far);
    shared_to_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(full_barrier(s, r.stage));
}

/* The warps have stages in turn: scales of one are on their way while the others make theirs.  A loading warp's issue slots are multiplying
 * warps', too: what is not far takes as few instructions as can be. */
MOII_FN void load_unit_scales(const product_args &a, const shared &s, const unit &u, const scale_walk &wa, const scale_walk &wb, ring *r, unsigned int *)
{
    const int warp = uniform((int)threadIdx.x / 32) - 1, steps = steps_of(u);
    const int first_row = first_of_four(wa), first_col = first_of_four(wb), rows_there = wa.rows - first_row, cols_there = wb.rows - first_col;
    const bool all = __all_sync(~0u, rows_there >= 4 && cols_there >= 4);
    const outer_place to = outer_place_of(s);
    ring own = *r; /* where the warp's next stage lies; r: the unit's first */
    outer_fours v;
    if (warp < steps) v = fetch_fours(a, u, wa, wb, first_row, first_col, warp);
    own.stage += (unsigned int)warp;
#pragma unroll 1
    for (int step = warp; step < steps; step += LOADERS / 32, own.stage += LOADERS / 32) {
        if (own.stage >= STAGES) own.stage -= STAGES, own.parity ^= 1;
        float x[4], y[4];
        uint2 row[4], col[4];
        if (!all) four_there(&v.rows, rows_there), four_there(&v.cols, cols_there);
        four_floats(v.rows, x), four_floats(v.cols, y);
        if (outer_near(x, y)) {
#pragma unroll
            for (int i = 0; i < 4; i++) row[i] = outer_row(x[i]), col[i] = outer_column(y[i]);
            outer_write(s, to, own, row, col, 0.0f);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) row[i] = outer_far(x[i]), col[i] = outer_far(y[i]);
            outer_write(s, to, own, row, col, 1.0f);
        }
        if (step + LOADERS / 32 < steps) v = fetch_fours(a, u, wa, wb, first_row, first_col, step + LOADERS / 32);
    }
    ring_skip(r, (unsigned int)steps);
}

#endif
