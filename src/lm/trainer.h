/* SPDX-License-Identifier: Apache-2.0
 * trainer.h: a training run: gradients, moments, the schedule. */
#ifndef MOII_TRAINER_H
#define MOII_TRAINER_H

#include "lm.h"

struct moi_trainer {
    moi_lm *lm;
    moi_train_config config;
    int64_t done;
    moii_exec *exec;
    float *grads, *m, *v; /* laid out as the weights */
    int32_t *ids, *targets;
};

moi_status moii_train_config_check(const moi_train_config *config, const moi_lm *lm, const char *where, moi_status status);
/* The learning rate of the step that comes after `done` steps. */
double moii_learning_rate(const moi_train_config *config, int64_t done);

#endif
