/* SPDX-License-Identifier: Apache-2.0
 * prompts.h: what generate is to continue. */
#ifndef PROMPTS_H
#define PROMPTS_H

#include "folder_text.h"

typedef struct prompt {
    char *text; /* NULL: it came as ids */
    id_list ids;
} prompt;

typedef struct prompt_list {
    prompt *at;
    int64_t n;
} prompt_list;

typedef struct prompt_options {
    const char *text, *file, *ids; /* --prompt, --prompts, --ids: one of them, or none */
    bool chat, no_thinking;
    const char *system;
} prompt_options;

/* CMD_DONE, or CMD_USAGE after a message */
int prompts_check(const prompt_options *o, const char *command);
/* false after a message */
bool prompts_read(prompt_list *list, const prompt_options *o, const folder_text *text);
void prompts_free(prompt_list *list);

#endif
