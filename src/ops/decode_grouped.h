/* SPDX-License-Identifier: Apache-2.0
 * decode_grouped.h: moe_decode of many tokens as a composition of other operations' plans: P:decode.grouped. */
#ifndef MOII_DECODE_GROUPED_H
#define MOII_DECODE_GROUPED_H

#include "ctx.h"

/* Makes plan->grouped as plan->desc.moe_decode.grouped_from asks for it, if it does, sets that to the number of tokens it stands for, and makes room for
 * it in the workspace. */
moi_status moii_decode_grouped_plan(moi_plan *plan);

/* What plan->impl->run does, with plan->grouped. */
moi_status moii_decode_grouped_run(const moi_plan *plan, const moi_moe_decode_args *args, void *workspace, moi_stream stream);

#endif
