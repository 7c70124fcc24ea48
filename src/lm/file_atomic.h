/* SPDX-License-Identifier: Apache-2.0
 * file_atomic.h: a file that appears complete or not at all. */
#ifndef MOII_FILE_ATOMIC_H
#define MOII_FILE_ATOMIC_H

#include "moiety.h"

/* Bytes go to a hidden temporary file in the folder of `path`; commit syncs it and renames it over `path`. */
typedef struct moii_atomic {
    int fd;
    char *path; /* with symbolic links resolved, so that a link stays a link */
    char *temp;
} moii_atomic;

/* Errors: IO (the folder is missing or not writable, `path` is there and is no regular file), NOMEM. */
moi_status moii_atomic_open(moii_atomic *file, const char *path);
/* Writes at a place of the file; pieces may come in any order. */
moi_status moii_atomic_write_at(moii_atomic *file, const void *data, int64_t bytes, int64_t offset);
/* Syncs the file, renames it, syncs the folder.  Whatever happens the object is closed; on failure nothing is left behind
 * and an older file at `path` is untouched. */
moi_status moii_atomic_commit(moii_atomic *file);
/* Removes the temporary file.  Harmless after open failed, and when done twice. */
void moii_atomic_cancel(moii_atomic *file);

#endif
