/* SPDX-License-Identifier: Apache-2.0 */
#include "support_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support.h"

enum { PATH = 1024 };

static char folder[64];

const char *moit_path(const char *name)
{
    static char paths[8][320];
    static int next;
    if (!*folder) {
        strcpy(folder, "/tmp/moiety-test-XXXXXX"); /* mkdtemp(3) puts a name of its own in place of the six X */
        assert_non_null(mkdtemp(folder));
    }
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

int moit_entries(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return n;
}

static void remove_tree(const char *path)
{
    char inner[PATH];
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(inner, sizeof inner, "%.*s/%s", (int)sizeof inner - 260, path, e->d_name);
        if (unlink(inner)) remove_tree(inner);
    }
    closedir(d);
    rmdir(path);
}

void moit_remove_tree(const char *name)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s", moit_path(name));
    remove_tree(path);
}

int moit_remove_folder(void **state)
{
    (void)state;
    if (*folder) remove_tree(folder);
    return 0;
}

void moit_write_file(const char *path, const void *bytes, int64_t count)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, (size_t)count, f), count);
    assert_int_equal(fclose(f), 0);
}

unsigned char *moit_read_file(const char *path, int64_t *count)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *count = ftell(f);
    rewind(f);
    unsigned char *bytes = malloc((size_t)*count + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)*count, f), *count);
    fclose(f);
    return bytes;
}
