/* SPDX-License-Identifier: Apache-2.0
 * driver.h: the CUDA driver, opened at run time: libcuda.so.1 comes with the GPU's driver and is not linked to, so that one
 * binary runs with and without it. */
#ifndef MOII_DRIVER_H
#define MOII_DRIVER_H

#include "driver_types.h"
#include "moiety.h"

enum { MOII_CU_VERSION = 12080 }; /* the least driver, and the version of the calls below: 12.8 */

typedef struct moii_driver {
    void *library;
    int version; /* 13000: CUDA 13.0 is the newest that this driver runs */
#define MOII_CU(name, parameters) moii_cuenum (*name) parameters;
#include "driver.def"
#undef MOII_CU
} moii_driver;

/* Opens the driver and initialises it.  Errors: NO_DEVICE (no driver, no device), DRIVER (too old, or it refuses). */
moi_status moii_driver_open(moii_driver *out);
void moii_driver_close(moii_driver *driver);
/* OK, or a failure that names the call and the driver's own words. */
moi_status moii_driver_check(const moii_driver *driver, moii_cuenum result, const char *what);

/* MOII_CUDA(driver, cuMemFree, (p)): the call, or return with its error. */
#define MOII_CUDA(driver, call, arguments) MOII_TRY(moii_driver_check((driver), (driver)->call arguments, #call))

#endif
