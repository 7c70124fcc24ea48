/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_folder.c: what the files beside tokenizer.json say: where generation ends, which chat template the model has. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "json_file.h"
#include "status.h"
#include "tokenizer.h"

enum { MAX_CONFIG = 1 << 24, MAX_TEMPLATE = 1 << 20 };

/* *root is NULL where there is no such file. */
static moi_status load(const moi_tokenizer *t, const char *name, moii_path *path, json_t **root)
{
    *root = NULL;
    MOII_TRY(moii_folder_path(path, t->folder, name));
    if (access(path->text, F_OK) != 0 && errno == ENOENT) return MOI_OK;
    return moii_json_load(root, path->text, MAX_CONFIG);
}

static moi_status add_eos(moi_tokenizer *t, const json_t *v, const char *path)
{
    int64_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    MOII_REQUIRE(id >= 0 && id <= INT32_MAX, MOI_ERR_FORMAT, "%s: \"eos_token_id\": wanted an id or a list of ids, got something else", path);
    t->eos[t->eos_count++] = (int32_t)id;
    return MOI_OK;
}

static moi_status eos_ids(moi_tokenizer *t, const json_t *v, const char *path)
{
    size_t count = json_is_array(v) ? json_array_size(v) : 1;
    t->eos = calloc(count + 1, sizeof *t->eos);
    MOII_REQUIRE(t->eos, MOI_ERR_NOMEM, "tokenizer open: no memory for %zu ids", count);
    if (!json_is_array(v)) return add_eos(t, v, path);
    for (size_t i = 0; i < count; i++) MOII_TRY(add_eos(t, json_array_get(v, i), path));
    return MOI_OK;
}

moi_status moii_tokenizer_read_eos(moi_tokenizer *t)
{
    static const char *const files[] = { "generation_config.json", "config.json" };
    for (size_t i = 0; i < 2 && t->eos_count == 0; i++) {
        moii_path path;
        json_t *root;
        MOII_TRY(load(t, files[i], &path, &root));
        const json_t *v = json_object_get(root, "eos_token_id");
        if (v && !json_is_null(v)) {
            free(t->eos); /* an empty list was before */
            moi_status status = eos_ids(t, v, path.text);
            json_decref(root);
            MOII_TRY(status);
        } else json_decref(root);
    }
    if (t->eos_count > 0 || t->eos_named < 0) return MOI_OK;
    free(t->eos);
    t->eos = malloc(sizeof *t->eos);
    MOII_REQUIRE(t->eos, MOI_ERR_NOMEM, "tokenizer open: no memory for an id");
    t->eos[0] = t->eos_named;
    t->eos_count = 1;
    return MOI_OK;
}

/* The reference would add tokens of this list that tokenizer.json lacks. */
static moi_status check_added(const moi_tokenizer *t, json_t *list, const char *path)
{
    const char *key;
    json_t *v;
    json_object_foreach(list, key, v) {
        const char *content = json_string_value(json_object_get(v, "content"));
        MOII_REQUIRE(content, MOI_ERR_FORMAT, "%s: added_tokens_decoder: \"%.20s\": wanted an object with a text \"content\"", path, key);
        int32_t id = moi_tokenizer_id(t, content);
        char number[16];
        snprintf(number, sizeof number, "%d", id);
        MOII_REQUIRE(!strcmp(number, key), MOI_ERR_FORMAT, "%s: added_tokens_decoder: \"%.40s\": wanted the id of tokenizer.json, %d, got %.20s", path,
                     content, id, key);
    }
    return MOI_OK;
}

/* A text, or a list of named ones, of which "default" is meant. */
static const char *chosen_template(const json_t *v)
{
    size_t i;
    const json_t *one;
    if (json_is_string(v)) return json_string_value(v);
    for (i = 0; (one = json_array_get(v, i)) != NULL; i++) {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && !strcmp(name, "default")) return json_string_value(json_object_get(one, "template"));
    }
    return NULL;
}

/* chat_template.jinja, which counts more than the template in tokenizer_config.json. */
static moi_status read_template(moi_tokenizer *t)
{
    moii_path path;
    MOII_TRY(moii_folder_path(&path, t->folder, "chat_template.jinja"));
    FILE *file = fopen(path.text, "rb");
    if (!file && errno == ENOENT) return MOI_OK;
    if (!file) return moii_fail_errno(MOI_ERR_IO, "cannot open %s", path.text);
    char *text = calloc(1, MAX_TEMPLATE + 1);
    size_t n = text ? fread(text, 1, MAX_TEMPLATE, file) : 0;
    bool bad = ferror(file) != 0;
    fclose(file);
    if (text && !bad && n < MAX_TEMPLATE) moii_chat_look(&t->chat, text);
    bool memory = text != NULL;
    free(text);
    MOII_REQUIRE(memory, MOI_ERR_NOMEM, "tokenizer open: no memory for a chat template");
    MOII_REQUIRE(!bad, MOI_ERR_IO, "cannot read %s", path.text);
    MOII_REQUIRE(n < MAX_TEMPLATE, MOI_ERR_FORMAT, "%s: wanted less than %d bytes", path.text, MAX_TEMPLATE);
    return MOI_OK;
}

static moi_status read_json(moi_tokenizer *t, const json_t *root, const char *path)
{
    json_t *added = json_object_get(root, "added_tokens_decoder");
    if (!t->bytes && added && !json_is_null(added)) {
        MOII_REQUIRE(json_is_object(added), MOI_ERR_FORMAT, "%s: \"added_tokens_decoder\": wanted an object", path);
        MOII_TRY(check_added(t, added, path));
    }
    const json_t *eos = json_object_get(root, "eos_token");
    const char *name = json_string_value(json_is_object(eos) ? json_object_get(eos, "content") : eos);
    if (name) t->eos_named = moi_tokenizer_id(t, name);
    const char *text = chosen_template(json_object_get(root, "chat_template"));
    if (text) moii_chat_look(&t->chat, text);
    return MOI_OK;
}

moi_status moii_tokenizer_read_config(moi_tokenizer *t)
{
    moii_path path;
    json_t *root;
    t->eos_named = -1;
    MOII_TRY(load(t, "tokenizer_config.json", &path, &root));
    moi_status status = root ? read_json(t, root, path.text) : MOI_OK;
    json_decref(root);
    MOII_TRY(status);
    return read_template(t);
}
