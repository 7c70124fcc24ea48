/* SPDX-License-Identifier: Apache-2.0
 * rebase_plain_args.h: a rebase, as the launcher fills it and the kernel reads it. */
#ifndef MOII_REBASE_PLAIN_ARGS_H
#define MOII_REBASE_PLAIN_ARGS_H

typedef struct rebase_plain_args {
    const unsigned char *in, *in_scale;
    unsigned char *out, *out_scale;            /* may be those of in */
    long long in_ld, out_ld, rows, cols;
    long long blocks, width, groups;           /* of a row; width: blocks in a group; cut: groups at most, of which some have no blocks */
    const long long *offsets;                  /* cut > 0: that many ragged parts of a row begin and end there, at whole blocks, and groups with them; */
    long long cut;                             /* part i owns groups offsets[i] / 128 + i and following; width is 4.  whole: part i is group i */
    long long padded_rows, padded_blocks;      /* the scales' extent with the padding of their layout */
    int layout, whole;
    int *max_shift;                            /* NULL: not wanted */
    float *bound;                              /* [rows, groups]; NULL: not wanted */
    int clears;                                /* 1: only *max_shift = 0 */
} rebase_plain_args;

#endif
