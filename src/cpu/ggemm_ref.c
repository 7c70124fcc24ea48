/* SPDX-License-Identifier: Apache-2.0
 * ggemm_ref.c: one strict product per group. */
#include <stdlib.h>

#include "product.h"
#include "then_swiglu.h"

static void unplan(moi_plan *plan)
{
    moii_then_swiglu *then = plan->state;
    moi_plan_free(then->plan);
    free(then);
}

static moi_status plan_(moi_plan *plan)
{
    if (!plan->desc.ggemm.swiglu) return MOI_OK;
    moii_then_swiglu *then = calloc(1, sizeof *then);
    MOII_REQUIRE(then, MOI_ERR_NOMEM, "ggemm plan: no memory");
    plan->state = then, plan->unplan = unplan;
    return moii_then_swiglu_plan(then, plan);
}

static void multiply(const moi_plan *plan, const moi_ggemm_args *args)
{
    const moi_ggemm_desc *d = &plan->desc.ggemm;
    bool masked = d->grouping == MOI_GROUP_MASKED, by_rows = d->grouping == MOI_GROUP_M || masked;
    int64_t m = by_rows ? args->rows : d->m, k = by_rows ? d->k : args->rows, cuts = by_rows ? 0 : d->groups;
    int64_t ldd = args->ldd ? args->ldd : d->n;
    moii_view a = moii_view_of(&d->a, d->a_order, &args->a, m, k, cuts);
    if (d->gather_rows) a = moii_view_of(&d->a, d->a_order, &args->a, args->a_rows, k, 0), a.rows_of = args->rows_of_a;
    moii_view b = moii_view_of(&d->b, d->b_order, &args->b, d->n, k, cuts);
    for (int64_t g = 0; g < d->groups; g++) {
        int64_t from = masked ? 0 : args->offsets[g], to = masked ? args->counts[g] : args->offsets[g + 1];
        if (masked) {
            moii_view ag = moii_view_at(a, g, m, k), bg = moii_view_at(b, g, d->n, k);
            moii_range rows = { 0, to, 0, d->n, 0, k };
            moii_product_strict(&ag, &bg, rows, d->out, d->accumulate, (char *)args->d + g * m * moi_row_bytes(d->out, ldd), ldd);
        } else if (by_rows) {
            moii_view bg = moii_view_at(b, g, d->n, k);
            moii_range rows = { from, to, 0, d->n, 0, k };
            for (int64_t r = from; r < to; r++) {
                int64_t line = d->scatter_rows ? args->rows_of_d[r] : r;
                if (line < 0) continue;
                moii_product_strict_row(&a, &bg, rows, r, d->weighted ? &args->row_weight[r] : NULL, d->out, d->accumulate,
                                        (char *)args->d + line * moi_row_bytes(d->out, ldd));
            }
        } else {
            moii_view ag = moii_view_group(a, g, from), bg = moii_view_group(b, g, from);
            moii_range depth = { 0, m, 0, d->n, from, to };
            moii_product_strict(&ag, &bg, depth, d->out, d->accumulate, (char *)args->d + g * m * moi_row_bytes(d->out, ldd), ldd);
        }
    }
}

static moi_status run(const moi_plan *plan, const void *args, void *workspace, moi_stream stream)
{
    const moii_then_swiglu *then = plan->state;
    if (!then) {
        multiply(plan, args);
        return MOI_OK;
    }
    moi_ggemm_args product = moii_then_swiglu_product(then, plan, args, workspace);
    multiply(plan, &product);
    return moii_then_swiglu_run(then, args, workspace, stream);
}

const moii_impl moii_impl_ggemm_ref = {
    .name = "ggemm_ref", .op = MOII_OP_GGEMM, .backend = MOI_BACKEND_CPU, .recipes = MOII_ALL_RECIPES,
    .is_reference = true, .plan = plan_, .run = run,
};
