/* SPDX-License-Identifier: Apache-2.0
 * backend.c: the CPU back end: threads, instruction set, memory. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu.h"
#include "isa.h"

enum { HUGE_PAGE = 2 << 20 };

static moi_status cpu_open(moi_ctx *ctx)
{
    moii_cpu *cpu = calloc(1, sizeof *cpu);
    MOII_REQUIRE(cpu, MOI_ERR_NOMEM, "moi_ctx_create: no memory for the cpu back end");
    cpu->isa = moii_isa_choose(ctx->env.isa);
    if (!cpu->isa) {
        free(cpu);
        MOII_FAIL(MOI_ERR_ARG, "MOI_CPU_ISA: '%s' is unknown or not in this machine; known: generic, avx2", ctx->env.isa);
    }
    ctx->state = cpu;
    if (ctx->threads == 0) ctx->threads = omp_get_max_threads();
    snprintf(ctx->text, sizeof ctx->text, "cpu: %d thread%s, %s", ctx->threads, ctx->threads == 1 ? "" : "s", cpu->isa->name);
    return MOI_OK;
}

static void cpu_close(moi_ctx *ctx) { free(ctx->state); }

static moi_status cpu_alloc(moi_ctx *ctx, int64_t bytes, void **out)
{
    (void)ctx;
    if (bytes > INT64_MAX - 2 * HUGE_PAGE) MOII_FAIL(MOI_ERR_NOMEM, "moi_buf_alloc: no memory for %lld bytes", (long long)bytes);
    size_t size = (size_t)moii_round_up(bytes ? bytes : 1, MOII_WORKSPACE_ALIGN);
    bool large = size >= 2 * HUGE_PAGE;
    if (large) size = (size_t)moii_round_up((int64_t)size, HUGE_PAGE);
    void *p = aligned_alloc(large ? HUGE_PAGE : MOII_WORKSPACE_ALIGN, size);
    MOII_REQUIRE(p, MOI_ERR_NOMEM, "moi_buf_alloc: no memory for %lld bytes", (long long)bytes);
#if defined(MADV_HUGEPAGE)
    if (large) madvise(p, size, MADV_HUGEPAGE); /* walking down columns visits a page per row; a wish that may be refused */
#endif
    memset(p, 0, size);
    *out = p;
    return MOI_OK;
}

static void cpu_release(moi_ctx *ctx, void *p)
{
    (void)ctx;
    free(p);
}

static moi_status cpu_sync(moi_ctx *ctx, moi_stream stream)
{
    (void)ctx;
    MOII_REQUIRE(!stream, MOI_ERR_ARG, "moi_ctx_sync: the cpu back end has no streams; pass NULL");
    return MOI_OK;
}

static moi_status cpu_put(moi_ctx *ctx, void *device, const void *host, int64_t bytes, moi_stream stream)
{
    (void)ctx, (void)stream;
    memcpy(device, host, (size_t)bytes);
    return MOI_OK;
}

static moi_status cpu_copy(moi_ctx *ctx, void *to, const void *from, int64_t bytes, moi_stream stream)
{
    (void)ctx;
    MOII_REQUIRE(!stream, MOI_ERR_ARG, "moi_buf_put, moi_buf_get, moi_buf_copy: the cpu back end has no streams; pass NULL");
    memcpy(to, from, (size_t)bytes);
    return MOI_OK;
}

const moii_backend moii_backend_cpu = {
    .id = MOI_BACKEND_CPU, .name = "cpu", .open = cpu_open, .close = cpu_close,
    .alloc = cpu_alloc, .release = cpu_release, .sync = cpu_sync, .put = cpu_put, .upload = cpu_copy,
    .download = cpu_copy, .copy = cpu_copy, .nn = &moii_nn_cpu,
};
