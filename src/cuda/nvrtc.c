/* SPDX-License-Identifier: Apache-2.0 */
#include "nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvrtc_search.h"
#include "status.h"

enum { LEAST = 1208, OPTIONS = 32, OPTION = 64 };

static void *symbol(void *library, const char *name) { return dlsym(library, name); }

static bool read_table(moii_nvrtc *n)
{
    bool all = true;
#define MOII_NVRTC(name, parameters) all = (*(void **)&n->name = symbol(n->library, #name)) != NULL && all;
    MOII_NVRTC_CALLS(MOII_NVRTC)
#undef MOII_NVRTC
    return all;
}

static bool new_enough(const moii_nvrtc *n) { return n->major * 100 + n->minor >= LEAST; }

/* Opens n->path and asks for its version; false where that is no NVRTC of ours. */
static bool open_and_ask(moii_nvrtc *n)
{
    n->library = dlopen(n->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); /* unloaded, it would leave its memory and threads behind */
    if (n->library && read_table(n) && n->nvrtcVersion(&n->major, &n->minor) == 0) return true;
    if (!n->library) return false;
    if (n->nvrtcVersion) n->nvrtcVersion(&n->major, &n->minor); /* one too old to have every call still says so */
    dlclose(n->library);
    n->library = NULL;
    return false;
}

typedef struct attempt { moii_nvrtc *out; const moii_env_cuda *env; char met[256]; } attempt;

/* Whether the library at `path` will do.  Notes what was wrong with it. */
static bool try_one(void *user, const char *path)
{
    attempt *t = user;
    moii_nvrtc *n = t->out;
    memset(n, 0, sizeof *n);
    snprintf(n->path, sizeof n->path, "%s", path);
    bool known = moii_nvrtc_recall(t->env, path, &n->major, &n->minor);
    if (!known && open_and_ask(n)) moii_nvrtc_remember(t->env, path, n->major, n->minor);
    if (new_enough(n)) return true;
    if (n->major) snprintf(t->met, sizeof t->met, "; %.180s is version %d.%d", path, n->major, n->minor);
    moii_nvrtc_close(n);
    return false;
}

moi_status moii_nvrtc_find(moii_nvrtc *out, const moii_env_cuda *env)
{
    attempt t = { .out = out, .env = env };
    memset(out, 0, sizeof *out);
    if (moii_nvrtc_search(env, try_one, &t)) return MOI_OK;
    memset(out, 0, sizeof *out);
    if (*env->nvrtc) MOII_FAIL(MOI_ERR_NO_COMPILER, "cuda: MOI_NVRTC is '%.200s', where there is no NVRTC 12.8 or newer%s", env->nvrtc, t.met);
    MOII_FAIL(MOI_ERR_NO_COMPILER, "cuda: no NVRTC 12.8 or newer (libnvrtc.so.13 or .12) in the loader's path, CUDA_HOME, Python's wheels or "
              "/usr/local/cuda%s; install CUDA's NVRTC or 'pip install nvidia-cuda-nvrtc', or set MOI_NVRTC", t.met);
}

moi_status moii_nvrtc_load(moii_nvrtc *n)
{
    if (n->library) return MOI_OK;
    int major = n->major, minor = n->minor;
    MOII_REQUIRE(*n->path && open_and_ask(n), MOI_ERR_NO_COMPILER, "cuda: %s cannot be opened as NVRTC", *n->path ? n->path : "nothing");
    MOII_REQUIRE(n->major == major && n->minor == minor, MOI_ERR_NO_COMPILER, "cuda: %s is version %d.%d and was noted as %d.%d",
                 n->path, n->major, n->minor, major, minor);
    return MOI_OK;
}

void moii_nvrtc_close(moii_nvrtc *n)
{
    if (n->library) dlclose(n->library);
    memset(n, 0, sizeof *n);
}

/* ---- compiling ---- */

/* ptxas's remark (C7510 to C7520) where it makes each wgmma wait for the one before, for whatever reason: right, and a fifth slower. */
#define SERIALIZED "wgmma.mma_async instructions are serialized"

/* What the compiler said, for the caller to free, or NULL. */
static char *log_of(const moii_nvrtc *n, moii_nvrtc_program program)
{
    size_t bytes = 0;
    char *log = NULL;
    if (program && n->nvrtcGetProgramLogSize(program, &bytes) == 0 && bytes > 0 && (log = calloc(1, bytes + 1)))
        if (n->nvrtcGetProgramLog(program, log)) *log = 0;
    return log;
}

static moi_status failed(const moii_nvrtc *n, moii_nvrtc_program program, const moii_text_set *set, const char *arch, const char *defines)
{
    char *log = log_of(n, program);
    moi_status status = moii_fail(MOI_ERR_COMPILE, "cuda: NVRTC %d.%d cannot compile %s for %s with '%s': %.700s", n->major, n->minor,
                                  set->names[0], arch, defines, log && *log ? log : "no explanation");
    free(log);
    return status;
}

/* The options that every kernel is compiled with, then its defines.  Results must have the bits of the CPU's reference: no
 * contraction, no flushing, divisions and roots rounded correctly. */
static int set_options(const char *options[OPTIONS], char text[OPTIONS][OPTION], const char *arch, const char *defines)
{
    static const char *const fixed[] = { "-std=c++17", "-default-device", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true" };
    int n = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) options[n++] = fixed[i];
    snprintf(text[n], OPTION, "-arch=%s", arch);
    options[n] = text[n], n++;
    for (const char *p = defines; *p && n < OPTIONS;) {
        size_t length = strcspn(p, " ");
        if (length > OPTION - 3) return -1;
        if (length) {
            snprintf(text[n], OPTION, "-D%.*s", (int)length, p);
            options[n] = text[n], n++;
        }
        p += length;
        p += strspn(p, " ");
    }
    return n < OPTIONS ? n : -1;
}

moi_status moii_nvrtc_compile(const moii_nvrtc *n, const moii_text_set *set, const char *arch, const char *defines, unsigned char **cubin,
                              size_t *bytes, bool *serialized)
{
    const char *options[OPTIONS];
    char text[OPTIONS][OPTION];
    moii_nvrtc_program program = NULL;
    *cubin = NULL, *serialized = false;
    int count = set_options(options, text, arch, defines);
    MOII_REQUIRE(count > 0, MOI_ERR_INTERNAL, "cuda: too many or too long defines for %s: '%s'", set->names[0], defines);
    unsigned int bad = n->nvrtcCreateProgram(&program, set->texts[0], set->names[0], set->count - 1, set->texts + 1, set->names + 1);
    if (!bad) bad = n->nvrtcCompileProgram(program, count, options);
    if (!bad) bad = n->nvrtcGetCUBINSize(program, bytes);
    if (!bad && *bytes == 0) bad = 1;
    moi_status status = MOI_OK;
    if (!bad && !(*cubin = malloc(*bytes))) status = moii_fail(MOI_ERR_NOMEM, "cuda: no memory for a kernel of %zu bytes", *bytes);
    else if (!bad) bad = n->nvrtcGetCUBIN(program, (char *)*cubin);
    if (bad) {
        status = failed(n, program, set, arch, defines);
        free(*cubin);
        *cubin = NULL;
    } else if (!status) {
        char *log = log_of(n, program);
        *serialized = log && strstr(log, SERIALIZED);
        free(log);
    }
    if (program) n->nvrtcDestroyProgram(&program);
    return status;
}
