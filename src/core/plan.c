/* SPDX-License-Identifier: Apache-2.0
 * plan.c: choosing a row, and what all plans share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctx.h"
#include "format.h"
#include "log.h"
#include "status.h"

static void append(char *text, size_t size, const char *row, const char *why)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s: %s", used ? "; " : "", row, why);
}

const char *moii_plan_declines(const moii_impl *r, const moi_ctx *ctx, const void *desc, uint32_t recipes, bool named)
{
    const char *why = "declined without a reason";
    if (r->backend != ctx->backend->id) return "belongs to another back end";
    if (ctx->reference_only && !r->is_reference && !named) return "is not the reference, which the context asks for";
    if (r->is_unverified && !named) return "never ran on real hardware; name it to use it";
    if (recipes & ~r->recipes) return "does not know the recipe";
    if (r->op == MOII_OP_MOE_DECODE && !r->takes_logits && ((const moi_moe_decode_desc *)desc)->from_logits) return "takes ids and weights, no logits";
    if (r->supports && !r->supports(ctx, desc, &why)) return why;
    return NULL;
}

static const moii_impl *choose(moi_ctx *ctx, moii_op op, const void *desc, const char *row, uint32_t recipes, char *reasons, size_t size)
{
    for (int i = 0; i < moii_impl_count; i++) {
        const moii_impl *r = moii_impls[i];
        if (r->op != op || (row && strcmp(row, r->name) != 0)) continue;
        const char *why = moii_plan_declines(r, ctx, desc, recipes, row != NULL);
        if (!why) return r;
        append(reasons, size, r->name, why);
        moii_log(ctx, MOI_LOG_DEBUG, "dispatch: %s declines: %s", r->name, why);
    }
    if (!*reasons) append(reasons, size, row ? row : moii_op_name(op), "no such row");
    return NULL;
}

moi_status moii_plan_make(moi_plan **out, moi_ctx *ctx, moii_op op, const void *desc, size_t desc_bytes, const char *row,
                          uint32_t recipes)
{
    char reasons[768] = "";
    *out = NULL;
    const moii_impl *impl = NULL;
    if (op < MOII_OP_MOE) {
        impl = choose(ctx, op, desc, row, recipes, reasons, sizeof reasons);
        MOII_REQUIRE(impl, MOI_ERR_UNSUPPORTED, "%s plan: no row supports this: %s", moii_op_name(op), reasons);
    }
    moi_plan *plan = calloc(1, sizeof *plan);
    MOII_REQUIRE(plan, MOI_ERR_NOMEM, "%s plan: no memory", moii_op_name(op));
    plan->ctx = ctx;
    plan->op = op;
    plan->impl = impl;
    memcpy(&plan->desc, desc, desc_bytes);
    moi_status status = impl && impl->plan ? impl->plan(plan) : MOI_OK;
    if (status) {
        moi_plan_free(plan);
        return status;
    }
    if (impl) moii_log(ctx, MOI_LOG_DEBUG, "dispatch: %s plan uses %s", moii_op_name(op), impl->name);
    *out = plan;
    return MOI_OK;
}

moi_status moii_run_check(const moi_plan *plan, moii_op op, const void *args, const void *workspace, int64_t workspace_bytes,
                          moi_stream stream)
{
    const char *name = moii_op_name(op);
    MOII_REQUIRE(plan, MOI_ERR_ARG, "%s run: plan is NULL", name);
    MOII_REQUIRE(plan->op == op, MOI_ERR_ARG, "%s run: the plan is for %s", name, moii_op_name(plan->op));
    MOII_REQUIRE(args, MOI_ERR_ARG, "%s run: args is NULL", name);
    MOII_REQUIRE(plan->ctx->backend->id != MOI_BACKEND_CPU || !stream, MOI_ERR_ARG, "%s run: the cpu back end has no streams; pass NULL", name);
    if (plan->workspace_bytes == 0) return MOI_OK;
    MOII_REQUIRE(workspace && workspace_bytes >= plan->workspace_bytes, MOI_ERR_WORKSPACE, "%s run: workspace must hold %lld bytes, got %lld%s",
                 name, (long long)plan->workspace_bytes, (long long)workspace_bytes, workspace ? "" : " at NULL");
    MOII_REQUIRE(moii_aligned(workspace, MOII_WORKSPACE_ALIGN), MOI_ERR_ALIGN, "%s run: workspace must be aligned to 128 bytes, got %p", name, workspace);
    return MOI_OK;
}

moi_status moii_offsets_check(const moi_plan *plan, const char *where, const int64_t *offsets, int64_t groups, int64_t rows)
{
    MOII_REQUIRE(offsets, MOI_ERR_ARG, "%s: offsets is NULL; the plan has %lld groups", where, (long long)groups);
    if (plan->ctx->backend->id != MOI_BACKEND_CPU) return MOI_OK;
    MOII_REQUIRE(offsets[0] == 0, MOI_ERR_ARG, "%s: offsets[0] must be 0, got %lld", where, (long long)offsets[0]);
    for (int64_t g = 0; g < groups; g++)
        MOII_REQUIRE(offsets[g] <= offsets[g + 1], MOI_ERR_ARG, "%s: offsets must ascend, got %lld before %lld at %lld", where,
                     (long long)offsets[g], (long long)offsets[g + 1], (long long)g);
    MOII_REQUIRE(offsets[groups] <= rows, MOI_ERR_ARG, "%s: offsets[%lld] must be <= rows = %lld, got %lld", where,
                 (long long)groups, (long long)rows, (long long)offsets[groups]);
    return MOI_OK;
}

int64_t moi_plan_workspace_bytes(const moi_plan *plan) { return plan ? plan->workspace_bytes : 0; }
const char *moi_plan_row(const moi_plan *plan)
{
    return !plan ? "" : plan->impl ? plan->impl->name : moii_op_name(plan->op);
}

void moi_plan_free(moi_plan *plan)
{
    if (!plan) return;
    moi_plan_free(plan->grouped);
    if (plan->unplan) plan->unplan(plan);
    free(plan);
}
