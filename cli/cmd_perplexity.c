/* SPDX-License-Identifier: Apache-2.0
 * cmd_perplexity.c: moiety perplexity: how well a model predicts a text. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cmd.h"
#include "moiety_lm.h"
#include "progress.h"
#include "stop.h"

typedef struct scoring {
    const char *model, *data, *recipe;
    int64_t seq, limit;
    bool json, quiet;
    int64_t tokens; /* predicted so far */
    double nats, seconds;
} scoring;

/* Windows of seq + 1 bytes; each begins with the last byte of the one before, so that every byte but the first is predicted
 * once. */
static moi_status score(scoring *s, moi_lm *lm, FILE *file, unsigned char *bytes, int32_t *ids, progress *line)
{
    size_t have = fread(bytes, 1, 1, file);
    while (have && !stop_asked()) {
        int64_t room = s->limit > 0 && s->limit - s->tokens < s->seq ? s->limit - s->tokens : s->seq;
        int64_t n = (int64_t)fread(bytes + 1, 1, (size_t)room, file);
        if (n == 0) break;
        for (int64_t i = 0; i <= n; i++) ids[i] = bytes[i];
        double loss;
        moi_status status = moi_lm_evaluate(lm, ids, 1, n, &loss, NULL);
        if (status) return status;
        s->nats += loss * (double)n;
        s->tokens += n;
        bytes[0] = bytes[n];
        if (s->quiet) continue;
        char text[64];
        snprintf(text, sizeof text, "perplexity %.3f", exp(s->nats / (double)s->tokens));
        progress_show(line, "token", s->tokens, text, (double)s->tokens / (progress_seconds() - line->started), "tokens/s");
    }
    return MOI_OK;
}

static void show(const scoring *s)
{
    double loss = s->nats / (double)s->tokens, rate = s->seconds > 0 ? (double)s->tokens / s->seconds : 0.0;
    if (!s->json) {
        printf("%s: perplexity %.4f, loss %.4f nats = %.4f bits per byte, %lld tokens, %.0f tokens/s\n", s->model, exp(loss), loss, loss / log(2),
               (long long)s->tokens, rate);
        return;
    }
    json_t *all = json_pack("{s:s, s:f, s:f, s:f, s:I, s:f}", "recipe", s->recipe, "perplexity", exp(loss), "loss", loss, "bits_per_byte",
                            loss / log(2), "tokens", (json_int_t)s->tokens, "tokens_per_second", rate);
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(8));
    printf("\n");
    json_decref(all);
}

static int measure(scoring *s, moi_lm *lm, FILE *file, int64_t size)
{
    progress line;
    unsigned char *bytes = malloc((size_t)s->seq + 1);
    int32_t *ids = malloc(((size_t)s->seq + 1) * sizeof *ids);
    double began = progress_seconds();
    stop_install();
    if (!s->quiet) progress_start(&line, 0, s->limit > 0 && s->limit < size - 1 ? s->limit : size - 1);
    moi_status status = bytes && ids ? score(s, lm, file, bytes, ids, &line) : MOI_ERR_NOMEM;
    s->seconds = progress_seconds() - began;
    if (!s->quiet) progress_end(&line);
    free(bytes);
    free(ids);
    if (status) return cmd_failed("perplexity");
    if (ferror(file)) {
        fprintf(stderr, "moiety perplexity: %s: it cannot be read to its end\n", s->data);
        return CMD_FAILED;
    }
    if (s->tokens == 0) {
        fprintf(stderr, "moiety perplexity: %s has %lld bytes; at least 2 are needed\n", s->data, (long long)size);
        return CMD_FAILED;
    }
    show(s);
    return stop_asked() ? CMD_STOPPED : CMD_DONE;
}

static int perplexity(scoring *s, moi_ctx *ctx)
{
    moi_lm *lm;
    moi_lm_options options = MOI_LM_OPTIONS_INIT;
    moi_lm_config config = MOI_LM_CONFIG_INIT;
    int verdict = CMD_FAILED;
    options.recipe = cmd_recipe(s->recipe);
    FILE *file = fopen(s->data, "rb");
    if (!file || fseek(file, 0, SEEK_END)) {
        fprintf(stderr, "moiety perplexity: %s: %s\n", s->data, strerror(errno));
        if (file) fclose(file);
        return CMD_FAILED;
    }
    int64_t size = (int64_t)ftell(file);
    rewind(file);
    if (moi_lm_load(&lm, ctx, s->model, &options) || moi_lm_get_config(lm, &config)) cmd_failed("perplexity");
    else if (config.vocab_size != 256)
        fprintf(stderr, "moiety perplexity: %s has a vocabulary of %lld tokens; this version scores models whose tokens are the 256 bytes\n", s->model,
                (long long)config.vocab_size);
    else verdict = measure(s, lm, file, size);
    moi_lm_free(lm);
    fclose(file);
    return verdict;
}

int cmd_perplexity(int argc, char **argv)
{
    scoring s = { .recipe = "mx32", .seq = 256 };
    int64_t threads = 0;
    arg table[] = {
        { "MODEL", ARG_TEXT, &s.model, .help = "model folder (config.json, model.safetensors)", .required = true },
        { "data", ARG_TEXT, &s.data, "FILE", .help = "text to predict; one byte is one token", .required = true },
        { "seq", ARG_INT, &s.seq, "N", "tokens of a window", .min = 1, .max = 1e6 },
        { "limit", ARG_INT, &s.limit, "N", "tokens to score, 0: all", .min = 0, .max = 9e15 },
        { "recipe", ARG_CHOICE, &s.recipe, CMD_RECIPES, .help = "how matrices are multiplied: mx32 is MXFP8" },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &s.json, .help = "print the result as JSON" },
        { "quiet", ARG_FLAG, &s.quiet, .help = "show no progress" },
    };
    args_spec spec = ARGS_SPEC("perplexity", "Scores how well a model predicts a text: exp of the mean negative log-likelihood.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    moi_ctx *ctx = cmd_ctx("perplexity", threads);
    if (!ctx) return CMD_FAILED;
    verdict = perplexity(&s, ctx);
    moi_ctx_free(ctx);
    return verdict;
}
