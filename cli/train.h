/* SPDX-License-Identifier: Apache-2.0
 * train.h: a training run, as its options describe it (cmd_train.c) and as its loop sees it (train_loop.c). */
#ifndef TRAIN_H
#define TRAIN_H

#include "losses.h"
#include "moiety_lm.h"

typedef struct train_run {
    const char *data_path, *suffix, *out, *csv;
    int64_t eval_every, eval_batches, save_every;
    bool json, quiet;
    moi_data *data;
    moi_lm *lm;
    moi_trainer *trainer;
    moi_train_config config;
    losses losses;
    /* what came of it */
    double first_validation, last_validation, last_train, train_seconds;
    int64_t steps_now; /* done by this call */
    bool diverged;
} train_run;

/* From the trainer's step to the last one, or until Ctrl-C.  Returns an exit code; the checkpoint is saved either way. */
int train_loop(train_run *run);

#endif
