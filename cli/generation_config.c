/* SPDX-License-Identifier: Apache-2.0
 * generation_config.c: how a model folder wants to be sampled, and the tokens at which its texts end. */
#include "generation_config.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static bool wrong(const char *command, const char *path, const char *key, const char *rule)
{
    fprintf(stderr, "moiety %s: %s: %s must be %s\n", command, path, key, rule);
    return false;
}

/* *out stays as it is where the key is missing or null. */
static bool read_real(const json_t *all, const char *command, const char *path, const char *key, double least, double most, double *out)
{
    const json_t *value = json_object_get(all, key);
    char rule[64];
    if (!value || json_is_null(value)) return true;
    snprintf(rule, sizeof rule, "a number from %g to %g", least, most);
    if (!json_is_number(value) || json_number_value(value) < least || json_number_value(value) > most) return wrong(command, path, key, rule);
    *out = json_number_value(value);
    return true;
}

static bool add_eos(generation_config *g, const char *command, const char *path, const json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX)
        return wrong(command, path, "eos_token_id", "a token id or a list of them");
    return id_list_add(&g->eos, (int32_t)json_integer_value(value)) || wrong(command, path, "eos_token_id", "shorter: no memory");
}

static bool read_eos(generation_config *g, const char *command, const char *path, const json_t *all)
{
    const json_t *value = json_object_get(all, "eos_token_id");
    if (!value || json_is_null(value)) return true;
    if (!json_is_array(value)) return add_eos(g, command, path, value);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!add_eos(g, command, path, json_array_get(value, i))) return false;
    return true;
}

static bool read_sampling(generation_config *g, const char *command, const char *path, const json_t *all)
{
    double top_k = (double)g->top_k;
    if (!read_real(all, command, path, "temperature", 0, 100, &g->temperature) || !read_real(all, command, path, "top_p", 1e-6, 1, &g->top_p) ||
        !read_real(all, command, path, "top_k", 0, 1e9, &top_k))
        return false;
    g->top_k = (int64_t)top_k;
    if (json_is_false(json_object_get(all, "do_sample"))) g->temperature = 0;
    return true;
}

/* NULL: *good is false after a message, or true where the file may be missing and is. */
static json_t *read_json(const char *command, const char *path, bool *good)
{
    json_error_t error;
    *good = true;
    if (access(path, F_OK)) return NULL;
    json_t *all = json_load_file(path, 0, &error);
    *good = all && json_is_object(all);
    if (!all) fprintf(stderr, "moiety %s: %s: line %d: %s\n", command, path, error.line, error.text);
    else if (!*good) fprintf(stderr, "moiety %s: %s is no JSON object\n", command, path);
    if (*good) return all;
    json_decref(all);
    return NULL;
}

bool generation_config_read(generation_config *g, const char *command, const char *folder)
{
    static const char *const names[] = { "generation_config.json", "config.json" };
    bool good = true;
    *g = (generation_config){ .temperature = -1, .top_p = -1, .top_k = -1 };
    for (int i = 0; i < 2 && good; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        json_t *all = read_json(command, path, &good);
        if (all && i == 0) good = read_sampling(g, command, path, all);
        if (all && good && g->eos.n == 0) good = read_eos(g, command, path, all);
        json_decref(all);
    }
    return good;
}

void generation_config_free(generation_config *g) { id_list_free(&g->eos); }

bool generation_config_ends(const generation_config *g, int32_t id)
{
    for (int64_t i = 0; i < g->eos.n; i++)
        if (g->eos.at[i] == id) return true;
    return false;
}
