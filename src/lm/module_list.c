/* SPDX-License-Identifier: Apache-2.0 */
#include "module_list.h"

#include <ctype.h>
#include <fnmatch.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"
#include "status.h"

enum { NAME_MAX_BYTES = 512 };

struct moii_module_list {
    moii_module_rule rule;
    json_t *names; /* a set: lists have an entry for each layer, and are asked for each of some 20,000 weights */
    char **patterns;
    regex_t *expressions;
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
    for (int i = 0; i < l->expression_count; i++) regfree(&l->expressions[i]);
    free(l->patterns);
    free(l->expressions);
    json_decref(l->names);
    free(l);
}

/* POSIX reads some of what these lists are written in (Python's dialect) differently without complaining, so such are refused:
 * groups with (?, and classes such as \d. */
static bool is_common(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (p[0] == '(' && p[1] == '?') return false;
        if (p[0] == '\\' && p[1] && isalnum((unsigned char)*++p) && !strchr("wWsSbB", *p)) return false;
    }
    return true;
}

static moi_status add_expression(moii_module_list *l, const char *where, const char *field, const char *text)
{
    char shown[MOII_ST_SHOWN], reason[64] = "a regular expression of the dialect common to POSIX and Python";
    size_t size = strlen(text) + 4;
    regex_t *grown = realloc(l->expressions, (size_t)(l->expression_count + 1) * sizeof *grown);
    if (grown) l->expressions = grown;
    char *anchored = malloc(size);
    int bad = -1;
    if (grown && anchored) {
        snprintf(anchored, size, "^(%s)", text);
        bad = is_common(text) ? regcomp(&grown[l->expression_count], anchored, REG_EXTENDED | REG_NOSUB) : REG_BADPAT;
        if (bad == 0) l->expression_count++;
    }
    free(anchored);
    MOII_REQUIRE(bad >= 0, MOI_ERR_NOMEM, "%s: %s: no memory", where, field);
    MOII_REQUIRE(bad == 0, MOI_ERR_FORMAT, "%s: %s: wanted %s, got \"re:%s\"", where, field, reason, moii_st_show(shown, text));
    return MOI_OK;
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
    if (json_object_get(l->names, module)) return true;
    for (int i = 0; i < l->expression_count; i++)
        if (!regexec(&l->expressions[i], module, 0, NULL, 0)) return true;
    return false;
}
