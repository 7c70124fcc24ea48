/* SPDX-License-Identifier: Apache-2.0
 * env.h: the only reader of the environment. */
#ifndef MOII_ENV_H
#define MOII_ENV_H

#include "moiety.h"

typedef struct moii_env {
    moi_backend backend; /* MOI_BACKEND = cpu | cuda */
    int threads;         /* MOI_CPU_THREADS, 0: not set */
    char isa[16];        /* MOI_CPU_ISA = generic | avx2 ..., "" : best */
    int log_level;       /* MOI_LOG = error | warn | info | debug, default warn */
} moii_env;

moi_status moii_env_read(moii_env *out);

#endif
