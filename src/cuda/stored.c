/* SPDX-License-Identifier: Apache-2.0 */
#include "stored.h"

stored_matrix moii_stored_of(const moi_format *f, const moi_operand *in, int64_t rows, int64_t cols)
{
    stored_matrix m = { .data = in->data, .stride = moii_ld_bytes(f, in->ld, cols), .elem = (int)f->elem, .block = 1, .height = 1 };
    if (moii_format_plain(f)) return m;
    m.scale = in->scale;
    m.scale_rows = moii_scale_rows(f, rows);
    m.blocks = moi_scale_blocks(f, cols, 0);
    m.block = (int)moi_format_block(f);
    m.height = f->recipe == MOI_RECIPE_BLK128 && f->block == MOI_BLOCK_SQUARE ? MOII_BLK : 1;
    m.layout = (int)f->layout;
    m.wide = moii_format_scale(f) == MOI_F32;
    return m;
}
