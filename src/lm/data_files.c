/* SPDX-License-Identifier: Apache-2.0
 * data_files.c: finds the files of a data set and reads windows of them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data.h"
#include "status.h"

static moi_status add_file(moii_sources *s, const char *path, int64_t bytes)
{
    if (bytes == 0) return MOI_OK;
    MOII_REQUIRE(s->bytes <= INT64_MAX - bytes, MOI_ERR_FORMAT, "moi_data_open: %s: more than 2^63 bytes", path);
    MOII_REQUIRE(access(path, R_OK) == 0, MOI_ERR_IO, "moi_data_open: %s: %s", path, strerror(errno));
    if (s->count == s->room) {
        int64_t room = s->room ? 2 * s->room : 16;
        moii_source *items = realloc(s->items, (size_t)room * sizeof *items);
        MOII_REQUIRE(items, MOI_ERR_NOMEM, "moi_data_open: no memory for the list of files");
        s->items = items;
        s->room = room;
    }
    char *copy = strdup(path);
    MOII_REQUIRE(copy, MOI_ERR_NOMEM, "moi_data_open: no memory for the list of files");
    s->items[s->count++] = (moii_source){ copy, 0, bytes };
    s->bytes += bytes;
    return MOI_OK;
}

static bool ends_in(const char *text, const char *suffix)
{
    size_t n = strlen(text), k = suffix ? strlen(suffix) : 0;
    return k == 0 || (n >= k && !strcmp(text + n - k, suffix));
}

static moi_status add_folder(moii_sources *s, const char *folder, const char *suffix);

static moi_status add_entry(moii_sources *s, const char *folder, const char *name, const char *suffix)
{
    struct stat info;
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    MOII_REQUIRE(path, MOI_ERR_NOMEM, "moi_data_open: no memory for a path");
    snprintf(path, size, "%s/%s", folder, name);
    moi_status status = MOI_OK;
    if (lstat(path, &info)) status = moii_fail_errno(MOI_ERR_IO, "moi_data_open: %s", path);
    else if (S_ISDIR(info.st_mode)) status = add_folder(s, path, suffix);
    else if (S_ISREG(info.st_mode) && ends_in(name, suffix)) status = add_file(s, path, (int64_t)info.st_size);
    free(path);
    return status;
}

static moi_status add_folder(moii_sources *s, const char *folder, const char *suffix)
{
    DIR *dir = opendir(folder);
    if (!dir) return moii_fail_errno(MOI_ERR_IO, "moi_data_open: %s", folder);
    moi_status status = MOI_OK;
    struct dirent *entry;
    while (!status && (errno = 0, entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) status = add_entry(s, folder, entry->d_name, suffix);
    if (!status && errno) status = moii_fail_errno(MOI_ERR_IO, "moi_data_open: reading %s", folder);
    closedir(dir);
    return status;
}

static int by_path(const void *a, const void *b) { return strcmp(((const moii_source *)a)->path, ((const moii_source *)b)->path); }

moi_status moii_sources_find(moii_sources *s, const char *path, const char *suffix)
{
    struct stat info;
    *s = (moii_sources){ 0 };
    if (stat(path, &info)) return moii_fail_errno(MOI_ERR_IO, "moi_data_open: %s", path);
    if (S_ISDIR(info.st_mode)) MOII_TRY(add_folder(s, path, suffix));
    else {
        MOII_REQUIRE(S_ISREG(info.st_mode), MOI_ERR_IO, "moi_data_open: %s is neither a file nor a folder", path);
        MOII_TRY(add_file(s, path, (int64_t)info.st_size));
    }
    if (s->count) qsort(s->items, (size_t)s->count, sizeof *s->items, by_path);
    int64_t at = 0;
    for (int64_t i = 0; i < s->count; i++) {
        s->items[i].begin = at;
        at += s->items[i].bytes;
    }
    return MOI_OK;
}

void moii_sources_free(moii_sources *s)
{
    for (int64_t i = 0; i < s->count; i++) free(s->items[i].path);
    free(s->items);
    *s = (moii_sources){ 0 };
}

/* The last file that begins at or before `at`. */
static int64_t source_at(const moii_sources *s, int64_t at)
{
    int64_t lo = 0, hi = s->count;
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (s->items[mid].begin <= at) lo = mid;
        else hi = mid;
    }
    return lo;
}

static moi_status read_source(const moii_source *f, int64_t at, int64_t count, unsigned char *bytes)
{
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return moii_fail_errno(MOI_ERR_IO, "reading data: %s", f->path);
    moi_status status = MOI_OK;
    while (count > 0 && !status) {
        ssize_t got = pread(fd, bytes, (size_t)count, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = moii_fail_errno(MOI_ERR_IO, "reading data: %s", f->path);
        else if (got == 0) status = moii_fail(MOI_ERR_IO, "reading data: %s became shorter since it was opened", f->path);
        else bytes += got, at += got, count -= got;
    }
    close(fd);
    return status;
}

moi_status moii_sources_read(const moii_sources *s, int64_t at, int64_t count, unsigned char *bytes)
{
    for (int64_t i = source_at(s, at); count > 0; i++) {
        const moii_source *f = &s->items[i];
        int64_t from = at - f->begin, n = f->bytes - from < count ? f->bytes - from : count;
        MOII_TRY(read_source(f, from, n, bytes));
        bytes += n, at += n, count -= n;
    }
    return MOI_OK;
}
