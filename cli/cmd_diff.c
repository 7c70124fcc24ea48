/* SPDX-License-Identifier: Apache-2.0
 * cmd_diff.c: moiety diff: how far the predictions of one model are from those of another. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "args.h"
#include "likelihood.h"
#include "progress.h"
#include "stop.h"
#include "windows.h"

enum { A, B, MODELS };

typedef struct comparing {
    const char *path[MODELS], *recipe[MODELS];
    scored_text input;
    bool json, quiet;
    opened m[MODELS];
    folder_text text[MODELS];
    int64_t piece;            /* rows of logits at a time */
    float *logits[MODELS];    /* [piece, vocab] */
    likelihood *rows[MODELS]; /* [piece] */
    double *kl;               /* [piece] */
    int64_t tokens, same;     /* compared so far; of these, both find the same token likeliest */
    double nats[MODELS], divergence, most, seconds;
} comparing;

/* Some rows of logits of both: the predictions of the tokens from w->begin + first + 1 on. */
static int compare_piece(comparing *c, const windows *w, int64_t first, int64_t n)
{
    const int64_t vocab = c->m[A].config.vocab_size;
    const int threads = moi_ctx_threads(c->m[A].ctx);
    for (int i = 0; i < MODELS; i++) {
        if (moi_lm_logits(c->m[i].lm, first, n, c->logits[i])) return cmd_failed("diff");
        likelihood_rows(threads, c->logits[i], w->ids + w->begin + first + 1, n, vocab, c->rows[i]);
    }
    likelihood_kl(threads, c->logits[A], c->logits[B], c->rows[A], c->rows[B], n, vocab, c->kl);
    for (int64_t r = 0; r < n; r++) {
        for (int i = 0; i < MODELS; i++) c->nats[i] += c->rows[i][r].nats;
        c->same += c->rows[A][r].best == c->rows[B][r].best;
        c->divergence += c->kl[r];
        if (c->kl[r] > c->most) c->most = c->kl[r];
    }
    return CMD_DONE;
}

static int compare_window(comparing *c, const windows *w)
{
    for (int i = 0; i < MODELS; i++)
        if (moi_lm_forward(c->m[i].lm, w->ids + w->begin, w->length)) return cmd_failed("diff");
    for (int64_t first = w->skip; first < w->length; first += c->piece) {
        const int64_t n = w->length - first < c->piece ? w->length - first : c->piece;
        int verdict = compare_piece(c, w, first, n);
        if (verdict) return verdict;
    }
    c->tokens = w->done;
    return CMD_DONE;
}

static int compare(comparing *c, windows w)
{
    progress line;
    progress_start(&line, 0, w.total);
    int verdict = CMD_DONE;
    while (!verdict && !stop_asked() && windows_next(&w)) {
        if ((verdict = compare_window(c, &w))) break;
        c->seconds = progress_seconds() - line.started;
        if (c->quiet) continue;
        char text[64];
        snprintf(text, sizeof text, "KL %.6f", c->divergence / (double)c->tokens);
        progress_show(&line, "token", c->tokens, text, (double)c->tokens / c->seconds, "tokens/s");
    }
    if (!c->quiet) progress_end(&line);
    return verdict;
}

static void show(const comparing *c)
{
    const double n = (double)c->tokens, loss_a = c->nats[A] / n, loss_b = c->nats[B] / n, a = exp(loss_a), b = exp(loss_b);
    const double rate = c->seconds > 0 ? n / c->seconds : 0.0;
    if (!c->json) {
        printf("A %s (%s): perplexity %.4f, loss %.6f nats\n", c->path[A], c->recipe[A], a, loss_a);
        printf("B %s (%s): perplexity %.4f, loss %.6f nats\n", c->path[B], c->recipe[B], b, loss_b);
        printf("KL(A||B) %.6g nats per token, at most %.6g; the same likeliest token %.2f %%; perplexity %+.4f %%; %lld tokens, %.0f tokens/s\n",
               c->divergence / n, c->most, 100 * (double)c->same / n, 100 * expm1(loss_b - loss_a), (long long)c->tokens, rate);
        return;
    }
    json_t *all = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f}", "recipe_a", c->recipe[A], "recipe_b", c->recipe[B],
                            "kl", c->divergence / n, "kl_most", c->most, "top1_agreement", (double)c->same / n, "perplexity_a", a, "perplexity_b", b,
                            "perplexity_change", b - a, "perplexity_change_percent", 100 * expm1(loss_b - loss_a), "tokens", (json_int_t)c->tokens,
                            "tokens_per_second", rate);
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(8));
    printf("\n");
    json_decref(all);
}

static bool reserve(comparing *c, const windows *w)
{
    const int64_t most = c->piece = windows_piece(w, c->m[A].config.vocab_size);
    bool good = (c->kl = malloc((size_t)most * sizeof *c->kl)) != NULL;
    for (int i = 0; i < MODELS; i++) {
        c->logits[i] = malloc((size_t)(most * c->m[i].config.vocab_size) * sizeof **c->logits);
        c->rows[i] = malloc((size_t)most * sizeof **c->rows);
        good = good && c->logits[i] && c->rows[i];
    }
    if (!good) fprintf(stderr, "moiety diff: no memory\n");
    return good;
}

static int measure(comparing *c)
{
    const windows w = scored_text_windows(&c->input);
    if (!reserve(c, &w)) return CMD_FAILED;
    stop_install();
    int verdict = compare(c, w);
    if (verdict || c->tokens == 0) return verdict ? verdict : CMD_STOPPED;
    for (int i = 0; i < MODELS; i++)
        if (!isfinite(c->nats[i])) {
            fprintf(stderr, "moiety diff: %s gives logits that are not finite\n", c->path[i]);
            return CMD_FAILED;
        }
    if (!isfinite(c->divergence)) {
        fprintf(stderr, "moiety diff: the divergence is not finite: %s gives probability 0 to a token that %s can choose\n", c->path[B], c->path[A]);
        return CMD_FAILED;
    }
    show(c);
    return c->tokens < w.total ? CMD_STOPPED : CMD_DONE;
}

static bool open_both(comparing *c, moi_ctx *ctx)
{
    for (int i = 0; i < MODELS; i++)
        if (!model_open(&c->m[i], "diff", ctx, c->path[i], c->recipe[i]) || !text_open(&c->text[i], &c->m[i])) return false;
    const int64_t a = c->m[A].config.vocab_size, b = c->m[B].config.vocab_size;
    if (a == b) return true;
    fprintf(stderr, "moiety diff: the vocabularies differ: %s has %lld tokens, %s has %lld\n", c->path[A], (long long)a, c->path[B], (long long)b);
    return false;
}

static int diff(comparing *c, moi_ctx *ctx)
{
    int verdict = CMD_FAILED;
    /* a converted folder may lack the tokeniser of the other */
    if (open_both(c, ctx) && scored_text_read(&c->input, &c->text[c->text[A].kind == TEXT_NONE ? B : A])) verdict = measure(c);
    for (int i = 0; i < MODELS; i++) {
        free(c->logits[i]);
        free(c->rows[i]);
        text_close(&c->text[i]);
        model_close(&c->m[i]);
    }
    free(c->kl);
    id_list_free(&c->input.ids);
    return verdict;
}

int cmd_diff(int argc, char **argv)
{
    comparing c = { .recipe = { OPEN_RECIPE_DEFAULT, NULL }, .input.window = 256 };
    int64_t threads = 0;
    arg table[] = {
        { "MODEL_A", ARG_TEXT, &c.path[A], .help = "model folder", .required = true },
        { "MODEL_B", ARG_TEXT, &c.path[B], .help = "model folder with the same vocabulary, or the same folder", .required = true },
        WINDOWS_OPTIONS(c.input),
        { "recipe", ARG_CHOICE, &c.recipe[A], CMD_RECIPES, .help = OPEN_RECIPE_HELP },
        { "recipe-b", ARG_CHOICE, &c.recipe[B], CMD_RECIPES, .help = "for MODEL_B, where it differs" },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &c.json, .help = "print the result as JSON" },
        { "quiet", ARG_FLAG, &c.quiet, .help = "show no progress" },
    };
    args_spec spec = ARGS_SPEC("diff", "Compares the predictions of two models over a text: the mean KL divergence of B's from A's for each token, how\n"
                               "often both find the same token likeliest, and both perplexities.  Text is read with A's tokeniser.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if (!c.recipe[B]) c.recipe[B] = c.recipe[A];
    if ((verdict = scored_text_check(&c.input, "diff"))) return verdict;
    moi_ctx *ctx = cmd_ctx("diff", threads);
    if (!ctx) return CMD_FAILED;
    verdict = diff(&c, ctx);
    moi_ctx_free(ctx);
    return verdict;
}
