/* SPDX-License-Identifier: Apache-2.0
 * cubin.h: what a compiled kernel needs, read from its ELF file. */
#ifndef MOII_CUBIN_H
#define MOII_CUBIN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct moii_cubin_use {
    int registers;    /* per thread */
    int stack_bytes;  /* per thread: spills and arrays that are not in registers */
    int shared_bytes; /* static */
} moii_cubin_use;

/* False where this is no sound cubin with that entry. */
bool moii_cubin_read(const unsigned char *cubin, size_t bytes, const char *entry, moii_cubin_use *out);

#endif
