/* SPDX-License-Identifier: Apache-2.0 */
#include "file_atomic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "status.h"

enum { NAME_TRIES = 1000 };

static void forget(moii_atomic *f)
{
    free(f->path);
    free(f->temp);
    *f = (moii_atomic){ .fd = -1 };
}

/* Makes f->temp, ".NAME.PID-N.part" beside f->path.  Exclusive creation is what makes the name ours; the mode is the one any
 * new file gets. */
static moi_status create_temp(moii_atomic *f)
{
    const char *slash = strrchr(f->path, '/');
    int folder = slash ? (int)(slash - f->path) + 1 : 0;
    size_t size = strlen(f->path) + 48;
    MOII_REQUIRE(f->temp = malloc(size), MOI_ERR_NOMEM, "cannot write %s: no memory", f->path);
    for (int i = 0; i < NAME_TRIES; i++) {
        /* a long name is cut, so that ours does not exceed the file system's limit */
        snprintf(f->temp, size, "%.*s.%.200s.%ld-%d.part", folder, f->path, f->path + folder, (long)getpid(), i);
        f->fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->fd >= 0 || errno != EEXIST) break;
    }
    if (f->fd >= 0) return MOI_OK;
    moi_status status = moii_fail_errno(MOI_ERR_IO, "cannot write %s", f->path);
    free(f->temp);
    f->temp = NULL;
    return status;
}

moi_status moii_atomic_open(moii_atomic *f, const char *path)
{
    struct stat s;
    *f = (moii_atomic){ .fd = -1 };
    MOII_REQUIRE(path && *path, MOI_ERR_ARG, "cannot write a file: its path is %s", path ? "empty" : "NULL");
    if (stat(path, &s) == 0) { /* renaming over a device or a folder would be a surprise */
        MOII_REQUIRE(S_ISREG(s.st_mode), MOI_ERR_IO, "cannot write %s: it exists and is no regular file", path);
        f->path = realpath(path, NULL);
    } else {
        f->path = strdup(path);
    }
    MOII_REQUIRE(f->path, MOI_ERR_NOMEM, "cannot write %s: no memory", path);
    moi_status status = create_temp(f);
    if (status) forget(f);
    return status;
}

moi_status moii_atomic_write_at(moii_atomic *f, const void *data, int64_t bytes, int64_t offset)
{
    enum { PIECE = 1 << 26 };
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = pwrite(f->fd, p, (size_t)(bytes < PIECE ? bytes : PIECE), (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return moii_fail_errno(MOI_ERR_IO, "cannot write %s at byte %lld", f->path, (long long)offset);
        p += n;
        offset += n;
        bytes -= n;
    }
    return MOI_OK;
}

static moi_status sync_folder(const moii_atomic *f)
{
    char *folder = strdup(f->path);
    MOII_REQUIRE(folder, MOI_ERR_NOMEM, "cannot sync the folder of %s: no memory", f->path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    moi_status status = MOI_OK;
    /* some file systems cannot sync a folder (EINVAL): there the rename is as durable as it gets */
    if (fd >= 0 && fsync(fd) != 0 && errno != EINVAL)
        status = moii_fail_errno(MOI_ERR_IO, "%s is written, but its folder cannot be synced", f->path);
    if (fd >= 0) close(fd);
    free(folder);
    return status;
}

moi_status moii_atomic_commit(moii_atomic *f)
{
    moi_status status = MOI_OK;
    if (fsync(f->fd) != 0) status = moii_fail_errno(MOI_ERR_IO, "cannot write %s", f->path);
    if (close(f->fd) != 0 && !status) status = moii_fail_errno(MOI_ERR_IO, "cannot write %s", f->path);
    f->fd = -1;
    if (!status && rename(f->temp, f->path) != 0) status = moii_fail_errno(MOI_ERR_IO, "cannot rename %s to %s", f->temp, f->path);
    if (status) {
        moii_atomic_cancel(f);
        return status;
    }
    status = sync_folder(f);
    forget(f);
    return status;
}

void moii_atomic_cancel(moii_atomic *f)
{
    if (f->fd >= 0) close(f->fd);
    if (f->temp) unlink(f->temp);
    forget(f);
}
