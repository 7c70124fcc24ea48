/* SPDX-License-Identifier: Apache-2.0
 * repeat_scales_args.h: scales of matrices, as the launcher fills it and repeat_scales.cu reads it. */
#ifndef MOII_REPEAT_SCALES_ARGS_H
#define MOII_REPEAT_SCALES_ARGS_H

typedef struct repeat_scales_args {
    unsigned char *scale;
    long long chunks, blocks; /* of 16 bytes in a column; columns */
    long long bytes;          /* between matrices */
} repeat_scales_args;

#endif
