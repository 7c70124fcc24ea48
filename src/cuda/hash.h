/* SPDX-License-Identifier: Apache-2.0
 * hash.h: 128 bits of what went into something: keys and checksums of the kernel cache.  Two 64-bit hashes of different kind side by
 * side; it tells accidents apart, not attacks. */
#ifndef MOII_HASH_H
#define MOII_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct moii_hash { uint64_t a, b; } moii_hash;
#define MOII_HASH_INIT { 0xCBF29CE484222325u, 0x9AE16A3B2F90404Fu }

static inline void moii_hash_bytes(moii_hash *h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) {
        h->a = (h->a ^ p[i]) * 0x100000001B3u;
        h->b = (h->b + p[i] + 1) * 0x9E3779B97F4A7C15u;
        h->b ^= h->b >> 32;
    }
}

/* With its end, so that "ab" "c" and "a" "bc" differ. */
static inline void moii_hash_text(moii_hash *h, const char *text) { moii_hash_bytes(h, text, strlen(text) + 1); }

#endif
