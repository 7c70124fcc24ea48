/* SPDX-License-Identifier: Apache-2.0
 * folder_text.c: text and token ids of a model folder. */
#include "folder_text.h"

#include <stdio.h>

static bool no_memory(const folder_text *t)
{
    fprintf(stderr, "moiety %s: no memory\n", t->model->command);
    return false;
}

bool text_open(folder_text *t, const opened *model)
{
    *t = (folder_text){ .model = model, .kind = model->config.vocab_size == 256 ? TEXT_BYTES : TEXT_NONE };
    return true;
}

void text_close(folder_text *t) { *t = (folder_text){ 0 }; }

bool text_needed(const folder_text *t)
{
    if (t->kind != TEXT_NONE) return true;
    fprintf(stderr, "moiety %s: %s has no tokenizer.json, and its vocabulary of %lld tokens is not the 256 bytes; give token ids with --ids\n",
            t->model->command, t->model->path, (long long)t->model->config.vocab_size);
    return false;
}

bool text_encode(const folder_text *t, const char *where, const char *bytes, size_t n, id_list *ids)
{
    (void)where;
    for (size_t i = 0; i < n; i++)
        if (!id_list_add(ids, (unsigned char)bytes[i])) return no_memory(t);
    return true;
}

bool text_chat(const folder_text *t, const char *system, const char *user, id_list *ids)
{
    (void)system, (void)user, (void)ids;
    fprintf(stderr, "moiety %s: %s has no chat template\n", t->model->command, t->model->path);
    return false;
}

bool text_stream_add(text_stream *s, int32_t id, buffer *out)
{
    if (s->text->kind == TEXT_NONE) return true;
    const unsigned char byte = (unsigned char)id;
    return characters_add(&s->whole, &byte, 1, out) || no_memory(s->text);
}

bool text_stream_end(text_stream *s, buffer *out) { return characters_end(&s->whole, out) || no_memory(s->text); }

bool text_bytes(const folder_text *t, const int32_t *ids, int64_t n, int64_t *bytes)
{
    (void)ids;
    *bytes = t->kind == TEXT_NONE ? 0 : n;
    return true;
}
