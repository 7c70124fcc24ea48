/* SPDX-License-Identifier: Apache-2.0
 * trainer_files.c: saves a training run and continues one.  Model, moments and trainer.json carry the same step. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "config.h"
#include "json_file.h"
#include "status.h"
#include "trainer.h"

enum { TRAINER_JSON_MAX = 1 << 16 };

static json_t *trainer_json(const moi_trainer *t)
{
    const moi_train_config *c = &t->config;
    const moi_lm_options *o = &t->lm->options;
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:s, s:s, s:s, s:s}", "format", "moiety trainer",
                     "version", 1, "step", (json_int_t)t->done, "batch", (json_int_t)c->batch, "seq", (json_int_t)c->seq, "steps",
                     (json_int_t)c->steps, "warmup_steps", (json_int_t)c->warmup_steps, "lr", moii_json_float(c->lr), "min_lr",
                     moii_json_float(c->min_lr), "beta1", moii_json_float(c->beta1), "beta2", moii_json_float(c->beta2), "eps",
                     moii_json_float(c->eps), "weight_decay", moii_json_float(c->weight_decay), "clip_norm", moii_json_float(c->clip_norm),
                     "seed", (json_int_t)c->seed, /* its 64 bits, read as a signed number */
                     "recipe", moi_recipe_name(o->recipe), "elem_forward", moi_dtype_name(o->elem_forward), "elem_gradient",
                     moi_dtype_name(o->elem_gradient), "round", moi_round_name(o->round));
}

static moii_tensors moments(const moi_trainer *t)
{
    return (moii_tensors){ t->lm, 2, { ".exp_avg", ".exp_avg_sq" }, { t->m, t->v } };
}

moi_status moi_trainer_save(const moi_trainer *t, const char *folder)
{
    moii_path path;
    MOII_REQUIRE(t && folder, MOI_ERR_ARG, "moi_trainer_save: %s is NULL", t ? "folder" : "trainer");
    MOII_TRY(moii_folder_begin(folder, moii_file_names, MOII_FILES));
    MOII_TRY(moii_model_write(t->lm, folder, MOI_F32, t->done));
    MOII_TRY(moii_folder_next(&path, folder, moii_file_names[MOII_FILE_OPTIMIZER]));
    const moii_tensors state = moments(t);
    MOII_TRY(moii_tensors_save(&state, path.text, MOI_F32, t->done));
    MOII_TRY(moii_folder_next(&path, folder, moii_file_names[MOII_FILE_TRAINER]));
    json_t *json = trainer_json(t);
    MOII_REQUIRE(json, MOI_ERR_NOMEM, "moi_trainer_save: no memory");
    moi_status status = moii_json_save(json, path.text);
    json_decref(json);
    MOII_TRY(status);
    return moii_folder_commit(folder, moii_file_names, MOII_FILES);
}

/* ---- loading ---- */

/* The number n < count whose name(n) is the string at `key`. */
#define BY_NAME(out, type, name, count)                                                                                   \
    do {                                                                                                                  \
        const char *text_ = "";                                                                                           \
        MOII_TRY(moii_json_string(j, path, key, MOII_JSON_REQUIRED, &text_));                                             \
        int n_ = 0;                                                                                                       \
        while (n_ < (count) && strcmp(name((type)n_), text_) != 0) n_++;                                                  \
        MOII_REQUIRE(n_ < (count), MOI_ERR_FORMAT, "%s: %s is unknown: \"%.40s\"", path, key, text_);                     \
        *(out) = (type)n_;                                                                                                \
    } while (0)

static moi_status read_recipe(const json_t *j, const char *path, const char *key, moi_recipe *out)
{
    BY_NAME(out, moi_recipe, moi_recipe_name, MOI_RECIPE_BLK128 + 1);
    return MOI_OK;
}
static moi_status read_dtype(const json_t *j, const char *path, const char *key, moi_dtype *out)
{
    BY_NAME(out, moi_dtype, moi_dtype_name, MOI_BOOL + 1);
    return MOI_OK;
}
static moi_status read_round(const json_t *j, const char *path, const char *key, moi_round *out)
{
    BY_NAME(out, moi_round, moi_round_name, MOI_ROUND_EVEN + 1);
    return MOI_OK;
}

static moi_status read_train_config(const json_t *j, const char *path, moi_train_config *c, int64_t *step)
{
    const char *format = "";
    int64_t version = 0, seed = 0;
    MOII_TRY(moii_json_string(j, path, "format", MOII_JSON_REQUIRED, &format));
    MOII_REQUIRE(!strcmp(format, "moiety trainer"), MOI_ERR_FORMAT, "%s: format must be \"moiety trainer\", got \"%.40s\"", path, format);
    MOII_TRY(moii_json_int(j, path, "version", MOII_JSON_REQUIRED, 1, 1, &version));
    const struct { const char *key; int64_t *out; } sizes[] = {
        { "step", step }, { "batch", &c->batch }, { "seq", &c->seq }, { "steps", &c->steps }, { "warmup_steps", &c->warmup_steps },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        MOII_TRY(moii_json_int(j, path, sizes[i].key, MOII_JSON_REQUIRED, 0, INT64_MAX / 2, sizes[i].out));
    const struct { const char *key; float *out; } reals[] = {
        { "lr", &c->lr }, { "min_lr", &c->min_lr }, { "beta1", &c->beta1 }, { "beta2", &c->beta2 }, { "eps", &c->eps },
        { "weight_decay", &c->weight_decay }, { "clip_norm", &c->clip_norm },
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        MOII_TRY(moii_json_get_float(j, path, reals[i].key, MOII_JSON_REQUIRED, 0.0, 1e38, reals[i].out));
    MOII_TRY(moii_json_int(j, path, "seed", MOII_JSON_REQUIRED, INT64_MIN, INT64_MAX, &seed));
    c->seed = (uint64_t)seed;
    return MOI_OK;
}

static moi_status read_options(const json_t *j, const char *path, moi_lm_options *o)
{
    MOII_TRY(read_recipe(j, path, "recipe", &o->recipe));
    MOII_TRY(read_dtype(j, path, "elem_forward", &o->elem_forward));
    MOII_TRY(read_dtype(j, path, "elem_gradient", &o->elem_gradient));
    return read_round(j, path, "round", &o->round);
}

static moi_status load_moments(moi_trainer *t, const char *folder, int64_t model_step)
{
    moii_path path;
    int64_t step;
    MOII_TRY(moii_folder_path(&path, folder, moii_file_names[MOII_FILE_OPTIMIZER]));
    const moii_tensors state = moments(t);
    MOII_TRY(moii_tensors_load(&state, path.text, &step));
    MOII_REQUIRE(step == t->done && model_step == t->done, MOI_ERR_FORMAT,
                 "%s: the files are of different saves: trainer.json is of step %lld, model.safetensors of %lld, optimizer.safetensors of %lld (-1: none)",
                 folder, (long long)t->done, (long long)model_step, (long long)step);
    return MOI_OK;
}

static moi_status load(moi_trainer **out, moi_lm **lm, moi_ctx *ctx, const char *folder, const json_t *j, const char *path,
                       const moi_lm_options *options)
{
    moi_train_config config = MOI_TRAIN_CONFIG_INIT;
    moi_lm_options o = MOI_LM_OPTIONS_INIT;
    int64_t step, model_step;
    MOII_TRY(read_train_config(j, path, &config, &step));
    MOII_TRY(read_options(j, path, &o));
    if (options) MOII_TRY(moii_options_take(&o, options, "moi_trainer_load: options"));
    MOII_TRY(moii_model_read(lm, ctx, folder, &o, &model_step));
    MOII_TRY(moii_train_config_check(&config, *lm, path, MOI_ERR_FORMAT));
    MOII_TRY(moi_trainer_create(out, *lm, &config));
    (*out)->done = step;
    return load_moments(*out, folder, model_step);
}

moi_status moi_trainer_load(moi_trainer **out, moi_lm **lm, moi_ctx *ctx, const char *folder, const moi_lm_options *options)
{
    moii_path path;
    json_t *j;
    MOII_REQUIRE(out && lm && ctx && folder, MOI_ERR_ARG, "moi_trainer_load: %s is NULL", !out ? "out" : !lm ? "lm" : ctx ? "folder" : "ctx");
    *out = NULL;
    *lm = NULL;
    MOII_TRY(moii_folder_path(&path, folder, moii_file_names[MOII_FILE_TRAINER]));
    MOII_TRY(moii_json_load(&j, path.text, TRAINER_JSON_MAX));
    moi_status status = load(out, lm, ctx, folder, j, path.text, options);
    json_decref(j);
    if (!status) return MOI_OK;
    moi_trainer_free(*out);
    moi_lm_free(*lm);
    *out = NULL;
    *lm = NULL;
    return status;
}
