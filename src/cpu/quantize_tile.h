/* SPDX-License-Identifier: Apache-2.0
 * quantize_tile.h: quantises one tile of a matrix in either direction, for rows that walk over a matrix tile by tile:
 * quantize_fast, and those that make the values themselves.  A tile begins where blocks begin. */
#ifndef MOII_QUANTIZE_TILE_H
#define MOII_QUANTIZE_TILE_H

#include "quantize_block.h"
#include "quantize_loops.h"
#include "scales.h"

enum { MOII_TILE = 128, MOII_TILE_VALUES = MOII_TILE * MOII_TILE, MOII_TILE_BLOCKS = MOII_TILE_VALUES / MOII_MX_BLOCK + MOII_TILE };

/* Scales of blocks as they will be stored. */
typedef union moii_scale_run {
    unsigned char e8m0[MOII_TILE_BLOCKS];
    float f32[MOII_TILE_BLOCKS];
} moii_scale_run;

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
    int64_t atoms;  /* layout TILED: per row of atoms */
    int64_t width;  /* elements of a block along the row, 0: plain */
    int bits;
    unsigned int tiny; /* blocks with a maximum from 1 to this (bits) are not made in 16 bits: subnormals matter to them */
    bool stream;    /* the result is too large to stay in the caches; the one who sets it calls loops->fence at the end */
} moii_sink;

moii_sink moii_sink_of(const moi_format *format, const moi_result *out, int64_t rows, int64_t cols, int64_t groups);
/* Whether values may be rounded to odd before (moii_quant_loops.narrow_odd): small floats with power-of-two scales.  MXINT8 keeps
 * 7 bits of 8, and an FP32 scale needs the whole of the largest value. */
bool moii_sink_takes_odd(const moi_format *format);
/* The sink of matrix `i` of a batch of such matrices. */
moii_sink moii_sink_at(const moii_sink *sink, int64_t i);

/* Values in memory, whose first is element (r0, c0) of the matrix. */
typedef struct moii_tile {
    const moii_quant_loops *loops;
    moii_span x; /* F32 or BF16: what the loops read */
    moii_view exact; /* the values themselves where x is rounded to odd, else NULL */
    int64_t r0, c0;
} moii_tile;

/* At most 128 rows and MOII_TILE_VALUES values; squares: 128 columns. */
void moii_tile_rowwise(const moii_tile *tile, const moii_sink *sink);
/* At most 128 rows and columns.  `block`: the scale block of the tile's first row, r0 / width unless ragged; codes lie with scales. */
void moii_tile_colwise(const moii_tile *tile, const moii_sink *sink, int64_t block);
/* The same for vectors in pieces, so that each can be read, quantised and turned while it is in the nearest cache: a piece of
 * whole blocks (or the last rows) from row `row` of the tile, then all of it to its place. */
typedef struct moii_turned {
    unsigned char codes[MOII_TILE_VALUES]; /* [cols][rows] */
    moii_scale_run scales[MOII_TILE / MOII_MX_BLOCK];
} moii_turned;
void moii_turned_add(const moii_tile *piece, const moii_sink *sink, int64_t row, moii_turned *turned);
void moii_turned_store(const moii_tile *tile, const moii_sink *sink, int64_t block, const moii_turned *turned);
/* Zeros where moii_tile_colwise would write plain elements. */
void moii_tile_clear(const moii_tile *tile, const moii_sink *sink);

#endif
