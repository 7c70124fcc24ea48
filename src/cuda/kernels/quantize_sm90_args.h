/* SPDX-License-Identifier: Apache-2.0
 * quantize_sm90_args.h: a quantisation in one or both directions, as the launcher fills it and quantize_sm90.cu reads it. */
#ifndef MOII_QUANTIZE_SM90_ARGS_H
#define MOII_QUANTIZE_SM90_ARGS_H

#include "tile8_args.h"

/* Units of 256 threads in a block, blocks in a cluster, which store at the same time: what lies further down leaves with its neighbour.  Groups
 * would cut every second tile alone. */
#define QUANTIZE_SM90_UNITS(bf16, row_kind, col_kind, ragged) ((bf16) && !(ragged) && (row_kind) == TILE_NONE && (col_kind) != TILE_NONE ? 2 : 1)
#define QUANTIZE_SM90_DOWN(bf16, row_kind, col_kind, ragged) ((bf16) && !(ragged) && (row_kind) != TILE_NONE && (col_kind) != TILE_NONE ? 2 : 1)

typedef struct quantize_sm90_args {
    const void *in;
    const long long *offsets; /* groups + 1, where groups > 0 */
    long long rows, cols, groups;
    unsigned int across, across_magic, across_shift; /* tiles of a strip; i / across = i * magic >> 32 + shift, magic 0: i */
    unsigned int batch;
    long long in_ld, in_bytes; /* elements between rows, bytes between matrices */
    int vectors;               /* rows of `in` begin at multiples of 16 bytes */
    tile8_side row, col;
} quantize_sm90_args;

#endif
