/* SPDX-License-Identifier: Apache-2.0 */
#include "env.h"

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
