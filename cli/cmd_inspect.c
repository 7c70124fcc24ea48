/* SPDX-License-Identifier: Apache-2.0
 * cmd_inspect.c: moiety inspect. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "cmd.h"
#include "model_files.h"
#include "stats.h"
#include "tensors.h"

enum { NAME = 72 };

typedef struct inspection {
    const char *path, *filter, *error;
    bool json;
    moi_ctx *ctx;
    model_files files;
    moi_st *file; /* the one at hand */
    const char *file_path;
    moi_file_format quantized; /* as the file declares itself, 0: not */
    json_t *list;              /* with --json */
    int64_t count, shown;
    int name_width;
} inspection;

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *json_of(const stats *s)
{
    bool any = s->min <= s->max;
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "min", any ? number(s->min) : json_null(), "max", any ? number(s->max) : json_null(),
                     "absmax", any ? number(fmax(fabs(s->min), fabs(s->max))) : json_null(), "mean_square",
                     any ? number(stats_mean_square(s)) : json_null(), "nan", (json_int_t)s->nans, "inf", (json_int_t)s->infs, "zeros",
                     (json_int_t)s->zeros);
}

static void text_of(const inspection *in, const char *name, const char *type, const char *shape, const stats *s)
{
    bool any = s->min <= s->max;
    printf("%-*s  %-8s  %-20s", in->name_width, name, type, shape);
    if (any)
        printf("  %11.4g  %11.4g  %11.4g  %11.4g", s->min, s->max, fmax(fabs(s->min), fabs(s->max)), stats_mean_square(s));
    else
        printf("  %11s  %11s  %11s  %11s", "-", "-", "-", "-");
    printf("  %8" PRId64 "  %8" PRId64 "  %10" PRId64, s->nans, s->infs, s->zeros);
}

static void heading(const inspection *in)
{
    printf("%-*s  %-8s  %-20s  %11s  %11s  %11s  %11s  %8s  %8s  %10s", in->name_width, "name", "dtype", "shape", "min", "max", "absmax",
           "mean square", "NaN", "Inf", "zeros");
    if (in->error) printf("  %s error", in->error);
    printf("\n");
}

static moi_status show_weight(inspection *in, const stats_weight *w, json_t *object)
{
    stats s = STATS_INIT;
    char type[16];
    moi_status status = stats_of_weight(in->ctx, in->file, w, &s);
    if (status) return status;
    if (object) {
        json_object_set_new(object, "dequantized", json_of(&s));
        return MOI_OK;
    }
    snprintf(type, sizeof type, "%.15s", moi_st_metadata(in->file, "moiety.format"));
    text_of(in, "  its values", type, "", &s);
    printf("\n");
    return MOI_OK;
}

static moi_status show_loss(inspection *in, const moi_tensor *t, json_t *object)
{
    stats_loss loss;
    moi_status status = stats_of_loss(in->ctx, in->file, tensor_file_format(in->error), t, &loss);
    if (status) return status;
    if (object) {
        json_object_set_new(object, "relative_error", number(loss.error));
        json_object_set_new(object, "lost", json_integer(loss.lost));
    } else {
        printf("  %.3e", loss.error);
        if (loss.lost) printf(" (%" PRId64 " lost to NaN or Inf in their block)", loss.lost);
    }
    return MOI_OK;
}

static moi_status show_tensor(inspection *in, const moi_tensor *t)
{
    stats s = STATS_INIT;
    stats_weight w;
    char name[NAME], shape[8 * 24];
    json_t *object = NULL;
    moi_status status = MOI_OK;
    if (!stats_of_tensor(in->file, t, &s)) return MOI_ERR_NOMEM;
    if (in->json) {
        json_t *dims = json_array();
        for (int32_t i = 0; i < t->rank; i++) json_array_append_new(dims, json_integer(t->shape[i]));
        object = json_pack("{s:s, s:s, s:o}", "name", t->name, "dtype", moi_st_dtype_name(t->dtype), "shape", dims);
        json_t *counts = json_of(&s);
        json_object_update(object, counts);
        json_decref(counts);
        if (in->files.folder) json_object_set_new(object, "file", json_string(in->file_path));
        json_array_append_new(in->list, object);
    } else {
        text_of(in, tensor_shown(name, sizeof name, t->name), moi_st_dtype_name(t->dtype), tensor_shape(shape, sizeof shape, t), &s);
    }
    if (in->error && tensor_is_linear(t)) status = show_loss(in, t, object);
    if (!in->json) printf("\n");
    if (!status && in->quantized && stats_find_weight(in->file, in->quantized, t, &w)) status = show_weight(in, &w, object);
    return status;
}

/* Goes over the tensors of a file that the filter leaves: first to measure names, then to show. */
static moi_status over_tensors(inspection *in, bool measure)
{
    moi_tensor t;
    char name[NAME];
    if (measure) in->count += moi_st_count(in->file);
    for (int64_t i = 0; i < moi_st_count(in->file); i++) {
        moi_status status = moi_st_get(in->file, i, &t);
        if (status) return status;
        if (in->filter && !strstr(t.name, in->filter)) continue;
        if (measure) {
            int n = (int)strlen(tensor_shown(name, sizeof name, t.name));
            if (n > in->name_width) in->name_width = n;
            in->shown++;
        } else if ((status = show_tensor(in, &t)) != MOI_OK) {
            return status;
        }
    }
    return MOI_OK;
}

static moi_status over_file(inspection *in, bool measure)
{
    char shown[NAME];
    const char *format = moi_st_metadata(in->file, "moiety.format");
    in->quantized = format ? tensor_file_format(format) : (moi_file_format)0;
    if (format && !in->quantized && measure)
        fprintf(stderr, "moiety inspect: warning: the file says moiety.format = '%s', which is unknown here\n", tensor_shown(shown, sizeof shown, format));
    return over_tensors(in, measure);
}

/* One file after the other, so that no more than one is open. */
static moi_status over_files(inspection *in, bool measure)
{
    moi_status status = MOI_OK;
    for (int i = 0; !status && i < in->files.count; i++) {
        in->file_path = in->files.paths[i];
        status = moi_st_open(&in->file, in->file_path);
        if (!status) status = over_file(in, measure);
        if (i < in->files.count - 1) moi_st_close(in->file), in->file = NULL; /* the last one's format is shown at the end */
    }
    return status;
}

static void show_end(inspection *in)
{
    char shown[NAME];
    const char *format = moi_st_metadata(in->file, "moiety.format");
    if (in->json) {
        json_t *all = json_pack("{s:s*, s:I, s:s*, s:o}", in->files.folder ? "folder" : "file", in->path,
                                in->files.folder ? "tensors_in_folder" : "tensors_in_file", (json_int_t)in->count, "format", format, "tensors", in->list);
        json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        printf("\n");
        json_decref(all);
        return;
    }
    printf("%" PRId64 " of %" PRId64 " tensors", in->shown, in->count);
    if (in->files.folder) printf(" in %d files", in->files.count);
    if (format) printf("; moiety.format %s", tensor_shown(shown, sizeof shown, format));
    printf("\n");
}

/* Running out of memory in a statistic leaves no message in the library. */
static int failed(moi_status status)
{
    return status == MOI_ERR_NOMEM ? fprintf(stderr, "moiety inspect: no memory\n"), CMD_FAILED : cmd_failed("inspect");
}

static int inspect(inspection *in)
{
    in->name_width = 12;
    moi_status status = over_files(in, true);
    if (status) return failed(status);
    moi_st_close(in->file);
    in->file = NULL;
    if (in->filter && !in->shown) {
        fprintf(stderr, "moiety inspect: no tensor of %s has '%s' in its name\n", in->path, in->filter);
        return CMD_FAILED;
    }
    if (in->json) in->list = json_array();
    else heading(in);
    status = over_files(in, false);
    if (status) {
        json_decref(in->list);
        return failed(status);
    }
    show_end(in);
    if (fflush(stdout) == 0 && !ferror(stdout)) return CMD_DONE;
    perror("moiety inspect: cannot write");
    return CMD_FAILED;
}

int cmd_inspect(int argc, char **argv)
{
    inspection in = { 0 };
    int64_t threads = 0;
    arg table[] = {
        { "FILE", ARG_TEXT, &in.path, .help = "safetensors file, or folder of a model", .required = true },
        { "tensor", ARG_TEXT, &in.filter, "PART", .help = "only tensors with this in their name" },
        { "error", ARG_CHOICE, &in.error, TENSOR_FORMATS, .help = "relative error (RMS) of each linear weight in this format" },
        { "threads", ARG_INT, &threads, "N", .help = "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &in.json, .help = "print JSON" },
    };
    args_spec spec = ARGS_SPEC("inspect", "Lists the tensors of a file or folder: type, shape, range and mean square of the finite values, how many are\n"
                                          "NaN, infinite, zero.  For weights that 'moiety quantize' wrote, also the values they stand for.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    in.ctx = cmd_ctx("inspect", threads);
    if (!in.ctx) return CMD_FAILED;
    verdict = model_files_list(&in.files, "inspect", in.path) ? inspect(&in) : CMD_FAILED;
    moi_st_close(in.file);
    model_files_release(&in.files);
    moi_ctx_free(in.ctx);
    return verdict;
}
