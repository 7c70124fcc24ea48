/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 20 };
static const double plain_every = 5.0, line_every = 0.1; /* seconds */

double progress_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_start(progress *p, int64_t first, int64_t total)
{
    *p = (progress){ .terminal = isatty(STDERR_FILENO) != 0, .first = first, .total = total, .started = progress_seconds(), .shown_at = -1 };
}

static void show_time(double seconds)
{
    long s = (long)(seconds + 0.5);
    if (s >= 3600) fprintf(stderr, "%ldh%02ldm left", s / 3600, s / 60 % 60);
    else fprintf(stderr, "%ldm%02lds left", s / 60, s % 60);
}

static void show_bar(int64_t done, int64_t total)
{
    int64_t filled = total > 0 ? done * BAR / total : BAR;
    fputs("  [", stderr);
    for (int i = 0; i < BAR; i++) fputc(i < filled ? '#' : '.', stderr);
    fputs("]", stderr);
}

void progress_show(progress *p, const char *what, int64_t done, const char *text, double rate, const char *unit)
{
    double now = progress_seconds();
    bool last = done >= p->total;
    if (!last && p->shown > 0 && now - p->shown < (p->terminal ? line_every : plain_every)) return;
    if (p->shown_at == done) return;
    p->shown = now;
    p->shown_at = done;
    if (p->terminal) {
        fputs("\r\033[K", stderr);
        show_bar(done, p->total);
    }
    fprintf(stderr, "  %s %" PRId64 "/%" PRId64 "  %s  %.0f %s", what, done, p->total, text, rate, unit);
    if (done > p->first && !last) {
        fputs("  ", stderr);
        show_time((now - p->started) / (double)(done - p->first) * (double)(p->total - done));
    }
    if (!p->terminal) fputc('\n', stderr);
    p->on_line = p->terminal;
    fflush(stderr);
}

void progress_note(progress *p, const char *format, ...)
{
    va_list list;
    if (p->on_line) fputs("\r\033[K", stderr);
    p->on_line = false;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
}

void progress_end(progress *p)
{
    if (p->on_line) fputc('\n', stderr);
    p->on_line = false;
}
