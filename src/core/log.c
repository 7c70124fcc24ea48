/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ctx.h"

static const char *const names[] = { "error", "warn", "info", "debug" };

int moii_log_level(const char *name)
{
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}

void moii_log(const moi_ctx *ctx, moi_log_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    if ((int)level > ctx->env.log_level) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (ctx->log) ctx->log(ctx->log_user, level, text);
    else fprintf(stderr, "moiety: %s: %s\n", names[level], text);
}
