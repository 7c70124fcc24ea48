/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.c: config.json and model.safetensors with the hub's tensor names. */
#include "checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "json_file.h"
#include "num.h"
#include "safetensors.h"
#include "status.h"

const char *const moii_file_names[MOII_FILES] = { "config.json", "model.safetensors", "optimizer.safetensors", "trainer.json" };

enum { PIECE = 1 << 16, NAME_MAX_BYTES = 192 }; /* floats converted at a time */

static const char step_key[] = "moiety.step";

typedef struct tensor_name { char text[NAME_MAX_BYTES]; } tensor_name;

static const char *name_of(tensor_name *name, const moii_tensors *t, int set, const moii_param *p)
{
    snprintf(name->text, sizeof name->text, "%s%s", p->name, t->suffixes[set]);
    return name->text;
}

static moi_status declare_all(const moii_tensors *t, moi_st_writer *w, moi_dtype dtype, int64_t step)
{
    char number[32];
    tensor_name name;
    snprintf(number, sizeof number, "%lld", (long long)step);
    MOII_TRY(moi_st_writer_metadata(w, "format", "pt"));
    if (step >= 0) MOII_TRY(moi_st_writer_metadata(w, step_key, number));
    for (int s = 0; s < t->sets; s++)
        for (int64_t i = 0; i < t->lm->params.count; i++) {
            const moii_param *p = &t->lm->params.items[i];
            const int64_t shape[2] = { p->rows, p->cols };
            MOII_TRY(moi_st_writer_declare(w, name_of(&name, t, s, p), dtype, p->cols ? 2 : 1, shape));
        }
    return MOI_OK;
}

static moi_status write_numbers(moi_st_writer *w, const float *x, int64_t n, moi_dtype dtype, uint16_t *scratch)
{
    if (dtype == MOI_F32) return moi_st_writer_write(w, x, n * 4);
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t k = moii_min(PIECE, n - i);
        for (int64_t j = 0; j < k; j++) scratch[j] = (uint16_t)moii_bf16_encode(x[i + j]);
        MOII_TRY(moi_st_writer_write(w, scratch, k * 2));
    }
    return MOI_OK;
}

static moi_status write_all(const moii_tensors *t, moi_st_writer *w, moi_dtype dtype, int64_t step, uint16_t *scratch)
{
    MOII_TRY(declare_all(t, w, dtype, step));
    for (int s = 0; s < t->sets; s++)
        for (int64_t i = 0; i < t->lm->params.count; i++) {
            const moii_param *p = &t->lm->params.items[i];
            MOII_TRY(write_numbers(w, t->numbers[s] + p->offset, moii_param_elements(p), dtype, scratch));
        }
    return MOI_OK;
}

moi_status moii_tensors_save(const moii_tensors *t, const char *path, moi_dtype dtype, int64_t step)
{
    moi_st_writer *w;
    uint16_t *scratch = malloc(PIECE * sizeof *scratch);
    MOII_REQUIRE(scratch, MOI_ERR_NOMEM, "cannot write %s: no memory", path);
    moi_status status = moi_st_writer_create(&w, path);
    if (!status) {
        status = write_all(t, w, dtype, step, scratch);
        if (status) moi_st_writer_cancel(w);
        else status = moi_st_writer_commit(w);
    }
    free(scratch);
    return status;
}

/* ---- reading ---- */

static void widen(const uint16_t *codes, moi_dtype dtype, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = dtype == MOI_BF16 ? moii_bf16_decode(codes[i]) : moii_f16_decode(codes[i]);
}

static moi_status read_numbers(const moi_st *file, const moi_tensor *t, float *x, uint16_t *scratch)
{
    if (t->dtype == MOI_F32) return moii_st_read(file, t, 0, x, t->bytes);
    for (int64_t i = 0; i < t->elements; i += PIECE) {
        const int64_t k = moii_min(PIECE, t->elements - i);
        MOII_TRY(moii_st_read(file, t, i * 2, scratch, k * 2));
        widen(scratch, t->dtype, x + i, k);
    }
    return MOI_OK;
}

static moi_status check_tensor(const char *path, const char *name, const moii_param *p, const moi_tensor *t)
{
    MOII_REQUIRE(t->dtype == MOI_F32 || t->dtype == MOI_F16 || t->dtype == MOI_BF16, MOI_ERR_FORMAT, "%s: %s must be F32, F16 or BF16, got %s", path,
                 name, moi_st_dtype_name(t->dtype) ? moi_st_dtype_name(t->dtype) : moi_dtype_name(t->dtype));
    const int32_t rank = p->cols ? 2 : 1;
    MOII_REQUIRE(t->rank == rank && t->shape[0] == p->rows && (rank == 1 || t->shape[1] == p->cols), MOI_ERR_FORMAT,
                 "%s: %s must be [%lld%s%lld], as config.json says; got rank %d, [%lld%s%lld]", path, name, (long long)p->rows, rank == 2 ? ", " : " x ",
                 (long long)(rank == 2 ? p->cols : 1), t->rank, (long long)(t->rank > 0 ? t->shape[0] : 0), t->rank >= 2 ? ", " : " x ",
                 (long long)(t->rank >= 2 ? t->shape[1] : 1));
    return MOI_OK;
}

static moi_status read_all(const moii_tensors *t, const moi_st *file, const char *path, uint16_t *scratch)
{
    tensor_name name;
    moi_tensor found = { .size = sizeof found };
    int64_t count = 0;
    for (int s = 0; s < t->sets; s++)
        for (int64_t i = 0; i < t->lm->params.count; i++, count++) {
            const moii_param *p = &t->lm->params.items[i];
            name_of(&name, t, s, p);
            MOII_REQUIRE(moi_st_find(file, name.text, &found) == MOI_OK, MOI_ERR_FORMAT, "%s: %s is missing; config.json asks for it", path, name.text);
            MOII_TRY(check_tensor(path, name.text, p, &found));
            MOII_TRY(read_numbers(file, &found, t->numbers[s] + p->offset, scratch));
        }
    if (t->lm->config.tie_word_embeddings && moi_st_find(file, "lm_head.weight", &found) == MOI_OK) count++; /* some writers repeat it */
    MOII_REQUIRE(moi_st_count(file) == count, MOI_ERR_FORMAT, "%s: has %lld tensors, but config.json describes %lld", path,
                 (long long)moi_st_count(file), (long long)count);
    return MOI_OK;
}

moi_status moii_tensors_load(const moii_tensors *t, const char *path, int64_t *step)
{
    moi_st *file;
    MOII_TRY(moi_st_open(&file, path));
    uint16_t *scratch = malloc(PIECE * sizeof *scratch);
    moi_status status = scratch ? read_all(t, file, path, scratch) : moii_fail(MOI_ERR_NOMEM, "cannot read %s: no memory", path);
    const char *text = moi_st_metadata(file, step_key);
    *step = text ? strtoll(text, NULL, 10) : -1;
    free(scratch);
    moi_st_close(file);
    return status;
}

/* ---- models ---- */

moi_status moii_model_write(const moi_lm *lm, const char *folder, moi_dtype dtype, int64_t step)
{
    moii_path path;
    MOII_TRY(moii_folder_next(&path, folder, moii_file_names[MOII_FILE_CONFIG]));
    json_t *config = moii_config_json(&lm->config, dtype);
    MOII_REQUIRE(config, MOI_ERR_NOMEM, "cannot write %s: no memory", path.text);
    moi_status status = moii_json_save(config, path.text);
    json_decref(config);
    MOII_TRY(status);
    MOII_TRY(moii_folder_next(&path, folder, moii_file_names[MOII_FILE_MODEL]));
    const moii_tensors weights = { lm, 1, { "", "" }, { lm->weights, NULL } };
    return moii_tensors_save(&weights, path.text, dtype, step);
}

moi_status moii_model_read(moi_lm **out, moi_ctx *ctx, const char *folder, const moi_lm_options *options, int64_t *step)
{
    moi_lm_config config;
    moii_path path;
    *out = NULL;
    MOII_TRY(moii_folder_path(&path, folder, moii_file_names[MOII_FILE_CONFIG]));
    MOII_TRY(moii_config_load(&config, path.text));
    MOII_TRY(moii_folder_path(&path, folder, moii_file_names[MOII_FILE_MODEL]));
    moi_lm *lm;
    MOII_TRY(moii_lm_alloc(&lm, ctx, &config, options));
    const moii_tensors weights = { lm, 1, { "", "" }, { lm->weights, NULL } };
    moi_status status = moii_tensors_load(&weights, path.text, step);
    if (status) moi_lm_free(lm);
    else *out = lm;
    return status;
}

moi_status moi_lm_load(moi_lm **out, moi_ctx *ctx, const char *folder, const moi_lm_options *options)
{
    int64_t step;
    moi_lm_options o;
    MOII_REQUIRE(out && ctx && folder, MOI_ERR_ARG, "moi_lm_load: %s is NULL", !out ? "out" : ctx ? "folder" : "ctx");
    *out = NULL;
    MOII_TRY(moii_options_take(&o, options, "moi_lm_load: options"));
    return moii_model_read(out, ctx, folder, &o, &step);
}

moi_status moi_lm_save(const moi_lm *lm, const char *folder, moi_dtype dtype)
{
    MOII_REQUIRE(lm && folder, MOI_ERR_ARG, "moi_lm_save: %s is NULL", lm ? "folder" : "lm");
    MOII_REQUIRE(dtype == MOI_F32 || dtype == MOI_BF16, MOI_ERR_ARG, "moi_lm_save: dtype must be f32 or bf16, got %s", moi_dtype_name(dtype));
    MOII_TRY(moii_check_masters(lm, "moi_lm_save"));
    MOII_TRY(moii_folder_begin(folder, moii_file_names, MOII_FILES));
    MOII_TRY(moii_model_write(lm, folder, dtype, -1));
    return moii_folder_commit(folder, moii_file_names, MOII_FILES);
}
