/* SPDX-License-Identifier: Apache-2.0 */
#include "env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "status.h"

static moi_status read_backend(moii_env *out, const char *text)
{
    if (!strcmp(text, "cpu")) out->backend = MOI_BACKEND_CPU;
    else if (!strcmp(text, "cuda")) out->backend = MOI_BACKEND_CUDA;
    else if (*text && strcmp(text, "auto")) MOII_FAIL(MOI_ERR_ARG, "MOI_BACKEND must be auto, cpu or cuda, got '%s'", text);
    return MOI_OK;
}

static moi_status read_threads(moii_env *out, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    MOII_REQUIRE(*text && !*end && n >= 1 && n <= 1024, MOI_ERR_ARG, "MOI_CPU_THREADS must be 1..1024, got '%s'", text);
    out->threads = (int)n;
    return MOI_OK;
}

static moi_status read_log(moii_env *out, const char *text)
{
    out->log_level = moii_log_level(text);
    MOII_REQUIRE(out->log_level >= 0, MOI_ERR_ARG, "MOI_LOG must be error, warn, info or debug, got '%s'", text);
    return MOI_OK;
}

moi_status moii_env_read(moii_env *out)
{
    const char *text;
    memset(out, 0, sizeof *out);
    out->log_level = MOI_LOG_WARN;
    if ((text = getenv("MOI_BACKEND"))) MOII_TRY(read_backend(out, text));
    if ((text = getenv("MOI_CPU_THREADS"))) MOII_TRY(read_threads(out, text));
    if ((text = getenv("MOI_LOG"))) MOII_TRY(read_log(out, text));
    if ((text = getenv("MOI_CPU_ISA"))) {
        MOII_REQUIRE(strlen(text) < sizeof out->isa, MOI_ERR_ARG, "MOI_CPU_ISA must be shorter than 16 letters, got '%.40s'", text);
        strcpy(out->isa, text);
    }
    return MOI_OK;
}

/* Into `out` the variable's value with `tail` behind it; false where it is not set or empty. */
static moi_status read_path(char *out, const char *variable, const char *tail, bool *set)
{
    const char *text = getenv(variable);
    *set = text && *text;
    if (!*set) return MOI_OK;
    int n = snprintf(out, MOII_PATH, "%s%s", text, tail);
    MOII_REQUIRE(n < MOII_PATH, MOI_ERR_ARG, "%s must be shorter than %d letters, got %zu", variable, MOII_PATH, strlen(text));
    return MOI_OK;
}

static void read_list(char *out, const char *variable) /* a longer one is cut at a colon: it only narrows a search */
{
    const char *text = getenv(variable);
    if (!text) return;
    size_t n = strlen(text);
    if (n >= MOII_PATH)
        for (n = MOII_PATH - 1; n && text[n] != ':';) n--;
    memcpy(out, text, n);
    out[n] = 0;
}

moi_status moii_env_read_cuda(moii_env_cuda *out)
{
    bool set;
    memset(out, 0, sizeof *out);
    MOII_TRY(read_path(out->nvrtc, "MOI_NVRTC", "", &set));
    MOII_TRY(read_path(out->kernels, "MOI_KERNELS", "", &set));
    MOII_TRY(read_path(out->toolkit[0], "CUDA_HOME", "", &set));
    MOII_TRY(read_path(out->toolkit[1], "CUDA_PATH", "", &set));
    MOII_TRY(read_path(out->python[0], "VIRTUAL_ENV", "", &set));
    MOII_TRY(read_path(out->python[1], "CONDA_PREFIX", "", &set));
    MOII_TRY(read_path(out->home, "HOME", "", &set));
    read_list(out->loader, "LD_LIBRARY_PATH");
    if (getenv("MOI_CACHE")) return read_path(out->cache, "MOI_CACHE", "", &set);
    MOII_TRY(read_path(out->cache, "XDG_CACHE_HOME", "/moiety", &set));
    return set ? MOI_OK : read_path(out->cache, "HOME", "/.cache/moiety", &set);
}
