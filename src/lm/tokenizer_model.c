/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_model.c: vocabulary, merges and added tokens of tokenizer.json. */
#include <stdio.h>
#include <stdlib.h>

#include "json_file.h"
#include "status.h"
#include "tokenizer.h"

/* Members that must be missing, null, or (text) "". */
static moi_status want_nothing(const json_t *model, const char *where, const char *key)
{
    const json_t *v = json_object_get(model, key);
    bool nothing = !v || json_is_null(v) || (json_is_string(v) && json_string_length(v) == 0) || (json_is_number(v) && !(json_number_value(v) != 0));
    MOII_REQUIRE(nothing, MOI_ERR_FORMAT, "%s: \"%s\": wanted null, got something else", where, key);
    return MOI_OK;
}

static moi_status read_options(moi_tokenizer *t, const json_t *model, const char *where)
{
    const char *type = "BPE";
    bool fallback = false;
    MOII_TRY(moii_json_string(model, where, "type", MOII_JSON_OPTIONAL, &type));
    MOII_REQUIRE(!strcmp(type, "BPE"), MOI_ERR_FORMAT, "%s: \"type\": wanted \"BPE\", got \"%.40s\"", where, type);
    MOII_TRY(want_nothing(model, where, "dropout"));
    MOII_TRY(want_nothing(model, where, "continuing_subword_prefix"));
    MOII_TRY(want_nothing(model, where, "end_of_word_suffix"));
    MOII_TRY(moii_json_bool(model, where, "byte_fallback", MOII_JSON_OPTIONAL, &fallback));
    MOII_REQUIRE(!fallback, MOI_ERR_FORMAT, "%s: \"byte_fallback\": wanted false, got true", where);
    return moii_json_bool(model, where, "ignore_merges", MOII_JSON_OPTIONAL, &t->ignore_merges);
}

static moi_status check_id(const json_t *v, const char *where, const char *token, int64_t *highest)
{
    int64_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    MOII_REQUIRE(id >= 0 && id < MOII_TOK_MAX_IDS, MOI_ERR_FORMAT, "%s: the id of \"%.40s\": wanted an integer in 0..%d, got %lld", where, token,
                 MOII_TOK_MAX_IDS - 1, (long long)id);
    if (id > *highest) *highest = id;
    return MOI_OK;
}

/* The table has room for the added tokens too. */
static moi_status read_vocab(moi_tokenizer *t, json_t *vocab, const json_t *added, const char *where)
{
    const char *token;
    json_t *v;
    int64_t highest = -1;
    size_t count = json_object_size(vocab) + json_array_size(added), i;
    MOII_REQUIRE(count <= MOII_TOK_MAX_IDS, MOI_ERR_FORMAT, "%s: wanted at most %d tokens, got %zu", where, MOII_TOK_MAX_IDS, count);
    json_object_foreach(vocab, token, v) MOII_TRY(check_id(v, where, token, &highest));
    json_array_foreach(added, i, v) MOII_TRY(check_id(json_object_get(v, "id"), where, "an added token", &highest));
    MOII_TRY(moii_vocab_create(&t->vocab, (int32_t)highest + 1, (int32_t)count));
    json_object_foreach(vocab, token, v) {
        int32_t id = (int32_t)json_integer_value(v);
        const moii_token *other = &t->vocab.tokens[id];
        MOII_REQUIRE(!other->exists, MOI_ERR_FORMAT, "%s: wanted one token for each id, got \"%.40s\" and \"%.40s\" for %d", where,
                     t->vocab.text.data + other->spelling, token, id);
        MOII_TRY(moii_vocab_add(&t->vocab, id, token, strlen(token), true));
    }
    int missing;
    moii_vocab_bytes(&t->vocab, &missing);
    MOII_REQUIRE(missing < 0, MOI_ERR_FORMAT, "%s: wanted a token for each of the 256 bytes, got none for byte %d", where, missing);
    return MOI_OK;
}

/* "a b" or ["a", "b"]. */
static moi_status halves(const json_t *v, const char *where, size_t rank, const char *part[2], size_t bytes[2])
{
    if (json_is_string(v)) {
        const char *text = json_string_value(v), *space = strchr(text, ' ');
        MOII_REQUIRE(space && space > text && space[1] && !strchr(space + 1, ' '), MOI_ERR_FORMAT,
                     "%s: merge %zu: wanted two tokens with a space between, got \"%.60s\"", where, rank, text);
        part[0] = text;
        bytes[0] = (size_t)(space - text);
        part[1] = space + 1;
        bytes[1] = strlen(space + 1);
        return MOI_OK;
    }
    bool pair = json_array_size(v) == 2 && json_string_length(json_array_get(v, 0)) > 0 && json_string_length(json_array_get(v, 1)) > 0;
    MOII_REQUIRE(pair, MOI_ERR_FORMAT, "%s: merge %zu: wanted \"a b\" or [\"a\", \"b\"], got something else", where, rank);
    for (size_t k = 0; k < 2; k++) {
        part[k] = json_string_value(json_array_get(v, k));
        bytes[k] = json_string_length(json_array_get(v, k));
    }
    return MOI_OK;
}

static moi_status read_merges(moi_tokenizer *t, const json_t *merges, const char *where)
{
    size_t rank;
    const json_t *v;
    moii_bytes joined = { 0 };
    moi_status status = moii_merges_create(&t->merges, json_array_size(merges));
    for (rank = 0; !status && (v = json_array_get(merges, rank)) != NULL; rank++) {
        const char *part[2] = { "", "" };
        size_t bytes[2] = { 0, 0 };
        joined.count = 0;
        status = halves(v, where, rank, part, bytes);
        if (!status) status = moii_bytes_add(&joined, part[0], bytes[0]);
        if (!status) status = moii_bytes_add(&joined, part[1], bytes[1]);
        if (status) break;
        int32_t left = moii_vocab_find(&t->vocab, part[0], bytes[0]), right = moii_vocab_find(&t->vocab, part[1], bytes[1]);
        int32_t both = moii_vocab_find(&t->vocab, joined.data, joined.count);
        if (left < 0 || right < 0 || both < 0)
            status = moii_fail(MOI_ERR_FORMAT, "%s: merge %zu: wanted tokens of the vocabulary, got \"%.*s\" + \"%.*s\", of which %s is none", where, rank,
                               (int)(bytes[0] < 40 ? bytes[0] : 40), part[0], (int)(bytes[1] < 40 ? bytes[1] : 40), part[1],
                               left < 0 ? "the first" : right < 0 ? "the second" : "the result");
        else moii_merges_add(&t->merges, left, right, (uint32_t)rank, both);
    }
    free(joined.data);
    return status;
}

moi_status moii_tokenizer_read_model(moi_tokenizer *t, const json_t *root, const char *path)
{
    char where[MOII_PATH_MAX + 32];
    snprintf(where, sizeof where, "%s: model", path);
    const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    MOII_REQUIRE(json_is_object(model), MOI_ERR_FORMAT, "%s: wanted an object", where);
    MOII_TRY(read_options(t, model, where));
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    MOII_REQUIRE(json_is_object(vocab), MOI_ERR_FORMAT, "%s: \"vocab\": wanted an object of ids", where);
    MOII_REQUIRE(json_is_array(merges), MOI_ERR_FORMAT, "%s: \"merges\": wanted an array", where);
    MOII_REQUIRE(!added || json_is_null(added) || json_is_array(added), MOI_ERR_FORMAT, "%s: \"added_tokens\": wanted an array", path);
    MOII_TRY(read_vocab(t, vocab, added, where));
    return read_merges(t, merges, where);
}

/* The id the reference gives: that of the model's token of this spelling, or the next one behind all so far; it does not ask what
 * the file says.  Where the two differ, no one can know what the model was trained with. */
static int32_t reference_id(const moi_tokenizer *t, int32_t model_count, int32_t highest_added, const char *content)
{
    int32_t id = moii_vocab_find(&t->vocab, content, strlen(content));
    if (id >= 0) return id;
    return highest_added >= model_count ? highest_added + 1 : model_count;
}

static moi_status add_token(moi_tokenizer *t, const json_t *v, const char *where, int32_t expected, int32_t *id)
{
    const char *content = NULL;
    int64_t number = 0;
    bool special = false, normalized, flag = false;
    static const char *const refused[] = { "single_word", "lstrip", "rstrip" };
    MOII_TRY(moii_json_string(v, where, "content", MOII_JSON_REQUIRED, &content));
    MOII_TRY(moii_json_int(v, where, "id", MOII_JSON_REQUIRED, 0, MOII_TOK_MAX_IDS - 1, &number));
    MOII_TRY(moii_json_bool(v, where, "special", MOII_JSON_OPTIONAL, &special));
    normalized = !special;
    MOII_TRY(moii_json_bool(v, where, "normalized", MOII_JSON_OPTIONAL, &normalized));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        MOII_TRY(moii_json_bool(v, where, refused[i], MOII_JSON_OPTIONAL, &flag));
        MOII_REQUIRE(!flag, MOI_ERR_FORMAT, "%s: \"%s\" of \"%.40s\": wanted false, got true", where, refused[i], content);
    }
    size_t bytes = strlen(content);
    MOII_REQUIRE(bytes > 0 && bytes <= MOII_TOK_MAX_ADDED_BYTES, MOI_ERR_FORMAT, "%s: \"content\" of %lld: wanted 1 to %d bytes, got %zu", where,
                 (long long)number, MOII_TOK_MAX_ADDED_BYTES, bytes);
    MOII_REQUIRE(number == expected, MOI_ERR_FORMAT, "%s: \"id\" of \"%.40s\": wanted %d, which the reference gives it, got %lld", where, content,
                 expected, (long long)number);
    *id = expected;
    moii_token *token = &t->vocab.tokens[expected];
    MOII_REQUIRE(!token->added, MOI_ERR_FORMAT, "%s: wanted each token once, got \"%.40s\" twice", where, content);
    bool same = !token->exists || !strcmp(t->vocab.text.data + token->spelling, content);
    MOII_REQUIRE(same, MOI_ERR_FORMAT, "%s: wanted one token for each id, got \"%.40s\" and \"%.40s\" for %d", where,
                 t->vocab.text.data + token->spelling, content, expected);
    if (!token->exists) MOII_TRY(moii_vocab_add(&t->vocab, expected, content, bytes, false));
    moii_vocab_mark_added(&t->vocab, expected, special);
    if (!normalized || !t->nfc) return moii_trie_add(normalized ? &t->normalized : &t->plain, content, bytes, expected);
    moii_nfc n = { 0 };
    moi_status status = moii_nfc_apply(&n, &content, &bytes);
    if (!status) status = moii_trie_add(&t->normalized, content, bytes, expected);
    moii_nfc_free(&n);
    return status;
}

moi_status moii_tokenizer_read_added(moi_tokenizer *t, const json_t *root, const char *path)
{
    char where[MOII_PATH_MAX + 32];
    size_t i;
    json_t *v, *added = json_object_get(root, "added_tokens");
    int32_t count = t->vocab.count, highest = -1, id = -1;
    json_array_foreach(added, i, v) {
        snprintf(where, sizeof where, "%s: added_tokens[%zu]", path, i);
        MOII_REQUIRE(json_is_object(v), MOI_ERR_FORMAT, "%s: wanted an object", where);
        const char *content = json_string_value(json_object_get(v, "content"));
        MOII_TRY(add_token(t, v, where, reference_id(t, count, highest, content ? content : ""), &id));
        if (id > highest) highest = id;
    }
    return MOI_OK;
}
