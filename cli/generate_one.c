/* SPDX-License-Identifier: Apache-2.0
 * generate_one.c: continuing one prompt, token by token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generate.h"
#include "progress.h"
#include "stop.h"

/* What is under way while a prompt is continued. */
typedef struct writing {
    const generating *g;
    completion *c;
    text_stream stream;
    buffer come, held; /* characters that came with a token; those that may begin a stop string */
    size_t printed;    /* bytes of c->text */
} writing;

static void print_new(writing *w)
{
    if (w->g->json || w->g->print_ids || w->printed == w->c->text.n) return;
    fwrite(w->c->text.at + w->printed, 1, w->c->text.n - w->printed, stdout);
    fflush(stdout);
    w->printed = w->c->text.n;
}

static void print_id(const writing *w, int32_t id)
{
    if (w->g->json || !w->g->print_ids) return;
    printf(w->c->made.n > 1 ? " %d" : "%d", (int)id);
    fflush(stdout);
}

static bool no_memory(void) { return fprintf(stderr, "moiety generate: no memory\n"), false; }

/* The text behind one more token; *found: a stop string is complete. */
static bool take_text(writing *w, int32_t id, bool *found)
{
    w->come.n = 0;
    if (!text_stream_add(&w->stream, id, &w->come)) return false;
    if (!endings_add(&w->g->stop, &w->held, w->come.at, w->come.n, &w->c->text, found)) return no_memory();
    print_new(w);
    return true;
}

/* What was held back comes out: half a character, what might have become a stop string. */
static bool end_text(writing *w)
{
    bool found = false;
    w->come.n = 0;
    if (!text_stream_end(&w->stream, &w->come)) return false;
    if (!endings_add(&w->g->stop, &w->held, w->come.at, w->come.n, &w->c->text, &found)) return no_memory();
    if (!endings_flush(&w->held, &w->c->text)) return no_memory();
    print_new(w);
    return true;
}

/* One sampled token: notes it, prints it.  c->ended is set where it is the last. */
static bool take_token(writing *w, int32_t id)
{
    completion *c = w->c;
    bool found = false;
    if (!id_list_add(&c->made, id)) return no_memory();
    print_id(w, id);
    if (!w->g->ignore_eos && (generation_config_ends(&w->g->folder, id) || text_ends(&w->g->text, id))) {
        c->ended = "eos";
        return true;
    }
    if (!take_text(w, id, &found)) return false;
    if (found) c->ended = "stop";
    else if (c->made.n == c->room) c->ended = "length";
    return true;
}

static int write_on(writing *w, moi_session *session, float *logits)
{
    completion *c = w->c;
    moi_sampling sampling = w->g->sampling; /* each prompt begins with the seed, as if it were alone */
    const double began = progress_seconds();
    if (moi_session_feed(session, c->prompt->ids.at, c->prompt->ids.n, logits)) return cmd_failed("generate");
    while (!c->ended) {
        int32_t id;
        if (moi_sample(logits, w->g->model.config.vocab_size, &sampling, &id)) return cmd_failed("generate");
        if (c->made.n == 0) c->first_seconds = progress_seconds() - began;
        if (!take_token(w, id)) return CMD_FAILED;
        c->seconds = progress_seconds() - began;
        if (!c->ended && stop_asked()) c->ended = "interrupted";
        if (!c->ended && moi_session_feed(session, &id, 1, logits)) return cmd_failed("generate");
    }
    return !strcmp(c->ended, "stop") || end_text(w) ? CMD_DONE : CMD_FAILED;
}

int generate_one(const generating *g, completion *c)
{
    writing w = { .g = g, .c = c, .stream = { .text = &g->text } };
    moi_session *session = NULL;
    int verdict = CMD_FAILED;
    const int64_t most = g->model.config.max_position_embeddings, have = c->prompt->ids.n;
    c->room = !g->tokens_given && have < most && have + g->tokens > most ? most - have : g->tokens;
    float *logits = malloc((size_t)g->model.config.vocab_size * sizeof *logits);
    if (!logits) no_memory();
    else if (moi_session_create(&session, g->model.lm, have + c->room)) cmd_failed("generate");
    else verdict = write_on(&w, session, logits);
    moi_session_free(session);
    free(logits);
    buffer_free(&w.come);
    buffer_free(&w.held);
    return verdict;
}

void completion_free(completion *c)
{
    id_list_free(&c->made);
    buffer_free(&c->text);
}
