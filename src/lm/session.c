/* SPDX-License-Identifier: Apache-2.0
 * session.c: one sequence: its KV cache, its position, and feeding it. */
#include <stdlib.h>
#include <string.h>

#include "lm.h"
#include "status.h"

enum { PREFILL = 256 }; /* tokens of a prompt that go through the layers together */

struct moi_session {
    moi_lm *lm;
    int64_t room, length;
    moii_exec *exec;
    float *cache; /* keys of all layers, then values */
    int64_t cache_bytes;
};

static moi_status build(moi_session *s)
{
    const moi_lm_config *c = &s->lm->config;
    const int64_t kv = c->num_hidden_layers * s->room * moii_kv_width(c);
    s->cache_bytes = 2 * kv * 4;
    MOII_TRY(moii_hold(s->lm, "moi_session_create", s->cache_bytes, &s->cache));
    return moii_exec_create(&s->exec, s->lm, 1, moii_min(s->room, PREFILL), s->room, MOII_GENERATE, "moi_session_create");
}

moi_status moi_session_create(moi_session **out, moi_lm *lm, int64_t max_tokens)
{
    MOII_REQUIRE(out && lm, MOI_ERR_ARG, "moi_session_create: %s is NULL", out ? "lm" : "out");
    *out = NULL;
    MOII_REQUIRE(max_tokens >= 1 && max_tokens <= lm->config.max_position_embeddings, MOI_ERR_SHAPE,
                 "moi_session_create: max_tokens must be 1..%lld (max_position_embeddings), got %lld", (long long)lm->config.max_position_embeddings,
                 (long long)max_tokens);
    moi_session *s = calloc(1, sizeof *s);
    MOII_REQUIRE(s, MOI_ERR_NOMEM, "moi_session_create: no memory");
    s->lm = lm;
    s->room = max_tokens;
    moi_status status = build(s);
    if (status) moi_session_free(s);
    else *out = s;
    return status;
}

void moi_session_free(moi_session *s)
{
    if (!s) return;
    moii_exec_free(s->exec);
    moii_let_go(s->lm, s->cache, s->cache_bytes);
    free(s);
}

int64_t moi_session_length(const moi_session *s) { return s ? s->length : 0; }

/* Tokens [count] behind the `past` ones of the cache; exec->final holds their outputs. */
static moi_status feed(moi_session *s, const int32_t *tokens, int64_t count, int64_t past)
{
    const moi_lm_config *c = &s->lm->config;
    const int64_t stride = s->room * moii_kv_width(c);
    const moii_cache cache = { s->cache, s->cache + c->num_hidden_layers * stride, stride, past };
    const moii_input in = { tokens, 1, count, &cache };
    return moii_forward(s->exec, &in);
}

moi_status moi_session_feed(moi_session *s, const int32_t *tokens, int64_t count, float *logits)
{
    MOII_REQUIRE(s && tokens && logits, MOI_ERR_ARG, "moi_session_feed: %s is NULL", !s ? "session" : tokens ? "logits" : "tokens");
    MOII_REQUIRE(count >= 1, MOI_ERR_SHAPE, "moi_session_feed: count must be >= 1, got %lld", (long long)count);
    MOII_REQUIRE(count <= s->room - s->length, MOI_ERR_SHAPE, "moi_session_feed: %lld tokens do not fit behind %lld; the session has room for %lld",
                 (long long)count, (long long)s->length, (long long)s->room);
    MOII_TRY(moii_check_tokens(s->lm, "moi_session_feed", tokens, count));
    int64_t done = 0, last = 0;
    for (; done < count; done += last) {
        last = moii_min(count - done, s->exec->max_tokens);
        MOII_TRY(feed(s, tokens + done, last, s->length + done));
    }
    const int64_t h = s->lm->config.hidden_size;
    memcpy(s->exec->normed, s->exec->final + (last - 1) * h, (size_t)h * sizeof(float)); /* an aligned row */
    MOII_TRY(moii_head_logits(&s->exec->head, s->lm, s->exec->normed, 1, logits, s->exec->space));
    s->length += count;
    return MOI_OK;
}
