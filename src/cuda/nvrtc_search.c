/* SPDX-License-Identifier: Apache-2.0 */
#include "nvrtc_search.h"

#include <dlfcn.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache.h"
#include "hash.h"

static const char *const names[] = { "libnvrtc.so.13", "libnvrtc.so.12" };
enum { NAMES = sizeof names / sizeof *names };

typedef struct search { bool (*each)(void *user, const char *path); void *user; } search;

static bool in_folder(const search *s, const char *folder)
{
    char path[MOII_PATH + 64];
    struct stat st;
    for (int i = 0; i < NAMES; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (n > 0 && n < MOII_PATH && stat(path, &st) == 0 && s->each(s->user, path)) return true;
    }
    return false;
}

/* The folders that match, the last in alphabetic order first: cuda-13.0 before cuda-12.9. */
static bool in_pattern(const search *s, const char *pattern)
{
    glob_t g;
    bool found = false;
    if (glob(pattern, 0, NULL, &g)) return false;
    for (size_t i = g.gl_pathc; i > 0 && !found; i--) found = in_folder(s, g.gl_pathv[i - 1]);
    globfree(&g);
    return found;
}

static bool below(const search *s, const char *root, const char *tail)
{
    char pattern[2 * MOII_PATH];
    snprintf(pattern, sizeof pattern, "%s%s", root, tail);
    return *root && in_pattern(s, pattern);
}

static bool in_list(const search *s, const char *list) /* folders between colons */
{
    char folder[MOII_PATH];
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ":");
        if (n > 0 && n < sizeof folder) {
            memcpy(folder, p, n);
            folder[n] = 0;
            if (in_folder(s, folder)) return true;
        }
        p += n;
        if (*p) p++;
    }
    return false;
}

static bool in_process(const search *s)
{
    for (int i = 0; i < NAMES; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
        if (!library) continue;
        bool found = s->each(s->user, names[i]);
        dlclose(library);
        if (found) return true;
    }
    return false;
}

static bool in_toolkit(const search *s, const char *root)
{
    return below(s, root, "/lib64") || below(s, root, "/lib") || below(s, root, "/targets/*/lib");
}

static bool in_wheels(const search *s, const char *root, const char *site)
{
    static const char *const packages[] = { "/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib" };
    char tail[128];
    for (int i = 0; i < 2; i++) {
        snprintf(tail, sizeof tail, "%s%s", site, packages[i]);
        if (below(s, root, tail)) return true;
    }
    return false;
}

bool moii_nvrtc_search(const moii_env_cuda *env, bool (*each)(void *user, const char *path), void *user)
{
    search s = { each, user };
    struct stat st;
    if (*env->nvrtc) return stat(env->nvrtc, &st) == 0 && S_ISDIR(st.st_mode) ? in_folder(&s, env->nvrtc) : each(user, env->nvrtc);
    if (in_process(&s) || in_list(&s, env->loader)) return true;
    if (in_list(&s, "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/lib64:/usr/lib64:/usr/lib:/usr/local/lib")) return true;
    if (in_toolkit(&s, env->toolkit[0]) || in_toolkit(&s, env->toolkit[1])) return true;
    for (int i = 0; i < 2; i++)
        if (in_wheels(&s, env->python[i], "/lib/python3*/site-packages")) return true;
    if (in_wheels(&s, env->home, "/.local/lib/python3*/site-packages") || in_wheels(&s, "/usr/local", "/lib/python3*/*-packages") ||
        in_wheels(&s, "/usr", "/lib/python3*/*-packages"))
        return true;
    if (in_pattern(&s, "/usr/local/cuda/lib64") || in_pattern(&s, "/usr/local/cuda-*/lib64")) return true;
    for (int i = 0; i < NAMES; i++)
        if (each(user, names[i])) return true;
    return false;
}

/* ---- notes ---- */

static bool note_name(char name[64], const char *path)
{
    struct stat st;
    moii_hash h = MOII_HASH_INIT;
    if (!strchr(path, '/') || stat(path, &st)) return false; /* a bare name may mean another file tomorrow */
    int64_t about[3] = { (int64_t)st.st_size, (int64_t)st.st_mtime, (int64_t)st.st_ino };
    moii_hash_text(&h, path);
    moii_hash_bytes(&h, about, sizeof about);
    snprintf(name, 64, "nvrtc-%016" PRIx64, h.a ^ h.b);
    return true;
}

bool moii_nvrtc_recall(const moii_env_cuda *env, const char *path, int *major, int *minor)
{
    char name[64], text[32] = "";
    unsigned char *data = NULL;
    size_t bytes = 0;
    if (!*env->cache || !note_name(name, path) || !moii_cache_read(env->cache, name, &data, &bytes)) return false;
    if (bytes < sizeof text) memcpy(text, data, bytes);
    free(data);
    return sscanf(text, "%d.%d", major, minor) == 2;
}

void moii_nvrtc_remember(const moii_env_cuda *env, const char *path, int major, int minor)
{
    char name[64], text[32];
    if (!*env->cache || !note_name(name, path)) return;
    int n = snprintf(text, sizeof text, "%d.%d\n", major, minor);
    moii_cache_write(env->cache, name, text, (size_t)n);
}
