/* SPDX-License-Identifier: Apache-2.0
 * gpu.c: from a row's kernels to launches. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/elem.h"
#include "log.h"

_Static_assert((int)ELEM_F32 == MOI_F32 && (int)ELEM_F16 == MOI_F16 && (int)ELEM_BF16 == MOI_BF16 && (int)ELEM_E4M3 == MOI_E4M3 &&
               (int)ELEM_E5M2 == MOI_E5M2 && (int)ELEM_E3M2 == MOI_E3M2 && (int)ELEM_E2M3 == MOI_E2M3 && (int)ELEM_E2M1 == MOI_E2M1 &&
               (int)ELEM_INT8 == MOI_INT8, "elem.h and moiety.h number the element types alike");
_Static_assert((int)SCALES_ROW == MOI_LAYOUT_ROW && (int)SCALES_TILED == MOI_LAYOUT_TILED && (int)SCALES_COL == MOI_LAYOUT_COL,
               "elem.h and moiety.h number the scale layouts alike");

struct moii_gpu_module {
    const moii_kernel *kernel;
    char defines[MOII_DEFINES];
    moii_cumodule module;
    moii_cufunction function;
    int shared_bytes; /* dynamic ones that it may be launched with: the most that a plan wanted */
    moii_gpu_module *next;
};

moi_status moii_gpu_enter(const moii_gpu *gpu, bool *pushed)
{
    moii_cucontext current = NULL;
    *pushed = false;
    MOII_CUDA(&gpu->driver, cuCtxGetCurrent, (&current));
    if (current == gpu->context) return MOI_OK;
    MOII_CUDA(&gpu->driver, cuCtxPushCurrent, (gpu->context));
    *pushed = true;
    return MOI_OK;
}

void moii_gpu_leave(const moii_gpu *gpu, bool pushed)
{
    moii_cucontext popped;
    if (pushed) gpu->driver.cuCtxPopCurrent(&popped);
}

bool moii_gpu_fits(const moi_ctx *ctx, const moii_kernel *kernel, const char **why)
{
    char arch[MOII_ARCH];
    if (moii_kernel_arch(kernel, moii_gpu_of(ctx)->capability, arch)) return true;
    *why = "is not written for this device's capability";
    return false;
}

/* ---- loading ---- */

static moii_gpu_module *find(const moii_gpu *gpu, const moii_gpu_kernel *k)
{
    for (moii_gpu_module *m = gpu->modules; m; m = m->next)
        if (m->kernel == k->kernel && !strcmp(m->defines, k->defines)) return m;
    return NULL;
}

static moi_status load(moii_gpu *gpu, const moii_jit_job *job)
{
    moii_gpu_module *m = calloc(1, sizeof *m);
    MOII_REQUIRE(m, MOI_ERR_NOMEM, "cuda: no memory for a module");
    m->kernel = job->kernel;
    memcpy(m->defines, job->defines, sizeof m->defines);
    moii_cuenum result = gpu->driver.cuModuleLoadData(&m->module, job->cubin);
    if (result) {
        moii_driver_check(&gpu->driver, result, "cuModuleLoadData");
        moi_status status = moii_fail(MOI_ERR_DRIVER, "%.500s: %s for %s; is NVRTC newer than the driver, which runs CUDA %d.%d?", moi_last_error(),
                                      job->kernel->stem, job->arch, gpu->driver.version / 1000, gpu->driver.version % 1000 / 10);
        free(m);
        return status;
    }
    moi_status status = moii_driver_check(&gpu->driver, gpu->driver.cuModuleGetFunction(&m->function, m->module, job->kernel->stem),
                                          "cuModuleGetFunction");
    /* the driver loads lazily, and a stream under capture is no place for that */
    if (!status) status = moii_driver_check(&gpu->driver, gpu->driver.cuFuncLoad(m->function), "cuFuncLoad");
    if (status) {
        gpu->driver.cuModuleUnload(m->module);
        free(m);
        return status;
    }
    m->next = gpu->modules;
    gpu->modules = m;
    return MOI_OK;
}

static moi_status get_missing(moi_ctx *ctx, moii_gpu_kernel *kernels, int count)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    moii_jit_job *jobs = calloc((size_t)count, sizeof *jobs);
    int n = 0;
    moi_status status = MOI_OK;
    MOII_REQUIRE(jobs, MOI_ERR_NOMEM, "cuda: no memory for %d kernels", count);
    for (int i = 0; i < count && !status; i++) {
        if (find(gpu, &kernels[i])) continue;
        jobs[n].kernel = kernels[i].kernel;
        memcpy(jobs[n].defines, kernels[i].defines, sizeof jobs[n].defines);
        if (!moii_kernel_arch(kernels[i].kernel, gpu->capability, jobs[n++].arch))
            status = moii_fail(MOI_ERR_UNSUPPORTED, "cuda: %s is not written for capability %d.%d", kernels[i].kernel->stem,
                               gpu->capability / 10, gpu->capability % 10);
    }
    if (!status && n) status = moii_jit_get(&gpu->jit, jobs, n);
    for (int i = 0; i < n && !status; i++) {
        moii_log(ctx, MOI_LOG_DEBUG, "cuda: %s for %s with '%s': %s in %.0f ms, %d registers", jobs[i].kernel->stem, jobs[i].arch,
                 jobs[i].defines, jobs[i].compiled ? "compiled" : "read", 1e3 * jobs[i].seconds, jobs[i].use.registers);
        status = load(gpu, &jobs[i]);
    }
    for (int i = 0; i < n; i++) free(jobs[i].cubin);
    free(jobs);
    return status;
}

static moi_status set_limits(const moii_gpu *gpu, const moii_gpu_kernel *k, moii_gpu_module *m)
{
    MOII_REQUIRE(k->shared_bytes <= gpu->shared_bytes, MOI_ERR_UNSUPPORTED, "cuda: %s needs %d bytes of shared memory, the device has %d",
                 k->kernel->stem, k->shared_bytes, gpu->shared_bytes);
    if (k->shared_bytes > m->shared_bytes) { /* with the static ones it may be more than the 48 KB that need no asking */
        MOII_CUDA(&gpu->driver, cuFuncSetAttribute, (k->function, MOII_CU_FUNC_DYNAMIC_SHARED_BYTES, k->shared_bytes));
        m->shared_bytes = k->shared_bytes;
    }
    if (k->most_shared) MOII_CUDA(&gpu->driver, cuFuncSetAttribute, (k->function, MOII_CU_FUNC_SHARED_CARVEOUT, 100));
    if (k->large_cluster) MOII_CUDA(&gpu->driver, cuFuncSetAttribute, (k->function, MOII_CU_FUNC_NON_PORTABLE_CLUSTER, 1));
    return MOI_OK;
}

moi_status moii_gpu_prepare(moi_ctx *ctx, moii_gpu_kernel *kernels, int count)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    bool pushed;
    if (gpu->imagined) return MOI_OK;
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    pthread_mutex_lock(&gpu->lock);
    moi_status status = get_missing(ctx, kernels, count);
    for (int i = 0; i < count && !status; i++) {
        moii_gpu_module *m = find(gpu, &kernels[i]);
        kernels[i].function = m->function;
        status = set_limits(gpu, &kernels[i], m);
    }
    pthread_mutex_unlock(&gpu->lock);
    moii_gpu_leave(gpu, pushed);
    return status;
}

static void free_state(moi_plan *plan) { free(plan->state); }

void *moii_gpu_state(moi_plan *plan, size_t bytes)
{
    plan->state = calloc(1, bytes);
    plan->unplan = free_state;
    if (!plan->state) moii_fail(MOI_ERR_NOMEM, "%s plan: no memory", moii_op_name(plan->op));
    return plan->state;
}

moi_status moii_gpu_plan_one(moi_plan *plan, const moii_kernel *kernel)
{
    moii_gpu_kernel *k = moii_gpu_state(plan, sizeof *k);
    if (!k) return MOI_ERR_NOMEM;
    k->kernel = kernel;
    return moii_gpu_prepare(plan->ctx, k, 1);
}

void moii_gpu_unload(moii_gpu *gpu)
{
    while (gpu->modules) {
        moii_gpu_module *m = gpu->modules;
        gpu->modules = m->next;
        gpu->driver.cuModuleUnload(m->module);
        free(m);
    }
}

/* ---- launching ---- */

moi_status moii_gpu_run(const moi_plan *plan, const moii_gpu_kernel *kernel, const moii_gpu_launch *l, const void *args, moi_stream stream)
{
    const moii_gpu *gpu = moii_gpu_of(plan->ctx);
    moii_cu_attribute attributes[2];
    moii_cu_launch c = { .grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = (unsigned int)l->threads, .block_y = 1, .block_z = 1,
                         .shared_bytes = (unsigned int)l->shared_bytes, .stream = stream, .attributes = attributes };
    void *parameters[] = { (void *)(uintptr_t)args };
    bool pushed;
    MOII_REQUIRE(l->grid[0] <= INT32_MAX && l->grid[1] <= 65535 && l->grid[2] <= 65535, MOI_ERR_SHAPE,
                 "%s run: the problem needs a grid of %lld x %lld x %lld blocks, more than the device takes", moii_op_name(plan->op),
                 (long long)l->grid[0], (long long)l->grid[1], (long long)l->grid[2]);
    if (l->grid[0]) c.grid_x = (unsigned int)l->grid[0];
    if (l->grid[1]) c.grid_y = (unsigned int)l->grid[1];
    if (l->grid[2]) c.grid_z = (unsigned int)l->grid[2];
    memset(attributes, 0, sizeof attributes);
    if (l->cluster) {
        moii_cu_attribute *a = &attributes[c.attribute_count++];
        a->id = MOII_CU_ATTR_CLUSTER;
        a->value.cluster.x = (unsigned int)l->cluster, a->value.cluster.y = a->value.cluster.z = 1;
    }
    if (l->overlap) {
        moii_cu_attribute *a = &attributes[c.attribute_count++];
        a->id = MOII_CU_ATTR_PROGRAMMATIC;
        a->value.programmatic = 1;
    }
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    moii_cuenum result = gpu->driver.cuLaunchKernelEx(&c, kernel->function, parameters, NULL);
    moii_gpu_leave(gpu, pushed);
    return result ? moii_driver_check(&gpu->driver, result, kernel->kernel->stem) : MOI_OK;
}
