/* SPDX-License-Identifier: Apache-2.0
 * logits.c: one row of tokens through the layers, and its logits a few at a time. */
#include "lm.h"
#include "status.h"

moi_status moi_lm_forward(moi_lm *lm, const int32_t *tokens, int64_t count)
{
    MOII_REQUIRE(lm && tokens, MOI_ERR_ARG, "moi_lm_forward: %s is NULL", lm ? "tokens" : "lm");
    MOII_REQUIRE(count >= 1 && count <= lm->config.max_position_embeddings, MOI_ERR_SHAPE,
                 "moi_lm_forward: count must be 1..%lld (max_position_embeddings), got %lld", (long long)lm->config.max_position_embeddings, (long long)count);
    MOII_TRY(moii_check_tokens(lm, "moi_lm_forward", tokens, count));
    MOII_TRY(moii_eval_exec(lm, 1, count, "moi_lm_forward"));
    MOII_TRY(moii_forward(lm->eval, &(moii_input){ .ids = tokens, .batch = 1, .seq = count }));
    lm->known = count;
    return MOI_OK;
}

moi_status moi_lm_logits(moi_lm *lm, int64_t first, int64_t count, float *logits)
{
    MOII_REQUIRE(lm && logits, MOI_ERR_ARG, "moi_lm_logits: %s is NULL", lm ? "logits" : "lm");
    MOII_REQUIRE(lm->known > 0, MOI_ERR_ARG, "moi_lm_logits: no moi_lm_forward was called before, or moi_lm_evaluate was called since");
    MOII_REQUIRE(first >= 0 && count >= 0 && count <= lm->known && first <= lm->known - count, MOI_ERR_SHAPE,
                 "moi_lm_logits: first and count must lie in the %lld tokens of moi_lm_forward, got %lld and %lld", (long long)lm->known, (long long)first,
                 (long long)count);
    const int64_t h = lm->config.hidden_size;
    const moii_exec *x = lm->eval;
    memcpy(x->normed, x->final + first * h, (size_t)(count * h) * sizeof(float)); /* rows that begin aligned */
    return moii_head_logits(&x->head, lm, x->normed, count, logits, x->space);
}
