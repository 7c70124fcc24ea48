/* SPDX-License-Identifier: Apache-2.0
 * folder.h: several files of one folder that change together.
 *
 * A save writes each file as NAME.next; then the marker ".commit" appears (the moment the save counts); then every NAME.next
 * is renamed to NAME and the marker goes.  While the marker is there, NAME.next is the file where it exists; without it, NAME
 * is.  So a process that dies at any moment leaves the old files or the new ones, never a mixture. */
#ifndef MOII_FOLDER_H
#define MOII_FOLDER_H

#include "moiety.h"

enum { MOII_PATH_MAX = 4096 };
typedef struct moii_path { char text[MOII_PATH_MAX]; } moii_path;

/* Makes the folder, and those above it, where missing. */
moi_status moii_folder_make(const char *folder);
/* The same, and finishes a save that counted, removes what others left behind. */
moi_status moii_folder_begin(const char *folder, const char *const *names, int count);
/* Where a save writes this file. */
moi_status moii_folder_next(moii_path *out, const char *folder, const char *name);
/* Every NAME.next is complete: make them count. */
moi_status moii_folder_commit(const char *folder, const char *const *names, int count);
/* Where this file is to be read from; it need not exist. */
moi_status moii_folder_path(moii_path *out, const char *folder, const char *name);

#endif
