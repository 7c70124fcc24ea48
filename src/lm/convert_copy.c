/* SPDX-License-Identifier: Apache-2.0
 * convert_copy.c: tokeniser, generation settings, licences and what else lies beside the weights. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert_folder.h"
#include "file_atomic.h"
#include "status.h"

/* Not weights in any of the usual forms, not what we write ourselves, not the settings of a training run. */
static bool is_copied(const char *name)
{
    static const char *const weights[] = { ".safetensors", ".index.json", ".bin",  ".pt",   ".pth", ".ckpt", ".gguf",
                                           ".h5",          ".msgpack",    ".onnx", ".next", ".part" };
    static const char *const others[] = { "config.json", MOII_RECORD, "trainer.json" };
    size_t n = strlen(name);
    if (name[0] == '.') return false;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        size_t m = strlen(weights[i]);
        if (n >= m && !strcmp(name + n - m, weights[i])) return false;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i])) return false;
    return true;
}

static moi_status copy_bytes(int from, const char *path, moii_atomic *to, void *buffer, int64_t size)
{
    for (int64_t at = 0;;) {
        ssize_t n = pread(from, buffer, (size_t)size, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return moii_fail_errno(MOI_ERR_IO, "cannot read %s", path);
        if (n == 0) return MOI_OK;
        MOII_TRY(moii_atomic_write_at(to, buffer, n, at));
        at += n;
    }
}

static moi_status copy_file(const char *in, const char *out, const char *name, void *buffer, int64_t size)
{
    moii_path from, to;
    moii_atomic file;
    struct stat s;
    int a = snprintf(from.text, sizeof from.text, "%s/%s", in, name), b = snprintf(to.text, sizeof to.text, "%s/%s", out, name);
    MOII_REQUIRE(a > 0 && b > 0 && a < MOII_PATH_MAX && b < MOII_PATH_MAX, MOI_ERR_ARG, "the path of a folder must be shorter than %d bytes", MOII_PATH_MAX);
    if (stat(from.text, &s)) return moii_fail_errno(MOI_ERR_IO, "cannot open %s", from.text);
    if (!S_ISREG(s.st_mode)) return MOI_OK;
    int fd = open(from.text, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return moii_fail_errno(MOI_ERR_IO, "cannot open %s", from.text);
    moi_status status = moii_atomic_open(&file, to.text);
    if (!status) {
        status = copy_bytes(fd, from.text, &file, buffer, size);
        if (status) moii_atomic_cancel(&file);
        else status = moii_atomic_commit(&file);
    }
    close(fd);
    return status;
}

moi_status moii_copy_files(const char *in, const char *out, void *buffer, int64_t size)
{
    DIR *dir = opendir(in);
    moi_status status = MOI_OK;
    if (!dir) return moii_fail_errno(MOI_ERR_IO, "cannot open the folder %s", in);
    for (struct dirent *e; !status && (e = readdir(dir));)
        if (is_copied(e->d_name)) status = copy_file(in, out, e->d_name, buffer, size);
    closedir(dir);
    return status;
}
