/* SPDX-License-Identifier: Apache-2.0
 * combine_ref.c: weighted sums of each token's rows, element by element. */
#include "combine_rows.h"

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_permute_desc *d = &plan->desc.permute;
    const moi_combine_args *a = args;
    (void)workspace, (void)stream;
    MOII_TRY(moii_combine_check(d, a));
    for (int64_t t = 0; t < a->tokens; t++) {
        for (int64_t c = 0; c < d->hidden; c++) {
            float sum = 0;
            for (int64_t s = t * d->top_k; s < (t + 1) * d->top_k; s++) {
                int64_t row = moii_combine_row(a, s);
                if (row >= 0) sum += (a->weights ? a->weights[s] : 1.0f) * moi_decode(d->dtype, a->y_sorted, row * d->hidden + c);
            }
            moi_encode(d->dtype, a->y, t * d->hidden + c, sum);
        }
    }
    return MOI_OK;
}

static moi_status run_backward(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moi_permute_desc *d = &plan->desc.permute;
    const moi_combine_args *a = args;
    (void)workspace, (void)stream;
    MOII_TRY(moii_combine_check(d, a));
    for (int64_t s = 0; s < a->tokens * d->top_k; s++) {
        double dot = 0;
        int64_t row = moii_combine_row(a, s);
        for (int64_t c = 0; row >= 0 && c < d->hidden; c++) {
            int64_t at = row * d->hidden + c;
            float dy = moi_decode(d->dtype, a->d_y, s / d->top_k * d->hidden + c);
            if (a->d_weights) dot += (double)dy * (double)moi_decode(d->dtype, a->y_sorted, at);
            moi_encode(d->dtype, a->d_y_sorted, at, (a->weights ? a->weights[s] : 1.0f) * dy);
        }
        if (a->d_weights) a->d_weights[s] = (float)dot;
    }
    return MOI_OK;
}

const moii_impl moii_impl_combine_ref = {
    .name = "combine_ref", .op = MOII_OP_COMBINE, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .is_reference = true, .run = run, .run_backward = run_backward,
};
