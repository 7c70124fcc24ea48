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

/* Paths that the CUDA back end asks for; "": not set. */
enum { MOII_PATH = 1024 };
typedef struct moii_env_cuda {
    char nvrtc[MOII_PATH];    /* MOI_NVRTC: the library itself, or its folder */
    char kernels[MOII_PATH];  /* MOI_KERNELS: a folder of compiled kernels, read before anything is compiled */
    char cache[MOII_PATH];    /* MOI_CACHE, else XDG_CACHE_HOME/moiety, else HOME/.cache/moiety; "": keep nothing */
    char loader[MOII_PATH];   /* LD_LIBRARY_PATH */
    char toolkit[2][MOII_PATH]; /* CUDA_HOME, CUDA_PATH */
    char python[2][MOII_PATH];  /* VIRTUAL_ENV, CONDA_PREFIX */
    char home[MOII_PATH];
} moii_env_cuda;

moi_status moii_env_read_cuda(moii_env_cuda *out);

#endif
