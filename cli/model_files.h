/* SPDX-License-Identifier: Apache-2.0
 * model_files.h: the files of weights behind a path: itself, or those of a model folder. */
#ifndef MODEL_FILES_H
#define MODEL_FILES_H

#include <stdbool.h>

typedef struct model_files {
    bool folder;
    int count;
    char **paths; /* sorted */
} model_files;

/* Fills in the list; false after a message that names the command.  Release it in both cases. */
bool model_files_list(model_files *files, const char *command, const char *path);
void model_files_release(model_files *files);

#endif
