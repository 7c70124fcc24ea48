/* SPDX-License-Identifier: Apache-2.0
 * cpu.h: what the CPU rows share: threads and the instruction set chosen once per context. */
#ifndef MOII_CPU_H
#define MOII_CPU_H

#include "ctx.h"
#include "dtype.h"
#include "format.h"
#include "status.h"

extern const struct moii_nn moii_nn_cpu; /* nn_fast.c */

struct moii_isa; /* isa.h: the SIMD bodies of one instruction set */

typedef struct moii_cpu {
    const struct moii_isa *isa;
} moii_cpu;

static inline const struct moii_isa *moii_cpu_isa(const moi_ctx *ctx) { return ((const moii_cpu *)ctx->state)->isa; }

#endif
