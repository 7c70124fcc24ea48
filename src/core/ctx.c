/* SPDX-License-Identifier: Apache-2.0 */
#include "ctx.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "status.h"

static const moii_backend *const backends[] = { &moii_backend_cuda, &moii_backend_cpu }; /* AUTO: the first that opens */
enum { BACKENDS = sizeof backends / sizeof *backends };

moi_status moii_take(void *to, size_t known, const void *from, const char *where)
{
    uint32_t size;
    MOII_REQUIRE(from, MOI_ERR_ARG, "%s is NULL", where);
    memcpy(&size, from, sizeof size);
    MOII_REQUIRE(size >= sizeof size && size <= 65536, MOI_ERR_ARG, "%s.size is %u; set it with the *_INIT macro", where, size);
    for (size_t i = known; i < size; i++)
        MOII_REQUIRE(((const char *)from)[i] == 0, MOI_ERR_ARG,
                     "%s.size is %u, this library knows %zu bytes, and a field behind them is set", where, size, known);
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    return MOI_OK;
}

/* AUTO is a wish, and says where it was not granted: at MOI_LOG=info where there is no device, as a warning otherwise. */
static moi_status open_backend(moi_ctx *ctx, moi_backend id, int threads)
{
    for (int i = 0; i < BACKENDS; i++) {
        if (id != MOI_BACKEND_AUTO && backends[i]->id != id) continue;
        ctx->backend = backends[i];
        ctx->threads = threads;
        moi_status status = backends[i]->open(ctx);
        if (!status || id != MOI_BACKEND_AUTO || i == BACKENDS - 1) return status;
        moii_log(ctx, status == MOI_ERR_NO_DEVICE ? MOI_LOG_INFO : MOI_LOG_WARN, "the %s back end is not used: %s", backends[i]->name,
                 moi_last_error());
    }
    return moii_fail(MOI_ERR_NO_DEVICE, "moi_ctx_create: back end %d is not in this build; it has: cuda, cpu", (int)id);
}

moi_status moi_ctx_create(moi_ctx **out, const moi_ctx_config *config)
{
    moi_ctx_config c = MOI_CTX_CONFIG_INIT;
    MOII_REQUIRE(out, MOI_ERR_ARG, "moi_ctx_create: out is NULL");
    *out = NULL;
    if (config) MOII_TRY(moii_take(&c, sizeof c, config, "moi_ctx_create: config"));
    MOII_REQUIRE(c.threads >= 0 && c.threads <= 1024, MOI_ERR_ARG, "moi_ctx_create: threads must be 0..1024, got %d", c.threads);
    MOII_REQUIRE(c.device >= -1 && c.device <= 1024, MOI_ERR_ARG, "moi_ctx_create: device must be -1..1024, got %d", c.device);
    moi_ctx *ctx = calloc(1, sizeof *ctx);
    MOII_REQUIRE(ctx, MOI_ERR_NOMEM, "moi_ctx_create: no memory for the context");
    moi_status status = moii_env_read(&ctx->env);
    if (!status) {
        ctx->device = c.device;
        ctx->reference_only = c.reference_only;
        ctx->log = c.log;
        ctx->log_user = c.log_user;
        status = open_backend(ctx, c.backend ? c.backend : ctx->env.backend, c.threads ? c.threads : ctx->env.threads);
    }
    if (status) {
        free(ctx);
        return status;
    }
    *out = ctx;
    return MOI_OK;
}

void moi_ctx_free(moi_ctx *ctx)
{
    if (!ctx) return;
    ctx->backend->close(ctx);
    free(ctx);
}

moi_status moi_ctx_sync(moi_ctx *ctx, moi_stream stream)
{
    MOII_REQUIRE(ctx, MOI_ERR_ARG, "moi_ctx_sync: ctx is NULL");
    return ctx->backend->sync(ctx, stream);
}

const char *moi_ctx_describe(const moi_ctx *ctx) { return ctx ? ctx->text : ""; }
int moi_ctx_threads(const moi_ctx *ctx) { return ctx ? ctx->threads : 0; }

moi_status moi_buf_alloc(moi_ctx *ctx, int64_t bytes, void **out)
{
    MOII_REQUIRE(ctx && out, MOI_ERR_ARG, "moi_buf_alloc: %s is NULL", ctx ? "out" : "ctx");
    *out = NULL;
    MOII_REQUIRE(bytes >= 0, MOI_ERR_ARG, "moi_buf_alloc: bytes must be >= 0, got %lld", (long long)bytes);
    return ctx->backend->alloc(ctx, bytes, out);
}

void moi_buf_free(moi_ctx *ctx, void *buf)
{
    if (ctx && buf) ctx->backend->release(ctx, buf);
}

static moi_status check_copy(const char *where, const moi_ctx *ctx, const void *buf, const void *host, int64_t bytes)
{
    MOII_REQUIRE(ctx, MOI_ERR_ARG, "%s: ctx is NULL", where);
    MOII_REQUIRE(bytes >= 0, MOI_ERR_ARG, "%s: bytes must be >= 0, got %lld", where, (long long)bytes);
    MOII_REQUIRE(bytes == 0 || (buf && host), MOI_ERR_ARG, "%s: %s is NULL", where, buf ? "host" : "buf");
    return MOI_OK;
}

moi_status moi_buf_put(moi_ctx *ctx, void *buf, const void *host, int64_t bytes, moi_stream stream)
{
    MOII_TRY(check_copy("moi_buf_put", ctx, buf, host, bytes));
    return bytes ? ctx->backend->upload(ctx, buf, host, bytes, stream) : MOI_OK;
}

moi_status moi_buf_get(moi_ctx *ctx, void *host, const void *buf, int64_t bytes, moi_stream stream)
{
    MOII_TRY(check_copy("moi_buf_get", ctx, buf, host, bytes));
    return bytes ? ctx->backend->download(ctx, host, buf, bytes, stream) : MOI_OK;
}

moi_status moi_buf_copy(moi_ctx *ctx, void *to, const void *from, int64_t bytes, moi_stream stream)
{
    MOII_REQUIRE(ctx, MOI_ERR_ARG, "moi_buf_copy: ctx is NULL");
    MOII_REQUIRE(bytes >= 0, MOI_ERR_ARG, "moi_buf_copy: bytes must be >= 0, got %lld", (long long)bytes);
    MOII_REQUIRE(bytes == 0 || (to && from), MOI_ERR_ARG, "moi_buf_copy: %s is NULL", to ? "from" : "to");
    MOII_REQUIRE((uintptr_t)to + (uintptr_t)bytes <= (uintptr_t)from || (uintptr_t)from + (uintptr_t)bytes <= (uintptr_t)to, MOI_ERR_ARG,
                 "moi_buf_copy: to and from overlap");
    return bytes ? ctx->backend->copy(ctx, to, from, bytes, stream) : MOI_OK;
}
