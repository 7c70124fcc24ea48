/* SPDX-License-Identifier: Apache-2.0 */
#include "shards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "folder.h"
#include "json_file.h"
#include "status.h"

enum { INDEX_MAX = 1 << 28, FILES_MAX = 1 << 16 };

typedef struct entry {
    const moi_tensor *tensor;
    int file;
    bool used; /* the index has it */
} entry;

typedef struct shard {
    char *name;
    moi_st *st;
} shard;

struct moii_shards {
    moii_path index; /* its path, for messages; of the single file where there is no index */
    shard *files;    /* sorted by name */
    int file_count;
    entry *entries;  /* by file, then by place */
    int64_t *by_name;
    int64_t count;
};

static moi_status no_memory(const moii_shards *s) { return moii_fail(MOI_ERR_NOMEM, "%s: no memory", s->index.text); }

/* ---- the list of tensors ---- */

typedef struct name_ref { const char *name; int64_t index; } name_ref;

/* Equal names in the order of the list, so that messages do not depend on the sort. */
static int by_name(const void *a_, const void *b_)
{
    const name_ref *a = a_, *b = b_;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static moi_status sort_names(moii_shards *s)
{
    size_t n = (size_t)s->count;
    name_ref *refs = malloc((n + 1) * sizeof *refs);
    if (!refs) return no_memory(s);
    for (size_t i = 0; i < n; i++) refs[i] = (name_ref){ s->entries[i].tensor->name, (int64_t)i };
    qsort(refs, n, sizeof *refs, by_name);
    for (size_t i = 0; i < n; i++) s->by_name[i] = refs[i].index;
    free(refs);
    return MOI_OK;
}

static moi_status list_tensors(moii_shards *s)
{
    char shown[MOII_ST_SHOWN];
    int64_t total = 0;
    for (int f = 0; f < s->file_count; f++) total += s->files[f].st->count;
    s->entries = malloc(((size_t)total + 1) * sizeof *s->entries);
    s->by_name = malloc(((size_t)total + 1) * sizeof *s->by_name);
    if (!s->entries || !s->by_name) return no_memory(s);
    for (int f = 0; f < s->file_count; f++)
        for (int64_t i = 0; i < s->files[f].st->count; i++)
            s->entries[s->count++] = (entry){ .tensor = &s->files[f].st->tensors[i], .file = f };
    MOII_TRY(sort_names(s));
    for (int64_t i = 1; i < s->count; i++) {
        const entry *a = &s->entries[s->by_name[i - 1]], *b = &s->entries[s->by_name[i]];
        MOII_REQUIRE(strcmp(a->tensor->name, b->tensor->name), MOI_ERR_FORMAT, "%s: tensor '%s' is also in %s; a name may be in one shard only",
                     s->files[b->file].st->path, moii_st_show(shown, b->tensor->name), s->files[a->file].name);
    }
    return MOI_OK;
}

int64_t moii_shards_index(const moii_shards *s, const char *name)
{
    int64_t low = 0, high = s->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, s->entries[s->by_name[middle]].tensor->name);
        if (order == 0) return s->by_name[middle];
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return -1;
}

/* ---- the index ---- */

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* A name that stays inside the folder. */
static bool is_plain(const char *name) { return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0; }

static moi_status check_map(const moii_shards *s, const json_t *map)
{
    const char *tensor;
    const json_t *file;
    char shown[MOII_ST_SHOWN], file_shown[MOII_ST_SHOWN];
    MOII_REQUIRE(map, MOI_ERR_FORMAT, "%s: \"weight_map\" is missing; wanted an object of tensor names and file names", s->index.text);
    MOII_REQUIRE(json_is_object(map) && json_object_size(map) > 0, MOI_ERR_FORMAT,
                 "%s: \"weight_map\": wanted an object with at least one tensor name and its file name", s->index.text);
    json_object_foreach((json_t *)(uintptr_t)map, tensor, file) {
        moii_st_show(shown, tensor);
        MOII_REQUIRE(json_is_string(file), MOI_ERR_FORMAT, "%s: \"weight_map\": tensor '%s': wanted a file name as a string", s->index.text, shown);
        MOII_REQUIRE(is_plain(json_string_value(file)), MOI_ERR_FORMAT,
                     "%s: \"weight_map\": tensor '%s': wanted the plain name of a file in this folder, got '%s'", s->index.text, shown,
                     moii_st_show(file_shown, json_string_value(file)));
    }
    return MOI_OK;
}

/* The distinct file names of the map, sorted. */
static moi_status list_files(moii_shards *s, const json_t *map)
{
    const char *tensor;
    const json_t *file;
    size_t n = 0, distinct = 0, size = json_object_size(map);
    const char **names = malloc(size * sizeof *names);
    if (!names) return no_memory(s);
    json_object_foreach((json_t *)(uintptr_t)map, tensor, file) names[n++] = json_string_value(file);
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0) names[distinct++] = names[i];
    moi_status status = MOI_OK;
    if (distinct > FILES_MAX) status = moii_fail(MOI_ERR_FORMAT, "%s: wanted at most %d files, got %zu", s->index.text, (int)FILES_MAX, distinct);
    if (!status && !(s->files = calloc(distinct, sizeof *s->files))) status = no_memory(s);
    for (size_t i = 0; !status && i < distinct; i++) {
        s->files[i].name = strdup(names[i]);
        s->file_count++;
        if (!s->files[i].name) status = no_memory(s);
    }
    free(names);
    return status;
}

static moi_status missing_file(const moii_shards *s, const json_t *map, const char *name)
{
    const char *tensor;
    const json_t *file;
    char shown[MOII_ST_SHOWN], tensor_shown[MOII_ST_SHOWN] = "";
    json_object_foreach((json_t *)(uintptr_t)map, tensor, file)
        if (!strcmp(json_string_value(file), name)) {
            moii_st_show(tensor_shown, tensor);
            break;
        }
    return moii_fail(MOI_ERR_IO, "%s: tensor '%s' is said to lie in the shard '%s', which is missing", s->index.text, tensor_shown,
                     moii_st_show(shown, name));
}

static moi_status open_files(moii_shards *s, const json_t *map, const char *folder)
{
    moii_path path;
    struct stat info;
    for (int f = 0; f < s->file_count; f++) {
        int n = snprintf(path.text, sizeof path.text, "%s/%s", folder, s->files[f].name);
        MOII_REQUIRE(n > 0 && (size_t)n < sizeof path.text, MOI_ERR_ARG, "%s: the path of a shard must be shorter than %d bytes", s->index.text,
                     MOII_PATH_MAX);
        if (stat(path.text, &info) && errno == ENOENT) return missing_file(s, map, s->files[f].name);
        MOII_TRY(moi_st_open(&s->files[f].st, path.text));
    }
    return MOI_OK;
}

/* Everything that the index names is where it says. */
static moi_status match(moii_shards *s, const json_t *map)
{
    const char *tensor;
    const json_t *file;
    char shown[MOII_ST_SHOWN];
    int64_t used = 0;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, file) {
        const char *name = json_string_value(file);
        int64_t i = moii_shards_index(s, tensor);
        moii_st_show(shown, tensor);
        MOII_REQUIRE(i >= 0, MOI_ERR_FORMAT, "%s: tensor '%s' is said to lie in the shard '%s', which lacks it", s->index.text, shown, name);
        const char *found = s->files[s->entries[i].file].name;
        MOII_REQUIRE(!strcmp(found, name), MOI_ERR_FORMAT, "%s: tensor '%s' is said to lie in the shard '%s', which lacks it; it is in '%s'",
                     s->index.text, shown, name, found);
        s->entries[i].used = true;
        used++;
    }
    if (used == s->count) return MOI_OK;
    int64_t kept = 0;
    for (int64_t i = 0; i < s->count; i++)
        if (s->entries[i].used) s->entries[kept++] = s->entries[i];
    s->count = kept;
    return sort_names(s);
}

static moi_status open_sharded(moii_shards *s, const char *folder, const json_t *map)
{
    MOII_TRY(check_map(s, map));
    MOII_TRY(list_files(s, map));
    MOII_TRY(open_files(s, map, folder));
    MOII_TRY(list_tensors(s));
    return match(s, map);
}

/* ---- the folder ---- */

static moi_status open_single(moii_shards *s, const char *folder)
{
    struct stat info;
    MOII_TRY(moii_folder_path(&s->index, folder, MOII_SHARDS_SINGLE));
    if (stat(s->index.text, &info)) {
        if (errno != ENOENT) return moii_fail_errno(MOI_ERR_IO, "cannot open %s", s->index.text);
        MOII_FAIL(MOI_ERR_IO, "%s: no model here; wanted " MOII_SHARDS_SINGLE " or " MOII_SHARDS_INDEX, folder);
    }
    if (!(s->files = calloc(1, sizeof *s->files))) return no_memory(s);
    s->file_count = 1;
    if (!(s->files[0].name = strdup(MOII_SHARDS_SINGLE))) return no_memory(s);
    MOII_TRY(moi_st_open(&s->files[0].st, s->index.text));
    return list_tensors(s);
}

static moi_status open_folder(moii_shards *s, const char *folder)
{
    struct stat info;
    json_t *index;
    MOII_TRY(moii_folder_path(&s->index, folder, MOII_SHARDS_INDEX));
    if (stat(s->index.text, &info) && errno == ENOENT) return open_single(s, folder);
    MOII_TRY(moii_json_load(&index, s->index.text, INDEX_MAX));
    moi_status status = open_sharded(s, folder, json_object_get(index, "weight_map"));
    json_decref(index);
    return status;
}

moi_status moii_shards_open(moii_shards **out, const char *folder)
{
    *out = NULL;
    moii_shards *s = calloc(1, sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "%s: no memory", folder);
    moi_status status = open_folder(s, folder);
    if (status) moii_shards_close(s);
    else *out = s;
    return status;
}

void moii_shards_close(moii_shards *s)
{
    if (!s) return;
    for (int f = 0; f < s->file_count; f++) {
        moi_st_close(s->files[f].st);
        free(s->files[f].name);
    }
    free(s->files);
    free(s->entries);
    free(s->by_name);
    free(s);
}

int64_t moii_shards_count(const moii_shards *s) { return s->count; }

void moii_shards_get(const moii_shards *s, int64_t i, moi_tensor *out, const char **file)
{
    *out = *s->entries[i].tensor;
    if (file) *file = s->files[s->entries[i].file].st->path;
}

bool moii_shards_find(const moii_shards *s, const char *name, moi_tensor *out, const char **file)
{
    int64_t i = moii_shards_index(s, name);
    if (i >= 0) moii_shards_get(s, i, out, file);
    return i >= 0;
}

const char *moii_shards_where(const moii_shards *s) { return s->index.text; }
int moii_shards_files(const moii_shards *s) { return s->file_count; }
moi_st *moii_shards_file(const moii_shards *s, int file) { return s->files[file].st; }
const char *moii_shards_file_name(const moii_shards *s, int file) { return s->files[file].name; }
int moii_shards_file_of(const moii_shards *s, int64_t i) { return s->entries[i].file; }
