/* SPDX-License-Identifier: Apache-2.0
 * describe.c: what the CUDA back end finds or misses on this machine, in words. */
#include <stdio.h>

#include "cache.h"
#include "gpu.h"

typedef void (*teller)(void *user, const char *name, const char *value);

static void tell_device(teller each, void *user)
{
    moi_ctx_config config = MOI_CTX_CONFIG_INIT;
    moi_ctx *ctx;
    config.backend = MOI_BACKEND_CUDA;
    if (moi_ctx_create(&ctx, &config)) {
        each(user, "device", moi_last_error());
        return;
    }
    each(user, "device", moi_ctx_describe(ctx) + sizeof "cuda: " - 1);
    moi_ctx_free(ctx);
}

static void tell_compiler(moii_jit *jit, teller each, void *user)
{
    char text[MOII_PATH + 64];
    if (moii_jit_compiler(jit)) {
        each(user, "nvrtc", moi_last_error());
        return;
    }
    snprintf(text, sizeof text, "%d.%d, %s", jit->nvrtc.major, jit->nvrtc.minor, jit->nvrtc.path);
    each(user, "nvrtc", text);
}

static void tell_folder(teller each, void *user, const char *name, const char *folder, const char *absent)
{
    char text[MOII_PATH + 64];
    int count = moii_cache_count(folder, ".cubin");
    snprintf(text, sizeof text, "%s, %d kernel%s", folder, count, count == 1 ? "" : "s");
    each(user, name, *folder ? text : absent);
}

moi_status moi_cuda_describe(void (*each)(void *user, const char *name, const char *value), void *user)
{
    moii_jit jit;
    MOII_REQUIRE(each, MOI_ERR_ARG, "moi_cuda_describe: each is NULL");
    tell_device(each, user);
    MOII_TRY(moii_jit_open(&jit, 1));
    tell_compiler(&jit, each, user);
    tell_folder(each, user, "cache", jit.env.cache, "none");
    tell_folder(each, user, "kernels", jit.env.kernels, "MOI_KERNELS is not set");
    moii_jit_close(&jit);
    return MOI_OK;
}
