/* SPDX-License-Identifier: Apache-2.0
 * test_tokenizer_files.c: folders that are taken, folders that are refused and how, and conversations. */
#include "support.h"

#include <jansson.h>
#include <stdlib.h>

#include "../src/lm/tokenizer.h"
#include "support_files.h"

#define GOLDEN "tests/golden/tokenizer"

static void write_text(const char *name, const char *text)
{
    moit_write_file(moit_path(name), text, (int64_t)strlen(text));
}

static void remove_all(void)
{
    static const char *const names[] = { "tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json", "chat_template.jinja" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) remove(moit_path(names[i]));
}

static const char *folder(void)
{
    static char text[4096];
    const char *path = moit_path("x");
    memcpy(text, path, strlen(path) - 2);
    text[strlen(path) - 2] = 0;
    return text;
}

/* A small tokenizer.json as a tree to break: the 256 bytes, "ab" = 256, "abc" = 257, <s> = 258 special. */
static json_t *small(void)
{
    json_error_t error;
    json_t *golden = json_load_file(GOLDEN "/tokenizer.json", 0, &error), *vocab = json_object(), *v;
    if (!golden) fail_msg("%s (tests run in the root of the repository)", error.text);
    const char *token;
    json_object_foreach(json_object_get(json_object_get(golden, "model"), "vocab"), token, v)
        if (json_integer_value(v) < 256) json_object_set(vocab, token, v);
    json_object_set_new(vocab, "ab", json_integer(256));
    json_object_set_new(vocab, "abc", json_integer(257));
    json_object_set_new(json_object_get(golden, "model"), "vocab", vocab);
    json_object_set_new(json_object_get(golden, "model"), "merges", json_pack("[s, s]", "a b", "ab c"));
    json_object_set_new(golden, "added_tokens", json_pack("[{s:i, s:s, s:b, s:b}]", "id", 258, "content", "<s>", "special", 1, "normalized", 0));
    return golden;
}

/* Sets the value at a path such as "model.merges.0" to one written as JSON ("-": removed), and writes the file. */
static void broken(const char *where, const char *value)
{
    json_t *root = small(), *at = root, *v = strcmp(value, "-") ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    char path[128], *save = NULL;
    snprintf(path, sizeof path, "%s", where);
    for (char *key = strtok_r(path, ".", &save), *next; key; key = next) {
        next = strtok_r(NULL, ".", &save);
        if (next) at = json_is_array(at) ? json_array_get(at, (size_t)atoi(key)) : json_object_get(at, key);
        else if (json_is_array(at)) json_array_set_new(at, (size_t)atoi(key), v);
        else if (v) json_object_set_new(at, key, v);
        else json_object_del(at, key);
    }
    char *text = json_dumps(root, 0);
    write_text("tokenizer.json", text);
    free(text);
    json_decref(root);
}

static void opens(const char *text, uint32_t flags, const int32_t *ids, int64_t count)
{
    moi_tokenizer *t;
    int32_t got[64];
    int64_t n;
    moit_ok(moi_tokenizer_open(&t, folder()));
    moit_ok(moi_tokenizer_encode(t, text, (int64_t)strlen(text), flags, got, 64, &n));
    if (n != count) fail_msg("\"%s\": wanted %lld ids, got %lld", text, (long long)count, (long long)n);
    for (int64_t i = 0; i < n; i++) assert_int_equal(got[i], ids[i]);
    moi_tokenizer_close(t);
}
#define OPENS(text, ...) OPENS_FLAGS(text, 0, __VA_ARGS__)
#define OPENS_FLAGS(text, flags, ...) opens((text), (flags), (const int32_t[]){ __VA_ARGS__ }, (int64_t)(sizeof(int32_t[]){ __VA_ARGS__ } / sizeof(int32_t)))

static void refused_files(void **state)
{
    (void)state;
    static const struct { const char *where, *value, *says; } cases[] = {
        { "model", "-", "model: wanted an object" },
        { "model", "[]", "model: wanted an object" },
        { "model.type", "\"Unigram\"", "\"type\": wanted \"BPE\", got \"Unigram\"" },
        { "model.dropout", "0.1", "\"dropout\": wanted null" },
        { "model.byte_fallback", "true", "\"byte_fallback\": wanted false, got true" },
        { "model.continuing_subword_prefix", "\"##\"", "\"continuing_subword_prefix\": wanted null" },
        { "model.end_of_word_suffix", "\"</w>\"", "\"end_of_word_suffix\": wanted null" },
        { "model.ignore_merges", "1", "\"ignore_merges\": wanted true or false, got an integer" },
        { "model.vocab", "-", "\"vocab\": wanted an object" },
        { "model.vocab", "[]", "\"vocab\": wanted an object" },
        { "model.vocab", "{}", "got none for byte 0" },
        { "model.vocab.ab", "\"256\"", "the id of \"ab\": wanted an integer" },
        { "model.vocab.ab", "-1", "the id of \"ab\": wanted an integer" },
        { "model.vocab.ab", "4194304", "wanted an integer in 0..4194303, got 4194304" },
        { "model.vocab.ab", "99999999999", "got 99999999999" },
        { "model.vocab.ab", "257", "wanted one token for each id" },
        { "model.vocab.!", "-", "got none for byte 33" },
        { "model.merges", "-", "\"merges\": wanted an array" },
        { "model.merges", "{}", "\"merges\": wanted an array" },
        { "model.merges.0", "7", "merge 0: wanted" },
        { "model.merges.0", "null", "merge 0: wanted" },
        { "model.merges.0", "\"ab\"", "merge 0: wanted two tokens" },
        { "model.merges.0", "\"a b c\"", "merge 0: wanted two tokens" },
        { "model.merges.0", "\" b\"", "merge 0: wanted two tokens" },
        { "model.merges.0", "\"a \"", "merge 0: wanted two tokens" },
        { "model.merges.1", "[\"a\"]", "merge 1: wanted" },
        { "model.merges.1", "[\"a\", 1]", "merge 1: wanted" },
        { "model.merges.1", "[\"\", \"a\"]", "merge 1: wanted" },
        { "model.merges.1", "\"xy c\"", "of which the first is none" },
        { "model.merges.1", "\"c xy\"", "of which the second is none" },
        { "model.merges.1", "\"c a\"", "of which the result is none" },
        { "normalizer", "{\"type\": \"NFKC\"}", "normalizer: \"type\": wanted \"NFC\", got \"NFKC\"" },
        { "normalizer", "\"NFC\"", "\"normalizer\": wanted an object" },
        { "normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Lowercase\"}]}", "got \"Lowercase\"" },
        { "normalizer", "{\"type\": \"Sequence\"}", "\"normalizers\" is missing" },
        { "pre_tokenizer", "null", "\"pre_tokenizer\" is missing" },
        { "pre_tokenizer", "{\"type\": \"Whitespace\"}", "got \"Whitespace\"" },
        { "pre_tokenizer", "{\"type\": \"Sequence\", \"pretokenizers\": []}", "wanted a step \"ByteLevel\"" },
        { "pre_tokenizer.pretokenizers.0.behavior", "\"Removed\"", "wanted \"Isolated\", got \"Removed\"" },
        { "pre_tokenizer.pretokenizers.0.invert", "true", "\"invert\": wanted false" },
        { "pre_tokenizer.pretokenizers.0.pattern", "{\"String\": \" \"}", "\"Regex\" is missing" },
        { "pre_tokenizer.pretokenizers.0.pattern.Regex", "\"(\"", "got one with an error" },
        { "pre_tokenizer.pretokenizers.0.pattern.Regex", "\"a*\"", "one that may match none" },
        { "pre_tokenizer.pretokenizers.0.pattern.Regex", "\"[a[b]]\"", "patterns with [ inside a class" },
        { "pre_tokenizer.pretokenizers.0.pattern.Regex", "\"[^\\\\S]\"", "patterns with \\S inside a class" },
        { "pre_tokenizer.pretokenizers.1.add_prefix_space", "true", "\"add_prefix_space\": wanted false" },
        { "pre_tokenizer.pretokenizers.1.use_regex", "true", "\"use_regex\": wanted false" },
        { "decoder", "null", "\"decoder\" is missing" },
        { "decoder", "{\"type\": \"Metaspace\"}", "got \"Metaspace\"" },
        { "post_processor", "{\"type\": \"TemplateProcessing\"}", "got \"TemplateProcessing\"" },
        { "added_tokens", "{}", "\"added_tokens\": wanted an array" },
        { "added_tokens.0", "7", "the id of" },
        { "added_tokens.0.id", "259", "wanted 258, which the reference gives it, got 259" },
        { "added_tokens.0.id", "-1", "the id of" },
        { "added_tokens.0.content", "\"\"", "wanted 1 to 4096 bytes, got 0" },
        { "added_tokens.0.content", "\"ab\"", "wanted 256, which the reference gives it, got 258" },
        { "added_tokens.0.content", "1", "\"content\": wanted a string" },
        { "added_tokens.0.lstrip", "true", "\"lstrip\" of \"<s>\": wanted false" },
        { "added_tokens.0.rstrip", "true", "\"rstrip\" of \"<s>\": wanted false" },
        { "added_tokens.0.single_word", "true", "\"single_word\" of \"<s>\": wanted false" },
        { "added_tokens.0.special", "\"yes\"", "\"special\": wanted true or false" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        moi_tokenizer *t = (moi_tokenizer *)&t;
        remove_all();
        broken(cases[i].where, cases[i].value);
        moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_FORMAT, cases[i].says);
        if (!strstr(moi_last_error(), "tokenizer.json")) fail_msg("%s: the file is not named", moi_last_error());
        assert_null(t);
    }
}

/* Cut anywhere: an error, never anything else. */
static void cut_files(void **state)
{
    (void)state;
    json_t *root = small();
    char *text = json_dumps(root, 0);
    int64_t all = (int64_t)strlen(text);
    remove_all();
    for (int64_t n = 0; n < all; n += 1 + n / 40) {
        moi_tokenizer *t;
        moit_write_file(moit_path("tokenizer.json"), text, n);
        moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_FORMAT, "not valid JSON");
    }
    free(text);
    json_decref(root);
}

static void taken_files(void **state)
{
    (void)state;
    remove_all();
    broken("version", "\"1.0\"");
    OPENS("abc<s>", 257, 258);
    broken("model.merges", "[[\"a\", \"b\"], [\"ab\", \"c\"]]");
    OPENS("abcabx", 257, 256, 87);
    broken("model.merges", "[\"ab c\"]"); /* nothing makes ab */
    OPENS("abc", 64, 65, 66);
    broken("model.merges", "[\"ab c\", \"a b\", \"a b\"]"); /* the later of equals counts, here with the same effect */
    OPENS("abc", 257);
    broken("model.ignore_merges", "true");
    OPENS("abc ab", 257, 220, 256);
    broken("model.merges", "[]");
    OPENS("abc", 64, 65, 66);
    broken("model.vocab.abc", "9000"); /* ids without a token between: then 258 is what the reference gives <s> */
    OPENS("abc<s>", 9000, 258);
    broken("normalizer", "null");
    OPENS("e\xCC\x81", 68, 136, 223);
    broken("normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}");
    OPENS("e\xCC\x81", 127, 102);
    broken("pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}");
    OPENS("abc", 257);
    broken("pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}");
    OPENS("abc12 ab", 257, 16, 17, 220, 256);
    broken("pre_tokenizer.pretokenizers.0.pattern.Regex", "\"b\""); /* what matches nothing is a word too */
    OPENS("abcab", 64, 65, 66, 64, 65);
    broken("added_tokens", "[{\"id\": 256, \"content\": \"ab\", \"special\": false}, {\"id\": 258, \"content\": \"e\\u0301\"}]");
    OPENS("abc", 256, 66);
    OPENS_FLAGS("e\xCC\x81", MOI_TOKENIZE_PLAIN, 127, 102);
    OPENS("e\xCC\x81x\xC3\xA9", 258, 87, 258); /* normalized, as added tokens that are not special are if nothing is said */
    broken("added_tokens", "[{\"id\": 258, \"content\": \"<s\", \"special\": true}, {\"id\": 259, \"content\": \"<s>\", \"special\": true}]");
    OPENS("<<s><s", 27, 259, 258); /* the longest */
    broken("added_tokens", "null");
    OPENS("abc", 257);
}

/* Classes mean what they mean in Unicode 16, whatever PCRE2 knows; U+180E is no space. */
static void classes(void **state)
{
    (void)state;
    static const struct { const char *pattern, *text; size_t end; } cases[] = {
        { "\\p{L}+", "a\xF0\xB1\x8D\x90\xF0\xB2\x8E\xAF\xE1\xB2\x89.", 12 }, { "[^\\p{L}]+", ".\xF0\xB1\x8D\x90", 1 },
        { "\\P{L}+", ".\xF0\xB1\x8D\x90", 1 }, { "\\p{N}+", "1\xF0\x90\xB5\x80\xF0\x9E\x97\xB1x", 9 }, { "[\\p{N}x]+", "x\xF0\x90\xB5\x80", 5 },
        { "\\P{N}+", "x\xF0\x90\xB5\x80", 1 }, { "\\s+", " \xE3\x80\x80\xC2\x85\xE1\xA0\x8E", 6 }, { "\\S+", "x\xE1\xA0\x8E ", 4 },
        { "[^\\s]+", "x\xE1\xA0\x8E ", 4 }, { "(?i:'s)", "'\xC5\xBF", 3 }, { "(?i:'s)", "'S", 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        moii_splitter s = { 0 };
        size_t begin, end;
        moit_ok(moii_splitter_create(&s, "here", cases[i].pattern, strlen(cases[i].pattern)));
        for (int jit = s.jit; jit >= 0; jit--) {
            s.jit = jit;
            void *scratch = moii_splitter_scratch(&s);
            moit_ok(moii_splitter_next(&s, scratch, cases[i].text, strlen(cases[i].text), 0, &begin, &end));
            if (begin != 0 || end != cases[i].end) fail_msg("%s: wanted 0..%zu, got %zu..%zu", cases[i].pattern, cases[i].end, begin, end);
            moii_splitter_scratch_free(scratch);
        }
        moii_splitter_free(&s);
    }
    /* a pattern that would run for ages is an error */
    moii_splitter s = { 0 };
    size_t begin, end;
    moit_ok(moii_splitter_create(&s, "here", "(a+)+$", 6));
    void *scratch = moii_splitter_scratch(&s);
    moit_refused(moii_splitter_next(&s, scratch, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", 57, 0, &begin, &end), MOI_ERR_FORMAT, "limit");
    moii_splitter_scratch_free(scratch);
    moii_splitter_free(&s);
}

static bool answer_ends(int32_t id)
{
    moi_tokenizer *t;
    moit_ok(moi_tokenizer_open(&t, folder()));
    bool is = moi_tokenizer_is_eos(t, id);
    moi_tokenizer_close(t);
    return is;
}

static void files_beside(void **state)
{
    (void)state;
    moi_tokenizer *t;
    remove_all();
    broken("version", "\"1.0\"");
    assert_false(answer_ends(258));
    write_text("tokenizer_config.json", "{\"eos_token\": {\"content\": \"<s>\"}}");
    assert_true(answer_ends(258));
    write_text("config.json", "{\"eos_token_id\": 7}");
    assert_true(answer_ends(7) && !answer_ends(258));
    write_text("generation_config.json", "{\"eos_token_id\": [5, 6]}");
    assert_true(answer_ends(5) && answer_ends(6) && !answer_ends(7));
    write_text("generation_config.json", "{\"eos_token_id\": []}");
    assert_true(answer_ends(7));
    static const char *const wrong[] = { "\"5\"", "[5, \"6\"]", "-1", "5000000000", "{}", "[[5]]", "true" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"eos_token_id\": %s}", wrong[i]);
        write_text("generation_config.json", text);
        moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_FORMAT, "\"eos_token_id\": wanted an id");
    }
    remove(moit_path("generation_config.json"));
    write_text("tokenizer_config.json", "{\"added_tokens_decoder\": {\"258\": {\"content\": \"<s>\"}}}");
    assert_true(answer_ends(7));
    write_text("tokenizer_config.json", "{\"added_tokens_decoder\": {\"259\": {\"content\": \"<s>\"}}}");
    moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_FORMAT, "wanted the id of tokenizer.json, 258, got 259");
    write_text("tokenizer_config.json", "{\"added_tokens_decoder\": {\"259\": {\"content\": \"<t>\"}}}");
    moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_FORMAT, "tokenizer_config.json: added_tokens_decoder: \"<t>\"");
    write_text("tokenizer_config.json", "{\"added_tokens_decoder\": [1]}");
    moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_FORMAT, "wanted an object");
    write_text("tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": 2}}");
    moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_FORMAT, "wanted an object with a text");
}

static void folders_of_bytes(void **state)
{
    (void)state;
    moi_tokenizer *t;
    moi_detokenizer *d;
    int32_t ids[8];
    int64_t n;
    const char *text;
    remove_all();
    moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_IO, "no tokenizer.json");
    write_text("config.json", "{\"vocab_size\": 257}");
    moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_IO, "a vocabulary of 257 tokens needs");
    write_text("config.json", "{}");
    moit_refused(moi_tokenizer_open(&t, folder()), MOI_ERR_FORMAT, "\"vocab_size\" is missing");
    write_text("config.json", "{\"vocab_size\": 256}");
    moit_ok(moi_tokenizer_open(&t, folder()));
    assert_true(moi_tokenizer_is_bytes(t) && moi_tokenizer_vocab_size(t) == 256 && moi_tokenizer_id(t, "a") == -1);
    moit_ok(moi_tokenizer_encode(t, "a\xFF\0b", 4, 0, ids, 8, &n));
    assert_true(n == 4 && ids[0] == 'a' && ids[1] == 255 && ids[2] == 0 && ids[3] == 'b');
    moit_ok(moi_detokenizer_create(&d, t, 0));
    moit_ok(moi_detokenizer_feed(d, 0xC3, &text, &n));
    assert_int_equal(n, 0);
    moit_ok(moi_detokenizer_feed(d, 0xA9, &text, &n));
    assert_true(n == 2 && !strcmp(text, "\xC3\xA9"));
    moi_detokenizer_free(d);
    moi_chat_message m = { "user", "x" };
    moit_refused(moi_tokenizer_chat(t, &m, 1, NULL, NULL, 0, &n), MOI_ERR_UNSUPPORTED, "no chat template");
    moi_tokenizer_close(t);
}

/* ---- conversations ----------------------------------------------------------------------------------------------- */

static void check_chat(const moi_tokenizer *t, const moi_chat_message *m, int64_t count, bool prompt, bool no_thinking, const char *want)
{
    moi_chat_options o = MOI_CHAT_OPTIONS_INIT;
    int64_t bytes, again;
    o.generation_prompt = prompt;
    o.no_thinking = no_thinking;
    moit_ok(moi_tokenizer_chat(t, m, count, &o, NULL, 0, &bytes));
    for (int part = 1; part <= 2; part++) {
        char *text = moit_alloc(bytes / part);
        moit_ok(moi_tokenizer_chat(t, m, count, &o, text, bytes / part, &again));
        assert_int_equal(again, bytes);
        if ((size_t)bytes != strlen(want) || memcmp(text, want, (size_t)(bytes / part))) fail_msg("wanted\n%s\ngot\n%.*s", want, (int)(bytes / part), text);
        moit_free(text);
    }
}

/* What Jinja makes of Qwen3's template. */
static void conversations(void **state)
{
    (void)state;
    json_error_t error;
    json_t *all = json_load_file(GOLDEN "/chat.json", 0, &error), *c, *m;
    moi_tokenizer *t;
    size_t i, k;
    moit_ok(moi_tokenizer_open(&t, GOLDEN));
    assert_true(json_array_size(all) > 20);
    json_array_foreach(all, i, c) {
        moi_chat_message messages[8];
        const json_t *list = json_object_get(c, "messages");
        int64_t count = (int64_t)json_array_size(list);
        json_array_foreach(list, k, m)
            messages[k] = (moi_chat_message){ json_string_value(json_object_get(m, "role")), json_string_value(json_object_get(m, "content")) };
        check_chat(t, messages, count, false, false, json_string_value(json_object_get(c, "text")));
        check_chat(t, messages, count, true, false, json_string_value(json_object_get(c, "prompt")));
        check_chat(t, messages, count, true, true, json_string_value(json_object_get(c, "no_thinking")));
    }
    moi_tokenizer_close(t);
    json_decref(all);
}

static moi_status chat_with(const char *template, const moi_chat_message *m, int64_t count, bool no_thinking, char *text, int64_t room)
{
    moi_tokenizer *t;
    int64_t bytes = 0;
    moi_chat_options o = MOI_CHAT_OPTIONS_INIT;
    o.no_thinking = no_thinking;
    write_text("chat_template.jinja", template);
    moit_ok(moi_tokenizer_open(&t, folder()));
    moi_status status = moi_tokenizer_chat(t, m, count, &o, text, room - 1, &bytes);
    if (!status) text[bytes] = 0;
    moi_tokenizer_close(t);
    return status;
}

static void templates(void **state)
{
    (void)state;
    char text[512];
    moi_chat_message m[2] = { { "user", "a" }, { "assistant", "<think>t</think>b" } }, bad[1] = { { "robot", "x" } }, tool[1] = { { "tool", "x" } };
    remove_all();
    broken("version", "\"1.0\"");
    const char *plain = "<|im_start|> <|im_end|>";
    moit_ok(chat_with(plain, m, 2, false, text, 512));
    assert_string_equal(text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>t</think>b<|im_end|>\n<|im_start|>assistant\n");
    moit_refused(chat_with(plain, m, 2, true, text, 512), MOI_ERR_UNSUPPORTED, "enable_thinking");
    moit_refused(chat_with(plain, tool, 1, false, text, 512), MOI_ERR_UNSUPPORTED, "results of tools");
    moit_refused(chat_with(plain, bad, 1, false, text, 512), MOI_ERR_ARG, "got \"robot\"");
    moit_refused(chat_with(plain, m, 0, false, text, 512), MOI_ERR_ARG, "at least one message");
    moit_refused(chat_with("[INST] </s>", m, 1, false, text, 512), MOI_ERR_UNSUPPORTED, "not of Qwen3's kind");
    moit_ok(chat_with("<|im_end|> </think> '<|im_start|>assistant\\n<think>\\n'", m, 1, false, text, 512));
    assert_string_equal(text, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n");
    const char *own = "'<|im_start|>system\\nYou are' <|im_end|>";
    moit_refused(chat_with(own, m, 1, false, text, 512), MOI_ERR_UNSUPPORTED, "a system message of its own");
    m[0].role = "system";
    moit_ok(chat_with(own, m, 1, false, text, 512));
    /* a list of templates in tokenizer_config.json; the file beside it counts more */
    remove(moit_path("chat_template.jinja"));
    write_text("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"\"}, {\"name\": \"default\", \"template\": \"[INST]\"}]}");
    moi_tokenizer *t;
    int64_t bytes;
    moit_ok(moi_tokenizer_open(&t, folder()));
    moit_refused(moi_tokenizer_chat(t, m, 1, NULL, NULL, 0, &bytes), MOI_ERR_UNSUPPORTED, "not of Qwen3's kind");
    moi_tokenizer_close(t);
    moit_ok(chat_with(plain, m, 1, false, text, 512));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_files),    cmocka_unit_test(cut_files),     cmocka_unit_test(taken_files), cmocka_unit_test(files_beside),
        cmocka_unit_test(folders_of_bytes), cmocka_unit_test(conversations), cmocka_unit_test(templates),
        cmocka_unit_test(classes),
    };
    return cmocka_run_group_tests(tests, NULL, moit_remove_folder);
}
