/* SPDX-License-Identifier: Apache-2.0 */
#include "then_quantize.h"

#include "format.h"
#include "status.h"

static int64_t plain_bytes(const moi_swiglu_desc *d)
{
    return moii_round_up(d->max_rows * moi_row_bytes(d->out, 2 * d->width), MOII_WORKSPACE_ALIGN);
}

moi_status moii_then_quantize_plan(moii_then_quantize *q, moi_plan *plan)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    int64_t most = 0;
    if (!d->want) return MOI_OK;
    for (int i = 0; i < 2; i++) {
        moi_quantize_desc desc = { .size = sizeof desc, .in = d->out, .rowwise = d->rowwise, .colwise = d->colwise, .want = d->want,
                                   .max_rows = d->max_rows, .cols = (i + 1) * d->width, .batch = 1, .groups = d->groups,
                                   .rowwise_mx = d->rowwise_mx, .colwise_mx = d->colwise_mx };
        uint32_t recipes = (d->want & MOI_WANT_ROWWISE ? MOII_RECIPE_BIT(d->rowwise.recipe) : 0) |
                           (d->want & MOI_WANT_COLWISE ? MOII_RECIPE_BIT(d->colwise.recipe) : 0);
        MOII_TRY(moii_plan_make(&q->plan[i], plan->ctx, MOII_OP_QUANTIZE, &desc, sizeof desc, NULL, recipes));
        most = moii_max(most, q->plan[i]->workspace_bytes);
    }
    plan->workspace_bytes = plain_bytes(d) + most;
    return MOI_OK;
}

void moii_then_quantize_free(moii_then_quantize *q)
{
    for (int i = 0; i < 2; i++) moi_plan_free(q->plan[i]);
}

moi_status moii_then_quantize_run(const moii_then_quantize *q, const moi_plan *plan, const moi_swiglu_args *args, const void *plain,
                                  void *workspace, bool backward, moi_stream stream)
{
    const moi_swiglu_desc *d = &plan->desc.swiglu;
    const moi_plan *quantize = q->plan[backward];
    if (!d->want) return MOI_OK;
    moi_quantize_args a = { .size = sizeof a, .rows = args->rows, .in = { plain, NULL, 0 }, .rowwise = args->rowwise,
                            .colwise = args->colwise, .offsets = args->offsets };
    return quantize->impl->run(quantize, &a, (char *)workspace + plain_bytes(d), stream);
}
