/* SPDX-License-Identifier: Apache-2.0 */
#include "module_list.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fnmatch.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"
#include "status.h"

/* An expression that takes more steps than this on one name matches nothing: the types of the tensors then show the difference. */
enum { NAME_MAX_BYTES = 512, STEPS = 100000 };

struct moii_module_list {
    moii_module_rule rule;
    json_t *names; /* a set: lists have an entry for each layer, and are asked for each of some 20,000 weights */
    char **patterns;
    pcre2_code **expressions;
    pcre2_match_context *limits;
    int pattern_count, expression_count;
};

moi_status moii_module_list_create(moii_module_list **out, moii_module_rule rule)
{
    moii_module_list *l = calloc(1, sizeof *l);
    if (l) l->names = json_object();
    if (!l || !l->names) {
        free(l);
        MOII_FAIL(MOI_ERR_NOMEM, "list of modules: no memory");
    }
    l->rule = rule;
    *out = l;
    return MOI_OK;
}

void moii_module_list_free(moii_module_list *l)
{
    if (!l) return;
    for (int i = 0; i < l->pattern_count; i++) free(l->patterns[i]);
    for (int i = 0; i < l->expression_count; i++) pcre2_code_free(l->expressions[i]);
    pcre2_match_context_free(l->limits);
    free(l->patterns);
    free(l->expressions);
    json_decref(l->names);
    free(l);
}

/* Python's re.match, which these entries are written for: anchored at the start only. */
static moi_status add_expression(moii_module_list *l, const char *where, const char *field, const char *text)
{
    char shown[MOII_ST_SHOWN];
    PCRE2_UCHAR reason[128] = "";
    int error;
    PCRE2_SIZE at;
    if (!l->limits && (l->limits = pcre2_match_context_create(NULL))) pcre2_set_match_limit(l->limits, STEPS);
    pcre2_code **grown = realloc(l->expressions, (size_t)(l->expression_count + 1) * sizeof *grown);
    if (grown) l->expressions = grown;
    MOII_REQUIRE(grown && l->limits, MOI_ERR_NOMEM, "%s: %s: no memory", where, field);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
    if (!code) pcre2_get_error_message(error, reason, sizeof reason);
    MOII_REQUIRE(code, MOI_ERR_FORMAT, "%s: %s: wanted a regular expression (%s), got \"re:%s\"", where, field, (const char *)reason,
                 moii_st_show(shown, text));
    l->expressions[l->expression_count++] = code;
    return MOI_OK;
}

static bool matches(const moii_module_list *l, const char *module)
{
    pcre2_match_data *data = l->expression_count ? pcre2_match_data_create(1, NULL) : NULL;
    bool found = false;
    for (int i = 0; data && !found && i < l->expression_count; i++)
        found = pcre2_match(l->expressions[i], (PCRE2_SPTR)module, strlen(module), 0, 0, data, l->limits) >= 0;
    pcre2_match_data_free(data);
    return found;
}

moi_status moii_module_list_add(moii_module_list *l, const char *where, const char *field, const char *entry)
{
    if (l->rule == MOII_MODULE_EXACT && !strncmp(entry, "re:", 3)) return add_expression(l, where, field, entry + 3);
    if (l->rule == MOII_MODULE_PARTS && strpbrk(entry, "*?")) {
        char **grown = realloc(l->patterns, (size_t)(l->pattern_count + 1) * sizeof *grown);
        if (grown) l->patterns = grown;
        char *copy = strdup(entry);
        if (!grown || !copy) {
            free(copy);
            MOII_FAIL(MOI_ERR_NOMEM, "%s: %s: no memory", where, field);
        }
        l->patterns[l->pattern_count++] = copy;
        return MOI_OK;
    }
    MOII_REQUIRE(json_object_set_new(l->names, entry, json_true()) == 0, MOI_ERR_NOMEM, "%s: %s: no memory", where, field);
    return MOI_OK;
}

/* Whether `text`, the name up to one of its dots, fits a pattern. */
static bool fits_pattern(const moii_module_list *l, const char *text)
{
    for (int i = 0; i < l->pattern_count; i++)
        if (!fnmatch(l->patterns[i], text, FNM_NOESCAPE)) return true;
    return false;
}

static bool has_parts(const moii_module_list *l, const char *module)
{
    char text[NAME_MAX_BYTES];
    size_t n = strlen(module);
    if (n >= sizeof text) return false; /* no parameter of a model is called so */
    memcpy(text, module, n + 1);
    for (size_t end = n; end > 0; end--) { /* every run of parts */
        if (end < n && module[end] != '.') continue;
        text[end] = '\0';
        if (fits_pattern(l, text)) return true;
        for (size_t begin = 0; begin < end; begin++)
            if ((begin == 0 || module[begin - 1] == '.') && json_object_get(l->names, text + begin)) return true;
    }
    return false;
}

bool moii_module_list_has(const moii_module_list *l, const char *module)
{
    if (l->rule == MOII_MODULE_PARTS) return has_parts(l, module);
    return json_object_get(l->names, module) || matches(l, module);
}
