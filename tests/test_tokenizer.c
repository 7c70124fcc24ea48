/* SPDX-License-Identifier: Apache-2.0
 * test_tokenizer.c: the ids of the reference (tests/golden/tokenizer), both ways, streamed, in conversations. */
#include "support.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "moiety_lm.h"
#include "support_files.h"

#define GOLDEN "tests/golden/tokenizer"

static moi_tokenizer *tok;

static int setup(void **state)
{
    (void)state;
    moit_ok(moi_tokenizer_open(&tok, GOLDEN));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    moi_tokenizer_close(tok);
    return 0;
}

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!root) fail_msg("%s: line %d: %s (tests run in the root of the repository)", path, error.line, error.text);
    return root;
}

/* [times, n, id 1 ... id n] and so on, written out. */
static int32_t *written_out(const json_t *runs, int64_t *count)
{
    int32_t *ids = malloc(sizeof *ids << 20);
    *count = 0;
    for (size_t i = 0; i < json_array_size(runs);) {
        int64_t times = json_integer_value(json_array_get(runs, i)), n = json_integer_value(json_array_get(runs, i + 1));
        assert_true(*count + times * n <= 1 << 20);
        for (int64_t t = 0; t < times; t++)
            for (int64_t k = 0; k < n; k++) ids[(*count)++] = (int32_t)json_integer_value(json_array_get(runs, i + 2 + (size_t)k));
        i += 2 + (size_t)n;
    }
    return ids;
}

static char *case_text(const json_t *c, int64_t *bytes)
{
    const char *hex = json_string_value(json_object_get(c, "hex"));
    int64_t n = (int64_t)strlen(hex) / 2, repeat = json_integer_value(json_object_get(c, "repeat"));
    char *text = moit_alloc(n * repeat);
    for (int64_t i = 0; i < n * repeat; i++) {
        char two[3] = { hex[2 * (i % n)], hex[2 * (i % n) + 1], 0 };
        text[i] = (char)strtol(two, NULL, 16);
    }
    *bytes = n * repeat;
    return text;
}

static void check_ids(const char *name, const json_t *runs, const char *text, int64_t bytes, uint32_t flags)
{
    int64_t want_count, count = -1, part;
    int32_t *want = written_out(runs, &want_count);
    moit_ok(moi_tokenizer_encode(tok, text, bytes, flags, NULL, 0, &count));
    if (count != want_count) fail_msg("%s: wanted %lld ids, got %lld", name, (long long)want_count, (long long)count);
    assert_true(count <= 3 * bytes);
    int32_t *ids = moit_alloc(count * 4);
    moit_ok(moi_tokenizer_encode(tok, text, bytes, flags, ids, count, &count));
    for (int64_t i = 0; i < count; i++)
        if (ids[i] != want[i]) fail_msg("%s: id %lld: wanted %d, got %d", name, (long long)i, want[i], ids[i]);
    moit_free(ids);
    ids = moit_alloc(count / 2 * 4); /* with less room: the first ones */
    moit_ok(moi_tokenizer_encode(tok, text, bytes, flags, ids, count / 2, &part));
    assert_int_equal(part, count);
    for (int64_t i = 0; i < count / 2; i++) assert_int_equal(ids[i], want[i]);
    moit_free(ids);
    free(want);
}

/* P:tok.same.  Every case of the reference, with and without added tokens. */
static void same_ids(void **state)
{
    (void)state;
    json_t *all = load(GOLDEN "/cases.json"), *c;
    size_t i;
    assert_true(json_array_size(all) > 60);
    json_array_foreach(all, i, c) {
        int64_t bytes;
        char *text = case_text(c, &bytes);
        const char *name = json_string_value(json_object_get(c, "name"));
        check_ids(name, json_object_get(c, "runs"), text, bytes, 0);
        if (json_object_get(c, "plain_runs")) check_ids(name, json_object_get(c, "plain_runs"), text, bytes, MOI_TOKENIZE_PLAIN);
        moit_free(text);
    }
    json_decref(all);
}

static void check_text(const char *name, const int32_t *ids, int64_t count, uint32_t flags, const char *want, int64_t want_bytes)
{
    int64_t bytes;
    moit_ok(moi_tokenizer_decode(tok, ids, count, flags, NULL, 0, &bytes));
    if (bytes != want_bytes) fail_msg("%s: wanted %lld bytes of text, got %lld", name, (long long)want_bytes, (long long)bytes);
    char *text = moit_alloc(bytes);
    moit_ok(moi_tokenizer_decode(tok, ids, count, flags, text, bytes, &bytes));
    if (bytes && memcmp(text, want, (size_t)bytes)) fail_msg("%s: another text", name);
    moit_free(text);
    text = moit_alloc(bytes / 2);
    moit_ok(moi_tokenizer_decode(tok, ids, count, flags, text, bytes / 2, &bytes));
    assert_int_equal(bytes, want_bytes);
    if (bytes / 2) assert_memory_equal(text, want, (size_t)(bytes / 2));
    moit_free(text);
}

static bool is_utf8(const char *text, int64_t bytes)
{
    json_t *s = json_stringn(text, (size_t)bytes);
    json_decref(s);
    return s != NULL;
}

/* Token by token: the same bytes, and every piece is whole characters. */
static void check_stream(const char *name, const int32_t *ids, int64_t count, const char *want, int64_t want_bytes)
{
    moi_detokenizer *d;
    int64_t all = 0, bytes;
    const char *text;
    moit_ok(moi_detokenizer_create(&d, tok, 0));
    for (int64_t i = 0; i <= count; i++) {
        if (i < count) moit_ok(moi_detokenizer_feed(d, ids[i], &text, &bytes));
        else moit_ok(moi_detokenizer_flush(d, &text, &bytes));
        assert_true(all + bytes <= want_bytes && text[bytes] == 0);
        if (bytes) assert_memory_equal(text, want + all, (size_t)bytes);
        if (!is_utf8(text, bytes)) fail_msg("%s: a piece that cuts a character", name);
        all += bytes;
    }
    assert_int_equal(all, want_bytes);
    moi_detokenizer_free(d);
}

/* P:tok.back and P:tok.stream. */
static void back_again(void **state)
{
    (void)state;
    json_t *all = load(GOLDEN "/cases.json"), *c;
    size_t i;
    json_array_foreach(all, i, c) {
        int64_t bytes, count;
        char *text = case_text(c, &bytes);
        const char *name = json_string_value(json_object_get(c, "name"));
        const json_t *back = json_object_get(c, "back"), *visible = json_object_get(c, "visible");
        const char *want = back ? json_string_value(back) : text;
        int64_t want_bytes = back ? (int64_t)json_string_length(back) : bytes;
        int32_t *ids = written_out(json_object_get(c, "runs"), &count);
        check_text(name, ids, count, 0, want, want_bytes);
        check_stream(name, ids, count, want, want_bytes);
        if (visible) check_text(name, ids, count, MOI_TOKENIZE_VISIBLE, json_string_value(visible), (int64_t)json_string_length(visible));
        free(ids);
        moit_free(text);
    }
    json_decref(all);
}

/* P:tok.stream.  Bytes that are no UTF-8 come out as they are: at once where nothing can complete them, else at the end. */
static void stream_of_invalid(void **state)
{
    (void)state;
    static const struct { const char *fed; int64_t waits; } cases[] = {
        { "\xE3", 1 }, { "\xE3\x81", 2 }, { "\xE3\x81\x82", 0 }, { "\xF0\x9F\x98", 3 }, { "\x80", 0 }, { "\xFF", 0 }, { "a\xC3", 1 }, { "\xC0", 0 },
        { "\xE0\x80", 0 }, { "\xED\xA0", 0 }, { "\xF4\x90", 0 }, { "\xF5", 0 }, { "\xC3\xC3", 1 }, { "\xE3\x81\xE3", 1 }, { "\x80\x80\x80\x80", 0 },
        { "\xF0\x9F\x98\x80\x9F", 0 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        moi_detokenizer *d;
        moit_ok(moi_detokenizer_create(&d, tok, 0));
        for (int twice = 0; twice < 2; twice++) {
            char got[16];
            const char *text;
            int64_t all = 0, bytes, count = (int64_t)strlen(cases[c].fed);
            for (int64_t i = 0; i < count; i++) {
                /* the token of one byte: the ids of the alphabet are its first 256 */
                int32_t id = -1;
                for (int32_t k = 0; k < 256 && id < 0; k++) {
                    char one[4];
                    int64_t n;
                    moit_ok(moi_tokenizer_decode(tok, &k, 1, 0, one, 4, &n));
                    if (n == 1 && one[0] == cases[c].fed[i]) id = k;
                }
                moit_ok(moi_detokenizer_feed(d, id, &text, &bytes));
                memcpy(got + all, text, (size_t)bytes);
                all += bytes;
            }
            assert_int_equal(count - all, cases[c].waits);
            moit_ok(moi_detokenizer_flush(d, &text, &bytes));
            memcpy(got + all, text, (size_t)bytes);
            assert_int_equal(all + bytes, count);
            assert_memory_equal(got, cases[c].fed, (size_t)count);
        }
        moi_detokenizer_free(d);
    }
}

static void questions(void **state)
{
    (void)state;
    int32_t eos[2] = { 0, 0 };
    int64_t count;
    assert_int_equal(moi_tokenizer_vocab_size(tok), 3012);
    assert_false(moi_tokenizer_is_bytes(tok));
    assert_int_equal(moi_tokenizer_id(tok, "<|im_end|>"), 3002);
    assert_int_equal(moi_tokenizer_id(tok, "no such token"), -1);
    assert_string_equal(moi_tokenizer_token(tok, 3002), "<|im_end|>");
    assert_null(moi_tokenizer_token(tok, 3012));
    assert_null(moi_tokenizer_token(tok, -1));
    assert_true(moi_tokenizer_is_eos(tok, 3002) && moi_tokenizer_is_eos(tok, 3000) && !moi_tokenizer_is_eos(tok, 3001));
    moit_ok(moi_tokenizer_eos(tok, eos, 1, &count));
    assert_true(count == 2 && eos[0] == 3002 && eos[1] == 0);
    for (int32_t id = 0; id < 3012; id++) assert_int_equal(moi_tokenizer_id(tok, moi_tokenizer_token(tok, id)), id);
}

static void refusals(void **state)
{
    (void)state;
    int64_t n;
    int32_t id = -5;
    char text[4];
    moit_refused(moi_tokenizer_open(NULL, GOLDEN), MOI_ERR_ARG, "out");
    moit_refused(moi_tokenizer_encode(tok, NULL, 1, 0, NULL, 0, &n), MOI_ERR_ARG, "text must be given");
    moit_refused(moi_tokenizer_encode(tok, "a", -1, 0, NULL, 0, &n), MOI_ERR_ARG, "got -1");
    moit_refused(moi_tokenizer_encode(tok, "a", 1, 0, NULL, 1, &n), MOI_ERR_ARG, "ids must be given");
    moit_refused(moi_tokenizer_encode(tok, "a", 1, 8, NULL, 0, &n), MOI_ERR_ARG, "flags");
    moit_refused(moi_tokenizer_decode(tok, &id, 1, 0, text, 4, &n), MOI_ERR_ARG, "ids[0] must be >= 0, got -5");
    moit_refused(moi_tokenizer_decode(tok, NULL, 1, 0, text, 4, &n), MOI_ERR_ARG, "ids must be given");
    id = 1 << 30; /* nobody's: nothing, as in the reference */
    moit_ok(moi_tokenizer_decode(tok, &id, 1, 0, text, 4, &n));
    assert_int_equal(n, 0);
    moit_ok(moi_tokenizer_encode(tok, NULL, 0, 0, NULL, 0, &n));
    assert_int_equal(n, 0);
}

static double seconds_of(const char *part, int64_t times)
{
    int64_t bytes = (int64_t)strlen(part) * times, count;
    char *text = malloc((size_t)bytes);
    for (int64_t i = 0; i < times; i++) memcpy(text + i * (int64_t)strlen(part), part, strlen(part));
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    moit_ok(moi_tokenizer_encode(tok, text, bytes, 0, NULL, 0, &count));
    clock_gettime(CLOCK_MONOTONIC, &b);
    free(text);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

/* P:tok.near_linear.  Half a million letters, marks, spaces: at n log n some tenths of a second; at n^2 with 1 ns a step, 250 s. */
static void long_words(void **state)
{
    (void)state;
    static const char *const parts[] = { "internationalcompressor", "a", " ", "\n", "\xCC\xA3\xCC\x87",
                                         "\xCC\x87\xCC\xA3", "-", "\xE6\xBC\xA2", "<", "\xFF", " \t" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double s = seconds_of(parts[i], 500000 / (int64_t)strlen(parts[i]));
        if (s > 20) fail_msg("half a million bytes of \"%s\" took %.1f s", parts[i], s);
    }
}

static void *encode_often(void *wrong)
{
    int32_t first[512], again[512];
    int64_t n, m;
    static const char text[] = "Threads share one tokeniser.\n\te\xCC\x81 <|im_end|>\xFF internationalcompressorinternationalcompressorx";
    for (int i = 0; i < 200; i++) {
        if (moi_tokenizer_encode(tok, text, (int64_t)sizeof text - 1, 0, i ? again : first, 512, i ? &m : &n)) *(int *)wrong = 1;
        if (i && (m != n || memcmp(first, again, (size_t)n * 4))) *(int *)wrong = 1;
    }
    return NULL;
}

/* P:tok.threads */
static void threads(void **state)
{
    (void)state;
    enum { N = 4 };
    pthread_t thread[N];
    int wrong[N] = { 0 };
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&thread[i], NULL, encode_often, &wrong[i]), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(wrong[i], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_ids),  cmocka_unit_test(back_again), cmocka_unit_test(stream_of_invalid), cmocka_unit_test(questions),
        cmocka_unit_test(refusals), cmocka_unit_test(long_words), cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
