/* SPDX-License-Identifier: Apache-2.0
 * then_quantize.h: for rows that compute SwiGLU's plain result and leave the quantised ones to the context's best quantiser, which
 * alone knows scales: P:swiglu.fused holds by construction. */
#ifndef MOII_THEN_QUANTIZE_H
#define MOII_THEN_QUANTIZE_H

#include "ctx.h"

typedef struct moii_then_quantize { moi_plan *plan[2]; } moii_then_quantize; /* forward, backward; NULL: nothing is wanted */

/* Plans for plan->desc.swiglu and states the workspace: the plain result, where the caller may not want it, then the quantiser's. */
moi_status moii_then_quantize_plan(moii_then_quantize *q, moi_plan *plan);
void moii_then_quantize_free(moii_then_quantize *q);
/* plain: the caller's, or the beginning of the workspace. */
moi_status moii_then_quantize_run(const moii_then_quantize *q, const moi_plan *plan, const moi_swiglu_args *args, const void *plain,
                                  void *workspace, bool backward, moi_stream stream);

#endif
