/* SPDX-License-Identifier: Apache-2.0
 * endings.c: finds strings that end a text while the text still comes in pieces. */
#include "endings.h"

#include <string.h>

/* The length of the longest ending that ends where the text ends; 0: none does. */
static size_t complete(const arg_list *e, const char *text, size_t n)
{
    size_t longest = 0;
    for (int i = 0; i < e->n; i++) {
        size_t length = strlen(e->at[i]);
        if (length > longest && length <= n && !memcmp(text + n - length, e->at[i], length)) longest = length;
    }
    return longest;
}

/* How many of the last bytes could become an ending. */
static size_t beginning(const arg_list *e, const char *text, size_t n)
{
    size_t longest = 0;
    for (int i = 0; i < e->n; i++) {
        size_t most = strlen(e->at[i]) - 1;
        for (size_t length = most < n ? most : n; length > longest; length--)
            if (!memcmp(text + n - length, e->at[i], length)) longest = length;
    }
    return longest;
}

bool endings_add(const arg_list *e, buffer *held, const char *bytes, size_t n, buffer *out, bool *found)
{
    *found = false;
    for (size_t i = 0; i < n; i++) {
        if (!buffer_add(held, bytes + i, 1)) return false;
        size_t length = complete(e, held->at, held->n);
        if (length == 0) continue;
        *found = true;
        bool good = buffer_add(out, held->at, held->n - length);
        buffer_drop(held, held->n);
        return good;
    }
    if (held->n == 0) return true;
    size_t safe = held->n - beginning(e, held->at, held->n);
    if (!buffer_add(out, held->at, safe)) return false;
    buffer_drop(held, safe);
    return true;
}

bool endings_flush(buffer *held, buffer *out)
{
    bool good = held->n == 0 || buffer_add(out, held->at, held->n);
    if (held->n) buffer_drop(held, held->n);
    return good;
}
