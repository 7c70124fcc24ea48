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

/* there: of the four; in place of the others, which scale nothing that is stored, stands the first one. */
MOII_FN void four_floats(four_stored v, int there, float to[4])
{
#if SCALE_E8M0
    const float4 f = four_scales(v);
#else
    const float4 f = v;
#endif
    to[0] = f.x, to[1] = there > 1 ? f.y : f.x, to[2] = there > 2 ? f.z : f.x, to[3] = there > 3 ? f.w : f.x;
}

/* The warps have stages in turn: scales of one are on their way while the others make theirs.  A lane has four rows of A and four columns of B. */
MOII_FN void load_unit_scales(const product_args &a, const shared &s, const unit &u, const scale_walk &wa, const scale_walk &wb, ring *r, unsigned int *)
{
    const int lane = (int)threadIdx.x % 32, warp = uniform((int)threadIdx.x / 32) - 1, steps = steps_of(u);
    const unsigned int to_rows = s.base + SCALES_AT + outer_at(4 * lane); /* columns lie as copies lay rows of B */
    const unsigned int to_cols = s.base + SCALES_AT + 4 * A_STAGED + outer_at(WOVEN ? lane / 4 * 16 + lane % 4 * 2 : 4 * lane);
    const int first_row = first_of_four(wa), first_col = first_of_four(wb);
    four_stored rows, cols;
    const auto fetch = [&](int step) {
        const int block = u.block + step * BLOCK_STEP;
        rows = fetch_four(a.a_scales, wa, first_row, block), cols = fetch_four(a.b_scales, wb, first_col, block);
    };
    if (warp < steps) fetch(warp);
#pragma unroll 1
    for (int step = 0, turn = 0; step < steps; step++, ring_step(r), turn = turn + 1 == LOADERS / 32 ? 0 : turn + 1) {
        if (turn != warp) continue;
        const unsigned int stage = 4 * SCALE_FLOATS * r->stage;
        float x[4], y[4];
        uint2 row[4], col[4];
        four_floats(rows, wa.rows - first_row, x), four_floats(cols, wb.rows - first_col, y);
        const bool far = !outer_near(x, y);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            row[i] = far ? outer_far(x[i]) : outer_row(x[i]);
            col[i] = far ? outer_far(y[i]) : outer_column(y[i]);
        }
        barrier_wait(empty_barrier(s, r->stage), r->parity ^ 1);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            shared_write_two(to_rows + stage + i * OUTER_LINE, row[i]);
            shared_write_two(to_cols + stage + (WOVEN ? i / 2 * OUTER_EIGHT + i % 2 * OUTER_LINE : i * OUTER_LINE), col[i]);
        }
        if (lane == 0) shared_write(s.base + SCALES_AT + stage + OUTER_FAR, far ? 1.0f : 0.0f);
        shared_to_async();
        __syncwarp();
        if (lane == 0) barrier_arrive(full_barrier(s, r->stage));
        if (step + LOADERS / 32 < steps) fetch(step + LOADERS / 32);
    }
}

#endif
