/* SPDX-License-Identifier: Apache-2.0
 * model.c: making, asking and evaluating a model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "lm.h"
#include "mapped.h"
#include "random.h"
#include "status.h"

moi_status moii_lm_begin(moi_lm **out, moi_ctx *ctx, const moi_lm_config *config, const moi_lm_options *options)
{
    *out = NULL;
    MOII_REQUIRE(ctx->backend->nn, MOI_ERR_UNSUPPORTED, "moi_lm: the %s back end runs no models; ask for the cpu back end", ctx->backend->name);
    moi_lm *lm = calloc(1, sizeof *lm);
    MOII_REQUIRE(lm, MOI_ERR_NOMEM, "moi_lm: no memory");
    lm->ctx = ctx;
    lm->config = *config;
    lm->options = *options;
    lm->version = 1;
    moi_status status = moii_params_layout(&lm->params, config);
    if (status) moi_lm_free(lm);
    else *out = lm;
    return status;
}

moi_status moii_lm_alloc(moi_lm **out, moi_ctx *ctx, const moi_lm_config *config, const moi_lm_options *options)
{
    moi_lm *lm;
    *out = NULL;
    MOII_TRY(moii_lm_begin(&lm, ctx, config, options));
    lm->source = &moii_source_masters;
    moi_status status = moii_check_memory("moi_lm", lm, 0);
    if (!status) status = moii_alloc(ctx, lm->params.floats * 4, &lm->weights);
    if (status) {
        moi_lm_free(lm);
        return status;
    }
    lm->head = (moii_view){ MOI_FORMAT_F32, config->vocab_size, config->hidden_size, { lm->weights + lm->params.head, NULL, 0 }, 0 };
    *out = lm;
    return MOI_OK;
}

moi_status moii_check_masters(const moi_lm *lm, const char *call)
{
    MOII_REQUIRE(!lm->mapped, MOI_ERR_UNSUPPORTED, "%s: a model of moi_lm_open is for inference only; moi_lm_load reads one that can be trained and saved",
                 call);
    return MOI_OK;
}

/* Normal numbers, two from each pair of uniform ones. */
static void fill_normal(float *w, int64_t n, uint64_t seed, uint64_t stream, float deviation)
{
    for (int64_t i = 0; i < n; i += 2) {
        const double u = 1.0 - moii_unit(moii_random(seed, stream, (uint64_t)i)), v = moii_unit(moii_random(seed, stream, (uint64_t)i + 1));
        const double r = (double)deviation * sqrt(-2.0 * log(u)), angle = 6.283185307179586 * v;
        w[i] = (float)(r * cos(angle));
        if (i + 1 < n) w[i + 1] = (float)(r * sin(angle));
    }
}

moi_status moi_lm_create(moi_lm **out, moi_ctx *ctx, const moi_lm_config *config, const moi_lm_options *options, uint64_t seed)
{
    moi_lm_config c;
    moi_lm_options o;
    MOII_REQUIRE(out && ctx, MOI_ERR_ARG, "moi_lm_create: %s is NULL", out ? "ctx" : "out");
    *out = NULL;
    MOII_TRY(moii_take(&c, sizeof c, config, "moi_lm_create: config"));
    MOII_TRY(moii_config_check(&c, "moi_lm_create: config", MOI_ERR_ARG));
    MOII_TRY(moii_options_take(&o, options, "moi_lm_create: options"));
    MOII_TRY(moii_lm_alloc(out, ctx, &c, &o));
    const moii_params *p = &(*out)->params;
    for (int64_t i = 0; i < p->count; i++) {
        const moii_param *t = &p->items[i];
        float *w = (*out)->weights + t->offset;
        if (t->cols) fill_normal(w, t->rows * t->cols, seed, (uint64_t)i, c.initializer_range);
        else
            for (int64_t r = 0; r < t->rows; r++) w[r] = 1.0f;
    }
    return MOI_OK;
}

void moi_lm_free(moi_lm *lm)
{
    if (!lm) return;
    moii_exec_free(lm->eval);
    moii_mapped_free(lm->mapped);
    moi_buf_free(lm->ctx, lm->prepared);
    moi_buf_free(lm->ctx, lm->weights);
    moii_params_free(&lm->params);
    free(lm);
}

moi_status moi_lm_get_config(const moi_lm *lm, moi_lm_config *out)
{
    MOII_REQUIRE(lm && out, MOI_ERR_ARG, "moi_lm_get_config: %s is NULL", lm ? "out" : "lm");
    *out = lm->config;
    out->size = sizeof *out;
    return MOI_OK;
}

int64_t moi_lm_parameters(const moi_lm *lm, bool active_only)
{
    return !lm ? 0 : active_only ? lm->params.active : lm->params.elements;
}

moi_status moii_check_tokens(const moi_lm *lm, const char *call, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        MOII_REQUIRE(tokens[i] >= 0 && tokens[i] < lm->config.vocab_size, MOI_ERR_ARG, "%s: token %lld must be 0..%lld, got %d", call, (long long)i,
                     (long long)lm->config.vocab_size - 1, tokens[i]);
    return MOI_OK;
}

void moii_split_tokens(const int32_t *tokens, int64_t batch, int64_t seq, int32_t *ids, int32_t *targets)
{
    for (int64_t b = 0; b < batch; b++) {
        memcpy(ids + b * seq, tokens + b * (seq + 1), (size_t)seq * sizeof *ids);
        memcpy(targets + b * seq, tokens + b * (seq + 1) + 1, (size_t)seq * sizeof *ids);
    }
}

moi_status moii_eval_exec(moi_lm *lm, int64_t batch, int64_t seq, const char *call)
{
    lm->known = 0;
    if (lm->eval && lm->eval->max_tokens >= batch * seq && lm->eval->positions >= seq) return MOI_OK;
    moii_exec_free(lm->eval);
    return moii_exec_create(&lm->eval, lm, batch, seq, seq, MOII_EVALUATE, call);
}

moi_status moi_lm_evaluate(moi_lm *lm, const int32_t *tokens, int64_t batch, int64_t seq, double *loss, float *logits)
{
    MOII_REQUIRE(lm && tokens && loss, MOI_ERR_ARG, "moi_lm_evaluate: %s is NULL", !lm ? "lm" : tokens ? "loss" : "tokens");
    MOII_REQUIRE(batch >= 1 && seq >= 1 && batch <= INT32_MAX / (seq + 1), MOI_ERR_SHAPE,
                 "moi_lm_evaluate: batch and seq must be >= 1 and batch * (seq + 1) below 2^31, got %lld and %lld", (long long)batch, (long long)seq);
    MOII_REQUIRE(seq <= lm->config.max_position_embeddings, MOI_ERR_SHAPE, "moi_lm_evaluate: seq must be at most %lld (max_position_embeddings), got %lld",
                 (long long)lm->config.max_position_embeddings, (long long)seq);
    MOII_TRY(moii_check_tokens(lm, "moi_lm_evaluate", tokens, batch * (seq + 1)));
    MOII_TRY(moii_eval_exec(lm, batch, seq, "moi_lm_evaluate"));
    int32_t *ids = malloc((size_t)(2 * batch * seq) * sizeof *ids);
    MOII_REQUIRE(ids, MOI_ERR_NOMEM, "moi_lm_evaluate: no memory for %lld tokens", (long long)(batch * seq));
    moii_split_tokens(tokens, batch, seq, ids, ids + batch * seq);
    const moii_input in = { .ids = ids, .batch = batch, .seq = seq };
    moi_status status = moii_forward(lm->eval, &in);
    if (!status)
        status = moii_head_loss(&lm->eval->head, lm, lm->eval->final, batch * seq, ids + batch * seq, loss, logits, NULL, NULL, lm->eval->space);
    free(ids);
    return status;
}
