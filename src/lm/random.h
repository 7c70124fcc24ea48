/* SPDX-License-Identifier: Apache-2.0
 * random.h: numbers that are functions of a seed and a place, so that any of them can be had in any order. */
#ifndef MOII_RANDOM_H
#define MOII_RANDOM_H

#include <stdint.h>

/* A bijective mix of 64 bits (the finaliser of splitmix64). */
static inline uint64_t moii_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline uint64_t moii_random(uint64_t seed, uint64_t stream, uint64_t index)
{
    return moii_mix(moii_mix(moii_mix(seed) ^ stream) ^ index);
}

/* [0, 1) with 53 bits */
static inline double moii_unit(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

#endif
