/* SPDX-License-Identifier: Apache-2.0
 * progress.h: how far a long command is.  One line that rewrites itself on a terminal, plain lines now and then otherwise. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool terminal, on_line;
    int64_t first, total;  /* the count at the start and at the end */
    double started, shown; /* seconds */
    int64_t shown_at;
} progress;

double progress_seconds(void); /* of a clock that never goes back */
/* Everything goes to stderr. */
void progress_start(progress *p, int64_t first, int64_t total);
/* `what`: "step", "text": free words such as "loss 2.31", `rate`: per second in `unit`. */
void progress_show(progress *p, const char *what, int64_t done, const char *text, double rate, const char *unit);
/* A line that stays. */
void progress_note(progress *p, const char *format, ...);
void progress_end(progress *p);

#endif
