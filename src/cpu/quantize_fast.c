/* SPDX-License-Identifier: Apache-2.0
 * quantize_fast.c: tile by tile over all threads; one tile in cache serves both directions.
 *
 * Tiles are strips of rows cut into chunks of columns.  Where rows are ragged, group g owns the strips from
 * offsets[g] / 128 + g (as it owns scale blocks), so no strip crosses a group and a strip's number is enough to find it. */
#include <string.h>

#include "cpu.h"
#include "isa.h"
#include "quantize_tile.h"

enum { BUNDLE = 4, LARGE = 16 << 20 };

typedef struct job {
    const moii_quant_loops *loops;
    const moi_quantize_desc *d;
    const moi_quantize_args *a;
    moii_sink row, col;
    uint32_t want;
    bool narrow; /* tiles of 128 x 128, else contiguous pieces of rows */
    bool ragged, odd;
    bool pieces; /* column-wise blocks of 32: tiles are read and quantised in pieces of 32 rows */
    int64_t strip_rows, strips, bundle, bundles, chunk_cols, chunks, ahead;
} job;

/* Rows from..to-1, a run of `block` numbers for column-wise scales; owned: a group has them. */
typedef struct strip { int64_t from, to, block; bool owned; } strip;

static strip find_strip(const job *j, int64_t i)
{
    int64_t rows = j->a->rows, width = moii_max(j->col.width, 1);
    if (!j->ragged) {
        int64_t from = i * j->strip_rows;
        return (strip){ from, moii_min(from + j->strip_rows, rows), from / width, true };
    }
    const int64_t *o = j->a->offsets;
    int64_t groups = j->d->groups, g = 0;
    while (g < groups && i >= o[g + 1] / MOII_TILE + g + 1) g++;
    int64_t start = o[g], end = g < groups ? o[g + 1] : rows, from = start + (i - (start / MOII_TILE + g)) * MOII_TILE;
    return (strip){ from, moii_min(from + MOII_TILE, end), start / width + g + (from - start) / width, g < groups };
}

/* Asks for lines from..to-1 of a matrix, `bytes` of each. */
static void ask_for(const char *at, int64_t stride, int64_t bytes, int64_t from, int64_t to)
{
    for (int64_t r = from; r < to; r++)
        for (int64_t c = 0; c < bytes; c += 64) __builtin_prefetch(at + r * stride + c);
}

/* A dense copy of the tile, which then is the tile: in matrices whose rows are a power of two apart, a tile's lines would
 * fight for the same places in the caches.  The copy is BF16, rounded to odd, where the results allow it. */
static void copy_tile(moii_tile *t, bool odd, void *to)
{
    const moii_quant_loops *loops = t->loops;
    moi_dtype in = t->x.in, made = odd || in == MOI_BF16 ? MOI_BF16 : MOI_F32;
    int64_t cols = t->x.cols, bytes = moi_row_bytes(in, cols), stride = moi_row_bytes(in, t->x.ld), out_bytes = moi_row_bytes(made, cols);
    float row[MOII_TILE];
    if (in == made) loops->copy((const unsigned char *)t->x.v, stride, t->x.rows, bytes, (unsigned char *)to, out_bytes, false);
    for (int64_t r = 0; in != made && r < t->x.rows; r++) {
        const char *v = (const char *)t->x.v + r * stride;
        char *out = (char *)to + r * out_bytes;
        if (in == MOI_F32) loops->narrow_odd((const float *)(const void *)v, cols, (uint16_t *)(void *)out);
        else loops->widen(in, v, cols, odd ? row : (float *)(void *)out);
        if (in == MOI_F16 && odd) loops->narrow_odd(row, cols, (uint16_t *)(void *)out);
    }
    if (odd && in != MOI_BF16) t->exact.data = t->x.v;
    t->x = (moii_span){ made, to, cols, t->x.rows, cols, 0 };
}

/* Piece by piece: read, quantise along rows, quantise down columns, while the piece is in the nearest cache.  The next piece is
 * asked for in between, a few lines at a time: memory and arithmetic then work at the same time. */
static void quantize_pieces(const job *j, moii_tile *t, const moii_sink *row, const moii_sink *col, int64_t block)
{
    enum { PIECE = MOII_MX_BLOCK, PART = PIECE / 4 };
    uint32_t copy[PIECE * MOII_TILE];
    moii_turned turned;
    const moii_tile whole = *t;
    int64_t stride = moi_row_bytes(t->x.in, t->x.ld), bytes = moi_row_bytes(t->x.in, t->x.cols);
    for (int64_t r = 0; r < whole.x.rows; r += PIECE) {
        moii_tile piece = whole;
        const char *next = (const char *)whole.x.v + (r + PIECE < whole.x.rows ? (r + PIECE) * stride : whole.x.ahead);
        piece.r0 += r;
        piece.x.v = (const char *)whole.x.v + r * stride;
        piece.x.rows = moii_min(PIECE, whole.x.rows - r);
        copy_tile(&piece, j->odd, copy);
        ask_for(next, stride, bytes, 0, PART);
        if (j->want & MOI_WANT_ROWWISE) {
            moii_tile half = piece;
            half.x.rows = moii_min(PIECE / 2, piece.x.rows);
            moii_tile_rowwise(&half, row);
            ask_for(next, stride, bytes, PART, 2 * PART);
            half.x.v = (const char *)piece.x.v + moi_row_bytes(piece.x.in, half.x.rows * piece.x.ld);
            half.r0 += half.x.rows;
            if (half.exact.data) half.exact.data = (const char *)half.exact.data + half.x.rows * stride;
            half.x.rows = piece.x.rows - half.x.rows;
            moii_tile_rowwise(&half, row);
        }
        ask_for(next, stride, bytes, j->want & MOI_WANT_ROWWISE ? 2 * PART : PART, 3 * PART);
        moii_turned_add(&piece, col, r, &turned);
        ask_for(next, stride, bytes, 3 * PART, PIECE);
    }
    moii_turned_store(t, col, block, &turned);
}

static void quantize_tile(const job *j, int64_t batch, strip s, int64_t chunk, int64_t ahead)
{
    int64_t ld = j->a->in.ld ? j->a->in.ld : j->d->cols;
    int64_t c0 = chunk * j->chunk_cols;
    moii_tile t = { j->loops, { j->d->in, NULL, ld, s.to - s.from, moii_min(j->chunk_cols, j->d->cols - c0), ahead },
                    { NULL, j->d->in, ld, false }, s.from, c0 };
    const char *base = (const char *)j->a->in.data + batch * j->a->rows * moi_row_bytes(t.x.in, ld);
    t.x.v = base + moi_row_bytes(t.x.in, s.from * ld + c0);
    moii_sink row = moii_sink_at(&j->row, batch), col = moii_sink_at(&j->col, batch);
    if (j->pieces && s.owned) {
        quantize_pieces(j, &t, &row, &col, s.block);
        return;
    }
    float copy[MOII_TILE_VALUES];
    if (j->narrow) copy_tile(&t, j->odd, copy);
    if (j->want & MOI_WANT_ROWWISE) moii_tile_rowwise(&t, &row);
    if (j->want & MOI_WANT_COLWISE && s.owned) moii_tile_colwise(&t, &col, s.block);
    else if (j->want & MOI_WANT_COLWISE && !col.width) moii_tile_clear(&t, &col);
}

/* Some strips of one chunk: the column-wise result then grows by more than a strip while its pages are at hand. */
static void quantize_item(const job *j, int64_t item)
{
    int64_t chunk = item % j->chunks, i = item / j->chunks, batch = i / j->bundles, first = i % j->bundles * j->bundle;
    int64_t last = moii_min(first + j->bundle, j->strips), row_bytes = moi_row_bytes(j->d->in, j->a->in.ld ? j->a->in.ld : j->d->cols);
    for (int64_t k = first; k < last; k++) {
        strip s = find_strip(j, k);
        int64_t ahead = k + 1 < last ? j->strip_rows * row_bytes : j->ahead - (last - first - 1) * j->strip_rows * row_bytes;
        if (s.from < s.to) quantize_tile(j, batch, s, chunk, ahead);
    }
}

static void quantize_pass(job *j, uint32_t want, bool ragged, int threads)
{
    bool narrow = j->narrow = want & MOI_WANT_COLWISE || j->row.format->block == MOI_BLOCK_SQUARE || j->d->in == MOI_F16;
    j->want = want;
    j->ragged = ragged;
    j->odd = (!(want & MOI_WANT_ROWWISE) || moii_sink_takes_odd(&j->d->rowwise)) &&
             (!(want & MOI_WANT_COLWISE) || moii_sink_takes_odd(&j->d->colwise));
    bool rows_in_pieces = !(want & MOI_WANT_ROWWISE) || j->row.format->block != MOI_BLOCK_SQUARE;
    j->pieces = want & MOI_WANT_COLWISE && j->col.width == MOII_MX_BLOCK && rows_in_pieces;
    j->strip_rows = narrow ? MOII_TILE : 4;
    j->chunk_cols = narrow ? MOII_TILE : 1024;
    j->ahead = moi_row_bytes(j->d->in, j->chunk_cols);
    j->strips = ragged ? j->a->rows / MOII_TILE + j->d->groups + 1 : moii_ceil_div(j->a->rows, j->strip_rows);
    j->bundle = narrow ? BUNDLE : 1;
    j->bundles = moii_ceil_div(j->strips, j->bundle);
    j->chunks = moii_ceil_div(j->d->cols, j->chunk_cols);
    int64_t items = j->d->batch * j->bundles * j->chunks;
    bool worth = j->d->batch * j->a->rows * j->d->cols >= 1 << 14; /* waking threads costs microseconds */
#pragma omp parallel num_threads(threads) if (worth)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < items; i++) quantize_item(j, i);
        j->loops->fence();
    }
}

/* Codes behind the last row of each group: the rest of its last block, and blocks that no group owns. */
static void fill_codes(const moii_sink *s, const job *j, int64_t groups, int threads)
{
    const int64_t *o = j->a->offsets;
    if (!s->width || !s->data || !groups) return;
    int64_t length = moi_ragged_cols(s->format, s->cols, groups);
#pragma omp parallel for num_threads(threads) schedule(static) if (groups * s->rows >= 1 << 14)
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            int64_t end = moii_ragged_start(s->format, o[g], g) + o[g + 1] - o[g];
            int64_t next = g + 1 < groups ? moii_ragged_start(s->format, o[g + 1], g + 1) : length;
            memset(s->data + r * s->stride + end, 0, (size_t)(next - end));
        }
}

/* Layout padding, and the scale blocks that no group owns. */
static void fill_scales(const moii_sink *sink, const job *j, int64_t groups, int threads)
{
    if (!sink->width || !sink->scale) return;
    for (int64_t i = 0; i < j->d->batch; i++) {
        moii_sink s = moii_sink_at(sink, i);
        moii_scales_pad(&s.scales, s.scale);
    }
    const int64_t *o = j->a->offsets;
#pragma omp parallel for num_threads(threads) schedule(static) if (groups * sink->scales.rows >= 1 << 14)
    for (int64_t g = 0; g < groups; g++) {
        int64_t used = o[g] / sink->width + g + moii_ceil_div(o[g + 1] - o[g], sink->width);
        moii_scales_clear(&sink->scales, sink->scale, used, g + 1 < groups ? o[g + 1] / sink->width + g + 1 : sink->scales.blocks);
    }
}

/* Equal scales, as a second pass. */
static void rebase(const moii_sink *sink, moi_mx_scales mx, const job *j, int64_t groups, int threads)
{
    for (int64_t i = 0; i < j->d->batch; i++) {
        moii_sink s = moii_sink_at(sink, i);
        moii_side side = { .format = s.format, .rows = s.rows, .cols = s.cols, .groups = groups, .offsets = j->a->offsets, .data = s.data,
                           .scale = s.scale, .ld = s.stride };
#pragma omp parallel for num_threads(threads) schedule(static) if (s.rows * s.cols >= 1 << 14)
        for (int64_t r = 0; r < side.rows; r++) moii_rebase_side(&side, mx, r, r + 1);
    }
}

static moi_status run(const moi_plan *plan, const void *args_, void *workspace, moi_stream stream)
{
    const moi_quantize_desc *d = &plan->desc.quantize;
    const moi_quantize_args *a = args_;
    int threads = plan->ctx->threads;
    (void)workspace, (void)stream;
    job j = { .loops = moii_cpu_isa(plan->ctx)->quant, .d = d, .a = a };
    j.row = moii_sink_of(&d->rowwise, &a->rowwise, a->rows, d->cols, 0);
    j.col = moii_sink_of(&d->colwise, &a->colwise, d->cols, a->rows, d->groups);
    j.row.stream = j.col.stream = d->batch * a->rows * d->cols >= LARGE;
    bool ragged = d->groups && d->want & MOI_WANT_COLWISE;
    if (d->want & MOI_WANT_ROWWISE) fill_scales(&j.row, &j, 0, threads);
    if (d->want & MOI_WANT_COLWISE) fill_scales(&j.col, &j, d->groups, threads), fill_codes(&j.col, &j, d->groups, threads);
    /* square blocks cannot be cut where groups are */
    if (ragged && d->want & MOI_WANT_ROWWISE && j.row.width && d->rowwise.block == MOI_BLOCK_SQUARE) {
        quantize_pass(&j, MOI_WANT_ROWWISE, false, threads);
        quantize_pass(&j, MOI_WANT_COLWISE, true, threads);
    } else {
        quantize_pass(&j, d->want, ragged, threads);
    }
    if (d->rowwise_mx) rebase(&j.row, d->rowwise_mx, &j, 0, threads);
    if (d->colwise_mx) rebase(&j.col, d->colwise_mx, &j, d->groups, threads);
    return MOI_OK;
}

const moii_impl moii_impl_quantize_fast = {
    .name = "quantize_fast", .op = MOII_OP_QUANTIZE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES, .run = run,
};
