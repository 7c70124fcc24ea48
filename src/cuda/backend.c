/* SPDX-License-Identifier: Apache-2.0
 * backend.c: the CUDA back end: device, context, memory.  A moi_stream is a CUstream; NULL is the default stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format.h"
#include "gpu.h"

enum { LEAST_CAPABILITY = 80 };

static int attribute(const moii_gpu *gpu, moii_cuenum which)
{
    int value = 0;
    return gpu->driver.cuDeviceGetAttribute(&value, which, gpu->device) ? 0 : value;
}

/* The caller's context if the thread has one and no device was named, else the primary context, which the CUDA runtime shares. */
static moi_status join_context(moii_gpu *gpu, int ordinal)
{
    moii_driver *d = &gpu->driver;
    int count = 0;
    if (ordinal < 0) {
        MOII_CUDA(d, cuCtxGetCurrent, (&gpu->context));
        if (gpu->context) {
            MOII_CUDA(d, cuCtxGetDevice, (&gpu->device));
            return MOI_OK;
        }
        ordinal = 0;
    }
    MOII_CUDA(d, cuDeviceGetCount, (&count));
    MOII_REQUIRE(ordinal < count, MOI_ERR_NO_DEVICE, "moi_ctx_create: device %d is not there; this machine has %d", ordinal, count);
    MOII_CUDA(d, cuDeviceGet, (&gpu->device, ordinal));
    return MOI_OK;
}

static moi_status check_capability(moii_gpu *gpu)
{
    gpu->capability = 10 * attribute(gpu, MOII_CU_CAPABILITY_MAJOR) + attribute(gpu, MOII_CU_CAPABILITY_MINOR);
    gpu->sms = attribute(gpu, MOII_CU_MULTIPROCESSORS);
    gpu->memory_gb_s = (int)(2 * (int64_t)attribute(gpu, MOII_CU_MEMORY_KHZ) * attribute(gpu, MOII_CU_MEMORY_BITS) / 8000000);
    gpu->shared_bytes = attribute(gpu, MOII_CU_SHARED_BYTES_OPTIN);
    MOII_REQUIRE(gpu->capability >= LEAST_CAPABILITY, MOI_ERR_UNSUPPORTED, "cuda: device %d has compute capability %d.%d; 8.0 or newer is needed",
                 gpu->device, gpu->capability / 10, gpu->capability % 10);
    return MOI_OK;
}

static moi_status start(moi_ctx *ctx, moii_gpu *gpu)
{
    char name[96] = "?";
    size_t bytes = 0;
    MOII_TRY(join_context(gpu, ctx->device));
    MOII_TRY(check_capability(gpu));
    gpu->driver.cuDeviceGetName(name, sizeof name, gpu->device);
    gpu->driver.cuDeviceTotalMem(&bytes, gpu->device);
    if (ctx->threads == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        ctx->threads = cores > 0 ? (int)cores : 1;
    }
    snprintf(ctx->text, sizeof ctx->text, "cuda: %s, capability %d.%d, %d SMs, %.0f GiB, driver for CUDA %d.%d", name, gpu->capability / 10,
             gpu->capability % 10, gpu->sms, (double)bytes / (1 << 30), gpu->driver.version / 1000, gpu->driver.version % 1000 / 10);
    MOII_TRY(moii_jit_open(&gpu->jit, ctx->threads < 16 ? ctx->threads : 16));
    moi_status status = MOI_OK;
    if (!gpu->context) { /* last, so that nothing behind it here can fail */
        status = moii_driver_check(&gpu->driver, gpu->driver.cuDevicePrimaryCtxRetain(&gpu->context, gpu->device), "cuDevicePrimaryCtxRetain");
        gpu->retained = !status;
    }
    if (status) moii_jit_close(&gpu->jit);
    return status;
}

static moi_status alloc_zeroed(const moii_driver *d, const char *where, int64_t bytes, moii_cuptr *out)
{
    size_t size = (size_t)moii_round_up(bytes ? bytes : 1, MOII_WORKSPACE_ALIGN);
    moii_cuenum result = d->cuMemAlloc(out, size);
    MOII_REQUIRE(result != MOII_CU_OUT_OF_MEMORY, MOI_ERR_NOMEM, "%s: no memory for %lld bytes on the device", where, (long long)bytes);
    MOII_TRY(moii_driver_check(d, result, "cuMemAlloc"));
    result = d->cuMemsetD8Async(*out, 0, size, NULL);
    if (!result) result = d->cuStreamSynchronize(NULL); /* other streams may use it at once */
    if (result) d->cuMemFree(*out);
    return moii_driver_check(d, result, "cuMemsetD8Async");
}

static moi_status make_counters(moii_gpu *gpu)
{
    bool pushed;
    pthread_mutex_init(&gpu->counters.lock, NULL); /* cannot fail: it has no attributes */
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    moi_status status = alloc_zeroed(&gpu->driver, "moi_ctx_create", MOII_COUNTERS * MOII_COUNTERS_APART, &gpu->counters.memory);
    moii_gpu_leave(gpu, pushed);
    return status;
}

static void cuda_close(moi_ctx *ctx)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    bool pushed;
    if (!moii_gpu_enter(gpu, &pushed)) {
        moii_gpu_unload(gpu);
        if (gpu->counters.memory) gpu->driver.cuMemFree(gpu->counters.memory);
        moii_gpu_leave(gpu, pushed);
    }
    if (gpu->retained) gpu->driver.cuDevicePrimaryCtxRelease(gpu->device);
    moii_jit_close(&gpu->jit);
    pthread_mutex_destroy(&gpu->counters.lock);
    pthread_mutex_destroy(&gpu->lock);
    moii_driver_close(&gpu->driver);
    free(gpu);
}

static moi_status cuda_open(moi_ctx *ctx)
{
    moii_gpu *gpu = calloc(1, sizeof *gpu);
    MOII_REQUIRE(gpu, MOI_ERR_NOMEM, "moi_ctx_create: no memory for the cuda back end");
    moi_status status = moii_driver_open(&gpu->driver);
    if (!status) {
        status = pthread_mutex_init(&gpu->lock, NULL) ? moii_fail(MOI_ERR_NOMEM, "cuda: no memory for a lock") : start(ctx, gpu);
        if (status) {
            pthread_mutex_destroy(&gpu->lock);
            moii_driver_close(&gpu->driver);
        }
    }
    if (status) {
        free(gpu);
        return status;
    }
    ctx->state = gpu;
    status = make_counters(gpu);
    if (status) cuda_close(ctx), ctx->state = NULL;
    return status;
}

static moi_status cuda_alloc(moi_ctx *ctx, int64_t bytes, void **out)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    moii_cuptr p = 0;
    bool pushed;
    if (bytes > INT64_MAX - 2 * MOII_WORKSPACE_ALIGN) MOII_FAIL(MOI_ERR_NOMEM, "moi_buf_alloc: no memory for %lld bytes", (long long)bytes);
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    moi_status status = alloc_zeroed(&gpu->driver, "moi_buf_alloc", bytes, &p);
    moii_gpu_leave(gpu, pushed);
    if (!status) *out = (void *)(uintptr_t)p;
    return status;
}

static void cuda_release(moi_ctx *ctx, void *p)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    bool pushed;
    if (moii_gpu_enter(gpu, &pushed)) return;
    gpu->driver.cuMemFree((moii_cuptr)(uintptr_t)p);
    moii_gpu_leave(gpu, pushed);
}

static moi_status cuda_sync(moi_ctx *ctx, moi_stream stream)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    bool pushed;
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    moi_status status = moii_driver_check(&gpu->driver, gpu->driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
    moii_gpu_leave(gpu, pushed);
    return status;
}

/* As fills, whose values travel with the command: no host memory is read later, and a capture keeps them. */
static moii_cuenum put_words(const moii_driver *d, moii_cuptr to, const unsigned char *from, int64_t bytes, moi_stream stream)
{
    moii_cuenum result = MOII_CU_OK;
    int64_t i = 0;
    for (; i + 4 <= bytes && !result; i += 4) {
        uint32_t word;
        memcpy(&word, from + i, sizeof word);
        result = d->cuMemsetD32Async(to + (moii_cuptr)i, word, 1, stream);
    }
    for (; i < bytes && !result; i++) result = d->cuMemsetD8Async(to + (moii_cuptr)i, from[i], 1, stream);
    return result;
}

static moi_status cuda_put(moi_ctx *ctx, void *device, const void *host, int64_t bytes, moi_stream stream)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    bool pushed;
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    moii_cuenum result = put_words(&gpu->driver, (moii_cuptr)(uintptr_t)device, host, bytes, stream);
    moii_gpu_leave(gpu, pushed);
    return moii_driver_check(&gpu->driver, result, "cuMemsetD32Async");
}

/* A copy to or from the device, waited for. */
static moi_status copy(moi_ctx *ctx, void *device, void *host, int64_t bytes, bool down, moi_stream stream)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    const moii_cuptr at = (moii_cuptr)(uintptr_t)device;
    bool pushed;
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    moii_cuenum result = down ? gpu->driver.cuMemcpyDtoHAsync(host, at, (size_t)bytes, stream)
                              : gpu->driver.cuMemcpyHtoDAsync(at, host, (size_t)bytes, stream);
    if (!result) result = gpu->driver.cuStreamSynchronize(stream);
    moii_gpu_leave(gpu, pushed);
    return moii_driver_check(&gpu->driver, result, down ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync");
}

static moi_status cuda_upload(moi_ctx *ctx, void *device, const void *host, int64_t bytes, moi_stream stream)
{
    return copy(ctx, device, (void *)(uintptr_t)host, bytes, false, stream);
}

static moi_status cuda_download(moi_ctx *ctx, void *host, const void *device, int64_t bytes, moi_stream stream)
{
    return copy(ctx, (void *)(uintptr_t)device, host, bytes, true, stream);
}

static moi_status cuda_copy(moi_ctx *ctx, void *to, const void *from, int64_t bytes, moi_stream stream)
{
    moii_gpu *gpu = moii_gpu_of(ctx);
    bool pushed;
    MOII_TRY(moii_gpu_enter(gpu, &pushed));
    moii_cuenum result = gpu->driver.cuMemcpyDtoDAsync((moii_cuptr)(uintptr_t)to, (moii_cuptr)(uintptr_t)from, (size_t)bytes, stream);
    moii_gpu_leave(gpu, pushed);
    return moii_driver_check(&gpu->driver, result, "cuMemcpyDtoDAsync");
}

/* As much of a device as planning asks for; the shared memory is that of capability 9.0 and 10.0. */
static moi_status cuda_imagine(moi_ctx *ctx, const moi_ctx *like, int capability, int sms)
{
    moii_gpu *gpu = calloc(1, sizeof *gpu);
    MOII_REQUIRE(gpu, MOI_ERR_NOMEM, "cuda: no memory for a device that is not there");
    gpu->capability = capability ? capability : moii_gpu_of(like)->capability;
    gpu->sms = capability ? sms : moii_gpu_of(like)->sms;
    gpu->shared_bytes = capability ? 232448 : moii_gpu_of(like)->shared_bytes;
    gpu->imagined = true;
    ctx->state = gpu;
    return MOI_OK;
}

const moii_backend moii_backend_cuda = {
    .id = MOI_BACKEND_CUDA, .name = "cuda", .open = cuda_open, .close = cuda_close, .alloc = cuda_alloc, .release = cuda_release,
    .sync = cuda_sync, .put = cuda_put, .upload = cuda_upload, .download = cuda_download, .copy = cuda_copy, .imagine = cuda_imagine,
};
