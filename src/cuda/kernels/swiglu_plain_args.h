/* SPDX-License-Identifier: Apache-2.0
 * swiglu_plain_args.h: the plain result of SwiGLU, as the launcher fills it and the kernel reads it. */
#ifndef MOII_SWIGLU_PLAIN_ARGS_H
#define MOII_SWIGLU_PLAIN_ARGS_H

#include "stored_args.h"

typedef struct swiglu_plain_args {
    stored_matrix gate_up; /* [rows, 2 width] */
    const void *d_act;     /* [rows, width]; backward */
    void *out;             /* [rows, width], backward [rows, 2 width] */
    long long out_ld;      /* of its type */
    long long rows, width;
    int out_type; /* of d_act too */
    int packets;  /* all rows begin at multiples of 16 bytes */
} swiglu_plain_args;

#endif
