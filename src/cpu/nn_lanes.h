/* SPDX-License-Identifier: Apache-2.0
 * nn_lanes.h: sums in 16 fixed lanes, which compilers turn into vectors without changing a bit, and a branch-free exp. */
#ifndef MOII_NN_LANES_H
#define MOII_NN_LANES_H

#include <math.h>
#include <stdint.h>

#include "num.h"

enum { MOII_LANES = 16 };

static inline float moii_lanes_sum(const float *acc)
{
    float s[4];
    for (int i = 0; i < 4; i++) s[i] = (acc[i] + acc[i + 4]) + (acc[i + 8] + acc[i + 12]);
    return (s[0] + s[1]) + (s[2] + s[3]);
}

static inline float moii_lanes_dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float acc[MOII_LANES] = { 0 };
    int64_t i = 0;
    for (; i + MOII_LANES <= n; i += MOII_LANES)
        for (int l = 0; l < MOII_LANES; l++) acc[l] += a[i + l] * b[i + l];
    for (int l = 0; i < n; i++, l++) acc[l] += a[i] * b[i];
    return moii_lanes_sum(acc);
}

/* exp(x) within 2 units in the last place; below -87.3: 0; above 88.7: as 88.7.  NaN stays NaN. */
static inline float moii_exp(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, which then sits in the low bits */
    float c = x < -87.3f ? -87.3f : x;
    c = c > 88.7f ? 88.7f : c;
    float t = c * 1.44269504f + magic, n = t - magic;
    float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r * r + r) + 1.0f;
    /* 2^n in two factors, so that n = 128 works */
    unsigned int k = moii_bits_of(t) - moii_bits_of(magic) + 1024u, half = k >> 1;
    float y = p * moii_float_of((half - 512u + 127u) << 23) * moii_float_of((k - half - 512u + 127u) << 23);
    return x < -87.3f ? 0.0f : y;
}

#endif
