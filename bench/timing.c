/* SPDX-License-Identifier: Apache-2.0 */
#include "timing.h"

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

double timing_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const timing *t, double p)
{
    double at = p * (t->count - 1);
    int below = (int)at;
    int above = below + 1 < t->count ? below + 1 : below;
    return t->seconds[below] + (at - below) * (t->seconds[above] - t->seconds[below]);
}

timing_stats timing_summary(timing *t)
{
    timing_stats s = { .count = t->count };
    if (!t->count) return s;
    qsort(t->seconds, (size_t)t->count, sizeof *t->seconds, ascending);
    s.median = percentile(t, 0.5);
    s.p10 = percentile(t, 0.1);
    s.p90 = percentile(t, 0.9);
    return s;
}

static bool once(const timing_work *work, int64_t repetition, timing *into)
{
    double start = timing_now();
    if (!work->run(work->user, repetition)) return false;
    double seconds = timing_now() - start;
    if (into && into->count < TIMING_MAX) into->seconds[into->count++] = seconds;
    return true;
}

bool timing_measure(const timing_work *work, const timing_work *limit, bool quick, timing *of_work, timing *of_limit)
{
    const int warm = quick ? 1 : 3, least = quick ? 3 : 15;
    const double budget = quick ? 0.02 : 1.0; /* seconds spent in `work` at least, unless TIMING_MAX comes first */
    const double patience = 10.0;             /* seconds after which 3 repetitions are enough: the strict rows are slow */
    int64_t repetition = 0;
    double spent = 0;
    of_work->count = of_limit->count = 0;
    double start = timing_now();
    for (int i = 0; i < warm && timing_now() - start < budget; i++) {
        if (limit && !once(limit, repetition, NULL)) return false;
        if (!once(work, repetition++, NULL)) return false;
    }
    while (of_work->count < TIMING_MAX && (of_work->count < least || spent < budget)) {
        if (of_work->count >= 3 && timing_now() - start > patience) break;
        if (limit && !once(limit, repetition, of_limit)) return false;
        if (!once(work, repetition++, of_work)) return false;
        spent += of_work->seconds[of_work->count - 1];
    }
    return true;
}
