/* SPDX-License-Identifier: Apache-2.0 */
#include "texts.h"

#include <stddef.h>
#include <string.h>

#include "texts.inc" /* made by tools/embed: the texts, and moii_texts[] */

const moii_text *moii_text_find(const char *name)
{
    for (size_t i = 0; i < sizeof moii_texts / sizeof *moii_texts; i++)
        if (!strcmp(moii_texts[i].name, name)) return &moii_texts[i];
    return NULL;
}

static int add(moii_text_set *set, const char *name, size_t length)
{
    char wanted[128];
    for (int i = 0; i < set->count; i++)
        if (strlen(set->names[i]) == length && !memcmp(set->names[i], name, length)) return 0;
    if (length >= sizeof wanted || set->count >= MOII_TEXTS_USED - 1) return 1;
    memcpy(wanted, name, length);
    wanted[length] = 0;
    const moii_text *text = moii_text_find(wanted);
    set->names[set->count] = text ? text->name : name;
    if (!text) return 1;
    set->texts[set->count++] = text->text;
    return 0;
}

int moii_text_collect(moii_text_set *set, const char *name)
{
    static const char include[] = "#include \"";
    memset(set, 0, sizeof *set);
    if (add(set, name, strlen(name))) return 1;
    for (int i = 0; i < set->count; i++) /* the set grows while it is walked */
        for (const char *p = set->texts[i]; (p = strstr(p, include));) {
            const char *from = p + sizeof include - 1, *to = strchr(from, '"');
            int starts = p == set->texts[i] || p[-1] == '\n';
            p = from;
            if (to && starts && add(set, from, (size_t)(to - from))) return 1;
        }
    return 0;
}
