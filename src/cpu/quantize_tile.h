/* SPDX-License-Identifier: Apache-2.0
 * quantize_tile.h: quantises one tile of a matrix in either direction, for rows that walk over a matrix tile by tile:
 * quantize_fast, and those that make the values themselves.  A tile is at most 128 rows; it begins where a block begins. */
#ifndef MOII_QUANTIZE_TILE_H
#define MOII_QUANTIZE_TILE_H

#include "quantize_block.h"
#include "quantize_loops.h"
#include "scales.h"

enum { MOII_TILE = 128, MOII_TILE_WIDE = 512 };

/* Where one direction's result goes: rows x cols as stored. */
typedef struct moii_sink {
    const moi_format *format;
    moii_codec codec;
    moii_scale_rule rule;
    moii_scales scales;
    int64_t rows, cols;
    char *data;
    void *scale;
    int64_t stride; /* bytes between rows */
    int64_t scale_row, scale_block; /* layouts ROW and COL: elements between rows and blocks of scales */
    int64_t width;  /* elements of a block along the row, 0: plain */
    int bits;
} moii_sink;

moii_sink moii_sink_of(const moi_format *format, const moi_result *out, int64_t rows, int64_t cols, int64_t groups);
/* The sink of matrix `i` of a batch of such matrices. */
moii_sink moii_sink_at(const moii_sink *sink, int64_t i);

/* Values in memory: `rows` x `cols` at v, F32 or BF16, whose first is element (r0, c0) of the matrix. */
typedef struct moii_tile {
    const moii_quant_loops *loops;
    moi_dtype in;
    const void *v;
    int64_t ld; /* elements */
    int64_t r0, rows, c0, cols;
    int64_t ahead; /* bytes from a value to the one that is needed some microseconds later: what to prefetch */
} moii_tile;

/* Any number of columns; squares: 128. */
void moii_tile_rowwise(const moii_tile *tile, const moii_sink *sink);
/* At most 128 columns.  `block`: the scale block of the tile's first row, r0 / width unless ragged. */
void moii_tile_colwise(const moii_tile *tile, const moii_sink *sink, int64_t block);
/* Zero codes at matrix columns c0 .. c0 + cols - 1 (stored rows), stored columns r0 .. r0 + rows - 1. */
void moii_tile_clear(const moii_tile *tile, const moii_sink *sink);

#endif
