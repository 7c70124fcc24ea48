/* SPDX-License-Identifier: Apache-2.0 */
#include "shapes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *op, *text; } built_in[] = {
#include "shapes.inc"
};

const char *shapes_built_in(const char *op)
{
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++)
        if (!strcmp(built_in[i].op, op)) return built_in[i].text;
    return NULL;
}

/* Cuts one line into words; their number, or -1. */
static int cut(shapes_line words, const char *line, size_t length)
{
    int count = 0;
    for (size_t at = 0; at <= length;) {
        size_t word = 0;
        while (at + word < length && line[at + word] != ',') word++;
        if (count == SHAPES_COLUMNS || word >= SHAPES_WORD) return -1;
        memcpy(words[count], line + at, word);
        words[count++][word] = 0;
        at += word + 1;
    }
    return count;
}

bool shapes_parse(shapes *s, const char *label, const char *text)
{
    memset(s, 0, sizeof *s);
    int number = 0;
    while (*text) {
        size_t length = strcspn(text, "\r\n");
        number++;
        if (length && *text != '#') {
            bool head = !s->columns;
            if (!head && s->lines == SHAPES_LINES) return fprintf(stderr, "%s: more than %d lines\n", label, SHAPES_LINES), false;
            int count = cut(head ? s->names : s->line[s->lines], text, length);
            if (count < 0 || (!head && count != s->columns))
                return fprintf(stderr, "%s: line %d does not have the %d columns of the first line\n", label, number, s->columns), false;
            if (head) s->columns = count;
            else s->lines++;
        }
        text += length;
        text += *text == '\r';
        text += *text == '\n';
    }
    if (!s->lines) fprintf(stderr, "%s: no cases\n", label);
    return s->lines > 0;
}

bool shapes_read(shapes *s, const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    if (!file) return fprintf(stderr, "%s: %s\n", path, strerror(errno)), false;
    size_t length = fread(text, 1, sizeof text - 1, file);
    bool whole = feof(file) && !ferror(file);
    fclose(file);
    text[length] = 0;
    if (!whole) return fprintf(stderr, "%s: cannot be read, or is longer than %zu bytes\n", path, sizeof text - 1), false;
    return shapes_parse(s, path, text);
}

const char *shapes_text(const shapes *s, int line, const char *column, const char *absent)
{
    for (int i = 0; i < s->columns; i++)
        if (!strcmp(s->names[i], column)) return s->line[line][i];
    return absent;
}

int64_t shapes_int(const shapes *s, int line, const char *column, int64_t absent)
{
    const char *text = shapes_text(s, line, column, NULL);
    if (!text) return absent;
    char *end;
    long long n = strtoll(text, &end, 10);
    return *text && !*end && n >= 0 && n <= (1LL << 40) ? n : -1;
}
