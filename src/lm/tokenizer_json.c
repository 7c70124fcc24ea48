/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_json.c: what tokenizer.json says beside vocabulary and merges.  What this library would do otherwise is refused. */
#include <stdio.h>

#include "json_file.h"
#include "status.h"
#include "tokenizer.h"

/* A member that must be an object or an array; NULL where it is missing or null and may be. */
static moi_status member(const json_t *object, const char *path, const char *key, bool array, int need, json_t **out)
{
    json_t *v = json_object_get(object, key);
    *out = json_is_null(v) ? NULL : v;
    MOII_REQUIRE(*out || need == MOII_JSON_OPTIONAL, MOI_ERR_FORMAT, "%s: \"%s\" is missing", path, key);
    bool right = !*out || (array ? json_is_array(*out) : json_is_object(*out));
    MOII_REQUIRE(right, MOI_ERR_FORMAT, "%s: \"%s\": wanted %s", path, key, array ? "an array" : "an object");
    return MOI_OK;
}

static moi_status type_of(const json_t *v, const char *where, const char **type)
{
    *type = NULL;
    MOII_REQUIRE(json_is_object(v), MOI_ERR_FORMAT, "%s: wanted an object", where);
    return moii_json_string(v, where, "type", MOII_JSON_REQUIRED, type);
}

/* A flag that must have one value, here false. */
static moi_status want_false(const json_t *object, const char *where, const char *key, bool standard)
{
    bool b = standard;
    MOII_TRY(moii_json_bool(object, where, key, MOII_JSON_OPTIONAL, &b));
    MOII_REQUIRE(!b, MOI_ERR_FORMAT, "%s: \"%s\": wanted false, got true", where, key);
    return MOI_OK;
}

/* Steps of a part: the members of a Sequence, or the part itself.  list: the key of a sequence's array. */
enum { MAX_STEPS = 4 };
static moi_status steps(const json_t *part, const char *where, const char *list, const json_t *step[MAX_STEPS], size_t *count)
{
    const char *type;
    json_t *array;
    *count = 0;
    if (!part) return MOI_OK;
    MOII_TRY(type_of(part, where, &type));
    if (strcmp(type, "Sequence") != 0) {
        step[(*count)++] = part;
        return MOI_OK;
    }
    MOII_TRY(member(part, where, list, true, MOII_JSON_REQUIRED, &array));
    MOII_REQUIRE(json_array_size(array) <= MAX_STEPS, MOI_ERR_FORMAT, "%s: \"%s\": wanted at most %d steps, got %zu", where, list, MAX_STEPS,
                 json_array_size(array));
    while (*count < json_array_size(array)) {
        step[*count] = json_array_get(array, *count);
        (*count)++;
    }
    return MOI_OK;
}

static moi_status read_normalizer(moi_tokenizer *t, const json_t *root, const char *path)
{
    char where[MOII_PATH_MAX + 32];
    json_t *part;
    const json_t *step[MAX_STEPS];
    size_t count;
    snprintf(where, sizeof where, "%s: normalizer", path);
    MOII_TRY(member(root, path, "normalizer", false, MOII_JSON_OPTIONAL, &part));
    MOII_TRY(steps(part, where, "normalizers", step, &count));
    for (size_t i = 0; i < count; i++) {
        const char *type;
        MOII_TRY(type_of(step[i], where, &type));
        MOII_REQUIRE(!strcmp(type, "NFC"), MOI_ERR_FORMAT, "%s: \"type\": wanted \"NFC\", got \"%.40s\"", where, type);
        t->nfc = true;
    }
    return MOI_OK;
}

/* The pattern that a ByteLevel step uses if it cuts words itself. */
static const char own_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static moi_status read_split(moi_tokenizer *t, const json_t *step, const char *where)
{
    const char *behavior = NULL, *regex = NULL;
    json_t *pattern;
    MOII_TRY(moii_json_string(step, where, "behavior", MOII_JSON_REQUIRED, &behavior));
    MOII_REQUIRE(!strcmp(behavior, "Isolated"), MOI_ERR_FORMAT, "%s: \"behavior\": wanted \"Isolated\", got \"%.40s\"", where, behavior);
    MOII_TRY(want_false(step, where, "invert", false));
    MOII_TRY(member(step, where, "pattern", false, MOII_JSON_REQUIRED, &pattern));
    MOII_TRY(moii_json_string(pattern, where, "Regex", MOII_JSON_REQUIRED, &regex));
    return moii_splitter_create(&t->splitter, where, regex, strlen(regex));
}

static moi_status read_pre_tokenizer(moi_tokenizer *t, const json_t *root, const char *path)
{
    char where[MOII_PATH_MAX + 32];
    json_t *part;
    const json_t *step[MAX_STEPS];
    size_t count;
    bool bytes = false;
    snprintf(where, sizeof where, "%s: pre_tokenizer", path);
    MOII_TRY(member(root, path, "pre_tokenizer", false, MOII_JSON_REQUIRED, &part));
    MOII_TRY(steps(part, where, "pretokenizers", step, &count));
    for (size_t i = 0; i < count; i++) {
        const char *type;
        MOII_TRY(type_of(step[i], where, &type));
        bool last = i + 1 == count, split = !strcmp(type, "Split");
        MOII_REQUIRE(split ? i == 0 && !last : !strcmp(type, "ByteLevel") && last, MOI_ERR_FORMAT,
                     "%s: step %zu: wanted \"Split\", then \"ByteLevel\", got \"%.40s\"", where, i, type);
        if (split) {
            MOII_TRY(read_split(t, step[i], where));
            continue;
        }
        bool own = true;
        bytes = true;
        MOII_TRY(want_false(step[i], where, "add_prefix_space", true));
        MOII_TRY(moii_json_bool(step[i], where, "use_regex", MOII_JSON_OPTIONAL, &own));
        MOII_REQUIRE(!(own && i > 0), MOI_ERR_FORMAT, "%s: \"use_regex\": wanted false behind a \"Split\", got true", where);
        if (own) MOII_TRY(moii_splitter_create(&t->splitter, where, own_pattern, strlen(own_pattern)));
    }
    MOII_REQUIRE(bytes, MOI_ERR_FORMAT, "%s: wanted a step \"ByteLevel\", got none", where);
    return MOI_OK;
}

/* Parts that may only be ByteLevel: it adds nothing to ids, and decodes as this library does. */
static moi_status want_byte_level(const json_t *root, const char *path, const char *key, const char *list, int need)
{
    char where[MOII_PATH_MAX + 32];
    json_t *part;
    const json_t *step[MAX_STEPS];
    size_t count;
    snprintf(where, sizeof where, "%s: %s", path, key);
    MOII_TRY(member(root, path, key, false, need, &part));
    MOII_TRY(steps(part, where, list, step, &count));
    for (size_t i = 0; i < count; i++) {
        const char *type;
        MOII_TRY(type_of(step[i], where, &type));
        MOII_REQUIRE(!strcmp(type, "ByteLevel"), MOI_ERR_FORMAT, "%s: \"type\": wanted \"ByteLevel\", got \"%.40s\"", where, type);
    }
    MOII_REQUIRE(count <= 1, MOI_ERR_FORMAT, "%s: wanted one step, got %zu", where, count);
    return MOI_OK;
}

moi_status moii_tokenizer_read(moi_tokenizer *t, const json_t *root, const char *path)
{
    MOII_TRY(read_normalizer(t, root, path));
    MOII_TRY(read_pre_tokenizer(t, root, path));
    MOII_TRY(want_byte_level(root, path, "post_processor", "processors", MOII_JSON_OPTIONAL));
    MOII_TRY(want_byte_level(root, path, "decoder", "decoders", MOII_JSON_REQUIRED));
    MOII_TRY(moii_tokenizer_read_model(t, root, path));
    return moii_tokenizer_read_added(t, root, path);
}
