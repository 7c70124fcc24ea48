/* SPDX-License-Identifier: Apache-2.0
 * cmd.c: what the commands share. */
#include "cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build_info.h"

int cmd_failed(const char *command)
{
    fprintf(stderr, "moiety %s: %s\n", command, moi_last_error());
    return CMD_FAILED;
}

moi_ctx *cmd_ctx(const char *command, int64_t threads)
{
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    moi_ctx *ctx = NULL;
    config.threads = (int32_t)threads;
    if (!getenv("MOI_BACKEND")) config.backend = MOI_BACKEND_CPU;
    if (moi_ctx_create(&ctx, &config)) cmd_failed(command);
    return ctx;
}

moi_recipe cmd_recipe(const char *name)
{
    moi_recipe recipe = MOI_RECIPE_F32;
    while (recipe < MOI_RECIPE_BLK128 && strcmp(name, moi_recipe_name(recipe))) recipe++;
    return recipe;
}

const char *cmd_commit(void) { return BUILD_COMMIT; }
