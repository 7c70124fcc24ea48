/* SPDX-License-Identifier: Apache-2.0 */
#include "support_gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "../src/cuda/gpu.h"

static int guard(void) /* compute-sanitizer sees more where buffers end exactly: MOIT_GUARDS=0 */
{
    const char *text = getenv("MOIT_GUARDS");
    return text && !strcmp(text, "0") ? 0 : 256;
}

static moi_ctx *ctx;

/* Whatever ran, the counters that the context has are 0 again; nothing of it is left then, which memcheck looks for. */
static void leave_gpu(void)
{
    static unsigned char counters[MOII_COUNTERS * MOII_COUNTERS_APART];
    moi_status status = moi_buf_get(ctx, counters, (void *)(uintptr_t)moii_gpu_of(ctx)->counters.memory, sizeof counters, NULL);
    for (size_t i = 0; i < sizeof counters && !status; i++)
        if (counters[i]) status = moii_fail(MOI_ERR_INTERNAL, "counter %zu of the context is not 0 in the end", i / MOII_COUNTERS_APART);
    if (status) fprintf(stderr, "%s\n", moi_last_error());
    moi_ctx_free(ctx);
    if (status) fflush(NULL), _Exit(1); /* exit has begun */
}

moi_ctx *moit_gpu(void)
{
    static bool tried;
    if (tried) return ctx;
    tried = true;
    moi_ctx_config c = MOI_CTX_CONFIG_INIT;
    c.backend = MOI_BACKEND_CUDA;
    if (moi_ctx_create(&ctx, &c)) {
        const char *must = getenv("MOIT_GPU");
        if (must && !strcmp(must, "1")) fail_msg("MOIT_GPU=1, and no GPU: %s", moi_last_error());
        ctx = NULL;
    }
    if (ctx) atexit(leave_gpu);
    return ctx;
}

moi_ctx *moit_hopper(void) { return moit_gpu() && moii_gpu_of(moit_gpu())->capability == 90 ? moit_gpu() : NULL; }

const char *moit_any_row(const char *op, int i)
{
    int cpu_rows = 0;
    while (moit_row(op, cpu_rows)) cpu_rows++;
    if (i < cpu_rows) return moit_row(op, i);
    i -= cpu_rows;
    for (int r = 0; moit_gpu() && r < moi_row_count(); r++) {
        moi_row_info info;
        moit_ok(moi_row_get(r, &info));
        const bool there = moit_hopper() || !strstr(info.name, "_sm90");
        if (info.backend == MOI_BACKEND_CUDA && there && !strcmp(info.op, op) && i-- == 0) return info.name;
    }
    return NULL;
}

moit_mem moit_mem_of(const char *row)
{
    for (int r = 0; r < moi_row_count(); r++) {
        moi_row_info info;
        moit_ok(moi_row_get(r, &info));
        if (!strcmp(info.name, row) && info.backend == MOI_BACKEND_CUDA) return (moit_mem){ .ctx = moit_gpu(), .gpu = true };
    }
    return (moit_mem){ .ctx = moit_ctx(0) };
}

static const unsigned char *guard_bytes(void)
{
    static unsigned char bytes[256];
    memset(bytes, 0xA5, sizeof bytes);
    return bytes;
}

static void *add(moit_mem *m, void *host, int64_t bytes, bool out)
{
    char *p;
    if (!m->gpu || !host) return host;
    assert_true(m->count < MOIT_MEM);
    moit_ok(moi_buf_alloc(m->ctx, bytes + 2 * guard(), (void **)&p));
    moit_ok(moi_buf_put(m->ctx, p, guard_bytes(), guard(), NULL));
    moit_ok(moi_buf_put(m->ctx, p + guard(), host, bytes, NULL));
    moit_ok(moi_buf_put(m->ctx, p + guard() + bytes, guard_bytes(), guard(), NULL));
    m->item[m->count].host = host;
    m->item[m->count].device = p;
    m->item[m->count].bytes = bytes;
    m->item[m->count++].out = out;
    return p + guard();
}

void *moit_in(moit_mem *m, const void *host, int64_t bytes) { return add(m, (void *)(uintptr_t)host, bytes, false); }
void *moit_out(moit_mem *m, void *host, int64_t bytes) { return add(m, host, bytes, true); }

/* A workspace holds whatever another call left there: numbers that look like results. */
static void fill(const moit_mem *m, char *device, int64_t bytes)
{
    static unsigned char some[1 << 16];
    memset(some, 0x3C, sizeof some);
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < (int64_t)sizeof some ? bytes - at : (int64_t)sizeof some;
        moit_ok(moi_buf_put(m->ctx, device + at, some, n, NULL));
    }
}

void *moit_mem_workspace(moit_mem *m, const moi_plan *plan)
{
    if (!m->gpu) return moit_workspace(plan);
    int64_t bytes = moi_plan_workspace_bytes(plan);
    if (!bytes) return NULL;
    char *p;
    assert_true(m->count < MOIT_MEM);
    moit_ok(moi_buf_alloc(m->ctx, bytes + 2 * guard(), (void **)&p));
    moit_ok(moi_buf_put(m->ctx, p, guard_bytes(), guard(), NULL));
    moit_ok(moi_buf_put(m->ctx, p + guard() + bytes, guard_bytes(), guard(), NULL));
    if (guard()) fill(m, p + guard(), bytes); /* without, initcheck looks for what is read before it is written */
    m->item[m->count].device = p;
    m->item[m->count++].bytes = bytes;
    return p + guard();
}

static void check_guards(const moit_mem *m, const char *device, int64_t bytes)
{
    unsigned char got[256];
    for (int behind = 0; behind < 2 && guard(); behind++) {
        moit_ok(moi_buf_get(m->ctx, got, device + (behind ? guard() + bytes : 0), guard(), NULL));
        for (int i = 0; i < guard(); i++)
            if (got[i] != 0xA5) fail_msg("wrote %s a device buffer of %lld bytes", behind ? "behind" : "before", (long long)bytes);
    }
}

static unsigned char *fetch(const moit_mem *m, int i)
{
    unsigned char *p = malloc((size_t)m->item[i].bytes + 1);
    assert_non_null(p);
    moit_ok(moi_buf_get(m->ctx, p, (char *)m->item[i].device + guard(), m->item[i].bytes, NULL));
    return p;
}

void moit_mem_done(moit_mem *m)
{
    if (m->gpu) moit_ok(moi_ctx_sync(m->ctx, NULL));
    for (int i = 0; i < m->count; i++) {
        unsigned char *got = m->item[i].host ? fetch(m, i) : NULL;
        check_guards(m, m->item[i].device, m->item[i].bytes);
        if (got && m->item[i].out) memcpy(m->item[i].host, got, (size_t)m->item[i].bytes);
        else if (got && m->item[i].bytes) assert_memory_equal(m->item[i].host, got, (size_t)m->item[i].bytes);
        free(got);
        moi_buf_free(m->ctx, m->item[i].device);
    }
    m->count = 0;
}

/* ---- capture ---- */

#define CUDA(call, arguments) moit_ok(moii_driver_check(&gpu->driver, gpu->driver.call arguments, #call))

static void reset_outputs(const moit_mem *m)
{
    for (int i = 0; i < m->count; i++)
        if (m->item[i].out) moit_ok(moi_buf_put(m->ctx, (char *)m->item[i].device + guard(), m->item[i].host, m->item[i].bytes, NULL));
}

void moit_capture_begin(moit_mem *m)
{
    const moii_gpu *gpu = moii_gpu_of(m->ctx);
    moii_custream stream;
    bool pushed;
    moit_ok(moi_ctx_sync(m->ctx, NULL));
    for (int i = 0; i < m->count; i++)
        if (m->item[i].out) m->item[i].eager = fetch(m, i);
    reset_outputs(m);
    moit_ok(moii_gpu_enter(gpu, &pushed));
    CUDA(cuStreamCreate, (&stream, MOII_CU_STREAM_NON_BLOCKING));
    CUDA(cuStreamBeginCapture, (stream, MOII_CU_CAPTURE_THREAD_LOCAL));
    moii_gpu_leave(gpu, pushed);
    m->stream = stream;
}

/* How often a graph is replayed: twice, or as the environment has it. */
static int replays(void)
{
    const char *wanted = getenv("MOIT_REPLAYS");
    return wanted ? atoi(wanted) : 2;
}

void moit_capture_end(moit_mem *m)
{
    const moii_gpu *gpu = moii_gpu_of(m->ctx);
    moii_cugraph graph;
    moii_cugraphexec exec;
    bool pushed;
    moit_ok(moii_gpu_enter(gpu, &pushed));
    CUDA(cuStreamEndCapture, (m->stream, &graph));
    CUDA(cuGraphInstantiateWithFlags, (&exec, graph, 0));
    for (int replay = 0, all = replays(); replay < all; replay++) {
        reset_outputs(m);
        CUDA(cuGraphLaunch, (exec, m->stream));
        CUDA(cuStreamSynchronize, (m->stream));
        for (int i = 0; i < m->count; i++) {
            if (!m->item[i].out) continue;
            unsigned char *got = fetch(m, i);
            if (memcmp(got, m->item[i].eager, (size_t)m->item[i].bytes) != 0)
                fail_msg("replay %d of the captured run differs from the eager run in buffer %d", replay, i);
            free(got);
        }
    }
    CUDA(cuGraphExecDestroy, (exec));
    CUDA(cuGraphDestroy, (graph));
    CUDA(cuStreamDestroy, (m->stream));
    moii_gpu_leave(gpu, pushed);
    m->stream = NULL;
    for (int i = 0; i < m->count; i++) free(m->item[i].eager), m->item[i].eager = NULL;
}
