/* SPDX-License-Identifier: Apache-2.0
 * mixed_load.cuh: the warp of mixed_sm90 that sends for tiles. */
#ifndef MOII_MIXED_LOAD_CUH
#define MOII_MIXED_LOAD_CUH

MOII_FN void load_tiles(const product_args &a, const group_list &groups, unsigned int base)
{
    ring r = { 0, 0 };
    const int all = units_in_all(groups);
#pragma unroll 1
    for (int i = (int)blockIdx.x; i < all; i += (int)gridDim.x) {
        const unit u = find_unit(a, groups, i);
        const int parts = (u.rows + THIN_ROWS - 1) / THIN_ROWS, group = GROUPS == PRODUCT_MASKED ? u.group : 0;
#pragma unroll 1
        for (int k = 0; k < a.k; k += STEP, ring_step(r)) {
            const unsigned int to = base + STAGE_BYTES * r.stage, full = full_barrier(base, r.stage);
            barrier_wait(empty_barrier(base, r.stage), r.parity ^ 1);
            if (elected()) {
                barrier_expect(full, B_BYTES + 2 * parts * PART_BYTES);
                box_load(to, &a.b_map, full, k, u.line, u.group);
#pragma unroll
                for (int j = 0; j < BN / THIN_ROWS; j++)
                    if (j < parts) {
                        const unsigned int at = to + B_BYTES + j * PART_BYTES;
                        box_load(at, &a.a_map, full, k, u.row + j * THIN_ROWS, group);
                        box_load(at + HALF_BYTES, &a.a_map, full, k + STEP / 2, u.row + j * THIN_ROWS, group);
                    }
            }
            __syncwarp();
        }
    }
}

#endif
