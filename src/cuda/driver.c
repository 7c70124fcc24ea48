/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

#include "status.h"

typedef moii_cuenum (*proc_address_fn)(const char *name, void **out, int version, uint64_t flags, moii_cuenum *found);

moi_status moii_driver_check(const moii_driver *d, moii_cuenum result, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (result == MOII_CU_OK) return MOI_OK;
    if (d->cuGetErrorName) d->cuGetErrorName(result, &name);
    if (d->cuGetErrorString) d->cuGetErrorString(result, &text);
    moi_status status = result == MOII_CU_OUT_OF_MEMORY ? MOI_ERR_NOMEM : MOI_ERR_DRIVER;
    MOII_FAIL(status, "cuda: %s failed with %s (%u): %s", what, name ? name : "an unknown error", result, text ? text : "no explanation");
}

static moi_status read_version(moii_driver *d)
{
    /* this one call is as old as the driver's interface, and tells an old driver from a broken one */
    moii_cuenum (*get)(int *) = NULL;
    *(void **)&get = dlsym(d->library, "cuDriverGetVersion");
    if (!get || get(&d->version)) d->version = 0;
    MOII_REQUIRE(d->version >= MOII_CU_VERSION, MOI_ERR_DRIVER,
                 "cuda: the driver is too old: it runs CUDA %d.%d and 12.8 or newer is needed; update the NVIDIA driver (570 or newer)",
                 d->version / 1000, d->version % 1000 / 10);
    return MOI_OK;
}

static moi_status read_table(moii_driver *d)
{
    proc_address_fn get = NULL;
    moii_cuenum found;
    *(void **)&get = dlsym(d->library, "cuGetProcAddress_v2");
    MOII_REQUIRE(get, MOI_ERR_DRIVER, "cuda: libcuda.so.1 has no cuGetProcAddress_v2");
#define MOII_CU(name, parameters)                                                                                      \
    if (get(#name, (void **)&d->name, MOII_CU_VERSION, MOII_CU_PROC_DEFAULT, &found) || !d->name)                      \
        MOII_FAIL(MOI_ERR_DRIVER, "cuda: the driver (CUDA %d.%d) has no %s", d->version / 1000, d->version % 1000 / 10, #name);
#include "driver.def"
#undef MOII_CU
    return MOI_OK;
}

static moi_status start(moii_driver *d)
{
    int count = 0;
    MOII_TRY(read_version(d));
    MOII_TRY(read_table(d));
    moii_cuenum result = d->cuInit(0);
    MOII_REQUIRE(result != MOII_CU_NO_DEVICE, MOI_ERR_NO_DEVICE, "cuda: there is a driver but no CUDA device");
    MOII_TRY(moii_driver_check(d, result, "cuInit"));
    MOII_CUDA(d, cuDeviceGetCount, (&count));
    MOII_REQUIRE(count > 0, MOI_ERR_NO_DEVICE, "cuda: there is a driver but no CUDA device");
    return MOI_OK;
}

moi_status moii_driver_open(moii_driver *d)
{
    memset(d, 0, sizeof *d);
    d->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!d->library) {
        const char *why = dlerror();
        MOII_FAIL(MOI_ERR_NO_DEVICE, "cuda: no NVIDIA driver: %s", why ? why : "libcuda.so.1 cannot be opened");
    }
    moi_status status = start(d);
    if (status) moii_driver_close(d);
    return status;
}

void moii_driver_close(moii_driver *d)
{
    if (d->library) dlclose(d->library);
    d->library = NULL;
}
