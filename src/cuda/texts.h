/* SPDX-License-Identifier: Apache-2.0
 * texts.h: the device code as the library carries it: src/cuda/kernels/ and src/core/num.h, block.h, silu.h, embedded when built. */
#ifndef MOII_TEXTS_H
#define MOII_TEXTS_H

enum { MOII_TEXTS_USED = 48 };

typedef struct moii_text { const char *name, *text; } moii_text; /* "num.h" */

const moii_text *moii_text_find(const char *name); /* NULL: there is none */

/* A file and everything it includes, each once, the file itself first. */
typedef struct moii_text_set {
    int count;
    const char *names[MOII_TEXTS_USED], *texts[MOII_TEXTS_USED];
} moii_text_set;
/* 0, or 1 where a file is missing (its name is then in names[count]) or there are too many. */
int moii_text_collect(moii_text_set *out, const char *name);

#endif
