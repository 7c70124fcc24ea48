/* SPDX-License-Identifier: Apache-2.0
 * log.h: messages to the context's callback, or to the error stream where MOI_LOG asks for them. */
#ifndef MOII_LOG_H
#define MOII_LOG_H

#include "moiety.h"

int moii_log_level(const char *name); /* -1: unknown */
void moii_log(const moi_ctx *ctx, moi_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
