/* SPDX-License-Identifier: Apache-2.0
 * timing.h: the clock, and the statistics of repeated measurements (docs/benchmarking.md). */
#ifndef TIMING_H
#define TIMING_H

#include <stdbool.h>
#include <stdint.h>

enum { TIMING_MAX = 400 };

typedef struct timing { int count; double seconds[TIMING_MAX]; } timing;
typedef struct timing_stats { int count; double median, p10, p90; } timing_stats;

/* Something to measure: call number `repetition`; false stops everything. */
typedef struct timing_work { bool (*run)(void *user, int64_t repetition); void *user; } timing_work;

double timing_now(void); /* seconds of a clock that never goes back */
timing_stats timing_summary(timing *t); /* sorts; percentiles by linear interpolation */
/* Measures `work` and, where it is not NULL, `limit` in turn, so that both see the same noise.  After a warm-up, repeats until
 * there are enough repetitions and enough seconds. */
bool timing_measure(const timing_work *work, const timing_work *limit, bool quick, timing *of_work, timing *of_limit);

#endif
