/* SPDX-License-Identifier: Apache-2.0
 * emulator.h: what the fake driver asks of the emulated device (libemulator.so). */
#ifndef EMU_EMULATOR_H
#define EMU_EMULATOR_H

#ifdef __cplusplus
#define _Alignas alignas /* C++ has no other word for it */
#else
#include <stdbool.h>
#endif
#include "../../src/cuda/driver_types.h"

typedef struct emu_kernel emu_kernel;

typedef struct emu_calls {
    emu_kernel *(*load)(const void *image); /* what libnvrtc.so of this folder made; NULL: it is something else */
    void (*unload)(emu_kernel *kernel);
    int (*args_bytes)(const emu_kernel *kernel);
    /* Runs later, at the latest in `finish`, behind what was launched before; NULL or why it cannot be. */
    const char *(*launch)(const emu_kernel *kernel, const moii_cu_launch *launch, const void *args);
    void (*finish)(void);
    bool (*encode)(moii_cu_tensor_map *map, moii_cuenum type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides_bytes,
                   const uint32_t *box, moii_cuenum swizzle);
    /* Of device memory, with `around` bytes before and behind that nobody owns; bytes 0: it is freed. */
    void (*allocation)(const void *p, size_t bytes);
    int around;
    int multiprocessors;
} emu_calls;

/* The one function that libemulator.so is opened for. */
typedef const emu_calls *(*emu_calls_fn)(void);

#endif
