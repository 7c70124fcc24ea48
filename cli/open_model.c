/* SPDX-License-Identifier: Apache-2.0
 * open_model.c: a model folder as the commands that only run it open it. */
#include "open_model.h"

bool model_open(opened *m, const char *command, moi_ctx *ctx, const char *path, const char *recipe)
{
    moi_lm_options options = MOI_LM_OPTIONS_INIT;
    *m = (opened){ .command = command, .path = path, .recipe = recipe, .ctx = ctx, .config = MOI_LM_CONFIG_INIT };
    options.recipe = cmd_recipe(recipe);
    const bool as_is = options.recipe == MOI_RECIPE_F32 || options.recipe == MOI_RECIPE_BF16;
    const moi_status status = as_is ? moi_lm_open(&m->lm, ctx, path, &options) : moi_lm_load(&m->lm, ctx, path, &options);
    if (!status && !moi_lm_get_config(m->lm, &m->config)) return true;
    cmd_failed(command);
    return false;
}

void model_close(opened *m)
{
    moi_lm_free(m->lm);
    m->lm = NULL;
}
