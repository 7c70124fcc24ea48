/* SPDX-License-Identifier: Apache-2.0
 * convert_record.c: moiety-quantize.json, which says how an output folder was made and whether it is complete.  The next run
 * goes on where settings and input are the same, and refuses to mix otherwise. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert_folder.h"
#include "json_file.h"
#include "status.h"

enum { RECORD_MAX = 1 << 26 };

void moii_source_text(char text[MOII_SOURCE], const moi_st *file)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, of the header */
    for (int64_t i = 0; i < file->data_start; i++) hash = (hash ^ file->bytes[i]) * UINT64_C(0x100000001b3);
    snprintf(text, MOII_SOURCE, "%" PRId64 "-%016" PRIx64, file->size, hash);
}

/* File, size and header as above, and when it was last written: other weights of the same shapes are another input. */
static json_t *source_of(const moi_st *file, const char *name)
{
    char text[MOII_SOURCE], modified[48] = "";
    struct stat s;
    moii_source_text(text, file);
    if (fstat(file->fd, &s) == 0) snprintf(modified, sizeof modified, "%lld.%09ld", (long long)s.st_mtim.tv_sec, (long)s.st_mtim.tv_nsec);
    return json_pack("{s:s, s:s, s:s}", "file", name, "contents", text, "modified", modified);
}

json_t *moii_record(const moii_convert *c)
{
    const char *round = c->format.recipe == MOI_RECIPE_MX32 ? moi_round_name(c->format.round) : "none";
    json_t *source = json_array();
    for (int f = 0; f < moii_shards_files(c->shards); f++)
        if (json_array_append_new(source, source_of(moii_shards_file(c->shards, f), moii_shards_file_name(c->shards, f)))) {
            json_decref(source);
            return NULL;
        }
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "state", "unfinished", "format", c->file_format->name, "round", round, "keep",
                     c->options.keep ? c->options.keep : "", "source", source);
}

static moi_status path_of(moii_path *out, const char *folder, const char *name)
{
    int n = snprintf(out->text, sizeof out->text, "%s/%s", folder, name);
    MOII_REQUIRE(n > 0 && (size_t)n < sizeof out->text, MOI_ERR_ARG, "the path of a folder must be shorter than %d bytes", MOII_PATH_MAX);
    return MOI_OK;
}

static bool is_leftover(const char *name)
{
    size_t n = strlen(name);
    return name[0] == '.' && n > 5 && !strcmp(name + n - 5, ".part");
}

/* Removes temporary files of a run that was killed; *other: the name of a file that is none of ours. */
static moi_status remove_leftovers(const char *folder, bool *other, char name[MOII_ST_SHOWN])
{
    DIR *dir = opendir(folder);
    moi_status status = MOI_OK;
    if (!dir) return moii_fail_errno(MOI_ERR_IO, "cannot open the folder %s", folder);
    for (struct dirent *e; !status && (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (!is_leftover(e->d_name)) *other = true, moii_st_show(name, e->d_name);
        else if (unlinkat(dirfd(dir), e->d_name, 0)) status = moii_fail_errno(MOI_ERR_IO, "cannot remove %s/%s", folder, e->d_name);
    }
    closedir(dir);
    return status;
}

static moi_status compare(const json_t *record, const json_t *there, const char *path)
{
    static const char *const keys[] = { "format", "round", "keep" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *now = json_string_value(json_object_get(record, keys[i])), *then = json_string_value(json_object_get(there, keys[i]));
        MOII_REQUIRE(then && !strcmp(now, then), MOI_ERR_ARG, "%s: this folder was begun with %s \"%.64s\", not \"%.64s\"; remove it or choose another",
                     path, keys[i], then ? then : "", now);
    }
    const json_t *a = json_object_get(record, "source"), *b = json_object_get(there, "source");
    for (size_t i = 0; i < json_array_size(a); i++)
        MOII_REQUIRE(json_equal(json_array_get(a, i), json_array_get(b, i)), MOI_ERR_ARG,
                     "%s: this folder was begun from other input (%.64s is not the same); remove it or choose another", path,
                     json_string_value(json_object_get(json_array_get(a, i), "file")));
    MOII_REQUIRE(json_array_size(a) == json_array_size(b), MOI_ERR_ARG, "%s: this folder was begun from other input; remove it or choose another", path);
    return MOI_OK;
}

moi_status moii_record_check(const json_t *record, const char *folder)
{
    moii_path path;
    struct stat s;
    json_t *there;
    char name[MOII_ST_SHOWN];
    bool other = false;
    MOII_TRY(path_of(&path, folder, MOII_RECORD));
    bool ours = stat(path.text, &s) == 0;
    if (ours) {
        MOII_TRY(moii_json_load(&there, path.text, RECORD_MAX));
        moi_status status = compare(record, there, path.text);
        json_decref(there);
        if (status) return status;
    }
    MOII_TRY(remove_leftovers(folder, &other, name));
    MOII_REQUIRE(ours || !other, MOI_ERR_ARG, "moi_folder_quantize: out must be a new or empty folder, or one it began; %s has %s", folder, name);
    return MOI_OK;
}

moi_status moii_record_save(json_t *record, const char *folder, bool complete)
{
    moii_path path;
    MOII_TRY(path_of(&path, folder, MOII_RECORD));
    MOII_REQUIRE(!json_object_set_new(record, "state", json_string(complete ? "complete" : "unfinished")), MOI_ERR_NOMEM, "cannot write %s: no memory",
                 path.text);
    return moii_json_save(record, path.text);
}
