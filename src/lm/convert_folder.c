/* SPDX-License-Identifier: Apache-2.0
 * convert_folder.c: a model folder, file by file.
 *
 * Order of writing: the record; each file of weights, under a temporary name until it is whole; index; other files; config.json,
 * which makes it a model; the record once more, complete.  A run that ends anywhere leaves whole files and at most one temporary. */
#include "convert_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json_file.h"
#include "status.h"

enum { CONFIG_MAX = 1 << 24 };

typedef struct folder_job {
    moii_convert c;
    const char *in, *out;
    moii_path config, index; /* of the input */
    moii_shards *shards;
    moii_outputs outputs;
    json_t *record;
    bool *kept; /* by file: complete from an earlier run */
    int lock;
} folder_job;

static moi_status path_of(moii_path *path, const char *folder, const char *name)
{
    int n = snprintf(path->text, sizeof path->text, "%s/%s", folder, name);
    MOII_REQUIRE(n > 0 && (size_t)n < sizeof path->text, MOI_ERR_ARG, "the path of a folder must be shorter than %d bytes", MOII_PATH_MAX);
    return MOI_OK;
}

/* ---- before anything is written ---- */

static moi_status open_input(folder_job *j)
{
    struct stat s;
    json_t *config;
    if (stat(j->in, &s)) return moii_fail_errno(MOI_ERR_IO, "cannot open %s", j->in);
    MOII_REQUIRE(S_ISDIR(s.st_mode), MOI_ERR_ARG, "moi_folder_quantize: in must be a folder; %s is none", j->in);
    MOII_TRY(moii_folder_path(&j->config, j->in, "config.json"));
    MOII_TRY(moii_folder_path(&j->index, j->in, MOII_SHARDS_INDEX));
    MOII_TRY(moii_json_load(&config, j->config.text, CONFIG_MAX));
    const json_t *q = json_object_get(config, "quantization_config");
    char shown[MOII_ST_SHOWN] = "settings";
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    if (method) moii_st_show(shown, method);
    bool plain = !q || json_is_null(q);
    json_decref(config);
    MOII_REQUIRE(plain, MOI_ERR_FORMAT, "%s: quantization_config: wanted a model that is not quantised, got %s", j->config.text, shown);
    MOII_TRY(moii_shards_open(&j->shards, j->in));
    j->c.shards = j->shards;
    for (int f = 0; f < moii_shards_files(j->shards); f++) {
        const moi_st *file = moii_shards_file(j->shards, f);
        const char *format = moi_st_metadata(file, "moiety.format");
        MOII_REQUIRE(!format, MOI_ERR_FORMAT, "%s: wanted plain weights, got a file quantised to %.32s", file->path, format);
        j->c.report.bytes_in += file->size;
    }
    j->c.report.files = moii_shards_files(j->shards);
    return MOI_OK;
}

/* "a/b/" becomes "a/", "a" becomes "." */
static void go_up(char *path)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/') n--;
    while (n && path[n - 1] != '/') n--;
    if (!n) path[n++] = '.';
    path[n] = '\0';
}

/* OUT itself, or the nearest folder above it that exists, must not lie in MODEL. */
static moi_status check_place(const folder_job *j)
{
    struct stat model, s;
    moii_path path;
    char *real;
    MOII_REQUIRE(*j->out, MOI_ERR_ARG, "moi_folder_quantize: out is empty");
    MOII_TRY(path_of(&path, j->out, ""));
    if (stat(j->in, &model)) return moii_fail_errno(MOI_ERR_IO, "cannot open %s", j->in);
    while (!(real = realpath(path.text, NULL)) && errno == ENOENT && strcmp(path.text, ".") != 0) go_up(path.text);
    if (!real) return moii_fail_errno(MOI_ERR_IO, "cannot write %s", j->out);
    bool inside = false;
    for (char *end = real + strlen(real); end > real && !inside;) {
        inside = stat(real, &s) == 0 && s.st_dev == model.st_dev && s.st_ino == model.st_ino;
        while (end > real && *end != '/') end--;
        *end = '\0';
    }
    free(real);
    MOII_REQUIRE(!inside, MOI_ERR_ARG, "moi_folder_quantize: out must not be in or inside it; in is %s, out is %s", j->in, j->out);
    return MOI_OK;
}

/* One writer at a time.  A file system without locks does without. */
static moi_status lock_output(folder_job *j)
{
    MOII_TRY(moii_folder_make(j->out));
    j->lock = open(j->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->lock < 0) return moii_fail_errno(MOI_ERR_IO, "cannot open the folder %s", j->out);
    MOII_REQUIRE(flock(j->lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, MOI_ERR_IO, "cannot write %s: another process is writing it", j->out);
    return MOI_OK;
}

/* ---- the files of weights ---- */

/* A file appears under its name when it is whole; so it counts if it is readable and was made from this input in this way. */
static bool is_complete(const folder_job *j, int f)
{
    moii_path path;
    moi_st *file;
    char source[MOII_SOURCE];
    if (path_of(&path, j->out, moii_shards_file_name(j->shards, f)) || moi_st_open(&file, path.text)) return false;
    const char *format = moi_st_metadata(file, "moiety.format"), *from = moi_st_metadata(file, "moiety.source");
    const char *round = moi_st_metadata(file, "moiety.round");
    moii_source_text(source, moii_shards_file(j->shards, f));
    bool same = format && from && !strcmp(format, j->c.file_format->name) && !strcmp(from, source);
    if (j->c.format.recipe == MOI_RECIPE_MX32) same = same && round && !strcmp(round, moi_round_name(j->c.format.round));
    moi_st_close(file);
    return same;
}

static moi_status find_kept(folder_job *j)
{
    moi_tensor t;
    moii_convert *c = &j->c;
    j->kept = calloc((size_t)c->report.files, sizeof *j->kept);
    MOII_REQUIRE(j->kept, MOI_ERR_NOMEM, "%s: no memory", c->call);
    for (int f = 0; f < (int)c->report.files; f++) {
        j->kept[f] = is_complete(j, f);
        c->report.files_kept += j->kept[f];
        if (j->kept[f]) c->report.bytes_kept += moii_shards_file(j->shards, f)->size;
    }
    for (int64_t i = 0; i < c->report.tensors; i++) {
        moii_shards_get(j->shards, i, &t, NULL);
        if (j->kept[moii_shards_file_of(j->shards, i)]) c->done += t.bytes;
    }
    return MOI_OK;
}

static moi_status convert_files(folder_job *j)
{
    moii_convert *c = &j->c;
    moii_path path;
    struct stat s;
    char source[MOII_SOURCE];
    for (int f = 0; f < (int)c->report.files; f++) {
        c->in = moii_shards_file(j->shards, f);
        c->begin = c->end;
        while (c->end < c->report.tensors && moii_shards_file_of(j->shards, c->end) == f) c->end++;
        MOII_TRY(path_of(&path, j->out, moii_shards_file_name(j->shards, f)));
        moii_source_text(source, c->in);
        if (!j->kept[f]) MOII_TRY(moii_convert_file(c, path.text, source));
        if (stat(path.text, &s) == 0) c->report.bytes_out += s.st_size;
    }
    return MOI_OK;
}

/* ---- the folder ---- */

static moi_status write_rest(folder_job *j)
{
    moii_path path;
    struct stat s;
    if (stat(j->index.text, &s) == 0) {
        MOII_TRY(path_of(&path, j->out, MOII_SHARDS_INDEX));
        MOII_TRY(moii_outputs_index(&j->outputs, j->index.text, path.text));
    }
    MOII_TRY(moii_copy_files(j->in, j->out, j->c.source, (int64_t)MOII_CONVERT_PIECE * 4));
    MOII_TRY(path_of(&path, j->out, "config.json"));
    MOII_TRY(moii_outputs_config(&j->outputs, &j->c, j->config.text, path.text));
    return moii_record_save(j->record, j->out, true);
}

static moi_status convert_folder(folder_job *j)
{
    moii_path path;
    MOII_REQUIRE(j->c.options.format != MOI_FILE_MXFP6, MOI_ERR_UNSUPPORTED,
                 "moi_folder_quantize: mxfp6 is for single files: no convention of model folders has it; wanted mxfp8, mxfp4 or fp8-block");
    MOII_TRY(open_input(j));
    MOII_TRY(check_place(j));
    MOII_TRY(moii_outputs_list(&j->outputs, &j->c));
    MOII_REQUIRE(j->record = moii_record(&j->c), MOI_ERR_NOMEM, "%s: no memory", j->c.call);
    MOII_TRY(lock_output(j));
    MOII_TRY(moii_record_check(j->record, j->out));
    MOII_TRY(path_of(&path, j->out, "config.json"));
    MOII_TRY(moii_record_save(j->record, j->out, false));
    if (unlink(path.text) && errno != ENOENT) return moii_fail_errno(MOI_ERR_IO, "cannot remove %s", path.text);
    MOII_TRY(find_kept(j));
    moii_convert_publish(&j->c);
    MOII_TRY(convert_files(j));
    MOII_TRY(write_rest(j));
    moii_convert_publish(&j->c);
    return MOI_OK;
}

moi_status moi_folder_quantize(moi_ctx *ctx, const char *in, const char *out, const moi_convert_options *options)
{
    folder_job *j = calloc(1, sizeof *j);
    MOII_REQUIRE(j, MOI_ERR_NOMEM, "moi_folder_quantize: no memory");
    moi_status status = moii_convert_open(&j->c, "moi_folder_quantize", ctx, in, out, options);
    j->c.folder = true;
    j->in = in;
    j->out = out;
    j->lock = -1;
    if (!status) status = convert_folder(j);
    if (j->lock >= 0) close(j->lock);
    json_decref(j->record);
    moii_outputs_free(&j->outputs);
    moii_shards_close(j->shards);
    moii_convert_close(&j->c);
    free(j->kept);
    free(j);
    return status;
}
