/* SPDX-License-Identifier: Apache-2.0
 * folder_text.c: text and token ids of a model folder. */
#include "folder_text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool no_memory(const folder_text *t)
{
    fprintf(stderr, "moiety %s: no memory\n", t->model->command);
    return false;
}

static bool done(const folder_text *t, moi_status status)
{
    if (status) cmd_failed(t->model->command);
    return !status;
}

bool text_open(folder_text *t, const opened *model)
{
    const long long vocab = (long long)model->config.vocab_size;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tokenizer.json", model->path);
    *t = (folder_text){ .model = model, .kind = !access(path, F_OK) ? TEXT_TOKENS : vocab == 256 ? TEXT_BYTES : TEXT_NONE };
    if (t->kind != TEXT_TOKENS) return true;
    if (!done(t, moi_tokenizer_open(&t->tokenizer, model->path))) return false;
    if (moi_tokenizer_vocab_size(t->tokenizer) <= vocab) return true;
    fprintf(stderr, "moiety %s: %s has %lld tokens, but config.json a vocabulary of %lld\n", model->command, path,
            (long long)moi_tokenizer_vocab_size(t->tokenizer), vocab);
    return false;
}

void text_close(folder_text *t)
{
    moi_tokenizer_close(t->tokenizer);
    *t = (folder_text){ 0 };
}

bool text_needed(const folder_text *t)
{
    if (t->kind != TEXT_NONE) return true;
    fprintf(stderr, "moiety %s: %s has no tokenizer.json, and its vocabulary of %lld tokens is not the 256 bytes; give token ids with --ids\n",
            t->model->command, t->model->path, (long long)t->model->config.vocab_size);
    return false;
}

static bool encode_bytes(const folder_text *t, const char *bytes, size_t n, id_list *ids)
{
    for (size_t i = 0; i < n; i++)
        if (!id_list_add(ids, (unsigned char)bytes[i])) return no_memory(t);
    return true;
}

bool text_encode(const folder_text *t, const char *bytes, size_t n, id_list *ids)
{
    int64_t room = (int64_t)n / 2 + 16, count = 0; /* rarely too little, and then the second time is right */
    if (t->kind == TEXT_BYTES) return encode_bytes(t, bytes, n, ids);
    for (;;) {
        if (!id_list_reserve(ids, room)) return no_memory(t);
        if (!done(t, moi_tokenizer_encode(t->tokenizer, n ? bytes : "", (int64_t)n, 0, ids->at + ids->n, room, &count))) return false;
        if (count <= room) break;
        room = count;
    }
    ids->n += count;
    return true;
}

bool text_chat(const folder_text *t, const char *system, const char *user, bool no_thinking, id_list *ids)
{
    const moi_chat_message both[] = { { "system", system }, { "user", user } };
    const int skip = system ? 0 : 1;
    moi_chat_options options = MOI_CHAT_OPTIONS_INIT;
    char *text = NULL;
    int64_t n = 0;
    options.no_thinking = no_thinking;
    if (t->kind != TEXT_TOKENS) {
        fprintf(stderr, "moiety %s: %s has no tokenizer.json, so no chat template either\n", t->model->command, t->model->path);
        return false;
    }
    bool good = done(t, moi_tokenizer_chat(t->tokenizer, both + skip, 2 - skip, &options, NULL, 0, &n));
    if (good && !(text = malloc((size_t)n + 1))) good = no_memory(t);
    good = good && done(t, moi_tokenizer_chat(t->tokenizer, both + skip, 2 - skip, &options, text, n, &n)) && text_encode(t, text, (size_t)n, ids);
    free(text);
    return good;
}

bool text_ends(const folder_text *t, int32_t id) { return t->kind == TEXT_TOKENS && moi_tokenizer_is_eos(t->tokenizer, id); }

bool text_stream_add(text_stream *s, int32_t id, buffer *out)
{
    const folder_text *t = s->text;
    char bytes[512] = { (char)(unsigned char)id };
    int64_t n = t->kind == TEXT_BYTES;
    if (t->kind == TEXT_TOKENS && !done(t, moi_tokenizer_decode(t->tokenizer, &id, 1, MOI_TOKENIZE_VISIBLE, bytes, sizeof bytes, &n))) return false;
    if (n <= (int64_t)sizeof bytes) return characters_add(&s->whole, bytes, (size_t)n, out) || no_memory(t);
    char *more = malloc((size_t)n); /* a token of more than 512 bytes */
    bool good = more ? done(t, moi_tokenizer_decode(t->tokenizer, &id, 1, MOI_TOKENIZE_VISIBLE, more, n, &n)) : no_memory(t);
    good = good && (characters_add(&s->whole, more, (size_t)n, out) || no_memory(t));
    free(more);
    return good;
}

bool text_stream_end(text_stream *s, buffer *out) { return characters_end(&s->whole, out) || no_memory(s->text); }

bool text_bytes(const folder_text *t, const int32_t *ids, int64_t n, int64_t *bytes)
{
    *bytes = t->kind == TEXT_BYTES ? n : 0;
    return t->kind != TEXT_TOKENS || done(t, moi_tokenizer_decode(t->tokenizer, ids, n, 0, NULL, 0, bytes));
}
