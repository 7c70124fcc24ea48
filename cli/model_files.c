/* SPDX-License-Identifier: Apache-2.0 */
#include "model_files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *joined(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool add(model_files *f, char *path)
{
    for (int i = 0; path && i < f->count; i++)
        if (!strcmp(f->paths[i], path)) {
            free(path);
            return true;
        }
    char **grown = path ? realloc(f->paths, (size_t)(f->count + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(path);
        return false;
    }
    f->paths = grown;
    f->paths[f->count++] = path;
    return true;
}

/* The files that an index names; a name that leaves the folder is none. */
static bool add_of_index(model_files *f, const char *command, const char *folder, const char *index)
{
    json_error_t error;
    const char *tensor;
    json_t *name, *root = json_load_file(index, JSON_REJECT_DUPLICATES, &error);
    bool good = root && json_object_size(json_object_get(root, "weight_map")) > 0;
    if (!good) fprintf(stderr, "moiety %s: %s: %s\n", command, index, root ? "\"weight_map\": wanted an object that is not empty" : error.text);
    if (good) {
        json_object_foreach(json_object_get(root, "weight_map"), tensor, name) {
            const char *text = json_string_value(name);
            bool plain = text && *text && !strchr(text, '/') && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
            if (plain && add(f, joined(folder, text))) continue;
            fprintf(stderr, "moiety %s: %s: \"weight_map\": %s\n", command, index, plain ? "no memory" : "wanted plain names of files in this folder");
            good = false;
            break;
        }
    }
    json_decref(root);
    return good;
}

bool model_files_list(model_files *f, const char *command, const char *path)
{
    struct stat s;
    *f = (model_files){ .folder = stat(path, &s) == 0 && S_ISDIR(s.st_mode) };
    char *index = f->folder ? joined(path, "model.safetensors.index.json") : NULL;
    bool good = index || !f->folder;
    if (index && stat(index, &s) == 0) good = add_of_index(f, command, path, index);
    else if (good) good = add(f, f->folder ? joined(path, "model.safetensors") : strdup(path));
    if (f->count) qsort(f->paths, (size_t)f->count, sizeof *f->paths, by_text);
    free(index);
    return good;
}

void model_files_release(model_files *f)
{
    for (int i = 0; i < f->count; i++) free(f->paths[i]);
    free(f->paths);
    *f = (model_files){ .count = 0 };
}
