/* SPDX-License-Identifier: Apache-2.0
 * open_model.h: a model folder as the commands that only run it open it. */
#ifndef OPEN_MODEL_H
#define OPEN_MODEL_H

#include "cmd.h"
#include "moiety_lm.h"

typedef struct opened {
    const char *command, *path, *recipe;
    moi_ctx *ctx;
    moi_lm *lm;
    moi_lm_config config;
} opened;

/* How --help explains --recipe: one text for all of them. */
#define OPEN_RECIPE_DEFAULT "bf16"
#define OPEN_RECIPE_HELP "bf16, f32: weights as the files have them, their inputs so;\n" \
    "                           mx32, blk128: both in 8 bits, weights quantised while loading"

/* false after a message */
bool model_open(opened *m, const char *command, moi_ctx *ctx, const char *path, const char *recipe);
void model_close(opened *m);

#endif
