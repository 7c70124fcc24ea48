/* SPDX-License-Identifier: Apache-2.0
 * repeat_scales_args.h: scales of matrices, as the launcher fills it and repeat_scales.cu reads it. */
#ifndef MOII_REPEAT_SCALES_ARGS_H
#define MOII_REPEAT_SCALES_ARGS_H

typedef struct repeat_scales_args {
    unsigned char *scale;
    unsigned int chunks, run; /* chunks of 16 bytes that are there; so many of them lie together, their copies behind them */
    unsigned int copies;      /* with what is there */
    unsigned int last;        /* which bits of each word the last copy keeps */
    long long bytes;          /* between matrices */
} repeat_scales_args;

#endif
