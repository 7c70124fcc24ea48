/* SPDX-License-Identifier: Apache-2.0
 * support_files.h: a folder for the files of a test program. */
#ifndef MOIT_SUPPORT_FILES_H
#define MOIT_SUPPORT_FILES_H

#include <stdint.h>

/* "FOLDER/name", in one of a few buffers that take turns.  The folder is made at the first call. */
const char *moit_path(const char *name);
/* How many entries the folder has, hidden ones too. */
int moit_entries(void);
/* Removes a folder inside it with all it holds; there may be none. */
void moit_remove_tree(const char *name);
/* Removes the folder; tests call it at the end, as a group teardown. */
int moit_remove_folder(void **state);

void moit_write_file(const char *path, const void *bytes, int64_t count);
/* The whole content, to be freed; NULL where there is no such file. */
unsigned char *moit_read_file(const char *path, int64_t *count);

#endif
