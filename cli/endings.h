/* SPDX-License-Identifier: Apache-2.0
 * endings.h: finds strings that end a text while the text still comes in pieces. */
#ifndef ENDINGS_H
#define ENDINGS_H

#include "args.h"
#include "buffer.h"

/* What was held back is in `held`: bytes that may be the beginning of an ending.  Takes the next bytes, and appends to `out`
 * those that certainly stand before any ending.  *found: an ending is complete; it and all behind it is dropped.  The ending
 * that is complete first counts, and of those the longest, however the text is cut into pieces.  false: no memory. */
bool endings_add(const arg_list *e, buffer *held, const char *bytes, size_t n, buffer *out, bool *found);
/* Nothing more comes: what was held back belongs to the text. */
bool endings_flush(buffer *held, buffer *out);

#endif
