/* SPDX-License-Identifier: Apache-2.0
 * explain.c: what a plan would be: every row's verdict, then what the chosen one says of itself. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctx.h"
#include "status.h"

static void tell(const moi_explain_config *to, const char *name, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    to->each(to->user, name, text);
}

static const moii_impl *choose(const moi_ctx *ctx, moii_op op, const void *desc, const char *row, uint32_t recipes, const moi_explain_config *to,
                               const moii_impl **next_best)
{
    const moii_impl *chosen = NULL;
    *next_best = NULL;
    for (int i = 0; i < moii_impl_count; i++) {
        const moii_impl *r = moii_impls[i];
        if (r->op != op || (row && strcmp(row, r->name) != 0)) continue;
        const char *why = moii_plan_declines(r, ctx, desc, recipes, row != NULL);
        tell(to, "row", "%s: %s", r->name, why ? why : chosen ? "could do it too" : "chosen");
        if (!why && !chosen) chosen = r;
        if (why && !*next_best && r->is_unverified && !moii_plan_declines(r, ctx, desc, recipes, true)) *next_best = r;
    }
    return chosen;
}

static moi_status tell_workspace(moi_ctx *ctx, moii_op op, const void *desc, size_t desc_bytes, const moii_impl *r, uint32_t recipes,
                                 const moi_explain_config *to)
{
    moi_plan *plan;
    MOII_TRY(moii_plan_make(&plan, ctx, op, desc, desc_bytes, r->name, recipes));
    tell(to, "workspace", "%lld", (long long)plan->workspace_bytes);
    moi_plan_free(plan);
    return MOI_OK;
}

/* P:gemm.bound of the CPU's rows. */
static void tell_bound(moii_op op, const void *desc, const moi_explain_config *to)
{
    const moi_gemm_desc *d = desc;
    const moi_ggemm_desc *g = desc;
    bool dense = op == MOII_OP_GEMM, added = dense ? d->accumulate : g->accumulate;
    int64_t k = dense ? d->k : g->grouping == MOI_GROUP_K ? g->max_rows : g->k;
    tell(to, "bound", "|D - exact| <= %lld 2^-24 (S%s), S = sum |A B|, + half a unit of %s", (long long)k + 4, added ? " + |D|" : "",
         moi_dtype_name(dense ? d->out : g->out));
}

static moi_status explain(moi_ctx *ctx, moii_op op, const void *desc, size_t desc_bytes, const char *row, uint32_t recipes,
                          const moi_explain_config *to)
{
    const moii_impl *next_best, *chosen = choose(ctx, op, desc, row, recipes, to, &next_best), *of = chosen ? chosen : next_best;
    tell(to, "chosen", "%s", chosen ? chosen->name : "none");
    if (!of) return MOI_OK;
    if (!chosen) tell(to, "shown", "%s", of->name);
    MOII_TRY(tell_workspace(ctx, op, desc, desc_bytes, of, recipes, to));
    if (of->explain) of->explain(ctx, desc, to);
    else tell_bound(op, desc, to);
    return MOI_OK;
}

moi_status moii_plan_explain(moi_ctx *ctx, moii_op op, const void *desc, size_t desc_bytes, const char *row, uint32_t recipes,
                             const moi_explain_config *config)
{
    const char *name = moii_op_name(op);
    moi_explain_config to = MOI_EXPLAIN_CONFIG_INIT;
    MOII_TRY(moii_take(&to, sizeof to, config, "explain: config"));
    MOII_REQUIRE(to.each, MOI_ERR_ARG, "%s explain: config.each is NULL", name);
    MOII_REQUIRE(to.capability >= 0 && to.sms >= 1 && to.sms <= 4096, MOI_ERR_ARG,
                 "%s explain: config.capability must be >= 0 and sms 1..4096, got %d and %d", name, (int)to.capability, (int)to.sms);
    if (!to.capability && !ctx->backend->imagine) return explain(ctx, op, desc, desc_bytes, row, recipes, &to);
    moi_ctx imagined = *ctx;
    imagined.backend = &moii_backend_cuda;
    MOII_TRY(imagined.backend->imagine(&imagined, ctx, to.capability, to.sms));
    moi_status status = explain(&imagined, op, desc, desc_bytes, row, recipes, &to);
    free(imagined.state);
    return status;
}
