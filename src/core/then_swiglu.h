/* SPDX-License-Identifier: Apache-2.0
 * then_swiglu.h: for rows of ggemm that leave their product in the workspace and SwiGLU of it to the context's best row. */
#ifndef MOII_THEN_SWIGLU_H
#define MOII_THEN_SWIGLU_H

#include "ctx.h"

typedef struct moii_then_swiglu {
    moi_plan *plan;                /* NULL: not wanted, or done otherwise */
    int64_t plain_at, swiglu_at;   /* in the workspace: the product, SwiGLU's own */
} moii_then_swiglu;

/* Plans for plan->desc.ggemm and adds to the workspace, which holds what the product itself needs. */
moi_status moii_then_swiglu_plan(moii_then_swiglu *t, moi_plan *plan);
/* What the product is run with. */
moi_ggemm_args moii_then_swiglu_product(const moii_then_swiglu *t, const moi_plan *plan, const moi_ggemm_args *args, void *workspace);
/* Behind it. */
moi_status moii_then_swiglu_run(const moii_then_swiglu *t, const moi_ggemm_args *args, void *workspace, moi_stream stream);

#endif
