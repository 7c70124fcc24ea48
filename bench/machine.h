/* SPDX-License-Identifier: Apache-2.0
 * machine.h: what the machine is, and the limits it sets, measured. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "timing.h"

const char *machine_name(void); /* the CPU model */
int64_t machine_cache_bytes(void); /* of the last-level cache */

/* One limit: units of `amount` (floating-point operations, or bytes) per call of `work`. */
typedef struct machine_limit {
    char name[32];
    const char *unit; /* "GFLOP/s" or "GB/s" */
    double amount;
    timing_work work;
    float *a, *b, *c; /* its buffers */
    int64_t m, n, k, bytes;
    int threads;
    double sink;
} machine_limit;

/* Plain FP32 product A [m, k] times B [n, k] transposed, by the BLAS library. */
bool machine_limit_sgemm(machine_limit *limit, int64_t m, int64_t n, int64_t k);
/* memcpy by all threads between buffers past the last-level cache; counts the bytes read and the bytes written. */
bool machine_limit_copy(machine_limit *limit, int threads);
/* Reading a buffer past the last-level cache by all threads. */
bool machine_limit_read(machine_limit *limit, int threads);
void machine_limit_free(machine_limit *limit);

#endif
