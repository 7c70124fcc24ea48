/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hash.h"

enum { LONGEST = 2048, LARGEST = 64 << 20 };

typedef struct head {
    char magic[8];
    uint64_t bytes;
    moii_hash check;
} head;

static const char magic[8] = { 'm', 'o', 'i', 'c', 'a', 'c', 'h', '1' };

static head head_of(const void *data, size_t bytes)
{
    head h = { .bytes = bytes, .check = MOII_HASH_INIT };
    memcpy(h.magic, magic, sizeof magic);
    moii_hash_bytes(&h.check, data, bytes);
    return h;
}

static bool read_all(int file, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(file, (char *)to + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static bool write_all(int file, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(file, (const char *)from + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static bool read_file(int file, unsigned char **data, size_t *bytes)
{
    head said, found;
    struct stat st;
    if (fstat(file, &st) || !S_ISREG(st.st_mode) || !read_all(file, &said, sizeof said)) return false;
    if (memcmp(said.magic, magic, sizeof magic) != 0 || said.bytes == 0 || said.bytes > LARGEST) return false;
    if ((uint64_t)st.st_size != said.bytes + sizeof said) return false;
    unsigned char *p = malloc((size_t)said.bytes);
    if (!p) return false;
    bool sound = read_all(file, p, (size_t)said.bytes);
    if (sound) {
        found = head_of(p, (size_t)said.bytes);
        sound = found.check.a == said.check.a && found.check.b == said.check.b;
    }
    if (!sound) {
        free(p);
        return false;
    }
    *data = p;
    *bytes = (size_t)said.bytes;
    return true;
}

bool moii_cache_read(const char *folder, const char *name, unsigned char **data, size_t *bytes)
{
    char path[LONGEST];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || n >= (int)sizeof path) return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    bool sound = read_file(file, data, bytes);
    close(file);
    return sound;
}

bool moii_cache_read_any(const char *folder, const char *prefix, unsigned char **data, size_t *bytes)
{
    DIR *d = opendir(folder);
    bool found = false;
    if (!d) return false;
    for (struct dirent *e; !found && (e = readdir(d));)
        found = !strncmp(e->d_name, prefix, strlen(prefix)) && moii_cache_read(folder, e->d_name, data, bytes);
    closedir(d);
    return found;
}

static void make_folders(const char *folder)
{
    char path[LONGEST];
    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path) return;
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(path, 0777); /* what fails here fails again, with a reason, when the file is opened */
        *p = '/';
    }
    mkdir(path, 0777);
}

bool moii_cache_ready(const char *folder)
{
    struct stat st;
    make_folders(folder);
    if (stat(folder, &st)) return false;
    if (!S_ISDIR(st.st_mode)) return errno = ENOTDIR, false;
    return access(folder, W_OK | X_OK) == 0;
}

bool moii_cache_write(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[LONGEST], temporary[LONGEST];
    head h = head_of(data, bytes);
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    /* the address of a local differs between the threads of a process */
    int m = snprintf(temporary, sizeof temporary, "%s/.%s.%ld.%zx", folder, name, (long)getpid(), (size_t)(uintptr_t)&h);
    if (n < 0 || m < 0 || n >= (int)sizeof path || m >= (int)sizeof temporary) return errno = ENAMETOOLONG, false;
    make_folders(folder);
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return false;
    bool good = write_all(file, &h, sizeof h) && write_all(file, data, bytes);
    good = close(file) == 0 && good;
    good = good && rename(temporary, path) == 0;
    if (!good) {
        int saved = errno;
        unlink(temporary);
        errno = saved;
    }
    return good;
}

int moii_cache_count(const char *folder, const char *tail)
{
    DIR *d = *folder ? opendir(folder) : NULL;
    int count = 0;
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name), t = strlen(tail);
        count += *e->d_name != '.' && n > t && !strcmp(e->d_name + n - t, tail);
    }
    closedir(d);
    return count;
}
