/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.h: what the rows of the CUDA back end share.  A row is src/cuda/STEM.c, which states its kernels and launches them, and
 * src/cuda/kernels/STEM.cu (docs/adding.md).
 *
 *   plan   moii_gpu_prepare: kernels compiled or fetched, loaded, ready          (may compile, allocate, wait)
 *   run    moii_gpu_run                                                          (enqueues; legal in stream capture) */
#ifndef MOII_GPU_H
#define MOII_GPU_H

#include "counters.h"
#include "ctx.h"
#include "driver.h"
#include "jit.h"
#include "status.h"

typedef struct moii_gpu_module moii_gpu_module;

typedef struct moii_gpu {
    moii_driver driver;
    moii_cucontext context; /* the caller's, or the device's primary one */
    moii_cudevice device;
    bool retained;          /* the primary context is released at the end */
    bool imagined;          /* plans may be made, which neither compile nor load, and not be run */
    int capability;         /* 90: 9.0 */
    int sms, shared_bytes;  /* shared_bytes: the most a block may ask for */
    int memory_gb_s; /* as its clock and width say; 0: they do not */
    moii_jit jit;
    pthread_mutex_t lock;   /* of the modules */
    moii_gpu_module *modules;
    moii_counters counters;
} moii_gpu;

static inline moii_gpu *moii_gpu_of(const moi_ctx *ctx) { return ctx->state; }

/* Makes the context current on this thread; leave gives back what was. */
moi_status moii_gpu_enter(const moii_gpu *gpu, bool *pushed);
void moii_gpu_leave(const moii_gpu *gpu, bool pushed);

/* One kernel with its defines: what a plan asks for, and what it then launches. */
typedef struct moii_gpu_kernel {
    const moii_kernel *kernel;
    char defines[MOII_DEFINES];
    int shared_bytes;          /* dynamic shared memory it will be launched with */
    bool large_cluster;        /* clusters of more than 8 blocks */
    bool most_shared;          /* as much of each multiprocessor as can be is shared memory, so that other kernels' blocks find room */
    moii_cufunction function;  /* result; lives as long as the context */
} moii_gpu_kernel;

/* Compiles what no folder has, on several threads, and loads it; each kernel once per context. */
moi_status moii_gpu_prepare(moi_ctx *ctx, moii_gpu_kernel *kernels, int count);
/* For a row's `plan`: so many bytes, all 0, as plan->state, freed with the plan.  NULL: there is no memory, which the error says. */
void *moii_gpu_state(moi_plan *plan, size_t bytes);
/* For a row of one kernel without defines: plans it, which makes the kernel plan->state. */
moi_status moii_gpu_plan_one(moi_plan *plan, const moii_kernel *kernel);
void moii_gpu_unload(moii_gpu *gpu);
/* For a row's `supports`: whether the kernel is written for the context's device. */
bool moii_gpu_fits(const moi_ctx *ctx, const moii_kernel *kernel, const char **why);

typedef struct moii_gpu_launch {
    int64_t grid[3]; /* 0 counts as 1 */
    int threads, shared_bytes, cluster; /* cluster: blocks along x, 0: none */
    bool overlap;    /* may begin before the stream's last kernel has ended; the kernel waits by griddepcontrol.wait */
} moii_gpu_launch;

/* Enqueues a kernel whose one parameter is the struct at `args`. */
moi_status moii_gpu_run(const moi_plan *plan, const moii_gpu_kernel *kernel, const moii_gpu_launch *launch, const void *args, moi_stream stream);

#endif
