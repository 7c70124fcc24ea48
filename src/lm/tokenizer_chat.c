/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_chat.c: conversations as Qwen3's chat template writes them.  Templates are programs; this library does not run them,
 * it writes this one format and looks at a folder's template only to see that it is of the format. */
#include "ctx.h"
#include "status.h"
#include "tokenizer.h"

typedef struct view { const char *p; size_t n; } view;
typedef struct writer { char *text; int64_t room, count; } writer;

static view view_of(const char *text)
{
    return (view){ text, strlen(text) };
}

static void put_view(writer *w, view v)
{
    if (w->count < w->room && v.n) memcpy(w->text + w->count, v.p, (uint64_t)(w->room - w->count) < v.n ? (size_t)(w->room - w->count) : v.n);
    w->count += (int64_t)v.n;
}

static void put(writer *w, const char *text)
{
    put_view(w, view_of(text));
}

static view without_first_lines(view v)
{
    while (v.n && v.p[0] == '\n') v.p++, v.n--;
    return v;
}

static view without_last_lines(view v)
{
    while (v.n && v.p[v.n - 1] == '\n') v.n--;
    return v;
}

static const char *last_in(view v, const char *what)
{
    size_t n = strlen(what);
    for (size_t i = v.n + 1; i-- > 0;)
        if (i + n <= v.n && !memcmp(v.p + i, what, n)) return v.p + i;
    return NULL;
}

/* Takes an answer apart: the thoughts lie between the last <think> before the first </think> and that; the rest is behind the
 * last </think>. */
static void split_thoughts(view *thoughts, view *content)
{
    static const char opens[] = "<think>", closes[] = "</think>";
    const char *close = strstr(content->p, closes);
    *thoughts = (view){ "", 0 };
    if (!close) return;
    view before = without_last_lines((view){ content->p, (size_t)(close - content->p) });
    const char *open = last_in(before, opens);
    if (open) before = (view){ open + sizeof opens - 1, (size_t)(before.p + before.n - open) - (sizeof opens - 1) };
    *thoughts = without_first_lines(before);
    *content = without_first_lines(view_of(last_in(*content, closes) + sizeof closes - 1));
}

static bool is_role(const moi_chat_message *m, const char *role)
{
    return !strcmp(m->role, role);
}

/* The last message that is a question of the user, not results of tools that somebody wrapped already; the last of all if none is. */
static int64_t last_question(const moi_chat_message *m, int64_t count)
{
    static const char opens[] = "<tool_response>", closes[] = "</tool_response>";
    for (int64_t i = count - 1; i >= 0; i--) {
        size_t n = strlen(m[i].content);
        bool wrapped = !strncmp(m[i].content, opens, sizeof opens - 1) && n >= sizeof closes - 1 && !strcmp(m[i].content + n - (sizeof closes - 1), closes);
        if (is_role(&m[i], "user") && !wrapped) return i;
    }
    return count - 1;
}

static void put_answer(writer *w, const moii_chat_facts *f, const char *text, bool behind_question, bool last)
{
    view content = view_of(text), thoughts = { "", 0 };
    if (f->thoughts) split_thoughts(&thoughts, &content);
    put(w, "<|im_start|>assistant\n");
    if (f->thoughts && behind_question && (last || thoughts.n)) {
        put(w, "<think>\n");
        put_view(w, without_last_lines(thoughts));
        put(w, "\n</think>\n\n");
        content = without_first_lines(content);
    }
    put_view(w, content);
    put(w, "<|im_end|>\n");
}

static void put_message(writer *w, const moii_chat_facts *f, const moi_chat_message *m, int64_t i, int64_t count, int64_t question)
{
    if (is_role(&m[i], "assistant")) put_answer(w, f, m[i].content, i > question, i + 1 == count);
    else if (is_role(&m[i], "tool")) {
        if (i == 0 || !is_role(&m[i - 1], "tool")) put(w, "<|im_start|>user");
        put(w, "\n<tool_response>\n");
        put(w, m[i].content);
        put(w, "\n</tool_response>");
        if (i + 1 == count || !is_role(&m[i + 1], "tool")) put(w, "<|im_end|>\n");
    } else {
        put(w, "<|im_start|>");
        put(w, m[i].role);
        put(w, "\n");
        put(w, m[i].content);
        put(w, "<|im_end|>\n");
    }
}

static moi_status check_facts(const moi_tokenizer *t, const moi_chat_options *o)
{
    const moii_chat_facts *f = &t->chat;
    MOII_REQUIRE(f->exists && !t->bytes, MOI_ERR_UNSUPPORTED, "tokenizer chat: %s has no chat template: it is no model for conversations", t->folder);
    MOII_REQUIRE(f->chatml, MOI_ERR_UNSUPPORTED,
                 "tokenizer chat: the chat template of %s is not of Qwen3's kind: wanted \"<|im_start|>\" and \"<|im_end|>\" in it, got none", t->folder);
    MOII_REQUIRE(!o->no_thinking || f->switchable, MOI_ERR_UNSUPPORTED,
                 "tokenizer chat: no_thinking: wanted a chat template with \"enable_thinking\", got one without in %s", t->folder);
    return MOI_OK;
}

static moi_status check_messages(const moi_tokenizer *t, const moi_chat_message *m, int64_t count)
{
    MOII_REQUIRE(m && count > 0, MOI_ERR_ARG, "tokenizer chat: wanted at least one message, got %lld", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        MOII_REQUIRE(m[i].role && m[i].content, MOI_ERR_ARG, "tokenizer chat: messages[%lld]: role and content must not be NULL", (long long)i);
        bool known = is_role(&m[i], "system") || is_role(&m[i], "user") || is_role(&m[i], "assistant") || is_role(&m[i], "tool");
        MOII_REQUIRE(known, MOI_ERR_ARG, "tokenizer chat: messages[%lld].role must be system, user, assistant or tool, got \"%.40s\"", (long long)i,
                     m[i].role);
        MOII_REQUIRE(!is_role(&m[i], "tool") || t->chat.tools, MOI_ERR_UNSUPPORTED,
                     "tokenizer chat: messages[%lld]: the chat template of %s does not write results of tools as Qwen3's does", (long long)i, t->folder);
    }
    MOII_REQUIRE(!t->chat.own_system || is_role(&m[0], "system"), MOI_ERR_UNSUPPORTED,
                 "tokenizer chat: the chat template of %s has a system message of its own, which this library does not read: begin with one", t->folder);
    return MOI_OK;
}

moi_status moi_tokenizer_chat(const moi_tokenizer *tokenizer, const moi_chat_message *messages, int64_t count, const moi_chat_options *options,
                              char *text, int64_t room, int64_t *bytes)
{
    moi_chat_options o = MOI_CHAT_OPTIONS_INIT;
    MOII_REQUIRE(tokenizer && bytes, MOI_ERR_ARG, "tokenizer chat: tokenizer and bytes must not be NULL");
    MOII_REQUIRE(room >= 0 && (text || room == 0), MOI_ERR_ARG, "tokenizer chat: text must be given and room >= 0, got %lld", (long long)room);
    if (options) MOII_TRY(moii_take(&o, sizeof o, options, "tokenizer chat: options"));
    MOII_TRY(check_facts(tokenizer, &o));
    MOII_TRY(check_messages(tokenizer, messages, count));
    writer w = { text, room, 0 };
    int64_t question = last_question(messages, count);
    for (int64_t i = 0; i < count; i++) put_message(&w, &tokenizer->chat, messages, i, count, question);
    if (o.generation_prompt) {
        put(&w, "<|im_start|>assistant\n");
        if (o.no_thinking) put(&w, "<think>\n\n</think>\n\n");
        else if (tokenizer->chat.opens_think) put(&w, "<think>\n");
    }
    *bytes = w.count;
    return MOI_OK;
}
