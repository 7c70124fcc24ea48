/* SPDX-License-Identifier: Apache-2.0
 * buffer.h: bytes that grow, and token ids that grow. */
#ifndef BUFFER_H
#define BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct buffer {
    char *at; /* always ended by a zero that n does not count, unless NULL */
    size_t n, room;
} buffer;

/* false: no memory */
bool buffer_add(buffer *b, const void *bytes, size_t n);
void buffer_drop(buffer *b, size_t n); /* the first n bytes */
void buffer_free(buffer *b);
/* The whole file (at most `most` bytes of it, 0: all); false after a message of `command`. */
bool buffer_read_file(buffer *b, const char *command, const char *path, int64_t most);

typedef struct id_list {
    int32_t *at;
    int64_t n, room;
} id_list;

bool id_list_reserve(id_list *ids, int64_t more); /* room for so many behind those there are */
bool id_list_add(id_list *ids, int32_t id);
void id_list_free(id_list *ids);
/* Appends the numbers of a text, separated by commas or white space.  false after a message of `command` that begins with
 * `where`: something that is no number, no number at all, or an id that is not below `vocab`. */
bool id_list_parse(id_list *ids, const char *command, const char *where, const char *text, size_t n, int64_t vocab);

#endif
