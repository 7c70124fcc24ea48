/* SPDX-License-Identifier: Apache-2.0
 * dequantize_plain_args.h: a dequantisation, as the launcher fills it and the kernel reads it. */
#ifndef MOII_DEQUANTIZE_PLAIN_ARGS_H
#define MOII_DEQUANTIZE_PLAIN_ARGS_H

#include "stored_args.h"

typedef struct dequantize_plain_args {
    stored_matrix in;
    void *out;
    long long rows, cols, out_ld; /* out_ld: elements between rows */
    int out_type;
} dequantize_plain_args;

#endif
