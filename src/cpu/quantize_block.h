/* SPDX-License-Identifier: Apache-2.0
 * quantize_block.h: the scale of a block (block.h) and the codes of its values, for a moi_format.  Rows that fuse
 * quantisation into their own loops use these, so they give the same bits.
 *
 *   unsigned int a = 0;
 *   for each v of the block: a = moii_amax(f, a, v);
 *   moii_block b = moii_block_of(f, a);
 *   store b.scale;  for each v: store moii_block_encode(f, b, v); */
#ifndef MOII_QUANTIZE_BLOCK_H
#define MOII_QUANTIZE_BLOCK_H

#include "dtype.h"
#include "format.h"
#include "moiety.h"

static inline unsigned int moii_amax(const moi_format *f, unsigned int amax, float v)
{
    return moii_block_amax((f->flags & MOI_NONFINITE_LENIENT) != 0, amax, v);
}

static inline moii_block moii_block_of(const moi_format *f, unsigned int amax) { return moii_block_make(moii_block_rule_of(f), amax); }

static inline unsigned int moii_block_encode(const moi_format *f, moii_block b, float v)
{
    return b.poisoned ? moii_dtype(f->elem)->nan_code : moii_code_encode(f->elem, v * b.inverse);
}

/* A matrix of plain values that may be read as its transpose: at (r, c) lies element (c, r) of memory. */
typedef struct moii_view {
    const void *data;
    moi_dtype dtype;
    int64_t ld; /* elements between rows in memory */
    bool transposed;
} moii_view;

static inline float moii_view_get(const moii_view *v, int64_t r, int64_t c)
{
    return moi_decode(v->dtype, v->data, v->transposed ? c * v->ld + r : r * v->ld + c);
}

/* One quantised (or plain) result: rows x cols, blocks along its columns, cut at offsets[1 .. groups - 1] where groups > 0:
 * rows then have moi_ragged_cols as they are stored.  What no group owns becomes 0. */
typedef struct moii_side {
    moii_view in;
    const moi_format *format;
    int64_t rows, cols, groups;
    const int64_t *offsets;
    void *data, *scale;
    int64_t ld; /* elements, 0: dense */
} moii_side;

/* quantize_ref.c: the reference, block by block. */
void moii_quantize_side_ref(const moii_side *side);

/* rebase_ref.c: rows from_row .. to_row - 1 of a quantised result get equal scales, in place. */
void moii_rebase_side(const moii_side *side, moi_mx_scales mx, int64_t from_row, int64_t to_row);

#endif
