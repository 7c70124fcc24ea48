/* SPDX-License-Identifier: Apache-2.0
 * permute_fast.c: the map, then copies spread over threads. */
#include <string.h>

#include "permute_map.h"

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_permute_desc *d = &plan->desc.permute;
    const moi_permute_args *a = args;
    int64_t bytes = moi_row_bytes(d->dtype, d->hidden);
    (void)stream;
    MOII_TRY(moii_permute_map(d, a, workspace));
    if (!a->x || bytes == 0) return MOI_OK;
#pragma omp parallel for num_threads(plan->ctx->threads) schedule(static)
    for (int64_t r = 0; r < a->offsets[d->experts]; r++)
        memcpy((char *)a->x_sorted + r * bytes, (const char *)a->x + a->token_of[r] * bytes, (size_t)bytes);
    return MOI_OK;
}

const moii_impl moii_impl_permute_fast = {
    .name = "permute_fast", .op = MOII_OP_PERMUTE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .plan = moii_permute_plan, .run = run,
};
