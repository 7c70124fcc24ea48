/* SPDX-License-Identifier: Apache-2.0
 * data.h: the files behind a moi_data, seen as one stream of bytes. */
#ifndef MOII_DATA_H
#define MOII_DATA_H

#include "moiety_lm.h"

typedef struct moii_source {
    char *path;
    int64_t begin, bytes; /* in the stream */
} moii_source;

typedef struct moii_sources {
    moii_source *items;
    int64_t count, room, bytes;
} moii_sources;

/* `path` itself if it is a file; else every regular file below it that ends in `suffix` (NULL: any), in order of path.
 * Symbolic links below a folder are not followed, so that no loop can be met and nothing is read twice. */
moi_status moii_sources_find(moii_sources *sources, const char *path, const char *suffix);
void moii_sources_free(moii_sources *sources);
/* Bytes at..at + count of the stream. */
moi_status moii_sources_read(const moii_sources *sources, int64_t at, int64_t count, unsigned char *bytes);

#endif
