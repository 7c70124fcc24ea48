/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

moit_rng moit_seed(const char *name, uint64_t salt)
{
    uint64_t h = 1469598103934665603u ^ salt * 0x9E3779B97F4A7C15u;
    while (*name) h = (h ^ (unsigned char)*name++) * 1099511628211u;
    return (moit_rng){ h ? h : 1 };
}

uint64_t moit_next(moit_rng *rng)
{
    uint64_t x = rng->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    rng->state = x;
    return x * 2685821657736338717u;
}

double moit_uniform(moit_rng *rng) { return (double)(moit_next(rng) >> 11) * 0x1p-53; }
int64_t moit_below(moit_rng *rng, int64_t n) { return (int64_t)(moit_next(rng) % (uint64_t)n); }

float moit_normal(moit_rng *rng)
{
    double u = 1.0 - moit_uniform(rng), v = moit_uniform(rng);
    return (float)(sqrt(-2.0 * log(u)) * cos(6.28318530717958647692 * v));
}

void moit_fill_normal(moit_rng *rng, float *x, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++) x[i] = scale * moit_normal(rng);
}

void moit_fill_nasty(moit_rng *rng, float *x, int64_t n, int nonfinite)
{
    static const float special[] = { 0.0f, -0.0f, 0x1p-149f, -0x1p-127f, 0x1p-126f, 448.0f, 448.00003f, 464.0f, 480.0f,
                                     -448.0f, 57344.0f, 61440.0f, 6.0f, 7.5f, 28.0f, 1.75f, 1.7500001f, 1e-30f, 1e30f };
    static const float wild[] = { NAN, INFINITY, -INFINITY };
    for (int64_t i = 0; i < n; i++) {
        int64_t pick = moit_below(rng, 64);
        if (pick < 2) x[i] = special[moit_below(rng, sizeof special / sizeof *special)];
        else if (pick == 2 && nonfinite && moit_below(rng, 16) == 0) x[i] = wild[moit_below(rng, 3)];
        else x[i] = ldexpf(moit_normal(rng), (int)moit_below(rng, 24) - 12);
    }
}

int moit_picked(uint64_t i)
{
    const char *every = getenv("MOIT_EVERY");
    long n = every ? atol(every) : 1;
    return n <= 1 || i % (uint64_t)n == 0;
}

int moit_part(int *parts)
{
    int part = 0;
    *parts = 1;
    if (getenv("MOIT_PART")) assert_int_equal(sscanf(getenv("MOIT_PART"), "%d/%d", &part, parts), 2);
    return part;
}

moi_ctx *moit_ctx(int reference)
{
    static moi_ctx *ctx[2];
    int i = reference != 0;
    if (!ctx[i]) {
        moi_ctx_config c = MOI_CTX_CONFIG_INIT;
        c.reference_only = reference;
        c.backend = MOI_BACKEND_CPU;
        moit_ok(moi_ctx_create(&ctx[i], &c));
    }
    return ctx[i];
}

const char *moit_row(const char *op, int i)
{
    for (int r = 0; r < moi_row_count(); r++) {
        moi_row_info info;
        moit_ok(moi_row_get(r, &info));
        if (info.backend == MOI_BACKEND_CPU && !strcmp(info.op, op) && i-- == 0) return info.name;
    }
    return NULL;
}

enum { GUARD = 128 };
typedef struct guard_head { int64_t bytes; } guard_head;

void *moit_alloc(int64_t bytes)
{
    size_t size = ((size_t)bytes + 3 * GUARD + 127) / 128 * 128;
    unsigned char *p = aligned_alloc(128, size);
    assert_non_null(p);
    memset(p, 0xA5, size);
    ((guard_head *)p)->bytes = bytes;
    return p + GUARD;
}

int64_t moit_size(const void *q) { return q ? ((const guard_head *)(const void *)((const char *)q - GUARD))->bytes : 0; }

void moit_free(void *q)
{
    if (!q) return;
    unsigned char *p = (unsigned char *)q - GUARD;
    int64_t bytes = ((guard_head *)p)->bytes;
    for (size_t i = sizeof(guard_head); i < GUARD; i++)
        if (p[i] != 0xA5) fail_msg("wrote %d bytes before a buffer", (int)(GUARD - i));
    for (int64_t i = 0; i < GUARD; i++)
        if (p[GUARD + bytes + i] != 0xA5) fail_msg("wrote %d bytes behind a buffer of %lld", (int)i + 1, (long long)bytes);
    free(p);
}

void *moit_workspace(const moi_plan *plan)
{
    int64_t bytes = moi_plan_workspace_bytes(plan);
    return bytes ? moit_alloc(bytes) : NULL;
}

int64_t moit_peak_bytes(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)u.ru_maxrss * 1024;
}

bool moit_shadowed(void)
{
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return false;
}
