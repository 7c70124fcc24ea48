/* SPDX-License-Identifier: Apache-2.0
 * windows.h: walks over token ids in windows, so that each token but the first is scored once. */
#ifndef WINDOWS_H
#define WINDOWS_H

#include "folder_text.h"

/* Window k holds the inputs from k * stride on, `window` of them where the ids reach so far.  The first scores all its
 * predictions, each other one only those that the one before it did not reach: the last `stride`, fewer at the end. */
typedef struct windows {
    const int32_t *ids;
    int64_t total; /* ids to predict: ids[1] to ids[total] */
    int64_t window, stride;
    int64_t begin, length; /* the window: inputs ids[begin] ... ; it predicts ids[begin + 1] to ids[begin + length] */
    int64_t skip;          /* predictions at its beginning that are scored already */
    int64_t done;          /* predictions scored, with this window */
} windows;

/* The rows of logits [of them, vocab] that are looked at together: as many as fit into some tens of MB, at most a window. */
int64_t windows_piece(const windows *w, int64_t vocab);
bool windows_next(windows *w); /* false: the end.  Begins with begin, length, skip and done 0 */

/* What perplexity and diff read: the options' values, and the ids they lead to. */
typedef struct scored_text {
    const char *data, *list; /* --data FILE, --ids LIST|@FILE: one of them */
    int64_t window, stride, limit;
    id_list ids;
} scored_text;

#define WINDOWS_OPTIONS(s) \
    { "data", ARG_TEXT, &(s).data, "FILE", .help = "text to predict" }, \
    { "ids", ARG_TEXT, &(s).list, "LIST|@FILE", .help = "token ids instead, or a file of them: numbers, white space, commas" }, \
    { "window", ARG_INT, &(s).window, "N", "tokens of a window", .min = 1, .max = 1e6 }, \
    { "seq", ARG_INT, &(s).window, "N", "the same as --window", .min = 1, .max = 1e6 }, \
    { "stride", ARG_INT, &(s).stride, "N", "tokens from window to window, each scored once; 0: the window", .min = 0, .max = 1e6 }, \
    { "limit", ARG_INT, &(s).limit, "N", "tokens to score, 0: all", .min = 0, .max = 9e15 }

/* CMD_DONE, or CMD_USAGE after a message: exactly one of --data and --ids, a stride within the window. */
int scored_text_check(const scored_text *s, const char *command);
/* Reads and tokenises; false after a message. */
bool scored_text_read(scored_text *s, const folder_text *text);
windows scored_text_windows(const scored_text *s);

#endif
