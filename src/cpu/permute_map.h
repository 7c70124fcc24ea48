/* SPDX-License-Identifier: Apache-2.0
 * permute_map.h: the map of a permutation: a stable counting sort of (token, slot) by expert, without skipped slots. */
#ifndef MOII_PERMUTE_MAP_H
#define MOII_PERMUTE_MAP_H

#include "cpu.h"

static inline moi_status moii_permute_plan(moi_plan *plan)
{
    plan->workspace_bytes = plan->desc.permute.experts * (int64_t)sizeof(int64_t);
    return MOI_OK;
}

/* workspace: experts counters.  Every id is looked at before anything of the results is written. */
static inline moi_status moii_permute_map(const moi_permute_desc *d, const moi_permute_args *a, int64_t *next)
{
    int64_t copies = a->tokens * d->top_k;
    for (int64_t e = 0; e < d->experts; e++) next[e] = 0;
    for (int64_t i = 0; i < copies; i++) {
        MOII_REQUIRE(a->ids[i] >= -1 && a->ids[i] < d->experts, MOI_ERR_ARG, "permute run: ids[%lld] must be -1..%lld, got %d",
                     (long long)i, (long long)d->experts - 1, a->ids[i]);
        if (a->ids[i] >= 0) next[a->ids[i]]++;
    }
    a->offsets[0] = 0;
    for (int64_t e = 0; e < d->experts; e++) {
        a->offsets[e + 1] = a->offsets[e] + next[e];
        next[e] = a->offsets[e];
    }
    for (int64_t i = 0; i < copies; i++) {
        int64_t row = a->ids[i] < 0 ? -1 : next[a->ids[i]]++;
        a->row_of[i] = (int32_t)row;
        if (row >= 0) a->token_of[row] = (int32_t)(i / d->top_k);
    }
    return MOI_OK;
}

#endif
