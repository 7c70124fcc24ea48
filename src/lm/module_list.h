/* SPDX-License-Identifier: Apache-2.0
 * module_list.h: lists of modules in quantisation settings ("ignore", "modules_to_not_convert", "targets").
 *
 * Two rules are in use.  PARTS: an entry covers every module whose dotted name contains it as whole parts ("lm_head", "mlp.gate",
 * "model.layers.0"); an entry with * or ? is a shell pattern for the name or a leading part of it ("model.layers.*.self_attn").
 * EXACT: an entry is the whole name, or "re:" and a regular expression that matches from the name's start. */
#ifndef MOII_MODULE_LIST_H
#define MOII_MODULE_LIST_H

#include <jansson.h>

#include "moiety.h"

typedef enum moii_module_rule { MOII_MODULE_PARTS, MOII_MODULE_EXACT } moii_module_rule;

typedef struct moii_module_list moii_module_list;

moi_status moii_module_list_create(moii_module_list **out, moii_module_rule rule);
void moii_module_list_free(moii_module_list *list);
/* Adds one entry.  `where` and `field` begin messages.  Errors: FORMAT (no regular expression), NOMEM. */
moi_status moii_module_list_add(moii_module_list *list, const char *where, const char *field, const char *entry);
bool moii_module_list_has(const moii_module_list *list, const char *module);

#endif
