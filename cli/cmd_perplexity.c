/* SPDX-License-Identifier: Apache-2.0
 * cmd_perplexity.c: moiety perplexity: how well a model predicts a text. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "args.h"
#include "likelihood.h"
#include "progress.h"
#include "stop.h"
#include "windows.h"

typedef struct scoring {
    const char *model, *recipe, *dump;
    scored_text input;
    bool json, quiet;
    opened m;
    folder_text text;
    int64_t piece;        /* rows of logits at a time */
    float *logits;        /* [piece, vocab] */
    likelihood *rows;     /* [piece] */
    moi_st_writer *writer;
    int64_t tokens;       /* predicted so far */
    double nats, seconds;
} scoring;

/* Some rows of logits: the predictions of the tokens from w->begin + first + 1 on. */
static int score_piece(scoring *s, const windows *w, int64_t first, int64_t n)
{
    const int64_t vocab = s->m.config.vocab_size;
    if (moi_lm_logits(s->m.lm, first, n, s->logits)) return cmd_failed("perplexity");
    likelihood_rows(moi_ctx_threads(s->m.ctx), s->logits, w->ids + w->begin + first + 1, n, vocab, s->rows);
    for (int64_t i = 0; i < n; i++) s->nats += s->rows[i].nats;
    if (s->writer && moi_st_writer_write(s->writer, s->logits, n * vocab * (int64_t)sizeof *s->logits)) return cmd_failed("perplexity");
    return CMD_DONE;
}

static int score_window(scoring *s, const windows *w)
{
    if (moi_lm_forward(s->m.lm, w->ids + w->begin, w->length)) return cmd_failed("perplexity");
    for (int64_t first = w->skip; first < w->length; first += s->piece) {
        const int64_t n = w->length - first < s->piece ? w->length - first : s->piece;
        int verdict = score_piece(s, w, first, n);
        if (verdict) return verdict;
    }
    return CMD_DONE;
}

static int score(scoring *s, windows w)
{
    progress line;
    int verdict = CMD_DONE;
    progress_start(&line, 0, w.total);
    while (!verdict && !stop_asked() && windows_next(&w)) {
        if ((verdict = score_window(s, &w))) break;
        s->tokens = w.done;
        s->seconds = progress_seconds() - line.started;
        if (s->quiet) continue;
        char text[64];
        snprintf(text, sizeof text, "perplexity %.3f", exp(s->nats / (double)s->tokens));
        progress_show(&line, "token", s->tokens, text, (double)s->tokens / s->seconds, "tokens/s");
    }
    if (!s->quiet) progress_end(&line);
    return verdict;
}

/* The file of --dump-logits up to its logits: which tokens they predict, and what they are. */
static moi_status begin_dump(scoring *s, const windows *w)
{
    const int64_t shape[2] = { w->total, s->m.config.vocab_size };
    moi_status status = moi_st_writer_create(&s->writer, s->dump);
    if (!status) status = moi_st_writer_metadata(s->writer, "model", s->model);
    if (!status) status = moi_st_writer_metadata(s->writer, "recipe", s->recipe);
    if (!status) status = moi_st_writer_declare(s->writer, "targets", MOI_I32, 1, shape);
    if (!status) status = moi_st_writer_declare(s->writer, "logits", MOI_F32, 2, shape);
    return status ? status : moi_st_writer_write(s->writer, w->ids + 1, w->total * (int64_t)sizeof *w->ids);
}

static int end_dump(scoring *s, const windows *w)
{
    moi_st_writer *writer = s->writer;
    s->writer = NULL;
    if (s->tokens == w->total) return moi_st_writer_commit(writer) ? cmd_failed("perplexity") : CMD_DONE;
    moi_st_writer_cancel(writer);
    fprintf(stderr, "moiety perplexity: stopped before all tokens were scored; %s was not written\n", s->dump);
    return CMD_DONE;
}

static void show(const scoring *s, int64_t bytes)
{
    const double loss = s->nats / (double)s->tokens, bits = bytes ? s->nats / log(2) / (double)bytes : 0;
    const double rate = s->seconds > 0 ? (double)s->tokens / s->seconds : 0.0;
    if (!s->json) {
        printf("%s: perplexity %.4f, loss %.4f nats", s->model, exp(loss), loss);
        if (bytes) printf(" = %.4f bits per byte", bits);
        printf(", %lld tokens, %.0f tokens/s\n", (long long)s->tokens, rate);
        return;
    }
    json_t *all = json_pack("{s:s, s:f, s:f, s:I, s:I, s:I, s:f}", "recipe", s->recipe, "perplexity", exp(loss), "loss", loss, "tokens",
                            (json_int_t)s->tokens, "window", (json_int_t)s->input.window, "stride",
                            (json_int_t)(s->input.stride ? s->input.stride : s->input.window), "tokens_per_second", rate);
    if (bytes) json_object_set_new(all, "bits_per_byte", json_real(bits));
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(8));
    printf("\n");
    json_decref(all);
}

static int measure(scoring *s)
{
    const windows w = scored_text_windows(&s->input);
    s->piece = windows_piece(&w, s->m.config.vocab_size);
    s->logits = malloc((size_t)(s->piece * s->m.config.vocab_size) * sizeof *s->logits);
    s->rows = malloc((size_t)s->piece * sizeof *s->rows);
    if (!s->logits || !s->rows) return fprintf(stderr, "moiety perplexity: no memory\n"), CMD_FAILED;
    if (s->dump && begin_dump(s, &w)) return cmd_failed("perplexity");
    stop_install();
    int verdict = score(s, w);
    if (!verdict && s->writer) verdict = end_dump(s, &w);
    if (verdict || s->tokens == 0) return verdict ? verdict : CMD_STOPPED;
    if (!isfinite(s->nats)) {
        fprintf(stderr, "moiety perplexity: %s gives logits that are not finite\n", s->model);
        return CMD_FAILED;
    }
    int64_t bytes;
    if (!text_bytes(&s->text, s->input.ids.at + 1, s->tokens, &bytes)) return CMD_FAILED;
    show(s, bytes);
    return s->tokens < w.total ? CMD_STOPPED : CMD_DONE;
}

static int perplexity(scoring *s, moi_ctx *ctx)
{
    int verdict = CMD_FAILED;
    if (model_open(&s->m, "perplexity", ctx, s->model, s->recipe) && text_open(&s->text, &s->m) && scored_text_read(&s->input, &s->text))
        verdict = measure(s);
    moi_st_writer_cancel(s->writer);
    free(s->logits);
    free(s->rows);
    id_list_free(&s->input.ids);
    text_close(&s->text);
    model_close(&s->m);
    return verdict;
}

int cmd_perplexity(int argc, char **argv)
{
    scoring s = { .recipe = OPEN_RECIPE_DEFAULT, .input.window = 256 };
    int64_t threads = 0;
    arg table[] = {
        { "MODEL", ARG_TEXT, &s.model, .help = "model folder (config.json, model.safetensors)", .required = true },
        WINDOWS_OPTIONS(s.input),
        { "dump-logits", ARG_TEXT, &s.dump, "FILE", .help = "write them: safetensors, logits F32 [tokens, vocabulary], targets I32" },
        { "recipe", ARG_CHOICE, &s.recipe, CMD_RECIPES, .help = OPEN_RECIPE_HELP },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &s.json, .help = "print the result as JSON" },
        { "quiet", ARG_FLAG, &s.quiet, .help = "show no progress" },
    };
    args_spec spec = ARGS_SPEC("perplexity", "Scores how well a model predicts a text: exp of the mean negative log-likelihood of each token but the\n"
                               "first, given those before it in its window.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if ((verdict = scored_text_check(&s.input, "perplexity"))) return verdict;
    moi_ctx *ctx = cmd_ctx("perplexity", threads);
    if (!ctx) return CMD_FAILED;
    verdict = perplexity(&s, ctx);
    moi_ctx_free(ctx);
    return verdict;
}
