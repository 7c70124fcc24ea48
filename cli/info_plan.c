/* SPDX-License-Identifier: Apache-2.0
 * info_plan.c: moiety info plan: which row a product would get, how its work would be cut, and why. */
#include <stdio.h>
#include <string.h>

#include "../bench/bench.h"
#include "args.h"
#include "cmd.h"
#include "info_plan.h"

typedef struct options {
    const char *op, *group, *a, *b, *layout, *out, *mx, *arch, *row;
    bool accumulate, overlap;
    const char *swiglu;
    int64_t m, n, k, groups, rows, expected, gather, scatter, sms, sm_limit;
} options;

#define FORMATS "f32|bf16|mxfp8|mxe5m2|mxfp6|mxe3m2|mxfp4|mxint8|blk128|blk128w"
enum { TABLE = 22 };

static int parse(options *o, int argc, char **argv)
{
    arg table[TABLE] = {
        { "OP", ARG_CHOICE, &o->op, "gemm|ggemm", "the operation", .required = true },
        { "m", ARG_INT, &o->m, "N", "rows of A and D (ggemm: for --group k)", .min = 0, .max = 1e15 },
        { "n", ARG_INT, &o->n, "N", "rows of B, columns of D", .min = 0, .max = 1e15 },
        { "k", ARG_INT, &o->k, "N", "the reduction (ggemm: not for --group k)", .min = 0, .max = 1e15 },
        { "group", ARG_CHOICE, &o->group, "m|k|masked", "ggemm: what is cut into groups", .required = false },
        { "groups", ARG_INT, &o->groups, "N", "ggemm: how many", .min = 0, .max = 1e15 },
        { "rows", ARG_INT, &o->rows, "N", "ggemm: of the ragged dimension; masked: of each group", .min = 0, .max = 1e15 },
        { "expected", ARG_INT, &o->expected, "N", "ggemm: rows that all groups mostly have, 0: all", .min = 0, .max = 1e15 },
        { "gather", ARG_INT, &o->gather, "N", "ggemm: an index list names its rows of the N that A has; 0: none", .min = 0, .max = 1e15 },
        { "scatter", ARG_INT, &o->scatter, "N", "ggemm: a list names where its rows go, of the N that D has; 0: none", .min = 0, .max = 1e15 },
        { "swiglu", ARG_CHOICE, &o->swiglu, FORMATS, "ggemm: B is gate and up, and this the format of what SwiGLU makes of the product", .required = false },
        { "a", ARG_CHOICE, &o->a, FORMATS, "format of A", .required = false },
        { "b", ARG_CHOICE, &o->b, FORMATS, "format of B; A's, but squares beside blk128, if not given", .required = false },
        { "layout", ARG_CHOICE, &o->layout, "row|tiled|col", "of the scales, but for squares", .required = false },
        { "out", ARG_CHOICE, &o->out, "bf16|f32", "element of D", .required = false },
        { "accumulate", ARG_FLAG, &o->accumulate, .help = "D is added to" },
        { "mx", ARG_CHOICE, &o->mx, "free|128|row", "what is promised of 1x32 scales: nothing, equal in 128, equal in a row", .required = false },
        { "arch", ARG_CHOICE, &o->arch, "own|cpu|sm_90a|sm_100a", "the device: this machine's, or a GPU that need not be there", .required = false },
        { "sms", ARG_INT, &o->sms, "N", "that GPU's multiprocessors", .min = 1, .max = 4096 },
        { "sm-limit", ARG_INT, &o->sm_limit, "N", "of which the plan may use so many, 0: all", .min = 0, .max = 4096 },
        { "overlap", ARG_FLAG, &o->overlap, .help = "the plan starts beside its predecessor" },
        { "row", ARG_TEXT, &o->row, "NAME", "this row alone", .required = false },
    };
    args_spec spec = ARGS_SPEC("info plan", "Shows which implementation a matrix product would get and why others would not, how its work would\n"
                                            "be cut, with the estimate for each candidate, its workspace, and the bound on its error.  BF16 with\n"
                                            "--group k: both MN-major.\n", table);
    return args_parse(&spec, argc, argv);
}

static moi_format format_of(const options *o, const char *name)
{
    moi_format f = { 0 };
    bench_format(name, &f); /* a choice of the table: there is one */
    if (f.block != MOI_BLOCK_SQUARE && f.recipe > MOI_RECIPE_BF16)
        f.layout = !strcmp(o->layout, "col") ? MOI_LAYOUT_COL : !strcmp(o->layout, "tiled") ? MOI_LAYOUT_TILED : MOI_LAYOUT_ROW;
    return f;
}

static void show(void *user, const char *name, const char *value)
{
    const char **last = user;
    printf("  %-16s %s\n", *last && !strcmp(*last, name) ? "" : name, value);
    *last = name;
}

static moi_status explain(moi_ctx *ctx, const options *o)
{
    const char *last = NULL;
    moi_explain_config to = MOI_EXPLAIN_CONFIG_INIT;
    to.each = show, to.user = (void *)&last;
    to.capability = !strcmp(o->arch, "sm_90a") ? 90 : !strcmp(o->arch, "sm_100a") ? 100 : 0;
    to.sms = (int32_t)o->sms;
    moi_format a = format_of(o, o->a), b = format_of(o, o->b);
    moi_dtype out = !strcmp(o->out, "f32") ? MOI_F32 : MOI_BF16;
    moi_mx_scales mx = !strcmp(o->mx, "128") ? MOI_MX_PER_128 : !strcmp(o->mx, "row") ? MOI_MX_PER_ROW : MOI_MX_FREE;
    if (!strcmp(o->op, "gemm")) {
        moi_gemm_desc d = { .size = sizeof d, .row = o->row, .a = a, .b = b, .out = out, .accumulate = o->accumulate, .max_m = o->m, .n = o->n, .k = o->k,
                            .mx = mx, .sm_limit = (int32_t)o->sm_limit, .overlap = o->overlap };
        return moi_gemm_explain(ctx, &d, &to);
    }
    moi_ggemm_desc d = { .size = sizeof d, .row = o->row, .a = a, .b = b, .out = out, .accumulate = o->accumulate, .groups = o->groups,
                         .max_rows = o->rows, .n = o->n, .mx = mx, .expected_rows = o->expected, .sm_limit = (int32_t)o->sm_limit, .overlap = o->overlap,
                         .gather_rows = o->gather, .scatter_rows = o->scatter };
    if (o->swiglu) d.swiglu = true, d.rowwise = format_of(o, o->swiglu);
    d.grouping = !strcmp(o->group, "k") ? MOI_GROUP_K : !strcmp(o->group, "masked") ? MOI_GROUP_MASKED : MOI_GROUP_M;
    if (d.grouping == MOI_GROUP_K) {
        d.m = o->m;
        if (a.recipe == MOI_RECIPE_BF16) d.a_order = d.b_order = MOI_MN_MAJOR;
    } else d.k = o->k;
    return moi_ggemm_explain(ctx, &d, &to);
}

int info_plan(int argc, char **argv)
{
    options o = { .group = "m", .a = "blk128", .layout = "row", .out = "bf16", .mx = "free", .arch = "own", .groups = 8, .sms = 132,
                  .m = 4096, .n = 4096, .k = 4096, .rows = 4096 };
    int verdict = parse(&o, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if (!o.b) o.b = !strcmp(o.a, "blk128") && strcmp(o.group, "k") != 0 ? "blk128w" : o.a;
    moi_ctx *ctx;
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    config.backend = strcmp(o.arch, "own") ? MOI_BACKEND_CPU : MOI_BACKEND_AUTO;
    if (moi_ctx_create(&ctx, &config)) return cmd_failed("info plan");
    moi_status status = explain(ctx, &o);
    moi_ctx_free(ctx);
    return status ? cmd_failed("info plan") : CMD_DONE;
}
