/* SPDX-License-Identifier: Apache-2.0
 * swiglu_sm90.h: what the rows of swiglu_sm90.cuh share; a plan launches its row's kernel. */
#ifndef MOII_SWIGLU_SM90_H
#define MOII_SWIGLU_SM90_H

#include "gpu.h"

/* The defines of variant i; the first MOII_SWIGLU_SM90_BF16 of them read and leave BF16. */
enum { MOII_SWIGLU_SM90_BF16 = 24 };
void moii_swiglu_sm90_variant(int i, char defines[MOII_DEFINES]);
bool moii_swiglu_sm90_takes(const moi_swiglu_desc *d, const char **why);
moi_status moii_swiglu_sm90_plan(moi_plan *plan);
moi_status moii_swiglu_sm90_run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream);
moi_status moii_swiglu_sm90_run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream);

#endif
