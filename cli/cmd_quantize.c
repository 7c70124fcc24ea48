/* SPDX-License-Identifier: Apache-2.0
 * cmd_quantize.c: moiety quantize. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "args.h"
#include "cmd.h"
#include "progress.h"
#include "stop.h"
#include "tensors.h"

typedef struct summary {
    const char *in, *out, *format, *round;
    bool folder;
    moi_convert_report did;
    double seconds;
} summary;

typedef struct watch {
    bool quiet, begun;
    progress line;
    double started;
    const moi_convert_report *did;
} watch;

enum { MB = 1000000 };

static void say_kept(const watch *w)
{
    if (w->did->files_kept > 0)
        fprintf(stderr, "moiety quantize: %lld of %lld files are complete from an earlier run and stay\n", (long long)w->did->files_kept,
                (long long)w->did->files);
}

static bool on_progress(void *user, const char *tensor, int64_t done, int64_t total)
{
    watch *w = user;
    char name[64];
    if (!w->quiet) {
        double seconds = progress_seconds() - w->started;
        int64_t kept = w->did->bytes_kept < done ? w->did->bytes_kept : done;
        if (!w->begun) {
            say_kept(w);
            progress_start(&w->line, (kept + MB - 1) / MB, (total + MB - 1) / MB);
        }
        w->begun = true;
        progress_show(&w->line, "MB", (done + MB - 1) / MB, tensor_shown(name, sizeof name, tensor),
                      seconds > 0 ? (double)(done - kept) / MB / seconds : 0.0, "MB/s");
    }
    return !stop_asked();
}

static void show(const summary *s, bool json)
{
    const moi_convert_report *d = &s->did;
    double rate = s->seconds > 0 ? (double)(d->bytes_in - d->bytes_kept) / MB / s->seconds : 0.0;
    double ratio = d->bytes_in > 0 ? (double)d->bytes_out / (double)d->bytes_in : 1.0;
    if (!json) {
        /* the packed experts of a folder come out one by one, so there it is no part of the input's tensors */
        if (s->folder) printf("%s: %lld weights as %s in %lld files (%lld were complete)", s->out, (long long)d->quantized, s->format,
                              (long long)d->files, (long long)d->files_kept);
        else printf("%s: %lld of %lld tensors as %s", s->out, (long long)d->quantized, (long long)d->tensors, s->format);
        printf("; %.1f MB in, %.1f MB out (ratio %.3f), %.2f s, %.0f MB/s\n", (double)d->bytes_in / MB, (double)d->bytes_out / MB, ratio,
               s->seconds, rate);
        return;
    }
    json_t *all = json_pack("{s:s*, s:s*, s:s, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "in", s->in, "out", s->out, "format", s->format,
                            "round", s->round, "tensors", (json_int_t)d->tensors, "quantized", (json_int_t)d->quantized, "files",
                            (json_int_t)d->files, "files_kept", (json_int_t)d->files_kept, "bytes_in", (json_int_t)d->bytes_in, "bytes_out",
                            (json_int_t)d->bytes_out, "ratio", ratio, "seconds", s->seconds, "mb_per_second", rate);
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(all);
}

static int quantize(moi_ctx *ctx, summary *s, moi_convert_options *options, watch *w, bool json)
{
    struct stat info;
    s->folder = stat(s->in, &info) == 0 && S_ISDIR(info.st_mode);
    options->report = &s->did;
    w->did = &s->did;
    stop_install();
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit shall be an error with a message, not the end of the process */
    w->started = progress_seconds();
    moi_status status = (s->folder ? moi_folder_quantize : moi_checkpoint_quantize)(ctx, s->in, s->out, options);
    s->seconds = progress_seconds() - w->started;
    if (w->begun) progress_end(&w->line);
    else if (!status && !w->quiet) say_kept(w);
    if (status == MOI_ERR_CANCELLED) {
        fprintf(stderr, s->folder ? "moiety quantize: stopped; the same command goes on with %s\n" : "moiety quantize: stopped; %s was not written\n", s->out);
        return CMD_STOPPED;
    }
    if (status) return cmd_failed("quantize");
    if (s->did.quantized == 0) fprintf(stderr, "moiety quantize: warning: %s has no linear weights to quantise; all was copied\n", s->in);
    show(s, json);
    return CMD_DONE;
}

int cmd_quantize(int argc, char **argv)
{
    bool json = false, quiet = false;
    int64_t threads = 0;
    const char *keep = NULL;
    summary r = { .round = "rceil", .did = MOI_CONVERT_REPORT_INIT };
    arg table[] = {
        { "IN", ARG_TEXT, &r.in, .help = "safetensors file, or folder of a model, with F32, F16 or BF16 weights", .required = true },
        { "OUT", ARG_TEXT, &r.out, .help = "file to write, complete or not at all; for a folder a folder, which a second run completes", .required = true },
        { "format", ARG_CHOICE, &r.format, TENSOR_FORMATS, "how linear weights are stored", .required = true },
        { "round", ARG_CHOICE, &r.round, "rceil|floor|ceil|even", .help = "which power of two a block of 32 gets (mx formats)" },
        { "keep", ARG_TEXT, &keep, "LIST", .help = "comma-separated parts of names; such tensors are copied unchanged" },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &json, .help = "print the summary as JSON" },
        { "quiet", ARG_FLAG, &quiet, .help = "show no progress" },
    };
    args_spec spec = ARGS_SPEC("quantize", "Writes a checkpoint whose linear weights (*_proj.weight and packed experts) are in 8, 6 or 4\n"
                                           "bits.  Router, norms, embeddings, head and everything else are copied unchanged.  A folder becomes one that\n"
                                           "loaders of the hub's formats read (mxfp8, mxfp4: compressed-tensors; fp8-block: quant_method fp8).\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if (!strcmp(r.format, "fp8-block")) {
        if (args_given(&spec, "round")) {
            fprintf(stderr, "moiety quantize: --round is for the mx formats; fp8-block has FP32 scales\n");
            return CMD_USAGE;
        }
        r.round = NULL;
    }
    watch w = { .quiet = quiet };
    moi_convert_options options = MOI_CONVERT_OPTIONS_INIT;
    options.format = tensor_file_format(r.format);
    while (r.round && options.round < MOI_ROUND_EVEN && strcmp(r.round, moi_round_name(options.round))) options.round++;
    options.keep = keep;
    options.progress = on_progress;
    options.user = &w;
    moi_ctx *ctx = cmd_ctx("quantize", threads);
    if (!ctx) return CMD_FAILED;
    verdict = quantize(ctx, &r, &options, &w, json);
    moi_ctx_free(ctx);
    return verdict;
}
