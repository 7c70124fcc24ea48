/* SPDX-License-Identifier: Apache-2.0
 * quantize_columns_sm90_args.h: column-wise codes in blocks of 32 that get one scale for each group's part of a column, as the launcher fills it and the
 * kernel reads it. */
#ifndef MOII_QUANTIZE_COLUMNS_SM90_ARGS_H
#define MOII_QUANTIZE_COLUMNS_SM90_ARGS_H

/* What a block has: lines, and of each so many blocks of 32 codes. */
enum { QUANTIZE_COLUMNS_SM90_LINES = 32, QUANTIZE_COLUMNS_SM90_RUN = 64, QUANTIZE_COLUMNS_SM90_THREADS = 256 };

typedef struct quantize_columns_sm90_args {
    unsigned char *codes, *scale, *tops;           /* tops: [matrix][part][line], the scale that a part of a line will have */
    long long stride, codes_bytes, scale_bytes;    /* bytes between lines, between matrices' codes and scales */
    long long lines, length, blocks;               /* a line is one column of what was quantised; its codes, those of all parts; its blocks */
    const long long *offsets;                      /* parts + 1, or NULL: a line is one part */
    int parts, layout;                             /* parts: 1 at least */
    int packets;                                   /* lines begin at multiples of 16 bytes */
} quantize_columns_sm90_args;

#endif
