/* SPDX-License-Identifier: Apache-2.0
 * cmd_tokenize.c: moiety tokenize: text to the token ids of a model folder, and back. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "cmd.h"
#include "moiety_lm.h"

typedef struct job {
    const char *model, *file;
    bool json, decode, chat, no_thinking, plain;
    moi_tokenizer *t;
    int32_t *ids;
    int64_t room;
    char *text; /* of decode and chat */
    int64_t text_room;
} job;

static int no_memory(void)
{
    fprintf(stderr, "moiety tokenize: no memory\n");
    return CMD_FAILED;
}

/* Ids into j->ids, which grows. */
static moi_status encode(job *j, const char *text, int64_t bytes, int64_t *count)
{
    uint32_t flags = j->plain ? MOI_TOKENIZE_PLAIN : 0;
    moi_status status = moi_tokenizer_encode(j->t, text, bytes, flags, j->ids, j->room, count);
    if (status || *count <= j->room) return status;
    free(j->ids);
    j->room = *count + *count / 2;
    j->ids = malloc((size_t)j->room * sizeof *j->ids);
    if (!j->ids) j->room = 0;
    return j->ids ? moi_tokenizer_encode(j->t, text, bytes, flags, j->ids, j->room, count) : MOI_ERR_NOMEM;
}

static bool grow_text(job *j, int64_t bytes)
{
    if (bytes <= j->text_room) return true;
    free(j->text);
    j->text = malloc((size_t)bytes);
    j->text_room = j->text ? bytes : 0;
    return j->text != NULL;
}

static moi_status decode(job *j, const int32_t *ids, int64_t count, int64_t *bytes)
{
    moi_status status = moi_tokenizer_decode(j->t, ids, count, 0, j->text, j->text_room, bytes);
    if (status || *bytes <= j->text_room) return status;
    return grow_text(j, *bytes) ? moi_tokenizer_decode(j->t, ids, count, 0, j->text, j->text_room, bytes) : MOI_ERR_NOMEM;
}

/* Wraps one user message; its text is in j->text. */
static moi_status wrap(job *j, const char *question, int64_t *bytes)
{
    moi_chat_message message = { "user", question };
    moi_chat_options options = MOI_CHAT_OPTIONS_INIT;
    options.no_thinking = j->no_thinking;
    moi_status status = moi_tokenizer_chat(j->t, &message, 1, &options, j->text, j->text_room, bytes);
    if (status || *bytes <= j->text_room) return status;
    return grow_text(j, *bytes) ? moi_tokenizer_chat(j->t, &message, 1, &options, j->text, j->text_room, bytes) : MOI_ERR_NOMEM;
}

static void show_ids(const job *j, int64_t count)
{
    for (int64_t i = 0; i < count; i++) printf(i ? " %d" : "%d", j->ids[i]);
    printf("\n");
}

static void show_text(const job *j, int64_t bytes)
{
    if (bytes) fwrite(j->text, 1, (size_t)bytes, stdout);
    printf("\n");
}

static int show_json(json_t *all)
{
    if (!all || json_dumpf(all, stdout, JSON_COMPACT)) return no_memory();
    printf("\n");
    json_decref(all);
    return CMD_DONE;
}

/* {"ids": [...], "pieces": [...]}: pieces as tokenizer.json spells them; a tokeniser of bytes has no spellings. */
static int show_ids_json(const job *j, int64_t count)
{
    json_t *ids = json_array(), *pieces = json_array(), *all = json_object();
    bool bad = false;
    for (int64_t i = 0; i < count; i++) {
        bad |= json_array_append_new(ids, json_integer(j->ids[i])) != 0;
        if (!moi_tokenizer_is_bytes(j->t)) bad |= json_array_append_new(pieces, json_string(moi_tokenizer_token(j->t, j->ids[i]))) != 0;
    }
    bad |= json_object_set_new(all, "ids", ids) || json_object_set_new(all, "pieces", pieces);
    if (bad) return no_memory();
    if (moi_tokenizer_is_bytes(j->t)) json_object_del(all, "pieces");
    return show_json(all);
}

/* {"text": "..."}, or {"hex": "..."} where the tokens end inside a character or are no text. */
static int show_text_json(const job *j, int64_t bytes)
{
    json_t *all = json_object(), *text = json_stringn(bytes ? j->text : "", (size_t)bytes);
    if (text) return json_object_set_new(all, "text", text) ? no_memory() : show_json(all);
    char *hex = malloc((size_t)bytes * 2 + 1);
    if (!hex) return no_memory();
    for (int64_t i = 0; i < bytes; i++) snprintf(hex + 2 * i, 3, "%02x", (unsigned char)j->text[i]);
    json_object_set_new(all, "hex", json_string(hex));
    free(hex);
    return show_json(all);
}

/* The numbers of a line, between blanks or commas. */
static bool parse_ids(job *j, const char *line, int64_t number, int64_t *count)
{
    *count = 0;
    for (const char *p = line + strspn(line, " \t\r\n,"); *p; p += strspn(p, " \t\r\n,")) {
        char *end;
        errno = 0;
        long long id = strtoll(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX || (*end && !strchr(" \t\r\n,", *end))) {
            int shown = (int)strcspn(p, " \t\r\n,");
            fprintf(stderr, "moiety tokenize: line %lld: wanted ids, got '%.*s'\n", (long long)number, shown < 40 ? shown : 40, p);
            return false;
        }
        if (*count == j->room) {
            int64_t room = j->room ? j->room * 2 : 1024;
            int32_t *ids = realloc(j->ids, (size_t)room * sizeof *ids);
            if (!ids) return no_memory() == CMD_DONE;
            j->ids = ids;
            j->room = room;
        }
        j->ids[(*count)++] = (int32_t)id;
        p = end;
    }
    return true;
}

/* Every line on its own: ids to a line of text, text to a line of ids. */
static int lines(job *j, FILE *in)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int verdict = CMD_DONE;
    for (int64_t number = 1; verdict == CMD_DONE && (n = getline(&line, &room, in)) >= 0; number++) {
        int64_t count, bytes;
        if (j->decode) {
            if (!parse_ids(j, line, number, &count)) verdict = CMD_FAILED;
            else if (decode(j, j->ids, count, &bytes)) verdict = cmd_failed("tokenize");
            else show_text(j, bytes);
        } else {
            if (n > 0 && line[n - 1] == '\n') n--;
            if (encode(j, line, n, &count)) verdict = cmd_failed("tokenize");
            else show_ids(j, count);
        }
    }
    free(line);
    return verdict;
}

/* Ids of JSON: a list, or an object with "ids". */
static bool read_ids(job *j, const char *text, size_t bytes, int64_t *count)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, 0, &error), *list = json_is_object(root) ? json_object_get(root, "ids") : root, *v;
    size_t i;
    *count = 0;
    if (!json_is_array(list)) {
        fprintf(stderr, "moiety tokenize: wanted a JSON list of ids or {\"ids\": [...]}, got %s\n", root ? "something else" : error.text);
        json_decref(root);
        return false;
    }
    free(j->ids);
    j->room = (int64_t)json_array_size(list) + 1;
    j->ids = malloc((size_t)j->room * sizeof *j->ids);
    bool good = j->ids != NULL;
    if (!good) no_memory();
    for (i = 0; good && (v = json_array_get(list, i)) != NULL; i++) {
        good = json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX;
        if (good) j->ids[(*count)++] = (int32_t)json_integer_value(v);
        else fprintf(stderr, "moiety tokenize: ids[%zu]: wanted an id, got something else\n", i);
    }
    json_decref(root);
    return good;
}

/* The whole input as one text (or one list of ids). */
static int whole(job *j, char *text, size_t bytes)
{
    int64_t count, made;
    if (j->decode) {
        if (!read_ids(j, text, bytes, &count)) return CMD_FAILED;
        return decode(j, j->ids, count, &made) ? cmd_failed("tokenize") : show_text_json(j, made);
    }
    if (j->chat) {
        if (bytes && text[bytes - 1] == '\n') text[--bytes] = 0;
        if (strlen(text) != bytes) {
            fprintf(stderr, "moiety tokenize: a message cannot have a NUL\n");
            return CMD_FAILED;
        }
        if (wrap(j, text, &made)) return cmd_failed("tokenize");
        text = j->text;
        bytes = (size_t)made;
    }
    if (encode(j, text, (int64_t)bytes, &count)) return cmd_failed("tokenize");
    if (j->json) return show_ids_json(j, count);
    show_ids(j, count);
    return CMD_DONE;
}

static int read_whole(job *j, FILE *in)
{
    size_t room = 1 << 16, n = 0, got;
    char *text = malloc(room + 1);
    while (text && (got = fread(text + n, 1, room - n, in)) > 0) {
        n += got;
        if (n < room) continue;
        char *more = realloc(text, 2 * room + 1);
        if (!more) free(text);
        text = more;
        room *= 2;
    }
    if (!text) return no_memory();
    text[n] = 0;
    int verdict = ferror(in) ? CMD_DONE : whole(j, text, n);
    free(text);
    return verdict;
}

static int tokenize(job *j)
{
    FILE *in = !j->file || !strcmp(j->file, "-") ? stdin : fopen(j->file, "rb");
    if (!in) {
        fprintf(stderr, "moiety tokenize: %s: %s\n", j->file, strerror(errno));
        return CMD_FAILED;
    }
    int verdict = j->json || j->chat ? read_whole(j, in) : lines(j, in);
    if (ferror(in)) {
        fprintf(stderr, "moiety tokenize: %s: it cannot be read to its end\n", j->file ? j->file : "standard input");
        verdict = CMD_FAILED;
    }
    if (in != stdin) fclose(in);
    if (fflush(stdout) && verdict == CMD_DONE) {
        fprintf(stderr, "moiety tokenize: cannot write: %s\n", strerror(errno));
        verdict = CMD_FAILED;
    }
    return verdict;
}

int cmd_tokenize(int argc, char **argv)
{
    job j = { 0 };
    arg table[] = {
        { "MODEL", ARG_TEXT, &j.model, .help = "model folder (tokenizer.json)", .required = true },
        { "FILE", ARG_TEXT, &j.file, .help = "what to read; without it, standard input" },
        { "json", ARG_FLAG, &j.json, .help = "take the whole input as one text; print {\"ids\": [...], \"pieces\": [...]}" },
        { "decode", ARG_FLAG, &j.decode, .help = "read ids, print their text; with --json from a list to {\"text\": ...}" },
        { "chat", ARG_FLAG, &j.chat, .help = "take the whole input as a user's message, in the model's chat format" },
        { "no-thinking", ARG_FLAG, &j.no_thinking, .help = "with --chat: ask for an answer without thoughts" },
        { "plain", ARG_FLAG, &j.plain, .help = "tokens spelt out in the text, such as <|im_end|>, are ordinary text" },
    };
    args_spec spec = ARGS_SPEC("tokenize", "Turns each line of text into a line of token ids, as the model's tokeniser does.\n"
                                           "Folders without tokenizer.json and a vocabulary of 256 have the bytes as tokens.\n", table);
    int verdict = args_parse(&spec, argc, argv);
    if (verdict != ARGS_GO) return verdict;
    if ((j.decode && (j.chat || j.plain)) || (j.no_thinking && !j.chat)) {
        const char *rule = j.decode ? "--decode goes with neither --chat nor --plain" : "--no-thinking needs --chat";
        fprintf(stderr, "moiety tokenize: %s; see 'moiety tokenize --help'\n", rule);
        return CMD_USAGE;
    }
    moi_status status = moi_tokenizer_open(&j.t, j.model);
    if (status) {
        cmd_failed("tokenize");
        if (status == MOI_ERR_IO) fprintf(stderr, "moiety tokenize: without a tokeniser, 'moiety generate' takes token ids (--ids)\n");
        return CMD_FAILED;
    }
    verdict = tokenize(&j);
    moi_tokenizer_close(j.t);
    free(j.ids);
    free(j.text);
    return verdict;
}
