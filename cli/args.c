/* SPDX-License-Identifier: Apache-2.0
 * args.c: parses and explains the options of a command. */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"

static bool positional(const arg *a) { return isupper((unsigned char)a->name[0]); }

static int wrong(const args_spec *spec, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "moiety %s: ", spec->command);
    vfprintf(stderr, format, list);
    fprintf(stderr, "; see 'moiety %s --help'\n", spec->command);
    va_end(list);
    return CMD_USAGE;
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

static void show_default(const arg *a)
{
    if (a->kind == ARG_LIST) return;
    if (a->kind == ARG_INT) printf("; default %" PRId64, *(int64_t *)a->value);
    else if (a->kind == ARG_REAL) printf("; default %g", *(double *)a->value);
    else if (*(const char **)a->value && **(const char **)a->value) printf("; default %s", *(const char **)a->value);
}

static void show_range(const arg *a)
{
    if (a->min == 0 && a->max == 0) return;
    if (a->max >= 1e15) printf("; at least %g", a->min);
    else printf("; %.10g to %.10g", a->min, a->max);
}

static void help(const args_spec *spec)
{
    printf("usage: moiety %s", spec->command);
    for (int i = 0; i < spec->count; i++) {
        const arg *a = &spec->table[i];
        if (positional(a)) printf(a->required ? " %s" : " [%s]", a->name);
        else if (a->required) printf(" --%s %s", a->name, a->shows);
    }
    printf(" [OPTIONS]\n\n%s\n", spec->about);
    for (int i = 0; i < spec->count; i++) {
        const arg *a = &spec->table[i];
        char left[96];
        if (positional(a)) snprintf(left, sizeof left, "%s", a->name);
        else snprintf(left, sizeof left, "--%s%s%s", a->name, a->kind == ARG_FLAG ? "" : " ", a->kind == ARG_FLAG ? "" : a->shows);
        if (strlen(left) > 24) printf("  %s\n  %-24s %s", left, "", a->help);
        else printf("  %-24s %s", left, a->help);
        if (positional(a) && a->kind == ARG_CHOICE) printf(": %s", a->shows);
        if (a->kind == ARG_INT || a->kind == ARG_REAL) show_range(a);
        if (a->kind != ARG_FLAG && !a->required) show_default(a);
        printf("\n");
    }
    printf("  %-24s %s\n", "--help", "show this text");
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

static bool is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *at = choices; *at;) {
        size_t word = strcspn(at, "|");
        if (word == length && !memcmp(at, text, word)) return true;
        at += word + (at[word] == '|');
    }
    return false;
}

static int take_number(const args_spec *spec, arg *a, const char *label, const char *text)
{
    char *end;
    double real;
    errno = 0;
    if (a->kind == ARG_INT) {
        long long n = strtoll(text, &end, 10);
        if (!*text || *end || errno) return wrong(spec, "%s must be a whole number, got '%s'", label, text);
        *(int64_t *)a->value = n;
        real = (double)n;
    } else {
        real = strtod(text, &end);
        if (!*text || *end || !isfinite(real)) return wrong(spec, "%s must be a number, got '%s'", label, text);
        *(double *)a->value = real;
    }
    bool any = a->min == 0 && a->max == 0;
    if (!any && (real < a->min || real > a->max)) {
        if (a->max >= 1e15) return wrong(spec, "%s must be at least %g, got %s", label, a->min, text);
        return wrong(spec, "%s must be from %.10g to %.10g, got %s", label, a->min, a->max, text);
    }
    return ARGS_GO;
}

static int take_another(const args_spec *spec, arg *a, const char *text)
{
    arg_list *list = a->value;
    if (list->n == ARG_LIST_MOST) return wrong(spec, "--%s can be given %d times, no more", a->name, (int)ARG_LIST_MOST);
    list->at[list->n++] = text;
    return ARGS_GO;
}

static int take(const args_spec *spec, arg *a, const char *text)
{
    char label[64];
    snprintf(label, sizeof label, "%s%s", positional(a) ? "" : "--", a->name);
    a->given = true;
    if (a->kind == ARG_INT || a->kind == ARG_REAL) return take_number(spec, a, label, text);
    if (a->kind == ARG_LIST) return take_another(spec, a, text);
    if (a->kind == ARG_CHOICE && !is_choice(a->shows, text)) return wrong(spec, "%s must be one of %s, got '%s'", label, a->shows, text);
    *(const char **)a->value = text;
    return ARGS_GO;
}

static arg *find(const args_spec *spec, const char *name, size_t length)
{
    for (int i = 0; i < spec->count; i++) {
        arg *a = &spec->table[i];
        if (!positional(a) && strlen(a->name) == length && !memcmp(a->name, name, length)) return a;
    }
    return NULL;
}

static int take_named(const args_spec *spec, int argc, char **argv, int *at)
{
    const char *word = argv[*at];
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    arg *a = length > 2 ? find(spec, word + 2, length - 2) : NULL;
    if (!a) return wrong(spec, "unknown option '%.*s'", (int)length, word);
    if (a->kind == ARG_FLAG) {
        if (equals) return wrong(spec, "--%s takes no value", a->name);
        *(bool *)a->value = a->given = true;
        return ARGS_GO;
    }
    if (equals) return take(spec, a, equals + 1);
    if (*at + 1 >= argc) return wrong(spec, "--%s needs a value (%s)", a->name, a->shows);
    return take(spec, a, argv[++*at]);
}

static int take_positional(const args_spec *spec, const char *word)
{
    for (int i = 0; i < spec->count; i++) {
        arg *a = &spec->table[i];
        if (positional(a) && !a->given) return take(spec, a, word);
    }
    return wrong(spec, "'%s' is one argument too many", word);
}

int args_parse(const args_spec *spec, int argc, char **argv)
{
    bool options = true;
    for (int i = 1; i < argc; i++) {
        int verdict = ARGS_GO;
        const char *word = argv[i];
        if (options && !strcmp(word, "--")) options = false;
        else if (options && (!strcmp(word, "--help") || !strcmp(word, "-h"))) return help(spec), CMD_DONE;
        else if (options && word[0] == '-' && word[1] == '-') verdict = take_named(spec, argc, argv, &i);
        else if (options && word[0] == '-' && word[1]) verdict = wrong(spec, "unknown option '%s'", word);
        else verdict = take_positional(spec, word);
        if (verdict != ARGS_GO) return verdict;
    }
    for (int i = 0; i < spec->count; i++) {
        const arg *a = &spec->table[i];
        if (a->required && !a->given) return wrong(spec, "%s%s is missing", positional(a) ? "" : "--", a->name);
    }
    return ARGS_GO;
}

bool args_given(const args_spec *spec, const char *name)
{
    for (int i = 0; i < spec->count; i++)
        if (!strcmp(spec->table[i].name, name)) return spec->table[i].given;
    return false;
}
