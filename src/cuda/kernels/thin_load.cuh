/* SPDX-License-Identifier: Apache-2.0
 * thin_load.cuh: the loading warps of thin_sm90, mixed_sm90 and halves_sm90: tiles, and where scales lie.
 *
 *   before    take_unit, return_unit  a block's units in turn (thin_apart.cuh, thin_cards.cuh)
 *   defines   PART_ROWS of A that come at a time
 *             ROW_BYTES of a row of B in a stage
 *             A_BOXES   boxes of PRODUCT_STEP_BYTES across, that hold a row's part of A in a stage
 *             SWIGLU    a tile has as many rows of up as of gate */
#ifndef MOII_THIN_LOAD_CUH
#define MOII_THIN_LOAD_CUH

#define PART_BYTES (PART_ROWS * PRODUCT_STEP_BYTES)
#define LINES_BOX (SWIGLU ? 64 : BM) /* rows of B that come at a time */

/* Of a row of B's in the tile.  SWIGLU: 64 of gate, 64 of up, in turn. */
MOII_FN int line_of(const product_args &a, const unit &u, int row)
{
    return SWIGLU ? u.line + row / 128 * 64 + row % 64 + row / 64 % 2 * (a.n / 2) : u.line + row;
}

MOII_FN void load_tiles(const product_args &a, const group_list &groups, unsigned int base)
{
    ring r = { 0, 0 };
    unit u;
#pragma unroll 1
    for (int n = 0; take_unit(a, groups, base, n, &u); return_unit(base, n), n++) {
        const int parts = (u.rows + PART_ROWS - 1) / PART_ROWS, group = GROUPS == PRODUCT_MASKED ? u.group : 0;
#pragma unroll 1
        for (int k = 0; k < a.k; k += STEP, ring_step(r)) {
            const unsigned int to = base + STAGE_BYTES * r.stage, full = full_barrier(base, r.stage);
            barrier_wait(empty_barrier(base, r.stage), r.parity ^ 1);
            if (elected()) {
                barrier_expect(full, B_BYTES + A_BOXES * parts * PART_BYTES);
#pragma unroll
                for (int j = 0; j < BM; j += LINES_BOX) box_load(to + j * ROW_BYTES, &a.b_map, full, k * ROW_BYTES / STEP, line_of(a, u, j), u.group);
#pragma unroll
                for (int j = 0; j < BN / PART_ROWS; j++)
                    if (j < parts)
#pragma unroll
                        for (int h = 0; h < A_BOXES; h++)
                            box_load(to + B_BYTES + (h * BN + j * PART_ROWS) * PRODUCT_STEP_BYTES, &a.a_map, full, k + h * (STEP / A_BOXES),
                                     u.row + j * PART_ROWS, group);
            }
            __syncwarp();
        }
    }
}

/* Where a row's first word is in its group's scales; behind the last row, a neighbour's: what it would scale is not stored. */
MOII_FN unsigned int word_of(const product_scales &t, int row) { return scale_index(t, (unsigned int)min(row, t.rows - 1), 0); }
MOII_FN const unsigned char *words_of(const product_scales &t, int group, int row)
{
    return (const unsigned char *)t.p + group * t.group_bytes + word_of(t, row);
}
MOII_FN int words_apart(const product_scales &t) { return t.across ? 512 : 4; }

#endif
