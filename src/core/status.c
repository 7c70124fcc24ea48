/* SPDX-License-Identifier: Apache-2.0 */
#include "status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[1024];

const char *moi_last_error(void) { return last_error; }

moi_status moii_fail(moi_status status, const char *format, ...)
{
    char text[sizeof last_error]; /* arguments may point into last_error */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(last_error, text, sizeof text);
    return status;
}

moi_status moii_fail_errno(moi_status status, const char *format, ...)
{
    int saved = errno;
    char text[sizeof last_error];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(last_error, sizeof last_error, "%.900s: %s", text, strerror(saved));
    return status;
}

const char *moi_status_name(moi_status status)
{
    switch (status) {
    case MOI_OK: return "MOI_OK";
    case MOI_ERR_ARG: return "MOI_ERR_ARG";
    case MOI_ERR_SHAPE: return "MOI_ERR_SHAPE";
    case MOI_ERR_ALIGN: return "MOI_ERR_ALIGN";
    case MOI_ERR_UNSUPPORTED: return "MOI_ERR_UNSUPPORTED";
    case MOI_ERR_WORKSPACE: return "MOI_ERR_WORKSPACE";
    case MOI_ERR_NO_DEVICE: return "MOI_ERR_NO_DEVICE";
    case MOI_ERR_NO_COMPILER: return "MOI_ERR_NO_COMPILER";
    case MOI_ERR_COMPILE: return "MOI_ERR_COMPILE";
    case MOI_ERR_DRIVER: return "MOI_ERR_DRIVER";
    case MOI_ERR_NOMEM: return "MOI_ERR_NOMEM";
    case MOI_ERR_IO: return "MOI_ERR_IO";
    case MOI_ERR_FORMAT: return "MOI_ERR_FORMAT";
    case MOI_ERR_INTERNAL: return "MOI_ERR_INTERNAL";
    case MOI_ERR_CANCELLED: return "MOI_ERR_CANCELLED";
    }
    return "unknown";
}

#define MOII_STR_(x) #x
#define MOII_STR(x) MOII_STR_(x)
const char *moi_version(void)
{
    return MOII_STR(MOI_VERSION_MAJOR) "." MOII_STR(MOI_VERSION_MINOR) "." MOII_STR(MOI_VERSION_PATCH);
}
