/* SPDX-License-Identifier: Apache-2.0
 * losses.h: the CSV of a training run: step, train_loss, validation_loss (may be empty), tokens_per_second. */
#ifndef LOSSES_H
#define LOSSES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct losses { FILE *file; const char *path; } losses;

/* Begins the file, or, if `keep_steps` >= 0, goes on behind the rows up to that step.  false after a message. */
bool losses_open(losses *l, const char *path, int64_t keep_steps);
/* A NaN is written as an empty field. */
void losses_add(losses *l, int64_t step, double train, double validation, double tokens_per_second);
/* false, after a message, if the disk did not take everything. */
bool losses_close(losses *l);

#endif
