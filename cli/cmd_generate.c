/* SPDX-License-Identifier: Apache-2.0
 * cmd_generate.c: moiety generate: a model continues a text, byte by byte. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cmd.h"
#include "moiety_lm.h"
#include "progress.h"
#include "stop.h"

typedef struct writing {
    const char *model, *prompt, *recipe;
    int64_t tokens, made;
    moi_sampling sampling;
    bool json;
    double first_seconds, seconds; /* to the first token; for all of them */
    unsigned char *text;           /* [tokens] */
} writing;

/* Bytes as a JSON string must be UTF-8: what is not becomes U+FFFD. */
static char *as_utf8(const unsigned char *bytes, int64_t n)
{
    char *out = malloc((size_t)n * 3 + 1), *to = out;
    if (!out) return NULL;
    for (int64_t i = 0; i < n;) {
        int64_t length = bytes[i] < 0x80 ? 1 : bytes[i] < 0xE0 ? 2 : bytes[i] < 0xF0 ? 3 : 4;
        json_t *good = i + length <= n && bytes[i] ? json_stringn((const char *)bytes + i, (size_t)length) : NULL;
        memcpy(to, good ? (const char *)bytes + i : "\xEF\xBF\xBD", good ? (size_t)length : 3);
        to += good ? length : 3;
        i += good ? length : 1;
        json_decref(good);
    }
    *to = 0;
    return out;
}

static void print_json(const writing *w)
{
    char *text = as_utf8(w->text, w->made), *prompt = as_utf8((const unsigned char *)w->prompt, (int64_t)strlen(w->prompt));
    json_t *all = json_pack("{s:s, s:s*, s:s*, s:I, s:f, s:f}", "recipe", w->recipe, "prompt", prompt, "text", text, "tokens", (json_int_t)w->made,
                            "seconds_to_first_token", w->first_seconds, "tokens_per_second",
                            w->seconds > 0 ? (double)w->made / w->seconds : 0.0);
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(all);
    free(text);
    free(prompt);
}

static moi_status feed_prompt(const writing *w, moi_session *session, float *logits)
{
    const char *prompt = *w->prompt ? w->prompt : "\n"; /* something must come before the first token */
    int64_t n = (int64_t)strlen(prompt);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) return MOI_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) ids[i] = (unsigned char)prompt[i];
    moi_status status = moi_session_feed(session, ids, n, logits);
    free(ids);
    return status;
}

static moi_status write_on(writing *w, moi_session *session, float *logits, int64_t vocab)
{
    double began = progress_seconds();
    moi_status status = feed_prompt(w, session, logits);
    while (!status && w->made < w->tokens && !stop_asked()) {
        int32_t token;
        if ((status = moi_sample(logits, vocab, &w->sampling, &token))) break;
        if (w->made == 0) w->first_seconds = progress_seconds() - began;
        w->text[w->made++] = (unsigned char)token;
        if (!w->json) {
            putchar(token);
            fflush(stdout);
        }
        if (w->made < w->tokens) status = moi_session_feed(session, &token, 1, logits);
    }
    w->seconds = progress_seconds() - began;
    return status;
}

static int generate(writing *w, moi_ctx *ctx, moi_lm **lm, moi_session **session)
{
    moi_lm_options options = MOI_LM_OPTIONS_INIT;
    moi_lm_config config = MOI_LM_CONFIG_INIT;
    options.recipe = cmd_recipe(w->recipe);
    if (moi_lm_load(lm, ctx, w->model, &options) || moi_lm_get_config(*lm, &config)) return cmd_failed("generate");
    if (config.vocab_size != 256) {
        fprintf(stderr, "moiety generate: %s has a vocabulary of %lld tokens; this version writes models whose tokens are the 256 bytes\n", w->model,
                (long long)config.vocab_size);
        return CMD_FAILED;
    }
    if (moi_session_create(session, *lm, (int64_t)strlen(w->prompt) + w->tokens + 1)) return cmd_failed("generate");
    float *logits = malloc((size_t)config.vocab_size * sizeof *logits);
    w->text = malloc((size_t)w->tokens + 1);
    stop_install();
    if (!w->json) fputs(w->prompt, stdout);
    moi_status status = logits && w->text ? write_on(w, *session, logits, config.vocab_size) : MOI_ERR_NOMEM;
    free(logits);
    if (status) return cmd_failed("generate");
    if (w->json) print_json(w);
    else putchar('\n');
    fflush(stdout); /* the text first, then its speed */
    fprintf(stderr, "%lld tokens, first after %.3f s, %.0f tokens/s\n", (long long)w->made, w->first_seconds,
            w->seconds > 0 ? (double)w->made / w->seconds : 0.0);
    return w->made < w->tokens ? CMD_STOPPED : CMD_DONE;
}

int cmd_generate(int argc, char **argv)
{
    writing w = { .prompt = "", .recipe = "mx32", .tokens = 256, .sampling = MOI_SAMPLING_INIT };
    double temperature = (double)w.sampling.temperature, top_p = (double)w.sampling.top_p;
    int64_t top_k = 0, seed = 1, threads = 0;
    arg table[] = {
        { "MODEL", ARG_TEXT, &w.model, .help = "model folder (config.json, model.safetensors)", .required = true },
        { "prompt", ARG_TEXT, &w.prompt, "TEXT", .help = "what the model continues" },
        { "tokens", ARG_INT, &w.tokens, "N", "how many to write", .min = 1, .max = 1e9 },
        { "temperature", ARG_REAL, &temperature, "X", "0: always the likeliest", .min = 0, .max = 100 },
        { "top-k", ARG_INT, &top_k, "N", "only the N likeliest; 0: all", .min = 0, .max = 1e9 },
        { "top-p", ARG_REAL, &top_p, "X", "only the likeliest that together reach X", .min = 1e-6, .max = 1 },
        { "seed", ARG_INT, &seed, "N", "the same seed writes the same text", .min = 0, .max = 9e15 },
        { "recipe", ARG_CHOICE, &w.recipe, CMD_RECIPES, .help = "how weights are held: mx32 is MXFP8" },
        { "threads", ARG_INT, &threads, "N", "CPU threads, 0: all", .min = 0, .max = 1024 },
        { "json", ARG_FLAG, &w.json, .help = "print the text and the speed as JSON" },
    };
    args_spec spec = ARGS_SPEC("generate", "Continues a text, and prints each byte as it comes.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    w.sampling.temperature = (float)temperature;
    w.sampling.top_p = (float)top_p;
    w.sampling.top_k = (int32_t)top_k;
    w.sampling.state = (uint64_t)seed;
    moi_ctx *ctx = cmd_ctx("generate", threads);
    if (!ctx) return CMD_FAILED;
    moi_lm *lm = NULL;
    moi_session *session = NULL;
    verdict = generate(&w, ctx, &lm, &session);
    free(w.text);
    moi_session_free(session);
    moi_lm_free(lm);
    moi_ctx_free(ctx);
    return verdict;
}
