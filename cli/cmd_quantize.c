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

typedef struct report {
    const char *in, *out, *format, *round;
    int64_t tensors, quantized, bytes_in, bytes_out;
    double seconds;
} report;

typedef struct watch {
    bool quiet, begun;
    progress line;
    double started;
} watch;

enum { MB = 1000000 };

static bool on_progress(void *user, const char *tensor, int64_t done, int64_t total)
{
    watch *w = user;
    char name[64];
    if (!w->quiet) {
        double seconds = progress_seconds() - w->started;
        if (!w->begun) progress_start(&w->line, 0, (total + MB - 1) / MB);
        w->begun = true;
        progress_show(&w->line, "MB", (done + MB - 1) / MB, tensor_shown(name, sizeof name, tensor),
                      seconds > 0 ? (double)done / MB / seconds : 0.0, "MB/s");
    }
    return !stop_asked();
}

static int64_t tensors_in(const char *path)
{
    moi_st *file;
    if (moi_st_open(&file, path)) return 0;
    int64_t n = moi_st_count(file);
    moi_st_close(file);
    return n;
}

static int64_t bytes_in(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 ? (int64_t)s.st_size : 0;
}

static void show(const report *r, bool json)
{
    double rate = r->seconds > 0 ? (double)r->bytes_in / MB / r->seconds : 0.0;
    double ratio = r->bytes_in > 0 ? (double)r->bytes_out / (double)r->bytes_in : 1.0;
    if (!json) {
        printf("%s: %lld of %lld tensors as %s; %.1f MB in, %.1f MB out (ratio %.3f), %.2f s, %.0f MB/s\n", r->out, (long long)r->quantized,
               (long long)r->tensors, r->format, (double)r->bytes_in / MB, (double)r->bytes_out / MB, ratio, r->seconds, rate);
        return;
    }
    json_t *all = json_pack("{s:s*, s:s*, s:s, s:s*, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "in", r->in, "out", r->out, "format", r->format,
                            "round", r->round, "tensors", (json_int_t)r->tensors, "quantized", (json_int_t)r->quantized, "bytes_in",
                            (json_int_t)r->bytes_in, "bytes_out", (json_int_t)r->bytes_out, "ratio", ratio, "seconds", r->seconds,
                            "mb_per_second", rate);
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(all);
}

static int quantize(moi_ctx *ctx, report *r, moi_convert_options *options, watch *w, bool json)
{
    stop_install();
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit shall be an error with a message, not the end of the process */
    w->started = progress_seconds();
    moi_status status = moi_checkpoint_quantize(ctx, r->in, r->out, options);
    r->seconds = progress_seconds() - w->started;
    if (w->begun) progress_end(&w->line);
    if (status == MOI_ERR_CANCELLED) {
        fprintf(stderr, "moiety quantize: stopped; %s was not written\n", r->out);
        return CMD_STOPPED;
    }
    if (status) return cmd_failed("quantize");
    r->tensors = tensors_in(r->in);
    r->quantized = tensors_in(r->out) - r->tensors; /* each brought a tensor of scales */
    r->bytes_in = bytes_in(r->in);
    r->bytes_out = bytes_in(r->out);
    if (r->quantized == 0) fprintf(stderr, "moiety quantize: warning: %s has no linear weights to quantise; all was copied\n", r->in);
    show(r, json);
    return CMD_DONE;
}

int cmd_quantize(int argc, char **argv)
{
    bool json = false, quiet = false;
    int64_t threads = 0;
    const char *keep = NULL;
    report r = { .round = "rceil" };
    arg table[] = {
        { "IN", ARG_TEXT, &r.in, .help = "safetensors file with F32, F16 or BF16 weights", .required = true },
        { "OUT", ARG_TEXT, &r.out, .help = "file to write; appears complete or not at all", .required = true },
        { "format", ARG_CHOICE, &r.format, TENSOR_FORMATS, "how linear weights are stored", .required = true },
        { "round", ARG_CHOICE, &r.round, "rceil|floor|ceil|even", .help = "which power of two a block of 32 gets (mx formats)" },
        { "keep", ARG_TEXT, &keep, "LIST", .help = "comma-separated parts of names; such tensors are copied unchanged" },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &json, .help = "print the summary as JSON" },
        { "quiet", ARG_FLAG, &quiet, .help = "show no progress" },
    };
    args_spec spec = ARGS_SPEC("quantize", "Writes a checkpoint whose linear weights (*_proj.weight and packed experts) are in 8, 6 or 4\n"
                                           "bits.  Router, norms, embeddings, head and everything else are copied unchanged.\n", table);
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
