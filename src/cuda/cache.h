/* SPDX-License-Identifier: Apache-2.0
 * cache.h: folders of small files that several processes read and write at once.  A file appears complete or not at all; its first
 * bytes say how long it is and what its contents hash to, and one that lies is treated as absent. */
#ifndef MOII_CACHE_H
#define MOII_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* The file's contents, for the caller to free; false where it is missing, cut short or changed. */
bool moii_cache_read(const char *folder, const char *name, unsigned char **data, size_t *bytes);
/* The first sound file whose name begins with `prefix`. */
bool moii_cache_read_any(const char *folder, const char *prefix, unsigned char **data, size_t *bytes);
/* Makes the folder if need be; false (errno) where it cannot be written. */
bool moii_cache_write(const char *folder, const char *name, const void *data, size_t bytes);
/* Makes the folder if need be; false (errno) where files cannot be written to it. */
bool moii_cache_ready(const char *folder);
/* How many files whose names end in `tail` it holds. */
int moii_cache_count(const char *folder, const char *tail);

#endif
