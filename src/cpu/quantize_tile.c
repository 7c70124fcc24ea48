/* SPDX-License-Identifier: Apache-2.0 */
#include "quantize_tile.h"

#include <string.h>

moii_sink moii_sink_of(const moi_format *f, const moi_result *out, int64_t rows, int64_t cols, int64_t groups)
{
    const moii_dtype_info *info = moii_dtype(f->elem);
    moii_sink s = { .format = f, .codec = moii_codec_of(f->elem), .rule = info->rule, .rows = rows, .cols = cols, .data = out->data,
                    .scale = out->scale, .stride = moii_ld_bytes(f, out->ld, cols), .width = moi_format_block(f), .bits = info->bits };
    s.scales = moii_scales_of(f, out->scale, rows, cols, groups);
    bool by_column = f->layout == MOI_LAYOUT_COL;
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
    if (s->format->layout == MOI_LAYOUT_TILED) {
        moii_scale_put(&s->scales, s->scale, row, block, bits);
        return;
    }
    int64_t i = row * s->scale_row + block * s->scale_block;
    if (s->scales.dtype == MOI_E8M0) ((unsigned char *)s->scale)[i] = (unsigned char)bits;
    else ((float *)s->scale)[i] = moii_float_of(bits);
}

/* Scales of n blocks without NaN and Inf, at (row + i * down, block + i * across); gives what their values are multiplied by. */
static unsigned int put_scales(const moii_tile *t, const moii_sink *s, const unsigned int *amax, int64_t n, int64_t row, int64_t down,
                               int64_t block, int64_t across, float *inverse)
{
    unsigned char e[MOII_TILE];
    unsigned int top = 0;
    if (s->width == MOII_MX_BLOCK) t->loops->scale(s->rule, (int)s->format->round, amax, n, e, inverse);
    bool run = s->width == MOII_MX_BLOCK && s->format->layout == (down ? MOI_LAYOUT_COL : MOI_LAYOUT_ROW);
    if (run) memcpy((char *)s->scale + row * s->scale_row + block * s->scale_block, e, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        top = amax[i] > top ? amax[i] : top;
        if (run) continue;
        moii_block b = { 0, 0, false };
        if (s->width == MOII_MX_BLOCK) b.scale = e[i];
        else b = moii_block_of(s->format, amax[i]), inverse[i] = b.inverse;
        put_scale(s, row + i * down, block + i * across, b.scale);
    }
    return top;
}

static float tile_value(const moii_tile *t, int64_t r, int64_t c) { return moi_decode(t->in, t->v, r * t->ld + c); }

/* The block of rows r.. x columns c.. with everything quantize_block.h says about NaN and Inf. */
static moii_block any_block(const moii_tile *t, const moii_sink *s, int64_t r, int64_t rows, int64_t c, int64_t cols)
{
    unsigned int amax = 0;
    for (int64_t i = r; i < r + rows; i++)
        for (int64_t j = c; j < c + cols; j++) amax = moii_amax(s->format, amax, tile_value(t, i, j));
    return moii_block_of(s->format, amax);
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

static void prefetch(const moii_tile *t, const void *v, int64_t n)
{
    const char *p = (const char *)v + t->ahead, *end = p + n * (t->in == MOI_F32 ? 4 : 2);
    for (; t->ahead && p < end; p += 64) __builtin_prefetch(p);
}

/* Blocks that hold NaN or Inf, again. */
static void redo_row(const moii_tile *t, const moii_sink *s, const unsigned int *amax, unsigned char *codes)
{
    for (int64_t b = 0, c = 0; c < t->cols; b++, c += s->width) {
        int64_t n = moii_min(s->width, t->cols - c);
        if (amax[b] < MOII_INF_BITS) continue;
        moii_block block = any_block(t, s, 0, 1, c, n);
        put_scale(s, t->r0, t->c0 / s->width + b, block.scale);
        for (int64_t j = c; j < c + n; j++) codes[j] = (unsigned char)moii_block_encode(s->format, block, tile_value(t, 0, j));
    }
}

/* A tile of one row and at most MOII_TILE_WIDE columns. */
static void vector_row(const moii_tile *t, const moii_sink *s)
{
    unsigned int amax[MOII_TILE_WIDE / MOII_MX_BLOCK], top;
    float inverse[MOII_TILE_WIDE / MOII_MX_BLOCK];
    unsigned char bytes[MOII_TILE_WIDE], *out = (unsigned char *)place(s, t->r0, t->c0);
    unsigned char *codes = s->bits == 8 ? out : bytes;
    int64_t blocks = moii_ceil_div(t->cols, s->width);
    t->loops->amax(t->in, t->v, t->cols, s->width, amax);
    top = put_scales(t, s, amax, blocks, t->r0, 0, t->c0 / s->width, 1, inverse);
    prefetch(t, t->v, t->cols);
    t->loops->encode(&s->codec, t->in, t->v, t->cols, s->width, inverse, codes);
    if (top >= MOII_INF_BITS) redo_row(t, s, amax, codes);
    if (s->bits != 8) pack(bytes, t->cols, s->bits, out);
}

/* ---- down columns: codes of the tile, one per byte, then turned ---- */

enum { PREFETCH_ROWS = 4 };

static void store_turned(const moii_tile *t, const moii_sink *s, const unsigned char *codes)
{
    if (s->bits == 8) {
        t->loops->transpose(codes, MOII_TILE, t->rows, t->cols, (unsigned char *)place(s, t->c0, t->r0), s->stride);
        return;
    }
    unsigned char turned[MOII_TILE * MOII_TILE];
    t->loops->transpose(codes, MOII_TILE, t->rows, t->cols, turned, MOII_TILE);
    for (int64_t c = 0; c < t->cols; c++) pack(turned + c * MOII_TILE, t->rows, s->bits, (unsigned char *)place(s, t->c0 + c, t->r0));
}

static void redo_cols(const moii_tile *t, const moii_sink *s, int64_t r, int64_t rows, int64_t block, const unsigned int *amax,
                      unsigned char *codes)
{
    for (int64_t c = 0; c < t->cols; c++) {
        if (amax[c] < MOII_INF_BITS) continue;
        moii_block b = any_block(t, s, r, rows, c, 1);
        put_scale(s, t->c0 + c, block, b.scale);
        for (int64_t i = r; i < r + rows; i++) codes[i * MOII_TILE + c] = (unsigned char)moii_block_encode(s->format, b, tile_value(t, i, c));
    }
}

static void vector_cols(const moii_tile *t, const moii_sink *s, int64_t first)
{
    unsigned int amax[MOII_TILE], top;
    float inverse[MOII_TILE];
    unsigned char codes[MOII_TILE * MOII_TILE];
    for (int64_t r = 0; r < t->rows; r += s->width, first++) {
        int64_t n = moii_min(s->width, t->rows - r);
        const char *v = (const char *)t->v + r * moi_row_bytes(t->in, t->ld);
        t->loops->amax_cols(t->in, v, t->ld, n, t->cols, amax);
        top = put_scales(t, s, amax, t->cols, t->c0, 1, first, 0, inverse);
        for (int64_t i = 0; i < n; i += PREFETCH_ROWS) {
            int64_t step = moii_min(PREFETCH_ROWS, n - i);
            const char *at = v + moi_row_bytes(t->in, i * t->ld);
            for (int64_t k = 0; k < step; k++) prefetch(t, at + moi_row_bytes(t->in, k * t->ld), t->cols);
            t->loops->encode_cols(&s->codec, t->in, at, t->ld, step, t->cols, inverse, codes + (r + i) * MOII_TILE, MOII_TILE);
        }
        if (top >= MOII_INF_BITS) redo_cols(t, s, r, n, first, amax, codes);
    }
    store_turned(t, s, codes);
}

/* ---- 128x128: one block ---- */

static void square(const moii_tile *t, const moii_sink *s, bool turned)
{
    unsigned int amax = 0, one;
    unsigned char codes[MOII_TILE * MOII_TILE];
    int64_t ld_bytes = moi_row_bytes(t->in, t->ld);
    for (int64_t r = 0; r < t->rows; r++) {
        prefetch(t, (const char *)t->v + r * ld_bytes, t->cols);
        t->loops->amax(t->in, (const char *)t->v + r * ld_bytes, t->cols, MOII_TILE, &one);
        amax = one > amax ? one : amax;
    }
    moii_block block = amax < MOII_INF_BITS ? moii_block_of(s->format, amax) : any_block(t, s, 0, t->rows, 0, t->cols);
    put_scale(s, (turned ? t->c0 : t->r0) / MOII_BLK, (turned ? t->r0 : t->c0) / MOII_BLK, block.scale);
    for (int64_t r = 0; r < t->rows; r++) {
        unsigned char *row = turned ? codes + r * MOII_TILE : (unsigned char *)place(s, t->r0 + r, t->c0);
        if (amax < MOII_INF_BITS)
            t->loops->encode(&s->codec, t->in, (const char *)t->v + r * ld_bytes, t->cols, MOII_TILE, &block.inverse, row);
        else
            for (int64_t c = 0; c < t->cols; c++) row[c] = (unsigned char)moii_block_encode(s->format, block, tile_value(t, r, c));
    }
    if (turned) store_turned(t, s, codes);
}

/* ---- plain results ---- */

static void store_plain(const moii_tile *t, const moii_sink *s, const float *v, int64_t n, char *out)
{
    if (s->bits == 32) memcpy(out, v, (size_t)n * sizeof *v);
    else t->loops->narrow(v, n, (uint16_t *)(void *)out);
}

static void plain_row(const moii_tile *t, const moii_sink *s)
{
    float row[MOII_TILE_WIDE];
    t->loops->widen(t->in, t->v, t->cols, row);
    store_plain(t, s, row, t->cols, place(s, t->r0, t->c0));
}

static void plain_cols(const moii_tile *t, const moii_sink *s)
{
    float turned[16][MOII_TILE], row[16];
    for (int64_t c0 = 0; c0 < t->cols; c0 += 16) {
        int64_t n = moii_min(16, t->cols - c0);
        for (int64_t r = 0; r < t->rows; r++) {
            t->loops->widen(t->in, (const char *)t->v + moi_row_bytes(t->in, r * t->ld + c0), n, row);
            for (int64_t c = 0; c < n; c++) turned[c][r] = row[c];
        }
        for (int64_t c = 0; c < n; c++) store_plain(t, s, turned[c], t->rows, place(s, t->c0 + c0 + c, t->r0));
    }
}

void moii_tile_rowwise(const moii_tile *t, const moii_sink *s)
{
    if (s->width && s->format->block == MOI_BLOCK_SQUARE) {
        square(t, s, false);
        return;
    }
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c += MOII_TILE_WIDE) {
            moii_tile part = *t;
            part.v = (const char *)t->v + moi_row_bytes(t->in, r * t->ld + c);
            part.r0 += r, part.rows = 1, part.c0 += c, part.cols = moii_min(MOII_TILE_WIDE, t->cols - c);
            if (s->width) vector_row(&part, s);
            else plain_row(&part, s);
        }
}

void moii_tile_colwise(const moii_tile *t, const moii_sink *s, int64_t block)
{
    if (!s->width) plain_cols(t, s);
    else if (s->format->block == MOI_BLOCK_SQUARE) square(t, s, true);
    else vector_cols(t, s, block);
}

void moii_tile_clear(const moii_tile *t, const moii_sink *s)
{
    for (int64_t c = 0; c < t->cols; c++) memset(place(s, t->c0 + c, t->r0), 0, (size_t)(t->rows * s->bits / 8));
}
