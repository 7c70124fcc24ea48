/* SPDX-License-Identifier: Apache-2.0
 * characters.c: bytes that come in pieces, given on as whole UTF-8 characters. */
#include "characters.h"

#include <string.h>

enum { BROKEN = -1, SHORT = 0 };

/* The length of the character that begins here; SHORT: so far it is good; BROKEN: these bytes begin none. */
static int length_of(const unsigned char *at, size_t n)
{
    const unsigned char b = at[0];
    const size_t length = b < 0x80 ? 1 : b < 0xC2 ? 0 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : b < 0xF5 ? 4 : 0;
    if (length == 0) return BROKEN;
    for (size_t i = 1; i < length && i < n; i++) {
        unsigned char low = 0x80, high = 0xBF;
        if (i == 1 && b == 0xE0) low = 0xA0;  /* overlong */
        if (i == 1 && b == 0xED) high = 0x9F; /* surrogates */
        if (i == 1 && b == 0xF0) low = 0x90;
        if (i == 1 && b == 0xF4) high = 0x8F; /* above U+10FFFF */
        if (at[i] < low || at[i] > high) return BROKEN;
    }
    return n < length ? SHORT : (int)length;
}

static bool replacement(buffer *out) { return buffer_add(out, "\xEF\xBF\xBD", 3); }

bool characters_add(characters *c, const void *bytes, size_t n, buffer *out)
{
    const unsigned char *from = bytes;
    for (size_t i = 0; i < n; i++) {
        c->part[c->have++] = from[i];
        int length;
        while (c->have && (length = length_of(c->part, c->have)) != SHORT) {
            /* what was good before the byte that broke it counts as one */
            const size_t used = length != BROKEN ? (size_t)length : c->have > 1 ? c->have - 1 : 1;
            if (length == BROKEN ? !replacement(out) : !buffer_add(out, c->part, used)) return false;
            c->have -= used;
            memmove(c->part, c->part + used, c->have);
        }
    }
    return true;
}

bool characters_end(characters *c, buffer *out)
{
    const bool some = c->have > 0;
    c->have = 0;
    return !some || replacement(out);
}

bool characters_valid(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        int length = length_of((const unsigned char *)text + i, n - i);
        if (length <= 0) return false;
        i += (size_t)length;
    }
    return true;
}
