/* SPDX-License-Identifier: Apache-2.0
 * swiglu_sm90.h: what the launchers of swiglu_sm90 and swiglu_mx_sm90 share. */
#ifndef MOII_SWIGLU_SM90_H
#define MOII_SWIGLU_SM90_H

#include "gpu.h"
#include "kernels/swiglu_sm90_args.h"

/* Whether formats and sizes are such that tiles of 128 x 128 will do. */
bool moii_swiglu_sm90_takes(const moi_swiglu_desc *d, const char **why);
/* All but strips and steps. */
swiglu_sm90_args moii_swiglu_sm90_args(const moi_swiglu_desc *d, const moi_swiglu_args *in, bool backward);

#endif
