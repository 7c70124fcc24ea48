/* SPDX-License-Identifier: Apache-2.0
 * trainer.c: one step: forward, loss, backward, clip, AdamW. */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>

#include "status.h"

moi_status moii_train_config_check(const moi_train_config *c, const moi_lm *lm, const char *where, moi_status status)
{
    const struct { const char *name; int64_t value, min, max; } sizes[] = {
        { "batch", c->batch, 1, 1 << 20 },
        { "seq", c->seq, 1, lm->config.max_position_embeddings },
        { "steps", c->steps, 1, INT64_MAX / 2 },
        { "warmup_steps", c->warmup_steps, 0, c->steps },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        MOII_REQUIRE(sizes[i].value >= sizes[i].min && sizes[i].value <= sizes[i].max, status, "%s: %s must be %lld..%lld, got %lld", where,
                     sizes[i].name, (long long)sizes[i].min, (long long)sizes[i].max, (long long)sizes[i].value);
    const struct { const char *name; float value, max; } reals[] = {
        { "lr", c->lr, 1e6f }, { "min_lr", c->min_lr, 1e6f }, { "beta1", c->beta1, 0.999999f }, { "beta2", c->beta2, 0.999999f },
        { "eps", c->eps, 1.0f }, { "weight_decay", c->weight_decay, 1e6f }, { "clip_norm", c->clip_norm, 1e30f },
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        MOII_REQUIRE(reals[i].value >= 0.0f && reals[i].value <= reals[i].max, status, "%s: %s must be 0..%g, got %g", where, reals[i].name,
                     (double)reals[i].max, (double)reals[i].value);
    MOII_REQUIRE(c->eps > 0.0f, status, "%s: eps must be above 0, got %g", where, (double)c->eps);
    MOII_REQUIRE(c->batch * c->seq < INT32_MAX, status, "%s: batch * seq must be below 2^31, got %lld", where, (long long)(c->batch * c->seq));
    return MOI_OK;
}

double moii_learning_rate(const moi_train_config *c, int64_t done)
{
    if (done < c->warmup_steps) return (double)c->lr * (double)(done + 1) / (double)c->warmup_steps;
    const int64_t length = c->steps - c->warmup_steps;
    const double part = length > 0 ? fmin((double)(done - c->warmup_steps) / (double)length, 1.0) : 1.0;
    return (double)c->min_lr + 0.5 * ((double)c->lr - (double)c->min_lr) * (1.0 + cos(3.141592653589793 * part));
}

static moi_status build(moi_trainer *t)
{
    moi_lm *lm = t->lm;
    const int64_t n = t->config.batch * t->config.seq, bytes = lm->params.floats * 4;
    const char *call = "moi_trainer_create";
    moii_exec_free(lm->eval); /* its prepared weights lack the forms for the backward pass */
    lm->eval = NULL;
    lm->trained = true;
    lm->prepared_version = 0;
    MOII_TRY(moii_exec_create(&t->exec, lm, t->config.batch, t->config.seq, t->config.seq, MOII_TRAIN, call));
    MOII_TRY(moii_hold(lm, call, bytes, &t->grads));
    MOII_TRY(moii_hold(lm, call, bytes, &t->m));
    MOII_TRY(moii_hold(lm, call, bytes, &t->v));
    MOII_TRY(moii_alloc(lm->ctx, n * 4, &t->ids));
    return moii_alloc(lm->ctx, n * 4, &t->targets);
}

moi_status moi_trainer_create(moi_trainer **out, moi_lm *lm, const moi_train_config *config)
{
    moi_train_config c = MOI_TRAIN_CONFIG_INIT;
    MOII_REQUIRE(out && lm, MOI_ERR_ARG, "moi_trainer_create: %s is NULL", out ? "lm" : "out");
    *out = NULL;
    MOII_TRY(moii_check_masters(lm, "moi_trainer_create"));
    if (config) MOII_TRY(moii_take(&c, sizeof c, config, "moi_trainer_create: config"));
    MOII_TRY(moii_train_config_check(&c, lm, "moi_trainer_create: config", MOI_ERR_ARG));
    moi_trainer *t = calloc(1, sizeof *t);
    MOII_REQUIRE(t, MOI_ERR_NOMEM, "moi_trainer_create: no memory");
    t->lm = lm;
    t->config = c;
    moi_status status = build(t);
    if (status) moi_trainer_free(t);
    else *out = t;
    return status;
}

void moi_trainer_free(moi_trainer *t)
{
    if (!t) return;
    moi_lm *lm = t->lm;
    const int64_t bytes = lm->params.floats * 4;
    moii_exec_free(t->exec);
    moii_let_go(lm, t->grads, bytes), moii_let_go(lm, t->m, bytes), moii_let_go(lm, t->v, bytes);
    moi_buf_free(lm->ctx, t->ids), moi_buf_free(lm->ctx, t->targets);
    free(t);
}

int64_t moi_trainer_steps_done(const moi_trainer *t) { return t ? t->done : 0; }

moi_status moi_trainer_get_config(const moi_trainer *t, moi_train_config *out)
{
    MOII_REQUIRE(t && out, MOI_ERR_ARG, "moi_trainer_get_config: %s is NULL", t ? "out" : "trainer");
    *out = t->config;
    out->size = sizeof *out;
    return MOI_OK;
}

/* t->grads and the losses */
static moi_status gradients(moi_trainer *t, moi_train_stats *stats)
{
    moi_lm *lm = t->lm;
    moii_exec *x = t->exec;
    const moii_input in = { .ids = t->ids, .batch = x->batch, .seq = x->seq };
    const moii_nn *nn = moii_nn_of(lm);
    nn->zero(lm->ctx, t->grads, lm->params.floats);
    nn->zero(lm->ctx, x->aux, lm->config.num_hidden_layers);
    MOII_TRY(moii_forward(x, &in));
    MOII_TRY(moii_head_loss(&x->head, lm, x->final, x->max_tokens, t->targets, &stats->loss, NULL, t->grads, x->d_branch, x->space));
    stats->aux_loss = nn->sum(lm->ctx, x->aux, lm->config.num_hidden_layers);
    return moii_backward(x, &in, t->grads);
}

static void update(moi_trainer *t, double lr, double norm)
{
    moi_lm *lm = t->lm;
    const moi_train_config *c = &t->config;
    const double step = (double)(t->done + 1);
    const bool clipped = c->clip_norm > 0.0f && norm > (double)c->clip_norm;
    moii_adamw how = { .lr = (float)lr, .beta1 = c->beta1, .beta2 = c->beta2, .eps = c->eps, .weight_decay = c->weight_decay,
                       .correction1 = (float)(1.0 - pow((double)c->beta1, step)), .correction2 = (float)(1.0 - pow((double)c->beta2, step)),
                       .grad_scale = clipped ? (float)((double)c->clip_norm / norm) : 1.0f };
    const int64_t n = lm->params.decayed;
    moii_nn_of(lm)->adamw(lm->ctx, lm->weights, t->grads, t->m, t->v, n, &how);
    how.weight_decay = 0.0f;
    moii_nn_of(lm)->adamw(lm->ctx, lm->weights + n, t->grads + n, t->m + n, t->v + n, lm->params.floats - n, &how);
    lm->version++;
}

moi_status moi_trainer_step(moi_trainer *t, const int32_t *tokens, moi_train_stats *stats)
{
    MOII_REQUIRE(t && tokens, MOI_ERR_ARG, "moi_trainer_step: %s is NULL", t ? "tokens" : "trainer");
    MOII_REQUIRE(!stats || stats->size >= sizeof *stats, MOI_ERR_ARG, "moi_trainer_step: stats.size is %u; set it to sizeof", stats ? stats->size : 0u);
    moi_lm *lm = t->lm;
    MOII_TRY(moii_check_tokens(lm, "moi_trainer_step", tokens, t->config.batch * (t->config.seq + 1)));
    moii_split_tokens(tokens, t->config.batch, t->config.seq, t->ids, t->targets);
    moi_train_stats s = { .size = sizeof s, .lr = moii_learning_rate(&t->config, t->done) };
    MOII_TRY(gradients(t, &s));
    s.grad_norm = sqrt(moii_nn_of(lm)->squared_norm(lm->ctx, t->grads, lm->params.floats));
    if (isfinite(s.grad_norm)) update(t, s.lr, s.grad_norm);
    s.step = ++t->done;
    if (stats) *stats = s;
    return MOI_OK;
}
