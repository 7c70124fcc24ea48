/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_encode.c: text to ids, through all steps. */
#include <stdlib.h>

#include "status.h"
#include "tokenizer.h"

/* What one call needs; the tokenizer itself is only read. */
typedef struct encoder {
    const moi_tokenizer *t;
    moii_bytes repaired;
    moii_nfc nfc;
    moii_bpe bpe;
    void *split;
    moii_ids out;
    bool plain;
} encoder;

static moi_status words(encoder *e, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t begin = at, end = bytes;
        if (e->split) MOII_TRY(moii_splitter_next(&e->t->splitter, e->split, text, bytes, at, &begin, &end));
        if (begin > at) MOII_TRY(moii_bpe_word(&e->bpe, e->t, text + at, begin - at, &e->out)); /* what matches nothing is a word too */
        MOII_TRY(moii_bpe_word(&e->bpe, e->t, text + begin, end - begin, &e->out));
        at = end;
    }
    return MOI_OK;
}

/* Tokens of `added` become their ids, what stands between them goes to `between`. */
static moi_status apart(encoder *e, const moii_trie *added, const char *text, size_t bytes,
                        moi_status (*between)(encoder *e, const char *text, size_t bytes))
{
    for (size_t at = 0; at < bytes;) {
        size_t found = bytes, length = 0;
        int32_t id = e->plain ? -1 : moii_trie_find(added, text, bytes, at, &found, &length);
        MOII_TRY(between(e, text + at, found - at));
        if (id >= 0) moii_ids_add(&e->out, id);
        at = found + length;
    }
    return MOI_OK;
}

static moi_status normalized(encoder *e, const char *text, size_t bytes)
{
    if (e->t->nfc) MOII_TRY(moii_nfc_apply(&e->nfc, &text, &bytes));
    return apart(e, &e->t->normalized, text, bytes, words);
}

static moi_status encode(encoder *e, const char *text, size_t bytes)
{
    MOII_TRY(moii_utf8_repair(&e->repaired, &text, &bytes));
    if (e->t->splitter.code) {
        e->split = moii_splitter_scratch(&e->t->splitter);
        MOII_REQUIRE(e->split, MOI_ERR_NOMEM, "tokenizer encode: no memory to match words");
    }
    return apart(e, &e->t->plain, text, bytes, normalized);
}

moi_status moi_tokenizer_encode(const moi_tokenizer *tokenizer, const char *text, int64_t bytes, uint32_t flags, int32_t *ids, int64_t room,
                                int64_t *count)
{
    MOII_REQUIRE(tokenizer && count, MOI_ERR_ARG, "tokenizer encode: tokenizer and count must not be NULL");
    MOII_REQUIRE(bytes >= 0 && (text || bytes == 0), MOI_ERR_ARG, "tokenizer encode: text must be given and bytes >= 0, got %lld", (long long)bytes);
    MOII_REQUIRE(room >= 0 && (ids || room == 0), MOI_ERR_ARG, "tokenizer encode: ids must be given and room >= 0, got %lld", (long long)room);
    MOII_REQUIRE((flags & ~(uint32_t)MOI_TOKENIZE_PLAIN) == 0, MOI_ERR_ARG, "tokenizer encode: flags: wanted MOI_TOKENIZE_PLAIN or 0, got %u", flags);
    encoder e = { .t = tokenizer, .out = { ids, room, 0 }, .plain = (flags & MOI_TOKENIZE_PLAIN) != 0 };
    moi_status status = MOI_OK;
    if (tokenizer->bytes)
        for (int64_t i = 0; i < bytes; i++) moii_ids_add(&e.out, (uint8_t)text[i]);
    else status = encode(&e, text, (size_t)bytes);
    moii_splitter_scratch_free(e.split);
    moii_bpe_free(&e.bpe);
    moii_nfc_free(&e.nfc);
    free(e.repaired.data);
    if (!status) *count = e.out.count;
    return status;
}
