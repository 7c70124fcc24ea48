/* SPDX-License-Identifier: Apache-2.0
 *
 * jit.h: from a kernel's name to its machine code: out of a shipped folder, out of the cache, or compiled now.
 *
 * An entry's name is STEM-ARCH-KEY-VERSION.cubin.  KEY hashes the kernel's text, every header it includes, the defines and the arch;
 * VERSION is the compiler's.  A shipped folder (MOI_KERNELS) may come from any version; the cache must match the one at hand, or may be
 * any where there is no compiler. */
#ifndef MOII_JIT_H
#define MOII_JIT_H

#include <pthread.h>

#include "cubin.h"
#include "nvrtc.h"

enum { MOII_DEFINES = 256, MOII_ARCH = 16 };

/* What a kernel file of src/cuda/kernels/ states about itself.  Its text is STEM.cu, its entry STEM. */
typedef struct moii_kernel {
    const char *stem;
    const char *archs;  /* all it is written for, the first is the least: "sm_80 sm_90a sm_100a" */
    bool newer;         /* plain CUDA: right on every later capability too */
    int registers;      /* no variant may use more; none may spill or use local memory */
    int variants;       /* 0: one, without defines */
    /* Writes the defines of variant i ("ELEM=4"): these are what `moiety kernels compile` prepares and the tests check. */
    void (*variant)(int i, char defines[MOII_DEFINES]);
} moii_kernel;

/* The kernels of every row, one after the other, in the order of the table; NULL behind the last. */
const moii_kernel *moii_kernel_at(int index);
/* The arch to compile the kernel for on a device of this capability (90: 9.0); false where it is not written for it. */
bool moii_kernel_arch(const moii_kernel *kernel, int capability, char arch[MOII_ARCH]);

typedef struct moii_jit_job {
    const moii_kernel *kernel;
    char arch[MOII_ARCH], defines[MOII_DEFINES];
    /* results */
    unsigned char *cubin; /* the caller frees it */
    size_t bytes;
    moii_cubin_use use;
    bool compiled;        /* it was in no folder */
    bool serialized;      /* tensor cores' products wait for each other, which is slow: known of what is compiled now */
    double seconds;
    moi_status status;
    char error[1024];
} moii_jit_job;

typedef struct moii_jit {
    moii_env_cuda env;
    moii_nvrtc nvrtc;
    moi_status looked;    /* for a compiler: OK, or why there is none */
    bool has_looked;
    char why[512];
    int threads;
    bool must_store;      /* an entry that cannot be written is an error; else it only costs time later */
    pthread_mutex_t lock; /* of the compiler's search */
} moii_jit;

moi_status moii_jit_open(moii_jit *jit, int threads);
void moii_jit_close(moii_jit *jit);
/* Fills the jobs' results, on several threads.  Returns the first job's error; the others are in their jobs. */
moi_status moii_jit_get(moii_jit *jit, moii_jit_job *jobs, int count);
/* Looks for a compiler without opening it, once.  Errors: NO_COMPILER. */
moi_status moii_jit_compiler(moii_jit *jit);

#endif
