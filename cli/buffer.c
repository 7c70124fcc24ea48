/* SPDX-License-Identifier: Apache-2.0
 * buffer.c: bytes that grow, and token ids that grow. */
#include "buffer.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool grow(void **at, size_t *room, size_t need, size_t element)
{
    if (need <= *room) return true;
    size_t next = *room ? *room : 64;
    while (next < need) next *= 2;
    void *more = realloc(*at, next * element);
    if (!more) return false;
    *at = more;
    *room = next;
    return true;
}

bool buffer_add(buffer *b, const void *bytes, size_t n)
{
    void *at = b->at;
    if (!grow(&at, &b->room, b->n + n + 1, 1)) return false;
    b->at = at;
    if (n) memcpy(b->at + b->n, bytes, n);
    b->n += n;
    b->at[b->n] = 0;
    return true;
}

void buffer_drop(buffer *b, size_t n)
{
    if (n == 0) return;
    memmove(b->at, b->at + n, b->n - n + 1);
    b->n -= n;
}

void buffer_free(buffer *b)
{
    free(b->at);
    *b = (buffer){ 0 };
}

static bool read_all(buffer *b, FILE *file, size_t most)
{
    char piece[1 << 16];
    for (;;) {
        size_t want = most && most - b->n < sizeof piece ? most - b->n : sizeof piece;
        size_t got = want ? fread(piece, 1, want, file) : 0;
        if (!buffer_add(b, piece, got)) return errno = ENOMEM, false;
        if (got == 0) return !ferror(file);
    }
}

bool buffer_read_file(buffer *b, const char *command, const char *path, int64_t most)
{
    errno = 0;
    FILE *file = fopen(path, "rb");
    bool good = file && read_all(b, file, (size_t)most);
    if (!good) fprintf(stderr, "moiety %s: %s: %s\n", command, path, errno ? strerror(errno) : "it cannot be read to its end");
    if (file) fclose(file);
    return good;
}

bool id_list_reserve(id_list *ids, int64_t more)
{
    void *at = ids->at;
    size_t room = (size_t)ids->room;
    if (!grow(&at, &room, (size_t)(ids->n + more), sizeof *ids->at)) return false;
    ids->at = at;
    ids->room = (int64_t)room;
    return true;
}

bool id_list_add(id_list *ids, int32_t id)
{
    if (!id_list_reserve(ids, 1)) return false;
    ids->at[ids->n++] = id;
    return true;
}

void id_list_free(id_list *ids)
{
    free(ids->at);
    *ids = (id_list){ 0 };
}

static bool separates(char c) { return c == ',' || isspace((unsigned char)c); }

/* One number [at, end) -> *id; false after a message. */
static bool parse_one(const char *command, const char *where, const char *at, size_t n, int64_t vocab, int32_t *id)
{
    int64_t value = 0;
    size_t i = 0;
    while (i < n && isdigit((unsigned char)at[i]) && value <= INT32_MAX) value = value * 10 + (at[i++] - '0');
    const int shown = n > 40 ? 40 : (int)n;
    if (i < n && !isdigit((unsigned char)at[i])) {
        fprintf(stderr, "moiety %s: %s: '%.*s' is no token id\n", command, where, shown, at);
        return false;
    }
    if (value >= vocab || value > INT32_MAX) {
        fprintf(stderr, "moiety %s: %s: token id %.*s is outside the vocabulary of %lld tokens\n", command, where, shown, at, (long long)vocab);
        return false;
    }
    *id = (int32_t)value;
    return true;
}

bool id_list_parse(id_list *ids, const char *command, const char *where, const char *text, size_t n, int64_t vocab)
{
    const int64_t before = ids->n;
    for (size_t i = 0; i < n;) {
        size_t end = i;
        int32_t id;
        while (end < n && !separates(text[end])) end++;
        if (end > i && !parse_one(command, where, text + i, end - i, vocab, &id)) return false;
        if (end > i && !id_list_add(ids, id)) {
            fprintf(stderr, "moiety %s: no memory\n", command);
            return false;
        }
        i = end + 1;
    }
    if (ids->n == before) fprintf(stderr, "moiety %s: %s: no token id in it\n", command, where);
    return ids->n > before;
}
