/* SPDX-License-Identifier: Apache-2.0 */
#include "quantize_tile.h"

#include <string.h>

bool moii_sink_takes_odd(const moi_format *f)
{
    return (f->recipe == MOI_RECIPE_MX32 && f->elem != MOI_INT8) || (f->recipe == MOI_RECIPE_BLK128 && f->flags & MOI_SCALE_POW2);
}

moii_sink moii_sink_of(const moi_format *f, const moi_result *out, int64_t rows, int64_t cols, int64_t groups)
{
    const moii_dtype_info *info = moii_dtype(f->elem);
    moii_sink s = { .format = f, .codec = moii_codec_of(f->elem), .rule = info->rule, .rows = rows, .cols = cols, .data = out->data,
                    .scale = out->scale, .stride = moii_ld_bytes(f, out->ld, moi_ragged_cols(f, cols, groups)), .width = moi_format_block(f),
                    .bits = info->bits };
    s.codec.pow2 = moii_sink_takes_odd(f);
    s.tiny = ((unsigned int)(s.codec.bias + s.codec.mantissa_bits + 1 + info->rule.emax) << 23) - 1;
    s.scales = moii_scales_of(f, out->scale, rows, cols, groups);
    bool by_column = f->layout == MOI_LAYOUT_COL;
    s.atoms = moii_ceil_div(s.scales.blocks, 4);
    s.scale_row = by_column ? 1 : s.scales.blocks;
    s.scale_block = by_column ? moii_round_up(s.scales.rows, s.scales.dtype == MOI_E8M0 ? 16 : 4) : 1;
    return s;
}

moii_sink moii_sink_at(const moii_sink *sink, int64_t i)
{
    moii_sink s = *sink;
    if (s.data) s.data += i * s.rows * s.stride;
    if (s.scale) s.scale = (char *)s.scale + i * moi_scale_bytes(s.format, s.rows, s.cols, 0);
    return s;
}

/* row and block count scales */
static inline void put_scale(const moii_sink *s, int64_t row, int64_t block, unsigned int bits)
{
    int64_t i = row * s->scale_row + block * s->scale_block;
    if (s->format->layout == MOI_LAYOUT_TILED) /* moi_scale_index, inlined */
        i = (row / 128 * s->atoms + block / 4) * 512 + (row % 32) * 16 + (row / 32 % 4) * 4 + block % 4;
    if (s->scales.dtype == MOI_E8M0) ((unsigned char *)s->scale)[i] = (unsigned char)bits;
    else ((float *)s->scale)[i] = moii_float_of(bits);
}

static float tile_value(const moii_tile *t, int64_t r, int64_t c)
{
    return t->exact.data ? moii_view_get(&t->exact, r, c) : moi_decode(t->x.in, t->x.v, r * t->x.ld + c);
}

/* Whether there are blocks that the loops cannot make: any_block does. */
static bool need_care(const moii_tile *t, const moii_sink *s, const unsigned int *amax, int64_t n)
{
    return t->loops->outside(amax, n, s->codec.pow2 && t->x.in == MOI_BF16 ? s->tiny : 0);
}

/* The block of rows r.. x columns c.. with everything quantize_block.h says about NaN and Inf. */
static moii_block any_block(const moii_tile *t, const moii_sink *s, int64_t r, int64_t rows, int64_t c, int64_t cols)
{
    unsigned int amax = 0;
    for (int64_t i = r; i < r + rows; i++)
        for (int64_t j = c; j < c + cols; j++) amax = moii_amax(s->format, amax, tile_value(t, i, j));
    return moii_block_of(s->format, amax);
}

/* n scales, and their inverses; those of blocks that need care mean nothing. */
static void find_scales(const moii_tile *t, const moii_sink *s, const unsigned int *amax, int64_t n, moii_scale_run *scales, float *inverse)
{
    if (s->width == MOII_MX_BLOCK) {
        t->loops->scale(s->rule, (int)s->format->round, amax, n, scales->e8m0, inverse);
        return;
    }
    if (!(s->format->flags & MOI_SCALE_POW2)) {
        t->loops->scale_f32((float)moii_dtype(s->format->elem)->max, amax, n, scales->f32, inverse);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        moii_block block = moii_block_of(s->format, amax[i]);
        scales->f32[i] = moii_float_of(block.scale), inverse[i] = block.inverse;
    }
}

static void set_scale(const moii_sink *s, moii_scale_run *scales, int64_t i, unsigned int bits)
{
    if (s->width == MOII_MX_BLOCK) scales->e8m0[i] = (unsigned char)bits;
    else scales->f32[i] = moii_float_of(bits);
}

/* n scales from `first` of the run go to row `row`, blocks from `block`. */
static void store_scales(const moii_sink *s, const moii_scale_run *scales, int64_t first, int64_t n, int64_t row, int64_t block)
{
    bool mx = s->width == MOII_MX_BLOCK;
    if (s->format->layout == MOI_LAYOUT_ROW) {
        int64_t i = row * s->scale_row + block;
        if (mx && n == MOII_TILE / MOII_MX_BLOCK) memcpy((unsigned char *)s->scale + i, scales->e8m0 + first, MOII_TILE / MOII_MX_BLOCK);
        else if (mx) memcpy((unsigned char *)s->scale + i, scales->e8m0 + first, (size_t)n);
        else memcpy((float *)s->scale + i, scales->f32 + first, (size_t)n * sizeof(float));
        return;
    }
    for (int64_t b = 0; b < n; b++)
        put_scale(s, row, block + b, mx ? scales->e8m0[first + b] : moii_bits_of(scales->f32[first + b]));
}

/* Codes of 4 or 6 bits, from one per byte; the spare bits of the last byte become 0. */
static void pack(const unsigned char *codes, int64_t n, int bits, unsigned char *out)
{
    int64_t i = 0;
    if (bits == 4)
        for (; i + 2 <= n; i += 2) out[i / 2] = (unsigned char)(codes[i] | codes[i + 1] << 4);
    else
        for (; i + 4 <= n; i += 4, out += 3) {
            unsigned int v = codes[i] | (unsigned int)codes[i + 1] << 6 | (unsigned int)codes[i + 2] << 12 | (unsigned int)codes[i + 3] << 18;
            out[0] = (unsigned char)v, out[1] = (unsigned char)(v >> 8), out[2] = (unsigned char)(v >> 16);
        }
    if (i == n) return;
    int64_t rest = n - i;
    if (bits == 4) out += i / 2;
    memset(out, 0, (size_t)moii_ceil_div(rest * bits, 8));
    for (int64_t k = 0; k < rest; k++) moii_code_store(bits, out, k, codes[i + k]);
}

static char *place(const moii_sink *s, int64_t row, int64_t col) { return s->data + row * s->stride + col * s->bits / 8; }

/* ---- along rows ---- */

/* Blocks that need care, again. */
static void redo_rows(const moii_tile *t, const moii_sink *s, const unsigned int *amax, moii_scale_run *scales, unsigned char *codes, int64_t ld)
{
    for (int64_t r = 0, i = 0; r < t->x.rows; r++)
        for (int64_t c = 0; c < t->x.cols; c += s->width, i++) {
            if (!need_care(t, s, &amax[i], 1)) continue;
            int64_t n = moii_min(s->width, t->x.cols - c);
            moii_block block = any_block(t, s, r, 1, c, n);
            set_scale(s, scales, i, block.scale);
            for (int64_t j = c; j < c + n; j++) codes[r * ld + j] = (unsigned char)moii_block_encode(s->format, block, tile_value(t, r, j));
        }
}

static void vector_rows(const moii_tile *t, const moii_sink *s)
{
    unsigned int amax[MOII_TILE_BLOCKS];
    float inverse[MOII_TILE_BLOCKS];
    moii_scale_run scales;
    unsigned char bytes[MOII_TILE_VALUES];
    bool whole = s->bits == 8;
    unsigned char *codes = whole ? (unsigned char *)place(s, t->r0, t->c0) : bytes;
    int64_t ld = whole ? s->stride : t->x.cols, blocks = moii_ceil_div(t->x.cols, s->width), n = t->x.rows * blocks;
    t->loops->amax(&t->x, s->width, amax);
    bool care = need_care(t, s, amax, n);
    find_scales(t, s, amax, n, &scales, inverse);
    t->loops->encode(&s->codec, &t->x, s->width, inverse, codes, ld, s->stream && whole && !care);
    if (care) redo_rows(t, s, amax, &scales, codes, ld);
    for (int64_t r = 0; r < t->x.rows; r++) {
        store_scales(s, &scales, r * blocks, blocks, t->r0 + r, t->c0 / s->width);
        if (!whole) pack(bytes + r * ld, t->x.cols, s->bits, (unsigned char *)place(s, t->r0 + r, t->c0));
    }
}

/* ---- down columns: codes of the tile, one per byte, then turned ---- */

/* to: of a stored row, where the tile's first codes go. */
static void store_turned(const moii_tile *t, const moii_sink *s, int64_t to, const unsigned char *turned)
{
    int64_t rows = t->x.rows, cols = t->x.cols;
    if (s->bits == 8) t->loops->copy(turned, MOII_TILE, cols, rows, (unsigned char *)place(s, t->c0, to), s->stride, s->stream);
    else
        for (int64_t c = 0; c < cols; c++) pack(turned + c * MOII_TILE, rows, s->bits, (unsigned char *)place(s, t->c0 + c, to));
}

static void redo_cols(const moii_tile *t, const moii_sink *s, int64_t r, int64_t rows, const unsigned int *amax, moii_scale_run *scales,
                      unsigned char *codes)
{
    for (int64_t c = 0; c < t->x.cols; c++) {
        if (!need_care(t, s, &amax[c], 1)) continue;
        moii_block b = any_block(t, s, r, rows, c, 1);
        set_scale(s, scales, c, b.scale);
        for (int64_t i = r; i < r + rows; i++) codes[(i - r) * MOII_TILE + c] = (unsigned char)moii_block_encode(s->format, b, tile_value(t, i, c));
    }
}

/* A column's scales lie together in layouts ROW and TILED, a block's in layout COL. */
static void store_col_scales(const moii_tile *t, const moii_sink *s, const moii_scale_run *scales, int64_t first, int64_t blocks)
{
    bool mx = s->width == MOII_MX_BLOCK;
    for (int64_t b = 0; b < blocks && s->format->layout == MOI_LAYOUT_COL; b++) {
        int64_t i = t->c0 + (first + b) * s->scale_block;
        if (mx) memcpy((unsigned char *)s->scale + i, scales[b].e8m0, (size_t)t->x.cols);
        else memcpy((float *)s->scale + i, scales[b].f32, (size_t)t->x.cols * sizeof(float));
    }
    unsigned char *row = (unsigned char *)s->scale + t->c0 * s->scale_row + first;
    for (int64_t c = 0; c < t->x.cols && mx && s->format->layout == MOI_LAYOUT_ROW; c++, row += s->scale_row)
        for (int64_t b = 0; b < blocks; b++) row[b] = scales[b].e8m0[c];
    if (s->format->layout == MOI_LAYOUT_COL || (mx && s->format->layout == MOI_LAYOUT_ROW)) return;
    for (int64_t c = 0; c < t->x.cols; c++)
        for (int64_t b = 0; b < blocks; b++) put_scale(s, t->c0 + c, first + b, mx ? scales[b].e8m0[c] : moii_bits_of(scales[b].f32[c]));
}

void moii_turned_add(const moii_tile *t, const moii_sink *s, int64_t row, moii_turned *turned)
{
    unsigned int amax[MOII_TILE];
    float inverse[MOII_TILE];
    unsigned char codes[MOII_TILE_VALUES];
    for (int64_t r = 0; r < t->x.rows; r += s->width) {
        moii_scale_run *scales = &turned->scales[(row + r) / s->width];
        moii_span x = t->x;
        x.v = (const char *)x.v + moi_row_bytes(x.in, r * x.ld);
        x.rows = moii_min(s->width, x.rows - r);
        t->loops->amax_cols(&x, amax);
        find_scales(t, s, amax, x.cols, scales, inverse);
        t->loops->encode_cols(&s->codec, &x, inverse, codes, MOII_TILE);
        if (need_care(t, s, amax, x.cols)) redo_cols(t, s, r, x.rows, amax, scales, codes);
        t->loops->transpose(codes, MOII_TILE, x.rows, x.cols, turned->codes + row + r, MOII_TILE);
    }
}

void moii_turned_store(const moii_tile *t, const moii_sink *s, int64_t block, const moii_turned *turned)
{
    store_col_scales(t, s, turned->scales, block, moii_ceil_div(t->x.rows, s->width));
    store_turned(t, s, block * s->width, turned->codes);
}

static void vector_cols(const moii_tile *t, const moii_sink *s, int64_t block)
{
    moii_turned turned;
    moii_turned_add(t, s, 0, &turned);
    moii_turned_store(t, s, block, &turned);
}

/* ---- 128x128: one block ---- */

static void square(const moii_tile *t, const moii_sink *s, bool turned)
{
    unsigned int amax[MOII_TILE], top = 0;
    float inverse[MOII_TILE];
    unsigned char bytes[MOII_TILE_VALUES];
    unsigned char *codes = turned ? bytes : (unsigned char *)place(s, t->r0, t->c0);
    int64_t ld = turned ? MOII_TILE : s->stride;
    t->loops->amax(&t->x, MOII_TILE, amax);
    for (int64_t r = 0; r < t->x.rows; r++) top = amax[r] > top ? amax[r] : top;
    bool care = need_care(t, s, &top, 1);
    moii_block block = care ? any_block(t, s, 0, t->x.rows, 0, t->x.cols) : moii_block_of(s->format, top);
    put_scale(s, (turned ? t->c0 : t->r0) / MOII_BLK, (turned ? t->r0 : t->c0) / MOII_BLK, block.scale);
    for (int64_t r = 0; r < t->x.rows; r++) inverse[r] = block.inverse;
    if (!care) t->loops->encode(&s->codec, &t->x, MOII_TILE, inverse, codes, ld, s->stream && !turned);
    else
        for (int64_t r = 0; r < t->x.rows; r++)
            for (int64_t c = 0; c < t->x.cols; c++) codes[r * ld + c] = (unsigned char)moii_block_encode(s->format, block, tile_value(t, r, c));
    if (!turned) return;
    unsigned char across[MOII_TILE_VALUES];
    t->loops->transpose(codes, MOII_TILE, t->x.rows, t->x.cols, across, MOII_TILE);
    store_turned(t, s, t->r0, across);
}

/* ---- plain results ---- */

static void store_plain(const moii_tile *t, const moii_sink *s, const float *v, int64_t n, char *out)
{
    if (s->bits == 32) memcpy(out, v, (size_t)n * sizeof *v);
    else t->loops->narrow(v, n, (uint16_t *)(void *)out);
}

static void plain_rows(const moii_tile *t, const moii_sink *s)
{
    enum { PIECE = 512 };
    float row[PIECE];
    for (int64_t r = 0; r < t->x.rows; r++)
        for (int64_t c = 0; c < t->x.cols; c += PIECE) {
            int64_t n = moii_min(PIECE, t->x.cols - c);
            t->loops->widen(t->x.in, (const char *)t->x.v + moi_row_bytes(t->x.in, r * t->x.ld + c), n, row);
            store_plain(t, s, row, n, place(s, t->r0 + r, t->c0 + c));
        }
}

static void plain_cols(const moii_tile *t, const moii_sink *s)
{
    float turned[16][MOII_TILE], row[16];
    for (int64_t c0 = 0; c0 < t->x.cols; c0 += 16) {
        int64_t n = moii_min(16, t->x.cols - c0);
        for (int64_t r = 0; r < t->x.rows; r++) {
            t->loops->widen(t->x.in, (const char *)t->x.v + moi_row_bytes(t->x.in, r * t->x.ld + c0), n, row);
            for (int64_t c = 0; c < n; c++) turned[c][r] = row[c];
        }
        for (int64_t c = 0; c < n; c++) store_plain(t, s, turned[c], t->x.rows, place(s, t->c0 + c0 + c, t->r0));
    }
}

void moii_tile_rowwise(const moii_tile *t, const moii_sink *s)
{
    if (!s->width) plain_rows(t, s);
    else if (s->format->block == MOI_BLOCK_SQUARE) square(t, s, false);
    else vector_rows(t, s);
}

void moii_tile_colwise(const moii_tile *t, const moii_sink *s, int64_t block)
{
    if (!s->width) plain_cols(t, s);
    else if (s->format->block == MOI_BLOCK_SQUARE) square(t, s, true);
    else vector_cols(t, s, block);
}

void moii_tile_clear(const moii_tile *t, const moii_sink *s)
{
    for (int64_t c = 0; c < t->x.cols; c++) memset(place(s, t->c0 + c, t->r0), 0, (size_t)(t->x.rows * s->bits / 8));
}
