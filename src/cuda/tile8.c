/* SPDX-License-Identifier: Apache-2.0 */
#include "tile8.h"

#include "dtype.h"
#include "format.h"

int moii_tile8_kind(const moi_format *f)
{
    bool eight = f->elem == MOI_E4M3 || f->elem == MOI_E5M2;
    if (!eight || f->flags & MOI_NONFINITE_LENIENT) return -1;
    if (f->recipe == MOI_RECIPE_MX32) return TILE_MX32;
    if (f->recipe != MOI_RECIPE_BLK128) return -1;
    return f->block == MOI_BLOCK_SQUARE ? TILE_SQUARE : TILE_BLK128;
}

tile8_side moii_tile8_side(const moi_format *f, const moi_result *out, int64_t rows, int64_t cols, int64_t groups)
{
    tile8_side s = { .data = out->data, .scale = out->scale, .stride = moii_ld_bytes(f, out->ld, moi_ragged_cols(f, cols, groups)),
                     .layout = (int)f->layout, .minus_zero = 0x80000000u,
                     .rule = moii_block_rule_of(f) };
    s.carry = moii_e8m0_carry(s.rule.element, s.rule.rounding);
    s.carry2 = (s.carry >> 16) * 0x10001u, s.emax2 = (unsigned int)s.rule.element.emax * 0x10001u;
    s.data_bytes = rows * s.stride;
    s.scale_rows = moii_scale_rows(f, rows);
    s.blocks = moi_scale_blocks(f, cols, groups);
    s.scale_bytes = moi_scale_bytes(f, rows, cols, groups);
    return s;
}

int64_t moii_tile8_strips(int64_t rows, int64_t groups, int64_t units)
{
    return groups ? rows / (units * MOII_TILE) + groups + 1 : moii_ceil_div(rows, units * MOII_TILE);
}

int64_t moii_tile8_depth(int64_t strips, int64_t stripes, int64_t at_once)
{
    int64_t most = moii_min(strips, 4 * at_once / moii_max(stripes, 1) + 4), best = strips;
    double least = 0;
    for (int64_t parts = 1; parts <= most; parts++) { /* time: rounds of blocks that begin and end together */
        int64_t depth = moii_ceil_div(strips, parts), rounds = moii_ceil_div(stripes * moii_ceil_div(strips, depth), at_once);
        double time = (double)rounds * ((double)depth + 0.5);
        if (parts == 1 || time < least) least = time, best = depth;
    }
    return moii_max(best, 1);
}

void moii_set_divisor(int64_t n, unsigned int *magic, unsigned int *shift)
{
    unsigned int s = 0;
    while ((int64_t)1 << s < n) s++;
    *magic = *shift = 0;
    if (s == 0) return;
    *magic = (unsigned int)(((1ull << (31 + s)) + (uint64_t)n - 1) / (uint64_t)n);
    *shift = s - 1;
}
