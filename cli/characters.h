/* SPDX-License-Identifier: Apache-2.0
 * characters.h: bytes that come in pieces, given on as whole UTF-8 characters. */
#ifndef CHARACTERS_H
#define CHARACTERS_H

#include "buffer.h"

typedef struct characters {
    unsigned char part[4]; /* the beginning of a character whose other bytes have not come yet */
    size_t have;
} characters;

/* Appends to `out` what is complete; bytes that are no UTF-8 become U+FFFD, one
 * for each beginning of a character that does not go on, one for each other byte.  false: no memory. */
bool characters_add(characters *c, const void *bytes, size_t n, buffer *out);
/* Nothing more comes: the beginning of a character becomes U+FFFD. */
bool characters_end(characters *c, buffer *out);
/* Whether all of it is UTF-8. */
bool characters_valid(const char *text, size_t n);

#endif
