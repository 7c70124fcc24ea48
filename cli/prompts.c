/* SPDX-License-Identifier: Apache-2.0
 * prompts.c: what generate is to continue. */
#include "prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int prompts_check(const prompt_options *o, const char *command)
{
    const char *wrong = NULL;
    if ((o->text != NULL) + (o->file != NULL) + (o->ids != NULL) > 1) wrong = "only one of --prompt, --prompts and --ids can be given";
    else if (o->chat && o->ids) wrong = "--chat needs text: --prompt or --prompts";
    else if (o->chat && !o->text && !o->file) wrong = "--chat needs a message: --prompt or --prompts";
    else if (o->system && !o->chat) wrong = "--system needs --chat";
    else if (o->no_thinking && !o->chat) wrong = "--no-thinking needs --chat";
    if (!wrong) return CMD_DONE;
    fprintf(stderr, "moiety %s: %s; see 'moiety %s --help'\n", command, wrong, command);
    return CMD_USAGE;
}

static prompt *add(prompt_list *list, const opened *model)
{
    prompt *more = realloc(list->at, (size_t)(list->n + 1) * sizeof *more);
    if (!more) {
        fprintf(stderr, "moiety %s: no memory\n", model->command);
        return NULL;
    }
    list->at = more;
    list->at[list->n] = (prompt){ 0 };
    return &list->at[list->n++];
}

static bool add_ids(prompt_list *list, const opened *model, const char *where, const char *line, size_t n)
{
    prompt *p = add(list, model);
    return p && id_list_parse(&p->ids, model->command, where, line, n, model->config.vocab_size);
}

static bool add_text(prompt_list *list, const prompt_options *o, const folder_text *t, const char *line, size_t n)
{
    prompt *p = add(list, t->model);
    if (!p) return false;
    if (!(p->text = malloc(n + 1))) return fprintf(stderr, "moiety %s: no memory\n", t->model->command), false;
    memcpy(p->text, line, n);
    p->text[n] = 0;
    if (o->chat) return text_chat(t, o->system, p->text, o->no_thinking, &p->ids);
    if (n > 0 && !text_encode(t, line, n, &p->ids)) return false;
    if (p->ids.n > 0) return true;
    if (t->kind == TEXT_BYTES) return text_encode(t, "\n", 1, &p->ids); /* something must come before the first token */
    fprintf(stderr, "moiety %s: the prompt is empty; --prompt TEXT, --prompts FILE or --ids LIST gives the model something to continue\n",
            t->model->command);
    return false;
}

/* Each line that is not blank is a prompt. */
static bool read_lines(prompt_list *list, const prompt_options *o, const folder_text *t, const char *path)
{
    buffer file = { 0 };
    bool good = buffer_read_file(&file, t->model->command, path, 0);
    int line = 1;
    for (size_t begin = 0; good && begin < file.n; line++) {
        const char *at = file.at + begin, *end = memchr(at, '\n', file.n - begin);
        size_t n = end ? (size_t)(end - at) : file.n - begin;
        char where[4200];
        begin += n + 1;
        if (n > 0 && at[n - 1] == '\r') n--;
        if (n == 0 || strspn(at, " \t,") >= n) continue;
        snprintf(where, sizeof where, "%s: line %d", path, line);
        good = o->ids ? add_ids(list, t->model, where, at, n) : add_text(list, o, t, at, n);
    }
    if (good && list->n == 0) {
        fprintf(stderr, "moiety %s: %s has no prompts: every line is blank\n", t->model->command, path);
        good = false;
    }
    buffer_free(&file);
    return good;
}

bool prompts_read(prompt_list *list, const prompt_options *o, const folder_text *text)
{
    if (o->ids) return o->ids[0] == '@' ? read_lines(list, o, text, o->ids + 1) : add_ids(list, text->model, "--ids", o->ids, strlen(o->ids));
    if (!text_needed(text)) return false;
    if (o->file) return read_lines(list, o, text, o->file);
    const char *one = o->text ? o->text : "";
    return add_text(list, o, text, one, strlen(one));
}

void prompts_free(prompt_list *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        free(list->at[i].text);
        id_list_free(&list->at[i].ids);
    }
    free(list->at);
    *list = (prompt_list){ 0 };
}
