/* SPDX-License-Identifier: Apache-2.0 */
#include "format.h"

#include "dtype.h"

static const char *const recipe_names[] = { "f32", "bf16", "mx32", "blk128" };
static const char *const round_names[] = { "rceil", "floor", "ceil", "even" };
static const char *const layout_names[] = { "row", "tiled", "col" };

static const char *name_of(const char *const *names, unsigned int count, unsigned int i)
{
    return i < count ? names[i] : "?";
}
const char *moi_recipe_name(moi_recipe recipe) { return name_of(recipe_names, 4, (unsigned int)recipe); }
const char *moi_round_name(moi_round round) { return name_of(round_names, 4, (unsigned int)round); }
const char *moi_layout_name(moi_layout layout) { return name_of(layout_names, 3, (unsigned int)layout); }

int64_t moii_mul(int64_t a, int64_t b)
{
    int64_t out;
    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &out)) return -1;
    return out;
}

int64_t moi_row_bytes(moi_dtype dtype, int64_t cols)
{
    int64_t bits = moii_mul(cols, moii_dtype(dtype)->bits);
    return bits < 0 ? -1 : moii_ceil_div(bits, 8);
}

moi_status moii_format_check(const moi_format *f, const char *where)
{
    switch (f->recipe) {
    case MOI_RECIPE_F32:
        MOII_REQUIRE(f->elem == MOI_F32, MOI_ERR_ARG, "%s: recipe f32 needs elem f32, got %s", where, moi_dtype_name(f->elem));
        return MOI_OK;
    case MOI_RECIPE_BF16:
        MOII_REQUIRE(f->elem == MOI_BF16, MOI_ERR_ARG, "%s: recipe bf16 needs elem bf16, got %s", where, moi_dtype_name(f->elem));
        return MOI_OK;
    case MOI_RECIPE_MX32:
        MOII_REQUIRE(moii_dtype(f->elem)->is_mx_element, MOI_ERR_ARG,
                     "%s: recipe mx32 needs an MX element (e4m3, e5m2, e3m2, e2m3, e2m1, int8), got %s", where, moi_dtype_name(f->elem));
        MOII_REQUIRE(f->block == MOI_BLOCK_VECTOR, MOI_ERR_ARG, "%s: recipe mx32 has 1x32 blocks, not squares", where);
        break;
    case MOI_RECIPE_BLK128:
        MOII_REQUIRE(f->elem == MOI_E4M3 || f->elem == MOI_E5M2, MOI_ERR_ARG,
                     "%s: recipe blk128 needs elem e4m3 or e5m2, got %s", where, moi_dtype_name(f->elem));
        MOII_REQUIRE(f->block == MOI_BLOCK_VECTOR || f->block == MOI_BLOCK_SQUARE, MOI_ERR_ARG,
                     "%s: block must be VECTOR (0) or SQUARE (1), got %d", where, (int)f->block);
        MOII_REQUIRE(f->layout != MOI_LAYOUT_TILED, MOI_ERR_ARG, "%s: layout tiled holds e8m0 scales; recipe blk128 has f32", where);
        break;
    default: MOII_FAIL(MOI_ERR_ARG, "%s: recipe must be f32, bf16, mx32 or blk128 (0..3), got %d", where, (int)f->recipe);
    }
    MOII_REQUIRE((unsigned int)f->round <= MOI_ROUND_EVEN, MOI_ERR_ARG, "%s: round must be 0..3, got %d", where, (int)f->round);
    MOII_REQUIRE((unsigned int)f->layout <= MOI_LAYOUT_COL, MOI_ERR_ARG, "%s: layout must be 0..2, got %d", where, (int)f->layout);
    MOII_REQUIRE(!(f->flags & ~(uint32_t)(MOI_SCALE_POW2 | MOI_NONFINITE_LENIENT)), MOI_ERR_ARG, "%s: unknown flags 0x%x", where, f->flags);
    return MOI_OK;
}

moi_status moii_format_check_weight(const moi_format *f, const char *where)
{
    return f->recipe == MOI_RECIPE_BF16 && f->elem == MOI_F16 ? MOI_OK : moii_format_check(f, where);
}

moi_status moii_format_check_ragged(const moi_format *f, const char *where)
{
    if (moii_format_plain(f)) return MOI_OK;
    MOII_REQUIRE(moii_dtype(f->elem)->bits == 8, MOI_ERR_ARG, "%s: groups need elements of 8 bits, got %s", where, moi_dtype_name(f->elem));
    MOII_REQUIRE(f->block == MOI_BLOCK_VECTOR, MOI_ERR_ARG, "%s: groups need vector blocks", where);
    MOII_REQUIRE(f->layout != MOI_LAYOUT_TILED, MOI_ERR_ARG, "%s: groups need layout row or col, got tiled", where);
    return MOI_OK;
}

moi_status moii_mx_check(moi_mx_scales mx, moi_mx_scales most, const moi_format *f, bool wanted, const char *where)
{
    MOII_REQUIRE(mx == MOI_MX_FREE || mx == MOI_MX_PER_128 || mx == most, MOI_ERR_ARG, "%s_mx must be 0 (free)%s, got %d", where,
                 most == MOI_MX_PER_ROW ? ", 1 (per 128) or 2 (per row)" : " or 1 (per 128)", (int)mx);
    if (mx == MOI_MX_FREE) return MOI_OK;
    MOII_REQUIRE(wanted, MOI_ERR_ARG, "%s_mx must be 0 (free) where that result is not wanted, got %d", where, (int)mx);
    MOII_REQUIRE(f->recipe == MOI_RECIPE_MX32 && f->elem == MOI_E4M3 && !(f->flags & MOI_NONFINITE_LENIENT), MOI_ERR_ARG,
                 "%s_mx needs mx32 with e4m3 and not lenient, got %s with %s and flags %u", where, moi_recipe_name(f->recipe), moi_dtype_name(f->elem),
                 f->flags);
    return MOI_OK;
}

moi_dtype moii_format_scale(const moi_format *f)
{
    return f->recipe == MOI_RECIPE_MX32 ? MOI_E8M0 : f->recipe == MOI_RECIPE_BLK128 ? MOI_F32 : (moi_dtype)0;
}

int64_t moi_format_block(const moi_format *f)
{
    return f->recipe == MOI_RECIPE_MX32 ? MOII_MX_BLOCK : f->recipe == MOI_RECIPE_BLK128 ? MOII_BLK : 0;
}

int64_t moi_scale_blocks(const moi_format *f, int64_t cols, int64_t groups)
{
    int64_t block = moi_format_block(f);
    if (block == 0 || cols < 0) return 0;
    return groups > 0 ? cols / block + groups : moii_ceil_div(cols, block);
}

int64_t moi_ragged_cols(const moi_format *f, int64_t cols, int64_t groups)
{
    int64_t block = moi_format_block(f);
    return block == 0 || groups <= 0 ? cols : moii_mul(moi_scale_blocks(f, cols, groups), block);
}

int64_t moi_colwise_ld(const moi_format *f, int64_t rows, int64_t groups)
{
    enum { PIECE = 256, ALIKE = 4096, MANY = 65536 }; /* bytes; docs/notes/quantize-h200.md */
    int64_t piece = 1, ld = moi_ragged_cols(f, rows, groups);
    if (ld < 0 || ld > INT64_MAX / 64) return -1;
    ld = moii_round_up(ld, 16);
    if (moi_row_bytes(f->elem, ld) < MANY) return ld;
    while (moi_row_bytes(f->elem, piece) % PIECE) piece *= 2;
    ld = moii_round_up(ld, piece);
    return moi_row_bytes(f->elem, ld) % ALIKE ? ld : ld + piece;
}

int64_t moii_scale_rows(const moi_format *f, int64_t rows)
{
    return f->recipe == MOI_RECIPE_BLK128 && f->block == MOI_BLOCK_SQUARE ? moii_ceil_div(rows, MOII_BLK) : rows;
}

static int64_t col_stride(moi_dtype scale, int64_t rows) { return moii_round_up(rows, scale == MOI_E8M0 ? 16 : 4); }

int64_t moi_scale_index(moi_layout layout, moi_dtype scale, int64_t row, int64_t block, int64_t rows, int64_t blocks)
{
    switch (layout) {
    case MOI_LAYOUT_TILED:
        return ((row / 128) * moii_ceil_div(blocks, 4) + block / 4) * 512 + (row % 32) * 16 + (row / 32 % 4) * 4 + block % 4;
    case MOI_LAYOUT_COL: return block * col_stride(scale, rows) + row;
    default: return row * blocks + block;
    }
}

int64_t moi_scale_bytes(const moi_format *f, int64_t rows, int64_t cols, int64_t groups)
{
    int64_t blocks = moi_scale_blocks(f, cols, groups), r = moii_scale_rows(f, rows);
    moi_dtype scale = moii_format_scale(f);
    if (!scale) return 0;
    if (rows < 0 || cols < 0 || groups < 0 || rows > INT64_MAX - 512 || moii_dtype(f->elem)->bits == 0) return -1;
    if (f->layout == MOI_LAYOUT_TILED) return moii_mul(moii_mul(moii_ceil_div(r, 128), moii_ceil_div(blocks, 4)), 512);
    if (f->layout == MOI_LAYOUT_COL) r = col_stride(scale, r);
    return moii_mul(moii_mul(r, blocks), scale == MOI_E8M0 ? 1 : 4);
}

bool moii_aligned(const void *p, int64_t to) { return ((uintptr_t)p & (uintptr_t)(to - 1)) == 0; }

/* data and scales aligned to at least these */
static moi_status check_operand(const char *where, const moi_format *f, const void *data, const void *scale, int64_t ld, int64_t rows,
                                int64_t cols, int64_t data_align, int64_t scale_align)
{
    int64_t bits = moii_dtype(f->elem)->bits;
    if (rows == 0 || cols == 0) return MOI_OK;
    MOII_REQUIRE(data, MOI_ERR_ARG, "%s: data is NULL", where);
    MOII_REQUIRE(moii_aligned(data, data_align), MOI_ERR_ALIGN, "%s: data must be aligned to %lld bytes, got %p", where, (long long)data_align, data);
    MOII_REQUIRE(ld == 0 || ld >= cols, MOI_ERR_SHAPE, "%s: ld must be 0 or >= %lld, got %lld", where, (long long)cols, (long long)ld);
    MOII_REQUIRE(ld * bits % 8 == 0, MOI_ERR_ALIGN, "%s: ld must fill whole bytes, got %lld elements of %lld bits", where,
                 (long long)ld, (long long)bits);
    if (moii_format_plain(f)) return MOI_OK;
    MOII_REQUIRE(scale, MOI_ERR_ARG, "%s: scale is NULL; recipe %s has scales", where, moi_recipe_name(f->recipe));
    MOII_REQUIRE(moii_aligned(scale, scale_align), MOI_ERR_ALIGN, "%s: scale must be aligned to %lld bytes, got %p", where, (long long)scale_align, scale);
    return MOI_OK;
}

moi_status moii_operand_check(const char *where, const moi_format *f, const void *data, const void *scale, int64_t ld,
                              int64_t rows, int64_t cols)
{
    return check_operand(where, f, data, scale, ld, rows, cols, MOII_ALIGN, MOII_ALIGN);
}

moi_status moii_weight_check(const char *where, const moi_format *f, const void *data, const void *scale, int64_t ld,
                             int64_t rows, int64_t cols)
{
    int64_t data_align = moii_max(moii_dtype(f->elem)->bits / 8, 1), scale_align = moii_max(moii_dtype(moii_format_scale(f))->bits / 8, 1);
    return check_operand(where, f, data, scale, ld, rows, cols, data_align, scale_align);
}
