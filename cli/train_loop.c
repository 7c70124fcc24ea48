/* SPDX-License-Identifier: Apache-2.0
 * train_loop.c: steps, validation, checkpoints, progress. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd.h"
#include "progress.h"
#include "stop.h"
#include "train.h"

/* Mean loss over the same windows of the validation text each time. */
static moi_status validate(train_run *r, int32_t *tokens, double *loss)
{
    double sum = 0;
    for (int64_t i = 0; i < r->eval_batches; i++) {
        double one;
        moi_status status = moi_data_validation(r->data, i, r->config.batch, r->config.seq, tokens);
        if (!status) status = moi_lm_evaluate(r->lm, tokens, r->config.batch, r->config.seq, &one, NULL);
        if (status) return status;
        sum += one;
    }
    *loss = sum / (double)r->eval_batches;
    return MOI_OK;
}

static moi_status step(train_run *r, int64_t at, int32_t *tokens, moi_train_stats *stats)
{
    moi_status status = moi_data_batch(r->data, r->config.seed, at, r->config.batch, r->config.seq, tokens);
    return status ? status : moi_trainer_step(r->trainer, tokens, stats);
}

static bool due(int64_t done, int64_t every, int64_t last) { return done == last || (every > 0 && done % every == 0); }

/* A run whose loss is no number ends before such weights replace the last good checkpoint. */
static bool diverged(train_run *r, const moi_train_stats *stats, double loss)
{
    bool good = isfinite(loss) && isfinite(stats->grad_norm);
    if (!good)
        fprintf(stderr, "\nmoiety train: the loss of step %lld is no number (a smaller --lr may help); the checkpoint before it is kept\n",
                (long long)stats->step);
    return r->diverged = !good;
}

/* One step with what follows it; *validation is NaN if it was not due. */
static moi_status advance(train_run *r, int64_t at, int32_t *tokens, moi_train_stats *stats, double *validation)
{
    double began = progress_seconds();
    moi_status status = step(r, at, tokens, stats);
    double took = progress_seconds() - began;
    if (status) return status;
    r->train_seconds += took;
    r->steps_now++;
    r->last_train = stats->loss;
    if (diverged(r, stats, stats->loss)) return MOI_OK;
    if (due(at + 1, r->eval_every, r->config.steps)) {
        if ((status = validate(r, tokens, validation))) return status;
        if (diverged(r, stats, *validation)) return MOI_OK;
    }
    if (!isnan(*validation)) r->last_validation = *validation;
    losses_add(&r->losses, at + 1, stats->loss, *validation, (double)(r->config.batch * r->config.seq) / took);
    return due(at + 1, r->save_every, r->config.steps) ? moi_trainer_save(r->trainer, r->out) : MOI_OK;
}

static moi_status begin(train_run *r, int32_t *tokens, progress *line, int64_t first)
{
    moi_status status = validate(r, tokens, &r->first_validation);
    if (status) return status;
    r->last_validation = r->first_validation;
    if (first == 0) losses_add(&r->losses, 0, NAN, r->first_validation, NAN);
    if (!r->quiet) progress_note(line, "step %lld: validation loss %.4f", (long long)first, r->first_validation);
    /* an unwritable folder shall be known now, not after an hour */
    return first == 0 ? moi_trainer_save(r->trainer, r->out) : MOI_OK;
}

static moi_status go(train_run *r, int32_t *tokens, progress *line, int64_t first)
{
    moi_status status = begin(r, tokens, line, first);
    int64_t done = first;
    while (!status && done < r->config.steps && !stop_asked()) {
        moi_train_stats stats = { .size = sizeof stats };
        double validation = NAN;
        status = advance(r, done, tokens, &stats, &validation);
        if (status || r->diverged) break;
        done++;
        char text[80];
        snprintf(text, sizeof text, "loss %.4f", stats.loss);
        if (r->quiet) continue;
        progress_show(line, "step", done, text, (double)(r->steps_now * r->config.batch * r->config.seq) / r->train_seconds, "tokens/s");
        if (!isnan(validation)) progress_note(line, "step %lld: validation loss %.4f", (long long)done, validation);
    }
    return status;
}

int train_loop(train_run *r)
{
    progress line;
    int64_t first = moi_trainer_steps_done(r->trainer);
    int32_t *tokens = malloc((size_t)(r->config.batch * (r->config.seq + 1)) * sizeof *tokens);
    if (!tokens) {
        fprintf(stderr, "moiety train: no memory for a batch\n");
        return CMD_FAILED;
    }
    stop_install();
    if (!r->quiet) progress_start(&line, first, r->config.steps);
    moi_status status = go(r, tokens, &line, first);
    free(tokens);
    if (!r->quiet) progress_end(&line);
    if (status) return cmd_failed("train");
    if (r->diverged) return CMD_FAILED;
    int64_t done = moi_trainer_steps_done(r->trainer);
    if (done >= r->config.steps) return CMD_DONE;
    if (moi_trainer_save(r->trainer, r->out)) return cmd_failed("train");
    fprintf(stderr, "moiety train: stopped after step %lld of %lld; %s is saved, --resume goes on\n", (long long)done,
            (long long)r->config.steps, r->out);
    return CMD_STOPPED;
}
