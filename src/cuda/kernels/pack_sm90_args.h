/* SPDX-License-Identifier: Apache-2.0
 * pack_sm90_args.h: codes of ragged groups to be packed, as the launcher fills it and pack_sm90.cu reads it. */
#ifndef MOII_PACK_SM90_ARGS_H
#define MOII_PACK_SM90_ARGS_H

typedef struct pack_sm90_args {
    const unsigned char *in;
    unsigned char *out;
    const long long *offsets; /* groups + 1 */
    int *packed;              /* 1 if anything was copied */
    long long in_ld, out_ld;  /* bytes between rows */
    int rows, groups, block;
    int always;               /* copy even where every group begins at a multiple of 16 */
} pack_sm90_args;

#endif
