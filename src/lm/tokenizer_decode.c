/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_decode.c: ids to text, all at once or as they come. */
#include <stdlib.h>

#include "status.h"
#include "tokenizer.h"

/* The bytes of one token. */
static const char *bytes_of(const moi_tokenizer *t, int32_t id, uint32_t flags, char own[1], size_t *bytes)
{
    *bytes = 0;
    own[0] = (char)id;
    if (t->bytes) {
        *bytes = id < 256;
        return own;
    }
    if (id >= t->vocab.ids) return own;
    const moii_token *token = &t->vocab.tokens[id];
    if (!token->exists || (token->special && (flags & MOI_TOKENIZE_VISIBLE))) return own;
    *bytes = token->raw_bytes;
    return t->vocab.text.data + token->raw;
}

static moi_status check_flags(const char *where, uint32_t flags)
{
    MOII_REQUIRE((flags & ~(uint32_t)MOI_TOKENIZE_VISIBLE) == 0, MOI_ERR_ARG, "%s: flags: wanted MOI_TOKENIZE_VISIBLE or 0, got %u", where, flags);
    return MOI_OK;
}

moi_status moi_tokenizer_decode(const moi_tokenizer *tokenizer, const int32_t *ids, int64_t count, uint32_t flags, char *text, int64_t room,
                                int64_t *bytes)
{
    MOII_REQUIRE(tokenizer && bytes, MOI_ERR_ARG, "tokenizer decode: tokenizer and bytes must not be NULL");
    MOII_REQUIRE(count >= 0 && (ids || count == 0), MOI_ERR_ARG, "tokenizer decode: ids must be given and count >= 0, got %lld", (long long)count);
    MOII_REQUIRE(room >= 0 && (text || room == 0), MOI_ERR_ARG, "tokenizer decode: text must be given and room >= 0, got %lld", (long long)room);
    MOII_TRY(check_flags("tokenizer decode", flags));
    for (int64_t i = 0; i < count; i++)
        MOII_REQUIRE(ids[i] >= 0, MOI_ERR_ARG, "tokenizer decode: ids[%lld] must be >= 0, got %d", (long long)i, ids[i]);
    int64_t all = 0;
    for (int64_t i = 0; i < count; i++) {
        char own[1];
        size_t n, fits;
        const char *p = bytes_of(tokenizer, ids[i], flags, own, &n);
        fits = room - all <= 0 ? 0 : (uint64_t)(room - all) < n ? (size_t)(room - all) : n;
        if (fits) memcpy(text + all, p, fits);
        all += (int64_t)n;
    }
    *bytes = all;
    return MOI_OK;
}

/* text: at most 3 bytes that wait, then a token, then a NUL. */
struct moi_detokenizer {
    const moi_tokenizer *t;
    uint32_t flags;
    size_t waiting;
    char wait[3];
    char text[];
};

moi_status moi_detokenizer_create(moi_detokenizer **out, const moi_tokenizer *tokenizer, uint32_t flags)
{
    MOII_REQUIRE(out, MOI_ERR_ARG, "detokenizer create: out must not be NULL");
    *out = NULL;
    MOII_REQUIRE(tokenizer, MOI_ERR_ARG, "detokenizer create: tokenizer must not be NULL");
    MOII_TRY(check_flags("detokenizer create", flags));
    moi_detokenizer *d = calloc(1, sizeof *d + (size_t)tokenizer->vocab.longest + 8);
    MOII_REQUIRE(d, MOI_ERR_NOMEM, "detokenizer create: no memory");
    d->t = tokenizer;
    d->flags = flags;
    *out = d;
    return MOI_OK;
}

void moi_detokenizer_free(moi_detokenizer *detokenizer)
{
    free(detokenizer);
}

moi_status moi_detokenizer_feed(moi_detokenizer *detokenizer, int32_t id, const char **text, int64_t *bytes)
{
    moi_detokenizer *d = detokenizer;
    MOII_REQUIRE(d && text && bytes, MOI_ERR_ARG, "detokenizer feed: detokenizer, text and bytes must not be NULL");
    MOII_REQUIRE(id >= 0, MOI_ERR_ARG, "detokenizer feed: id must be >= 0, got %d", id);
    char own[1];
    size_t n, count = d->waiting;
    const char *p = bytes_of(d->t, id, d->flags, own, &n);
    memcpy(d->text, d->wait, count);
    memcpy(d->text + count, p, n);
    count += n;
    d->waiting = moii_utf8_unfinished(d->text, count);
    count -= d->waiting;
    memcpy(d->wait, d->text + count, d->waiting);
    d->text[count] = 0;
    *text = d->text;
    *bytes = (int64_t)count;
    return MOI_OK;
}

moi_status moi_detokenizer_flush(moi_detokenizer *detokenizer, const char **text, int64_t *bytes)
{
    moi_detokenizer *d = detokenizer;
    MOII_REQUIRE(d && text && bytes, MOI_ERR_ARG, "detokenizer flush: detokenizer, text and bytes must not be NULL");
    memcpy(d->text, d->wait, d->waiting);
    d->text[d->waiting] = 0;
    *text = d->text;
    *bytes = (int64_t)d->waiting;
    d->waiting = 0;
    return MOI_OK;
}
