/* SPDX-License-Identifier: Apache-2.0
 * windows.c: walks over token ids in windows, so that each token but the first is scored once. */
#include "windows.h"

#include <stdio.h>
#include <string.h>

enum { PIECE_FLOATS = 1 << 24, PIECE_ROWS = 128 };

int64_t windows_piece(const windows *w, int64_t vocab)
{
    const int64_t most = w->total < w->window ? w->total : w->window, fit = PIECE_FLOATS / vocab < PIECE_ROWS ? PIECE_FLOATS / vocab : PIECE_ROWS;
    return fit < 1 ? 1 : fit < most ? fit : most;
}

bool windows_next(windows *w)
{
    if (w->done >= w->total) return false;
    if (w->done > 0) w->begin += w->stride;
    w->length = w->total - w->begin < w->window ? w->total - w->begin : w->window;
    w->skip = w->done - w->begin;
    w->done = w->begin + w->length;
    return true;
}

int scored_text_check(const scored_text *s, const char *command)
{
    const char *wrong = NULL;
    if (!s->data && !s->list) wrong = "--data or --ids is missing";
    else if (s->data && s->list) wrong = "--data and --ids cannot both be given";
    else if (s->stride > s->window) wrong = "--stride must not be larger than the window: tokens between the windows would not be scored";
    if (!wrong) return CMD_DONE;
    fprintf(stderr, "moiety %s: %s; see 'moiety %s --help'\n", command, wrong, command);
    return CMD_USAGE;
}

static bool read_ids(scored_text *s, const opened *model)
{
    const int64_t vocab = model->config.vocab_size;
    buffer text = { 0 };
    bool good = true;
    if (s->list[0] == '@') {
        good = buffer_read_file(&text, model->command, s->list + 1, 0) &&
               id_list_parse(&s->ids, model->command, s->list + 1, text.at, text.n, vocab);
    } else good = buffer_add(&text, s->list, strlen(s->list)) && id_list_parse(&s->ids, model->command, "--ids", text.at, text.n, vocab);
    buffer_free(&text);
    return good;
}

static bool read_text(scored_text *s, const folder_text *t)
{
    /* where bytes are the tokens, no more of the file is needed than is scored */
    const int64_t most = t->kind == TEXT_BYTES && s->limit > 0 ? s->limit + 1 : 0;
    buffer text = { 0 };
    bool good = text_needed(t) && buffer_read_file(&text, t->model->command, s->data, most) && text_encode(t, text.at, text.n, &s->ids);
    if (good && s->ids.n < 2) {
        fprintf(stderr, "moiety %s: %s has %zu bytes, %lld tokens; at least 2 are needed\n", t->model->command, s->data, text.n, (long long)s->ids.n);
        good = false;
    }
    buffer_free(&text);
    return good;
}

bool scored_text_read(scored_text *s, const folder_text *text)
{
    const opened *model = text->model;
    if (!(s->list ? read_ids(s, model) : read_text(s, text))) return false;
    if (s->ids.n < 2) {
        fprintf(stderr, "moiety %s: --ids has %lld token; at least 2 are needed\n", model->command, (long long)s->ids.n);
        return false;
    }
    return true;
}

windows scored_text_windows(const scored_text *s)
{
    windows w = { .ids = s->ids.at, .total = s->ids.n - 1, .window = s->window, .stride = s->stride ? s->stride : s->window };
    if (s->limit > 0 && s->limit < w.total) w.total = s->limit;
    return w;
}
