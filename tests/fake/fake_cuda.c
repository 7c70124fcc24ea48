/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda.c: a stand-in for libcuda.so.1 on machines without a GPU: device memory is host memory.  It lets the tests walk through opening,
 * loading, launching and every error on the way.
 *   FAKE_CUDA_VERSION, FAKE_CUDA_DEVICES, FAKE_CUDA_CAPABILITY   what it claims to be: 13000, 1, 90
 *   FAKE_CUDA_MEMORY   bytes that it gives at a time: 2^30
 *   FAKE_CUDA_RUN   libemulator.so (tests/emulator), which runs kernels; without it they do not run */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/cuda/driver_types.h"
#include "../emulator/emulator.h"

#define MOII_CU(name, parameters) moii_cuenum name parameters;
#include "../../src/cuda/driver.def"
#undef MOII_CU
moii_cuenum cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, moii_cuenum *found);
moii_cuenum cuGetExportTable(const void **table, const void *id);

enum { INVALID = 1, NODES = 64, ARGS = 4096 };
struct CUctx_st { int device; };
struct CUfunc_st { emu_kernel *kernel; }; /* NULL: it does not run */
struct CUmod_st { struct CUfunc_st function; };
struct CUevent_st { int recorded; };

/* What a stream records while it is captured: fills and launches. */
typedef struct node {
    moii_cuptr to;
    unsigned int value;
    size_t count, width; /* of a fill; width 0: a launch */
    const emu_kernel *kernel;
    moii_cu_launch launch;
    moii_cu_attribute attributes[2];
    _Alignas(128) char args[ARGS];
} node;
struct CUgraph_st { int count; node nodes[NODES]; };
struct CUgraphExec_st { struct CUgraph_st graph; };
struct CUstream_st { struct CUgraph_st *captures; };

static struct CUctx_st primary;
static _Thread_local struct CUctx_st *current[8];
static _Thread_local int depth;

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* The emulated device; NULL: kernels do not run. */
static const emu_calls *device_calls(void)
{
    static const emu_calls *calls;
    static int tried;
    if (tried++) return calls;
    const char *path = getenv("FAKE_CUDA_RUN");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    emu_calls_fn get = NULL;
    if (library) *(void **)&get = dlsym(library, "emu_calls_of_device");
    if (path && !get) fprintf(stderr, "fake_cuda: FAKE_CUDA_RUN: %s\n", dlerror()), abort();
    return calls = get ? get() : NULL;
}
/* What was launched so far has happened. */
static void finish(void)
{
    if (device_calls()) device_calls()->finish();
}

moii_cuenum cuInit(unsigned int flags) { return flags ? (moii_cuenum)INVALID : setting("FAKE_CUDA_DEVICES", 1) ? MOII_CU_OK : MOII_CU_NO_DEVICE; }
moii_cuenum cuDriverGetVersion(int *version) { return *version = setting("FAKE_CUDA_VERSION", 13000), MOII_CU_OK; }
moii_cuenum cuGetErrorName(moii_cuenum error, const char **name) { return *name = error == INVALID ? "FAKE_INVALID" : "FAKE_ERROR", MOII_CU_OK; }
moii_cuenum cuGetErrorString(moii_cuenum error, const char **text) { return (void)error, *text = "the fake driver says no", MOII_CU_OK; }
moii_cuenum cuDeviceGetCount(int *count) { return *count = setting("FAKE_CUDA_DEVICES", 1), MOII_CU_OK; }
moii_cuenum cuDeviceGet(moii_cudevice *device, int ordinal) { return *device = ordinal, MOII_CU_OK; }
moii_cuenum cuDeviceGetName(char *name, int size, moii_cudevice device) { return snprintf(name, (size_t)size, "Fake GPU %d", device), MOII_CU_OK; }
moii_cuenum cuDeviceTotalMem(size_t *bytes, moii_cudevice device) { return (void)device, *bytes = (size_t)1 << 30, MOII_CU_OK; }
moii_cuenum cuDeviceGetAttribute(int *value, moii_cuenum attribute, moii_cudevice device)
{
    (void)device;
    *value = 0;
    if (attribute == MOII_CU_CAPABILITY_MAJOR) *value = setting("FAKE_CUDA_CAPABILITY", 90) / 10;
    if (attribute == MOII_CU_CAPABILITY_MINOR) *value = setting("FAKE_CUDA_CAPABILITY", 90) % 10;
    if (attribute == MOII_CU_MULTIPROCESSORS) *value = device_calls() ? device_calls()->multiprocessors : 2;
    if (attribute == MOII_CU_SHARED_BYTES_OPTIN) *value = 227 * 1024;
    return MOII_CU_OK;
}

moii_cuenum cuDevicePrimaryCtxRetain(moii_cucontext *context, moii_cudevice device) { return primary.device = device, *context = &primary, MOII_CU_OK; }
moii_cuenum cuDevicePrimaryCtxRelease(moii_cudevice device) { return (void)device, MOII_CU_OK; }
moii_cuenum cuCtxGetCurrent(moii_cucontext *context) { return *context = depth ? current[depth - 1] : NULL, MOII_CU_OK; }
moii_cuenum cuCtxPushCurrent(moii_cucontext context)
{
    if (depth == 8) return INVALID;
    current[depth++] = context;
    return MOII_CU_OK;
}
moii_cuenum cuCtxPopCurrent(moii_cucontext *context)
{
    if (depth == 0) return INVALID;
    *context = current[--depth];
    return MOII_CU_OK;
}
moii_cuenum cuCtxGetDevice(moii_cudevice *device) { return *device = depth ? current[depth - 1]->device : 0, depth ? MOII_CU_OK : INVALID; }

static void *host(moii_cuptr p) { return (void *)(uintptr_t)p; }
#define NEED(condition) do { if (!depth || !(condition)) return INVALID; } while (0)

moii_cuenum cuMemAlloc(moii_cuptr *out, size_t bytes)
{
    NEED(bytes > 0);
    if (bytes > (size_t)setting("FAKE_CUDA_MEMORY", 1 << 30)) return MOII_CU_OUT_OF_MEMORY;
    const size_t around = device_calls() ? (size_t)device_calls()->around : 0; /* a multiple of 256 */
    char *p = aligned_alloc(256, (bytes + 255) / 256 * 256 + 2 * around);
    if (!p) return MOII_CU_OUT_OF_MEMORY;
    if (device_calls()) device_calls()->allocation(p + around, bytes);
    *out = (moii_cuptr)(uintptr_t)(p + around);
    return MOII_CU_OK;
}
moii_cuenum cuMemFree(moii_cuptr p)
{
    NEED(p);
    finish();
    if (device_calls()) device_calls()->allocation(host(p), 0);
    free((char *)host(p) - (device_calls() ? device_calls()->around : 0));
    return MOII_CU_OK;
}
moii_cuenum cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) { return *free_bytes = *total_bytes = (size_t)1 << 30, MOII_CU_OK; }
static void do_fill(moii_cuptr to, unsigned int value, size_t count, size_t width)
{
    finish();
    for (size_t i = 0; i < count; i++) memcpy((char *)host(to) + width * i, &value, width); /* little-endian */
}
static moii_cuenum fill(moii_cuptr to, unsigned int value, size_t count, size_t width, moii_custream stream)
{
    NEED(to && to % width == 0);
    if (!stream || !stream->captures) return do_fill(to, value, count, width), MOII_CU_OK;
    if (stream->captures->count == NODES) return INVALID;
    stream->captures->nodes[stream->captures->count++] = (node){ .to = to, .value = value, .count = count, .width = width };
    return MOII_CU_OK;
}
moii_cuenum cuMemsetD8Async(moii_cuptr to, unsigned char value, size_t count, moii_custream stream) { return fill(to, value, count, 1, stream); }
moii_cuenum cuMemsetD32Async(moii_cuptr to, unsigned int value, size_t count, moii_custream stream) { return fill(to, value, count, 4, stream); }
moii_cuenum cuMemcpyHtoDAsync(moii_cuptr to, const void *from, size_t bytes, moii_custream stream)
{
    NEED(to && from && (!stream || !stream->captures)); /* a capture would read the host's memory later */
    finish();
    memcpy(host(to), from, bytes);
    return MOII_CU_OK;
}
moii_cuenum cuMemcpyDtoHAsync(void *to, moii_cuptr from, size_t bytes, moii_custream stream)
{
    NEED(to && from && (!stream || !stream->captures));
    finish();
    memcpy(to, host(from), bytes);
    return MOII_CU_OK;
}

moii_cuenum cuMemcpyDtoDAsync(moii_cuptr to, moii_cuptr from, size_t bytes, moii_custream stream)
{
    NEED(to && from && (!stream || !stream->captures)); /* no test captures one */
    finish();
    memcpy(host(to), host(from), bytes);
    return MOII_CU_OK;
}

moii_cuenum cuStreamCreate(moii_custream *stream, unsigned int flags)
{
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    return *stream ? MOII_CU_OK : INVALID;
}
moii_cuenum cuStreamDestroy(moii_custream stream) { return free(stream), MOII_CU_OK; }
moii_cuenum cuStreamSynchronize(moii_custream stream) { return finish(), stream && stream->captures ? (moii_cuenum)INVALID : MOII_CU_OK; }
moii_cuenum cuStreamBeginCapture(moii_custream stream, moii_cuenum mode)
{
    (void)mode;
    stream->captures = calloc(1, sizeof *stream->captures);
    return stream->captures ? MOII_CU_OK : INVALID;
}
moii_cuenum cuStreamEndCapture(moii_custream stream, moii_cugraph *graph)
{
    *graph = stream->captures;
    stream->captures = NULL;
    return *graph ? MOII_CU_OK : INVALID;
}
moii_cuenum cuStreamIsCapturing(moii_custream stream, moii_cuenum *capturing) { return *capturing = stream && stream->captures, MOII_CU_OK; }
moii_cuenum cuGraphInstantiateWithFlags(moii_cugraphexec *out, moii_cugraph graph, unsigned long long flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->graph = *graph;
    return *out ? MOII_CU_OK : INVALID;
}

static moii_cuenum do_launch(const emu_kernel *kernel, const moii_cu_launch *launch, const void *args)
{
    const char *why = kernel ? device_calls()->launch(kernel, launch, args) : NULL;
    if (why) fprintf(stderr, "fake_cuda: cuLaunchKernelEx: %s\n", why);
    return why ? (moii_cuenum)INVALID : MOII_CU_OK;
}
moii_cuenum cuGraphLaunch(moii_cugraphexec graph, moii_custream stream)
{
    (void)stream;
    for (int i = 0; i < graph->graph.count; i++) {
        const node *n = &graph->graph.nodes[i];
        if (n->width) do_fill(n->to, n->value, n->count, n->width);
        else if (do_launch(n->kernel, &n->launch, n->args)) return INVALID;
    }
    return MOII_CU_OK;
}
moii_cuenum cuGraphExecDestroy(moii_cugraphexec graph) { return free(graph), MOII_CU_OK; }
moii_cuenum cuGraphDestroy(moii_cugraph graph) { return free(graph), MOII_CU_OK; }
moii_cuenum cuEventCreate(moii_cuevent *event, unsigned int flags) { return (void)flags, *event = calloc(1, sizeof **event), *event ? MOII_CU_OK : INVALID; }
moii_cuenum cuEventDestroy(moii_cuevent event) { return free(event), MOII_CU_OK; }
moii_cuenum cuEventRecord(moii_cuevent event, moii_custream stream) { return (void)stream, event->recorded = 1, MOII_CU_OK; }
moii_cuenum cuEventSynchronize(moii_cuevent event) { return event->recorded ? MOII_CU_OK : INVALID; }
moii_cuenum cuEventElapsedTime(float *milliseconds, moii_cuevent start, moii_cuevent end) { return (void)start, (void)end, *milliseconds = 1, MOII_CU_OK; }

moii_cuenum cuModuleLoadData(moii_cumodule *module, const void *image)
{
    NEED(image && !memcmp(image, "\177ELF", 4));
    *module = calloc(1, sizeof **module);
    if (*module && device_calls()) NEED((*module)->function.kernel = device_calls()->load(image));
    return *module ? MOII_CU_OK : INVALID;
}
moii_cuenum cuModuleUnload(moii_cumodule module)
{
    NEED(module);
    finish();
    if (module->function.kernel) device_calls()->unload(module->function.kernel);
    free(module);
    return MOII_CU_OK;
}
moii_cuenum cuModuleGetFunction(moii_cufunction *function, moii_cumodule module, const char *name)
{
    NEED(module && name);
    *function = &module->function;
    return MOII_CU_OK;
}
moii_cuenum cuFuncLoad(moii_cufunction function) { return function ? MOII_CU_OK : (moii_cuenum)INVALID; }
moii_cuenum cuFuncGetAttribute(int *value, moii_cuenum attribute, moii_cufunction function) { return (void)attribute, (void)function, *value = 0, MOII_CU_OK; }
moii_cuenum cuFuncSetAttribute(moii_cufunction function, moii_cuenum attribute, int value) { return (void)function, (void)attribute, (void)value, MOII_CU_OK; }

moii_cuenum cuLaunchKernelEx(const moii_cu_launch *launch, moii_cufunction function, void **parameters, void **extra)
{
    NEED(function && parameters && !extra && launch->grid_x && launch->grid_y && launch->grid_z && launch->block_x);
    if (launch->grid_y > 65535 || launch->grid_z > 65535 || launch->block_x > 1024) return INVALID;
    struct CUgraph_st *graph = launch->stream ? launch->stream->captures : NULL;
    if (!graph) return do_launch(function->kernel, launch, parameters[0]);
    const size_t bytes = function->kernel ? (size_t)device_calls()->args_bytes(function->kernel) : 0;
    if (graph->count == NODES || bytes > ARGS || launch->attribute_count > 2) return INVALID;
    node *n = &graph->nodes[graph->count++];
    n->launch = *launch, n->kernel = function->kernel;
    memcpy(n->attributes, launch->attributes, launch->attribute_count * sizeof *n->attributes);
    n->launch.attributes = n->attributes;
    memcpy(n->args, parameters[0], bytes);
    return MOII_CU_OK;
}
moii_cuenum cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, moii_cufunction function, int threads, size_t shared_bytes)
{
    return (void)function, (void)threads, (void)shared_bytes, *blocks = 1, MOII_CU_OK;
}
moii_cuenum cuOccupancyMaxActiveClusters(int *clusters, moii_cufunction function, const moii_cu_launch *launch)
{
    return (void)function, (void)launch, *clusters = 1, MOII_CU_OK;
}
moii_cuenum cuTensorMapEncodeTiled(moii_cu_tensor_map *map, moii_cuenum type, uint32_t rank, void *address, const uint64_t *sizes,
                                   const uint64_t *strides_bytes, const uint32_t *box, const uint32_t *steps, moii_cuenum interleave,
                                   moii_cuenum swizzle, moii_cuenum l2, moii_cuenum fill)
{
    (void)steps, (void)interleave, (void)l2, (void)fill;
    memset(map, 0, sizeof *map);
    if (!device_calls()) return MOII_CU_OK;
    return device_calls()->encode(map, type, rank, address, sizes, strides_bytes, box, swizzle) ? MOII_CU_OK : (moii_cuenum)INVALID;
}

/* NVRTC asks for this where it meets a driver, and reads how large the table is. */
moii_cuenum cuGetExportTable(const void **table, const void *id)
{
    static const size_t empty[] = { 8 };
    return (void)id, *table = empty, MOII_CU_OK;
}

moii_cuenum cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, moii_cuenum *found)
{
    (void)flags;
    *found = 0;
    *out = NULL;
#define MOII_CU(call, parameters) if (!strcmp(name, #call)) *(moii_cuenum(**) parameters)out = call;
#include "../../src/cuda/driver.def"
#undef MOII_CU
    return *out && version <= setting("FAKE_CUDA_VERSION", 13000) ? MOII_CU_OK : INVALID;
}
