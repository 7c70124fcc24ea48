/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "status.h"

static const char marker[] = ".commit";

static moi_status join(moii_path *out, const char *folder, const char *name, const char *suffix)
{
    int n = snprintf(out->text, sizeof out->text, "%s/%s%s", folder, name, suffix);
    MOII_REQUIRE(n > 0 && (size_t)n < sizeof out->text, MOI_ERR_ARG, "the path of a folder must be shorter than %d bytes", MOII_PATH_MAX);
    return MOI_OK;
}

static bool exists(const moii_path *p)
{
    struct stat info;
    return lstat(p->text, &info) == 0;
}

static moi_status sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return moii_fail_errno(MOI_ERR_IO, "cannot open the folder %s", folder);
    moi_status status = fsync(fd) && errno != EINVAL ? moii_fail_errno(MOI_ERR_IO, "cannot sync the folder %s", folder) : MOI_OK;
    close(fd);
    return status;
}

moi_status moii_folder_next(moii_path *out, const char *folder, const char *name) { return join(out, folder, name, ".next"); }

moi_status moii_folder_path(moii_path *out, const char *folder, const char *name)
{
    MOII_TRY(join(out, folder, marker, ""));
    if (exists(out)) {
        MOII_TRY(moii_folder_next(out, folder, name));
        if (exists(out)) return MOI_OK;
    }
    return join(out, folder, name, "");
}

/* Renames what is still NAME.next and takes the marker away. */
static moi_status finish(const char *folder, const char *const *names, int count)
{
    moii_path from, to;
    for (int i = 0; i < count; i++) {
        MOII_TRY(moii_folder_next(&from, folder, names[i]));
        MOII_TRY(join(&to, folder, names[i], ""));
        if (rename(from.text, to.text) && errno != ENOENT) return moii_fail_errno(MOI_ERR_IO, "cannot rename %s to %s", from.text, to.text);
    }
    MOII_TRY(sync_folder(folder));
    MOII_TRY(join(&to, folder, marker, ""));
    if (unlink(to.text) && errno != ENOENT) return moii_fail_errno(MOI_ERR_IO, "cannot remove %s", to.text);
    return sync_folder(folder);
}

moi_status moii_folder_make(const char *folder)
{
    moii_path p;
    MOII_TRY(join(&p, folder, "", ""));
    for (char *c = p.text + 1; *c; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(p.text, 0777) && errno != EEXIST) return moii_fail_errno(MOI_ERR_IO, "cannot make the folder %s", p.text);
        *c = '/';
    }
    return MOI_OK;
}

/* "NAME.next", or a temporary file of it: ".NAME.next.*.part" */
static bool is_leftover(const char *entry, const char *name)
{
    const size_t n = strlen(name), k = strlen(entry);
    if (!strncmp(entry, name, n) && !strcmp(entry + n, ".next")) return true;
    return entry[0] == '.' && !strncmp(entry + 1, name, n) && !strncmp(entry + 1 + n, ".next.", 6) && k > 5 && !strcmp(entry + k - 5, ".part");
}

/* Also names of other saves: a model saved over a training folder must not leave that one's files pending. */
static moi_status remove_leftovers(const char *folder, const char *const *names, int count)
{
    DIR *dir = opendir(folder);
    if (!dir) return moii_fail_errno(MOI_ERR_IO, "cannot open the folder %s", folder);
    moi_status status = MOI_OK;
    for (struct dirent *e; !status && (e = readdir(dir));)
        for (int i = 0; i < count; i++)
            if (is_leftover(e->d_name, names[i]) && unlinkat(dirfd(dir), e->d_name, 0))
                status = moii_fail_errno(MOI_ERR_IO, "cannot remove %s/%s", folder, e->d_name);
    closedir(dir);
    return status;
}

moi_status moii_folder_begin(const char *folder, const char *const *names, int count)
{
    moii_path p;
    MOII_TRY(moii_folder_make(folder));
    MOII_TRY(join(&p, folder, marker, ""));
    if (exists(&p)) MOII_TRY(finish(folder, names, count));
    return remove_leftovers(folder, names, count);
}

moi_status moii_folder_commit(const char *folder, const char *const *names, int count)
{
    moii_path p;
    MOII_TRY(sync_folder(folder));
    MOII_TRY(join(&p, folder, marker, ""));
    int fd = open(p.text, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return moii_fail_errno(MOI_ERR_IO, "cannot create %s", p.text);
    close(fd);
    MOII_TRY(sync_folder(folder));
    return finish(folder, names, count);
}
