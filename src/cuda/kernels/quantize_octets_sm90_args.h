/* SPDX-License-Identifier: Apache-2.0
 * quantize_octets_sm90_args.h: a quantisation along rows, eight of them to a warp, as the launcher fills it and the kernel reads it. */
#ifndef MOII_QUANTIZE_OCTETS_SM90_ARGS_H
#define MOII_QUANTIZE_OCTETS_SM90_ARGS_H

#include "tile8_args.h"

/* Columns and warps of a block. */
enum { QUANTIZE_OCTETS_SM90_SPAN = 256, QUANTIZE_OCTETS_SM90_WARPS = 8, QUANTIZE_OCTETS_SM90_MATRICES = 65535 /* of grid y */ };

/* How far rows i % 4 and i / 4 of an octet are apart. */
typedef struct octet_steps { long long four, eight; } octet_steps;

typedef struct quantize_octets_sm90_args {
    const void *in;
    long long rows, cols, in_bytes;        /* bytes between matrices */
    octet_steps row, from, to;             /* rows; bytes of `in` and of the codes */
    unsigned int pieces, batch;            /* of a matrix, a warp each; matrices */
    unsigned int deep;                     /* 2^deep pieces below one another, whose scales are one sector, come before those beside them */
    unsigned int across, magic, shift;     /* pieces beside one another; i / across = i * magic >> 32 + shift, magic 0: i */
    long long from_ld;                     /* bytes between rows of `in` */
    int vectors;                           /* rows of `in` begin at multiples of 16 bytes */
    tile8_side side;
} quantize_octets_sm90_args;

#endif
