/* SPDX-License-Identifier: Apache-2.0
 * folder_text.h: text and token ids of a model folder. */
#ifndef FOLDER_TEXT_H
#define FOLDER_TEXT_H

#include "characters.h"
#include "open_model.h"

typedef enum text_kind {
    TEXT_NONE,  /* neither: only token ids go in and come out */
    TEXT_BYTES, /* a vocabulary of 256: a token is a byte */
    TEXT_TOKENS /* the folder's tokenizer.json */
} text_kind;

typedef struct folder_text {
    const opened *model;
    text_kind kind;
    moi_tokenizer *tokenizer;
} folder_text;

/* false after a message, as with the functions below */
bool text_open(folder_text *t, const opened *model);
void text_close(folder_text *t);
/* Whether text can be read; the message says that --ids can. */
bool text_needed(const folder_text *t);
/* Appends the ids of a text. */
bool text_encode(const folder_text *t, const char *bytes, size_t n, id_list *ids);
/* The ids of a user's message in the folder's chat template; system: NULL, or the message before it.  no_thinking: an
 * empty thought is put behind. */
bool text_chat(const folder_text *t, const char *system, const char *user, bool no_thinking, id_list *ids);
/* Whether the tokeniser's folder says that a text ends with this token. */
bool text_ends(const folder_text *t, int32_t id);

/* Ids back to text, one by one: whole UTF-8 characters as soon as they are complete, without special tokens.
 * Begins as { .text = t }. */
typedef struct text_stream {
    const folder_text *text;
    characters whole;
} text_stream;

bool text_stream_add(text_stream *s, int32_t id, buffer *out);
bool text_stream_end(text_stream *s, buffer *out);
/* How many bytes of text these ids stand for; 0: they stand for none. */
bool text_bytes(const folder_text *t, const int32_t *ids, int64_t n, int64_t *bytes);

#endif
