/* SPDX-License-Identifier: Apache-2.0
 *
 * nvrtc.h: NVIDIA's run-time compiler, opened when something must be compiled.  Versions 12.8 and newer.  Where it is looked for, first
 * find first (docs/cuda.md says the same to users):
 *   1. MOI_NVRTC: the library or its folder; nothing else is tried then
 *   2. what the process has loaded already
 *   3. the folders of LD_LIBRARY_PATH, then the system's library folders
 *   4. CUDA_HOME, CUDA_PATH: lib64, lib, targets/x86_64-linux/lib
 *   5. Python wheels: site-packages/nvidia/cu13/lib and nvidia/cuda_nvrtc/lib of VIRTUAL_ENV, CONDA_PREFIX, the user and the system
 *   6. /usr/local/cuda/lib64, then /usr/local/cuda-*'s, the newest first
 *   7. what else the loader knows (its cache, the program's run path)
 * In each folder libnvrtc.so.13 comes before .12.  One that is too old is passed over. */
#ifndef MOII_NVRTC_H
#define MOII_NVRTC_H

#include <stddef.h>

#include "env.h"
#include "texts.h"

typedef struct _nvrtcProgram *moii_nvrtc_program; /* the library's own struct; tests/test_cuda_decls.c compares */

#define MOII_NVRTC_CALLS(X)                                                                                              \
    X(nvrtcVersion, (int *major, int *minor))                                                                            \
    X(nvrtcCreateProgram, (moii_nvrtc_program *program, const char *text, const char *name, int headers,                 \
                           const char *const *texts, const char *const *names))                                          \
    X(nvrtcDestroyProgram, (moii_nvrtc_program *program))                                                                \
    X(nvrtcCompileProgram, (moii_nvrtc_program program, int count, const char *const *options))                          \
    X(nvrtcGetCUBINSize, (moii_nvrtc_program program, size_t *bytes))                                                    \
    X(nvrtcGetCUBIN, (moii_nvrtc_program program, char *cubin))                                                          \
    X(nvrtcGetProgramLogSize, (moii_nvrtc_program program, size_t *bytes))                                               \
    X(nvrtcGetProgramLog, (moii_nvrtc_program program, char *log))

typedef struct moii_nvrtc {
    void *library; /* NULL until it is needed: opening it takes a tenth of a second */
    char path[MOII_PATH];
    int major, minor; /* 0: not found */
#define MOII_NVRTC(name, parameters) unsigned int (*name) parameters;
    MOII_NVRTC_CALLS(MOII_NVRTC)
#undef MOII_NVRTC
} moii_nvrtc;

/* Fills path and version.  A library met before is known from a note in env->cache, and is not opened for that.
 * Errors: NO_COMPILER, with where it was looked for. */
moi_status moii_nvrtc_find(moii_nvrtc *out, const moii_env_cuda *env);
/* Opens what was found. */
moi_status moii_nvrtc_load(moii_nvrtc *nvrtc);
void moii_nvrtc_close(moii_nvrtc *nvrtc);

/* Compiles files[0] of the set, whose other files are what it includes, to a cubin that the caller frees.  defines:
 * "ELEM=4 ROWS=1".  serialized: the compiler made tensor cores' products wait for each other.  May be called by several threads at once.
 * Errors: COMPILE with the compiler's words, NOMEM. */
moi_status moii_nvrtc_compile(const moii_nvrtc *nvrtc, const moii_text_set *set, const char *arch, const char *defines,
                              unsigned char **cubin, size_t *bytes, bool *serialized);

#endif
