/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_template.c: what kind of chat template a folder has, told by words in its text. */
#include <ctype.h>

#include "tokenizer.h"

/* Templates write a new line as the two characters \n inside their texts. */
static bool has_own_system(const char *text)
{
    static const char mark[] = "<|im_start|>system";
    for (const char *p = strstr(text, mark); p; p = strstr(p + 1, mark)) {
        const char *q = p + sizeof mark - 1;
        if (q[0] == '\n') q++;
        else if (q[0] == '\\' && q[1] == 'n') q += 2;
        else continue;
        if (isalnum((unsigned char)*q)) return true;
    }
    return false;
}

static bool has(const char *text, const char *a, const char *b)
{
    return strstr(text, a) || strstr(text, b);
}

void moii_chat_look(moii_chat_facts *f, const char *text)
{
    *f = (moii_chat_facts){ .exists = true };
    f->chatml = strstr(text, "<|im_start|>") && strstr(text, "<|im_end|>");
    f->thoughts = strstr(text, "</think>") != NULL;
    f->switchable = strstr(text, "enable_thinking") != NULL;
    f->opens_think = has(text, "<|im_start|>assistant\\n<think>", "<|im_start|>assistant\n<think>");
    f->tools = has(text, "\\n<tool_response>\\n", "\n<tool_response>\n");
    f->own_system = has_own_system(text);
}
