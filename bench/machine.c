/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *machine_name(void)
{
    static char name[128];
    char line[256];
    if (*name) return name;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !*name && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10)) continue;
        colon += strspn(colon, ": \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(name, sizeof name, "%.100s", colon);
    }
    if (file) fclose(file);
    if (!*name) strcpy(name, "unknown");
    for (char *c = name; *c; c++)
        if (*c == ',' || *c == '"') *c = ' ';
    return name;
}

/* What the kernel says is shared by these cores; the C library may count every cache of the package. */
static int64_t kernel_cache_bytes(void)
{
    long long kilobytes = 0;
    char unit = 0;
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    if (!file) return 0;
    int fields = fscanf(file, "%lld%c", &kilobytes, &unit);
    fclose(file);
    return fields == 2 && kilobytes > 0 ? (int64_t)kilobytes << (unit == 'M' ? 20 : 10) : 0;
}

int64_t machine_cache_bytes(void)
{
    int64_t bytes = kernel_cache_bytes();
#ifdef _SC_LEVEL3_CACHE_SIZE
    if (bytes <= 0) bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return bytes > 0 ? bytes : (int64_t)32 << 20;
}

static float *touched(int64_t count) /* pages must exist before anyone times them */
{
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; x && i < count; i++) x[i] = (float)(i * 2654435761u % 1024) / 1024.0f - 0.5f;
    return x;
}

static bool run_sgemm(void *user, int64_t repetition)
{
    machine_limit *l = user;
    (void)repetition;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)l->m, (int)l->n, (int)l->k, 1.0f, l->a, (int)l->k, l->b, (int)l->k, 0.0f,
                l->c, (int)l->n);
    return true;
}

static bool run_copy(void *user, int64_t repetition)
{
    machine_limit *l = user;
    char *from = (char *)(repetition % 2 ? l->b : l->a), *to = (char *)(repetition % 2 ? l->a : l->b);
    int64_t part = l->bytes / l->threads / 64 * 64;
#pragma omp parallel for num_threads(l->threads) schedule(static)
    for (int i = 0; i < l->threads; i++) memcpy(to + i * part, from + i * part, (size_t)part);
    return true;
}

static bool run_read(void *user, int64_t repetition)
{
    machine_limit *l = user;
    const uint64_t *x = (const uint64_t *)(const void *)l->a;
    int64_t count = l->bytes / 8 / 8;
    uint64_t sum = (uint64_t)repetition;
#pragma omp parallel for num_threads(l->threads) schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        const uint64_t *p = x + 8 * i; /* a cache line */
        __builtin_prefetch(p + 128); /* 1 KB ahead: the hardware alone does not reach the limit */
        sum += ((p[0] ^ p[1]) + (p[2] ^ p[3])) + ((p[4] ^ p[5]) + (p[6] ^ p[7]));
    }
    l->sink += (double)(sum & 1);
    return true;
}

bool machine_limit_sgemm(machine_limit *limit, int64_t m, int64_t n, int64_t k)
{
    *limit = (machine_limit){ .unit = "GFLOP/s", .amount = 2.0 * (double)m * (double)n * (double)k, .m = m, .n = n, .k = k };
    snprintf(limit->name, sizeof limit->name, "sgemm %lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
    limit->a = touched(m * k);
    limit->b = touched(n * k);
    limit->c = touched(m * n);
    limit->work = (timing_work){ run_sgemm, limit };
    return limit->a && limit->b && limit->c;
}

static int64_t past_cache(void) { return 4 * machine_cache_bytes() / 4096 * 4096; }

bool machine_limit_copy(machine_limit *limit, int threads)
{
    *limit = (machine_limit){ .name = "memcpy", .unit = "GB/s", .bytes = past_cache() / 2, .threads = threads };
    limit->amount = 2.0 * (double)(limit->bytes / threads / 64 * 64 * threads);
    limit->a = touched(limit->bytes / 4);
    limit->b = touched(limit->bytes / 4);
    limit->work = (timing_work){ run_copy, limit };
    return limit->a && limit->b;
}

bool machine_limit_read(machine_limit *limit, int threads)
{
    *limit = (machine_limit){ .name = "read", .unit = "GB/s", .bytes = past_cache(), .threads = threads };
    limit->amount = (double)limit->bytes;
    limit->a = touched(limit->bytes / 4);
    limit->work = (timing_work){ run_read, limit };
    return limit->a != NULL;
}

void machine_limit_free(machine_limit *limit)
{
    free(limit->a);
    free(limit->b);
    free(limit->c);
    limit->a = limit->b = limit->c = NULL;
}
