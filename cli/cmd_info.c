/* SPDX-License-Identifier: Apache-2.0
 * cmd_info.c: moiety info: the machine, the rows, the environment. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cmd.h"
#include "info_plan.h"

static const struct { const char *name, *about; } variables[] = {
    { "MOI_BACKEND", "auto, cpu or cuda" },
    { "MOI_CPU_THREADS", "1 to 1024; all cores if not set" },
    { "MOI_CPU_ISA", "the most that SIMD code may use: generic or avx2" },
    { "MOI_LOG", "error, warn, info or debug; warn if not set" },
    { "MOI_NVRTC", "the compiler of GPU kernels, libnvrtc.so.13 or .12, or its folder" },
    { "MOI_CACHE", "where compiled GPU kernels are kept; ~/.cache/moiety if not set; empty: nowhere" },
    { "MOI_KERNELS", "a folder of GPU kernels made by 'moiety kernels compile'" },
};
enum { VARIABLES = sizeof variables / sizeof *variables, RECIPES = 4 };

static const char *kind(const moi_row_info *r)
{
    return r->is_unverified ? "unverified" : r->is_reference ? "reference" : "fast";
}

static const char *backend(const moi_row_info *r) { return r->backend == MOI_BACKEND_CUDA ? "cuda" : "cpu"; }

static bool has(const moi_row_info *r, int recipe) { return (r->recipes >> recipe & 1) != 0; }

static void show_rows(void)
{
    moi_row_info r;
    printf("\n  %-12s %-20s %-8s %-11s recipes\n", "operation", "row", "on", "kind");
    for (int i = 0; i < moi_row_count(); i++) {
        if (moi_row_get(i, &r)) continue;
        printf("  %-12s %-20s %-8s %-11s", r.op, r.name, backend(&r), kind(&r));
        for (int recipe = 0; recipe < RECIPES; recipe++)
            if (has(&r, recipe)) printf(" %s", moi_recipe_name((moi_recipe)recipe));
        printf("\n");
    }
    printf("\nThe first row of an operation that supports a problem is chosen; the reference defines what is right.\n");
}

static void show_line(void *user, const char *name, const char *value)
{
    (void)user;
    printf("  %-10s %s\n", name, value);
}

static void show_text(const moi_ctx *ctx)
{
    printf("moiety %s (%s)\n%s\n\ncuda:\n", moi_version(), cmd_commit(), moi_ctx_describe(ctx));
    moi_cuda_describe(show_line, NULL);
    show_rows();
    printf("\nEnvironment:\n");
    for (int i = 0; i < VARIABLES; i++) {
        const char *value = getenv(variables[i].name);
        printf("  %-16s %-12s %s\n", variables[i].name, value ? value : "(not set)", variables[i].about);
    }
}

static void show_markdown(void)
{
    moi_row_info r;
    printf("| operation | row | runs on | kind | f32 | bf16 | mx32 | blk128 |\n|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < moi_row_count(); i++) {
        if (moi_row_get(i, &r)) continue;
        printf("| %s | `%s` | %s | %s |", r.op, r.name, backend(&r), kind(&r));
        for (int recipe = 0; recipe < RECIPES; recipe++) printf(" %s |", has(&r, recipe) ? "yes" : "");
        printf("\n");
    }
}

static json_t *row_json(const moi_row_info *r)
{
    json_t *recipes = json_array();
    for (int recipe = 0; recipe < RECIPES; recipe++)
        if (has(r, recipe)) json_array_append_new(recipes, json_string(moi_recipe_name((moi_recipe)recipe)));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "operation", r->op, "row", r->name, "backend", backend(r), "kind", kind(r),
                     "recipes", recipes);
}

static void add_line(void *user, const char *name, const char *value) { json_object_set_new(user, name, json_string(value)); }

static int show_json(const moi_ctx *ctx)
{
    json_t *rows = json_array(), *environment = json_object(), *cuda = json_object();
    moi_cuda_describe(add_line, cuda);
    moi_row_info r;
    for (int i = 0; i < moi_row_count(); i++)
        if (!moi_row_get(i, &r)) json_array_append_new(rows, row_json(&r));
    for (int i = 0; i < VARIABLES; i++) {
        const char *value = getenv(variables[i].name);
        json_object_set_new(environment, variables[i].name, value ? json_string(value) : json_null());
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:o}", "version", moi_version(), "commit", cmd_commit(), "context",
                            moi_ctx_describe(ctx), "threads", moi_ctx_threads(ctx), "cuda", cuda, "rows", rows, "environment", environment);
    if (!all) return fprintf(stderr, "moiety info: the environment is not UTF-8\n"), CMD_FAILED;
    json_dumpf(all, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(all);
    return CMD_DONE;
}

int cmd_info(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "plan")) return info_plan(argc - 1, argv + 1);
    bool json = false, markdown = false;
    const char *on = "auto";
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    arg table[] = {
        { "backend", ARG_CHOICE, &on, "auto|cpu|cuda", "the back end to start; auto: cuda where there is a device", .required = false },
        { "json", ARG_FLAG, &json, .help = "print JSON" },
        { "markdown", ARG_FLAG, &markdown, .help = "print the table of implementations as README.md shows it" },
    };
    args_spec spec = ARGS_SPEC("info", "Shows the version, the machine, every implementation with what it supports, and the\n"
                                       "environment variables that matter.  'moiety info plan --help': what a product would get, and why.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if (markdown) return show_markdown(), CMD_DONE;
    moi_ctx *ctx;
    config.backend = !strcmp(on, "cpu") ? MOI_BACKEND_CPU : !strcmp(on, "cuda") ? MOI_BACKEND_CUDA : MOI_BACKEND_AUTO;
    if (moi_ctx_create(&ctx, &config)) return cmd_failed("info");
    if (json) verdict = show_json(ctx);
    else show_text(ctx), verdict = CMD_DONE;
    moi_ctx_free(ctx);
    return verdict;
}
