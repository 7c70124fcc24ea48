/* SPDX-License-Identifier: Apache-2.0 */
#include "then_swiglu.h"

#include <string.h>

#include "format.h"
#include "status.h"

moi_status moii_then_swiglu_plan(moii_then_swiglu *t, moi_plan *plan)
{
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    moi_swiglu_desc s = { .size = sizeof s, .in = moii_plain_format(d->out), .out = d->out, .rowwise = d->rowwise, .want = MOI_WANT_ROWWISE,
                          .max_rows = d->max_rows, .width = d->n / 2, .rowwise_mx = d->rowwise_mx };
    MOII_TRY(moii_plan_make(&t->plan, plan->ctx, MOII_OP_SWIGLU, &s, sizeof s, NULL, MOII_RECIPE_BIT(s.in.recipe) | MOII_RECIPE_BIT(s.rowwise.recipe)));
    t->plain_at = moii_round_up(plan->workspace_bytes, MOII_WORKSPACE_ALIGN);
    t->swiglu_at = t->plain_at + moii_round_up(d->max_rows * moi_row_bytes(d->out, d->n), MOII_WORKSPACE_ALIGN);
    plan->workspace_bytes = t->swiglu_at + t->plan->workspace_bytes;
    return MOI_OK;
}

moi_ggemm_args moii_then_swiglu_product(const moii_then_swiglu *t, const moi_plan *plan, const moi_ggemm_args *args, void *workspace)
{
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    moi_ggemm_args product = *args;
    product.d = (char *)workspace + t->plain_at, product.ldd = 0;
    if (plan->ctx->backend->id == MOI_BACKEND_CPU) { /* rows of no group */
        int64_t line = moi_row_bytes(d->out, d->n), used = args->offsets[d->groups];
        memset((char *)product.d + used * line, 0, (size_t)((args->rows - used) * line));
    }
    return product;
}

moi_status moii_then_swiglu_run(const moii_then_swiglu *t, const moi_ggemm_args *args, void *workspace, moi_stream stream)
{
    const char *w = workspace;
    moi_swiglu_args s = { .size = sizeof s, .rows = args->rows, .gate_up = { w + t->plain_at, NULL, 0 }, .rowwise = args->rowwise };
    return t->plan->impl->run(t->plan, &s, (char *)workspace + t->swiglu_at, stream);
}
